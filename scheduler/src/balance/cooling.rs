//! Simulated annealing on any landscape: the temperature, its decrease, and the end of the search (Kirkpatrick, Gelatt,
//! Vecchi 1983).

use super::random::Random;
use super::time_limit::TimeLimit;

/// A search space, which proposes changes of its current state, and keeps or reverts them.
pub trait Landscape {
    /// Returns a typical increase of the minimized function by a change: one of the smaller increases.
    fn estimate_typical_increase(&mut self, random: &mut Random) -> f64;

    /// Tries a change, and keeps it if it is good enough for this temperature. At temperature 0 only changes that do
    /// not worsen the result are kept.
    fn try_change(&mut self, temperature: f64, random: &mut Random);
}

/// Initial temperature in multiples of the typical increase of the score by one change.
const INITIAL_TEMPERATURE: f64 = 5.0;

/// Natural logarithm of the final temperature as a share of the initial temperature, 0.012.
const FINAL_TEMPERATURE_LOGARITHM: f64 = -4.422_848_629;

/// Share of the available time after which this search stops, to leave time for the later phases.
const SEARCH_TIME_SHARE: f64 = 0.95;

/// Share of the time after which the search is known to be too slow for its time.
const MEASURED_TIME_SHARE: f64 = 0.5;

/// Length of the last phase, in which only improvements are kept, as a share of the search.
const IMPROVEMENTS_ONLY_SHARE: f64 = 0.1;

/// Tries this number of changes while the temperature decreases. If the time is too short for them, the used time
/// determines the temperature, and the search ends early.
pub fn run_cooling_schedule(
    landscape: &mut impl Landscape,
    evaluations: usize,
    random: &mut Random,
    time: &TimeLimit<'_>,
) {
    let share_at_start = time.used_share();
    let initial_temperature = INITIAL_TEMPERATURE * landscape.estimate_typical_increase(random);
    let (mut time_progress, mut temperature) = (None, initial_temperature);
    for evaluation in 0..evaluations {
        let progress = evaluation as f64 / evaluations as f64;
        if evaluation % 512 == 0 {
            if time.stop_after(SEARCH_TIME_SHARE) {
                break;
            }
            let used_share = time.used_share();
            let elapsed = (used_share - share_at_start) / (SEARCH_TIME_SHARE - share_at_start);
            let is_too_slow =
                used_share > MEASURED_TIME_SHARE && elapsed > MEASURED_TIME_SHARE && elapsed > progress;
            if is_too_slow || time_progress.is_some() {
                time.record_limit_reached();
                time_progress = Some(elapsed);
            }
        }
        if evaluation % 64 == 0 {
            let progress = time_progress.map_or(progress, |elapsed| progress.max(elapsed));
            temperature = if progress > 1.0 - IMPROVEMENTS_ONLY_SHARE {
                0.0
            } else {
                initial_temperature * exponential(FINAL_TEMPERATURE_LOGARITHM * progress)
            };
        }
        landscape.try_change(temperature, random);
    }
}

/// Number of squarings in [`exponential`].
const SQUARINGS: i32 = 8;

/// Returns e to the power of a number from −20 to 0, with a relative error below 1e-8. Unlike `f64::exp`, the result has the
/// same bits on every machine.
pub(super) fn exponential(exponent: f64) -> f64 {
    let part = exponent / f64::from(1 << SQUARINGS);
    let series = 1.0
        + part
            * (1.0
                + part / 2.0
                    * (1.0 + part / 3.0 * (1.0 + part / 4.0 * (1.0 + part / 5.0 * (1.0 + part / 6.0)))));
    (0..SQUARINGS).fold(series, |power, _| power * power)
}

#[cfg(test)]
mod tests {
    use super::exponential;

    #[test]
    fn exponential_is_accurate_for_temperatures() {
        for tenth in 0..=200 {
            let exponent = f64::from(-tenth) / 10.0;
            assert!((exponential(exponent) / exponent.exp() - 1.0).abs() < 1e-8, "{exponent}");
        }
    }
}
