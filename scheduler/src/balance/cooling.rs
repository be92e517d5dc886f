//! Simulated annealing on any landscape: the temperature, its decrease, and the end of the search (Kirkpatrick, Gelatt,
//! Vecchi 1983).

use super::random::Random;
use super::search::Clock;

/// A search space, which proposes changes of its current state, and keeps or reverts them.
pub trait Landscape {
    /// Returns a typical worsening by a change, in units of the minimized function; it is one of the smaller ones.
    fn typical_change(&mut self, random: &mut Random) -> f64;

    /// Announces the temperature at the start of the search.
    fn begin(&mut self, _initial_temperature: f64) {}

    /// Raises penalties for temporary violations. Called every 64 trials.
    fn raise_penalties(&mut self) {}

    /// Tries a change, and keeps it if it is good enough for this temperature. At temperature 0 only changes that do
    /// not worsen the result are kept.
    fn trial(&mut self, temperature: f64, random: &mut Random);
}

/// Initial temperature in multiples of the typical worsening.
const INITIAL_TEMPERATURE: f64 = 5.0;

/// Final temperature as a share of the initial temperature.
const FINAL_TEMPERATURE_SHARE: f64 = 0.012;

/// Share of the available time after which this search stops, to leave time for the later phases.
const SEARCH_TIME_SHARE: f64 = 0.95;

/// Share of the time after which the clock may determine the cooling.
const TRIAL_COUNT_TIME_SHARE: f64 = 0.5;

/// Length of the last phase, in which only improvements are kept, as a share of the search.
const IMPROVEMENTS_ONLY_SHARE: f64 = 0.1;

/// Tries up to `trials` changes while the temperature decreases. Stops earlier if the time runs short.
pub fn cool(landscape: &mut impl Landscape, trials: usize, random: &mut Random, clock: Clock<'_>) {
    let started = clock();
    let initial_temperature = INITIAL_TEMPERATURE * landscape.typical_change(random);
    landscape.begin(initial_temperature);
    let (mut time_progress, mut temperature) = (0.0, initial_temperature);
    for trial in 0..trials {
        if trial % 512 == 0 {
            let now = clock();
            if now >= SEARCH_TIME_SHARE {
                break;
            }
            // The number of trials determines the cooling, so that the same problem gives the same plan. The clock
            // determines it only when time runs short.
            time_progress = if now > TRIAL_COUNT_TIME_SHARE {
                (now - started) / (SEARCH_TIME_SHARE - started)
            } else {
                0.0
            };
        }
        if trial % 64 == 0 {
            landscape.raise_penalties();
            let progress = f64::max(trial as f64 / trials as f64, time_progress);
            if progress >= 1.0 {
                break;
            }
            temperature = if progress > 1.0 - IMPROVEMENTS_ONLY_SHARE {
                0.0
            } else {
                initial_temperature * FINAL_TEMPERATURE_SHARE.powf(progress)
            };
        }
        landscape.trial(temperature, random);
    }
}
