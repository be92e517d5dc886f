//! The plan: writes that the leader makes now, and the conditions that it waits for.

use super::interface::FencerRun;
use super::notifications::deliveries::Delivery;
use super::plan_input::{ImbalanceKind, PlanInput};
use ha_api_types::cluster::CLUSTER_NAME;
use ha_api_types::event::{Event, EventType};
use ha_api_types::id::{NodeName, ObjectUid, OperationName, ResourceName};
use ha_api_types::kind::Kind;
use ha_api_types::reason::Reason;
use ha_api_types::time::MonotonicTime;
use ha_scheduler::View;
use ha_store::Transaction;
use std::collections::{BTreeMap, BTreeSet};

/// The actions that the leader takes now. Their guarded transactions fail if the state on which they depend has
/// changed.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Writes, most urgent first.
    pub actions: Vec<Action>,
    /// Fence devices to start now.
    pub runs: Vec<FencerRun>,
    /// Notifications to send now.
    pub deliveries: Vec<Delivery>,
    /// `true` if changes are still being collected for a notification.
    pub unreported: bool,
    /// Conditions that the leader waits for.
    pub waiting: Vec<Waiting>,
    /// Time at which a new plan from the same view would differ, and the reason; `None` if time alone does not change
    /// the plan.
    pub wake: Option<(MonotonicTime, &'static str)>,
    /// Nodes whose heartbeats are in time. A new plan would also differ once one of them becomes late.
    pub timely_nodes: Vec<NodeName>,
    /// Imbalance by node: `true` if its load is above the mean, or if it has too many services. Set only if no other
    /// action is in progress. Empty if the load is balanced and no node has too many services.
    pub imbalances: BTreeMap<(ImbalanceKind, NodeName), bool>,
    /// State of automatic rebalancing, by the property that it balances. Contains only enabled properties.
    pub rebalance: BTreeMap<ImbalanceKind, RebalanceState>,
    /// `true` if a node is unreachable, and only controllers that joined before this one may act on that (R9.26).
    pub is_held_by_others: bool,
    /// Number of action uids that the plan used.
    pub uids: u64,
    /// The cluster after this plan, for the reservation check; `None` while its nodes are still registering.
    pub view: Option<View>,
}

/// State of automatic rebalancing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebalanceState {
    /// The imbalance is within its limit.
    Balanced,
    /// Another action is in progress.
    Waiting,
    /// The imbalance has not lasted for `holdSeconds`.
    Holding,
    /// Services move.
    Moving,
    /// No eligible move reduces the imbalance enough.
    NoMove,
}

impl RebalanceState {
    /// Every state.
    pub const ALL: [RebalanceState; 5] = [
        RebalanceState::Balanced,
        RebalanceState::Waiting,
        RebalanceState::Holding,
        RebalanceState::Moving,
        RebalanceState::NoMove,
    ];
}

/// One write of a plan.
#[derive(Clone, Debug)]
pub struct Action {
    /// Subject of the write; a plan has at most one action per subject.
    pub subject: Subject,
    /// The transaction, without the leader's guard.
    pub transaction: Transaction,
    /// Events to emit once the write is applied.
    pub events: Vec<Event>,
    /// Fact that this process must keep about the write.
    pub on_applied: OnApplied,
}

/// Fact that this process must keep about a write while the outcome is unknown, or once the write is applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OnApplied {
    /// No fact to keep.
    #[default]
    None,
    /// The write closes a node's epoch on silence: an unknown outcome counts against `maxFencing`.
    ClosesOnSilence(NodeName),
    /// The write records that a fence device is about to work on this node.
    DeviceIntent(NodeName),
    /// The write changes the fence of a node while the fence device that this process started keeps working.
    DeviceIntentKept(NodeName),
    /// The write ends the record of the device's work on this node.
    DeviceIntentCleared(NodeName),
    /// The write drops notifications that targets of these kinds did not receive.
    NotificationsDropped(Vec<&'static str>),
    /// The nodes that a service uses after the write.
    Uses(BTreeSet<NodeName>),
}

