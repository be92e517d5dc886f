//! The guarded transactions, and the keys that each of them guards (FENCING 1).

use crate::mutation::Mutation;
use crate::store::{NODE_IDS, NodeId, Work, other_node};

/// A key that a write guards, or that has just been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// `leader`, by its create revision: the term.
    Leader,
    /// `assignment/<resource>`.
    Assignment,
    /// `fence/<node>`.
    Fence(NodeId),
    /// `report/<node>/node`.
    NodeReport(NodeId),
    /// `alive/<node>` by its create revision: the agent's incarnation is unchanged.
    Created(NodeId),
    /// `alive/<node>` by its revision: no heartbeat was applied since that revision.
    Alive(NodeId),
    /// `report/<node>/resource/<name>`.
    ServiceReport(NodeId),
    /// The leader's own candidate key, by its create revision.
    Candidate,
}

impl Key {
    /// Returns the key as one bit of a set.
    pub(crate) fn bit(self) -> u16 {
        let number = match self {
            Key::Leader => 0,
            Key::Assignment => 1,
            Key::Fence(node) => 2 + node,
            Key::NodeReport(node) => 4 + node,
            Key::Created(node) => 6 + node,
            Key::Alive(node) => 8 + node,
            Key::ServiceReport(node) => 10 + node,
            Key::Candidate => 12,
        };
        1 << number
    }
}

/// Change that a heartbeat makes to `report/<node>/node` in the same transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Change {
    /// No change.
    Keep,
    /// Sets armed: true.
    Arm,
    /// Sets armed: false.
    Disarm,
    /// Names the generation of the newest candidate.
    Name,
    /// Creates `alive`, for a new process or a newly admitted node. An older key is deleted first.
    Create,
}

/// Kind of a proof (FENCING 5), which decides the guards of the write that records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Proof {
    /// (a) silence for W, and armed.
    Silence,
    /// (b) a fence device.
    Device,
    /// (c) and (f): a registration against the closed epoch, by another boot or by the same one.
    Registration,
    /// (d) a clean leave.
    CleanShutdown,
    /// (g) no active service.
    Inactive,
}

/// A guarded transaction. It is applied at the moment at which its sender decides on it, or it is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Write {
    /// The agent's heartbeat.
    Heartbeat(NodeId, Change),
    /// The start permit: Starting, or Receiving for the target of a migration.
    Permit(NodeId),
    /// Stopped, Failed or HandedOver.
    Stopped {
        /// Node that reports.
        node: NodeId,
        /// `true` if the action uid is still the assigned one.
        current: bool,
    },
    /// Running, after a migration: the service is on this node.
    Running {
        /// Node that reports.
        node: NodeId,
        /// `true` if the action uid is still the assigned one.
        current: bool,
    },
    /// The source of a migration hands over.
    HandOver(NodeId),
    /// The agent requests an epoch.
    Register(NodeId),
    /// The agent leaves cleanly.
    CleanShutdown(NodeId),
    /// The leader closes the epoch: epoch + 1, Fencing.
    Close {
        /// Node whose epoch is closed.
        node: NodeId,
        /// `true` if the close is based on silence, and so guards `alive`.
        on_missed_heartbeats: bool,
    },
    /// The leader records a proof.
    Release(NodeId, Proof),
    /// The leader opens the epoch for the node's request.
    Open(NodeId),
    /// The leader writes an assignment.
    Assign {
        /// Action of the assignment.
        work: Work,
        /// Nodes whose fences the write guards, as a bit set.
        fences: u8,
        /// Nodes whose reports the write is based on, as a bit set.
        answers: u8,
    },
}

