//! Simulated annealing on any landscape: how heat begins and falls, and when the search ends (Kirkpatrick, Gelatt, Vecchi 1983).

use super::random::Random;
use super::search::Clock;

/// Where a search goes about: it proposes changes to itself, and keeps them or takes them back.
pub trait Landscape {
    /// How much worse changes make it, typically: the better ones of those that make it worse.
    fn typical_change(&mut self, random: &mut Random) -> f64;

    /// The search begins with this heat.
    fn begin(&mut self, _first_heat: f64) {}

    /// Every 64 trials: what is only allowed for a while becomes dearer.
    fn tighten(&mut self) {}

    /// Tries a change, and keeps it if it is good enough for this heat; at heat 0 only what makes nothing worse.
    fn trial(&mut self, heat: f64, random: &mut Random);
}

/// The heat to begin with, in typical changes.
const HEAT: f64 = 5.0;

/// How much colder it ends.
const COOLING: f64 = 0.012;

/// The share of the time that is left to what comes after this search.
const MOST_TIME: f64 = 0.95;

/// The share of the time from which on the clock decides how fast it cools.
const SHORT_TIME: f64 = 0.5;

/// The last part, in which nothing is made worse any more.
const QUENCH: f64 = 0.1;

/// Tries so many changes, first hot and then colder and colder; fewer if time is short.
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
            // Work decides how fast it cools, so that the same problem gives the same plan; once time is short, the clock.
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
