//! Driver `exec`: programs, either a supervised foreground process or start, stop and monitor commands.

use crate::setting::Setting;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Programs: either `command`, a supervised foreground process, or `start`, `stop`, `monitor` and optionally
/// `migrate`.
///
/// The programs run with the variables `HA_RESOURCE`, `HA_NODE` and, for migrate, `HA_TARGET`. Exit status of
/// `monitor`: 0 means running, 7 not running, any other unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExecDriver {
    /// Foreground process: program and arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Program that starts the service and exits 0 once the service runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub start: Vec<String>,
    /// Program that stops the service and exits 0 once all of its processes have ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Program that exits 0 if the service runs, and 7 if not; any other status is ignored. Optional with `command`, where
    /// exit 0 also means ready.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub monitor: Vec<String>,
    /// Program that live-migrates the service to `HA_TARGET` and exits 0 once the service runs there and no
    /// longer here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub migrate: Vec<String>,
    /// Program that replaces the secondary of a replicated service that runs here: `HA_SECONDARY` (empty if there is
    /// none) by `HA_NEW_SECONDARY`. Exit 0: the new secondary is complete and in use, and the old secondary is
    /// released. Any other status: the old secondary is still in use. After an interruption, a retry runs the program
    /// again. Available with and without `command`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replace_secondary: Vec<String>,
    /// Environment variables of the programs. A value is a text, or comes from the node (`valueFrom`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, Setting>,
    /// Working directory of the programs. Default: `/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// User that runs the programs. Default: the user of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

impl ExecDriver {
    /// Returns all programs of the service, each with its arguments.
    pub fn programs(&self) -> impl Iterator<Item = &Vec<String>> {
        let ExecDriver { command, start, stop, monitor, migrate, replace_secondary, .. } = self;
        [command, start, stop, monitor, migrate, replace_secondary]
            .into_iter()
            .filter(|program| !program.is_empty())
    }
}
