//! Disjoint sets.

use std::collections::BTreeSet;

/// Adds a set after merging it with all sets that it overlaps. The merged set comes last.
pub(crate) fn join<T: Copy + Ord>(sets: &mut Vec<BTreeSet<T>>, mut joined: BTreeSet<T>) {
    sets.retain(|set| {
        let is_disjoint = set.is_disjoint(&joined);
        if !is_disjoint {
            joined.extend(set);
        }
        is_disjoint
    });
    sets.push(joined);
}
