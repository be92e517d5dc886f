//! The failover capacity (N+1) check: `GET /apis/hactl.io/v1/reservation`.

use crate::cluster::ReservationBasis;
use crate::id::{NodeName, ResourceName};
use crate::reason::Reason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Result of the failover capacity (N+1) check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReservationReport {
    /// Name of the cluster.
    pub cluster: String,
    /// Amounts that the check uses for each service.
    pub basis: ReservationBasis,
    /// Whether stopped services count as if they ran.
    pub count_stopped: bool,
    /// Number of nodes that fail at the same time.
    pub failures: u32,
    /// Worst verdict of all failures.
    pub verdict: ReservationVerdict,
    /// Number of simultaneous node failures that the cluster can absorb, as far as checked: 0, 1 or 2. Absent
    /// if failures of single nodes were not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_tolerance: Option<u32>,
    /// Number of simulated failures.
    pub checked: usize,
    /// Message of condition and event, if the verdict is not Survives.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Failures: all of single nodes and domains; of pairs, those that the cluster does not survive.
    pub items: Vec<FailureReport>,
}

/// Verdict about a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ReservationVerdict {
    /// Every service could be scheduled; the report lists the nodes.
    Survives,
    /// Undecided.
    #[default]
    Unknown,
    /// Some services could certainly not be scheduled.
    Fails,
}

/// Result for one failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FailureReport {
    /// Failed part, such as `node node1`, `group a` or `rack r1`.
    #[serde(rename = "what")]
    pub failed_part: String,
    /// Nodes that fail.
    pub nodes: Vec<NodeName>,
    /// Verdict about the failure.
    pub verdict: ReservationVerdict,
    /// Reason for the verdict, as a sentence.
    #[serde(rename = "because")]
    pub explanation: String,
    /// Placements that survive the failure.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<ReservationMove>,
    /// Services of lower priority that would be preempted, and their placements.
    #[serde(rename = "makeRoom", skip_serializing_if = "Vec::is_empty")]
    pub preempted: Vec<ReservationMove>,
    /// Services that could not be scheduled.
    #[serde(rename = "withoutPlace", skip_serializing_if = "Vec::is_empty")]
    pub unplaced: Vec<UnplacedService>,
}

/// Placement of one service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReservationMove {
    /// Name of the resource.
    pub resource: ResourceName,
    /// Node of the service before the failure.
    pub from: NodeName,
    /// Node after the failure.
    pub to: NodeName,
}

/// A service that could not be scheduled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UnplacedService {
    /// Name of the resource.
    pub resource: ResourceName,
    /// Node of the service before the failure.
    pub node: NodeName,
    /// Unmet requirements on other nodes, the node nearest to eligible first.
    pub lacks: Vec<ReservationLack>,
    /// Number of additional nodes that are not listed.
    #[serde(rename = "more")]
    pub omitted: usize,
}

/// Unmet requirement of a service on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReservationLack {
    /// Name of the node.
    pub node: NodeName,
    /// Reason in CamelCase, from a fixed list.
    pub reason: Reason,
    /// Explanation, as a sentence.
    pub message: String,
}
