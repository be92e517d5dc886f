//! Controllers: candidates for leadership, and the leader.

use crate::protocol::Protocol;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// `candidate/<id>`, unleased, written by that controller; refreshed by a commit every Ki.
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
    /// Counts refreshes.
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
