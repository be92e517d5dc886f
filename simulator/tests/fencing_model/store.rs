//! The content of the store: the keys of FENCING 3, 5 and 6, without revisions.
//!
//! The model needs no revisions. A late write is refused at the moment when a key that it guards is written
//! (`network.rs`), which has the effect of `Unchanged`, `Created` and `Absent`. Epochs and action uids are relative:
//! the model stores only whether an epoch or uid is still current. A node can therefore be fenced, and a service moved,
//! any number of times.

/// A machine of the model, 0 or 1.
pub(crate) type NodeId = u8;

/// Number of machines.
pub(crate) const NODES: usize = 2;

/// All machines.
pub(crate) const NODE_IDS: [NodeId; NODES] = [0, 1];

/// Returns the other machine.
pub(crate) fn other_node(node: NodeId) -> NodeId {
    1 - node
}

pub(crate) fn index_of(node: NodeId) -> usize {
    usize::from(node)
}

/// `fence/<node>`: whether its epoch is open, and the state of the node's report at the close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Fence {
    /// The epoch is open.
    Open,
    /// The epoch was closed, and no proof is recorded yet.
    Fencing {
        /// `true` if the node's report under the close's guard showed armed, so that proof (a) counts.
        armed: bool,
    },
    /// A proof was recorded (Fenced or Closed): assignments of the older epoch are releasable.
    Released,
}

/// The mode in `report/<node>/node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// A present or former member.
    Active,
    /// The node has stopped all services, has verified the stops, and requests an epoch.
    Registering {
        /// `true` if the fence names this request.
        admitted: bool,
    },
    /// The node has left cleanly.
    Left,
}

/// `report/<node>/node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ModelNodeReport {
    pub(crate) mode: Mode,
    /// `true` if armed: true is committed.
    pub(crate) armed: bool,
}

/// `report/<node>/resource/<name>`, as an answer to the current action uid unless it is `Outdated`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum ModelServiceReport {
    /// No answer, or the confirmed end of an older action.
    None,
    /// Stopped or Failed for the current action: no copy runs, and the right to start has ended. For the source of a
    /// migration, this means HandedOver.
    Stopped,
    /// Starting or Running: a permit exists.
    Active,
    /// The target of a migration is ready. This report is also a permit.
    Receiving,
    /// The source of a migration hands over: from now on the service is on either node.
    HandingOver,
    /// Active, Receiving or HandingOver for an older action.
    Outdated,
}

impl ModelServiceReport {
    /// Returns `true` if the service counts as active on this node (FENCING 4 and 5, proof (g)).
    pub(crate) fn is_active(self) -> bool {
        match self {
            ModelServiceReport::None | ModelServiceReport::Stopped => false,
            ModelServiceReport::Active
            | ModelServiceReport::Receiving
            | ModelServiceReport::HandingOver
            | ModelServiceReport::Outdated => true,
        }
    }

    /// Returns the answer as it counts under a new action uid.
    pub(crate) fn outdated(self) -> ModelServiceReport {
        if self.is_active() { ModelServiceReport::Outdated } else { ModelServiceReport::None }
    }
}

/// The action of the assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Work {
    /// Start the service, or keep it running, on this node.
    Run(NodeId),
    /// Stop the service on this node.
    Halt(NodeId),
    /// Migrate the service live from this node to the other one.
    Move {
        /// Source of the migration.
        from: NodeId,
    },
}

impl Work {
    /// Returns `true` if the assignment names this node.
    pub(crate) fn names(self, node: NodeId) -> bool {
        match self {
            Work::Run(on) | Work::Halt(on) => on == node,
            Work::Move { .. } => true,
        }
    }

    /// Returns `true` if this node may commit a permit under the assignment.
    pub(crate) fn permits(self, node: NodeId) -> bool {
        match self {
            Work::Run(on) => on == node,
            Work::Halt(_) => false,
            Work::Move { from } => from != node,
        }
    }

    /// Returns the work with the two nodes exchanged.
    pub(crate) fn mirrored(self) -> Work {
        match self {
            Work::Run(on) => Work::Run(other_node(on)),
            Work::Halt(on) => Work::Halt(other_node(on)),
            Work::Move { from } => Work::Move { from: other_node(from) },
        }
    }

    /// Returns the nodes that the work names, as a bit set.
    pub(crate) fn nodes(self) -> u8 {
        match self {
            Work::Run(on) | Work::Halt(on) => 1 << on,
            Work::Move { .. } => 0b11,
        }
    }
}

/// `assignment/<resource>`. The model has one service, so it has one assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Assignment {
    /// Action, which has a unique action uid.
    pub(crate) work: Work,
    /// For each node that the assignment names: whether the copied epoch is still the node's epoch.
    pub(crate) is_current: [bool; NODES],
    /// Latest evidence about the target of a migration after the end of the source (R8.17); only for drivers that are
    /// not gated.
    pub(crate) evidence: Evidence,
    /// `true` if the assignment asks about an arrival in a migration whose source has ended (`source_end_revision`);
    /// only for drivers that are not gated.
    pub(crate) asks_for_hold: bool,
}

