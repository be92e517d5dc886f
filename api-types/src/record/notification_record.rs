//! The state of notifications: the notifications that the targets of `Cluster.spec.notifications` have received, and
//! the queued notifications.

use crate::id::{Epoch, NodeName, ResourceName};
use crate::notification::Notification;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// `notified`, written by the leader. A notification is stored here before it is sent, so that the next leader can
/// continue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NotificationRecord {
    /// Facts that were sent, or skipped because no target is configured for their kind.
    #[serde(rename = "told")]
    pub sent: SentFacts,
    /// Notifications to be delivered, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<QueuedNotification>,
}

/// Facts that were sent to the targets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SentFacts {
    /// Newest epoch of each node whose fencing was reported.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub fences: BTreeMap<NodeName, Epoch>,
    /// Nodes for which unconfirmed fencing was reported, with the epoch that the fencing ends.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unconfirmed: BTreeMap<NodeName, Epoch>,
    /// Resources that were reported to be in Error.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub errors: BTreeSet<ResourceName>,
    /// `true` if a failed reservation check was reported last.
    pub reservation_failed: bool,
}

/// A notification that some targets have not received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueuedNotification {
    /// Content that every target receives.
    pub notification: Notification,
    /// Keys of the targets that have received the notification, or for which the notification was discarded.
    #[serde(rename = "done", skip_serializing_if = "BTreeSet::is_empty")]
    pub delivered_targets: BTreeSet<String>,
}
