//! What agent and supervisor tell each other.

use crate::driver::program::order::{LaunchFailure, LaunchOrder, Record};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What the supervisor is to do: its standard input, the locked order file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SupervisorOrder {
    /// The resource, for the journal.
    pub(super) resource: String,
    /// The resource's uid.
    pub(super) uid: String,
    /// The boot.
    pub(super) boot_id: String,
    /// The service's folder.
    pub(super) folder: PathBuf,
    /// The log is rotated when it is longer.
    pub(super) log_bytes_max: u64,
    /// Whether the output also goes to the journal of systemd.
    pub(super) journal: bool,
    /// The service's environment.
    pub(super) environment: Vec<(String, String)>,
    /// The main process.
    pub(super) launch: LaunchOrder,
}

/// What the supervisor tells the agent, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Report {
    /// The program was executed.
    Started(Record),
    /// It was not; nothing runs.
    Failed(LaunchFailure),
}
