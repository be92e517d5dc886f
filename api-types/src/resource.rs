//! Resources: services that hactl keeps available.

use crate::availability::Availability;
use crate::driver::{DriverSpec, Identity};
use crate::kind::Kind;
use crate::meta::Condition;
use crate::names;
use crate::object::{Object, Spec};
use crate::quantity::Amounts;
use crate::time::{Millis, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A declared service.
pub type Resource = Object<ResourceSpec>;

impl Spec for ResourceSpec {
    type Status = ResourceStatus;
    const KIND: Kind = Kind::Resource;
}

/// What the user wants of a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSpec {
    /// How it is started, stopped and watched: a map with one key, the driver's name.
    pub driver: DriverSpec,
    /// Whether it should run.
    pub state: RequestedState,
    /// The group of nodes where it prefers to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Further attempts to start it on a node.
    #[schemars(range(max = 100))]
    pub max_restart: u32,
    /// Further nodes to try.
    #[schemars(range(max = 100))]
    pub max_relocate: u32,
    /// It goes back to a preferred node when that is available again.
    pub failback: bool,
    /// Higher is recovered first.
    pub priority: i32,
    /// What it needs.
    pub requests: Amounts,
    /// Where its data is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageSpec>,
    /// False: safe to run twice; it never arms a watchdog and is moved without waiting.
    pub exclusive: bool,
    /// Permits live migration, by a driver that lets what arrives run without asking, to nodes without a fence device. If the
    /// target is lost meanwhile, an operator may have to confirm it powered off. Default: such a service relocates.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_ungated: bool,
    /// Resources that start before it and stop after it, on whatever node: it is started once they run, and stopped before
    /// they are when somebody stops or moves them. While one of them is wanted Stopped it is stopped, too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// Labels for the scheduler, as exclusion tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// How long its commands may take.
    pub timeouts: TimeoutsSpec,
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub comment: String,
}

impl Default for ResourceSpec {
    fn default() -> ResourceSpec {
        ResourceSpec {
            driver: DriverSpec::default(),
            state: RequestedState::default(),
            group: None,
            max_restart: 1,
            max_relocate: 1,
            failback: true,
            priority: 0,
            requests: Amounts::default(),
            storage: None,
            exclusive: true,
            allow_ungated: false,
            after: Vec::new(),
            tags: Vec::new(),
            timeouts: TimeoutsSpec::default(),
            comment: String::new(),
        }
    }
}

/// The requested state. `Enabled` is read as Started; lower case is accepted.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[schemars(extend("x-hactl-aliases" = ["Enabled", "enabled", "started", "stopped", "disabled", "ignored"]))]
pub enum RequestedState {
    /// Keep it running; recover it when its node fails.
    #[default]
    #[serde(alias = "started", alias = "Enabled", alias = "enabled")]
    Started,
    /// Keep it stopped; it gets a new home when its node fails.
    #[serde(alias = "stopped")]
    Stopped,
    /// Keep it stopped where it is; the way out of Error and Recovery.
    #[serde(alias = "disabled")]
    Disabled,
    /// Not managed: never touched.
    #[serde(alias = "ignored")]
    Ignored,
}

impl RequestedState {
    /// Every state that can be requested.
    pub const ALL: [RequestedState; 4] =
        [RequestedState::Started, RequestedState::Stopped, RequestedState::Disabled, RequestedState::Ignored];
}

/// Where a service's data is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageSpec {
    /// The pool; nodes name theirs in `storagePools`.
    pub pool: String,
    /// How it is reached.
    pub mode: StorageMode,
    /// The node with the second copy (Replicated). Which one is in use is in `status.replicas`: after a replacement that is
    /// another one, until this field is changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secondary: Option<String>,
}

/// How storage is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StorageMode {
    /// From every node that has the pool.
    #[default]
    Shared,
    /// On a primary and a secondary node.
    Replicated,
    /// On one node only.
    Local,
}

/// How long commands may take, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TimeoutsSpec {
    /// Start.
    pub start_seconds: f64,
    /// Graceful stop; then it is killed.
    pub stop_seconds: f64,
    /// Live migration.
    pub migrate_seconds: f64,
    /// Replacing the secondary of a replicated service: a whole disk may be copied.
    pub replace_seconds: f64,
    /// One run of the monitor command.
    pub monitor_seconds: f64,
    /// A crash sooner than this after a start counts as a failed start.
    pub stable_seconds: f64,
}

impl Default for TimeoutsSpec {
    fn default() -> TimeoutsSpec {
        TimeoutsSpec {
            start_seconds: 60.0,
            stop_seconds: 60.0,
            migrate_seconds: 600.0,
            replace_seconds: 3600.0,
            monitor_seconds: 20.0,
            stable_seconds: 30.0,
        }
    }
}

