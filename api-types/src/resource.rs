//! Resources: services that hactl keeps available.

use crate::availability::Availability;
use crate::driver::{DriverSpec, Identity};
use crate::id::{ActionUid, BootId, Epoch, NodeName, ObjectUid, OperationName, ReplacementUid, ResourceName};
use crate::kind::Kind;
use crate::meta::Condition;
use crate::names;
use crate::object::{Object, Spec};
use crate::quantity::Amounts;
use crate::time::{Millis, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An object of kind Resource: a declared service.
pub type Resource = Object<ResourceSpec>;

impl Spec for ResourceSpec {
    type Status = ResourceStatus;
    const KIND: Kind = Kind::Resource;
}

/// Desired configuration of a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSpec {
    /// Driver that starts, stops and monitors the service: a map with one key, the name of the driver.
    pub driver: DriverSpec,
    /// Requested state of the service.
    pub state: RequestedState,
    /// Name of the Group whose nodes are preferred. Default: none, any node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Number of additional attempts to start the service on a node after the first one fails.
    #[schemars(range(max = 100))]
    pub max_restart: u32,
    /// Number of additional nodes on which the start is attempted.
    #[schemars(range(max = 100))]
    pub max_relocate: u32,
    /// Whether the service returns to a preferred node that becomes available again.
    pub failback: bool,
    /// Priority of the service. Services with a higher number are recovered first.
    pub priority: i32,
    /// Resource requests, used for scheduling.
    pub requests: Amounts,
    /// Storage that contains the data of the service. Default: none, every node can run the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageSpec>,
    /// Whether at most one copy may run. If false, two copies may run: the service is recovered without fencing, and no
    /// watchdog protects it.
    pub exclusive: bool,
    /// Whether the service may live-migrate to a node without a fence device although its driver runs the arriving copy
    /// immediately. If the target fails during such a migration, an operator may have to confirm that the target is
    /// powered off. If false, the service relocates instead.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_ungated: bool,
    /// Resources that this one depends on, on any node. This service starts once they run, and stops before they are
    /// stopped or moved by an operator. While one of them is requested Stopped, this service is also stopped.
    #[serde(rename = "after", alias = "dependsOn", skip_serializing_if = "Vec::is_empty")]
    #[schemars(rename = "dependsOn")]
    pub depends_on: Vec<String>,
    /// Result of a clean stop with the tool of the service's driver, such as `systemctl stop` or `virsh shutdown`,
    /// instead of hactl.
    #[serde(skip_serializing_if = "ExternalStop::is_default")]
    pub external_stop: ExternalStop,
    /// Labels for the scheduler, such as exclusion tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Maximum durations of driver commands, and the time after which a start counts as stable.
    pub timeouts: TimeoutsSpec,
    /// Free-form description, not interpreted.
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
            depends_on: Vec::new(),
            external_stop: ExternalStop::Restart,
            tags: Vec::new(),
            timeouts: TimeoutsSpec::default(),
            comment: String::new(),
        }
    }
}

/// Requested state. `Enabled` is read as Started; lower case is accepted.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[schemars(extend("x-hactl-aliases" = ["Enabled", "enabled", "started", "stopped", "disabled", "ignored"]))]
pub enum RequestedState {
    /// Keep the service running, and recover it when its node fails.
    #[default]
    #[serde(alias = "started", alias = "Enabled", alias = "enabled")]
    Started,
    /// Keep the service stopped. It is assigned to another node when its node fails.
    #[serde(alias = "stopped")]
    Stopped,
    /// Keep the service stopped on its node. Ends Error and Recovery.
    #[serde(alias = "disabled")]
    Disabled,
    /// Unmanaged: the service is neither started, stopped nor recovered.
    #[serde(alias = "ignored")]
    Ignored,
}

impl RequestedState {
    /// Every state that can be requested.
    pub const ALL: [RequestedState; 4] =
        [RequestedState::Started, RequestedState::Stopped, RequestedState::Disabled, RequestedState::Ignored];
}

