//! The only place that reads the machine's clocks, whose values the cores receive as `Now`.

use ha_api_types::time::{Millis, MonotonicTime, Now};
use nix::time::{ClockId, clock_gettime};
use std::io;

/// A clock that can be read: the machine's, or one that a test sets.
pub trait Clock: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Now;
}

/// The machine's own clocks.
///
/// Guarantees: `raw` is `CLOCK_MONOTONIC_RAW` and `boot` is `CLOCK_BOOTTIME`. Both are rounded down to milliseconds,
/// so that a deadline counted from a reading is never too late (FENCING, section 3).
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock {
    /// Set only by [`SystemClock::new`], which verifies that the clocks can be read.
    verified: (),
}

impl SystemClock {
    /// Reads each clock once, so that later readings cannot fail.
    ///
    /// # Errors
    /// Fails if the kernel lacks one of the clocks.
    pub fn new() -> io::Result<SystemClock> {
        for clock in [ClockId::CLOCK_MONOTONIC_RAW, ClockId::CLOCK_BOOTTIME, ClockId::CLOCK_REALTIME] {
            clock_gettime(clock)?;
        }
        Ok(SystemClock { verified: () })
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let () = self.verified;
        Now {
            monotonic_raw: MonotonicTime(read_ms(ClockId::CLOCK_MONOTONIC_RAW)),
            boottime: MonotonicTime(read_ms(ClockId::CLOCK_BOOTTIME)),
            wall_unix_ms: wall_unix_ms(),
        }
    }
}

/// Returns the wall clock in milliseconds since 1970, for times that people read.
pub fn wall_unix_ms() -> i128 {
    i128::from(read_ms(ClockId::CLOCK_REALTIME))
}

/// Returns the time of a clock in milliseconds, rounded down.
///
/// A clock that was read once can always be read. A failure would read as zero, which is never later than the true
/// time. A wall-clock time before 1970 reads as 1970.
fn read_ms(clock: ClockId) -> Millis {
    clock_gettime(clock).map_or(0, |at| {
        let seconds = u64::try_from(at.tv_sec()).unwrap_or(0);
        let nanos = u64::try_from(at.tv_nsec()).unwrap_or(0);
        seconds.saturating_mul(1000).saturating_add(nanos / 1_000_000)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_agree_with_the_standard_library() {
        let clock = SystemClock::new().unwrap();
        let first = clock.now();
        let second = clock.now();
        assert!(second.monotonic_raw >= first.monotonic_raw && second.boottime >= first.boottime);
        assert!(first.boottime.0 > 0);
        let before = std::time::SystemTime::now();
        let wall = clock.now().wall_unix_ms;
        let after = std::time::SystemTime::now();
        let ms = |at: std::time::SystemTime| {
            i128::try_from(at.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis()).unwrap()
        };
        assert!(ms(before) <= wall && wall <= ms(after));
    }
}
