//! The heartbeat of a node.

use crate::id::{Epoch, ProcessInstance};
use serde::{Deserialize, Serialize};

/// `alive/<node>`, leased, written by the node's agent. Only a commit of the agent counts as a heartbeat. The end of the
/// lease only removes the key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Alive {
    /// The agent process; a different value means that another process took over.
    pub instance: ProcessInstance,
    /// Epoch under which the agent acts.
    pub epoch: Epoch,
    /// Number of heartbeats of this agent process.
    pub sequence: u64,
}
