//! What lies in the store: the keys of FENCING 3, 5 and 6, without revisions.
//!
//! Revisions are not needed: a waiting write is refused at the very moment at which a key that it guards is written
//! (`network.rs`), which is what `Unchanged`, `Created` and `Absent` come to. Epochs and action uids are relative: what
//! matters is only whether one is still the current one, so they never run out and the model has no bound on how often
//! a node is fenced or a service moved.

/// A machine of the model, 0 or 1.
pub(crate) type NodeId = u8;

/// How many machines there are.
pub(crate) const NODES: usize = 2;

/// All machines.
pub(crate) const ALL: [NodeId; NODES] = [0, 1];

/// The other machine.
pub(crate) fn other(node: NodeId) -> NodeId {
    1 - node
}

/// A node as an index.
pub(crate) fn at(node: NodeId) -> usize {
    usize::from(node)
}

/// `fence/<node>`: whether its epoch is open, and what was found when it was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Fence {
    /// The epoch is open.
    Open,
    /// The epoch was closed and nothing is proven yet. `armed` is what the node's report said under the close's guard.
    Fencing {
        /// Whether the watchdog counts, proof (a).
        armed: bool,
    },
    /// A proof was found (Fenced or Closed): assignments of the older epoch are releasable.
    Released,
}

/// The mode in `report/<node>/node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// A member, or one that was.
    Active,
    /// Everything was stopped and verified, the node asks for an epoch. `admitted`: the fence names this very request.
    Registering {
        /// Whether the leader has answered it.
        admitted: bool,
    },
    /// It left cleanly.
    Left,
}

/// `report/<node>/node`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Member {
    /// What the node says it is.
    pub(crate) mode: Mode,
    /// Armed is a committed fact.
    pub(crate) armed: bool,
}

/// `report/<node>/resource/<name>`, as an answer to the current action uid unless it is `Outdated`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Answer {
    /// Nothing, or the confirmed end of an older action.
    None,
    /// Stopped or Failed for the current action: nothing runs and the right to start has ended. For the source of a
    /// migration this is HandedOver.
    Stopped,
    /// Starting or Running: there is a permit.
    Active,
    /// The target of a migration is ready: a permit as well.
    Receiving,
    /// The source of a migration lets go: from here on the service is on either node.
    HandingOver,
    /// Active, Receiving or HandingOver for an older action.
    Outdated,
}

impl Answer {
    /// Whether the service counts as active on this node (FENCING 4 and 5, proof (g)).
    pub(crate) fn is_active(self) -> bool {
        match self {
            Answer::None | Answer::Stopped => false,
            Answer::Active | Answer::Receiving | Answer::HandingOver | Answer::Outdated => true,
        }
    }

    /// What is left of it once a new action uid is given.
    pub(crate) fn outdated(self) -> Answer {
        if self.is_active() { Answer::Outdated } else { Answer::None }
    }
}

/// What the assignment asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Work {
    /// Start, or keep running, on this node.
    Run(NodeId),
    /// Stop on this node.
    Halt(NodeId),
    /// Migrate live from this node to the other one.
    Move {
        /// The source.
        from: NodeId,
    },
}

impl Work {
    /// Whether the assignment names this node.
    pub(crate) fn names(self, node: NodeId) -> bool {
        match self {
            Work::Run(on) | Work::Halt(on) => on == node,
            Work::Move { .. } => true,
        }
    }

    /// Whether this node may ask for a permit under it.
    pub(crate) fn permits(self, node: NodeId) -> bool {
        match self {
            Work::Run(on) => on == node,
            Work::Halt(_) => false,
            Work::Move { from } => from != node,
        }
    }

    /// The same with the two nodes exchanged.
    pub(crate) fn mirrored(self) -> Work {
        match self {
            Work::Run(on) => Work::Run(other(on)),
            Work::Halt(on) => Work::Halt(other(on)),
            Work::Move { from } => Work::Move { from: other(from) },
        }
    }

