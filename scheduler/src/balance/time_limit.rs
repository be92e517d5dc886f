//! The time limit of a search. Within the limit, the number of evaluations alone determines the result.

use std::sync::atomic::{AtomicBool, Ordering};

/// The maximum duration of a search, and whether the search has reached it.
pub struct TimeLimit<'a> {
    used_share: Box<dyn Fn() -> f64 + Send + Sync + 'a>,
    has_reached_limit: AtomicBool,
}

impl<'a> TimeLimit<'a> {
    /// Returns a limit with a clock that returns the used share of the time; at 1 the search ends.
    pub fn new(used_share: impl Fn() -> f64 + Send + Sync + 'a) -> TimeLimit<'a> {
        TimeLimit { used_share: Box::new(used_share), has_reached_limit: AtomicBool::new(false) }
    }

    /// Returns a limit that never ends a search early.
    pub fn unlimited() -> TimeLimit<'static> {
        TimeLimit::new(|| 0.0)
    }

    /// Returns `true` if a search ended before all its evaluations, so that the result depends on the clock.
    pub fn has_reached_limit(&self) -> bool {
        self.has_reached_limit.load(Ordering::Relaxed)
    }

    pub(super) fn used_share(&self) -> f64 {
        (self.used_share)()
    }

    /// Records that the clock determines the result.
    pub(super) fn record_limit_reached(&self) {
        self.has_reached_limit.store(true, Ordering::Relaxed);
    }

    /// Ends the search early, and returns `true`, if this share of the time is used.
    pub(super) fn stop_after(&self, share: f64) -> bool {
        let is_over = self.used_share() >= share;
        if is_over {
            self.record_limit_reached();
        }
        is_over
    }
}
