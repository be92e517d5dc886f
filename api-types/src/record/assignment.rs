//! The assignment of a service to a node by the leader.

use super::Replacement;
use crate::id::{ActionUid, BootId, Epoch, NodeName, OperationName, Revision};
use crate::resource::ServiceDefinition;
use crate::time::Millis;
use serde::{Deserialize, Serialize};

/// `assignment/<resource>`, written by the leader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Assignment {
    /// The assigned node; for a migration, the source node.
    pub node: NodeName,
    /// Epoch of the node for which the assignment is valid.
    pub epoch: Epoch,
    /// Boot of the node for which the assignment is valid.
    pub boot_id: BootId,
    /// Unique id of this request; the agent's answer contains it.
    pub action_uid: ActionUid,
    /// Requested action.
    pub action: Action,
    /// Definition of the service, with name and uid of the resource.
    pub definition: ServiceDefinition,
    /// Operation by which an operator confirmed this definition for the running copy. The agent then adopts the
    /// definition without a stop (FENCING, R6.10). `None` if no operator confirmed it: the agent then stops a running
    /// copy with the definition of its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_place: Option<OperationName>,
    /// `true` if the agent reports a clean stop, or a start, with the service's own tool instead of reverting it. From
    /// `Resource.spec.externalStop`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub accepts_external_stop: bool,
    /// Requested replacement of the secondary while the service runs; `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replacement: Option<Replacement>,
    /// Revision at which the source of a live migration to this node ended (FENCING, R8.13), if the driver is not gated
    /// and the node has not answered yet. Only a proof later than this revision shows that no copy has arrived (R8.17).
    #[serde(rename = "arrivalsUntil", skip_serializing_if = "Option::is_none")]
    pub source_end_revision: Option<Revision>,
}

/// The requested action on a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "kind")]
pub enum Action {
    /// Start the service; if it already runs, adopt it under a permit.
    Start,
    /// Stop the service and keep it stopped.
    Stop {
        /// Time for a graceful stop before the service is killed; 0 kills immediately. `None` for `timeouts.stopSeconds`.
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<Millis>,
    },
    /// Stop and start the service under one permit.
    Restart,
    /// Live-migrate the service to the target.
    Migrate {
        /// Target node.
        target: NodeName,
        /// Epoch of the target.
        target_epoch: Epoch,
        /// Boot of the target.
        target_boot_id: BootId,
    },
    /// Do not start, stop or restart the service (state Error).
    #[default]
    #[serde(rename = "leave")]
    DoNothing,
}
