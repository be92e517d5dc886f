//! Nodes and node groups.

use crate::check::Check;
use crate::kind::Kind;
use crate::meta::Condition;
use crate::object::{Object, Spec};
use crate::quantity::Amounts;
use crate::reason::Reason;
use crate::record::{LastEnd, WatchdogSeen, WatchdogTest};
use crate::time::{Millis, Timestamp};
use crate::timing::Timings;
use crate::usage::Usage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A node.
pub type Node = Object<NodeSpec>;
/// A group of nodes that share storage and load.
pub type NodeGroup = Object<NodeGroupSpec>;

impl Spec for NodeSpec {
    type Status = NodeStatus;
    const KIND: Kind = Kind::Node;
}

impl Spec for NodeGroupSpec {
    type Status = NodeGroupStatus;
    const KIND: Kind = Kind::NodeGroup;
}

/// What the user wants of a node. The leader creates the object when the node's agent first registers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    /// Its services move away, and nothing new comes.
    pub maintenance: bool,
    /// False: nothing new comes.
    pub schedulable: bool,
    /// Overrides what the agent reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Amounts>,
    /// The node group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_group: Option<String>,
    /// Storage pools that it reaches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub storage_pools: Vec<String>,
    /// Use outside hactl.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Amounts>,
    /// Cpu capacity counts threads instead of cores.
    pub count_threads: bool,
    /// Workers at once; default the cluster's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 64))]
    pub max_workers: Option<u32>,
    /// Fence devices.
    pub fencing: NodeFencingSpec,
}

impl Default for NodeSpec {
    fn default() -> NodeSpec {
        NodeSpec {
            maintenance: false,
            schedulable: true,
            capacity: None,
            node_group: None,
            storage_pools: Vec::new(),
            reserved: None,
            count_threads: false,
            max_workers: None,
            fencing: NodeFencingSpec::default(),
        }
    }
}

/// How a node can be proven dead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeFencingSpec {
    /// Fence devices; a lower priority number is tried first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<FenceDevice>,
    /// W counts as proof although the machine is virtual and could be paused with its clock.
    pub allow_unfenced: bool,
}

/// A fence device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FenceDevice {
    /// Its name, for messages.
    pub name: String,
    /// Lower is tried first.
    pub priority: i32,
    /// Whether it cuts power or the fabric.
    pub kind: FenceKind,
    /// Whether power comes back after it is confirmed off.
    pub action: FenceAction,
    /// A fabric device also cuts the storage.
    pub covers_storage: bool,
    /// How long one attempt may take.
    pub timeout_seconds: u32,
    /// Further attempts.
    pub retries: u32,
    /// All parts must succeed (two power supplies).
    pub parts: Vec<FencePart>,
}

impl FenceDevice {
    /// Returns `true` if a confirmation by this device confirms the fencing: always for power, and for fabric only if it
    /// also disconnects the storage.
    pub fn proves(&self) -> bool {
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

/// What a fence device cuts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FenceKind {
    /// Power.
    #[default]
    Power,
    /// Network, and with `coversStorage` the storage.
    Fabric,
}

/// What happens to the power afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FenceAction {
    /// Off, confirmed off, release, on.
    #[default]
    Reboot,
    /// Off.
    Off,
}

/// One run of a fence agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FencePart {
    /// The agent, as `fence_ipmilan`.
    pub agent: String,
    /// Attributes, given on standard input.
    pub attributes: BTreeMap<String, String>,
    /// A file on the controllers with further attributes, for secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attributes_file: Option<String>,
}

/// The state of a node, as the leader sees it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum NodeState {
    /// Its heartbeat is seen under the open epoch.
    Online,
    /// It left cleanly.
    Offline,
    /// Its heartbeat is late, or it was never seen.
    #[default]
    Unknown,
    /// It is being fenced.
    Fence,
    /// Online and in maintenance.
    Maintenance,
    /// Its object is deleted.
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

/// What the leader reports about a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// The generation this was computed from.
    pub observed_generation: i64,
    /// Its state.
    pub state: NodeState,
    /// Its epoch.
    pub epoch: u64,
    /// `Open`, `Fencing`, `Fenced` or `Closed`.
    pub fence: String,
    /// The agent's mode.
    pub mode: String,
    /// The agent's state: `WaitForLock`, `Active` or `LostLock`.
    pub agent: String,
    /// `Armed`, `Disarming`, `Disarmed` or `Arming`: how far this node's agent is with that.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub arming: String,
    /// The agent's version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Its boot id.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
    /// The watchdog.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog: Option<WatchdogStatus>,
    /// What keeps the machine awake: `NotNeeded`, `Masked`, `Inhibitor` or `None`. Empty where the agent does not say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sleep_protection: String,
    /// W for this node: how long an observer waits after its last heartbeat, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<Millis>,
    /// The timings in force there, as its agent committed them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
    /// When a heartbeat was last seen, to a minute or so (it is not rewritten for each).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Timestamp>,
    /// Drivers that it can serve.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drivers: Vec<String>,
    /// What it has.
    pub capacity: Amounts,
    /// What its services ask for.
    pub allocated: Amounts,
    /// What was last measured on the whole machine, whatever used it; `None`: nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Services assigned to it.
    pub services: u32,
    /// What its agent found when it examined the machine: `hactl doctor NODE`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// How the boot before this one ended, if it did not end in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_end: Option<LastEnd>,
    /// Why it was last fenced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_proof: Option<Reason>,
    /// Ready and others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A node's watchdog, as shown.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each named")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WatchdogStatus {
    /// `Kernel`, `StandIn` or `None`.
    pub kind: String,
    /// The driver's identity.
    pub identity: String,
    /// The device or socket.
    pub device: String,
    /// Tw as read back, milliseconds.
    pub timeout_ms: Millis,
    /// Armed, as committed.
    pub armed: bool,
    /// Whether the device refuses pets, as committed: exclusive services move away from the node.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// A pet can set a shorter timeout.
    pub sliding: bool,
    /// The descriptor outlives its holder.
    pub descriptor_retained: bool,
    /// A test-watchdog was passed: on this machine, by this driver, with the timeout in force.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tested: bool,
    /// The latest test that was passed on this machine by this driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_test: Option<WatchdogTest>,
    /// What the daemon has seen of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen: Option<WatchdogSeen>,
}

/// What the user says about a node group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeGroupSpec {
    /// Whether new services come here.
    pub allocation_policy: AllocationPolicy,
    /// Labels for the scheduler.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub comment: String,
}

/// Whether new services come to a node group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum AllocationPolicy {
    /// Yes.
    #[default]
    Preferred,
    /// When no preferred group can take them.
    LastResort,
    /// No.
    Unallocable,
}

/// What the leader reports about a node group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeGroupStatus {
    /// The generation this was computed from.
    pub observed_generation: i64,
    /// Its nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
    /// Ready.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
