//! Recent changes of services and nodes: `GET /apis/hactl.io/v1/history`.

use crate::id::NodeName;
use crate::kind::Kind;
use crate::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Changes of the last hour, as one controller saw them. They lead back from the present state to each earlier one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacementHistory {
    /// Beginning of the history: at most an hour ago, and not before the start of the controller. Absent until the
    /// controller has read etcd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Time of the response, on the clock of the controller.
    pub at: Timestamp,
    /// Changes of node or state, oldest first.
    pub changes: Vec<PlacementChange>,
}

/// A change of node or state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacementChange {
    /// Time at which the controller saw the change.
    pub time: Timestamp,
    /// Kind of the object: Resource or Node.
    pub kind: Kind,
    /// Name of the object.
    pub name: String,
    /// State before the change. Absent if the object had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<PlacementState>,
    /// State after the change. Absent if the object was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<PlacementState>,
}

/// Node and state of a service, or state of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacementState {
    /// Node of the service. Absent if it has none, and for nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// State, as in `status.state`.
    pub state: String,
}
