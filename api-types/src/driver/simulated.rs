//! Driver `simulated`: a service that exists only in the simulator and in tests.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A service that only pretends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fault or an ability of its own")]
pub struct SimulatedDriver {
    /// Shown as `type:name`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Names the thing that the resource runs. Default: the resource's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub identity: String,
    /// Can migrate live.
    pub live: bool,
    /// What arrives in a live migration waits, paused, until the target lets it run; `false`: what arrives runs, also in a later
    /// boot of the target.
    pub gated: bool,
    /// How long a start takes.
    pub start_seconds: u32,
    /// How long a stop takes.
    pub stop_seconds: u32,
    /// How long a live migration takes.
    pub migrate_seconds: u32,
    /// Can replace its secondary while it runs.
    pub replaces_secondary: bool,
    /// How long that takes.
    pub replace_seconds: u32,
    /// How many starts fail first, over the cluster; a success resets it.
    pub start_failures: u32,
    /// How many migrations fail first.
    pub migrate_failures: u32,
    /// How many replacements of its secondary fail first.
    pub replace_failures: u32,
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
            identity: String::new(),
            live: true,
            gated: true,
            start_seconds: 1,
            stop_seconds: 1,
            migrate_seconds: 5,
            replaces_secondary: true,
            replace_seconds: 30,
            start_failures: 0,
            migrate_failures: 0,
            replace_failures: 0,
            stop_fails: false,
            bad_configuration: false,
            fail_on: Vec::new(),
            missing: Vec::new(),
        }
    }
}
