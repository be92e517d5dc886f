//! The clocks of a simulated machine. Each machine's clocks have a separate rate. The raw clock stops while the machine
//! is suspended.

use ha_api_types::time::{Millis, MonotonicTime, Now};

/// The clocks of one machine, which advance with virtual time.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Local nanoseconds per virtual millisecond; 1,000,000 is a clock without rate error.
    rate_ppm: u64,
    /// Virtual time up to which `raw_ns` and `boot_ns` have been advanced.
    counted_until: Millis,
    raw_ns: u128,
    boot_ns: u128,
    is_suspended: bool,
    /// Wall-clock time of virtual time 0, in milliseconds since 1970.
    wall_ms: i128,
}

/// Wall-clock time of virtual time 0 for runs that do not set it: all these runs begin at the same time.
pub(crate) const DEFAULT_WALL_MS: i128 = 1_767_225_600_000;

impl Clock {
    /// Creates clocks that show `start_ms`. Each machine has a different start, so code that compares the clocks of two
    /// machines fails.
    pub fn new(now: Millis, start_ms: Millis) -> Clock {
        Clock {
            rate_ppm: 1_000_000,
            counted_until: now,
            raw_ns: u128::from(start_ms) * 1_000_000,
            boot_ns: u128::from(start_ms) * 1_000_000,
            is_suspended: false,
            wall_ms: DEFAULT_WALL_MS,
        }
    }

    /// Sets the wall-clock time of virtual time 0, in milliseconds since 1970.
    pub fn set_wall(&mut self, wall_ms: i128) {
        self.wall_ms = wall_ms;
    }

    fn advance_to(&mut self, now: Millis) {
        let passed_ns = u128::from(now.saturating_sub(self.counted_until)) * u128::from(self.rate_ppm);
        self.boot_ns += passed_ns;
        if !self.is_suspended {
            self.raw_ns += passed_ns;
        }
        self.counted_until = now;
    }

    /// Sets the rate of the clocks from now on; 1.0 means no rate error.
    pub fn set_rate(&mut self, now: Millis, rate: f64) {
        self.advance_to(now);
        self.rate_ppm = to_ppm(rate);
    }

    /// Stops the raw clock for a suspend, or restarts it.
    pub fn set_suspended(&mut self, now: Millis, is_suspended: bool) {
        self.advance_to(now);
        self.is_suspended = is_suspended;
    }

    /// Returns the readings of a process on the machine at a virtual time, which must not be before the last change.
    pub fn read(&self, now: Millis) -> Now {
        let mut advanced = self.clone();
        advanced.advance_to(now);
        Now {
            monotonic_raw: MonotonicTime(to_ms(advanced.raw_ns)),
            boottime: MonotonicTime(to_ms(advanced.boot_ns)),
            wall_unix_ms: self.wall_ms + i128::from(now),
        }
    }

    /// Returns the virtual time at which the raw clock will show `raw` if its rate does not change; at least `now`.
    pub fn time_of_raw(&self, now: Millis, raw: MonotonicTime) -> Millis {
        let mut advanced = self.clone();
        advanced.advance_to(now);
        let target_ns = u128::from(raw.0) * 1_000_000;
        let remaining_ns = target_ns.saturating_sub(advanced.raw_ns);
        now + u64::try_from(remaining_ns.div_ceil(u128::from(advanced.rate_ppm.max(1))))
            .unwrap_or(Millis::MAX - now)
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates are limited to 0.5 … 2")]
fn to_ppm(rate: f64) -> u64 {
    (rate.clamp(0.5, 2.0) * 1e6).round() as u64
}

fn to_ms(ns: u128) -> Millis {
    u64::try_from(ns / 1_000_000).unwrap_or(Millis::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspend_advances_only_one_clock() {
        let mut clock = Clock::new(0, 1_000);
        clock.set_suspended(5_000, true);
        clock.set_suspended(15_000, false);
        let now = clock.read(20_000);
        assert_eq!((now.monotonic_raw, now.boottime), (MonotonicTime(11_000), MonotonicTime(21_000)));
    }

    #[test]
    fn fast_clock_fires_timers_early() {
        let mut clock = Clock::new(0, 0);
        clock.set_rate(0, 1.01);
        assert_eq!(clock.time_of_raw(0, MonotonicTime(10_100)), 10_000);
        assert_eq!(clock.read(10_000).monotonic_raw, MonotonicTime(10_100));
    }
}
