//! What is being delivered: begun here, ended by the shell, tried again after a pause.

use crate::core::world::World;
use ha_api_types::cluster::Target;
use ha_api_types::notification::Notification;
use ha_api_types::record::Notified;
use ha_api_types::time::{Millis, Mono};
use std::collections::{BTreeMap, BTreeSet};

/// Tells one attempt from another; given by the core, in rising order.
pub type DeliveryId = u64;

/// The pause after the first failure, milliseconds; each further one doubles it.
const FIRST_PAUSE_MS: Millis = 5_000;
/// The longest pause.
const LONGEST_PAUSE_MS: Millis = 300_000;
/// After so long without success a notification is given up for a target, counted from this process's first attempt.
const GIVE_UP_MS: Millis = 86_400_000;

/// One attempt to deliver a notification to a target; answered by `Input::Delivered`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The attempt.
    pub id: DeliveryId,
    /// Where to.
    pub target: Target,
    /// What.
    pub notification: Notification,
    /// The operation that it is a test for, by name.
    pub operation: Option<String>,
}

/// What became of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// The target has taken it; with its answer.
    Delivered(String),
    /// It did not go through, and may the next time.
    Failed(String),
    /// The target has said that it will never take it.
    Refused(String),
}

/// What an outcome means to the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::core) struct Ended {
    /// The target's kind.
    pub(in crate::core) target: &'static str,
    /// What to count.
    pub(in crate::core) result: NotificationResult,
    /// What to tell when it was given up.
    pub(in crate::core) given_up: Option<String>,
}

/// How a delivery went, for those who count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotificationResult {
    /// The target has it.
    Sent,
    /// It is tried again.
    Failed,
    /// It is not tried again.
    GivenUp,
    /// Too many waited.
    Dropped,
}

impl NotificationResult {
    /// Every one.
    pub const ALL: [NotificationResult; 4] = [
        NotificationResult::Sent,
        NotificationResult::Failed,
        NotificationResult::GivenUp,
        NotificationResult::Dropped,
    ];
}

/// The failures of a target in a row.
#[derive(Clone, Debug)]
struct Failures {
    /// The notification.
    id: String,
    count: u32,
    since: Mono,
    retry_at: Mono,
}

/// What this process has begun to deliver since it leads. The store has what must outlive it.
#[derive(Clone, Debug, Default)]
pub struct Deliveries {
    next: DeliveryId,
    running: BTreeMap<DeliveryId, Delivery>,
    failures: BTreeMap<String, Failures>,
    /// Delivered or given up, and not yet seen as that in the store: notification and target.
    ended: BTreeSet<(String, String)>,
    /// Tests: by operation, what became of each target.
    tests: BTreeMap<String, BTreeMap<String, Option<DeliveryOutcome>>>,
    unsaid_since: Option<Mono>,
}

impl Deliveries {
    /// Those of the next term: the store says what is still to be done, and attempts under way end unheard.
    pub(in crate::core) fn of_next_term(&self) -> Deliveries {
        Deliveries { next: self.next, ..Deliveries::default() }
    }

    /// Since when there is something to tell that is not in the queue.
    pub(super) fn unsaid_since(&self) -> Option<Mono> {
        self.unsaid_since
    }

    /// Whether a notification is under way to this target.
    pub(super) fn is_busy(&self, target: &str) -> bool {
        self.running.values().any(|delivery| delivery.operation.is_none() && delivery.target.key() == target)
    }

    /// Whether it was delivered to this target, or given up.
    pub(super) fn has_ended(&self, id: &str, target: &str) -> bool {
        self.ended.contains(&(id.to_owned(), target.to_owned()))
    }

    /// When to try again.
    pub(super) fn retry_at(&self, target: &str, id: &str) -> Option<Mono> {
        self.failures.get(target).filter(|known| known.id == id).map(|known| known.retry_at)
    }

    /// Marks in the record what has ended.
    pub(super) fn enter(&self, notified: &mut Notified) {
        for queued in &mut notified.queue {
            let ended = self.ended.iter().filter(|(id, _)| *id == queued.notification.id);
            queued.done.extend(ended.map(|(_, target)| target.clone()));
        }
    }

    /// What a test has come to: nothing before it was begun.
    pub(super) fn test(&self, operation: &str) -> Option<&BTreeMap<String, Option<DeliveryOutcome>>> {
        self.tests.get(operation)
    }

    /// Forgets what the store shows, or shows no more, and tests whose operation has ended.
    pub(in crate::core) fn settle(&mut self, world: &World) {
        let notified = world.notified.as_ref().map(|known| &known.value);
        self.ended.retain(|(id, target)| {
            notified.is_some_and(|notified| {
                let mut queue = notified.queue.iter();
                queue.any(|queued| queued.notification.id == *id && !queued.done.contains(target))
            })
        });
        self.tests
            .retain(|operation, _| world.operations.contains_key(operation) && !world.has_ended(operation));
    }

