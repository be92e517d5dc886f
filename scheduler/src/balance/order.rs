//! The conversion of final placements to a sequence of steps in which each step keeps every hard limit.

use super::greedy::{MIN_GAIN, best_step};
use super::known_gain::KnownGain;
use super::moves::{StepKind, intermediate_placements};
use super::plan::{Step, step};
use super::problem::Placement;
use super::state::{Probe, State};
use std::collections::BinaryHeap;

/// Moves instances to these placements, the greatest gain first.
///
/// A blocked instance is tried again after other steps. If blocked instances wait for each other in a cycle, one makes its
/// best possible step instead, or stays.
pub(super) fn order(state: &mut State<'_>, targets: &[Placement]) -> Vec<Step> {
    let hosts: Vec<usize> = (0..state.problem().hosts.len()).collect();
    let mut steps = Vec::new();
    let mut heap: BinaryHeap<KnownGain> = (0..targets.len())
        .filter(|&guest| targets[guest] != state.placement(guest))
        .map(KnownGain::unknown)
        .collect();
    let mut blocked: Vec<KnownGain> = Vec::new();
    loop {
        while let Some(mut pending) = heap.pop() {
            let before = state.score();
            let from = state.placement(pending.guest);
            let target = targets[pending.guest];
            let Some(done) = step(state, pending.guest, target) else {
                match start_route(state, pending.guest, target) {
                    Some(done) => {
                        steps.push(done);
                        heap.push(KnownGain::unknown(pending.guest));
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

/// Makes the first step of a two-step route to a target that one step cannot reach.
fn start_route(state: &mut State<'_>, guest: usize, target: Placement) -> Option<Step> {
    let (problem, from) = (state.problem(), state.placement(guest));
    if StepKind::between(problem, guest, from, target).is_some() {
        return None;
    }
    intermediate_placements(problem, guest, from, target)
        .into_iter()
        .find_map(|middle| step(state, guest, middle))
}

/// Makes the best step of a blocked instance, which is then no longer pending.
fn detour(
    state: &mut State<'_>,
    targets: &[Placement],
    blocked: &mut Vec<KnownGain>,
    hosts: &[usize],
) -> Option<Step> {
    let mut probe = Probe::new(state);
    let before = probe.score();
    while let Some(pending) = blocked.pop() {
        let Some((score, to)) = best_step(state, &mut probe, pending.guest, hosts) else { continue };
        if score < before - MIN_GAIN {
            let from = state.placement(pending.guest);
            let copies =
                |to| StepKind::between(state.problem(), pending.guest, from, to).map_or(0, StepKind::copies);
            // The step must not copy more disks than the step to the target.
            if copies(to) <= copies(targets[pending.guest]) {
                return step(state, pending.guest, to);
            }
        }
    }
    None
}
