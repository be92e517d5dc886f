//! The measurements of an agent.

use crate::id::{BootId, Epoch, ObjectUid, ResourceName};
use crate::time::Timestamp;
use crate::usage::Usage;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `report/<node>/usage`, unleased, written by the node's agent when a value has changed enough or is old.
///
/// The report has its own key, because every permit guards `report/<node>/node`, which must not change for a
/// measurement.
///
/// The report needs no lease, because its values are valid only under the open epoch in which they were measured. The
/// values of a dead node become invalid when the leader closes its epoch. A deletion is not necessary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UsageReport {
    /// Epoch of the measurement.
    pub epoch: Epoch,
    /// Boot of the measurement.
    pub boot_id: BootId,
    /// Usage of the whole machine.
    pub node: Usage,
    /// Usage of the running services, by resource name. A service without figures could not be measured, but `node`
    /// contains its usage.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub services: BTreeMap<ResourceName, ServiceUsage>,
    /// Time of the report.
    pub at: Timestamp,
}

/// The usage of one service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceUsage {
    /// Uid of the measured resource, which distinguishes it from another one of the same name.
    pub uid: ObjectUid,
    /// Measured usage.
    pub usage: Usage,
}
