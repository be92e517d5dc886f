//! W, the wait that proves an unreachable node dead, and its parts.

use super::{Timings, WatchdogBounds, scale_up};
use crate::time::Millis;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parts of W, in milliseconds, which add up to W. The parts show which settings shorten W.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FencingDelayParts {
    /// Th: heartbeat lifetime.
    pub heartbeat_valid_ms: Millis,
    /// `Th ρ`: the node's clock may be slower than the observer's.
    pub heartbeat_rate_ms: Millis,
    /// Tw: watchdog timeout reported by the driver.
    pub watchdog_timeout_ms: Millis,
    /// `Tw ρw`: rate error of the watchdog.
    pub watchdog_rate_ms: Millis,
    /// δw: delay of the watchdog. Tw' is the sum of this part and the two parts above.
    pub watchdog_lateness_ms: Millis,
    /// Delay by a renewal whose check was before D and whose execution was after D. The delay is δw with a sliding
    /// timeout, Tw' with a fixed timeout, and 2 Tw' if the descriptor is not retained.
    pub late_pet_ms: Millis,
    /// δio: writes of the failed machine that are still in transit.
    pub io_drain_ms: Millis,
    /// Rate error of the observer's clock (`1 − ρ`), and the rounding of W up to a tenth of a second.
    pub observer_ms: Millis,
}

impl FencingDelayParts {
    /// Returns W in milliseconds.
    pub fn total_ms(&self) -> Millis {
        self.needed_ms() + self.observer_ms
    }

    /// Returns the right-hand side of the inequality, in milliseconds.
    fn needed_ms(&self) -> Millis {
        self.heartbeat_valid_ms
            + self.heartbeat_rate_ms
            + self.watchdog_worst_ms()
            + self.late_pet_ms
            + self.io_drain_ms
    }

    /// Returns `Tw' = Tw (1 + ρw) + δw` in milliseconds.
    pub fn watchdog_worst_ms(&self) -> Millis {
        self.watchdog_timeout_ms + self.watchdog_rate_ms + self.watchdog_lateness_ms
    }
}

/// Computes W, part by part.
///
/// The inequalities (FENCING, section 4):
///
/// | device | `W (1 − ρ) ≥` |
/// |---|---|
/// | sliding, descriptor retained | `Th (1 + ρ) + Tw' + δw + δio` |
/// | fixed, retained | `Th (1 + ρ) + 2 Tw' + δio` |
/// | not retained | `Th (1 + ρ) + 3 Tw' + δio` |
///
/// The last renewal is checked before D, and D is at most `Th (1 + ρ)` after the observation on the observer's clock.
/// Check and renewal are two steps, so the renewal may come later. A sliding renewal sets the device to the time left
/// before D, and is late by δw. A fixed renewal adds another full period. If the death of the holder closes the device,
/// the kernel renews the device once more.
///
/// Guarantees: after W on any clock within ρ, a machine that was armed under these bounds has reset and its writes have
/// drained. Assumptions: the agent committed these bounds with the heartbeat; its clock rate is within ρ.
pub fn fencing_delay_parts(timings: &Timings, watchdog: &WatchdogBounds) -> FencingDelayParts {
    let mut parts = FencingDelayParts {
        heartbeat_valid_ms: timings.heartbeat_valid_ms,
        heartbeat_rate_ms: scale_up(timings.heartbeat_valid_ms, timings.clock_rate_error_ppm),
        watchdog_timeout_ms: watchdog.timeout_ms,
        watchdog_rate_ms: scale_up(watchdog.timeout_ms, timings.watchdog_rate_error_ppm),
        watchdog_lateness_ms: timings.watchdog_lateness_ms,
        io_drain_ms: timings.io_drain_ms,
        ..FencingDelayParts::default()
    };
    let worst = parts.watchdog_worst_ms();
    parts.late_pet_ms = match (watchdog.descriptor_retained, watchdog.sliding) {
        (true, true) => timings.watchdog_lateness_ms,
        (true, false) => worst,
        (false, _) => 2 * worst,
    };
    let needed_ms = parts.needed_ms();
    let remaining_ppm = u128::from(1_000_000_u64.saturating_sub(timings.clock_rate_error_ppm)).max(1);
    let wait = (u128::from(needed_ms) * 1_000_000).div_ceil(remaining_ppm);
    let wait = u64::try_from(wait.div_ceil(100) * 100).unwrap_or(Millis::MAX);
    parts.observer_ms = wait - needed_ms;
    parts
}