/// The object or record that an action changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The epoch and fencing of a node.
    Fence(NodeName),
    /// A service: its status, its assignment and the operation on it.
    Service(ResourceName),
    /// An operation without a service.
    Operation(OperationName),
    /// The keys of another controller.
    Candidate(String),
    /// The status of an object.
    Status(Kind, String),
    /// The record of notifications.
    Notified,
    /// The marker of a restore.
    Restored,
    /// The incarnation of etcd's data.
    Incarnation,
}

/// A condition that the leader waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiting {
    /// Kind of the waiting object.
    pub kind: Kind,
    /// Name of the waiting object.
    pub name: String,
    /// Reason of the wait.
    pub reason: Reason,
    /// Description of the wait, as a sentence.
    pub message: String,
}

impl Waiting {
    /// Returns the wait as one sentence, after kind and name of the object: `node node1: …`.
    pub fn sentence(&self) -> String {
        format!("{} {}: {}", self.kind.singular(), self.name, self.message)
    }
}

impl Plan {
    /// Adds a condition that the leader waits for.
    pub fn add_wait(&mut self, kind: Kind, name: &str, reason: Reason, message: impl Into<String>) {
        self.waiting.push(Waiting { kind, name: name.to_owned(), reason, message: message.into() });
    }

    /// Returns the waits of an object, in the order in which they were added.
    pub fn waits_of(&self, kind: Kind, name: &str) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter().filter(move |waiting| waiting.kind == kind && waiting.name == name)
    }

    /// Sets a wake-up at a time, unless that time has passed.
    pub fn wake_at(&mut self, input: &PlanInput<'_>, at: MonotonicTime, wake_reason: &'static str) {
        if at > input.now.monotonic_raw && self.wake.is_none_or(|(wake_time, _)| at < wake_time) {
            self.wake = Some((at, wake_reason));
        }
    }

    /// Returns `true` if the plan contains no action and no wait. Without other input, this changes only at `wake`, or
    /// when a node becomes late.
    pub fn is_idle(&self) -> bool {
        self.actions.is_empty() && self.runs.is_empty() && self.waiting.is_empty()
    }

    /// Adds a write with its events. Each subject has at most one action in a plan.
    pub fn add_action(
        &mut self,
        subject: Subject,
        transaction: Transaction,
        events: Vec<Event>,
        on_applied: OnApplied,
    ) {
        self.actions.push(Action { subject, transaction, events, on_applied });
    }
}

/// Returns an event of the leader.
pub fn event(
    input: &PlanInput<'_>,
    kind: Kind,
    name: &str,
    uid: &ObjectUid,
    event_type: EventType,
    reason: Reason,
    message: impl Into<String>,
) -> Event {
    Event {
        kind,
        name: name.to_owned(),
        uid: uid.to_owned(),
        event_type,
        reason,
        message: message.into(),
        source: format!("controller/{}", input.config.id),
        node: (kind == Kind::Node).then(|| name.into()),
        action_uid: None,
        operation: None,
        epoch: None,
        at: input.now.precise_timestamp(),
    }
}

/// Returns an event about a node.
pub fn node_event(
    input: &PlanInput<'_>,
    node: &NodeName,
    event_type: EventType,
    reason: Reason,
    message: impl Into<String>,
) -> Event {
    let uid = input
        .cluster_view
        .nodes
        .get(node)
        .map(|stored| stored.value.metadata.uid.clone())
        .unwrap_or_default();
    event(input, Kind::Node, node, &uid, event_type, reason, message)
}

/// Returns an event about the cluster.
pub fn cluster_event(
    input: &PlanInput<'_>,
    event_type: EventType,
    reason: Reason,
    message: impl Into<String>,
) -> Event {
    let uid = input.cluster_view.cluster.as_ref().map(|stored| stored.value.metadata.uid.clone());
    event(input, Kind::Cluster, CLUSTER_NAME, &uid.unwrap_or_default(), event_type, reason, message)
}

/// Returns the stored form of a record or object.
///
/// Serialization of these types cannot fail, because they contain no maps with non-string keys. If it failed, the
/// empty value would be reported as unreadable.
pub fn serialized<T: serde::Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
