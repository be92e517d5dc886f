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
use super::plan::{OnApplied, Plan, Subject, cluster_event, serialized};
use super::plan_input::PlanInput;
use super::world::guard_of;
use changes::changes;
use deliveries::{Delivery, DeliveryId};
use ha_api_types::cluster::{CLUSTER_NAME, NotificationsSpec, Target};
use ha_api_types::event::{Event, EventType};
use ha_api_types::kind::Kind;
use ha_api_types::reason::Reason;
use ha_api_types::record::{NotificationRecord, QueuedNotification, SentFacts};
use ha_api_types::time::Millis;
use ha_store::{Guard, Transaction};

/// Time in milliseconds in which changes are collected into one notification. A change that is undone within this time
/// is not reported.
const COLLECTION_MS: Millis = 5_000;
/// Maximum number of queued notifications; beyond it, the oldest is dropped.
const MAX_QUEUED: usize = 50;
/// Maximum size of the queue in etcd, in bytes; beyond it, the oldest notification is dropped. Together with the state
/// that was reported, the record stays below the 1.5 MiB that etcd accepts in one request.
const MAX_QUEUED_BYTES: usize = 768 << 10;

/// Plans new notifications and deliveries. This function runs last, because it reads the wait conditions in the plan.
pub(super) fn plan(input: &PlanInput<'_>, nodes: &NodeTable, plan: &mut Plan) {
    let cluster_view = input.cluster_view;
    let key = cluster_view.keys.notification_record();
    if let Some((key, error)) = cluster_view.first_unreadable(std::slice::from_ref(&key)) {
        let message = format!("Notifications are not sent: {key} cannot be read: {error}");
        plan.add_wait(Kind::Cluster, CLUSTER_NAME, Reason::Invalid, message);
        return;
    }
    let settings = cluster_view.settings();
    let spec = settings.notifications.as_ref();
    let targets = spec.map(NotificationsSpec::targets).unwrap_or_default();
    let stored_record = cluster_view.notified.as_ref();
    let (Some(spec), false) = (spec, targets.is_empty()) else {
        // A target that is configured later starts without history, and gets no notifications about the past.
        if let Some(stored_record) = stored_record {
            let transaction = Transaction::new().delete(key, Guard::Unchanged(stored_record.mod_revision));
            plan.add_action(Subject::Notified, transaction, Vec::new(), OnApplied::None);
        }
        return;
    };
    let mut next =
        stored_record.map_or_else(|| initial_record(input), |stored_record| stored_record.value.clone());
    input.deliveries.mark_ended_in(&mut next);
    remove_delivered(&mut next, &targets);
    let (dropped, events) = queue_notifications(input, nodes, spec, &targets, &mut next, plan);
    if stored_record.map(|stored_record| &stored_record.value) != Some(&next) {
        let transaction = Transaction::new().put(key, guard_of(stored_record), serialized(&next));
        let on_applied =
            if dropped.is_empty() { OnApplied::None } else { OnApplied::NotificationsDropped(dropped) };
        plan.add_action(Subject::Notified, transaction, events, on_applied);
    }
    send(input, targets, plan);
}

/// Returns the initial record: current problems will be reported, past problems will not.
fn initial_record(input: &PlanInput<'_>) -> NotificationRecord {
    let fences = input.cluster_view.cluster_status.iter().flat_map(|status| &status.value.recent_fences);
    let fences = fences.map(|fence| (fence.node.clone(), fence.epoch)).collect();
    NotificationRecord { sent: SentFacts { fences, ..SentFacts::default() }, queue: Vec::new() }
}

/// Removes notifications that every configured target has. A target whose URL was corrected receives the queued
/// notifications.
fn remove_delivered(next: &mut NotificationRecord, targets: &[Target]) {
    next.queue
        .retain(|queued| targets.iter().any(|target| !queued.delivered_targets.contains(&target.key())));
}

/// Adds new notifications to the queue once the collection time has passed. Returns the target kinds and the events of
/// dropped notifications.
fn queue_notifications(
    input: &PlanInput<'_>,
    nodes: &NodeTable,
    spec: &NotificationsSpec,
    targets: &[Target],
    next: &mut NotificationRecord,
    plan: &mut Plan,
) -> (Vec<&'static str>, Vec<Event>) {
    let (mut items, sent_facts) = changes(input, nodes, &next.sent, plan);
    items.retain(|kind, _| spec.sends(*kind));
    if items.is_empty() {
        next.sent = sent_facts;
        return (Vec::new(), Vec::new());
    }
    // Set until etcd shows that the changes were reported, regardless of the outcome of the write.
    plan.unreported = true;
    let due_at = input.deliveries.unreported_since().unwrap_or(input.now.monotonic_raw) + COLLECTION_MS;
    if input.now.monotonic_raw < due_at {
        plan.wake_at(input, due_at, "the collection time of a notification has passed");
        return (Vec::new(), Vec::new());
    }
    next.sent = sent_facts;
    for (kind, items) in items {
        let notification = compose::compose(input, plan, kind, items);
        next.queue.push(QueuedNotification { notification, ..QueuedNotification::default() });
    }
    let surplus = count_surplus(&next.queue);
    let kept_count = next.queue.len() - surplus;
    let mut dropped = Vec::new();
    let mut events = Vec::new();
    for queued in next.queue.drain(..surplus) {
        let undelivered: Vec<&Target> =
            targets.iter().filter(|target| !queued.delivered_targets.contains(&target.key())).collect();
        dropped.extend(undelivered.iter().map(|target| target.kind()));
        let names: Vec<String> = undelivered.iter().map(|target| target.name()).collect();
        let message = format!(
            "Notification {} ({}) dropped because {kept_count} newer notifications are pending; not delivered to {}",
            queued.notification.id,
            queued.notification.summary,
            names.join(", ")
        );
        events.push(cluster_event(input, EventType::Warning, Reason::NotificationFailed, message));
    }
    (dropped, events)
}

/// Returns the number of oldest notifications to drop, so that the others stay within the limits. The newest
/// notification always stays.
fn count_surplus(queue: &[QueuedNotification]) -> usize {
    let mut bytes = 0;
    let kept_count = queue.iter().rev().take(MAX_QUEUED).take_while(|queued| {
        let first = bytes == 0;
        bytes += serialized(queued).len();
        first || bytes <= MAX_QUEUED_BYTES
    });
    queue.len() - kept_count.count()
}

/// Sends each target its oldest pending notification, one at a time, from the stored queue.
fn send(input: &PlanInput<'_>, targets: Vec<Target>, plan: &mut Plan) {
    let Some(stored_record) = &input.cluster_view.notified else { return };
    for target in targets {
        let key = target.key();
        let queued = stored_record.value.queue.iter().find(|queued| {
            !queued.delivered_targets.contains(&key)
                && !input.deliveries.has_ended(&queued.notification.id, &key)
        });
        let Some(queued) = queued.filter(|_| !input.deliveries.is_busy(&key)) else { continue };
        let begins_at = input.deliveries.retry_at(&key, &queued.notification.id);
        if begins_at.is_some_and(|at| input.now.monotonic_raw < at) {
            plan.wake_at(input, begins_at.unwrap_or_default(), "a notification is retried");
            continue;
        }
        let notification = queued.notification.clone();
        plan.deliveries.push(Delivery { id: DeliveryId::default(), target, notification, operation: None });
    }
}
