//! Deliveries in progress: the core starts them, the shell carries them out, and failures are retried after a pause.

use crate::core::world::ClusterView;
use ha_api_types::cluster::Target;
use ha_api_types::id::OperationName;
use ha_api_types::notification::Notification;
use ha_api_types::record::NotificationRecord;
use ha_api_types::time::{Millis, MonotonicTime};
use std::collections::{BTreeMap, BTreeSet};

/// Identifies a delivery attempt; assigned by the core in ascending order.
///
/// A run of a fence device is not a delivery:
///
/// ```compile_fail,E0308
/// use ha_controller::core::{DeliveryOutcome, Input, RunId};
///
/// let input = Input::Delivered { id: RunId(1), outcome: DeliveryOutcome::Delivered(String::new()) };
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryId(pub u64);

/// Pause after the first failure, in milliseconds; each further failure doubles it.
const FIRST_PAUSE_MS: Millis = 5_000;
/// Maximum pause, in milliseconds.
const MAX_PAUSE_MS: Millis = 300_000;
/// Time without success after which a notification is discarded for a target, in milliseconds since this process's
/// first attempt.
const GIVE_UP_MS: Millis = 86_400_000;

/// One attempt to deliver a notification to a target; answered by `Input::Delivered`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Id that `Input::Delivered` repeats.
    pub id: DeliveryId,
    /// Target of the notification.
    pub target: Target,
    /// Notification to deliver.
    pub notification: Notification,
    /// Name of the operation that requested a test; `None` for other notifications.
    pub operation: Option<OperationName>,
}

/// Outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// The target accepted the notification; contains its answer.
    Delivered(String),
    /// The attempt failed and may succeed later; contains the error.
    Failed(String),
    /// The target permanently refuses the notification; contains the error.
    Refused(String),
}

/// Result of an ended attempt for the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::core) struct EndedAttempt {
    /// Kind of the target.
    pub(in crate::core) target: &'static str,
    /// Result to count.
    pub(in crate::core) result: NotificationResult,
    /// Message about a discarded notification; `None` if it was not discarded.
    pub(in crate::core) discard_message: Option<String>,
}

/// Result of a delivery, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotificationResult {
    /// The target accepted the notification.
    Sent,
    /// The delivery failed and is retried.
    Failed,
    /// The delivery failed and is not retried.
    GivenUp,
    /// The notification was dropped because too many were queued.
    Dropped,
}

impl NotificationResult {
    /// Every result.
    pub const ALL: [NotificationResult; 4] = [
        NotificationResult::Sent,
        NotificationResult::Failed,
        NotificationResult::GivenUp,
        NotificationResult::Dropped,
    ];
}

/// Consecutive failures of a target.
#[derive(Clone, Debug)]
struct Failures {
    /// Id of the notification.
    id: String,
    count: u32,
    since: MonotonicTime,
    retry_at: MonotonicTime,
}

/// Deliveries of this process in its current term. State that must outlive the process is in etcd.
#[derive(Clone, Debug, Default)]
pub struct Deliveries {
    last_id: DeliveryId,
    running: BTreeMap<DeliveryId, Delivery>,
    failures: BTreeMap<String, Failures>,
    /// Notification and target of deliveries that ended, until etcd shows them as ended.
    ended: BTreeSet<(String, String)>,
    /// Test outcomes: by operation, then by target; `None` while a delivery is in progress.
    tests: BTreeMap<OperationName, BTreeMap<String, Option<DeliveryOutcome>>>,
    unreported_since: Option<MonotonicTime>,
}

impl Deliveries {
    /// Returns the state for the next term. etcd shows the remaining work, and results of earlier attempts are
    /// ignored.
    pub(in crate::core) fn for_next_term(&self) -> Deliveries {
        Deliveries { last_id: self.last_id, ..Deliveries::default() }
    }

    /// Returns the time since which a change that must be reported has not been queued; `None` if there is no such
    /// change.
    pub(super) fn unreported_since(&self) -> Option<MonotonicTime> {
        self.unreported_since
    }

    /// Returns `true` if a delivery to this target is in progress.
    pub(super) fn is_busy(&self, target: &str) -> bool {
        self.running.values().any(|delivery| delivery.operation.is_none() && delivery.target.key() == target)
    }

    /// Returns `true` if the notification was delivered to this target, or discarded.
    pub(super) fn has_ended(&self, id: &str, target: &str) -> bool {
        self.ended.contains(&(id.to_owned(), target.to_owned()))
    }

    /// Returns the time of the next attempt.
    pub(super) fn retry_at(&self, target: &str, id: &str) -> Option<MonotonicTime> {
        self.failures.get(target).filter(|failure| failure.id == id).map(|failure| failure.retry_at)
    }

    /// Marks ended deliveries in the record.
    pub(super) fn mark_ended_in(&self, notified: &mut NotificationRecord) {
        for queued in &mut notified.queue {
            let ended = self.ended.iter().filter(|(id, _)| *id == queued.notification.id);
            queued.delivered_targets.extend(ended.map(|(_, target)| target.clone()));
        }
    }

    /// Returns the outcomes of a test so far; `None` before the test starts.
    pub(super) fn test_outcomes(
        &self,
        operation: &OperationName,
    ) -> Option<&BTreeMap<String, Option<DeliveryOutcome>>> {
        self.tests.get(operation)
    }

