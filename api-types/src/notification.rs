//! Notifications about fencing, errors and failover capacity, in the form for webhooks and mails.

mod text;

use crate::kind::Kind;
use crate::reason::Reason;
use crate::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of the document's form; a changed form gets another name.
pub const SCHEMA: &str = "hactl.io/notification/v1";

/// What is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum NotificationKind {
    /// A node was declared dead, and that is proven.
    NodeFenced,
    /// A node was declared dead, and the proof does not come.
    FenceUnconfirmed,
    /// A node of which that was told is heard again.
    NodeReturned,
    /// A resource went into Error.
    ResourceError,
    /// It is out of Error again.
    ResourceRecovered,
    /// Not every service would find a place after a node's failure.
    ReservationFailed,
    /// Every service would find one again.
    ReservationRecovered,
    /// A test; sent whatever is chosen.
    #[default]
    Test,
}

/// How urgent it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Severity {
    /// Nothing is to be done.
    #[default]
    Info,
    /// Somebody should look within the day.
    Warning,
    /// Somebody should look now.
    Critical,
}

/// Several things of one kind that happened together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Notification {
    /// The form of this document.
    pub schema: String,
    /// Unlike any other; the same whenever this one is sent again, so that who gets it twice can tell.
    pub id: String,
    /// The cluster.
    pub cluster: String,
    /// What is told.
    pub kind: NotificationKind,
    /// How urgent it is.
    pub severity: Severity,
    /// All of it in one line.
    pub summary: String,
    /// When it was composed.
    pub time: Timestamp,
    /// Who composed it: `controller/<id>`.
    pub source: String,
    /// What it is about.
    pub items: Vec<NotificationItem>,
    /// So many more are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    pub more: u32,
}

/// One thing that happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NotificationItem {
    /// What it happened to.
    pub object: NotificationObject,
    /// Where.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Why, in a word.
    pub reason: Reason,
    /// Why, in a sentence.
    pub message: String,
    /// What to do; empty: nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub action: String,
}

/// An object by kind and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NotificationObject {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
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
