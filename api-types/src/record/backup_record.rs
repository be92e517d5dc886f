//! The last backup of etcd that was verified.

use crate::id::Revision;
use crate::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `backup`, written by `hactl backup` after the backup was saved and verified. A backup contains the record of the
/// backup before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BackupRecord {
    /// Time at which the backup began.
    pub at: Timestamp,
    /// Revision of etcd in the backup.
    pub revision: Revision,
    /// Size of the file, in bytes.
    pub size_bytes: u64,
    /// Whether the file is encrypted.
    pub encrypted: bool,
}