/// The state of a service, as the leader sees it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum ServiceState {
    /// Not seen by the leader yet, or it is not known yet where it runs.
    #[default]
    Queued,
    /// Should run; no node is chosen yet.
    RequestStart,
    /// A node was told to start it.
    Starting,
    /// Confirmed running.
    Started,
    /// Should stop; its node was not told yet.
    RequestStop,
    /// Its node was told to stop it.
    Stopping,
    /// Confirmed stopped.
    Stopped,
    /// Moving live.
    Migrate,
    /// Moving by stop and start.
    Relocate,
    /// Waits for its node to be fenced.
    Fence,
    /// Waits for a new place.
    Recovery,
    /// Its agent is away; nobody touches it.
    Freeze,
    /// Policies are exhausted, or it cannot be stopped.
    Error,
    /// Confirmed stopped, disabled.
    Disabled,
    /// Not managed.
    Ignored,
    /// Being deleted.
    Deleting,
}

impl ServiceState {
    /// Every state.
    pub const ALL: [ServiceState; 16] = [
        ServiceState::Queued,
        ServiceState::RequestStart,
        ServiceState::Starting,
        ServiceState::Started,
        ServiceState::RequestStop,
        ServiceState::Stopping,
        ServiceState::Stopped,
        ServiceState::Migrate,
        ServiceState::Relocate,
        ServiceState::Fence,
        ServiceState::Recovery,
        ServiceState::Freeze,
        ServiceState::Error,
        ServiceState::Disabled,
        ServiceState::Ignored,
        ServiceState::Deleting,
    ];
}

/// What the leader reports about a service, and what it must remember about it across its own restarts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceStatus {
    /// The generation this was computed from.
    pub observed_generation: i64,
    /// The uid of the object that this is about.
    pub uid: String,
    /// The service's state.
    pub state: ServiceState,
    /// The node where it is, or is to be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Where it is moving.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The epoch of its node under which it is assigned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The uid of the action under way or last done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action_uid: Option<String>,
    /// Whether it runs, as the agent reports.
    pub running: bool,
    /// Nodes where it failed to start; they are tried last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_nodes: Vec<String>,
    /// Nodes that said that they can never run it; they are not tried again until the spec changes, it is Disabled, its
    /// error is cleared, or an operator moves it there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub never_nodes: Vec<String>,
    /// How often it was relocated since it last started well.
    pub relocations: u32,
    /// The node that it left for maintenance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance_node: Option<String>,
    /// In Error: whether it is confirmed stopped. If not, it counts as running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_confirmed: Option<bool>,
    /// The generation from which on probes count (7: a service that was Ignored is looked for anew).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_generation: Option<i64>,
    /// The cluster's generation from which on probes count (after disarm ignore, places are read anew).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_arming: Option<i64>,
    /// The identity of what nodes are, or were last, asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub asked_identity: Option<Identity>,
    /// The generation from which on probes answer for that identity.
    #[serde(skip_serializing_if = "is_zero_generation")]
    pub asked_generation: i64,
    /// Unreachable nodes that did not answer whether the service runs there and were counted as empty. Each node answers before
    /// anything is started there again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counted_empty: Vec<String>,
    /// Failed moves in a row that the controller wanted; the back-off grows with it.
    #[serde(skip_serializing_if = "is_zero")]
    pub move_failures: u32,
    /// The service of higher priority that it makes room for, until it runs again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub displaced_by: Option<String>,
    /// The nodes with its data (Replicated), by name: where it is, and its secondary.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<String>,
    /// `spec.storage.secondary` when `replicas` was determined: they hold until another one is declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared_secondary: Option<String>,
    /// The replacement of its secondary that is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replacement: Option<ReplacementStatus>,
    /// Places where a copy was permitted or received, and is not yet confirmed stopped or proven gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<ServiceCopy>,
    /// What the last move or restart was for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// How much of the time in which it was wanted it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub availability: Option<Availability>,
    /// When it last came to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_since: Option<Timestamp>,
    /// Ready, Reconciling, Stalled, Placed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A place where a copy of a service was permitted or received, and may still run (FENCING, R6.3).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceCopy {
    /// The node.
    pub node: String,
    /// The node's epoch under which the copy was permitted.
    pub epoch: u64,
    /// The node's boot at that time.
    pub boot_id: String,
    /// The definition under which the copy was permitted, and under which it is stopped.
    pub definition: ServiceDefinition,
    /// The resource was Ignored, deleted, or possibly moved by hand since: the node no longer guards the copy.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub let_go: bool,
}

impl ServiceCopy {
    /// Returns `true` if the node's watchdog guards the copy, so that proofs (a), (f) and (g) count for it (FENCING,
    /// R5.24).
    pub fn is_guarded(&self) -> bool {
        self.definition.exclusive && !self.let_go
    }
}

/// The replacement of a service's secondary that is under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplacementStatus {
    /// Tells it from every other.
    pub uid: String,
    /// The node that becomes the secondary.
    pub node: String,
}

