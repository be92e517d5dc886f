//! How an agent stands, for metrics, `/readyz` and the service manager's status line.

use super::service::{Presence, Service, Step};
use super::session::Session;
use super::{AgentCore, Now};
use ha_api_types::time::Millis;

/// The agent's state, in the words of SEMANTICS, section 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentState {
    /// Has no epoch yet.
    WaitForLock,
    /// Acts under an open epoch.
    Active,
    /// Had one and lost it, or ends.
    LostLock,
}

impl AgentState {
    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            AgentState::WaitForLock => "WaitForLock",
            AgentState::Active => "Active",
            AgentState::LostLock => "LostLock",
        }
    }
}

/// How an agent stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The state.
    pub state: AgentState,
    /// The epoch, 0 for none.
    pub epoch: u64,
    /// Milliseconds to D; `None` when there is none.
    pub left_ms: Option<Millis>,
    /// Whether armed: true is committed.
    pub armed: bool,
    /// Services that run, or may run, here.
    pub running: usize,
    /// Those of them that must not run twice.
    pub exclusive: usize,
    /// Commands under way.
    pub workers: usize,
    /// Services whose next command could begin, if a worker were free.
    pub queued: usize,
    /// The watchdog's timeout as read back, milliseconds; `None` without one.
    pub watchdog_timeout_ms: Option<Millis>,
    /// The least time that was left on it at a pet since it was armed, milliseconds.
    pub watchdog_margin_ms: Option<u32>,
    /// It was told to end, and has not yet.
    pub ending: bool,
    /// What it does at the moment, in a sentence.
    pub doing: String,
}

impl AgentCore {
    /// How it stands now.
    pub fn summary(&self, now: &Now) -> Summary {
        let (state, doing) = match &self.session {
            Session::Waiting => (AgentState::WaitForLock, "waiting for the store".to_owned()),
            Session::Clearing => {
                (AgentState::LostLock, "stopping what may run of an earlier incarnation".to_owned())
            }
            Session::Requesting(_) => {
                (AgentState::WaitForLock, "waiting for the leader to open an epoch".to_owned())
            }
            Session::Registered(registered) if registered.created.is_some() => {
                let words = self.ending_in_words();
                (
                    AgentState::Active,
                    words.unwrap_or_else(|| format!("active under epoch {}", registered.epoch)),
                )
            }
            Session::Registered(_) => (AgentState::WaitForLock, "creating its heartbeat".to_owned()),
            Session::Ended => (AgentState::LostLock, "ending".to_owned()),
        };
        let may_run = |service: &&Service| match service.presence {
            Presence::Running | Presence::Unclear => true,
            Presence::Stopped | Presence::Unprobed => false,
        };
        let running = || self.services.values().filter(may_run);
        let waits = |service: &&Service| service.task.is_none() && self.command_of(now, service).is_some();
        let watchdog = self.node_report().map(|report| report.watchdog.timeout_ms);
        Summary {
            state,
            epoch: self.registered().map_or(0, |registered| registered.epoch),
            left_ms: self.left_ms(now),
            armed: self
                .node_report()
                .is_some_and(|report| report.armed && report.instance == self.config.instance),
            running: running().count(),
            exclusive: running().filter(|service| service.definition.exclusive).count(),
            queued: self.services.values().filter(waits).count(),
            watchdog_timeout_ms: watchdog.filter(|timeout_ms| *timeout_ms > 0),
            watchdog_margin_ms: self.watchdog.daemon_status().smallest_margin_ms,
            workers: self.services.values().filter(|service| service.task.is_some()).count(),
            ending: self.is_ending(),
            doing,
        }
    }

    /// What every service that is not at rest does or waits for: (name, what).
    pub fn waiting(&self, now: &Now) -> Vec<(String, String)> {
        let busy = self.services.values().filter(|service| service.step != Step::Rest);
        busy.map(|service| {
            let waits = if let Step::Permit { phase, .. } = &service.step {
                self.permit_waits_for(now, service.definition.exclusive, *phase)
            } else {
                None
            };
            let what = match waits {
                Some(what) => format!("{}: waits for {what}", service.step.name()),
                None => service.step.name().to_owned(),
            };
            (service.name().to_owned(), what)
        })
        .collect()
    }
}
