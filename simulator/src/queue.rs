//! The event queue of the simulation, ordered by virtual time and then by the order of scheduling.

use ha_api_types::time::Millis;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Position of an event among those of the same time: the number of events that were scheduled before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePosition(u64);

/// A queue of timed events.
#[derive(Clone, Debug)]
pub struct Queue<T> {
    /// Time, sequence number, and index in `events` of each event. Events are stored apart because a heap moves its
    /// items.
    schedule: BinaryHeap<Reverse<(Millis, u64, usize)>>,
    events: Vec<Option<T>>,
    free_slots: Vec<usize>,
    scheduled_count: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { schedule: BinaryHeap::new(), events: Vec::new(), free_slots: Vec::new(), scheduled_count: 0 }
    }
}

impl<T> Queue<T> {
    /// Schedules an event at a virtual time.
    pub fn push(&mut self, time_ms: Millis, event: T) {
        let position = self.reserve();
        self.push_at_position(time_ms, position, event);
    }

    /// Reserves a position for an event whose time is not yet known.
    pub fn reserve(&mut self) -> QueuePosition {
        self.scheduled_count += 1;
        QueuePosition(self.scheduled_count - 1)
    }

    /// Schedules an event at a virtual time, in a reserved position.
    pub fn push_at_position(&mut self, time_ms: Millis, QueuePosition(position): QueuePosition, event: T) {
        let slot_index = self.free_slots.pop().unwrap_or(self.events.len());
        match self.events.get_mut(slot_index) {
            Some(slot) => *slot = Some(event),
            None => self.events.push(Some(event)),
        }
        self.schedule.push(Reverse((time_ms, position, slot_index)));
    }

    /// Removes the earliest event and returns it with its time; `None` if the queue is empty.
    pub fn pop(&mut self) -> Option<(Millis, T)> {
        let Reverse((time_ms, _, slot_index)) = self.schedule.pop()?;
        let event = self.events.get_mut(slot_index)?.take()?;
        self.free_slots.push(slot_index);
        Some((time_ms, event))
    }

    /// Returns the time of the earliest event; `None` if the queue is empty.
    pub fn next_time(&self) -> Option<Millis> {
        self.schedule.peek().map(|Reverse((time_ms, ..))| *time_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_ordered_by_time_then_insertion() {
        let mut queue = Queue::default();
        for (time_ms, event) in [(5, "c"), (1, "a"), (5, "d"), (1, "b")] {
            queue.push(time_ms, event);
        }
        assert_eq!(queue.pop(), Some((1, "a")));
        queue.push(1, "e");
        let later_events: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(later_events, [(1, "b"), (1, "e"), (5, "c"), (5, "d")]);
    }

    #[test]
    fn an_event_in_a_reserved_place_precedes_later_events() {
        let mut queue = Queue::default();
        let position = queue.reserve();
        queue.push(5, "b");
        queue.push_at_position(5, position, "a");
        let events: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(events, [(5, "a"), (5, "b")]);
    }
}
