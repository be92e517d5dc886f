//! The whole state of the model: the store, the machines, the controller candidates, and late writes.

use crate::agent;
use crate::configuration::Configuration;
use crate::hold::{self, NodeView};
use crate::node::{Node, Right, Service, Watchdog};
use crate::store::{ModelServiceReport, NODE_IDS, NODES, NodeId, Store, index_of};
use crate::write::Write;

/// Largest number of candidates in a configuration.
pub(crate) const MAX_CANDIDATES: usize = 3;

/// Largest number of late writes at one time.
pub(crate) const MAX_LATE_WRITES: usize = 2;

/// A controller candidate. The first candidate is the only one that can be the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Candidate {
    /// Ticks on this process's clock since it last saw each node's `alive` change (`o`), at most W.
    pub(crate) silence: [i8; NODES],
    /// `true` if the candidate key exists.
    pub(crate) present: bool,
    /// `true` if the process has ended permanently.
    pub(crate) dead: bool,
    /// Relation between the candidate and each node.
    pub(crate) views: [NodeView; NODES],
}

/// A write for whose outcome the sender no longer waits (*unknown*). The write may be applied at any later time, or
/// never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Late {
    /// The write may still be applied.
    Waiting(Write),
    /// A key that the write guards has changed: the write will conflict when it arrives.
    Refused,
}

/// A violation that the other parts of a state do not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Harm {
    /// No violation.
    None,
    /// A fence was written in a state other than the state on which the write was based: an epoch repeats or decreases.
    EpochWentBack,
    /// A machine was reset although its agent and daemon could have prevented the reset in time.
    NeedlessReset,
    /// A driver began to migrate the service to a target that had been lost for at least Ts.
    BegunToLostTarget,
}

/// The whole state of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) nodes: [Node; NODES],
    /// Candidates, the leader first.
    pub(crate) candidates: [Candidate; MAX_CANDIDATES],
    /// `true` if the first candidate is the leader; `false` from the restart of the leader's process until an election.
    pub(crate) has_leader: bool,
    /// Late writes, in no particular order.
    pub(crate) late: [Option<Late>; MAX_LATE_WRITES],
    /// Violation so far.
    pub(crate) harm: Harm,
}

impl State {
    /// Returns two registered idle nodes, a leader, and a service that was just assigned to the first node.
    pub(crate) fn initial(configuration: &Configuration) -> Self {
        let present = |number| number < configuration.candidates.max(1);
        State {
            store: Store::initial(),
            nodes: [Node::idle(); NODES],
            candidates: [0, 1, 2].map(|number| Candidate::new(present(number))),
            has_leader: true,
            late: [None; MAX_LATE_WRITES],
            harm: Harm::None,
        }
    }

    /// Returns the initial state with the service started on the first node, just after a heartbeat.
    pub(crate) fn running(configuration: &Configuration) -> Self {
        let mut state = State::initial(configuration);
        state.store.node_reports[0].armed = true;
        state.store.service_reports[0] = ModelServiceReport::Active;
        let machine = &mut state.nodes[0];
        machine.service = Service::Running;
        machine.right = Right::Start { current: true };
        machine.is_spent = true;
        let bounds = &configuration.bounds;
        machine.watchdog = Watchdog::PetUntilDeadline {
            timer: bounds.timeout,
            remaining: bounds.heartbeat_valid,
            decided_timeout: None,
        };
        state.normalized(configuration)
    }

    pub(crate) fn node(&self, node: NodeId) -> &Node {
        &self.nodes[index_of(node)]
    }

    pub(crate) fn node_mut(&mut self, node: NodeId) -> &mut Node {
        &mut self.nodes[index_of(node)]
    }

    /// Returns the number of ticks since the leader saw this node's heartbeat.
    pub(crate) fn leaders_silence(&self, node: NodeId) -> i8 {
        self.candidates[0].silence[index_of(node)]
    }

    /// Returns `true` if a permit of this node with an unknown outcome may still be applied.
    pub(crate) fn has_unknown_permit(&self, node: NodeId) -> bool {
        self.is_late(Write::Permit(node))
    }

    /// Returns `true` if this write is late.
    pub(crate) fn is_late(&self, write: Write) -> bool {
        self.late.contains(&Some(Late::Waiting(write)))
    }

    /// Normalizes equivalent states to one form. Silence that does not count becomes 0. An answer that would not extend
    /// a deadline is removed. Daemons read the clock as early as possible. Followers and late writes are sorted. Two
    /// states that differ only in the names of the nodes become one state.
    pub(crate) fn normalized(mut self, configuration: &Configuration) -> Self {
        for node in NODE_IDS {
            let armed = self.store.node_report(node).armed;
            let machine = self.node_mut(node);
            if let Watchdog::PetUntilDeadline { remaining, decided_timeout, .. } = &mut machine.watchdog {
                *decided_timeout = decided_timeout.or(configuration.bounds.pet(*remaining));
            }
            if !agent::extends_deadline(configuration, machine, armed) {
                machine.answer_due = None;
            }
            self.store.answered_in_epoch[index_of(node)] |= !self.store.service_report(node).is_active();
            if !self.store.counts_silence(node) {
                for candidate in &mut self.candidates {
                    candidate.silence[index_of(node)] = 0;
                }
            }
        }
        for candidate in self.candidates.iter_mut().filter(|candidate| candidate.dead) {
            candidate.silence = [0; NODES];
        }
        hold::normalize(configuration, &mut self);
        self.canonical(configuration.symmetric)
    }

    /// Returns the state with the two nodes exchanged.
    fn mirrored(mut self) -> Self {
        self.store = self.store.mirrored();
        self.nodes.reverse();
        for candidate in &mut self.candidates {
            candidate.silence.reverse();
            candidate.views.reverse();
        }
        for late in self.late.iter_mut().flatten() {
            if let Late::Waiting(write) = *late {
                *late = Late::Waiting(write.mirrored());
            }
        }
        self
    }

    /// Returns one representative of all states that differ only in names.
    fn canonical(self, symmetric: bool) -> Self {
        let ordered = self.ordered();
        if symmetric { ordered.min(self.mirrored().ordered()) } else { ordered }
    }

    /// Sorts followers and late writes.
    fn ordered(mut self) -> Self {
        if self.candidates[1] > self.candidates[2] {
            self.candidates.swap(1, 2);
        }
        self.late.sort_unstable();
        self
    }
}
