//! The event queue of the simulation, ordered by virtual time and then by the order of scheduling.

use ha_api_types::time::Millis;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A queue of timed events.
#[derive(Clone, Debug)]
pub struct Queue<T> {
    /// Time, sequence number, and index in `kept` of each event. Events are stored apart because a heap moves its items.
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
    /// Schedules an event at a virtual time.
    pub fn push(&mut self, at: Millis, event: T) {
        let place = self.free.pop().unwrap_or(self.kept.len());
        match self.kept.get_mut(place) {
            Some(slot) => *slot = Some(event),
            None => self.kept.push(Some(event)),
        }
        self.order.push(Reverse((at, self.scheduled, place)));
        self.scheduled += 1;
    }

    /// Removes the earliest event and returns it with its time; `None` if the queue is empty.
    pub fn pop(&mut self) -> Option<(Millis, T)> {
        let Reverse((at, _, place)) = self.order.pop()?;
        let event = self.kept.get_mut(place)?.take()?;
        self.free.push(place);
        Some((at, event))
    }

    /// Returns the time of the earliest event; `None` if the queue is empty.
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
