//! Nodes and node groups.

use crate::check::Check;
use crate::id::{BootId, Epoch, MachineId, NodeName, OperationName};
use crate::kind::Kind;
use crate::meta::Condition;
use crate::node_policy::NodePolicy;
use crate::object::{Object, Spec};
use crate::quantity::Amounts;
use crate::reason::Reason;
use crate::record::{LastTermination, NodeReport, WatchdogObservation, WatchdogTest};
use crate::setting::Setting;
use crate::time::{DecimalSeconds, Timestamp};
use crate::timing::ActiveTiming;
use crate::usage::Usage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An object of kind Node.
pub type Node = Object<NodeSpec>;
/// An object of kind NodeGroup: nodes that share storage and load.
pub type NodeGroup = Object<NodeGroupSpec>;

impl Spec for NodeSpec {
    type Status = NodeStatus;
    const KIND: Kind = Kind::Node;
}

impl Spec for NodeGroupSpec {
    type Status = NodeGroupStatus;
    const KIND: Kind = Kind::NodeGroup;
}

/// Desired configuration of a node. The leader creates the object when the node's agent first registers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    /// Whether services move away and no new ones are scheduled.
    pub maintenance: bool,
    /// Whether no new services are scheduled on the node.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(extend("default" = false))]
    pub unschedulable: bool,
    /// The opposite of `unschedulable`, under its name in etcd ([`crate::renamed`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub schedulable: Option<bool>,
    /// Capacity of the node. Default: as reported by the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Amounts>,
    /// Name of the NodeGroup of the node. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_group: Option<String>,
    /// Storage pools that the node can access.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub storage_pools: Vec<String>,
    /// Capacity reserved for programs outside hactl, not available for services.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Amounts>,
    /// Whether the reported CPU capacity is the number of hardware threads instead of cores.
    pub count_threads: bool,
    /// Maximum number of driver commands that run at the same time. Default: that of the Cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub max_workers: Option<u32>,
    /// Fencing of the node: fence devices, and whether its watchdog is trusted.
    pub fencing: NodeFencingSpec,
}

impl NodeSpec {
    /// Returns `true` if new services can be scheduled on the node.
    pub fn is_schedulable(&self) -> bool {
        !self.unschedulable && self.schedulable.unwrap_or(true)
    }

    /// Returns the capacity of the node: the declared amounts, or else those that the agent reported.
    #[must_use]
    pub fn capacity(&self, report: Option<&NodeReport>) -> Amounts {
        let declared = self.capacity.unwrap_or_default();
        let reported = report.map(|report| report.capacity_counting(self.count_threads)).unwrap_or_default();
        Amounts {
            cpu: declared.cpu.or(reported.cpu),
            memory: declared.memory.or(reported.memory),
            disk: declared.disk.or(reported.disk),
        }
    }
}

/// Settings for fencing of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeFencingSpec {
    /// Fence devices of the node. A lower priority number is tried first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<FenceDevice>,
    /// WARNING: services can run twice if the node is paused together with its clock. Whether the fencing delay confirms
    /// fencing of a virtual machine, or of a machine that can sleep.
    #[serde(rename = "allowUnfenced", alias = "trustWatchdogOnVirtualMachine")]
    #[schemars(rename = "trustWatchdogOnVirtualMachine")]
    pub trust_watchdog_on_virtual_machine: bool,
}

/// A fence device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FenceDevice {
    /// Name of the device, used in messages.
    pub name: String,
    /// Order of the devices. A lower number is tried first.
    pub priority: i32,
    /// Connection that the device cuts: power, or network and storage.
    pub kind: FenceKind,
    /// Whether power is switched on again after power-off is confirmed.
    pub action: FenceAction,
    /// Whether a device of kind Fabric also cuts the storage.
    pub covers_storage: bool,
    /// Maximum duration of one attempt, in seconds.
    pub timeout_seconds: u32,
    /// Number of additional attempts after the first one fails.
    pub retries: u32,
    /// Runs of fence agents, all of which must succeed, such as one for each of two power supplies.
    pub parts: Vec<FencePart>,
}

impl FenceDevice {
    /// Returns `true` if a confirmation by this device confirms the fencing: always for power, and for fabric only if it
    /// also disconnects the storage.
    pub fn confirms_power_off(&self) -> bool {
        !self.parts.is_empty()
            && match self.kind {
                FenceKind::Power => true,
                FenceKind::Fabric => self.covers_storage,
            }
    }
}

impl Default for FenceDevice {
    fn default() -> FenceDevice {
        FenceDevice {
            name: String::new(),
            priority: 0,
            kind: FenceKind::default(),
            action: FenceAction::default(),
            covers_storage: false,
            timeout_seconds: 60,
            retries: 1,
            parts: Vec::new(),
        }
    }
}

/// Connection that a fence device cuts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FenceKind {
    /// Power supply.
    #[default]
    Power,
    /// Network, and storage with `coversStorage`.
    Fabric,
}

