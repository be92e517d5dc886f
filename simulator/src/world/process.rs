//! A simulated process: a core, its inbox while it is stopped, and where its watch of the store is.

use super::link::Token;
use ha_api_types::record::Revision;
use ha_api_types::time::{Mono, Now};
use ha_controller::core::RefreshId;
use ha_controller::core::replica::{Replica, is_elections};
use ha_node_agent::core::AgentCore;
use ha_store::Change;
use std::collections::BTreeSet;
use std::fmt;

/// Tells a process from its predecessor of the same name.
pub(crate) type Generation = u64;

/// Which process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    /// The agent of a node.
    Agent(String),
    /// The controller on a node.
    Controller(String),
}

impl Who {
    /// The machine.
    pub(super) fn node(&self) -> &str {
        match self {
            Who::Agent(node) | Who::Controller(node) => node,
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Agent(node) => write!(f, "agent {node}"),
            Who::Controller(node) => write!(f, "controller {node}"),
        }
    }
}

/// What agent and controller have in common.
pub(crate) trait Core {
    /// What can happen to it.
    type Input;
    /// When to send the tick.
    fn deadline(&self) -> Option<(Mono, &'static str)>;
}

impl Core for AgentCore {
    type Input = ha_node_agent::core::Input;
    fn deadline(&self) -> Option<(Mono, &'static str)> {
        AgentCore::deadline(self)
    }
}

impl Core for Replica {
    type Input = ha_controller::core::Input;
    fn deadline(&self) -> Option<(Mono, &'static str)> {
        Replica::deadline(self)
    }
}

/// A running process.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "a process can hang, end, plan and read at the same time")]
pub(crate) struct Process<C: Core> {
    /// The core.
    pub core: C,
    /// Which process of this name it is.
    pub generation: Generation,
    /// Stopped (SIGSTOP): what happens to it waits in the inbox.
    pub hung: bool,
    /// Told to end.
    pub ending: bool,
    /// The end of the plan that is under way is scheduled.
    pub plans: bool,
    /// What waits.
    pub inbox: Vec<C::Input>,
    /// Requests that are not answered yet.
    pub outstanding: BTreeSet<Token>,
    /// How far its view of the store is complete; `None`: it reads everything first.
    pub cursor: Option<Revision>,
    /// The prefixes that it watches.
    pub prefixes: Vec<String>,
    /// A look at the store is already under way.
    pub watching: bool,
    /// Number of readings of everything under way.
    pub syncs: u32,
    /// Refreshes whose reading failed, and which no later reading has answered.
    pub owed: BTreeSet<RefreshId>,
    /// When the next wake is scheduled.
    pub wake_at: Option<u64>,
}

impl<C: Core> Process<C> {
    /// A process that has just started.
    pub(super) fn new(core: C, generation: Generation, prefixes: Vec<String>) -> Process<C> {
        Process {
            core,
            generation,
            hung: false,
            ending: false,
            plans: false,
            inbox: Vec::new(),
            outstanding: BTreeSet::new(),
            cursor: None,
            prefixes,
            watching: false,
            syncs: 0,
            owed: BTreeSet::new(),
            wake_at: None,
        }
    }

    /// A wake that was scheduled for a virtual time is there: whether the core has something to do by its own clock.
    /// `None`: the wake is of no account any more.
    pub(super) fn woken(&mut self, generation: Generation, at: u64, now: &Now) -> Option<bool> {
        if self.generation != generation || self.wake_at != Some(at) {
            return None;
        }
        self.wake_at = None;
        Some(self.core.deadline().is_some_and(|(due, _)| due <= now.raw))
    }

    /// Records that the reading for a refresh failed, and returns the refreshes to read for now.
    pub(super) fn failed_sync(&mut self, refresh: RefreshId) -> Vec<RefreshId> {
        self.owed.insert(refresh);
        self.due_syncs()
    }

    /// Records that a refresh was answered, and returns the refreshes to read for now.
    pub(super) fn answered_sync(&mut self, refresh: RefreshId) -> Vec<RefreshId> {
        self.owed.retain(|owed| is_elections(*owed) != is_elections(refresh) || *owed > refresh);
        self.due_syncs()
    }

    /// The newest refresh owed to each half of a controller, which answers those before it; none while a reading is under
    /// way, so that an isolated process does not ask ever more often.
    fn due_syncs(&mut self) -> Vec<RefreshId> {
        if self.syncs > 0 {
            return Vec::new();
        }
        let owed = std::mem::take(&mut self.owed);
        let (elections, planners): (Vec<_>, Vec<_>) = owed.into_iter().partition(|id| is_elections(*id));
        [planners.last(), elections.last()].into_iter().flatten().copied().collect()
    }

    /// The store has changed. Returns whether it is to look what: something that it watches has changed, and no look is
    /// under way yet.
    pub(super) fn notice(&mut self, changes: &[Change], revision: Revision) -> bool {
        if self.watching || self.cursor.is_none() {
            return false;
        }
        let watched = |key: &str| self.prefixes.iter().any(|prefix| key.starts_with(prefix.as_str()));
        if changes.iter().any(|change| watched(change.key())) {
            self.watching = true;
        } else {
            self.cursor = Some(revision);
        }
        self.watching
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Idle;

    impl Core for Idle {
        type Input = ();
        fn deadline(&self) -> Option<(Mono, &'static str)> {
            None
        }
    }

    /// Each half of a controller counts its own refreshes. When the readings of both failed, only the election's was read
    /// again: the planner waited for the other one until its next refresh, and planned nothing that depended on it (seed 197).
    #[test]
    fn a_failed_reading_is_repeated_for_both_halves() {
        const ELECTIONS: RefreshId = 1 << 62;
        let mut process = Process::new(Idle, 1, Vec::new());
        process.syncs = 2;
        assert!(process.failed_sync(6).is_empty());
        assert!(process.failed_sync(ELECTIONS + 1).is_empty());
        process.syncs = 0;
        assert_eq!(process.failed_sync(7), [7, ELECTIONS + 1]);
        assert_eq!(process.failed_sync(8), [8]);
        process.syncs = 1;
        assert!(process.failed_sync(9).is_empty());
        process.syncs = 0;
        assert_eq!(process.answered_sync(ELECTIONS + 2), [9]);
        process.syncs = 1;
        assert!(process.failed_sync(9).is_empty());
        process.syncs = 0;
        assert!(process.answered_sync(10).is_empty());
    }
}
