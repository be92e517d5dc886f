//! Failover times of proposed timing settings: `POST /apis/hactl.io/v1/timing`.

use crate::id::NodeName;
use crate::time::DecimalSeconds;
use crate::timing::TimingSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Request for the failover times with some settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct TimingRequest {
    /// Settings, as in `Cluster.spec.timing`.
    pub timing: TimingSpec,
}

/// Longest failover time of each node with the requested settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TimingReport {
    /// Settings on which the times depend, each with its allowed values.
    pub settings: Vec<TimingSetting>,
    /// Problems because of which the API would refuse the settings.
    pub problems: Vec<TimingProblem>,
    /// Failovers; nodes with equal values form one entry.
    pub failovers: Vec<FailoverTimes>,
    /// Nodes whose agent has not reported its watchdog.
    pub unreported_nodes: Vec<NodeName>,
}

/// A setting of `Cluster.spec.timing`, in the unit of its name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TimingSetting {
    /// Name of the field.
    pub field: String,
    /// Value of the requested settings.
    pub value: f64,
    /// Value of the profile, which applies if the field is absent.
    pub profile_value: f64,
    /// Smallest allowed value.
    pub min: f64,
    /// Largest allowed value. Absent: only other settings limit the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
}

/// A setting that the API would refuse.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TimingProblem {
    /// Name of the field.
    pub field: String,
    /// Problem, with the value that solves it, as a clause after the name of the field.
    pub message: String,
}

/// Longest failover times of nodes with equal watchdogs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FailoverTimes {
    /// Names of the nodes.
    pub nodes: Vec<NodeName>,
    /// Fencing delay of this failover, in seconds.
    pub fencing_delay_seconds: DecimalSeconds,
    /// Longest time from the last heartbeat until services start elsewhere, if only the node fails.
    pub total_seconds: DecimalSeconds,
    /// The same time if the leader fails together with the node.
    pub leader_node_total_seconds: DecimalSeconds,
    /// Parts of the times, in the order in which they add up.
    pub parts: Vec<FailoverTimePart>,
}

/// A part of the longest failover time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FailoverTimePart {
    /// Name of the part.
    pub name: String,
    /// Duration if only the node fails.
    pub node_seconds: DecimalSeconds,
    /// Duration if the leader fails together with the node.
    pub leader_node_seconds: DecimalSeconds,
    /// Whether the value is the sum of parts before it.
    pub is_sum: bool,
}
