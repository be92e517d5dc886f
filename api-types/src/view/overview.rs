//! The cluster overview: `GET /apis/hactl.io/v1/status`.

use crate::check::Check;
use crate::cluster::RecentFence;
use crate::node::{NodeState, WatchdogStatus};
use crate::reason::Reason;
use crate::resource::ServiceState;
use crate::time::{Millis, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The cluster on one screen, as the answering controller sees it. Unknown parts are left out, never guessed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Overview {
    /// The cluster's name.
    pub cluster: String,
    /// The controller that answers.
    pub answered_by: String,
    /// That controller's version.
    pub version: String,
    /// The store: members and quorum.
    pub store: StoreOverview,
    /// The leader; `None` when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<LeaderOverview>,
    /// Every registered controller, by id.
    pub controllers: Vec<ControllerOverview>,
    /// Every node, by name.
    pub nodes: Vec<NodeOverview>,
    /// How many services are in each state; states without services are left out.
    pub services: BTreeMap<ServiceState, u32>,
    /// `Armed`, `Disarming`, `Disarmed` or `Arming`.
    pub arming: String,
    /// What the leader waits for, as sentences.
    pub waiting_for: Vec<String>,
    /// What is wrong, worst first.
    pub problems: Vec<Problem>,
    /// What was looked at of the cluster as a whole: `hactl doctor`.
    pub checks: Vec<Check>,
    /// The last fences and their proofs, newest last.
    pub recent_fences: Vec<RecentFence>,
}

/// The store's members and whether most of them answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StoreOverview {
    /// A linearizable read succeeded just now.
    pub quorum: bool,
    /// The revision at that read.
    pub revision: i64,
    /// Every member that the store lists.
    pub members: Vec<StoreMember>,
}

/// One member of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StoreMember {
    /// Its name.
    pub name: String,
    /// Where clients reach it.
    pub url: String,
    /// It answers.
    pub healthy: bool,
    /// It leads the store (not hactl's leader).
    pub leader: bool,
    /// Its version.
    pub version: String,
    /// The size of its database in bytes.
    pub database_bytes: u64,
    /// What is wrong with it; empty when nothing is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub problem: String,
}

/// The leading controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaderOverview {
    /// Its id.
    pub id: String,
    /// Where its API is reached.
    pub url: String,
    /// Its term: the create revision of the leader key.
    pub term: i64,
    /// Since when.
    pub since: Timestamp,
}

/// Whether a controller leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ControllerState {
    /// Ready to lead.
    Standby,
    /// Leads.
    Leading,
    /// Not seen lately.
    #[default]
    Lost,
}

/// One controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerOverview {
    /// Its id.
    pub id: String,
    /// Where its API is reached.
    pub url: String,
    /// Its version.
    pub version: String,
    /// Whether it leads.
    pub state: ControllerState,
    /// How long ago the answering controller saw it refresh its key, milliseconds; `None`: not since it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<Millis>,
}

/// One node and its agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeOverview {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: NodeState,
    /// The agent's state: `WaitForLock`, `Active` or `LostLock`.
    pub agent: String,
    /// The agent's mode.
    pub mode: String,
    /// `Armed`, `Disarming`, `Disarmed` or `Arming`: how far this node's agent is with that.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub arming: String,
    /// The agent's version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Its epoch.
    pub epoch: u64,
    /// `Open`, `Fencing`, `Fenced` or `Closed`.
    pub fence: String,
    /// Its lease is there: the store holds its heartbeat key.
    pub lease: bool,
    /// The watchdog.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog: Option<WatchdogStatus>,
    /// How long ago the answering controller saw its heartbeat change, milliseconds; `None`: not since it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<Millis>,
    /// When a heartbeat was last seen, to a minute or so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Timestamp>,
    /// Services assigned to it.
    pub services: u32,
    /// Its state explained, in a word.
    pub reason: Reason,
    /// Its state explained, in a sentence; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// How bad a problem is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Severity {
    /// Redundancy or protection is missing, but everything wanted runs.
    #[default]
    Degraded,
    /// Something wanted does not run, or there is no leader.
    Failed,
}

/// Something wrong, and what helps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// What it is about, as `resource/web`, `node/node1`, `store`, `controller/c1`.
    pub about: String,
    /// Why, in a word.
    pub reason: Reason,
    /// Why, in a sentence with names.
    pub message: String,
    /// What helps; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub help: String,
}

/// The overview as a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// No problems.
    Healthy,
    /// Every desired service runs, but redundancy or protection is missing.
    Degraded,
    /// A desired service does not run, or there is no leader.
    Failed,
}

impl Overview {
    /// Returns the health from the worst problem. Missing quorum and a missing leader are failures in any case.
    pub fn health(&self) -> Health {
        if !self.store.quorum || self.leader.is_none() {
            return Health::Failed;
        }
        match self.problems.iter().map(|problem| problem.severity).max() {
            Some(Severity::Failed) => Health::Failed,
            Some(Severity::Degraded) => Health::Degraded,
            None => Health::Healthy,
        }
    }
}
