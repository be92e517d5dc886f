//! From where instances should end to an order in which each step keeps every hard limit.

use super::greedy::{LEAST_GAIN, best_step};
use super::moves::{Kind, ways};
use super::plan::{Step, step};
use super::problem::Spot;
use super::promise::Promise;
use super::state::{Probe, State};
use std::collections::BinaryHeap;

/// Brings a placement to these spots: what gains most first, and what is in the way of others when it no longer is. What waits for
/// each other in a circle takes the best step that is free instead, or stays.
pub(super) fn order(state: &mut State<'_>, targets: &[Spot]) -> Vec<Step> {
    let hosts: Vec<usize> = (0..state.problem().hosts.len()).collect();
    let mut steps = Vec::new();
    let mut heap: BinaryHeap<Promise> = (0..targets.len())
        .filter(|&guest| targets[guest] != state.spot(guest))
        .map(Promise::unseen)
        .collect();
    let mut blocked: Vec<Promise> = Vec::new();
    loop {
        while let Some(mut pending) = heap.pop() {
            let before = state.score();
            let from = state.spot(pending.guest);
            let target = targets[pending.guest];
            let Some(done) = step(state, pending.guest, target) else {
                match halfway(state, pending.guest, target) {
                    Some(done) => {
                        steps.push(done);
                        heap.push(Promise::unseen(pending.guest));
                        heap.extend(blocked.drain(..));
                    }
                    None => blocked.push(pending),
                }
                continue;
            };
            pending.gain = before - done.score;
            if heap.peek().is_some_and(|next| next.gain > pending.gain) {
                state.restore(pending.guest, from);
                heap.push(pending);
            } else {
                steps.push(done);
                heap.extend(blocked.drain(..));
            }
        }
        let Some(detour) = detour(state, targets, &mut blocked, &hosts) else { return steps };
        steps.push(detour);
        heap.extend(blocked.drain(..));
    }
}

/// The first of two steps, where one cannot lead to the target.
fn halfway(state: &mut State<'_>, guest: usize, target: Spot) -> Option<Step> {
    let (problem, from) = (state.problem(), state.spot(guest));
    if Kind::between(problem, guest, from, target).is_some() {
        return None;
    }
    ways(problem, guest, from, target).into_iter().find_map(|way| step(state, guest, way))
}

/// The best step of one that waits, which then waits no longer.
fn detour(
    state: &mut State<'_>,
    targets: &[Spot],
    blocked: &mut Vec<Promise>,
    hosts: &[usize],
) -> Option<Step> {
    let mut probe = Probe::new(state);
    let before = probe.score();
    while let Some(pending) = blocked.pop() {
        let Some((score, to)) = best_step(state, &mut probe, pending.guest, hosts) else { continue };
        if score < before - LEAST_GAIN {
            let from = state.spot(pending.guest);
            let copies = |to| Kind::between(state.problem(), pending.guest, from, to).map_or(0, Kind::copies);
            // Instead of what was to be copied, no more is.
            if copies(to) <= copies(targets[pending.guest]) {
                return step(state, pending.guest, to);
            }
        }
    }
    None
}
