//! Seeded random numbers, so that the search makes the same choices every time.

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts the sequence of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the next 64 bits.
    pub fn draw_bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below a limit, which must be greater than 0.
    #[expect(clippy::cast_possible_truncation, reason = "the result is below a usize")]
    pub fn draw_below(&mut self, limit: usize) -> usize {
        ((u128::from(self.draw_bits()) * limit as u128) >> 64) as usize
    }

    /// Returns a number from 0 (inclusive) to 1 (exclusive).
    pub fn draw_unit_f64(&mut self) -> f64 {
        (self.draw_bits() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
