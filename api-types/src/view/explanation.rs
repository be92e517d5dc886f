//! The explanation of a service's node and state, node by node: `GET /apis/hactl.io/v1/resources/NAME/explain`.

use crate::meta::Condition;
use crate::reason::Reason;
use crate::resource::{RequestedState, ServiceState};
use crate::usage::Usage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a service is where it is and in the state it is in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Explanation {
    /// The resource's name.
    pub resource: String,
    /// Its type, as in `vm:100`.
    #[serde(rename = "type")]
    pub type_name: String,
    /// What is wanted.
    pub requested: RequestedState,
    /// What is.
    pub state: ServiceState,
    /// Where it is, or is to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Where it is moving.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// It runs, as the agent reports.
    pub running: bool,
    /// What it was last measured to use where it runs; `None`: it does not run, or cannot be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Why, in a word.
    pub reason: Reason,
    /// Why, in a sentence with names.
    pub message: String,
    /// What it waits for, as sentences.
    pub waiting_for: Vec<String>,
    /// The resource's conditions.
    pub conditions: Vec<Condition>,
    /// How uneven the load of nodes is, and what `scheduler.autoRebalance` makes of it; `None`: that is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<String>,
    /// Every node: the best first, then the refused ones, by name.
    pub nodes: Vec<Verdict>,
    /// What would help, as sentences; empty when nothing is wrong.
    pub help: Vec<String>,
}

/// One node, seen from a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Verdict {
    /// The node.
    pub node: String,
    /// The service is there.
    pub current: bool,
    /// It would be chosen now.
    pub chosen: bool,
    /// It may run there.
    pub allowed: bool,
    /// The node's priority in the group or rule; higher is preferred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// The score as a text, comparable only within this answer; `None` for a refused node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<String>,
    /// What the node would carry with the service there, and what of that was measured; `None` in mode Basic, and for a refused
    /// node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<String>,
    /// Everything that speaks against it (refused), or that the choice rests on (allowed).
    pub causes: Vec<VerdictCause>,
}

/// One cause in a verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VerdictCause {
    /// In a word.
    pub reason: Reason,
    /// In a sentence with names and amounts.
    pub message: String,
    /// What would help; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub help: String,
}
