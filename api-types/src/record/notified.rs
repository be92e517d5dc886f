//! What was told to the targets of `Cluster.spec.notifications`, and what is still to be delivered.

use crate::notification::Notification;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// `notified`, written by the leader: a notification is first stored here and then sent, so that whoever leads next goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Notified {
    /// What was told, or passed over since nobody wants to be told.
    pub told: Told,
    /// What is to be delivered, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<QueuedNotification>,
}

/// What was told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Told {
    /// The newest epoch of each node whose fence was told.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub fences: BTreeMap<String, u64>,
    /// The nodes of which was told that the proof does not come, and the epoch that ends with it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unconfirmed: BTreeMap<String, u64>,
    /// The resources that are in Error, as far as was told.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub errors: BTreeSet<String>,
    /// The reservation has failed, as far as was told.
    pub reservation_failed: bool,
}

/// A notification that not every target has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueuedNotification {
    /// The notification.
    pub notification: Notification,
    /// The targets (by key) that have it, or that it was given up for.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub done: BTreeSet<String>,
}
