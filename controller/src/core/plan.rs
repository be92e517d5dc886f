//! What the leader would write now, and what it waits for.

use super::interface::FencerRun;
use super::notifications::deliveries::Delivery;
use super::situation::{Measure, Situation};
use ha_api_types::cluster::CLUSTER_NAME;
use ha_api_types::event::{Event, EventType};
use ha_api_types::kind::Kind;
use ha_api_types::reason::Reason;
use ha_api_types::time::Mono;
use ha_scheduler::View;
use ha_store::Transaction;
use std::collections::{BTreeMap, BTreeSet};

/// A plan: made from one situation, carried out by guarded transactions that say for themselves whether they still fit.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// What to write, most urgent first.
    pub actions: Vec<Action>,
    /// Fence devices to start now.
    pub runs: Vec<FencerRun>,
    /// Notifications to send now.
    pub deliveries: Vec<Delivery>,
    /// There is something to notify of that is still being gathered.
    pub unsaid: bool,
    /// What is waited for.
    pub waiting: Vec<Waiting>,
    /// When the same world would be judged anew, and why then.
    pub wake: Option<(Mono, &'static str)>,
    /// Nodes that are in time: the same world would also be judged anew once one of them is not heard any more.
    pub heard: Vec<String>,
    /// Nothing else goes on, and the load of nodes is too uneven: which of them carry more than the mean; or some have too many
    /// services: these. Empty: neither is so.
    pub uneven: BTreeMap<(Measure, String), bool>,
    /// A node is silent, and only controllers that joined before this one may conclude anything from that (R9.26).
    pub is_held_by_others: bool,
    /// Action uids that were used.
    pub uids: u64,
    /// The cluster as it is with this plan carried out, for the reservation check; `None` while its nodes are still coming.
    pub view: Option<View>,
}

/// One thing to write.
#[derive(Clone, Debug)]
pub struct Action {
    /// What it is about; a plan has at most one action per subject.
    pub subject: Subject,
    /// The transaction, not yet signed by the leader.
    pub transaction: Transaction,
    /// What to tell once it is applied.
    pub events: Vec<Event>,
    /// What this process must remember of it.
    pub note: Note,
}

/// What this process must remember of an action while its outcome is open, or once it is applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Note {
    /// Nothing.
    #[default]
    None,
    /// It closes a node's epoch on silence: an unknown outcome counts against `maxFencing`.
    ClosesOnSilence(String),
    /// It records that a fence device is about to work on this node.
    DeviceIntent(String),
    /// It rewrites the fence of a node while the fence device that this process started goes on.
    DeviceCarried(String),
    /// It says that the device's work on this node is done with.
    DeviceSettled(String),
    /// It drops notifications that targets of these kinds did not get.
    NotificationsDropped(Vec<&'static str>),
    /// The nodes that a service uses from then on.
    Uses(BTreeSet<String>),
}

/// What an action is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A node's epoch and fencing.
    Fence(String),
    /// A service: its status, its assignment and the operation on it.
    Service(String),
    /// An operation that is about no service.
    Operation(String),
    /// The keys of another controller.
    Candidate(String),
    /// The status of an object.
    Status(Kind, String),
    /// What was told to the targets of notifications.
    Notified,
    /// The marker of a restored store.
    Restored,
    /// Which data this is.
    Incarnation,
}

/// Something that is waited for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiting {
    /// What waits: `node node1`, `resource web`.
    pub who: String,
    /// Why, in a word.
    pub reason: Reason,
    /// For what, in a sentence.
    pub message: String,
}

impl Plan {
    /// Adds something that is waited for.
    pub fn wait(&mut self, kind: Kind, name: &str, reason: Reason, message: impl Into<String>) {
        let who = format!("{} {name}", kind.singular());
        self.waiting.push(Waiting { who, reason, message: message.into() });
    }

    /// Asks to be called again at a moment, if that is still to come.
    pub fn wake(&mut self, situation: &Situation<'_>, at: Mono, why: &'static str) {
        if at > situation.now.raw && self.wake.is_none_or(|(known, _)| at < known) {
            self.wake = Some((at, why));
        }
    }

    /// Whether it says that nothing is to be done and nothing waited for: time alone changes that at `wake`, or when a
    /// node falls silent.
    pub fn rests(&self) -> bool {
        self.actions.is_empty() && self.runs.is_empty() && self.waiting.is_empty()
    }

    /// Adds an action.
    pub fn act(&mut self, subject: Subject, transaction: Transaction, events: Vec<Event>, note: Note) {
        self.actions.push(Action { subject, transaction, events, note });
    }
}

/// An event of the leader's.
pub fn event(
    situation: &Situation<'_>,
    kind: Kind,
    name: &str,
    uid: &str,
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
        source: format!("controller/{}", situation.config.id),
        node: (kind == Kind::Node).then(|| name.to_owned()),
        action_uid: None,
        operation: None,
        epoch: None,
        at: situation.now.moment(),
    }
}

/// An event about a node.
pub fn node_event(
    situation: &Situation<'_>,
    node: &str,
    event_type: EventType,
    reason: Reason,
    message: impl Into<String>,
) -> Event {
    let uid =
        situation.world.nodes.get(node).map(|known| known.value.metadata.uid.clone()).unwrap_or_default();
    event(situation, Kind::Node, node, &uid, event_type, reason, message)
}

/// An event about the cluster.
pub fn cluster_event(
    situation: &Situation<'_>,
    event_type: EventType,
    reason: Reason,
    message: impl Into<String>,
) -> Event {
    let uid = situation.world.cluster.as_ref().map_or("", |known| known.value.metadata.uid.as_str());
    event(situation, Kind::Cluster, CLUSTER_NAME, uid, event_type, reason, message)
}

/// The stored form of a record or object.
///
/// Serialization of our own types cannot fail: they hold no maps with keys other than strings. Should it ever, the empty
/// value is unreadable and shows itself as such.
pub fn stored<T: serde::Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}