/// Power state after fencing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FenceAction {
    /// Switch off, confirm power-off, then switch on again.
    #[default]
    Reboot,
    /// Switch off.
    Off,
}

/// One run of a fence agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FencePart {
    /// Name of the agent, such as `fence_ipmilan`.
    pub agent: String,
    /// Attributes that the agent reads from standard input. A value can come from the controllers (`valueFrom`).
    pub attributes: BTreeMap<String, Setting>,
    /// File with additional attributes, for secrets: its name in the secrets directory of the controllers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attributes_file: Option<String>,
}

/// State of a node, as seen by the leader.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum NodeState {
    /// Heartbeats arrive under the current registration.
    Online,
    /// The agent was shut down cleanly.
    Offline,
    /// The heartbeat is late, or none has arrived yet.
    #[default]
    Unknown,
    /// Fencing in progress.
    Fence,
    /// Online and in maintenance.
    Maintenance,
    /// The object was deleted.
    Gone,
}

impl NodeState {
    /// Every state.
    pub const ALL: [NodeState; 6] = [
        NodeState::Online,
        NodeState::Offline,
        NodeState::Unknown,
        NodeState::Fence,
        NodeState::Maintenance,
        NodeState::Gone,
    ];
}

/// Observed state of a node, written by the leader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// Generation of the object from which this status was computed.
    pub observed_generation: i64,
    /// State of the node.
    pub state: NodeState,
    /// Number of the node's registration. It grows with each registration.
    pub epoch: Epoch,
    /// State of the registration. One of `Open`, `Fencing`, `Fenced`, `Closed`.
    pub fence: String,
    /// Mode of the agent. One of `Registering`, `Active`, `Maintenance`, `Shutdown`, `Restart`, `Disarmed`, `Left`.
    pub mode: String,
    /// State of the agent. One of `WaitForLock`, `Active`, `LostLock`.
    pub agent: String,
    /// Progress of the node's agent in arming or disarming the cluster. One of `Armed`, `Disarming`,
    /// `Disarmed`, `Arming`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub arming: String,
    /// Version of the agent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Boot id of the node.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub boot_id: BootId,
    /// Machine id of the node, from `/etc/machine-id`. Unchanged while another machine registers under the node's
    /// name.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub machine_id: MachineId,
    /// Watchdog of the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog: Option<WatchdogStatus>,
    /// Protection against suspend. One of `NotNeeded`, `Masked`, `Inhibitor`, `None`. Empty if the agent does
    /// not report it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sleep_protection: String,
    /// Fencing delay of the node, in seconds: time after the last heartbeat at which fencing by watchdog is
    /// confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fencing_delay_seconds: Option<DecimalSeconds>,
    /// Timing that is active on the node, as reported by its agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timing: Option<ActiveTiming>,
    /// Time of the last heartbeat. Updated about once a minute while the node is reachable, and exact once it is not.
    #[serde(rename = "lastSeen", alias = "lastHeartbeatTime", skip_serializing_if = "Option::is_none")]
    #[schemars(rename = "lastHeartbeatTime")]
    pub last_heartbeat_time: Option<Timestamp>,
    /// Drivers that are available on the node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drivers: Vec<String>,
    /// Services that the node runs, from the configuration of its agent. Absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<NodePolicy>,
    /// Capacity of the node.
    pub capacity: Amounts,
    /// Sum of the requests of the node's services.
    pub allocated: Amounts,
    /// Measured usage of the whole machine, including programs outside hactl. Absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Number of services assigned to the node.
    pub services: u32,
    /// Results of the agent's checks of the machine, as shown by `hactl doctor NODE`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// Shutdown record of the previous boot, if that ended uncleanly.
    #[serde(rename = "lastEnd", alias = "lastTermination", skip_serializing_if = "Option::is_none")]
    #[schemars(rename = "lastTermination")]
    pub last_termination: Option<LastTermination>,
    /// Reason for which the last fencing was confirmed.
    #[serde(rename = "lastProof", alias = "lastFencingReason", skip_serializing_if = "Option::is_none")]
    #[schemars(rename = "lastFencingReason")]
    pub last_fencing_reason: Option<Reason>,
    /// Conditions: Ready, Fenceable, FenceDevicesHealthy and Awake.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Watchdog of a node, for display.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each named")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WatchdogStatus {
    /// Kind of the watchdog. One of `Kernel`, `Simulated`, `None`.
    pub kind: String,
    /// Identity reported by the driver.
    pub identity: String,
    /// Path of the device or socket.
    pub device: String,
    /// Watchdog timeout reported by the driver, in seconds.
    pub timeout_seconds: DecimalSeconds,
    /// Whether the watchdog is recorded in etcd as armed.
    pub armed: bool,
    /// Whether the device is recorded in etcd as failed because it rejects renewals. Exclusive services move away
    /// from the node.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// Whether a renewal can set a shorter timeout (sliding timeout).
    #[serde(rename = "sliding", alias = "dynamicTimeout")]
    #[schemars(rename = "dynamicTimeout")]
    pub sliding: bool,
    /// Whether the device stays open when the watchdog daemon ends.
    #[serde(rename = "descriptorRetained", alias = "fdStorePersistent")]
    #[schemars(rename = "fdStorePersistent")]
    pub descriptor_retained: bool,
    /// Whether a watchdog test passed on this machine, with this driver and the active timeout.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tested: bool,
    /// Latest test that passed on this machine with this driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_test: Option<WatchdogTestStatus>,
    /// Observations of the watchdog daemon about the device.
    #[serde(rename = "seen", alias = "observed", skip_serializing_if = "Option::is_none")]
    #[schemars(rename = "observed")]
    pub observation: Option<WatchdogObservationStatus>,
}

