//! Which kind of change is tried next: the more often one of a kind was kept, the more often the kind has its turn.

use super::super::random::Random;

/// Turns of so many kinds.
pub(super) struct Turns<const KINDS: usize> {
    tried: [u32; KINDS],
    kept: [u32; KINDS],
    /// The share of each kind and of those before it, of [`WHOLE`].
    until: [usize; KINDS],
    trials: u32,
}

/// All shares together.
const WHOLE: usize = 1 << 16;

/// After so many trials shares are looked at anew.
const PERIOD: u32 = 1 << 13;

/// The part of all turns that is shared alike, so that no kind is forgotten.
const ALIKE: f64 = 0.25;

impl<const KINDS: usize> Turns<KINDS> {
    /// All alike.
    pub(super) fn new() -> Turns<KINDS> {
        let mut turns = Turns { tried: [1; KINDS], kept: [1; KINDS], until: [0; KINDS], trials: 0 };
        turns.share();
        turns
    }

    /// The kind whose turn it is.
    pub(super) fn next(&mut self, random: &mut Random) -> usize {
        self.trials += 1;
        if self.trials.is_multiple_of(PERIOD) {
            self.share();
            // What was long ago counts less and less.
            for count in self.tried.iter_mut().chain(&mut self.kept) {
                *count = count.div_ceil(2);
            }
        }
        let chance = random.below(WHOLE);
        let kind = self.until.iter().position(|until| chance < *until).unwrap_or(0);
        self.tried[kind] += 1;
        kind
    }

    /// A change of this kind was kept.
    pub(super) fn keep(&mut self, kind: usize) {
        self.kept[kind] += 1;
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "shares are below the whole")]
    fn share(&mut self) {
        let rate = |kind: usize| f64::from(self.kept[kind]) / f64::from(self.tried[kind]);
        let all: f64 = (0..KINDS).map(rate).sum();
        let mut sum = 0.0;
        let until = std::array::from_fn(|kind| {
            sum += ALIKE / KINDS as f64 + (1.0 - ALIKE) * rate(kind) / all;
            (sum * WHOLE as f64) as usize
        });
        self.until = until;
    }
}
