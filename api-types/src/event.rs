//! Events: records of changes of an object and their reasons. Each event has a lease in etcd, so that etcd deletes old
//! events.

use crate::id::{ActionUid, Epoch, NodeName, ObjectUid, OperationName};
use crate::kind::Kind;
use crate::reason::Reason;
use crate::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Severity of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum EventType {
    /// Expected.
    #[default]
    Normal,
    /// Requires attention.
    Warning,
}

/// An event, as stored under `event/<writer>/…`. The API serves it as a core/v1 Event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Kind of the object.
    pub kind: Kind,
    /// Name of the object.
    pub name: String,
    /// Uid of the object, if known.
    #[serde(default)]
    pub uid: ObjectUid,
    /// Severity: Normal or Warning.
    #[serde(rename = "type")]
    pub event_type: EventType,
    /// CamelCase reason.
    pub reason: Reason,
    /// Description, as a sentence.
    pub message: String,
    /// Writer of the event: `controller/<id>` or `agent/<node>`.
    pub source: String,
    /// Node concerned, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// Uid of the action concerned, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action_uid: Option<ActionUid>,
    /// Name of the Operation that requested the action, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationName>,
    /// Registration of the node concerned, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// Time of the event (RFC 3339).
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
