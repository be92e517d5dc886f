//! The stored state of a cluster as one document: `GET /apis/hactl.io/v1/state`, and `state.json` of a support dump.

use crate::id::Revision;
use crate::time::{Millis, MonotonicTime, Now, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// All keys of a cluster at one revision of etcd, without events and service logs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StateDump {
    /// Time of the read, by the clock of the controller that answers.
    pub at: Timestamp,
    /// Revision of etcd at which all keys were read.
    pub revision: Revision,
    /// State of the core of the controller that answers; null if unknown.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub controller: Value,
    /// The keys with their values, sorted by key.
    pub keys: Vec<StoredKey>,
}

/// A key of a cluster with its value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StoredKey {
    /// The key after the prefix of the cluster, such as `fence/node1`.
    pub key: String,
    /// The value, as stored. A value that is not JSON is a string.
    pub value: Value,
    /// Revision at which the key was created.
    #[serde(rename = "created")]
    pub create_revision: Revision,
    /// Revision at which the key was last written.
    #[serde(rename = "modified")]
    pub mod_revision: Revision,
    /// Whether the key has a lease, so that it disappears with its writer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub leased: bool,
    /// Time since the answering controller saw the key change, in milliseconds. Only for heartbeats; absent if unknown.
    #[serde(rename = "silentMs", skip_serializing_if = "Option::is_none")]
    pub heartbeat_age_ms: Option<Millis>,
}

/// The next action of a core without an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NextDeadline {
    /// Time until the action, in milliseconds.
    pub in_ms: Millis,
    /// Reason of the action.
    #[serde(rename = "why")]
    pub reason: &'static str,
}

impl NextDeadline {
    /// Returns the action at a core's deadline; `None` if the core waits for events only.
    pub fn of(deadline: Option<(MonotonicTime, &'static str)>, now: &Now) -> Option<NextDeadline> {
        deadline.map(|(at, reason)| NextDeadline { in_ms: at.since(now.monotonic_raw), reason })
    }
}
