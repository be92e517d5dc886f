//! The state of the core as a document, for `/state` of the admin endpoints: the known facts, the work in progress, and
//! the conditions that the agent waits for.
//!
//! The document contains no definition of a service, because definitions may contain secrets.

use super::commits::CommitPurpose;
use super::service::Service;
use super::session::ReadPurpose;
use super::{AgentCore, Now};
use ha_api_types::id::{
    ActionUid, BootId, ControllerId, Epoch, NodeName, ProcessInstance, ResourceName, Revision,
};
use ha_api_types::reason::Reason;
use ha_api_types::time::Millis;
use ha_api_types::view::NextDeadline;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The state of the core at one instant. Times are in milliseconds from that instant.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// Name of the node.
    pub node: NodeName,
    /// Id of this process.
    pub instance: ProcessInstance,
    /// Boot id of the machine.
    pub boot_id: BootId,
    /// `WaitForLock`, `Active` or `LostLock`.
    pub agent: &'static str,
    /// The current activity, in a sentence.
    #[serde(rename = "doing")]
    pub activity: String,
    /// Number of the registration; 0 if there is none.
    pub epoch: Epoch,
    /// The highest etcd revision that this process has seen.
    pub revision: Revision,
    /// Time until the deadline of the last committed heartbeat, at which every exclusive service must have ended;
    /// absent if no heartbeat has committed.
    pub deadline_in_ms: Option<Millis>,
    /// Time for which heartbeats have not committed; absent while they commit.
    pub heartbeats_fail_since_ms: Option<Millis>,
    /// Controllers that have not granted the hold that the agent requests; absent if it requests none.
    pub hold_awaits: Option<BTreeSet<ControllerId>>,
    /// State of the watchdog in this process.
    pub watchdog: WatchdogState,
    /// Commits whose outcome is not known yet, by id.
    pub commits: BTreeMap<u64, String>,
    /// Reads without an answer, by id.
    pub reads: BTreeMap<u64, String>,
    /// Cause of the last failure of each kind of write.
    pub failed_writes: BTreeMap<String, String>,
    /// Services that an earlier agent left and that could not be stopped.
    pub not_stopped: Vec<ResourceName>,
    /// Time until the core acts without an event, and the reason; absent if it waits for events only.
    pub next: Option<NextDeadline>,
    /// State of each service in this process, by name.
    pub services: BTreeMap<ResourceName, ServiceState>,
}

/// State of the watchdog in the agent's process.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each named")]
pub struct WatchdogState {
    /// `true` if the daemon is connected.
    pub connected: bool,
    /// `true` if the device runs, with or without a deadline.
    pub running: bool,
    /// `true` if `armed` is committed for this process.
    pub armed: bool,
    /// `true` if the daemon has acknowledged a deadline since `armed` was committed.
    pub acknowledged: bool,
    /// `true` if the device accepts pets.
    pub takes_pets: bool,
    /// Reason why the device cannot be armed; empty if it can be armed.
    pub problem: String,
    /// The reason that belongs to the cause.
    pub reason: Option<Reason>,
}

/// State of a service in the agent's process.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceState {
    /// `Unprobed`, `Running`, `Stopped` or `Unclear`.
    pub presence: String,
    /// The step in progress.
    pub step: &'static str,
    /// The condition that the step waits for; absent if it waits for none.
    pub waits_for: Option<&'static str>,
    /// `true` if at most one copy may run in the cluster.
    pub exclusive: bool,
    /// `true` if a driver command is in progress.
    pub command: bool,
    /// `true` if the service has a start authorization.
    pub authorized: bool,
    /// The action that this process has begun.
    pub begun: Option<ActionUid>,
    /// Number of consecutive failed starts.
    pub failures: u32,
    /// Number of restarts in place.
    pub restarts: u32,
    /// Time before which no further command begins; absent if it has passed.
    pub paused_ms: Option<Millis>,
}

impl AgentCore {
    /// Returns the state at this instant.
    pub fn state(&self, now: &Now) -> State {
        let summary = self.summary(now);
        let watchdog = WatchdogState {
            connected: !self.watchdog.is_disconnected(),
            running: self.watchdog.is_running(),
            armed: summary.armed,
            acknowledged: self.watchdog.is_acknowledged(),
            takes_pets: self.watchdog.accepts_pets(),
            problem: self.watchdog.problem.clone(),
            reason: self.watchdog.problem_reason,
        };
        State {
            node: self.config.node.clone(),
            instance: self.config.instance.clone(),
            boot_id: self.config.boot_id.clone(),
            agent: summary.state.name(),
            activity: summary.activity,
            epoch: summary.epoch,
            revision: self.highest_revision,
            deadline_in_ms: summary.lease_remaining_ms,
            heartbeats_fail_since_ms: self.heartbeats_failing_since.map(|at| now.monotonic_raw.since(at)),
            hold_awaits: self.hold.controllers_without_grant().cloned(),
            watchdog,
            commits: self.commits.iter().map(|(id, purpose)| (id.0, purpose.description())).collect(),
            reads: self.reads.iter().map(|(id, reading)| (id.0, reading.purpose.description())).collect(),
            failed_writes: self.failed_writes.clone(),
            not_stopped: self.not_stopped.iter().map(|remnant| remnant.name.clone()).collect(),
            next: NextDeadline::of(self.deadline(), now),
            services: self
                .services
                .values()
                .map(|service| (service.name().to_owned(), self.service_state(now, service)))
                .collect(),
        }
    }

    fn service_state(&self, now: &Now, service: &Service) -> ServiceState {
        ServiceState {
            presence: format!("{:?}", service.presence),
            step: service.step.name(),
            waits_for: self.step_waits_for(now, service),
            exclusive: service.definition.exclusive,
            command: service.running_command.is_some(),
            authorized: service.permit.is_some(),
            begun: service.begun_action.clone(),
            failures: service.failed_starts,
            restarts: service.restarts,
            paused_ms: service
                .not_before
                .map(|at| at.since(now.monotonic_raw))
                .filter(|remaining_ms| *remaining_ms > 0),
        }
    }
}

impl CommitPurpose {
    /// Returns a description of the write, without its content.
    fn description(&self) -> String {
        match self {
            CommitPurpose::Request { .. } => "registration request".to_owned(),
            CommitPurpose::DeleteAlive => "deletion of an earlier heartbeat".to_owned(),
            CommitPurpose::Heartbeat(_) => "heartbeat".to_owned(),
            CommitPurpose::Service { name, .. } => format!("report of {name}"),
            CommitPurpose::DeleteReport { name } => format!("deletion of the report of {name}"),
            CommitPurpose::Doctor { .. } => "health checks".to_owned(),
            CommitPurpose::Usage { .. } => "measured usage".to_owned(),
            CommitPurpose::CleanShutdownReport { .. } => "report of a clean shutdown".to_owned(),
        }
    }
}

impl ReadPurpose {
    /// Returns a description of the keys.
    fn description(&self) -> String {
        match self {
            ReadPurpose::Own => "keys of this node".to_owned(),
            ReadPurpose::Service(name) => format!("keys of {name}"),
            ReadPurpose::Peer(name) => format!("other side of the migration of {name}"),
            ReadPurpose::Target { name, .. } => format!("target of the migration of {name}"),
        }
    }
}
