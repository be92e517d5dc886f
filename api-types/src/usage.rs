//! Measured usage of nodes and services.

use crate::quantity::{Amounts, Quantity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Measured usage, averaged over about a minute. Amounts that cannot be measured are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Number of cores in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Quantity>,
    /// Memory in use, in bytes, without reclaimable caches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,
    /// Disk reads and writes, in bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_rate: Option<Quantity>,
    /// Network traffic in both directions, in bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_rate: Option<Quantity>,
}

impl Usage {
    /// Returns `true` if nothing was measured.
    pub fn is_empty(&self) -> bool {
        *self == Usage::default()
    }

    /// Returns the amounts that can be compared with capacity. Used disk space is not measured, only the disk rate.
    pub fn amounts(&self) -> Amounts {
        Amounts { cpu: self.cpu, memory: self.memory, disk: None }
    }
}