/// Returns W: the time that an observer waits after the last heartbeat that it saw, in milliseconds. It is rounded **up**
/// to a tenth of a second, and is the sum of [`fencing_delay_parts`], which contains the proof.
///
/// ```
/// use ha_api_types::timing::{Timings, WatchdogBounds, fencing_delay_ms};
///
/// let timings = Timings::default();
/// let timeout_ms = timings.watchdog_timeout_ms;
/// let sliding = WatchdogBounds { timeout_ms, sliding: true, descriptor_retained: true };
/// assert_eq!(fencing_delay_ms(&timings, &sliding), 13_200);
/// // A device with a fixed timeout may run for another full period.
/// let fixed = WatchdogBounds { sliding: false, ..sliding };
/// assert_eq!(fencing_delay_ms(&timings, &fixed), 18_300);
/// ```
pub fn fencing_delay_ms(timings: &Timings, watchdog: &WatchdogBounds) -> Millis {
    fencing_delay_parts(timings, watchdog).total_ms()
}

/// Returns `Tw' = Tw (1 + ρw) + δw` for a device with this timeout, in milliseconds, rounded up.
pub fn watchdog_worst_ms(timings: &Timings, timeout_ms: Millis) -> Millis {
    let watchdog = WatchdogBounds { timeout_ms, sliding: true, descriptor_retained: true };
    fencing_delay_parts(timings, &watchdog).watchdog_worst_ms()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::Profile;

    fn bounds(timings: &Timings, sliding: bool, descriptor_retained: bool) -> WatchdogBounds {
        WatchdogBounds { timeout_ms: timings.watchdog_timeout_ms, sliding, descriptor_retained }
    }

    fn check(profile: Profile, sliding: bool, descriptor_retained: bool, expected_wait_ms: Millis) {
        let timings = Timings::of_profile(profile);
        let bounds = bounds(&timings, sliding, descriptor_retained);
        assert_eq!(fencing_delay_ms(&timings, &bounds), expected_wait_ms, "{profile:?} sliding {sliding}");
        assert_eq!(crate::timing::problems(&timings), Vec::new());
    }

    #[test]
    fn fencing_delay_matches_the_protocol_values() {
        check(Profile::Fast, true, true, 7_100);
        check(Profile::Default, true, true, 13_200);
        check(Profile::Conservative, true, true, 39_400);
        check(Profile::Fast, false, true, 9_100);
        check(Profile::Default, false, true, 18_300);
        check(Profile::Conservative, false, true, 54_700);
        check(Profile::Default, true, false, 24_400);
    }

    #[test]
    fn fencing_delay_parts_match_protocol_symbols() {
        let timings = Timings { io_drain_ms: 700, ..Timings::default() };
        let expected = FencingDelayParts {
            heartbeat_valid_ms: 6_000,
            heartbeat_rate_ms: 6,
            watchdog_timeout_ms: 5_000,
            watchdog_rate_ms: 100,
            watchdog_lateness_ms: 1_000,
            late_pet_ms: 1_000,
            io_drain_ms: 700,
            observer_ms: 94,
        };
        assert_eq!(fencing_delay_parts(&timings, &bounds(&timings, true, true)), expected);
        let worst = watchdog_worst_ms(&timings, timings.watchdog_timeout_ms);
        assert_eq!((expected.watchdog_worst_ms(), expected.total_ms()), (worst, 13_900));
        assert_eq!(fencing_delay_parts(&timings, &bounds(&timings, false, true)).late_pet_ms, worst);
        assert_eq!(fencing_delay_parts(&timings, &bounds(&timings, false, false)).late_pet_ms, 2 * worst);
    }
}