impl ResourceStatus {
    /// Returns the current secondary: the node with the data on which the service does not run.
    ///
    /// After a failover it is the previous node of the service. After a replacement it is the new secondary. Both may
    /// differ from the spec.
    pub fn secondary(&self) -> Option<&str> {
        let node = self.node.as_ref().filter(|node| self.replicas.contains(node))?;
        self.replicas.iter().find(|replica| *replica != node).map(String::as_str)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero_generation(number: &i64) -> bool {
    *number == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// All that an agent needs to know of a service to run, stop and watch it: a copy travels in every assignment, so that
/// a service is stopped as it was started even when its spec has changed or gone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceDefinition {
    /// The resource's name.
    pub name: String,
    /// The resource's uid.
    pub uid: String,
    /// How to run it.
    pub driver: DriverSpec,
    /// How long its commands may take.
    pub timeouts: TimeoutsSpec,
    /// Further attempts to start it on the node.
    pub max_restart: u32,
    /// Higher goes first in the worker queue.
    pub priority: i32,
    /// Whether promise 1 covers it; one that does not say is covered.
    pub exclusive: bool,
    /// Names, without type, of resources that stop after it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
}

/// The exclusiveness of an unknown definition is unknown, so the default is exclusive (FENCING R3.8, R4.38).
impl Default for ServiceDefinition {
    fn default() -> ServiceDefinition {
        ServiceDefinition {
            name: String::new(),
            uid: String::new(),
            driver: DriverSpec::default(),
            timeouts: TimeoutsSpec::default(),
            max_restart: 0,
            priority: 0,
            exclusive: true,
            after: Vec::new(),
        }
    }
}

impl ServiceDefinition {
    /// Returns the current definition of a resource.
    pub fn of(resource: &Resource) -> ServiceDefinition {
        ServiceDefinition {
            name: resource.metadata.name.clone(),
            uid: resource.metadata.uid.clone(),
            driver: resource.spec.driver.clone(),
            timeouts: resource.spec.timeouts,
            max_restart: resource.spec.max_restart,
            priority: resource.spec.priority,
            exclusive: resource.spec.exclusive,
            after: resource.spec.after.iter().map(|name| names::bare(name).to_owned()).collect(),
        }
    }

    /// Returns the identity of the thing that runs under this definition; `None` if it is unknown.
    pub fn identity(&self) -> Option<Identity> {
        self.driver.identity(&self.name)
    }

    /// Returns `true` if both definitions run the same thing.
    pub fn is_same_thing(&self, other: &ServiceDefinition) -> bool {
        self.name == other.name && self.driver.is_same_thing(&other.driver, &self.name)
    }

    /// Returns `true` if a resource may change from one of these definitions to the other while a copy may exist (FENCING,
    /// R6.7). Both must run the same thing, and both or neither must be exclusive.
    pub fn may_replace(&self, other: &ServiceDefinition) -> bool {
        self.exclusive == other.exclusive && self.is_same_thing(other)
    }
}

impl TimeoutsSpec {
    /// Returns `startSeconds` in milliseconds.
    pub fn start_ms(&self) -> Millis {
        to_ms(self.start_seconds)
    }
    /// Returns `stopSeconds` in milliseconds.
    pub fn stop_ms(&self) -> Millis {
        to_ms(self.stop_seconds)
    }
    /// Returns `migrateSeconds` in milliseconds.
    pub fn migrate_ms(&self) -> Millis {
        to_ms(self.migrate_seconds)
    }
    /// Returns `replaceSeconds` in milliseconds.
    pub fn replace_ms(&self) -> Millis {
        to_ms(self.replace_seconds)
    }
    /// Returns `monitorSeconds` in milliseconds.
    pub fn monitor_ms(&self) -> Millis {
        to_ms(self.monitor_seconds)
    }
    /// Returns `stableSeconds` in milliseconds.
    pub fn stable_ms(&self) -> Millis {
        to_ms(self.stable_seconds)
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the range first")]
fn to_ms(seconds: f64) -> Millis {
    (seconds * 1000.0).round().clamp(0.0, 1e12) as Millis
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secondary_is_where_the_data_is_and_the_service_is_not() {
        let of = |node: Option<&str>, replicas: &[&str]| ResourceStatus {
            node: node.map(str::to_owned),
            replicas: replicas.iter().map(|node| (*node).to_owned()).collect(),
            ..ResourceStatus::default()
        };
        let status = of(Some("node1"), &["node1", "node2"]);
        assert_eq!(status.secondary(), Some("node2"));
        assert_eq!(of(Some("node2"), &["node1", "node2"]).secondary(), Some("node1"), "after a failover");
        assert_eq!(of(Some("node1"), &["node1"]).secondary(), None, "the primary alone");
        assert_eq!(of(None, &["node1", "node2"]).secondary(), None, "it is nowhere yet");
    }
}
