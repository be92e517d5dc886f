//! Notifications: what the leader tells the targets of `Cluster.spec.notifications`, and in which order it gets there.
//!
//! What stands in the store (a resource in Error, a fence, the reservation's condition) is compared with what was told. A
//! difference that lasts becomes a notification, which is stored before it is sent: the leader after this one sends what is
//! still in the queue, under the same id. So each is delivered at least once, and who gets it twice can tell by its id.

pub mod deliveries;

mod actions;
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

/// What happens within this time goes into one notification, milliseconds; what is over before is not told at all.
const GATHER_MS: Millis = 5_000;
/// Notifications that wait for a target; beyond it the oldest is dropped.
const MOST_QUEUED: usize = 50;
/// What those that wait take in the store, bytes; beyond it the oldest is dropped, too. With what is remembered as told the
/// record stays below the 1.5 MiB that etcd takes in one request.
const MOST_QUEUED_BYTES: usize = 768 << 10;

/// Plans what is told and what is sent now. It comes last: it looks at what the plan before it waits for.
pub(super) fn plan(situation: &Situation<'_>, nodes: &NodeTable, plan: &mut Plan) {
    let world = situation.world;
    let key = world.keys.notified();
    if let Some((key, error)) = world.is_unreadable(std::slice::from_ref(&key)) {
        let message = format!("nobody is notified: {key} cannot be read: {error}");
        plan.wait(Kind::Cluster, CLUSTER_NAME, Reason::Invalid, message);
        return;
    }
    let settings = world.settings();
    let spec = settings.notifications.as_ref();
    let targets = spec.map(NotificationsSpec::targets).unwrap_or_default();
    let known = world.notified.as_ref();
    let (Some(spec), false) = (spec, targets.is_empty()) else {
        // Whoever is named next begins anew, and is not told what is long over.
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

/// Nothing was told yet: what stands is, what is over is not.
fn begun(situation: &Situation<'_>) -> Notified {
    let fences = situation.world.cluster_status.iter().flat_map(|status| &status.value.recent_fences);
    let fences = fences.map(|fence| (fence.node.clone(), fence.epoch)).collect();
    Notified { told: Told { fences, ..Told::default() }, queue: Vec::new() }
}

/// A notification stays until every target that there is has it: a target whose URL was mended gets what waited for it.
fn forget_delivered(next: &mut Notified, targets: &[Target]) {
    next.queue.retain(|queued| targets.iter().any(|target| !queued.done.contains(&target.key())));
}

/// Puts what is to be told into the queue, once it has been gathered. Returns what was dropped for it.
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
    // Until the store shows that it is told, whatever becomes of the write.
    plan.unsaid = true;
    let gathered_at = situation.deliveries.unsaid_since().unwrap_or(situation.now.raw) + GATHER_MS;
    if situation.now.raw < gathered_at {
        plan.wake(situation, gathered_at, "what is to be told has been gathered");
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
            "notification {} ({}) was dropped, since {kept} newer ones wait already; {} did not get it",
            queued.notification.id,
            queued.notification.summary,
            names.join(", ")
        );
        events.push(cluster_event(situation, EventType::Warning, Reason::NotificationFailed, message));
    }
    (dropped, events)
}

/// How many of the oldest have to go so that the others are few and small enough; the newest one always stays.
fn surplus(queue: &[QueuedNotification]) -> usize {
    let mut bytes = 0;
    let kept = queue.iter().rev().take(MOST_QUEUED).take_while(|queued| {
        let first = bytes == 0;
        bytes += stored(queued).len();
        first || bytes <= MOST_QUEUED_BYTES
    });
    queue.len() - kept.count()
}

/// Sends each target the oldest that it does not have, one at a time, from what is stored.
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
            plan.wake(situation, begins_at.unwrap_or_default(), "a notification is tried again");
            continue;
        }
        let notification = queued.notification.clone();
        plan.deliveries.push(Delivery { id: 0, target, notification, operation: None });
    }
}