    /// Removes deliveries that etcd shows as ended or no longer contains, and tests whose operation has ended.
    pub(in crate::core) fn remove_recorded(&mut self, cluster_view: &ClusterView) {
        let notified = cluster_view.notified.as_ref().map(|stored| &stored.value);
        self.ended.retain(|(id, target)| {
            notified.is_some_and(|notified| {
                let mut queue = notified.queue.iter();
                queue
                    .any(|queued| queued.notification.id == *id && !queued.delivered_targets.contains(target))
            })
        });
        self.tests.retain(|operation, _| {
            cluster_view.operations.contains_key(operation) && !cluster_view.has_ended(operation)
        });
    }

    /// Records whether changes wait for notification, and starts the planned deliveries.
    pub(in crate::core) fn begin(
        &mut self,
        unreported: bool,
        deliveries: Vec<Delivery>,
        now: MonotonicTime,
    ) -> Vec<Delivery> {
        self.unreported_since = unreported.then(|| self.unreported_since.unwrap_or(now));
        let mut started = deliveries;
        for delivery in &mut started {
            self.last_id.0 += 1;
            delivery.id = self.last_id;
            self.running.insert(delivery.id, delivery.clone());
            if let Some(operation) = &delivery.operation {
                let test = self.tests.entry(operation.clone()).or_default();
                test.insert(delivery.target.name(), None);
            }
        }
        started
    }

    /// Records the end of an attempt. Returns `None` if the attempt began before this process became leader.
    pub(in crate::core) fn record_end(
        &mut self,
        id: DeliveryId,
        outcome: DeliveryOutcome,
        now: MonotonicTime,
    ) -> Option<EndedAttempt> {
        let Delivery { target, notification, operation, .. } = self.running.remove(&id)?;
        let key = target.key();
        if let Some(operation) = operation {
            if matches!(outcome, DeliveryOutcome::Delivered(_)) {
                // The target works again, so the queue need not wait for the pause.
                self.failures.remove(&key);
            }
            let result = match outcome {
                DeliveryOutcome::Delivered(_) => NotificationResult::Sent,
                DeliveryOutcome::Failed(_) | DeliveryOutcome::Refused(_) => NotificationResult::GivenUp,
            };
            if let Some(test) = self.tests.get_mut(&operation) {
                test.insert(target.name(), Some(outcome));
            }
            return Some(EndedAttempt { target: target.kind(), result, discard_message: None });
        }
        let (reason_text, refused) = match outcome {
            DeliveryOutcome::Delivered(_) => {
                self.failures.remove(&key);
                self.ended.insert((notification.id, key));
                let result = NotificationResult::Sent;
                return Some(EndedAttempt { target: target.kind(), result, discard_message: None });
            }
            DeliveryOutcome::Failed(reason_text) => (reason_text, false),
            DeliveryOutcome::Refused(reason_text) => (reason_text, true),
        };
        let previous_failure =
            self.failures.remove(&key).filter(|previous_failure| previous_failure.id == notification.id);
        let (count, since) = previous_failure.map_or((1, now), |previous_failure| {
            (previous_failure.count.saturating_add(1), previous_failure.since)
        });
        if refused || now.since(since) >= GIVE_UP_MS {
            let message = format!(
                "Notification {} ({}) not delivered to {}, discarded (attempts: {count}): {reason_text}",
                notification.id,
                notification.summary,
                target.name()
            );
            self.ended.insert((notification.id, key));
            let result = NotificationResult::GivenUp;
            return Some(EndedAttempt { target: target.kind(), result, discard_message: Some(message) });
        }
        let pause = (FIRST_PAUSE_MS << (count - 1).min(10)).min(MAX_PAUSE_MS);
        self.failures.insert(key, Failures { id: notification.id, count, since, retry_at: now + pause });
        Some(EndedAttempt {
            target: target.kind(),
            result: NotificationResult::Failed,
            discard_message: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::cluster::WebhookSpec;

    fn attempt(deliveries: &mut Deliveries, at: MonotonicTime) -> Delivery {
        let target =
            Target::Webhook(WebhookSpec { url: "https://a.example".to_owned(), ..WebhookSpec::default() });
        let notification = Notification { id: "n".to_owned(), ..Notification::default() };
        let delivery = Delivery { id: DeliveryId(0), target, notification, operation: None };
        deliveries.begin(false, vec![delivery], at).remove(0)
    }

    #[test]
    fn delivery_backoff_ends_after_a_day() {
        let mut deliveries = Deliveries::default();
        let mut at = MonotonicTime(7);
        let mut pauses = Vec::new();
        loop {
            let id = attempt(&mut deliveries, at).id;
            let failure = DeliveryOutcome::Failed("connection refused".to_owned());
            let ended = deliveries.record_end(id, failure, at).unwrap();
            if ended.result == NotificationResult::GivenUp {
                assert!(ended.discard_message.unwrap().contains("(attempts: "));
                break;
            }
            let next = deliveries.retry_at("https://a.example", "n").unwrap();
            pauses.push(next.since(at) / 1000);
            at = next;
        }
        assert_eq!(pauses[..8], [5, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(pauses.last(), Some(&300));
        assert!((86_400..87_000).contains(&(at.0 / 1000)), "{at:?}");
        assert!(deliveries.has_ended("n", "https://a.example"));
    }

    #[test]
    fn deliveries_of_an_earlier_term_are_ignored() {
        let mut deliveries = Deliveries::default();
        let id = attempt(&mut deliveries, MonotonicTime(0)).id;
        let mut next = deliveries.for_next_term();
        assert_eq!(next.record_end(id, DeliveryOutcome::Delivered("204".to_owned()), MonotonicTime(1)), None);
        assert!(attempt(&mut next, MonotonicTime(2)).id > id, "numbers are not used again");
    }
}
