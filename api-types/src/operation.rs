//! Operations: recorded imperative requests with their outcome.

use crate::kind::Kind;
use crate::meta::Condition;
use crate::object::{Object, Spec};
use crate::reason::Reason;
use crate::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A recorded request.
pub type Operation = Object<OperationSpec>;

impl Spec for OperationSpec {
    type Status = OperationStatus;
    const KIND: Kind = Kind::Operation;
}

/// What is asked for. The fields that an action does not use are refused by validation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OperationSpec {
    /// What to do.
    pub action: OperationAction,
    /// The resource it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The node: target of a move, or subject.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Stop: hard after so many seconds (0: at once).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
    /// ConfirmFenced: the epoch that the operator saw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// ConfirmFenced, ShutdownContinue and TestWatchdog: the boot id that the operator saw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Start: the resource is known not to run on this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_on: Option<String>,
    /// UpdateInPlace: the generation of the resource that the operator confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Who asked.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub requested_by: String,
}

/// The actions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OperationAction {
    /// Move live if the driver can, else relocate.
    #[default]
    Migrate,
    /// Stop, move, start.
    Relocate,
    /// Replace the secondary of a replicated service that runs, by `node`, through its driver.
    ReplaceSecondary,
    /// Stop (sets the requested state), hard after the timeout.
    Stop,
    /// Start (sets the requested state); with `notOn`, answers for a node that cannot.
    Start,
    /// Stop and start in place.
    Restart,
    /// Leave Error.
    ClearError,
    /// Let the copy that runs follow the edited spec without a stop: the operator confirms that it can be stopped that way.
    UpdateInPlace,
    /// The operator has made sure that the node is off.
    ConfirmFenced,
    /// Fence the node with its devices.
    Fence,
    /// Let a node that a fabric device has cut off in again: the operator has made sure that nothing of before runs there.
    Unfence,
    /// A machine that shuts down waits no longer for its services to move away.
    ShutdownContinue,
    /// Let a node follow the data in etcd although the node remembers other data.
    FollowStore,
    /// Let a node's watchdog reset its machine, to see that it does.
    TestWatchdog,
    /// Even the load.
    Balance,
    /// Send a test to every target of `Cluster.spec.notifications`.
    TestNotifications,
}

/// How far an operation is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum OperationPhase {
    /// Not looked at yet.
    #[default]
    Pending,
    /// Under way.
    Running,
    /// Done.
    Succeeded,
    /// Tried and failed.
    Failed,
    /// Not tried.
    Refused,
}

impl OperationPhase {
    /// Every phase.
    pub const ALL: [OperationPhase; 5] = [
        OperationPhase::Pending,
        OperationPhase::Running,
        OperationPhase::Succeeded,
        OperationPhase::Failed,
        OperationPhase::Refused,
    ];

    /// Returns `true` if the operation has ended.
    pub fn is_final(self) -> bool {
        match self {
            OperationPhase::Pending | OperationPhase::Running => false,
            OperationPhase::Succeeded | OperationPhase::Failed | OperationPhase::Refused => true,
        }
    }
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OperationStatus {
    /// The generation this was computed from.
    pub observed_generation: i64,
    /// How far it is.
    pub phase: OperationPhase,
    /// Why, in a word.
    pub reason: Reason,
    /// Why, in a sentence.
    pub message: String,
    /// Services that move along.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub together: Vec<String>,
    /// Services that block it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<String>,
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended; it is removed a day later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Complete, for `kubectl wait`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
