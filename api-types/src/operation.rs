//! Operations: recorded imperative requests with their outcome.

use crate::id::{BootId, Epoch, NodeName, ResourceName};
use crate::kind::Kind;
use crate::meta::Condition;
use crate::object::{Object, Spec};
use crate::reason::Reason;
use crate::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An object of kind Operation: a recorded command.
pub type Operation = Object<OperationSpec>;

impl Spec for OperationSpec {
    type Status = OperationStatus;
    const KIND: Kind = Kind::Operation;
}

/// A command with its arguments. Validation rejects fields that the action does not use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OperationSpec {
    /// Action to perform. Required.
    pub action: OperationAction,
    /// Resource that the action applies to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Node that the action applies to, or target of a move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// Stop: seconds before the service is killed. 0: immediately.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
    /// ConfirmFenced: registration of the node that the operator saw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// ConfirmFenced, ShutdownContinue and TestWatchdog: boot id that the operator saw.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<BootId>,
    /// Start: node on which the operator confirms that the resource does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_on: Option<NodeName>,
    /// UpdateInPlace: generation of the resource that the operator confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// User that requested the operation.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub requested_by: String,
}

/// Action of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OperationAction {
    /// Live-migrate if the driver can, else relocate.
    #[default]
    Migrate,
    /// Stop, move and start the service.
    Relocate,
    /// Replace the secondary of a running replicated service with `node`.
    ReplaceSecondary,
    /// Set the requested state to Stopped, and kill the service after the timeout.
    Stop,
    /// Set the requested state to Started. With `notOn`, record that the service does not run on that node.
    Start,
    /// Stop the service and start it on the same node.
    Restart,
    /// Clear the Error state.
    ClearError,
    /// Apply the edited spec to the running copy without a stop. The operator confirms that the copy can be
    /// stopped with the edited spec.
    UpdateInPlace,
    /// Record that the operator confirmed the node powered off.
    ConfirmFenced,
    /// Fence the node with its devices.
    Fence,
    /// Reconnect a node that a fabric device disconnected. The operator confirms that no earlier service runs
    /// there.
    Unfence,
    /// Continue the shutdown of a node without waiting for its services to move away.
    ShutdownContinue,
    /// Permit a node to accept the data in etcd although the node followed other data before.
    FollowStore,
    /// Test the watchdog of a node: let it reset the machine.
    TestWatchdog,
    /// Rebalance the load.
    Balance,
    /// Send a test to every target of `Cluster.spec.notifications`.
    TestNotifications,
}

impl OperationAction {
    /// Every action.
    pub const ALL: [OperationAction; 16] = [
        OperationAction::Migrate,
        OperationAction::Relocate,
        OperationAction::ReplaceSecondary,
        OperationAction::Stop,
        OperationAction::Start,
        OperationAction::Restart,
        OperationAction::ClearError,
        OperationAction::UpdateInPlace,
        OperationAction::ConfirmFenced,
        OperationAction::Fence,
        OperationAction::Unfence,
        OperationAction::ShutdownContinue,
        OperationAction::FollowStore,
        OperationAction::TestWatchdog,
        OperationAction::Balance,
        OperationAction::TestNotifications,
    ];
}

/// Progress of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum OperationPhase {
    /// Not processed yet.
    #[default]
    Pending,
    /// In progress.
    Running,
    /// Completed.
    Succeeded,
    /// Attempted and failed.
    Failed,
    /// Rejected without an attempt.
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

/// Progress and outcome of an operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OperationStatus {
    /// Generation of the object from which this status was computed.
    pub observed_generation: i64,
    /// Progress of the operation.
    pub phase: OperationPhase,
    /// CamelCase reason of the phase.
    pub reason: Reason,
    /// Explanation, as a sentence.
    pub message: String,
    /// Services that move together with the resource.
    #[serde(rename = "together", skip_serializing_if = "Vec::is_empty")]
    pub companions: Vec<ResourceName>,
    /// Services that block the operation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocked_by: Vec<ResourceName>,
    /// Time of the start.
    #[serde(rename = "startedAt", alias = "startTime", skip_serializing_if = "Option::is_none")]
    #[schemars(rename = "startTime")]
    pub start_time: Option<Timestamp>,
    /// Time of the end. The object is deleted a day later.
    #[serde(rename = "finishedAt", alias = "completionTime", skip_serializing_if = "Option::is_none")]
    #[schemars(rename = "completionTime")]
    pub completion_time: Option<Timestamp>,
    /// Conditions, for `kubectl wait`: Complete if the operation succeeded, Failed if it failed or was refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
