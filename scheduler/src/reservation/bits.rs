//! A set of node numbers.

/// A set of small numbers, as bits.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    /// Returns the set of the numbers below `count` for which `is_in` returns `true`.
    pub(super) fn of(count: usize, is_in: impl Fn(usize) -> bool) -> Bits {
        let mut words = vec![0; count.div_ceil(64)];
        for bit_index in (0..count).filter(|bit_index| is_in(*bit_index)) {
            words[bit_index / 64] |= 1 << (bit_index % 64);
        }
        Bits(words)
    }

    pub(super) fn contains(&self, bit_index: usize) -> bool {
        self.0.get(bit_index / 64).is_some_and(|word| word >> (bit_index % 64) & 1 == 1)
    }

    pub(super) fn insert(&mut self, bit_index: usize) {
        if let Some(word) = self.0.get_mut(bit_index / 64) {
            *word |= 1 << (bit_index % 64);
        }
    }

    pub(super) fn remove(&mut self, bit_index: usize) {
        if let Some(word) = self.0.get_mut(bit_index / 64) {
            *word &= !(1 << (bit_index % 64));
        }
    }

    pub(super) fn intersect(&mut self, other: &Bits) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word &= other;
        }
    }

    pub(super) fn unite(&mut self, other: &Bits) {
        for (word, other) in self.0.iter_mut().zip(&other.0) {
            *word |= other;
        }
    }

    pub(super) fn is_subset(&self, other: &Bits) -> bool {
        self.0.iter().zip(&other.0).all(|(word, other)| word & !other == 0)
    }

    pub(super) fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(index, word)| {
            let mut remaining_bits = *word;
            std::iter::from_fn(move || {
                let bit = remaining_bits.trailing_zeros() as usize;
                (remaining_bits != 0).then(|| {
                    remaining_bits &= remaining_bits - 1;
                    index * 64 + bit
                })
            })
        })
    }
}
