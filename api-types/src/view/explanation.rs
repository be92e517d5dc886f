//! The explanation of a service's node and state, node by node: `GET /apis/hactl.io/v1/resources/NAME/explain`.

use crate::id::{NodeName, ResourceName};
use crate::meta::Condition;
use crate::reason::Reason;
use crate::resource::{RequestedState, ServiceState};
use crate::usage::Usage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Explanation of the node and state of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Explanation {
    /// Name of the resource.
    pub resource: ResourceName,
    /// Type of the resource, such as `vm` in `vm:100`.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Requested state of the service.
    pub requested: RequestedState,
    /// State of the service.
    pub state: ServiceState,
    /// Node on which the service runs or is being started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// Target node of a move in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<NodeName>,
    /// Whether the service runs, as reported by the agent.
    pub running: bool,
    /// Last measured usage on its node. Absent if the service does not run or cannot be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Reason in CamelCase, from a fixed list.
    pub reason: Reason,
    /// Explanation, as a sentence with names.
    pub message: String,
    /// Events that the service waits for, as sentences.
    pub waiting_for: Vec<String>,
    /// Conditions of the resource.
    pub conditions: Vec<Condition>,
    /// Load imbalance and the resulting action of `scheduler.autoRebalance`. Absent if automatic rebalancing
    /// is disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<String>,
    /// All nodes: eligible nodes first, best first, then refused nodes by name.
    pub nodes: Vec<Verdict>,
    /// Suggested actions, as sentences. Empty if there is no problem.
    pub help: Vec<String>,
}

/// Eligibility of one node for a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Verdict {
    /// Name of the node.
    pub node: NodeName,
    /// Whether the service is assigned to the node.
    pub current: bool,
    /// Whether the node would be chosen now.
    pub chosen: bool,
    /// Whether the node is eligible.
    pub allowed: bool,
    /// Priority of the node in the group or rule. A higher number is preferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// Score as a text, comparable only within this answer. Absent for a refused node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<String>,
    /// Load of the node with the service, and which part of it was measured. Absent in mode Basic, and for a
    /// refused node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<String>,
    /// Blocking reasons of a refused node, or reasons for the rank of an eligible one.
    pub causes: Vec<VerdictCause>,
}

/// One cause in a verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VerdictCause {
    /// Reason in CamelCase, from a fixed list.
    pub reason: Reason,
    /// Explanation, as a sentence with names and amounts.
    pub message: String,
    /// Suggested action of an operator. May be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub help: String,
}
