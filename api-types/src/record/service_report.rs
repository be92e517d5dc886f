//! The report of an agent about a service on its node.

use super::ReplacementReport;
use crate::driver::Identity;
use crate::id::{ActionUid, BootId, Epoch, ObjectUid, Revision};
use crate::quantity::Amounts;
use crate::reason::Reason;
use crate::resource::ServiceDefinition;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// `report/<node>/resource/<name>`, written by the node's agent.
///
/// The report with the `actionUid` of an action is the answer to that action. `Starting` and `Receiving` are start permits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceReport {
    /// Uid of the resource.
    pub uid: ObjectUid,
    /// The action that this report answers; `None` for a probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action_uid: Option<ActionUid>,
    /// Epoch of the agent at the time of the report.
    pub epoch: Epoch,
    /// Boot id of the node.
    pub boot_id: BootId,
    /// Generation of the resource that the agent had read when it probed; 0 without a probe.
    pub probed_generation: i64,
    /// Generation of the Cluster that the agent had read when it probed while the cluster was armed; 0 without such a
    /// probe.
    #[serde(skip_serializing_if = "is_zero")]
    pub probed_arming: i64,
    /// Revision of the node's fence record that requested the probe with `requires_probes`; 0 without such a request.
    #[serde(skip_serializing_if = "Revision::is_zero")]
    pub probed_fence: Revision,
    /// `true` if the service must never run twice (guarantee 1).
    pub exclusive: bool,
    /// Identity of the definition to which this report refers; `None` in reports of older agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// Definition of a running copy that a probe found and that differs from the service in the spec (FENCING, R6.11).
    /// One cause is a restore. `None` otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition: Option<Box<ServiceDefinition>>,
    /// Phase of the service.
    pub phase: Phase,
    /// Number of restarts in place under the current permit.
    pub restarts: u32,
    /// Reason as a word.
    pub reason: Reason,
    /// Reason as a sentence, or the output of the driver.
    pub message: String,
    /// For phase Failed: where to try next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureClass>,
    /// For the source of a migration: `true` if the driver never started the migration, so that the target contains no
    /// part of the service.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub never_began: bool,
    /// `true` if the phase results from a clean stop, or a start, with the service's own tool, which the assignment
    /// accepts.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub external_change: bool,
    /// State of the replacement of the secondary that the assignment requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replacement: Option<ReplacementReport>,
    /// Amounts in the service's definition on this node, where the resource does not specify them.
    #[serde(rename = "asked", skip_serializing_if = "is_nothing")]
    pub definition_requests: Amounts,
    /// Time of the report; informational only.
    pub at: Timestamp,
}

fn is_nothing(amounts: &Amounts) -> bool {
    *amounts == Amounts::default()
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// The phase of a service on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// A probe found the service running.
    ProbedRunning,
    /// A probe found the service not running.
    ProbedStopped,
    /// A probe could not determine whether the service runs.
    #[default]
    ProbedUnknown,
    /// The start permit: the service may be started from here on.
    Starting,
    /// Confirmed running.
    Running,
    /// The service is being stopped.
    Stopping,
    /// Confirmed stopped: the permission to start under this action has ended.
    Stopped,
    /// The service could not be started or kept running, and is confirmed stopped.
    Failed,
    /// The service could not be stopped, and may still run.
    StopFailed,
    /// Target of a migration: the node may receive the service (a permit).
    Receiving,
    /// Source of a migration: the node may transfer the service, which may run on either node from here on.
    HandingOver,
    /// Source of a migration: the service is confirmed not to run on this node.
    HandedOver,
    /// Source of a migration: the migration failed, and the service is confirmed still running on this node.
    MoveFailed,
}

impl Phase {
    /// Returns `true` if the service may run on this node according to the report.
    ///
    /// For an exclusive service this is *active* of FENCING, section 4.
    pub fn may_run(self) -> bool {
        self.is_permitted() || matches!(self, Phase::ProbedRunning | Phase::ProbedUnknown)
    }

    /// Returns `true` if the service may run on this node under a permit. A node commits a permit only while its
    /// watchdog daemon has a deadline (FENCING, R4.15).
    pub fn is_permitted(self) -> bool {
        match self {
            Phase::Starting
            | Phase::Running
            | Phase::Stopping
            | Phase::StopFailed
            | Phase::Receiving
            | Phase::HandingOver
            | Phase::MoveFailed => true,
            Phase::ProbedRunning
            | Phase::ProbedStopped
            | Phase::ProbedUnknown
            | Phase::Stopped
            | Phase::Failed
            | Phase::HandedOver => false,
        }
    }
}

impl ServiceReport {
    /// Returns `true` if fencing of the node must be confirmed before the service may start elsewhere.
    pub fn is_active(&self) -> bool {
        self.exclusive && self.phase.may_run()
    }
}

/// The observation of a probe or a driver about a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Observed {
    /// The service runs.
    Running,
    /// The service does not run.
    NotRunning,
    /// The service does not run and cannot start without hactl, but a remnant has to be removed. The text describes the
    /// remnant, such as an unfinished or a failed live migration.
    Remnant(String),
    /// The state is unknown, with the reason.
    Unknown(String),
}

/// The nodes that are eligible for the next attempt after a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureClass {
    /// The same node.
    #[default]
    RetryHere,
    /// Another node.
    TryElsewhere,
    /// Any node except this one, because the service is not installed on it.
    NeverHere,
    /// No node, because the configuration is wrong.
    ConfigurationWrong,
}
