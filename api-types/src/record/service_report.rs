//! What an agent states about a service on its node.

use super::ReplacementReport;
use crate::driver::Identity;
use crate::quantity::Amounts;
use crate::reason::Reason;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// `report/<node>/resource/<name>`, written by the node's agent.
///
/// For an action, the report with its `actionUid` is the answer; `Starting` and `Receiving` are start permits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceReport {
    /// The resource's uid.
    pub uid: String,
    /// The action that this answers; `None` for a probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action_uid: Option<String>,
    /// The agent's epoch when it wrote this.
    pub epoch: u64,
    /// The boot.
    pub boot_id: String,
    /// The resource's generation that was known when a probe was made (0: none was).
    pub probed_generation: i64,
    /// The Cluster's generation that was known when a probe was made, the cluster being armed (0: none was).
    #[serde(skip_serializing_if = "is_zero")]
    pub probed_arming: i64,
    /// The revision of the node's fence that ordered the probe, if one with `verify` did (0: none).
    #[serde(skip_serializing_if = "is_zero")]
    pub probed_fence: i64,
    /// Whether promise 1 covers the service.
    pub exclusive: bool,
    /// The identity of the definition that this report is about; `None` in reports of older agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// How far it is.
    pub phase: Phase,
    /// Restarts in place under the current permit.
    pub restarts: u32,
    /// Why, in a word.
    pub reason: Reason,
    /// Why, in a sentence; what the driver said.
    pub message: String,
    /// For Failed: where to try next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureClass>,
    /// Migration, source: the service was to be handed over, and the driver never began, so the target has nothing of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub never_began: bool,
    /// How far the replacement of its secondary is that its assignment asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replacement: Option<ReplacementReport>,
    /// What its definition on this node asks for, where the resource does not say it.
    #[serde(skip_serializing_if = "is_nothing")]
    pub asked: Amounts,
    /// When, for people.
    pub at: Timestamp,
}

fn is_nothing(amounts: &Amounts) -> bool {
    *amounts == Amounts::default()
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// How far a service is on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// A probe found it running.
    ProbedRunning,
    /// A probe found it not running.
    ProbedStopped,
    /// A probe could not tell.
    #[default]
    ProbedUnknown,
    /// The start permit: it may be started from here on.
    Starting,
    /// Confirmed running.
    Running,
    /// Being stopped.
    Stopping,
    /// Confirmed stopped: the right to start under this action has ended.
    Stopped,
    /// Could not be started or kept running, and is confirmed stopped.
    Failed,
    /// Could not be stopped: it may still run.
    StopFailed,
    /// Migration, target: may receive it (a permit).
    Receiving,
    /// Migration, source: may hand it over; from here on it may run on either.
    HandingOver,
    /// Migration, source: confirmed gone here.
    HandedOver,
    /// Migration, source: it failed and the service is confirmed still running here.
    MoveFailed,
}

impl Phase {
    /// Whether the service may be running here as far as this report says.
    ///
    /// It is the *active* of FENCING, section 4, for an exclusive service.
    pub fn may_run(self) -> bool {
        match self {
            Phase::ProbedRunning
            | Phase::ProbedUnknown
            | Phase::Starting
            | Phase::Running
            | Phase::Stopping
            | Phase::StopFailed
            | Phase::Receiving
            | Phase::HandingOver
            | Phase::MoveFailed => true,
            Phase::ProbedStopped | Phase::Stopped | Phase::Failed | Phase::HandedOver => false,
        }
    }
}

impl ServiceReport {
    /// Whether the node must be proven dead before the service may start elsewhere.
    pub fn is_active(&self) -> bool {
        self.exclusive && self.phase.may_run()
    }
}

/// What a probe or a driver says about a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Observed {
    /// It runs.
    Running,
    /// It does not.
    NotRunning,
    /// It does not, and never will by itself, but something of it is left and has to be cleared away, and what: a live migration
    /// that has not arrived, half of one that broke.
    Remnant(String),
    /// It cannot be told, and why.
    Unknown(String),
}

/// Where to try next after a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureClass {
    /// Here again.
    #[default]
    RetryHere,
    /// On another node.
    TryElsewhere,
    /// Never on this node (not installed).
    NeverHere,
    /// Nowhere: the configuration is wrong.
    ConfigurationWrong,
}
