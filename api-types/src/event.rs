//! Events: records of changes of an object and their reasons. They have a lease in etcd, so that old ones disappear.

use crate::kind::Kind;
use crate::reason::Reason;
use crate::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether an event wants attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum EventType {
    /// As expected.
    #[default]
    Normal,
    /// Somebody should look.
    Warning,
}

/// What happened, as its writer stores it under `event/<writer>/…`. The API serves it as a core/v1 Event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// What kind of object it is about.
    pub kind: Kind,
    /// The object's name.
    pub name: String,
    /// The object's uid, if known.
    #[serde(default)]
    pub uid: String,
    /// Normal or Warning.
    #[serde(rename = "type")]
    pub event_type: EventType,
    /// Why, in a word.
    pub reason: Reason,
    /// What happened, in a sentence.
    pub message: String,
    /// Who wrote it: `controller/<id>` or `agent/<node>`.
    pub source: String,
    /// The node concerned, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The action concerned, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action_uid: Option<String>,
    /// The operation that it serves, by name, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// The epoch of the node under which that is, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// When.
    pub at: Timestamp,
}

/// Annotation of an event in the API, with the uid of the action concerned.
pub const ACTION_UID_ANNOTATION: &str = "hactl.io/action-uid";
/// Annotation with the epoch of the node.
pub const EPOCH_ANNOTATION: &str = "hactl.io/epoch";
/// Annotation with the node concerned.
pub const NODE_ANNOTATION: &str = "hactl.io/node";

/// Lifetime of events in seconds: the time to live of their lease.
pub const EVENT_TTL_SECONDS: i64 = 3600;
