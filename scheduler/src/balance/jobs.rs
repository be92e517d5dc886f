//! Job sets: steps of a plan that share no node, so that they can be executed in parallel.

use super::plan::Step;
use std::collections::BTreeSet;

/// Splits the steps into sets, in their order. A set ends before the first step that uses a node of an earlier step in the
/// set.
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

/// Returns the nodes that a step reads from or writes to.
fn nodes(step: &Step) -> BTreeSet<usize> {
    step.from.nodes().chain(step.to.nodes()).collect()
}
