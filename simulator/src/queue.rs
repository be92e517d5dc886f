//! What happens next: events by virtual time, in the order in which they were scheduled.

use ha_api_types::time::Millis;
use std::collections::BTreeMap;

/// A queue of things to happen.
#[derive(Clone, Debug)]
pub struct Queue<T> {
    /// Boxed: a tree moves its items about, and events are large.
    events: BTreeMap<(Millis, u64), Box<T>>,
    scheduled: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { events: BTreeMap::new(), scheduled: 0 }
    }
}

impl<T> Queue<T> {
    /// Schedules something.
    pub fn push(&mut self, at: Millis, event: T) {
        self.events.insert((at, self.scheduled), Box::new(event));
        self.scheduled += 1;
    }

    /// The next thing and its time.
    pub fn pop(&mut self) -> Option<(Millis, T)> {
        self.events.pop_first().map(|((at, _), event)| (at, *event))
    }

    /// The time of the next thing.
    pub fn next_at(&self) -> Option<Millis> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }
}
