//! A simulated process: a core, its inbox while it is paused, and the state of its watch.

use super::link::Token;
use ha_api_types::record::Revision;
use ha_api_types::time::{Mono, Now};
use ha_controller::core::replica::Replica;
use ha_node_agent::core::AgentCore;
use ha_store::Change;
use std::collections::BTreeSet;
use std::fmt;

/// Number that distinguishes a process from its predecessors of the same role and node.
pub(crate) type Generation = u64;

/// Role and node of a process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    /// The agent of this node.
    Agent(String),
    /// The controller on this node.
    Controller(String),
}

impl Who {
    /// Returns the node on which the process runs.
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

/// The common interface of agent and controller cores.
pub(crate) trait Core {
    /// Input of the core.
    type Input;
    /// Returns the time of the next tick.
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
    /// Core of the process.
    pub core: C,
    /// Generation of the process.
    pub generation: Generation,
    /// Whether the process is paused (SIGSTOP): its inputs wait in the inbox.
    pub hung: bool,
    /// Whether the process was told to end.
    pub ending: bool,
    /// Whether the end of the plan in progress is scheduled.
    pub plans: bool,
    /// Inputs that wait while the process is paused.
    pub inbox: Vec<C::Input>,
    /// Unanswered requests.
    pub outstanding: BTreeSet<Token>,
    /// Revision up to which the process has read etcd; `None`: the first full read is not complete.
    pub cursor: Option<Revision>,
    /// Prefixes that the process watches.
    pub prefixes: Vec<String>,
    /// Whether a notification of the watch is already scheduled.
    pub watching: bool,
    /// Number of unanswered full reads.
    pub syncs: u32,
    /// Newest refresh that a failed full read was to answer; `None`: no failed read awaits a retry.
    pub owed: Option<u64>,
    /// Virtual time of the next scheduled wake.
    pub wake_at: Option<u64>,
}

impl<C: Core> Process<C> {
    /// Creates a process that has just started.
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
            owed: None,
            wake_at: None,
        }
    }

    /// Handles a scheduled wake. Returns whether the core's deadline has passed by its own clock; `None` if the wake is
    /// outdated.
    pub(super) fn woken(&mut self, generation: Generation, at: u64, now: &Now) -> Option<bool> {
        if self.generation != generation || self.wake_at != Some(at) {
            return None;
        }
        self.wake_at = None;
        Some(self.core.deadline().is_some_and(|(due, _)| due <= now.raw))
    }

    /// Handles a failed full read. Returns the refresh that the next read answers; `None` if another read is
    /// unanswered, so that an isolated process reads one at a time.
    pub(super) fn failed_sync(&mut self, answers: u64) -> Option<u64> {
        let newest = self.owed.take().unwrap_or_default().max(answers);
        if self.syncs > 0 {
            self.owed = Some(newest);
            return None;
        }
        Some(newest)
    }

    /// Handles a change of the store. Returns `true` if a notification must be scheduled: a watched key has changed,
    /// and no notification is scheduled yet.
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
