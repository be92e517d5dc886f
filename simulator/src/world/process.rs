//! A simulated process: a core, its inbox while it is paused, and the state of its watch.

use super::link::Token;
use ha_api_types::id::{NodeName, Revision};
use ha_api_types::time::{MonotonicTime, Now};
use ha_controller::core::FullReadId;
use ha_controller::core::combined_controller::{CombinedController, is_election_read};
use ha_node_agent::core::AgentCore;
use ha_store::{Change, selects};
use std::collections::BTreeSet;
use std::fmt;

/// Number that distinguishes a process from its predecessors of the same role and node.
pub(crate) type Generation = u64;

/// Role and node of a process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Client {
    /// The agent of this node.
    Agent(NodeName),
    /// The controller on this node.
    Controller(NodeName),
}

impl Client {
    /// Returns the node on which the process runs.
    pub(super) fn node(&self) -> &NodeName {
        match self {
            Client::Agent(node) | Client::Controller(node) => node,
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Client::Agent(node) => write!(f, "agent {node}"),
            Client::Controller(node) => write!(f, "controller {node}"),
        }
    }
}

/// The common interface of agent and controller cores.
pub(crate) trait Core {
    type Input;
    /// Returns the time of the next tick.
    fn deadline(&self) -> Option<(MonotonicTime, &'static str)>;
}

impl Core for AgentCore {
    type Input = ha_node_agent::core::Input;
    fn deadline(&self) -> Option<(MonotonicTime, &'static str)> {
        AgentCore::deadline(self)
    }
}

impl Core for CombinedController {
    type Input = ha_controller::core::Input;
    fn deadline(&self) -> Option<(MonotonicTime, &'static str)> {
        CombinedController::deadline(self)
    }
}

/// A running process.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "a process can hang, end, plan and read at the same time")]
pub(crate) struct Process<C: Core> {
    pub core: C,
    pub generation: Generation,
    /// `true` if the process is paused (SIGSTOP): its inputs wait in the inbox.
    pub is_hung: bool,
    /// `true` if the process received a request to end.
    pub is_ending: bool,
    /// `true` if the end of the plan in progress is scheduled.
    pub is_plan_scheduled: bool,
    /// Inputs that wait while the process is paused.
    pub inbox: Vec<C::Input>,
    /// Requests to etcd that have neither an answer nor a timeout yet.
    pub outstanding: BTreeSet<Token>,
    /// Revision up to which the process has read etcd; `None`: the first full read is not complete.
    pub cursor: Option<Revision>,
    /// Prefixes that the process watches.
    pub selectors: Vec<String>,
    /// `true` if a notification of the watch is already scheduled.
    pub is_watching: bool,
    /// Number of unanswered full reads.
    pub syncs: u32,
    /// Refreshes whose full read failed, and which no later read has answered.
    pub pending_refreshes: BTreeSet<FullReadId>,
    /// Virtual time of the next scheduled wake.
    pub wake_at: Option<u64>,
}

impl<C: Core> Process<C> {
    /// Creates a process that has just started.
    pub(super) fn new(core: C, generation: Generation, selectors: Vec<String>) -> Process<C> {
        Process {
            core,
            generation,
            is_hung: false,
            is_ending: false,
            is_plan_scheduled: false,
            inbox: Vec::new(),
            outstanding: BTreeSet::new(),
            cursor: None,
            selectors,
            is_watching: false,
            syncs: 0,
            pending_refreshes: BTreeSet::new(),
            wake_at: None,
        }
    }

    /// Handles a scheduled wake. Returns `true` if the deadline of the core has passed by the core's clock; `None` if
    /// the wake is outdated.
    pub(super) fn take_wake(&mut self, generation: Generation, at: u64, now: &Now) -> Option<bool> {
        if self.generation != generation || self.wake_at != Some(at) {
            return None;
        }
        self.wake_at = None;
        Some(self.core.deadline().is_some_and(|(due_at, _)| due_at <= now.monotonic_raw))
    }

    /// Records that the full read for a refresh failed, and returns the refreshes to read for now.
    pub(super) fn record_failed_sync(&mut self, refresh: FullReadId) -> Vec<FullReadId> {
        self.pending_refreshes.insert(refresh);
        self.due_syncs()
    }

    /// Records that a refresh was answered, and returns the refreshes to read for now.
    pub(super) fn record_answered_sync(&mut self, refresh: FullReadId) -> Vec<FullReadId> {
        self.pending_refreshes.retain(|pending_refresh| {
            is_election_read(*pending_refresh) != is_election_read(refresh) || *pending_refresh > refresh
        });
        self.due_syncs()
    }

    /// Returns the newest unanswered refresh of each half of a controller. Its answer also answers the earlier
    /// refreshes. Returns no refresh while a read is unanswered: an isolated process thus has one read at a time for
    /// each half.
    fn due_syncs(&mut self) -> Vec<FullReadId> {
        if self.syncs > 0 {
            return Vec::new();
        }
        let pending_refreshes = std::mem::take(&mut self.pending_refreshes);
        let (elections, planners): (Vec<_>, Vec<_>) =
            pending_refreshes.into_iter().partition(|id| is_election_read(*id));
        [planners.last(), elections.last()].into_iter().flatten().copied().collect()
    }

    /// Handles a change of the store. Returns `true` if a notification must be scheduled: a watched key has changed,
    /// and no notification is scheduled yet.
    pub(super) fn mark_changes(&mut self, changes: &[Change], revision: Revision) -> bool {
        if self.is_watching || self.cursor.is_none() {
            return false;
        }
        let watched = |key: &str| self.selectors.iter().any(|selector| selects(selector, key));
        if changes.iter().any(|change| watched(change.key())) {
            self.is_watching = true;
        } else {
            self.cursor = Some(revision);
        }
        self.is_watching
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct IdleCore;

    impl Core for IdleCore {
        type Input = ();
        fn deadline(&self) -> Option<(MonotonicTime, &'static str)> {
            None
        }
    }

    /// Each half of a controller counts its refreshes separately. When the reads for both halves failed, only the read
    /// of the election was repeated, and the planner waited indefinitely for its read (seed 197).
    #[test]
    fn failed_reads_are_repeated_for_both_halves() {
        let election = |number: u64| FullReadId((1 << 62) + number);
        let mut process = Process::new(IdleCore, 1, Vec::new());
        process.syncs = 2;
        assert!(process.record_failed_sync(FullReadId(6)).is_empty());
        assert!(process.record_failed_sync(election(1)).is_empty());
        process.syncs = 0;
        assert_eq!(process.record_failed_sync(FullReadId(7)), [FullReadId(7), election(1)]);
        assert_eq!(process.record_failed_sync(FullReadId(8)), [FullReadId(8)]);
        process.syncs = 1;
        assert!(process.record_failed_sync(FullReadId(9)).is_empty());
        process.syncs = 0;
        assert_eq!(process.record_answered_sync(election(2)), [FullReadId(9)]);
        process.syncs = 1;
        assert!(process.record_failed_sync(FullReadId(9)).is_empty());
        process.syncs = 0;
        assert!(process.record_answered_sync(FullReadId(10)).is_empty());
    }
}
