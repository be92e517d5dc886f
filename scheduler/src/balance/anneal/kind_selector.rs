//! The choice of the next kind of change: the more changes of a kind were kept, the more often that kind is chosen.

use super::super::random::Random;

/// Statistics per kind of change, and the resulting shares.
pub(super) struct KindSelector<const KINDS: usize> {
    trial_counts: [u32; KINDS],
    kept_counts: [u32; KINDS],
    /// Cumulative share up to and including each kind, in units of [`SHARE_TOTAL`].
    cumulative_shares: [usize; KINDS],
    trials: u32,
}

/// Sum of all shares.
const SHARE_TOTAL: usize = 1 << 16;

/// Number of trials after which the shares are recomputed.
const UPDATE_INTERVAL: u32 = 1 << 13;

/// Share of all choices that is divided equally among the kinds, so that every kind is chosen sometimes.
const UNIFORM_SHARE: f64 = 0.25;

impl<const KINDS: usize> KindSelector<KINDS> {
    /// Starts with equal shares.
    pub(super) fn new() -> KindSelector<KINDS> {
        let mut selector = KindSelector {
            trial_counts: [1; KINDS],
            kept_counts: [1; KINDS],
            cumulative_shares: [0; KINDS],
            trials: 0,
        };
        selector.update_shares();
        selector
    }

    /// Draws a kind by the current shares.
    pub(super) fn draw_kind(&mut self, random: &mut Random) -> usize {
        self.trials += 1;
        if self.trials.is_multiple_of(UPDATE_INTERVAL) {
            self.update_shares();
            // Older results count less and less.
            for count in self.trial_counts.iter_mut().chain(&mut self.kept_counts) {
                *count = count.div_ceil(2);
            }
        }
        let drawn_share = random.draw_below(SHARE_TOTAL);
        let kind = self.cumulative_shares.iter().position(|share| drawn_share < *share).unwrap_or(0);
        self.trial_counts[kind] += 1;
        kind
    }

    /// Records that a change of this kind was kept.
    pub(super) fn record_kept(&mut self, kind: usize) {
        self.kept_counts[kind] += 1;
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "shares are below the whole")]
    fn update_shares(&mut self) {
        let rate = |kind: usize| f64::from(self.kept_counts[kind]) / f64::from(self.trial_counts[kind]);
        let total_rate: f64 = (0..KINDS).map(rate).sum();
        let mut sum = 0.0;
        let cumulative_shares = std::array::from_fn(|kind| {
            sum += UNIFORM_SHARE / KINDS as f64 + (1.0 - UNIFORM_SHARE) * rate(kind) / total_rate;
            (sum * SHARE_TOTAL as f64) as usize
        });
        self.cumulative_shares = cumulative_shares;
    }
}
