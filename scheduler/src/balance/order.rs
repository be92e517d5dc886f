//! The conversion of final spots to a sequence of steps in which each step keeps every hard limit.

use super::greedy::{LEAST_GAIN, best_step};
use super::moves::{Kind, ways};
use super::plan::{Step, step};
use super::problem::Spot;
use super::promise::KnownGain;
use super::state::{Probe, State};
use std::collections::BinaryHeap;

/// Moves instances to these spots, the greatest gain first.
///
/// A blocked instance is tried again after other steps. If blocked instances wait for each other in a cycle, one makes its
/// best possible step instead, or stays.
pub(super) fn order(state: &mut State<'_>, targets: &[Spot]) -> Vec<Step> {
    let hosts: Vec<usize> = (0..state.problem().hosts.len()).collect();
    let mut steps = Vec::new();
    let mut heap: BinaryHeap<KnownGain> = (0..targets.len())
        .filter(|&guest| targets[guest] != state.spot(guest))
        .map(KnownGain::unseen)
        .collect();
    let mut blocked: Vec<KnownGain> = Vec::new();
    loop {
        while let Some(mut pending) = heap.pop() {
            let before = state.score();
            let from = state.spot(pending.guest);
            let target = targets[pending.guest];
            let Some(done) = step(state, pending.guest, target) else {
                match halfway(state, pending.guest, target) {
                    Some(done) => {
                        steps.push(done);
                        heap.push(KnownGain::unseen(pending.guest));
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
fn halfway(state: &mut State<'_>, guest: usize, target: Spot) -> Option<Step> {
    let (problem, from) = (state.problem(), state.spot(guest));
    if Kind::between(problem, guest, from, target).is_some() {
        return None;
    }
    ways(problem, guest, from, target).into_iter().find_map(|way| step(state, guest, way))
}

/// Makes the best step of a blocked instance, which is then no longer pending.
fn detour(
    state: &mut State<'_>,
    targets: &[Spot],
    blocked: &mut Vec<KnownGain>,
    hosts: &[usize],
) -> Option<Step> {
    let mut probe = Probe::new(state);
    let before = probe.score();
    while let Some(pending) = blocked.pop() {
        let Some((score, to)) = best_step(state, &mut probe, pending.guest, hosts) else { continue };
        if score < before - LEAST_GAIN {
            let from = state.spot(pending.guest);
            let copies = |to| Kind::between(state.problem(), pending.guest, from, to).map_or(0, Kind::copies);
            // The step must not copy more disks than the step to the target.
            if copies(to) <= copies(targets[pending.guest]) {
                return step(state, pending.guest, to);
            }
        }
    }
    None
}
