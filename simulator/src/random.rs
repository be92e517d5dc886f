//! The only source of randomness in a run, so that the same seed gives the same run, byte for byte.

use ha_api_types::time::Millis;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A seeded generator whose output is the same on every machine and version.
#[derive(Clone, Debug)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Random {
        Random(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Draws a duration between two bounds, both included.
    pub fn draw_between_ms(&mut self, min_ms: Millis, max_ms: Millis) -> Millis {
        if max_ms <= min_ms { min_ms } else { self.0.random_range(min_ms..=max_ms) }
    }

    /// Returns `true` with this probability.
    pub fn draw_chance(&mut self, chance: f64) -> bool {
        chance > 0.0 && self.0.random_bool(chance.min(1.0))
    }

    /// Draws a number below `bound`; returns 0 if `bound` is 0.
    pub fn draw_below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { self.0.random_range(0..bound) }
    }

    /// Draws a number that serves as a unique id.
    pub fn number(&mut self) -> u64 {
        self.0.next_u64()
    }
}
