//! Controllers: candidates for leadership, and the leader.

use crate::protocol::Protocol;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// `candidate/<id>`, unleased: written once by each process of that controller, and kept over its restarts (R9.10).
///
/// Builds from before `refresh/<id>` write it every Ki and delete it when they stop, so a change of either key counts as
/// a refresh.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Candidate {
    /// Stable over restarts.
    pub id: String,
    /// Where its API is reached.
    pub url: String,
    /// Its version.
    pub version: String,
    /// The protocol version up to which it reads.
    pub protocol: Protocol,
    /// The process, to tell a restart.
    pub instance: String,
    /// The machine that it runs on; empty when unknown, as builds from before this field leave it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// Number of refreshes, by builds from before `refresh/<id>`.
    pub sequence: u64,
}

/// `refresh/<id>`, unleased, committed by that controller every Ki; agents do not read it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Refresh {
    /// The process.
    pub instance: String,
    /// Number of refreshes of this process.
    pub sequence: u64,
}

/// `leader`, leased. Its create revision is the term.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Leader {
    /// The candidate that leads.
    pub id: String,
    /// Where its API is reached.
    pub url: String,
    /// The process.
    pub instance: String,
    /// Since when.
    pub since: Timestamp,
}
