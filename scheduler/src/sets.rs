//! Sets of which no two share a member.

use std::collections::BTreeSet;

/// Adds a set, made one with those that it overlaps; it comes last.
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
