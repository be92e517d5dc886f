//! Driver `simulated`: a service that only pretends.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A service that only pretends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SimulatedDriver {
    /// Shown as `type:name`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Can migrate live.
    pub live: bool,
    /// How long a start takes.
    pub start_seconds: u32,
    /// How long a stop takes.
    pub stop_seconds: u32,
    /// How long a live migration takes.
    pub migrate_seconds: u32,
    /// How many starts fail first, over the cluster; a success resets it.
    pub start_failures: u32,
    /// How many migrations fail first.
    pub migrate_failures: u32,
    /// Stops fail.
    pub stop_fails: bool,
    /// Its configuration is wrong: it starts nowhere.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub bad_configuration: bool,
    /// Failures happen only on these nodes; empty: everywhere.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fail_on: Vec<String>,
    /// Nodes where it is not installed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

impl Default for SimulatedDriver {
    fn default() -> SimulatedDriver {
        SimulatedDriver {
            kind: "sim".to_owned(),
            live: true,
            start_seconds: 1,
            stop_seconds: 1,
            migrate_seconds: 5,
            start_failures: 0,
            migrate_failures: 0,
            stop_fails: false,
            bad_configuration: false,
            fail_on: Vec::new(),
            missing: Vec::new(),
        }
    }
}
