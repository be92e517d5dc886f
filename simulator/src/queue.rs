//! What happens next: events by virtual time, in the order in which they were scheduled.

use ha_api_types::time::Millis;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A queue of things to happen.
#[derive(Clone, Debug)]
pub struct Queue<T> {
    /// When, the how-manieth, and where the event is kept: events are large, and a heap moves its items about.
    order: BinaryHeap<Reverse<(Millis, u64, usize)>>,
    kept: Vec<Option<T>>,
    free: Vec<usize>,
    scheduled: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { order: BinaryHeap::new(), kept: Vec::new(), free: Vec::new(), scheduled: 0 }
    }
}

impl<T> Queue<T> {
    /// Schedules something.
    pub fn push(&mut self, at: Millis, event: T) {
        let place = self.free.pop().unwrap_or(self.kept.len());
        match self.kept.get_mut(place) {
            Some(slot) => *slot = Some(event),
            None => self.kept.push(Some(event)),
        }
        self.order.push(Reverse((at, self.scheduled, place)));
        self.scheduled += 1;
    }

    /// The next thing and its time.
    pub fn pop(&mut self) -> Option<(Millis, T)> {
        let Reverse((at, _, place)) = self.order.pop()?;
        let event = self.kept.get_mut(place)?.take()?;
        self.free.push(place);
        Some((at, event))
    }

    /// The time of the next thing.
    pub fn next_at(&self) -> Option<Millis> {
        self.order.peek().map(|Reverse((at, ..))| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_in_which_they_were_scheduled() {
        let mut queue = Queue::default();
        for (at, what) in [(5, "c"), (1, "a"), (5, "d"), (1, "b")] {
            queue.push(at, what);
        }
        assert_eq!(queue.pop(), Some((1, "a")));
        queue.push(1, "e");
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(rest, [(1, "b"), (1, "e"), (5, "c"), (5, "d")]);
    }
}
