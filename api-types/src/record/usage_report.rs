//! What an agent has measured.

use crate::time::Timestamp;
use crate::usage::Usage;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `report/<node>/usage`, unleased, written by the node's agent when a figure has moved far enough, or is old.
///
/// A key of its own: every permit guards `report/<node>/node`, which must not change for a measurement. Unleased, as a lease
/// would prove nothing that the epoch does not: the figures count only under the open epoch that they were measured under, so
/// those of a dead node count no more as soon as it is closed, and nobody has to delete them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UsageReport {
    /// The epoch under which it was measured.
    pub epoch: u64,
    /// The boot under which it was measured.
    pub boot_id: String,
    /// What the whole machine uses.
    pub node: Usage,
    /// What its services use, those that could be measured, by resource.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<String, ServiceUsage>,
    /// When it was written.
    pub at: Timestamp,
}

/// What one service uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceUsage {
    /// The uid of the resource that was measured: another under the same name is not it.
    pub uid: String,
    /// What it uses.
    pub usage: Usage,
}
