//! Notifications about fencing, errors and failover capacity, in the form for webhooks and mails.

mod text;

use crate::id::NodeName;
use crate::kind::Kind;
use crate::reason::Reason;
use crate::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of the document's form; a changed form gets another name.
pub const SCHEMA: &str = "hactl.io/notification/v1";

/// Kind of a notification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum NotificationKind {
    /// A node failed, and its fencing is confirmed.
    NodeFenced,
    /// A node failed, and its fencing is not confirmed yet.
    FenceUnconfirmed,
    /// A fenced or failed node is reachable again.
    NodeReturned,
    /// A resource entered the state Error.
    ResourceError,
    /// A resource left the state Error.
    ResourceRecovered,
    /// Not every service could be scheduled after the failure of a node (N+1).
    ReservationFailed,
    /// Every service could be scheduled again after the failure of any node (N+1).
    ReservationRecovered,
    /// A test, which is sent regardless of the selected kinds.
    #[default]
    Test,
}

/// Severity of a notification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Severity {
    /// No action is required.
    #[default]
    Info,
    /// Action is required within a day.
    Warning,
    /// Action is required immediately.
    Critical,
}

/// A notification about one or more events of one kind that happened together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Notification {
    /// Name and version of the format of this document.
    pub schema: String,
    /// Unique id, which stays the same when the notification is sent again, so that receivers can detect
    /// duplicates.
    pub id: String,
    /// Name of the cluster.
    pub cluster: String,
    /// Kind of the notification.
    pub kind: NotificationKind,
    /// Severity of the notification.
    pub severity: Severity,
    /// Summary in one line.
    pub summary: String,
    /// Time when the notification was created.
    pub time: Timestamp,
    /// Creator of the notification: `controller/<id>`.
    pub source: String,
    /// Events.
    pub items: Vec<NotificationItem>,
    /// Number of additional events that are not listed.
    #[serde(rename = "more", skip_serializing_if = "is_zero")]
    pub omitted: u32,
}

/// An event in a notification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NotificationItem {
    /// Object that the event is about.
    pub object: NotificationObject,
    /// Node concerned, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// Start of the reported state, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// CamelCase reason.
    pub reason: Reason,
    /// Explanation, as a sentence.
    pub message: String,
    /// Suggested action. Empty if none is required.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub action: String,
}

/// An object by kind and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NotificationObject {
    /// Kind of the object.
    pub kind: Kind,
    /// Name of the object.
    pub name: String,
}

impl Default for NotificationObject {
    fn default() -> NotificationObject {
        NotificationObject { kind: Kind::Cluster, name: crate::cluster::CLUSTER_NAME.to_owned() }
    }
}

impl NotificationKind {
    /// Every kind that can be chosen.
    pub const CHOICES: [NotificationKind; 7] = [
        NotificationKind::NodeFenced,
        NotificationKind::FenceUnconfirmed,
        NotificationKind::NodeReturned,
        NotificationKind::ResourceError,
        NotificationKind::ResourceRecovered,
        NotificationKind::ReservationFailed,
        NotificationKind::ReservationRecovered,
    ];

    /// Returns the severity, which matches that of the alerts for Prometheus.
    pub fn severity(self) -> Severity {
        match self {
            NotificationKind::NodeFenced
            | NotificationKind::FenceUnconfirmed
            | NotificationKind::ResourceError => Severity::Critical,
            NotificationKind::ReservationFailed => Severity::Warning,
            NotificationKind::NodeReturned
            | NotificationKind::ResourceRecovered
            | NotificationKind::ReservationRecovered
            | NotificationKind::Test => Severity::Info,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}
