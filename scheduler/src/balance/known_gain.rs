//! Known gains of steps, which determine the order in which instances are tried.

use std::cmp::Ordering;

/// An instance and its gain. The largest gain comes first; of equal gains, that of the first instance.
#[derive(PartialEq)]
pub(super) struct KnownGain {
    pub(super) gain: f64,
    pub(super) service: usize,
}

impl KnownGain {
    /// Returns an instance without a known gain, which comes before all others.
    pub(super) fn unknown(service: usize) -> KnownGain {
        KnownGain { gain: f64::INFINITY, service }
    }
}

impl Eq for KnownGain {}

impl PartialOrd for KnownGain {
    fn partial_cmp(&self, other: &KnownGain) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for KnownGain {
    fn cmp(&self, other: &KnownGain) -> Ordering {
        self.gain.total_cmp(&other.gain).then(other.service.cmp(&self.service))
    }
}
