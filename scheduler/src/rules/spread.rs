//! Checks whether each unit can have its own node.

use std::collections::{BTreeMap, BTreeSet};

/// Returns `true` if each unit can have its own node, by exact bipartite matching with augmenting paths.
pub(crate) fn can_use_distinct_nodes(allowed: &[&BTreeSet<usize>]) -> bool {
    let mut taken = BTreeMap::new();
    (0..allowed.len()).all(|at| augment(at, allowed, &mut BTreeSet::new(), &mut taken))
}

fn augment(
    at: usize,
    allowed: &[&BTreeSet<usize>],
    seen: &mut BTreeSet<usize>,
    taken: &mut BTreeMap<usize, usize>,
) -> bool {
    for node in allowed[at] {
        if !seen.insert(*node) {
            continue;
        }
        let free = match taken.get(node).copied() {
            None => true,
            Some(other) => augment(other, allowed, seen, taken),
        };
        if free {
            taken.insert(*node, at);
            return true;
        }
    }
    false
}