/// Latest watchdog test that a node passed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WatchdogTestStatus {
    /// Name of the Operation that requested the test.
    pub operation: OperationName,
    /// Time of the start, by the clock of that machine.
    pub at: Timestamp,
    /// Boot id of the boot that the watchdog ended.
    pub boot_id: BootId,
    /// Boot id of the next boot.
    pub next_boot_id: BootId,
    /// Watchdog timeout of the armed device, in seconds. The test does not apply to another timeout.
    pub timeout_seconds: DecimalSeconds,
    /// Time for which the machine kept running after the last renewal, in seconds, recorded twice a second.
    pub lasted_seconds: DecimalSeconds,
}

impl From<&WatchdogTest> for WatchdogTestStatus {
    fn from(test: &WatchdogTest) -> WatchdogTestStatus {
        WatchdogTestStatus {
            operation: test.operation.clone(),
            at: test.at.clone(),
            boot_id: test.boot_id.clone(),
            next_boot_id: test.next_boot_id.clone(),
            timeout_seconds: DecimalSeconds(test.timeout_ms),
            lasted_seconds: DecimalSeconds(test.lasted_ms),
        }
    }
}

/// Observations of the watchdog daemon about its device, since it was armed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WatchdogObservationStatus {
    /// Whether the device cannot be stopped once started.
    pub nowayout: bool,
    /// Minimum timeout of the driver, in seconds.
    pub min_timeout_seconds: u32,
    /// Maximum timeout of the driver, in seconds.
    pub max_timeout_seconds: u32,
    /// Active pretimeout, in seconds. Absent if the driver has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pretimeout_seconds: Option<u32>,
    /// Minimum time left on the device at a renewal, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_margin_seconds: Option<DecimalSeconds>,
    /// Maximum delay of the daemon's loop, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_delay_seconds: Option<DecimalSeconds>,
    /// Whether the daemon runs with real-time priority.
    pub real_time: bool,
    /// Whether the daemon's memory is locked.
    pub memory_locked: bool,
}

impl From<&WatchdogObservation> for WatchdogObservationStatus {
    fn from(observed: &WatchdogObservation) -> WatchdogObservationStatus {
        let seconds = |ms: Option<u32>| ms.map(|ms| DecimalSeconds(u64::from(ms)));
        WatchdogObservationStatus {
            nowayout: observed.nowayout,
            min_timeout_seconds: observed.smallest_timeout_seconds,
            max_timeout_seconds: observed.largest_timeout_seconds,
            pretimeout_seconds: observed.pretimeout_seconds,
            min_margin_seconds: seconds(observed.smallest_margin_ms),
            max_delay_seconds: seconds(observed.worst_lateness_ms),
            real_time: observed.real_time,
            memory_locked: observed.memory_locked,
        }
    }
}

impl WatchdogStatus {
    /// Returns `true` if the watchdog is simulated. Leaders until version 0.1 wrote `StandIn`.
    pub fn is_simulated(&self) -> bool {
        matches!(self.kind.as_str(), "Simulated" | "StandIn")
    }

    /// Returns the arming state of the watchdog, and whether the watchdog is simulated, in the form of tables.
    pub fn summary(&self) -> &'static str {
        match (self.kind.as_str(), self.armed) {
            ("" | "None", _) => "none",
            ("Kernel", true) => "armed",
            ("Kernel", false) => "idle",
            (_, true) => "armed (simulated)",
            (_, false) => "idle (simulated)",
        }
    }
}

/// Desired configuration of a node group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeGroupSpec {
    /// Whether new services are scheduled on the group's nodes.
    pub allocation_policy: AllocationPolicy,
    /// Labels for the scheduler.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Free-form description, not interpreted.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub comment: String,
}

/// Whether new services are scheduled on the nodes of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum AllocationPolicy {
    /// New services are scheduled here.
    #[default]
    Preferred,
    /// New services are scheduled here only if no Preferred group has an eligible node.
    LastResort,
    /// No new services are scheduled here.
    Unallocable,
}

/// Observed state of a node group, written by the leader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeGroupStatus {
    /// Generation of the object from which this status was computed.
    pub observed_generation: i64,
    /// Nodes of the group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeName>,
    /// Condition Ready: whether the group is applied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