    /// Takes in what a plan says of what is to be told, and begins what it wants delivered.
    pub(in crate::core) fn begin(
        &mut self,
        unsaid: bool,
        deliveries: Vec<Delivery>,
        now: Mono,
    ) -> Vec<Delivery> {
        self.unsaid_since = unsaid.then(|| self.unsaid_since.unwrap_or(now));
        let mut begun = deliveries;
        for delivery in &mut begun {
            self.next += 1;
            delivery.id = self.next;
            self.running.insert(delivery.id, delivery.clone());
            if let Some(operation) = &delivery.operation {
                let test = self.tests.entry(operation.clone()).or_default();
                test.insert(delivery.target.name(), None);
            }
        }
        begun
    }

    /// An attempt has ended; `None`: it was begun before this process led.
    pub(in crate::core) fn end(
        &mut self,
        id: DeliveryId,
        outcome: DeliveryOutcome,
        now: Mono,
    ) -> Option<Ended> {
        let Delivery { target, notification, operation, .. } = self.running.remove(&id)?;
        let key = target.key();
        if let Some(operation) = operation {
            if matches!(outcome, DeliveryOutcome::Delivered(_)) {
                // It works again: what waits is not kept waiting.
                self.failures.remove(&key);
            }
            let result = match outcome {
                DeliveryOutcome::Delivered(_) => NotificationResult::Sent,
                DeliveryOutcome::Failed(_) | DeliveryOutcome::Refused(_) => NotificationResult::GivenUp,
            };
            if let Some(test) = self.tests.get_mut(&operation) {
                test.insert(target.name(), Some(outcome));
            }
            return Some(Ended { target: target.kind(), result, given_up: None });
        }
        let (why, refused) = match outcome {
            DeliveryOutcome::Delivered(_) => {
                self.failures.remove(&key);
                self.ended.insert((notification.id, key));
                let result = NotificationResult::Sent;
                return Some(Ended { target: target.kind(), result, given_up: None });
            }
            DeliveryOutcome::Failed(why) => (why, false),
            DeliveryOutcome::Refused(why) => (why, true),
        };
        let known = self.failures.remove(&key).filter(|known| known.id == notification.id);
        let (count, since) = known.map_or((1, now), |known| (known.count.saturating_add(1), known.since));
        if refused || now.since(since) >= GIVE_UP_MS {
            let message = format!(
                "notification {} ({}) could not be delivered to {}, and is given up after {count} attempts: {why}",
                notification.id,
                notification.summary,
                target.name()
            );
            self.ended.insert((notification.id, key));
            let result = NotificationResult::GivenUp;
            return Some(Ended { target: target.kind(), result, given_up: Some(message) });
        }
        let pause = (FIRST_PAUSE_MS << (count - 1).min(10)).min(LONGEST_PAUSE_MS);
        self.failures.insert(key, Failures { id: notification.id, count, since, retry_at: now + pause });
        Some(Ended { target: target.kind(), result: NotificationResult::Failed, given_up: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::cluster::WebhookSpec;

    fn attempt(deliveries: &mut Deliveries, at: Mono) -> Delivery {
        let target =
            Target::Webhook(WebhookSpec { url: "https://a.example".to_owned(), ..WebhookSpec::default() });
        let notification = Notification { id: "n".to_owned(), ..Notification::default() };
        let delivery = Delivery { id: 0, target, notification, operation: None };
        deliveries.begin(false, vec![delivery], at).remove(0)
    }

    #[test]
    fn pauses_grow_to_five_minutes_and_after_a_day_it_is_given_up() {
        let mut deliveries = Deliveries::default();
        let mut at = Mono(7);
        let mut pauses = Vec::new();
        loop {
            let id = attempt(&mut deliveries, at).id;
            let failed = DeliveryOutcome::Failed("connection refused".to_owned());
            let ended = deliveries.end(id, failed, at).unwrap();
            if ended.result == NotificationResult::GivenUp {
                assert!(ended.given_up.unwrap().ends_with("attempts: connection refused"));
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
    fn what_an_earlier_term_began_says_nothing_to_this_one() {
        let mut deliveries = Deliveries::default();
        let id = attempt(&mut deliveries, Mono(0)).id;
        let mut next = deliveries.of_next_term();
        assert_eq!(next.end(id, DeliveryOutcome::Delivered("204".to_owned()), Mono(1)), None);
        assert!(attempt(&mut next, Mono(2)).id > id, "numbers are not used again");
    }
}
