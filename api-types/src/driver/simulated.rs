//! Driver `simulated`: a service that exists only in the simulator and in tests.

use crate::id::NodeName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A simulated service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a separate fault or ability")]
pub struct SimulatedDriver {
    /// Type of the resource, shown as `type:name`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Identity of the simulated service. Default: the name of the resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub identity: String,
    /// Whether the service can live-migrate.
    pub live: bool,
    /// Whether the arriving copy of a live migration stays paused until the target resumes it. If false, the
    /// copy runs on arrival, even in a later boot of the target.
    pub gated: bool,
    /// Duration of a start, in seconds.
    pub start_seconds: u32,
    /// Duration of a stop, in seconds.
    pub stop_seconds: u32,
    /// Duration of a live migration, in seconds.
    pub migrate_seconds: u32,
    /// Whether the service can replace its secondary while it runs.
    pub replaces_secondary: bool,
    /// Duration of a replacement of the secondary, in seconds.
    pub replace_seconds: u32,
    /// Number of starts in the cluster that fail before one succeeds. A success resets the count.
    pub start_failures: u32,
    /// Number of migrations that fail before one succeeds.
    pub migrate_failures: u32,
    /// Number of replacements of the secondary that fail before one succeeds.
    pub replace_failures: u32,
    /// Whether stops fail.
    pub stop_fails: bool,
    /// Whether the configuration is invalid, so that the service starts on no node.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub bad_configuration: bool,
    /// Nodes on which failures happen. Empty: all nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fail_on: Vec<NodeName>,
    /// Nodes on which the service is not installed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<NodeName>,
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
