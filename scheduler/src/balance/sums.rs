//! Exact sums and sums of squares of shares, from which deviations follow without a loop over nodes.

use super::columns::SHARE_UNIT;

/// The sums of one column over the nodes that are not offline.
///
/// Shares are below 2^50, so that with 2^13 nodes the products below stay inside 126 bits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    sum: i64,
    squares: i128,
}

impl Sums {
    /// Computes the sums of these shares.
    pub(super) fn new(shares: impl Iterator<Item = i64>) -> Sums {
        let mut sums = Sums::default();
        for share in shares {
            sums.replace(0, share);
        }
        sums
    }

    /// Replaces one share with another.
    pub(super) fn replace(&mut self, old: i64, new: i64) {
        self.sum += new - old;
        // The difference of two squares, in one multiplication.
        self.squares += i128::from(new - old) * i128::from(new + old);
    }

    /// Returns the population standard deviation: √(n·Σx² − (Σx)²) / n, exact up to the root.
    pub(super) fn deviation(&self, count: i64) -> f64 {
        let variance = i128::from(count) * self.squares - i128::from(self.sum) * i128::from(self.sum);
        #[expect(clippy::cast_precision_loss, reason = "one rounding at the end is enough")]
        let variance = variance as f64;
        variance.sqrt() / (count as f64 * SHARE_UNIT)
    }

    /// Returns the sum of all shares.
    pub(super) fn total(&self) -> f64 {
        self.sum as f64 / SHARE_UNIT
    }
}