/// Result of a clean stop of a service with the tool of its driver. A crash, and a guest that shuts itself down, are not
/// clean stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExternalStop {
    /// The service is started again.
    #[default]
    Restart,
    /// The requested state becomes Stopped. If the tool then starts the service on its assigned node, the requested state
    /// becomes Started.
    Accept,
}

impl ExternalStop {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    fn is_default(&self) -> bool {
        *self == ExternalStop::Restart
    }
}

/// Storage of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageSpec {
    /// Name of the pool. Nodes list their pools in `storagePools`.
    pub pool: String,
    /// Nodes that can access the storage.
    pub mode: StorageMode,
    /// Node with the second copy of the data (mode Replicated). The secondary in use is listed in
    /// `status.replicas`: after a replacement it differs from this field, until this field is changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secondary: Option<NodeName>,
}

/// Nodes that can access the storage of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StorageMode {
    /// Every node that has the pool.
    #[default]
    Shared,
    /// A primary and a secondary node.
    Replicated,
    /// One node only.
    Local,
}

/// Maximum durations of driver commands, and the time after which a start counts as stable, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TimeoutsSpec {
    /// Maximum duration of a start, in seconds.
    pub start_seconds: f64,
    /// Seconds to wait for a graceful stop before the service is killed.
    pub stop_seconds: f64,
    /// Maximum duration of a live migration, in seconds.
    pub migrate_seconds: f64,
    /// Maximum duration of a replacement of the secondary, in seconds. A replacement may copy a whole disk.
    pub replace_seconds: f64,
    /// Maximum duration of one run of the monitor command, in seconds.
    pub monitor_seconds: f64,
    /// Seconds after a start within which a crash counts as a failed start.
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

/// State of a service, as seen by the leader.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum ServiceState {
    /// The leader has not processed the resource yet, or has not determined yet where the service runs.
    #[default]
    Queued,
    /// Start requested; no node is assigned yet.
    RequestStart,
    /// The assigned node is requested to start the service.
    Starting,
    /// Confirmed running.
    Started,
    /// Stop requested; not sent to the node yet.
    RequestStop,
    /// The node is requested to stop the service.
    Stopping,
    /// Confirmed stopped.
    Stopped,
    /// Live migration in progress.
    Migrate,
    /// Move by stop and start in progress.
    Relocate,
    /// Waiting for the node to be fenced.
    Fence,
    /// Waiting for an eligible node.
    Recovery,
    /// Unmonitored: the agent of the node is down, and the service is left unchanged.
    Freeze,
    /// All attempts of the start failure policy failed, or the service cannot be stopped.
    Error,
    /// Confirmed stopped, and requested Disabled.
    Disabled,
    /// Unmanaged.
    Ignored,
    /// The resource is being deleted.
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

