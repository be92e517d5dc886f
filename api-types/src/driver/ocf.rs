//! Driver `ocf`: a resource agent in the manner of the Open Cluster Framework.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An OCF resource agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OcfDriver {
    /// `provider:agent`, as `heartbeat:IPaddr2`.
    pub agent: String,
    /// The agent's parameters.
    pub parameters: BTreeMap<String, String>,
    /// How often a running service is asked; default what the agent's meta-data advises for monitor, else 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monitor_interval_seconds: Option<f64>,
    /// How closely it is looked at then (`OCF_CHECK_LEVEL`); default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_level: Option<u32>,
    /// Moves live with the agent's `migrate_to` and `migrate_from`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_migrate: bool,
    /// Nothing that arrives in a live migration runs on the target before the agent's `migrate_from` is called there, also not in
    /// a later boot of the target.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gated: bool,
}
