//! What remains of a resource that was deleted while it ran.

use crate::resource::ServiceCopy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// `tombstone/<resource>`, written by the leader: where a deleted service may still run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tombstone {
    /// The deleted object's uid.
    pub uid: String,
    /// Nodes where it may still run: a resource re-created under the name waits for each to answer or be proven empty.
    pub nodes: BTreeSet<String>,
    /// The copies that the resource had, with their definitions. A tombstone of an older version has none: of its nodes
    /// it is not known which thing may run there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<ServiceCopy>,
}