/// Observed state of a service, written by the leader, which also reads it after a restart or a change of
/// leader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceStatus {
    /// Generation of the object from which this status was computed.
    pub observed_generation: i64,
    /// Uid of the object that this status belongs to.
    pub uid: ObjectUid,
    /// State of the service.
    pub state: ServiceState,
    /// Node on which the service runs or is being started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// Target node of a move in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<NodeName>,
    /// Registration of the node under which the service is assigned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// Uid of the action in progress, or of the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action_uid: Option<ActionUid>,
    /// Whether the service runs, as reported by the agent.
    pub running: bool,
    /// Nodes on which a start failed. They are tried last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed_nodes: Vec<NodeName>,
    /// Nodes that reported that they can never run the service. They are not tried again until the spec
    /// changes, the service is Disabled, its error is cleared, or an operator moves the service there.
    #[serde(rename = "neverNodes", alias = "incompatibleNodes", skip_serializing_if = "Vec::is_empty")]
    #[schemars(rename = "incompatibleNodes")]
    pub incompatible_nodes: Vec<NodeName>,
    /// Number of relocations since the last successful start.
    pub relocations: u32,
    /// Node that the service left for maintenance. The service returns to this node after the maintenance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance_node: Option<NodeName>,
    /// In Error: whether the service is confirmed stopped. If not, it counts as running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_confirmed: Option<bool>,
    /// Generation of the object from which probe results are valid, after the service was Ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_generation: Option<i64>,
    /// Generation of the Cluster object from which probe results are valid, after `disarm ignore`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_arming: Option<i64>,
    /// Identity of the unit, domain or container in the current or last probe of the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub asked_identity: Option<Identity>,
    /// Generation of the object from which probes report that identity.
    #[serde(skip_serializing_if = "is_zero_generation")]
    pub asked_generation: i64,
    /// Unreachable nodes that have not reported whether the service runs there, and are assumed not to run it. Each
    /// must report before any service is started there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counted_empty: Vec<NodeName>,
    /// Number of consecutive failures of moves that the controller started. The back-off grows with this number.
    #[serde(skip_serializing_if = "is_zero")]
    pub move_failures: u32,
    /// Resource of higher priority that preempted this one, until this one runs again.
    #[serde(rename = "displacedBy", alias = "preemptedBy", skip_serializing_if = "Option::is_none")]
    #[schemars(rename = "preemptedBy")]
    pub preempted_by: Option<ResourceName>,
    /// Nodes with a copy of the data (mode Replicated), by name: the node of the service and its secondary.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<NodeName>,
    /// `spec.storage.secondary` at the time when `replicas` was determined. `replicas` stays valid until
    /// another secondary is declared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared_secondary: Option<NodeName>,
    /// Replacement of the secondary in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replacement: Option<ReplacementStatus>,
    /// Copies of the service that may run: authorized or received, and not yet confirmed stopped or fenced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<ServiceCopy>,
    /// Name of the Operation that requested the last move or restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationName>,
    /// Record of the time in which the service was requested Started, and of the time in which it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub availability: Option<Availability>,
    /// Time when the service last started to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_since: Option<Timestamp>,
    /// Conditions: Ready, Probed, DefinitionDiffers, Reconciling and Stalled. Reconciling, Stalled and DefinitionDiffers are
    /// present only while they hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A copy of a service that was authorized or received, and may still run (FENCING, R6.3).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceCopy {
    /// Node of the copy.
    pub node: NodeName,
    /// Registration of the node under which the copy was authorized.
    pub epoch: Epoch,
    /// Boot id of the node when the copy was authorized.
    pub boot_id: BootId,
    /// Definition with which the copy was started, and with which it is stopped.
    pub definition: ServiceDefinition,
    /// Whether the node no longer guards the copy: the resource was Ignored or deleted, or may have been
    /// moved by hand, since the start.
    #[serde(rename = "letGo", skip_serializing_if = "std::ops::Not::not")]
    pub is_unguarded: bool,
}

impl ServiceCopy {
    /// Returns `true` if the node's watchdog guards the copy, so that proofs (a), (f) and (g) cover the copy (FENCING,
    /// R5.24).
    pub fn is_guarded(&self) -> bool {
        self.definition.exclusive && !self.is_unguarded
    }
}

/// Replacement of a secondary in progress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplacementStatus {
    /// Unique id of the replacement.
    pub uid: ReplacementUid,
    /// Node that becomes the secondary.
    pub node: NodeName,
}

