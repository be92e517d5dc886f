//! The settings of the whole cluster.

mod notifications;

pub use notifications::{NotificationsSpec, Recipients, SmtpSpec, SmtpTls, Target, Webhook, WebhookSpec};

use crate::id::{ControllerId, Epoch, NodeName, Term};
use crate::kind::Kind;
use crate::meta::Condition;
use crate::object::{Object, Spec};
use crate::protocol::Protocol;
use crate::quantity::Quantity;
use crate::reason::Reason;
use crate::time::Timestamp;
use crate::timing::TimingSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The only object of kind Cluster.
pub type Cluster = Object<ClusterSpec>;

/// Name of the Cluster object.
pub const CLUSTER_NAME: &str = "default";

impl Spec for ClusterSpec {
    type Status = ClusterStatus;
    const KIND: Kind = Kind::Cluster;
}

/// Settings that apply to all nodes and resources.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterSpec {
    /// Timing of heartbeats, watchdogs and leases.
    pub timing: TimingSpec,
    /// Limits of fencing, and requirements for watchdogs.
    pub fencing: FencingSpec,
    /// Treatment of services when their node shuts down.
    pub shutdown_policy: ShutdownPolicy,
    /// Scheduling and rebalancing.
    pub scheduler: SchedulerSpec,
    /// Failover capacity (N+1) check, and balancing of the number of services per node.
    pub reservation: ReservationSpec,
    /// Maximum number of driver commands that run at the same time on a node.
    #[schemars(range(min = 1, max = 64))]
    pub max_workers: u32,
    /// Maximum number of live migrations at the same time per node, as source or target.
    #[schemars(range(min = 1, max = 64))]
    pub max_migrations: u32,
    /// Targets of notifications about fencing and errors, for sites without Prometheus. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notifications: Option<NotificationsSpec>,
    /// Set by `hactl disarm`: no node is fenced for missed heartbeats, and no watchdog is armed. Absent: the
    /// cluster is armed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disarmed: Option<Disarmed>,
}

impl Default for ClusterSpec {
    fn default() -> ClusterSpec {
        ClusterSpec {
            timing: TimingSpec::default(),
            fencing: FencingSpec::default(),
            shutdown_policy: ShutdownPolicy::default(),
            scheduler: SchedulerSpec::default(),
            reservation: ReservationSpec::default(),
            max_workers: 4,
            max_migrations: 2,
            notifications: None,
            disarmed: None,
        }
    }
}

/// Number of nodes, or a percentage of all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum CountOrPercent {
    /// A number of nodes.
    Count(u32),
    /// A percentage such as `50%`.
    Percent(String),
}

impl CountOrPercent {
    /// Returns this count, or this percentage of `total` rounded up. `None` if the text is not a percentage from 0 to 100.
    pub fn of(&self, total: usize) -> Option<usize> {
        match self {
            CountOrPercent::Count(count) => usize::try_from(*count).ok(),
            CountOrPercent::Percent(text) => {
                let percent: usize = text.strip_suffix('%')?.trim().parse().ok()?;
                (percent <= 100).then(|| (total * percent).div_ceil(100))
            }
        }
    }
}

/// Limits of fencing, and requirements for watchdogs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FencingSpec {
    /// Maximum number or percentage of nodes that are fenced for missed heartbeats within `windowSeconds`; at least
    /// one node.
    pub max_fencing: CountOrPercent,
    /// Window of `maxFencing`, in seconds.
    pub window_seconds: u32,
    /// Whether a watchdog is accepted only after it has passed `hactl node test-watchdog`.
    pub require_tested: bool,
    /// Behavior of agents while etcd is unreachable.
    #[serde(rename = "onStoreLoss", alias = "onEtcdLoss")]
    #[schemars(rename = "onEtcdLoss")]
    pub on_etcd_loss: OnEtcdLoss,
    /// Whether simulated watchdogs are accepted, for the sandbox and tests only. A simulated watchdog does not protect
    /// a real machine.
    #[serde(rename = "allowStandIn", alias = "allowSimulatedWatchdog")]
    #[schemars(rename = "allowSimulatedWatchdog")]
    pub allow_simulated_watchdog: bool,
}

impl Default for FencingSpec {
    fn default() -> FencingSpec {
        FencingSpec {
            max_fencing: CountOrPercent::Percent("50%".to_owned()),
            window_seconds: 300,
            require_tested: false,
            on_etcd_loss: OnEtcdLoss::Hold,
            allow_simulated_watchdog: false,
        }
    }
}

/// Behavior of agents while etcd is unreachable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnEtcdLoss {
    /// Stop services, and start them again on the same node when etcd returns.
    #[default]
    Stop,
    /// Keep services running while every controller agrees not to fence the node (etcd-outage hold).
    Hold,
}

/// Treatment of services when their node shuts down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ShutdownPolicy {
    /// On power-off, services are recovered elsewhere. On reboot, they wait for the node for at most `timing.freezeTimeoutSeconds`.
    #[default]
    Conditional,
    /// Services wait for the node to return.
    Freeze,
    /// Services are recovered elsewhere unless the node returns within `timing.nodeReturnGracePeriodSeconds`.
    Failover,
    /// Services move away first, as in maintenance.
    Migrate,
}

/// Treatment of services while the cluster is disarmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Disarmed {
    /// Services keep running and are not managed.
    Freeze,
    /// Services may be moved by hand.
    Ignore,
}

/// Score by which nodes are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SchedulerMode {
    /// Number of services.
    #[default]
    Basic,
    /// Resource requests.
    Static,
    /// Measured usage.
    Dynamic,
}

