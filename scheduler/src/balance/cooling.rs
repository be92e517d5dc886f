//! Simulated annealing on any landscape: the temperature, its decrease, and the end of the search (Kirkpatrick, Gelatt,
//! Vecchi 1983).

use super::random::Random;
use super::search::Clock;

/// A search space, which proposes changes of its current state, and keeps or reverts them.
pub trait Landscape {
    /// Returns a typical worsening by a change, in units of the minimized function; it is one of the smaller ones.
    fn typical_change(&mut self, random: &mut Random) -> f64;

    /// Announces the temperature at the start of the search.
    fn begin(&mut self, _first_heat: f64) {}

    /// Raises penalties for temporary violations. Called every 64 trials.
    fn tighten(&mut self) {}

    /// Tries a change, and keeps it if it is good enough for this temperature. At temperature 0 only changes that do
    /// not worsen the result are kept.
    fn trial(&mut self, heat: f64, random: &mut Random);
}

/// Initial temperature in multiples of the typical worsening.
const HEAT: f64 = 5.0;

/// Final temperature as a share of the initial temperature.
const COOLING: f64 = 0.012;

/// Share of the available time after which this search stops, to leave time for the later phases.
const MOST_TIME: f64 = 0.95;

/// Share of the time after which the clock may determine the cooling.
const SHORT_TIME: f64 = 0.5;

/// Length of the last phase, in which only improvements are kept, as a share of the search.
const QUENCH: f64 = 0.1;

/// Tries up to `trials` changes while the temperature decreases. Stops earlier if the time runs short.
pub fn cool(landscape: &mut impl Landscape, trials: usize, random: &mut Random, clock: Clock<'_>) {
    let begun = clock();
    let first_heat = HEAT * landscape.typical_change(random);
    landscape.begin(first_heat);
    let (mut hurry, mut heat) = (0.0, first_heat);
    for trial in 0..trials {
        if trial % 512 == 0 {
            let now = clock();
            if now >= MOST_TIME {
                break;
            }
            // The number of trials determines the cooling, so that the same problem gives the same plan. The clock
            // determines it only when time runs short.
            hurry = if now > SHORT_TIME { (now - begun) / (MOST_TIME - begun) } else { 0.0 };
        }
        if trial % 64 == 0 {
            landscape.tighten();
            let progress = f64::max(trial as f64 / trials as f64, hurry);
            if progress >= 1.0 {
                break;
            }
            heat = if progress > 1.0 - QUENCH { 0.0 } else { first_heat * COOLING.powf(progress) };
        }
        landscape.trial(heat, random);
    }
}
