//! The remains of a resource that was deleted while its service ran.

use crate::id::{NodeName, ObjectUid};
use crate::resource::ServiceCopy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// `tombstone/<resource>`, written by the leader: the nodes on which a deleted service may still run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Tombstone {
    /// Uid of the deleted object.
    pub uid: ObjectUid,
    /// Nodes on which the service may still run. A new resource of the same name waits until each of them has answered or
    /// is proven empty.
    pub nodes: BTreeSet<NodeName>,
    /// The copies of the deleted resource, with their definitions. A tombstone of an older version contains no copies,
    /// so the service that may run on its nodes is unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<ServiceCopy>,
}
