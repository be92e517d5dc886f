//! A summary of the agent's state, for metrics, `/readyz` and the service manager's status line.

use super::service::{Presence, Service, Step};
use super::session::Session;
use super::{AgentCore, Now};
use ha_api_types::id::{Epoch, ResourceName};
use ha_api_types::time::Millis;

/// The agent's state, in the words that ha-manager uses for its local resource manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentState {
    /// The agent has no epoch yet.
    WaitForLock,
    /// The agent acts under an open epoch.
    Active,
    /// The agent has lost its epoch, or is exiting.
    LostLock,
}

impl AgentState {
    /// Returns the state's name as it is printed.
    pub fn name(self) -> &'static str {
        match self {
            AgentState::WaitForLock => "WaitForLock",
            AgentState::Active => "Active",
            AgentState::LostLock => "LostLock",
        }
    }
}

/// A summary of the agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The agent's state.
    pub state: AgentState,
    /// The epoch; 0 if there is none.
    pub epoch: Epoch,
    /// Time to D, milliseconds; `None` if there is no D.
    pub lease_remaining_ms: Option<Millis>,
    /// `true` if armed: true is committed.
    pub armed: bool,
    /// Number of services that run, or may run, here.
    pub running: usize,
    /// Number of those services that are exclusive.
    pub exclusive: usize,
    /// Number of commands in progress.
    pub workers: usize,
    /// Number of services whose next command could begin if a worker were free.
    pub queued: usize,
    /// The watchdog's timeout as read back, milliseconds; `None` without a watchdog.
    pub watchdog_timeout_ms: Option<Millis>,
    /// The least time left before the watchdog's timeout at any pet since arming, milliseconds.
    pub watchdog_margin_ms: Option<u32>,
    /// `true` if the agent received a request to exit and has not exited yet.
    pub ending: bool,
    /// The current activity, in a sentence.
    pub activity: String,
}

impl AgentCore {
    /// Returns the current summary.
    pub fn summary(&self, now: &Now) -> Summary {
        let (state, activity) = match &self.session {
            Session::Waiting => (AgentState::WaitForLock, "waiting for etcd".to_owned()),
            Session::Clearing => (
                AgentState::LostLock,
                "stopping services that an earlier agent may have left running".to_owned(),
            ),
            Session::Requesting(_) if self.is_deleted() => (
                AgentState::WaitForLock,
                format!("node {0} was deleted: run \"hactl create node {0}\"", self.config.node),
            ),
            Session::Requesting(_) => {
                (AgentState::WaitForLock, "waiting for the leader to register this node".to_owned())
            }
            Session::Registered(registered) if registered.create_revision.is_some() => {
                let exit_progress = self.exit_progress_message();
                (
                    AgentState::Active,
                    exit_progress.unwrap_or_else(|| format!("active (registration {})", registered.epoch)),
                )
            }
            Session::Registered(_) => (AgentState::WaitForLock, "creating the heartbeat".to_owned()),
            Session::Ended => (AgentState::LostLock, "ending".to_owned()),
        };
        let may_run = |service: &&Service| match service.presence {
            Presence::Running | Presence::Unclear => true,
            Presence::Stopped | Presence::Unprobed => false,
        };
        let services = || self.services.values().map(Box::as_ref);
        let running = || services().filter(may_run);
        let waits_for_worker =
            |service: &&Service| service.running_command.is_none() && self.command_of(now, service).is_some();
        let watchdog = self.node_report().map(|report| report.watchdog.timeout_ms);
        Summary {
            state,
            epoch: self.registration().map_or(Epoch(0), |registered| registered.epoch),
            lease_remaining_ms: self.remaining_ms(now),
            armed: self
                .node_report()
                .is_some_and(|report| report.armed && report.instance == self.config.instance),
            running: running().count(),
            exclusive: running().filter(|service| service.definition.exclusive).count(),
            queued: services().filter(waits_for_worker).count(),
            watchdog_timeout_ms: watchdog.filter(|timeout_ms| *timeout_ms > 0),
            watchdog_margin_ms: self.watchdog.daemon_status().smallest_margin_ms,
            workers: services().filter(|service| service.running_command.is_some()).count(),
            ending: self.is_ending(),
            activity,
        }
    }

    /// Returns `true` if the Node object of this node was deleted, so that the leader does not register the node (FENCING
    /// R3.18).
    fn is_deleted(&self) -> bool {
        self.view.is_complete() && self.fence().is_some() && self.view.nodes.get(&self.config.node).is_none()
    }

    /// Returns the name and the current activity of every service that is not at rest.
    pub fn wait_messages(&self, now: &Now) -> Vec<(ResourceName, String)> {
        let busy = self.services.values().filter(|service| service.step != Step::Idle);
        busy.map(|service| {
            let wait_description = match self.step_waits_for(now, service) {
                Some(wait_description) => format!("{}: waiting for {wait_description}", service.step.name()),
                None => service.step.name().to_owned(),
            };
            (service.name().clone(), wait_description)
        })
        .collect()
    }

    /// Returns the condition that the step of a service waits for; `None` if it waits for none.
    pub(super) fn step_waits_for(&self, now: &Now, service: &Service) -> Option<&'static str> {
        let Step::Permit { phase, .. } = &service.step else { return None };
        self.permit_waits_for(now, service.definition.exclusive, *phase)
    }
}
