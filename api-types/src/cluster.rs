//! The settings of the whole cluster.

mod notifications;

pub use notifications::{NotificationsSpec, Recipients, SmtpSpec, SmtpTls, Target, Webhook, WebhookSpec};

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

/// The object of kind Cluster, of which there is one.
pub type Cluster = Object<ClusterSpec>;

/// Name of the Cluster object.
pub const CLUSTER_NAME: &str = "default";

impl Spec for ClusterSpec {
    type Status = ClusterStatus;
    const KIND: Kind = Kind::Cluster;
}

/// Settings that hold for all nodes and resources.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterSpec {
    /// Heartbeats, watchdog and leases.
    pub timing: TimingSpec,
    /// When nodes are declared dead.
    pub fencing: FencingSpec,
    /// What happens to services when their node shuts down.
    pub shutdown_policy: ShutdownPolicy,
    /// Placement and balancing.
    pub scheduler: SchedulerSpec,
    /// The check that services would find a place after a failure.
    pub reservation: ReservationSpec,
    /// Workers at once per node.
    #[schemars(range(min = 1, max = 64))]
    pub max_workers: u32,
    /// Live moves at once per node, in either role.
    #[schemars(range(min = 1, max = 64))]
    pub max_migrations: u32,
    /// Who is told about fences and errors, for sites without Prometheus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notifications: Option<NotificationsSpec>,
    /// Set by `hactl disarm`: nobody is declared dead on silence and no watchdog is armed.
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

/// A number of nodes, or a share of them as a percentage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum CountOrPercent {
    /// So many.
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

/// Limits on declaring nodes dead, and what counts as a watchdog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FencingSpec {
    /// At most so many nodes are declared dead by silence within the window (at least one).
    pub max_fencing: CountOrPercent,
    /// The window of `maxFencing`, in seconds.
    pub window_seconds: u32,
    /// A watchdog counts only after a passed `hactl node test-watchdog`.
    pub require_tested: bool,
    /// What agents do while the whole store is away; Hold unless it is said.
    pub on_store_loss: OnStoreLoss,
    /// Accept stand-in watchdogs: for the sandbox and tests, never for machines.
    pub allow_stand_in: bool,
}

impl Default for FencingSpec {
    fn default() -> FencingSpec {
        FencingSpec {
            max_fencing: CountOrPercent::Percent("50%".to_owned()),
            window_seconds: 300,
            require_tested: false,
            on_store_loss: OnStoreLoss::Hold,
            allow_stand_in: false,
        }
    }
}

/// What agents do while the whole store is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnStoreLoss {
    /// Stop services, and start them again in place when the store returns.
    #[default]
    Stop,
    /// Keep them while every controller agrees to declare nobody dead.
    Hold,
}

/// What happens to services when their node shuts down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ShutdownPolicy {
    /// Power-off: recovered elsewhere. Reboot: frozen.
    #[default]
    Conditional,
    /// Frozen until the node returns.
    Freeze,
    /// Recovered elsewhere unless the node is back soon.
    Failover,
    /// Moved away first, as in maintenance.
    Migrate,
}

/// How a disarmed cluster treats its services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Disarmed {
    /// They keep running and are frozen.
    Freeze,
    /// They may be moved by hand.
    Ignore,
}

/// How nodes are scored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SchedulerMode {
    /// By the number of services.
    #[default]
    Basic,
    /// By requests.
    Static,
    /// By measured usage.
    Dynamic,
}

/// Placement and balancing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulerSpec {
    /// How nodes are scored.
    pub mode: SchedulerMode,
    /// Let memory and disk requests exceed capacity by this factor (1 is not at all).
    pub overcommit: f64,
    /// Virtual to physical cpu, at most.
    pub max_cpu_ratio: f64,
    /// Choose the best node whenever a service starts.
    pub rebalance_on_start: bool,
    /// Move running services to even the load.
    pub auto_rebalance: AutoRebalanceSpec,
    /// Tag prefixes of which a node takes one service each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclusion_tags: Vec<String>,
    /// Services may leave their node group.
    pub inter_group_moves: bool,
    /// A service may displace others of lower priority.
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

/// Balancing by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AutoRebalanceSpec {
    /// On or off.
    pub enabled: bool,
    /// How the move is chosen.
    pub method: RebalanceMethod,
    /// Coefficient of variation of node load above which it acts.
    pub threshold: f64,
    /// Least relative gain of a move.
    pub margin: f64,
    /// How long the imbalance must last, in seconds.
    pub hold_seconds: u32,
    /// Moves at a time.
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

/// How auto-rebalance chooses a move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RebalanceMethod {
    /// The move with the best resulting score.
    #[default]
    BestScore,
    /// By TOPSIS over the candidates.
    Topsis,
}

/// What the reservation check counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReservationBasis {
    /// Requests.
    #[default]
    Requests,
    /// Measured usage.
    Measured,
    /// The larger of both.
    Max,
}

/// The check that every service would find a place after a node's failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReservationSpec {
    /// Weight, balancing and alert on.
    pub enabled: bool,
    /// Refuse an apply or a move that would newly break it, instead of warning.
    pub enforce: bool,
    /// Check at least so often, in seconds.
    #[schemars(range(min = 1, max = 86_400))]
    pub interval_seconds: u32,
    /// A node is overloaded above this percentage of the even share.
    #[schemars(range(min = 100, max = 399))]
    pub over_utilization: u32,
    /// Divides the weight of services already on a node.
    #[schemars(range(min = 1, max = 100))]
    pub scale_down: u32,
    /// What is counted.
    pub basis: ReservationBasis,
    /// Stopped services count as if they ran.
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

/// What the leader reports about the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterStatus {
    /// The generation this was computed from.
    pub observed_generation: i64,
    /// The leader's identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// The leader's term: the create revision of its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub term: Option<i64>,
    /// Lowest protocol version that every controller and every registered node reads. No process writes a newer word.
    pub protocol: Protocol,
    /// Active settings. They stay active while the spec cannot be read by the version that is leader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<ClusterSpec>,
    /// `Armed`, `Disarming`, `Disarmed` or `Arming`.
    pub arming: String,
    /// How agents may disarm now: nothing is being fenced, recovered or moved any more. They acknowledge only with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disarm: Option<Disarmed>,
    /// What the leader waits for, as sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<String>,
    /// Ready, Reservation and others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The last fences and their proofs, newest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recent_fences: Vec<RecentFence>,
    /// Capacity in use, by pool.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub allocated: BTreeMap<String, Quantity>,
}

impl ClusterStatus {
    /// Returns `true` if a word of this version may be written, because every controller and registered node can read it.
    pub fn allows(&self, version: Protocol) -> bool {
        version <= self.protocol.max(Protocol::FIRST)
    }
}

/// One fence that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecentFence {
    /// The node.
    pub node: String,
    /// Its epoch after it.
    pub epoch: u64,
    /// When.
    pub at: Timestamp,
    /// The proof, in a word.
    pub reason: Reason,
    /// The proof, in a sentence.
    pub message: String,
    /// The kind of the proof, as in FENCING, section 5; empty where an earlier version wrote it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub proof: String,
}
