//! Messages between the agent and the supervisor.

use crate::driver::program::order::{LaunchFailure, LaunchOrder, ProcessRecord};
use ha_api_types::id::{BootId, ObjectUid, ResourceName};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Order to the supervisor, read from its standard input, which is the locked order file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SupervisorRequest {
    /// Resource name, for the journal.
    pub(super) resource: ResourceName,
    /// Uid of the resource.
    pub(super) uid: ObjectUid,
    pub(super) boot_id: BootId,
    /// Directory of the service.
    #[serde(rename = "folder")]
    pub(super) directory: PathBuf,
    /// Size in bytes above which the log is rotated.
    pub(super) log_bytes_max: u64,
    /// `true` if the output is also sent to the systemd journal.
    #[serde(rename = "journal")]
    pub(super) logs_to_journal: bool,
    /// Environment of the service, if the agent is of a version that writes it to the disk. Otherwise, the supervisor
    /// reads it from the agent's socket, because values may be secrets.
    #[serde(default, skip_serializing)]
    pub(super) environment: Option<Vec<(String, String)>>,
    /// Order to launch the main process.
    pub(super) launch: LaunchOrder,
}

/// The supervisor's only answer to the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Report {
    /// The program was executed.
    Started(ProcessRecord),
    /// The program was not executed; no process of the service runs.
    Failed(LaunchFailure),
}
