//! Checks whether each unit can have its own node.

use std::collections::{BTreeMap, BTreeSet};

/// Returns `true` if each unit can have its own node, by exact bipartite matching with augmenting paths.
pub(crate) fn can_use_distinct_nodes(allowed: &[&BTreeSet<usize>]) -> bool {
    let mut unit_of_node = BTreeMap::new();
    (0..allowed.len()).all(|unit| augment_matching(unit, allowed, &mut BTreeSet::new(), &mut unit_of_node))
}

fn augment_matching(
    unit: usize,
    allowed: &[&BTreeSet<usize>],
    visited: &mut BTreeSet<usize>,
    unit_of_node: &mut BTreeMap<usize, usize>,
) -> bool {
    for node in allowed[unit] {
        if !visited.insert(*node) {
            continue;
        }
        let is_available = match unit_of_node.get(node).copied() {
            None => true,
            Some(other) => augment_matching(other, allowed, visited, unit_of_node),
        };
        if is_available {
            unit_of_node.insert(*node, unit);
            return true;
        }
    }
    false
}
