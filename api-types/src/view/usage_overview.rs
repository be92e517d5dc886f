//! The current usage of nodes and services: `GET /apis/hactl.io/v1/usage`.

use crate::quantity::Amounts;
use crate::usage::Usage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What was last measured, as far as it counts now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UsageOverview {
    /// All nodes, by name.
    pub nodes: Vec<NodeUsage>,
    /// Services that use a node, by name.
    pub resources: Vec<ResourceUsage>,
}

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeUsage {
    /// Its name.
    pub name: String,
    /// What was measured on the whole machine, whatever used it; `None`: nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// What it has.
    pub capacity: Amounts,
    /// What its services ask for.
    pub allocated: Amounts,
}

/// One service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceUsage {
    /// The resource's name.
    pub name: String,
    /// Its type, as in `vm:100`.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Where it is.
    pub node: String,
    /// What it was measured to use there; `None`: it cannot be measured, or was not yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// What it asks for.
    pub requests: Amounts,
}
