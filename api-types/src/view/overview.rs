//! The cluster overview: `GET /apis/hactl.io/v1/status`.

use crate::check::{self, Check};
use crate::cluster::RecentFence;
use crate::id::{ControllerId, Epoch, NodeName, Revision, Term};
use crate::kind::Kind;
use crate::node::{NodeState, WatchdogStatus};
use crate::reason::Reason;
use crate::record::BackupRecord;
use crate::renamed;
use crate::resource::ServiceState;
use crate::time::{DecimalSeconds, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;

/// Overview of the cluster, as seen by the controller that answers. Unknown parts are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Overview {
    /// Name of the cluster.
    pub cluster: String,
    /// Id of the controller that answers.
    pub answered_by: String,
    /// Version of that controller.
    pub version: String,
    /// Members and quorum of etcd.
    pub store: EtcdOverview,
    /// Current leader of the cluster. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<LeaderOverview>,
    /// All registered controllers, by id.
    pub controllers: Vec<ControllerOverview>,
    /// All nodes, by name.
    pub nodes: Vec<NodeOverview>,
    /// Number of services by state. States without services are absent.
    pub services: BTreeMap<ServiceState, u32>,
    /// Whether the cluster is armed. One of `Armed`, `Disarming`, `Disarmed`, `Arming`.
    pub arming: String,
    /// Events that the leader waits for, as sentences.
    pub waiting_for: Vec<String>,
    /// Problems, worst first.
    pub problems: Vec<Problem>,
    /// Results of the checks of the whole cluster, as shown by `hactl doctor`.
    #[serde(serialize_with = "check::serialize_for_api")]
    pub checks: Vec<Check>,
    /// Recent fencing operations and their confirmations, newest last.
    pub recent_fences: Vec<RecentFence>,
}

/// Members and quorum of etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EtcdOverview {
    /// Whether a linearizable read succeeded just now.
    pub quorum: bool,
    /// Revision at that read.
    pub revision: Revision,
    /// Members that etcd lists.
    pub members: Vec<EtcdMember>,
    /// The last verified backup; absent if `hactl backup` never ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupRecord>,
}

/// A member of etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EtcdMember {
    /// Name of the member.
    pub name: String,
    /// Client URL of the member.
    pub url: String,
    /// Whether the member answers.
    pub healthy: bool,
    /// Whether the member is the leader of etcd (not that of hactl).
    pub leader: bool,
    /// Version of etcd.
    pub version: String,
    /// Size of the member's database, in bytes.
    pub database_bytes: u64,
    /// Problem of the member. Empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub problem: String,
}

/// The controller that is leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaderOverview {
    /// Id of the controller.
    pub id: ControllerId,
    /// URL of the controller's API.
    pub url: String,
    /// Term of the leader: the create revision of the leader key.
    pub term: Term,
    /// Time of the election.
    pub since: Timestamp,
}

/// State of a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ControllerState {
    /// Ready to become leader.
    Standby,
    /// Leader.
    Leading,
    /// Unreachable.
    #[default]
    Lost,
}

/// A controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerOverview {
    /// Id of the controller.
    pub id: ControllerId,
    /// URL of the controller's API.
    pub url: String,
    /// Version of the controller.
    pub version: String,
    /// State of the controller.
    pub state: ControllerState,
    /// Time since the answering controller last observed a refresh of the controller's key, in seconds. Absent if none
    /// was observed since the start of the answering controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_seconds: Option<DecimalSeconds>,
}

/// A node and its agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeOverview {
    /// Name of the node.
    pub name: NodeName,
    /// State of the node.
    pub state: NodeState,
    /// State of the agent. One of `WaitForLock`, `Active`, `LostLock`.
    pub agent: String,
    /// Mode of the agent.
    pub mode: String,
    /// Progress of the node's agent in arming or disarming the cluster. One of `Armed`, `Disarming`,
    /// `Disarmed`, `Arming`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub arming: String,
    /// Version of the agent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Number of the node's registration.
    #[serde(alias = "epoch")]
    pub registration: Epoch,
    /// State of the registration. One of `Open`, `Fencing`, `Fenced`, `Closed`.
    #[serde(alias = "fence")]
    pub registration_state: String,
    /// Whether the node has a lease under its current registration: etcd contains its heartbeat key.
    pub lease: bool,
    /// Watchdog of the node.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "serialize_watchdog")]
    pub watchdog: Option<WatchdogStatus>,
    /// Time since the answering controller last observed a heartbeat of the node, in seconds. Absent if none was
    /// observed since the start of the answering controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_seconds: Option<DecimalSeconds>,
    /// Time of the last heartbeat, with a precision of about a minute.
    #[serde(alias = "lastSeen", skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_time: Option<Timestamp>,
    /// Number of services assigned to the node.
    pub services: u32,
    /// CamelCase reason of the node's state.
    pub reason: Reason,
    /// Explanation of the node's state, as a sentence. May be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

#[expect(clippy::ref_option, reason = "serde passes the field")]
fn serialize_watchdog<S: Serializer>(
    watchdog: &Option<WatchdogStatus>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    renamed::serialize_part(Kind::Node, &["status", "watchdog"], watchdog, serializer)
}

/// Severity of a problem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Severity {
    /// Redundancy or protection is missing, but every service that is requested Started runs.
    #[default]
    Degraded,
    /// A service that is requested Started does not run, or there is no leader.
    Failed,
}

/// A problem and its suggested action.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Problem {
    /// Severity of the problem.
    pub severity: Severity,
    /// Object with the problem, such as `resource/web`, `node/node1`, `store`, `controller/c1`.
    pub about: String,
    /// Reason in CamelCase, from a fixed list.
    pub reason: Reason,
    /// Explanation, as a sentence with names.
    pub message: String,
    /// Suggested action of an operator. May be empty.
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
    /// Returns the health from the worst problem. Missing quorum or a missing leader is a failure, regardless of the
    /// problems.
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