impl ResourceStatus {
    /// Returns the current secondary: the node with the data on which the service does not run.
    ///
    /// After a failover it is the previous node of the service. After a replacement it is the new secondary. Both may
    /// differ from the spec.
    pub fn secondary(&self) -> Option<&NodeName> {
        let node = self.node.as_ref().filter(|node| self.replicas.contains(node))?;
        self.replicas.iter().find(|replica| *replica != node)
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

/// Everything that an agent needs to run, stop and monitor a service. Every assignment contains a copy. A service is
/// therefore stopped with the definition with which it was started, even if its spec has changed or was deleted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceDefinition {
    /// Name of the resource.
    pub name: ResourceName,
    /// Uid of the resource.
    pub uid: ObjectUid,
    /// Driver that runs the service.
    pub driver: DriverSpec,
    /// Maximum durations of driver commands, and the time after which a start counts as stable.
    pub timeouts: TimeoutsSpec,
    /// Number of additional attempts to start the service on the node.
    pub max_restart: u32,
    /// Priority in the worker queue. Services with a higher number are processed first.
    pub priority: i32,
    /// Whether at most one copy may run. Default: true.
    pub exclusive: bool,
    /// Names, without type, of resources that stop after this one.
    #[serde(rename = "after", alias = "dependsOn", skip_serializing_if = "Vec::is_empty")]
    #[schemars(rename = "dependsOn")]
    pub depends_on: Vec<ResourceName>,
}

/// The exclusiveness of an unknown definition is unknown, so the default is exclusive (FENCING R3.8, R4.38).
impl Default for ServiceDefinition {
    fn default() -> ServiceDefinition {
        ServiceDefinition {
            name: ResourceName::default(),
            uid: ObjectUid::default(),
            driver: DriverSpec::default(),
            timeouts: TimeoutsSpec::default(),
            max_restart: 0,
            priority: 0,
            exclusive: true,
            depends_on: Vec::new(),
        }
    }
}

impl ServiceDefinition {
    /// Returns the current definition of a resource.
    pub fn of(resource: &Resource) -> ServiceDefinition {
        ServiceDefinition {
            name: resource.metadata.name.as_str().into(),
            uid: resource.metadata.uid.clone(),
            driver: resource.spec.driver.clone(),
            timeouts: resource.spec.timeouts,
            max_restart: resource.spec.max_restart,
            priority: resource.spec.priority,
            exclusive: resource.spec.exclusive,
            depends_on: resource
                .spec
                .depends_on
                .iter()
                .map(|name| names::without_type(name).into())
                .collect(),
        }
    }

    /// Returns the identity of the unit, domain, container or program that runs under this definition; `None` if it is
    /// unknown.
    pub fn identity(&self) -> Option<Identity> {
        self.driver.identity(&self.name)
    }

    /// Returns `true` if both definitions have the same identity.
    pub fn has_same_identity(&self, other: &ServiceDefinition) -> bool {
        self.has_identity_of(&other.name, &other.driver)
    }

    fn has_identity_of(&self, name: &str, driver: &DriverSpec) -> bool {
        self.name == name && self.driver.has_same_identity(driver, &self.name)
    }

    /// Returns `true` if a resource may change from one of these definitions to the other while a copy may exist
    /// (FENCING, R6.7). Both must have the same identity, and both or neither must be exclusive.
    pub fn may_replace(&self, other: &ServiceDefinition) -> bool {
        self.exclusive == other.exclusive && self.has_same_identity(other)
    }

    /// Returns `true` if the current definition of a resource may replace this one, see
    /// [`ServiceDefinition::may_replace`].
    pub fn may_become(&self, resource: &Resource) -> bool {
        self.exclusive == resource.spec.exclusive
            && self.has_identity_of(&resource.metadata.name, &resource.spec.driver)
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
    fn secondary_node_has_data_without_service() {
        let status_with = |node: Option<&str>, replicas: &[&str]| ResourceStatus {
            node: node.map(NodeName::from),
            replicas: replicas.iter().copied().map(NodeName::from).collect(),
            ..ResourceStatus::default()
        };
        let status = status_with(Some("node1"), &["node1", "node2"]);
        assert_eq!(status.secondary(), Some(&"node2".into()));
        assert_eq!(
            status_with(Some("node2"), &["node1", "node2"]).secondary(),
            Some(&"node1".into()),
            "after a failover"
        );
        assert_eq!(status_with(Some("node1"), &["node1"]).secondary(), None, "the primary alone");
        assert_eq!(status_with(None, &["node1", "node2"]).secondary(), None, "the secondary is nowhere yet");
    }
}
