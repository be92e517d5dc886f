//! The failover capacity (N+1) check: `GET /apis/hactl.io/v1/reservation`.

use crate::cluster::ReservationBasis;
use crate::reason::Reason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The answer to the question whether every service would find a place after a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReservationReport {
    /// The cluster.
    pub cluster: String,
    /// What is counted.
    pub basis: ReservationBasis,
    /// Stopped services count as if they ran.
    pub count_stopped: bool,
    /// So many nodes fail at once.
    pub failures: u32,
    /// The worst verdict.
    pub verdict: ReservationVerdict,
    /// Any so many nodes may fail at once, as far as was looked: 0, 1 or 2. `None` when single nodes were not looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_tolerance: Option<u32>,
    /// How many failures were thought through.
    pub checked: usize,
    /// The sentence that condition and event say, when the verdict is not Survives.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The failures: of single nodes and of domains all, of pairs those that are not survived.
    pub items: Vec<FailureReport>,
}

/// What is known about a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ReservationVerdict {
    /// Every service finds a place; the proof says where.
    Survives,
    /// It could not be decided.
    #[default]
    Unknown,
    /// Some find none, which is certain.
    Fails,
}

/// One failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FailureReport {
    /// What fails, as `node node1`, `group a` or `rack r1`.
    pub what: String,
    /// The nodes.
    pub nodes: Vec<String>,
    /// The verdict.
    pub verdict: ReservationVerdict,
    /// How it is certain, or why not, in a sentence.
    pub because: String,
    /// Where services would go: the proof that it is survived.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<ReservationMove>,
    /// Services of lower priority that would make room, and where they would go.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub make_room: Vec<ReservationMove>,
    /// Services that would find no place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without_place: Vec<WithoutPlace>,
}

/// Where one service would go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReservationMove {
    /// The resource.
    pub resource: String,
    /// Where it is.
    pub from: String,
    /// Where it would be.
    pub to: String,
}

/// A service that would find no place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WithoutPlace {
    /// The resource.
    pub resource: String,
    /// Where it is.
    pub node: String,
    /// What it lacks on other nodes, the nearest to taking it first.
    pub lacks: Vec<ReservationLack>,
    /// Nodes that are not listed.
    pub more: usize,
}

/// What a service lacks on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReservationLack {
    /// The node.
    pub node: String,
    /// In a word.
    pub reason: Reason,
    /// In a sentence.
    pub message: String,
}
