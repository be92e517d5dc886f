//! Driver `exec`: programs, either a supervised foreground process or start, stop and monitor commands.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Programs: `command` is a supervised foreground process; or `start`, `stop`, `monitor` and perhaps `migrate`.
///
/// The programs see `HA_RESOURCE`, `HA_NODE` and, for migrate, `HA_TARGET`. `monitor` exits 0 running, 7 not running,
/// anything else: cannot be told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExecDriver {
    /// The foreground process: program and arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Starts the service and exits 0 once it runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub start: Vec<String>,
    /// Stops it and exits 0 once nothing is left.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Tells whether it runs. With `command` it is optional: exit 0 means ready.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub monitor: Vec<String>,
    /// Moves it live to `HA_TARGET`; exit 0: runs there and not here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub migrate: Vec<String>,
    /// Replaces the secondary of a replicated service that runs here: `HA_SECONDARY` (empty: it has none) by
    /// `HA_NEW_SECONDARY`. Exit 0: the new one is complete and in use, the old one let go; anything else: the old one is still
    /// in use. Repeated after an interruption. For either kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replace_secondary: Vec<String>,
    /// Environment variables.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Where the programs run; default `/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// The user that they run as; default the agent's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}