/// Scheduling and rebalancing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulerSpec {
    /// Score by which nodes are chosen.
    pub mode: SchedulerMode,
    /// Factor by which memory and disk requests may exceed capacity. 1: no overcommit.
    pub overcommit: f64,
    /// Maximum ratio of requested to physical CPUs.
    pub max_cpu_ratio: f64,
    /// Whether the best node is chosen whenever a service starts.
    pub rebalance_on_start: bool,
    /// Automatic rebalancing of running services.
    pub auto_rebalance: AutoRebalanceSpec,
    /// Tag prefixes for exclusion: each node runs at most one service per tag with such a prefix.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclusion_tags: Vec<String>,
    /// Whether services may leave their node group.
    pub inter_group_moves: bool,
    /// Whether a service may preempt services of lower priority.
    pub preemption: bool,
}

impl Default for SchedulerSpec {
    fn default() -> SchedulerSpec {
        SchedulerSpec {
            mode: SchedulerMode::default(),
            overcommit: 1.0,
            max_cpu_ratio: 4.0,
            rebalance_on_start: false,
            auto_rebalance: AutoRebalanceSpec::default(),
            exclusion_tags: Vec::new(),
            inter_group_moves: true,
            preemption: false,
        }
    }
}

/// Automatic rebalancing of running services.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AutoRebalanceSpec {
    /// Whether running services are moved automatically to rebalance the load.
    pub enabled: bool,
    /// Method by which a move is chosen.
    pub method: RebalanceMethod,
    /// Load imbalance (coefficient of variation of node load) above which services are moved.
    pub threshold: f64,
    /// Minimum relative gain of a move.
    pub margin: f64,
    /// Seconds for which the imbalance must last before a service is moved.
    pub hold_seconds: u32,
    /// Maximum number of moves at the same time.
    pub max_moves: u32,
}

impl Default for AutoRebalanceSpec {
    fn default() -> AutoRebalanceSpec {
        AutoRebalanceSpec {
            enabled: false,
            method: RebalanceMethod::BestScore,
            threshold: 0.3,
            margin: 0.1,
            hold_seconds: 30,
            max_moves: 1,
        }
    }
}

/// Method by which automatic rebalancing chooses a move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RebalanceMethod {
    /// The move with the best resulting score.
    #[default]
    BestScore,
    /// The best candidate by TOPSIS.
    Topsis,
}

/// Amounts that the failover capacity check counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReservationBasis {
    /// Resource requests.
    #[default]
    Requests,
    /// Measured usage.
    Measured,
    /// The larger of requests and measured usage.
    Max,
}

/// Check that every service could be scheduled after the failure of any node (N+1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReservationSpec {
    /// Whether the number of services on a node counts in scheduling, and services move away from overloaded nodes.
    pub enabled: bool,
    /// Whether the API rejects an apply or a move that would newly violate failover capacity, instead of
    /// warning.
    pub enforce: bool,
    /// Maximum time between two checks, in seconds.
    #[schemars(range(min = 1, max = 86_400))]
    pub interval_seconds: u32,
    /// Percentage of the even share (services divided by nodes) above which a node is overloaded.
    #[schemars(range(min = 100, max = 399))]
    pub over_utilization: u32,
    /// Divisor applied to the number of services on a node before that number is added to the node's load.
    #[schemars(range(min = 1, max = 100))]
    pub scale_down: u32,
    /// Amounts that the check uses for each service.
    pub basis: ReservationBasis,
    /// Whether stopped services count as if they ran.
    pub count_stopped: bool,
}

impl Default for ReservationSpec {
    fn default() -> ReservationSpec {
        ReservationSpec {
            enabled: false,
            enforce: false,
            interval_seconds: 300,
            over_utilization: 200,
            scale_down: 1,
            basis: ReservationBasis::default(),
            count_stopped: true,
        }
    }
}

/// Observed state of the cluster, written by the leader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterStatus {
    /// Generation of the object from which this status was computed.
    pub observed_generation: i64,
    /// Id of the leader. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<ControllerId>,
    /// Term of the leader: the create revision of its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub term: Option<Term>,
    /// Highest protocol version that every controller and every registered node can read. No process writes values of a
    /// newer version.
    pub protocol: Protocol,
    /// Active settings: those of the last spec that the version of the leader could read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<ClusterSpec>,
    /// Whether the cluster is armed. One of `Armed`, `Disarming`, `Disarmed`, `Arming`.
    pub arming: String,
    /// Mode in which agents may disarm now, because nothing is being fenced, recovered or moved.
    /// Absent: agents must not disarm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disarm: Option<Disarmed>,
    /// Events that the leader waits for, as sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<String>,
    /// Conditions: Ready and FailoverCapacityAvailable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Recent fencing operations and their confirmations, newest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recent_fences: Vec<RecentFence>,
    /// Allocated capacity, by pool.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub allocated: BTreeMap<String, Quantity>,
}

impl ClusterStatus {
    /// Returns `true` if a word of this version may be written, because every controller and registered node can read it.
    pub fn allows(&self, version: Protocol) -> bool {
        version <= self.protocol.max(Protocol::FIRST)
    }
}

/// A fencing operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecentFence {
    /// Node that was fenced.
    pub node: NodeName,
    /// Registration number of the node after the fencing.
    pub epoch: Epoch,
    /// Time of the confirmation.
    pub at: Timestamp,
    /// CamelCase reason for which the fencing was confirmed.
    pub reason: Reason,
    /// Confirmation, as a sentence.
    pub message: String,
    /// Kind of the confirmation. One of `Silence`, `Device`, `NewBoot`, `Operator`, `Reregistered`. Empty if written by an
    /// earlier version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub proof: String,
}
