//! Reads the two clocks on which deadlines count.

use super::dual_clock_time::DualClockTime;
use nix::time::{ClockId, clock_gettime};

/// Returns the current time on both clocks. An unreadable clock counts as the latest possible time: no pet and no
/// deadline is then valid.
pub fn now() -> DualClockTime {
    DualClockTime {
        monotonic_raw_ns: read(ClockId::CLOCK_MONOTONIC_RAW),
        boottime_ns: read(ClockId::CLOCK_BOOTTIME),
    }
}

fn read(clock: ClockId) -> u64 {
    let Ok(time) = clock_gettime(clock) else { return u64::MAX };
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(u64::MAX);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec()).unwrap_or(0))
}
