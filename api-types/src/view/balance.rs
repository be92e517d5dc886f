//! Planned moves that balance the load: `GET /apis/hactl.io/v1/balance`.

use crate::id::{NodeName, ResourceName};
use crate::operation::OperationAction;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Moves that would balance the load of the nodes now, as `hactl balance` plans them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BalancePlan {
    /// Plans of the node groups, with the largest improvement first.
    pub groups: Vec<GroupBalancePlan>,
}

/// Moves within one node group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupBalancePlan {
    /// Name of the group.
    pub group: String,
    /// Score before the moves. A lower score is better.
    pub score_before: f64,
    /// Score after the moves.
    pub score_after: f64,
    /// Whether the search ended at its time limit, so that a longer search may find a better plan.
    pub time_limited: bool,
    /// Batches of moves. The moves of a batch can run in parallel; a batch begins after the end of the last one.
    pub batches: Vec<Vec<BalanceMove>>,
    /// Load of the nodes before and after the moves.
    pub nodes: Vec<NodeBalance>,
}

/// A planned move of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BalanceMove {
    /// Service that moves.
    pub resource: ResourceName,
    /// Services that move together with it.
    pub with: Vec<ResourceName>,
    /// Node of the service now; a second node if that has a copy of its data.
    pub from: Vec<NodeName>,
    /// Nodes after the move, in the same order.
    pub to: Vec<NodeName>,
    /// Score of the group after the move.
    pub score: f64,
    /// Operations of the move, to be executed one at a time.
    pub operations: Vec<BalanceOperation>,
}

/// An operation of a planned move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BalanceOperation {
    /// Action of the operation: Migrate, Relocate or ReplaceSecondary.
    pub action: OperationAction,
    /// Name of the service.
    pub resource: ResourceName,
    /// Node to which the service moves.
    pub node: NodeName,
}

/// Load of a node before and after the moves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeBalance {
    /// Name of the node.
    pub node: NodeName,
    /// Load before the plan.
    pub before: NodeLoad,
    /// Load after the moves.
    pub after: NodeLoad,
}

/// Load of a node by requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeLoad {
    /// Number of services.
    pub services: usize,
    /// Requested memory, in MiB.
    pub memory_mebibytes: i64,
    /// Requested CPUs, in thousandths.
    pub cpu_milli: i64,
}
