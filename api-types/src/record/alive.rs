//! A node's heartbeat.

use serde::{Deserialize, Serialize};

/// `alive/<node>`, leased, written by the node's agent. The lease cleans up; only a commit proves anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Alive {
    /// The agent process: another instance means another process took over.
    pub instance: String,
    /// The epoch under which it lives.
    pub epoch: u64,
    /// Counts heartbeats of this instance.
    pub sequence: u64,
}
