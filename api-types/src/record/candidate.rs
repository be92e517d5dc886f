//! Controllers: candidates for leadership, and the leader.

use crate::id::{ControllerId, MachineId, ProcessInstance};
use crate::protocol::Protocol;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// `candidate/<id>`, unleased. Each process of that controller writes the key once, and the key persists over restarts
/// (R9.10).
///
/// A build without `refresh/<id>` writes this key every Ki and deletes the key when it stops. A change of either key
/// therefore counts as a refresh.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Candidate {
    /// Id of the controller, stable over restarts.
    pub id: ControllerId,
    /// URL of the controller's API.
    pub url: String,
    /// Version of the controller.
    pub version: String,
    /// Highest protocol version that the controller can read.
    pub protocol: Protocol,
    /// The controller process; a restart changes it.
    pub instance: ProcessInstance,
    /// The machine of the controller; empty if unknown, as in builds without this field.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub machine: MachineId,
    /// Number of refreshes; written only by builds without `refresh/<id>`.
    pub sequence: u64,
}

/// `refresh/<id>`, unleased, committed by that controller every Ki; agents do not read it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Refresh {
    /// The controller process.
    pub instance: ProcessInstance,
    /// Number of refreshes of this process.
    pub sequence: u64,
}

/// `leader`, leased. The create revision of the key is the term.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Leader {
    /// Id of the candidate that is leader.
    pub id: ControllerId,
    /// URL of the leader's API.
    pub url: String,
    /// The controller process.
    pub instance: ProcessInstance,
    /// Start of the leadership.
    pub since: Timestamp,
}
