//! Driver `systemd`: a unit of the node's service manager.

use crate::quantity::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A unit that the node's systemd knows, or a transient one that is made of a command line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SystemdDriver {
    /// The unit's name, as `postgresql@15-main.service`. With `command` it may be left out: `hactl-RESOURCE.service`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// Takes the unit out of the boot (as `systemctl disable` does) when it is enabled; otherwise an enabled unit is
    /// refused, since it would start twice.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disable_at_boot: bool,
    /// A transient unit's program, by its whole path, and arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Environment variables of the transient unit.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Where the transient unit runs; default `/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// The user that the transient unit runs as; default root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What the transient unit may use at most.
    #[serde(skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
}

/// The most that a service may use, enforced by the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// Cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Quantity>,
    /// Bytes of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Quantity>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
}

impl Limits {
    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == Limits::default()
    }
}
