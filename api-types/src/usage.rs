//! Measured usage of nodes and services.

use crate::quantity::{Amounts, Quantity};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Measured use, as means of about the last minute. What could not be measured is left out, never guessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Quantity>,
    /// Memory in bytes; caches that can be given up are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,
    /// Bytes a second read from disks and written to them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_rate: Option<Quantity>,
    /// Bytes a second received and sent.
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
