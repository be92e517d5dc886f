//! The current usage of nodes and services: `GET /apis/hactl.io/v1/usage`.

use crate::id::{NodeName, ResourceName};
use crate::quantity::Amounts;
use crate::usage::Usage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Last measured usage of registered nodes and their services.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UsageOverview {
    /// All nodes, by name.
    pub nodes: Vec<NodeUsage>,
    /// Services that use a node, by name.
    pub resources: Vec<ResourceUsage>,
}

/// Usage of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeUsage {
    /// Name of the node.
    pub name: NodeName,
    /// Measured usage of the whole machine, including programs outside hactl. Absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Capacity of the node.
    pub capacity: Amounts,
    /// Sum of the requests of the node's services.
    pub allocated: Amounts,
}

/// Usage of one service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceUsage {
    /// Name of the resource.
    pub name: ResourceName,
    /// Type of the resource, such as `vm` in `vm:100`.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Node of the service.
    pub node: NodeName,
    /// Measured usage on the node. Absent if the service cannot be measured, or was not measured yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Resource requests of the service.
    pub requests: Amounts,
}