    /// The nodes that it names, as a set of bits.
    pub(crate) fn nodes(self) -> u8 {
        match self {
            Work::Run(on) | Work::Halt(on) => 1 << on,
            Work::Move { .. } => 0b11,
        }
    }
}

/// `assignment/<resource>`: one service, so one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Assignment {
    /// What is asked for, under an action uid of its own.
    pub(crate) work: Work,
    /// For each node that it names: whether the epoch that was copied is still the node's epoch.
    pub(crate) is_current: [bool; NODES],
}

/// Everything that is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Store {
    /// `fence/<node>`.
    pub(crate) fences: [Fence; NODES],
    /// `report/<node>/node`.
    pub(crate) members: [Member; NODES],
    /// `report/<node>/resource/<name>`.
    pub(crate) answers: [Answer; NODES],
    /// Whether that answer is of the node's present epoch. One of an earlier epoch says nothing of what is active: everything was
    /// stopped before the node registered again.
    pub(crate) lives: [bool; NODES],
    /// `assignment/<resource>`.
    pub(crate) assignment: Assignment,
    /// What the definition says: one copy at most (`exclusive`).
    pub(crate) exclusive: bool,
}

impl Store {
    /// Two registered idle nodes; the service was just assigned to the first.
    pub(crate) fn initial() -> Self {
        let member = Member { mode: Mode::Active, armed: false };
        Store {
            fences: [Fence::Open; NODES],
            members: [member; NODES],
            answers: [Answer::None; NODES],
            lives: [true; NODES],
            assignment: Assignment { work: Work::Run(0), is_current: [true, false] },
            exclusive: true,
        }
    }

    /// The same with the two nodes exchanged.
    pub(crate) fn mirrored(mut self) -> Self {
        self.fences.reverse();
        self.members.reverse();
        self.answers.reverse();
        self.lives.reverse();
        self.assignment.work = self.assignment.work.mirrored();
        self.assignment.is_current.reverse();
        self
    }

    /// `fence/<node>`.
    pub(crate) fn fence(&self, node: NodeId) -> Fence {
        self.fences[at(node)]
    }

    /// `report/<node>/node`.
    pub(crate) fn member(&self, node: NodeId) -> Member {
        self.members[at(node)]
    }

    /// `report/<node>/resource/<name>`.
    pub(crate) fn answer(&self, node: NodeId) -> Answer {
        self.answers[at(node)]
    }

    /// Whether the assignment names this node under its present epoch.
    pub(crate) fn is_assigned(&self, node: NodeId) -> bool {
        self.assignment.work.names(node) && self.assignment.is_current[at(node)]
    }

    /// Whether the node is proven empty of what was assigned to it: its assignment is of an older epoch than its fence,
    /// and the fence is not Fencing (FENCING 5, "release only from a closed epoch").
    pub(crate) fn is_proven_dead(&self, node: NodeId) -> bool {
        !self.assignment.is_current[at(node)] && !matches!(self.fence(node), Fence::Fencing { .. })
    }

    /// Whether no copy may be left anywhere (R6.7): the service is stopped where it was, and each node on which it was permitted
    /// has said so since, or is proven empty. A proof says nothing of copies that nothing guards (R5.24).
    pub(crate) fn has_no_copy(&self) -> bool {
        let Work::Halt(on) = self.assignment.work else { return false };
        let is_left = |node: &NodeId| match self.answer(*node) {
            Answer::None | Answer::Stopped => false,
            Answer::Outdated => !(self.exclusive && self.fence(*node) == Fence::Released),
            Answer::Active | Answer::Receiving | Answer::HandingOver => true,
        };
        self.answer(on) == Answer::Stopped && !ALL.iter().any(is_left)
    }

    /// Whether silence of this node is worth counting: a close by (a) may follow, or has.
    pub(crate) fn counts_silence(&self, node: NodeId) -> bool {
        match self.fence(node) {
            Fence::Open => self.member(node).armed,
            Fence::Fencing { armed } => armed,
            Fence::Released => false,
        }
    }
}
