//! Job sets: steps of a plan that share no node and no instance, so that they can be executed at the same time.

use super::plan::Step;
use std::collections::BTreeSet;

/// The steps, set by set in their order: a set ends before the first step that touches a node which the set touches already.
pub fn job_sets(steps: &[Step]) -> Vec<Vec<Step>> {
    let mut sets: Vec<Vec<Step>> = Vec::new();
    let mut touched = BTreeSet::new();
    for step in steps {
        let nodes = nodes(step);
        if sets.is_empty() || nodes.iter().any(|node| touched.contains(node)) {
            sets.push(Vec::new());
            touched.clear();
        }
        touched.extend(nodes);
        if let Some(set) = sets.last_mut() {
            set.push(*step);
        }
    }
    sets
}

/// The nodes that a step reads from or writes to.
fn nodes(step: &Step) -> BTreeSet<usize> {
    step.from.nodes().chain(step.to.nodes()).collect()
}
