//! The check whether every node could be evacuated after its failure, by the rules of Ganeti's hcheck and hspace.
//!
//! Replicated instances fail over to their secondary. Then all other instances restart elsewhere in the group, the last
//! one first and each on the node with the lowest resulting score. As in Ganeti, the soft limits do not count. Offline nodes
//! are checked too, and they are possible targets.

use crate::balance::problem::{Placement, Problem};
use crate::balance::state::State;

/// Returns the nodes of a group that could not be evacuated, in their order.
pub fn fatal_nodes(problem: &Problem, placements: &[Placement]) -> Vec<usize> {
    let mut state = State::new(problem, placements);
    let running: Vec<(usize, Placement)> = placements.iter().copied().enumerate().collect();
    (0..problem.nodes.len()).filter(|&node| !can_evacuate(&mut state, node, &running)).collect()
}

/// Returns `true` if all instances of a node can run on other nodes. `running` are the instances of the group with
/// their placements, which the state contains.
pub(super) fn can_evacuate(state: &mut State<'_>, node: usize, running: &[(usize, Placement)]) -> bool {
    let mut moved = Vec::new();
    let can_evacuate = evacuate(state, node, running, &mut moved).is_some();
    for (service, from, to) in moved.into_iter().rev() {
        state.remove_added(service, to);
        state.add_unchecked(service, from);
    }
    can_evacuate
}

/// A moved instance: the instance, its placement before, and its placement now.
type Moved = (usize, Placement, Placement);

fn evacuate(
    state: &mut State<'_>,
    node: usize,
    running: &[(usize, Placement)],
    moved: &mut Vec<Moved>,
) -> Option<()> {
    let on_node = || running.iter().rev().copied().filter(|(_, placement)| placement.primary == node);
    for (service, from) in on_node() {
        if let Some(to) = from.swapped() {
            if !can_run_after(state.problem(), node, to.primary) {
                return None;
            }
            state.remove_added(service, from);
            if state.add_checked(service, to, true).is_err() {
                state.add_unchecked(service, from);
                return None;
            }
            moved.push((service, from, to));
        }
    }
    for (service, from) in on_node().filter(|(_, placement)| placement.secondary.is_none()) {
        state.remove_added(service, from);
        let Some(to) = best_other_node(state, service, node) else {
            state.add_unchecked(service, from);
            return None;
        };
        state.add_unchecked(service, to);
        moved.push((service, from, to));
    }
    Some(())
}

/// Returns `true` if instances of a node may run on another one by the migration tags of both.
fn can_run_after(problem: &Problem, from: usize, to: usize) -> bool {
    problem.nodes[from].is_down || problem.nodes[from].migrates_to(&problem.nodes[to])
}

/// Returns the node with the lowest resulting score that accepts an instance.
fn best_other_node(state: &mut State<'_>, service: usize, failed: usize) -> Option<Placement> {
    let mut best: Option<(f64, Placement)> = None;
    let problem = state.problem();
    let others = (0..problem.nodes.len()).filter(|&node| node != failed);
    for primary in others.filter(|&node| can_run_after(problem, failed, node)) {
        let to = Placement { primary, secondary: None };
        if state.add_checked(service, to, true).is_ok() {
            let score = state.score();
            state.remove_added(service, to);
            if best.is_none_or(|(best_score, _)| score < best_score) {
                best = Some((score, to));
            }
        }
    }
    best.map(|(_, to)| to)
}