impl Write {
    /// Returns the set of keys that this write guards.
    pub(crate) fn guards(self, mutation: Option<Mutation>) -> u16 {
        let set = |keys: &[Key]| keys.iter().fold(0, |set, key| set | key.bit());
        // Every write of an agent except a registration guards the agent's incarnation and epoch.
        let epoch_guards = |node| match mutation {
            Some(Mutation::EpochNotGuarded) => set(&[Key::Created(node)]),
            _ => set(&[Key::Created(node), Key::Fence(node)]),
        };
        let report_guards = |node| match mutation {
            Some(Mutation::OwnKeyNotGuarded) => 0,
            _ => set(&[Key::ServiceReport(node)]),
        };
        let leader = Key::Leader.bit();
        match self {
            Write::Heartbeat(node, Change::Create) => set(&[Key::Fence(node), Key::NodeReport(node)]),
            Write::Heartbeat(node, Change::Keep | Change::Arm | Change::Disarm | Change::Name) => {
                epoch_guards(node) | Key::NodeReport(node).bit()
            }
            Write::Permit(node) => {
                let armed = match mutation {
                    Some(Mutation::PermitBeforeArmed) => 0,
                    _ => Key::NodeReport(node).bit(),
                };
                epoch_guards(node) | report_guards(node) | Key::Assignment.bit() | armed
            }
            Write::Stopped { node, .. } | Write::Running { node, .. } => {
                epoch_guards(node) | report_guards(node)
            }
            Write::HandOver(node) => {
                let target = other_node(node);
                epoch_guards(node)
                    | report_guards(node)
                    | set(&[Key::Assignment, Key::ServiceReport(target), Key::Fence(target)])
            }
            Write::Register(node) => set(&[Key::NodeReport(node), Key::Fence(node)]),
            Write::CleanShutdown(node) => epoch_guards(node) | Key::NodeReport(node).bit(),
            Write::Close { node, on_missed_heartbeats } => {
                let silence = if on_missed_heartbeats { set(&[Key::Alive(node), Key::Candidate]) } else { 0 };
                leader | silence | set(&[Key::Fence(node), Key::NodeReport(node)])
            }
            Write::Release(node, proof) => {
                let proof_guards = match proof {
                    Proof::Silence => set(&[Key::Alive(node), Key::Candidate]),
                    // Proof (g) is based on the reports of the node. These cannot change after the close, because every
                    // write of an agent guards its epoch.
                    Proof::Device | Proof::Inactive => 0,
                    Proof::Registration | Proof::CleanShutdown => Key::NodeReport(node).bit(),
                };
                leader | proof_guards | Key::Fence(node).bit()
            }
            Write::Open(node) => leader | set(&[Key::Fence(node), Key::NodeReport(node)]),
            Write::Assign { fences, answers, .. } => {
                let mut guards = leader | Key::Assignment.bit();
                for node in NODE_IDS {
                    if fences & (1 << node) != 0 {
                        guards |= Key::Fence(node).bit();
                    }
                    if answers & (1 << node) != 0 {
                        guards |= Key::ServiceReport(node).bit();
                    }
                }
                guards
            }
        }
    }

    /// Returns the write with the two nodes exchanged.
    pub(crate) fn mirrored(self) -> Write {
        match self {
            Write::Heartbeat(node, change) => Write::Heartbeat(other_node(node), change),
            Write::Permit(node) => Write::Permit(other_node(node)),
            Write::Stopped { node, current } => Write::Stopped { node: other_node(node), current },
            Write::Running { node, current } => Write::Running { node: other_node(node), current },
            Write::HandOver(node) => Write::HandOver(other_node(node)),
            Write::Register(node) => Write::Register(other_node(node)),
            Write::CleanShutdown(node) => Write::CleanShutdown(other_node(node)),
            Write::Close { node, on_missed_heartbeats } => {
                Write::Close { node: other_node(node), on_missed_heartbeats }
            }
            Write::Release(node, proof) => Write::Release(other_node(node), proof),
            Write::Open(node) => Write::Open(other_node(node)),
            Write::Assign { work, fences, answers } => {
                let exchanged = |set: u8| (set >> 1) | ((set & 1) << 1);
                Write::Assign {
                    work: work.mirrored(),
                    fences: exchanged(fences),
                    answers: exchanged(answers),
                }
            }
        }
    }

    /// Returns the write as it is after another action uid was assigned.
    pub(crate) fn outdated(self) -> Write {
        match self {
            Write::Stopped { node, .. } => Write::Stopped { node, current: false },
            Write::Running { node, .. } => Write::Running { node, current: false },
            Write::Heartbeat(..)
            | Write::Permit(_)
            | Write::HandOver(_)
            | Write::Register(_)
            | Write::CleanShutdown(_)
            | Write::Close { .. }
            | Write::Release(..)
            | Write::Open(_)
            | Write::Assign { .. } => self,
        }
    }
}
