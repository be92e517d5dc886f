//! Known gains of steps, which determine the order in which instances are tried.

use std::cmp::Ordering;

/// An instance and its gain. The greatest gain comes first; of equal ones, the first instance.
#[derive(PartialEq)]
pub(super) struct Promise {
    pub(super) gain: f64,
    pub(super) guest: usize,
}

impl Promise {
    /// Returns an instance without a known gain, which comes before all others.
    pub(super) fn unseen(guest: usize) -> Promise {
        Promise { gain: f64::INFINITY, guest }
    }
}

impl Eq for Promise {}

impl PartialOrd for Promise {
    fn partial_cmp(&self, other: &Promise) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Promise {
    fn cmp(&self, other: &Promise) -> Ordering {
        self.gain.total_cmp(&other.gain).then(other.guest.cmp(&self.guest))
    }
}
