//! Notifications: messages from the leader to the targets of `Cluster.spec.notifications`, and their order.
//!
//! The leader compares the stored state (resources in Error, fencing, the reservation condition) with the state that
//! was notified. A difference that lasts becomes a notification, which is stored before it is sent. The next leader
//! sends the remaining queue under the same ids. So each notification is delivered at least once, and a target can
//! detect duplicates by the id.

pub mod deliveries;

mod changes;
mod compose;
pub(super) mod test_run;

use super::health::NodeTable;
use super::plan::{Note, Plan, Subject, cluster_event, stored};
use super::situation::Situation;
use super::world::guard_of;
use changes::changes;
use deliveries::Delivery;
use ha_api_types::cluster::{CLUSTER_NAME, NotificationsSpec, Target};
use ha_api_types::event::{Event, EventType};
use ha_api_types::kind::Kind;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Notified, QueuedNotification, Told};
use ha_api_types::time::Millis;
use ha_store::{Guard, Transaction};

/// Time in milliseconds in which changes are collected into one notification. A change that is undone within this time
/// is not reported.
const GATHER_MS: Millis = 5_000;
/// Maximum number of queued notifications; beyond it, the oldest is dropped.
const MOST_QUEUED: usize = 50;
/// Maximum size of the queue in etcd, in bytes; beyond it, the oldest notification is dropped. Together with the state
/// that was reported, the record stays below the 1.5 MiB that etcd accepts in one request.
const MOST_QUEUED_BYTES: usize = 768 << 10;

/// Plans new notifications and deliveries. This function runs last, because it reads the wait conditions in the plan.
pub(super) fn plan(situation: &Situation<'_>, nodes: &NodeTable, plan: &mut Plan) {
    let world = situation.world;
    let key = world.keys.notified();
    if let Some((key, error)) = world.is_unreadable(std::slice::from_ref(&key)) {
        let message = format!("Notifications are not sent: {key} cannot be read: {error}");
        plan.wait(Kind::Cluster, CLUSTER_NAME, Reason::Invalid, message);
        return;
    }
    let settings = world.settings();
    let spec = settings.notifications.as_ref();
    let targets = spec.map(NotificationsSpec::targets).unwrap_or_default();
    let known = world.notified.as_ref();
    let (Some(spec), false) = (spec, targets.is_empty()) else {
        // A target that is configured later starts without history, and gets no notifications about the past.
        if let Some(known) = known {
            let transaction = Transaction::new().delete(key, Guard::Unchanged(known.modified));
            plan.act(Subject::Notified, transaction, Vec::new(), Note::None);
        }
        return;
    };
    let mut next = known.map_or_else(|| begun(situation), |known| known.value.clone());
    situation.deliveries.enter(&mut next);
    forget_delivered(&mut next, &targets);
    let (dropped, events) = tell(situation, nodes, spec, &targets, &mut next, plan);
    if known.map(|known| &known.value) != Some(&next) {
        let transaction = Transaction::new().put(key, guard_of(known), stored(&next));
        let note = if dropped.is_empty() { Note::None } else { Note::NotificationsDropped(dropped) };
        plan.act(Subject::Notified, transaction, events, note);
    }
    send(situation, targets, plan);
}

/// Returns the initial record: current problems will be reported, past ones will not.
fn begun(situation: &Situation<'_>) -> Notified {
    let fences = situation.world.cluster_status.iter().flat_map(|status| &status.value.recent_fences);
    let fences = fences.map(|fence| (fence.node.clone(), fence.epoch)).collect();
    Notified { told: Told { fences, ..Told::default() }, queue: Vec::new() }
}

/// Removes notifications that every configured target has. A target whose URL was corrected gets the queued ones.
fn forget_delivered(next: &mut Notified, targets: &[Target]) {
    next.queue.retain(|queued| targets.iter().any(|target| !queued.done.contains(&target.key())));
}

/// Adds new notifications to the queue once the collection time is over. Returns the target kinds and the events of
/// dropped notifications.
fn tell(
    situation: &Situation<'_>,
    nodes: &NodeTable,
    spec: &NotificationsSpec,
    targets: &[Target],
    next: &mut Notified,
    plan: &mut Plan,
) -> (Vec<&'static str>, Vec<Event>) {
    let (mut items, told) = changes(situation, nodes, &next.told, plan);
    items.retain(|kind, _| spec.tells(*kind));
    if items.is_empty() {
        next.told = told;
        return (Vec::new(), Vec::new());
    }
    // Set until etcd shows that the changes were reported, regardless of the outcome of the write.
    plan.unreported = true;
    let gathered_at = situation.deliveries.unsaid_since().unwrap_or(situation.now.raw) + GATHER_MS;
    if situation.now.raw < gathered_at {
        plan.wake(situation, gathered_at, "the collection time of a notification is over");
        return (Vec::new(), Vec::new());
    }
    next.told = told;
    for (kind, items) in items {
        let notification = compose::compose(situation, plan, kind, items);
        next.queue.push(QueuedNotification { notification, ..QueuedNotification::default() });
    }
    let surplus = surplus(&next.queue);
    let kept = next.queue.len() - surplus;
    let mut dropped = Vec::new();
    let mut events = Vec::new();
    for queued in next.queue.drain(..surplus) {
        let missed: Vec<&Target> =
            targets.iter().filter(|target| !queued.done.contains(&target.key())).collect();
        dropped.extend(missed.iter().map(|target| target.kind()));
        let names: Vec<String> = missed.iter().map(|target| target.name()).collect();
        let message = format!(
            "Notification {} ({}) dropped because {kept} newer ones are pending; not delivered to {}",
            queued.notification.id,
            queued.notification.summary,
            names.join(", ")
        );
        events.push(cluster_event(situation, EventType::Warning, Reason::NotificationFailed, message));
    }
    (dropped, events)
}

/// Returns the number of oldest notifications to drop, so that the others stay within the limits. The newest one
/// always stays.
fn surplus(queue: &[QueuedNotification]) -> usize {
    let mut bytes = 0;
    let kept = queue.iter().rev().take(MOST_QUEUED).take_while(|queued| {
        let first = bytes == 0;
        bytes += stored(queued).len();
        first || bytes <= MOST_QUEUED_BYTES
    });
    queue.len() - kept.count()
}

/// Sends each target its oldest pending notification, one at a time, from the stored queue.
fn send(situation: &Situation<'_>, targets: Vec<Target>, plan: &mut Plan) {
    let Some(known) = &situation.world.notified else { return };
    for target in targets {
        let key = target.key();
        let queued = known.value.queue.iter().find(|queued| {
            !queued.done.contains(&key) && !situation.deliveries.has_ended(&queued.notification.id, &key)
        });
        let Some(queued) = queued.filter(|_| !situation.deliveries.is_busy(&key)) else { continue };
        let begins_at = situation.deliveries.retry_at(&key, &queued.notification.id);
        if begins_at.is_some_and(|at| situation.now.raw < at) {
            plan.wake(situation, begins_at.unwrap_or_default(), "retry of a notification");
            continue;
        }
        let notification = queued.notification.clone();
        plan.deliveries.push(Delivery { id: 0, target, notification, operation: None });
    }
}