/// Evidence about the target of a migration after the end of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Evidence {
    /// None yet.
    None,
    /// A heartbeat.
    Heartbeat,
    /// The confirmation of a fence device that the target is off, or silence since a heartbeat.
    Release,
}

/// The content of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Store {
    /// `fence/<node>`.
    pub(crate) fences: [Fence; NODES],
    /// `report/<node>/node`.
    pub(crate) node_reports: [ModelNodeReport; NODES],
    /// `report/<node>/resource/<name>`.
    pub(crate) service_reports: [ModelServiceReport; NODES],
    /// `true` if the answer belongs to the node's current epoch. An older answer does not count as active: the node
    /// stopped all services before it registered again.
    pub(crate) answered_in_epoch: [bool; NODES],
    /// `assignment/<resource>`.
    pub(crate) assignment: Assignment,
    /// `true` if the definition allows at most one copy (`exclusive`).
    pub(crate) exclusive: bool,
}

impl Store {
    /// Returns two registered idle nodes, with the service just assigned to the first.
    pub(crate) fn initial() -> Self {
        let node_report = ModelNodeReport { mode: Mode::Active, armed: false };
        Store {
            fences: [Fence::Open; NODES],
            node_reports: [node_report; NODES],
            service_reports: [ModelServiceReport::None; NODES],
            answered_in_epoch: [true; NODES],
            assignment: Assignment {
                work: Work::Run(0),
                is_current: [true, false],
                evidence: Evidence::None,
                asks_for_hold: false,
            },
            exclusive: true,
        }
    }

    /// Returns the store with the two nodes exchanged.
    pub(crate) fn mirrored(mut self) -> Self {
        self.fences.reverse();
        self.node_reports.reverse();
        self.service_reports.reverse();
        self.answered_in_epoch.reverse();
        self.assignment.work = self.assignment.work.mirrored();
        self.assignment.is_current.reverse();
        self
    }

    /// Returns `fence/<node>`.
    pub(crate) fn fence(&self, node: NodeId) -> Fence {
        self.fences[index_of(node)]
    }

    /// Returns `report/<node>/node`.
    pub(crate) fn node_report(&self, node: NodeId) -> ModelNodeReport {
        self.node_reports[index_of(node)]
    }

    /// Returns `report/<node>/resource/<name>`.
    pub(crate) fn service_report(&self, node: NodeId) -> ModelServiceReport {
        self.service_reports[index_of(node)]
    }

    /// Returns `true` if the assignment names this node under its current epoch.
    pub(crate) fn is_assigned(&self, node: NodeId) -> bool {
        self.assignment.work.names(node) && self.assignment.is_current[index_of(node)]
    }

    /// Returns `true` if the target's report and fence are as this source's HandingOver has guarded them.
    pub(crate) fn target_is_as_guarded(&self, source: NodeId) -> bool {
        let target = other_node(source);
        self.assignment.work == Work::Move { from: source }
            && self.service_report(target) == ModelServiceReport::Receiving
            && self.is_assigned(target)
            && self.fence(target) == Fence::Open
    }

    /// Returns `true` if it is proven that the node runs no copy of its assignment: the assignment is of an older epoch
    /// than the fence, and the fence is not Fencing (FENCING 5, "release only from a closed epoch").
    pub(crate) fn is_proven_dead(&self, node: NodeId) -> bool {
        !self.assignment.is_current[index_of(node)] && !matches!(self.fence(node), Fence::Fencing { .. })
    }

    /// Returns `true` if no copy can exist on any node (R6.7). The service is stopped on its node. Each node that had a
    /// permit has reported a stop since then, or is proven empty. A proof does not cover unguarded copies (R5.24).
    pub(crate) fn has_no_copy(&self) -> bool {
        let Work::Halt(on) = self.assignment.work else { return false };
        let is_left = |node: &NodeId| match self.service_report(*node) {
            ModelServiceReport::None | ModelServiceReport::Stopped => false,
            ModelServiceReport::Outdated => !(self.exclusive && self.fence(*node) == Fence::Released),
            ModelServiceReport::Active | ModelServiceReport::Receiving | ModelServiceReport::HandingOver => {
                true
            }
        };
        self.service_report(on) == ModelServiceReport::Stopped && !NODE_IDS.iter().any(is_left)
    }

    /// Returns `true` if this node's silence must be counted: a close and proof (a) may follow, or have followed.
    pub(crate) fn counts_silence(&self, node: NodeId) -> bool {
        match self.fence(node) {
            Fence::Open => self.node_report(node).armed,
            Fence::Fencing { armed } => armed,
            Fence::Released => false,
        }
    }
}
