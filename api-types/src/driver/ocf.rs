//! Driver `ocf`: a resource agent of the Open Cluster Framework (OCF).

use crate::setting::Setting;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An OCF resource agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OcfDriver {
    /// Agent as `provider:agent`, such as `heartbeat:IPaddr2`.
    pub agent: String,
    /// Parameters of the agent. A value is a text, or comes from the node (`valueFrom`).
    pub parameters: BTreeMap<String, Setting>,
    /// Seconds between two monitor runs. Default: the interval in the agent's meta-data, else 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor_interval_seconds: Option<f64>,
    /// Depth of the monitor run (`OCF_CHECK_LEVEL`). Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_level: Option<u32>,
    /// Whether the service live-migrates with the agent's `migrate_to` and `migrate_from`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_migrate: bool,
    /// Whether a live-migrated service starts running on the target only after `migrate_from` is called there. The agent
    /// must guarantee this across reboots of the target.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gated: bool,
}
