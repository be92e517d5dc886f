//! Disjoint sets.

use std::collections::BTreeSet;

/// Adds a set after merging it with all sets that it overlaps. The merged set comes last.
pub(crate) fn join<T: Copy + Ord>(sets: &mut Vec<BTreeSet<T>>, mut joined: BTreeSet<T>) {
    sets.retain(|set| {
        let apart = set.is_disjoint(&joined);
        if !apart {
            joined.extend(set);
        }
        apart
    });
    sets.push(joined);
}
