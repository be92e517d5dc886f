//! What remains of a resource that was deleted while it ran.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// `tombstone/<resource>`, written by the leader: where a deleted service may still run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tombstone {
    /// The deleted object's uid.
    pub uid: String,
    /// Nodes where it may still run: a resource re-created under the name waits for each to answer or be proven empty.
    pub nodes: BTreeSet<String>,
}
