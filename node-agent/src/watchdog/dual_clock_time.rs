//! A moment on both clocks on which a deadline counts.

use ha_api_types::time::Now;
use std::fmt;

const NANOSECONDS_PER_MILLISECOND: u64 = 1_000_000;

/// A moment of this boot, read on two clocks together.
///
/// `CLOCK_MONOTONIC_RAW` keeps the rate of the hardware (no time daemon slews it) but stops while the machine is
/// suspended; `CLOCK_BOOTTIME` includes the suspend. A deadline counts on both, and the earlier one applies (FENCING
/// 3). Neither a slewed clock nor a suspend can therefore extend a deadline.
///
/// Agent and daemon must share the time namespace; a deadline from another time namespace is refused as too far away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DualClockTime {
    /// `CLOCK_MONOTONIC_RAW`, nanoseconds.
    pub monotonic_raw_ns: u64,
    /// `CLOCK_BOOTTIME`, nanoseconds.
    pub boottime_ns: u64,
}

impl DualClockTime {
    /// Creates a moment with the same value on both clocks, for tests and simulations without suspend.
    pub const fn on_both_clocks(ns: u64) -> Self {
        Self { monotonic_raw_ns: ns, boottime_ns: ns }
    }

    /// Returns the moment `ms` milliseconds later on both clocks, saturating at the largest value.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        let ns = ms.saturating_mul(NANOSECONDS_PER_MILLISECOND);
        Self {
            monotonic_raw_ns: self.monotonic_raw_ns.saturating_add(ns),
            boottime_ns: self.boottime_ns.saturating_add(ns),
        }
    }

    /// Returns the nanoseconds from this moment to `deadline` on the clock that reaches it first; `None` once either
    /// clock is past the deadline. Exactly at the deadline, the result is `Some(0)`.
    pub const fn remaining_ns(self, deadline: Self) -> Option<u64> {
        match (
            deadline.monotonic_raw_ns.checked_sub(self.monotonic_raw_ns),
            deadline.boottime_ns.checked_sub(self.boottime_ns),
        ) {
            (Some(raw), Some(boot)) => Some(if raw < boot { raw } else { boot }),
            (None, _) | (_, None) => None,
        }
    }

    /// Returns the nanoseconds from this moment to `later` on the clock with the larger difference; 0 if `later` is not
    /// later. Use this bound if an underestimated time would be dangerous.
    pub const fn longest_ns(self, later: Self) -> u64 {
        let raw = later.monotonic_raw_ns.saturating_sub(self.monotonic_raw_ns);
        let boot = later.boottime_ns.saturating_sub(self.boottime_ns);
        if raw > boot { raw } else { boot }
    }

    /// Returns `true` if this moment is before `other` on at least one clock.
    pub const fn is_earlier_on_a_clock(self, other: Self) -> bool {
        self.monotonic_raw_ns < other.monotonic_raw_ns || self.boottime_ns < other.boottime_ns
    }
}

/// Rounds down to milliseconds, as the core's clock readings do, so a deadline that counts from the moment is never too
/// late.
impl From<&Now> for DualClockTime {
    fn from(now: &Now) -> Self {
        Self {
            monotonic_raw_ns: now.monotonic_raw.0.saturating_mul(NANOSECONDS_PER_MILLISECOND),
            boottime_ns: now.boottime.0.saturating_mul(NANOSECONDS_PER_MILLISECOND),
        }
    }
}

impl fmt::Display for DualClockTime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.monotonic_raw_ns / NANOSECONDS_PER_MILLISECOND;
        write!(formatter, "{}.{:03} s after boot", ms / 1000, ms % 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::time::MonotonicTime;

    #[test]
    fn deadline_passes_on_the_earlier_clock() {
        let deadline = DualClockTime { monotonic_raw_ns: 100, boottime_ns: 150 };
        let check = |raw, boot, remaining_ms| {
            let now = DualClockTime { monotonic_raw_ns: raw, boottime_ns: boot };
            assert_eq!(now.remaining_ns(deadline), remaining_ms, "at {raw}/{boot}");
        };
        check(90, 90, Some(10));
        check(50, 149, Some(1));
        check(100, 150, Some(0));
        check(101, 10, None);
        check(10, 151, None);
    }

    #[test]
    fn longest_remaining_time_covers_both_clocks() {
        let now = DualClockTime::on_both_clocks(100);
        assert_eq!(now.longest_ns(DualClockTime { monotonic_raw_ns: 110, boottime_ns: 190 }), 90);
        assert_eq!(now.longest_ns(DualClockTime { monotonic_raw_ns: 190, boottime_ns: 110 }), 90);
        assert_eq!(now.longest_ns(DualClockTime::on_both_clocks(5)), 0);
        assert_eq!(
            DualClockTime::on_both_clocks(u64::MAX).plus_ms(1),
            DualClockTime::on_both_clocks(u64::MAX)
        );
        assert!(DualClockTime { monotonic_raw_ns: 99, boottime_ns: 500 }.is_earlier_on_a_clock(now));
        assert!(!now.is_earlier_on_a_clock(now));
    }

    #[test]
    fn moment_keeps_both_clocks_of_a_reading() {
        let now = Now { monotonic_raw: MonotonicTime(2), boottime: MonotonicTime(3), ..Now::default() };
        assert_eq!(
            DualClockTime::from(&now),
            DualClockTime { monotonic_raw_ns: 2_000_000, boottime_ns: 3_000_000 }
        );
    }
}
