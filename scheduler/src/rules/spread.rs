//! Whether units can each have a node, those kept apart different ones.

use std::collections::{BTreeMap, BTreeSet};

/// Steps of the search over overlapping sets: more than any set that a person writes needs.
pub(super) const MAX_STEPS: usize = 50_000;

/// Whether each unit can have a node of its own: bipartite matching by augmenting paths, exact.
pub(super) fn can_all_differ(allowed: &[&BTreeSet<usize>]) -> bool {
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

/// Whether all units can have nodes so that no two that are apart share one. `None`: the search was given up.
///
/// The unit with the fewest nodes left is tried first, which finds dead ends early.
pub(super) fn can_keep_apart(allowed: &[BTreeSet<usize>], apart: &BTreeSet<(usize, usize)>) -> Option<bool> {
    let mut neighbours: Vec<Vec<usize>> = vec![Vec::new(); allowed.len()];
    for (one, other) in apart {
        neighbours[*one].push(*other);
        neighbours[*other].push(*one);
    }
    let mut steps = 0;
    let mut places = vec![None; allowed.len()];
    search(allowed, &neighbours, &mut places, &mut steps)
}

fn search(
    allowed: &[BTreeSet<usize>],
    neighbours: &[Vec<usize>],
    places: &mut Vec<Option<usize>>,
    steps: &mut usize,
) -> Option<bool> {
    let left = |unit: usize, places: &[Option<usize>]| -> Vec<usize> {
        let taken: BTreeSet<usize> = neighbours[unit].iter().filter_map(|other| places[*other]).collect();
        allowed[unit].difference(&taken).copied().collect()
    };
    let open = (0..allowed.len())
        .filter(|unit| places[*unit].is_none())
        .map(|unit| (unit, left(unit, places)))
        .min_by_key(|(unit, nodes)| (nodes.len(), *unit));
    let Some((unit, nodes)) = open else { return Some(true) };
    for node in nodes {
        *steps += 1;
        if *steps > MAX_STEPS {
            return None;
        }
        places[unit] = Some(node);
        if search(allowed, neighbours, places, steps)? {
            return Some(true);
        }
        places[unit] = None;
    }
    Some(false)
}
