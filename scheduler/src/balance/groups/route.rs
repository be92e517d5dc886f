//! Routes from one spot to another: one step, or two through a spot that shares a node with both.

use crate::balance::moves::ways;
use crate::balance::plan::{Step, step};
use crate::balance::problem::Spot;
use crate::balance::state::State;

/// Moves an instance to a spot. If no route is possible, the state is unchanged.
pub(super) fn route(state: &mut State<'_>, guest: usize, to: Spot) -> Option<Vec<Step>> {
    let from = state.spot(guest);
    if let Some(only) = step(state, guest, to) {
        return Some(vec![only]);
    }
    for middle in ways(state.problem(), guest, from, to) {
        let Some(first) = step(state, guest, middle) else { continue };
        if let Some(second) = step(state, guest, to) {
            return Some(vec![first, second]);
        }
        state.restore(guest, from);
    }
    None
}
