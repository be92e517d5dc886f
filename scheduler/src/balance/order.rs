//! The conversion of final placements to a sequence of steps in which each step keeps every hard limit.

use super::greedy::{MIN_GAIN, best_step};
use super::known_gain::KnownGain;
use super::moves::{StepKind, intermediate_placements};
use super::plan::{Step, make_step};
use super::problem::Placement;
use super::small_rise_order::services_with_small_rises;
use super::state::{ChangeEvaluator, State};
use std::collections::BinaryHeap;

/// An order in which instances move to their targets.
#[derive(Clone, Debug)]
pub(super) struct Order {
    /// Instances in phases. A phase begins when no instance of the earlier phases can move.
    phases: Vec<Vec<usize>>,
}

impl Order {
    /// Returns the order in which most steps lower the score, and large gains come first.
    pub(super) fn descending(state: &State<'_>, targets: &[Placement]) -> Order {
        Order { phases: vec![descending_services(state, targets)] }
    }

    /// Returns an order in which the score hardly rises, or `None` if too many instances move for the search.
    ///
    /// An exchange of instances raises the score in passing, if the numbers of instances are even before. A plan that is
    /// interrupted at the lower score cannot make the exchange, because no step may end above the initial score. If one of
    /// the nodes has an instance too many before, the exchange need not raise the score.
    pub(super) fn with_small_rises(state: &State<'_>, targets: &[Placement]) -> Option<Order> {
        let services = services_with_small_rises(state, targets)?;
        Some(Order { phases: services.into_iter().map(|service| vec![service]).collect() })
    }

    /// Moves instances to these placements, as far as possible.
    ///
    /// A blocked instance is tried again after other steps. If blocked instances wait for each other in a cycle, one makes its
    /// best possible step instead, or stays.
    pub(super) fn run(&self, state: &mut State<'_>, targets: &[Placement]) -> Vec<Step> {
        let nodes: Vec<usize> = (0..state.problem().nodes.len()).collect();
        let (mut steps, mut pending) = (Vec::new(), Vec::new());
        for (index, phase) in self.phases.iter().enumerate() {
            pending.extend(phase);
            let is_last = index + 1 == self.phases.len();
            loop {
                let first_pending = &pending[..pending.len().min(MAX_RETRIES)];
                let next = make_next_step(state, targets, first_pending, |score, before| score <= before)
                    .or_else(|| make_next_step(state, targets, &pending, |_, _| true))
                    .or_else(|| is_last.then(|| make_detour(state, targets, &mut pending, &nodes))?);
                let Some(made_step) = next else { break };
                pending.retain(|&service| {
                    service != made_step.service || targets[service] != state.placement(service)
                });
                steps.push(made_step);
            }
        }
        steps
    }
}

/// Returns the instances that move, in an order in which every step lowers the score if the limits allow it.
///
/// The order is found from its end: the last step is the one that gains least, given that all others are made. Thus an
/// instance moves before others that depend on it, and steps with large gains come first.
fn descending_services(state: &State<'_>, targets: &[Placement]) -> Vec<usize> {
    let mut end = State::new(state.problem(), targets);
    let mut change_evaluator = ChangeEvaluator::new(&end);
    let moving = (0..targets.len()).filter(|&service| targets[service] != state.placement(service));
    // The heap returns the largest gain first, so the gains are negated.
    let mut heap: BinaryHeap<KnownGain> = moving.map(KnownGain::unknown).collect();
    let mut without_gain: Vec<KnownGain> = Vec::new();
    let mut backwards = Vec::new();
    loop {
        let Some(KnownGain { gain: known, service }) = heap.pop() else {
            // None of the remaining steps gains in this context.
            let Some(next) = without_gain.pop() else { break };
            end.restore(next.service, state.placement(next.service));
            change_evaluator.refresh(&end);
            backwards.push(next.service);
            return_to_heap(&mut heap, &mut without_gain);
            continue;
        };
        let loss = change_evaluator.score()
            - change_evaluator.score_after(&end, &[(service, state.placement(service))]);
        if loss >= 0.0 {
            without_gain.push(KnownGain { gain: loss, service });
        } else if loss < known && heap.peek().is_some_and(|next| next.gain > loss) {
            heap.push(KnownGain { gain: loss, service });
        } else {
            end.restore(service, state.placement(service));
            change_evaluator.refresh(&end);
            backwards.push(service);
            return_to_heap(&mut heap, &mut without_gain);
        }
    }
    backwards.reverse();
    backwards
}

/// Maximum number of instances that are tried again after each step, so that the order of a large plan is found in linear
/// time.
const MAX_RETRIES: usize = 64;

/// Moves the last instances of a list back to the heap.
fn return_to_heap(heap: &mut BinaryHeap<KnownGain>, list: &mut Vec<KnownGain>) {
    heap.extend(list.drain(list.len().saturating_sub(MAX_RETRIES)..));
}

/// Makes the first possible step of the pending instances for which `is_accepted` returns `true` for the scores before and after the
/// step.
fn make_next_step(
    state: &mut State<'_>,
    targets: &[Placement],
    pending: &[usize],
    is_accepted: impl Fn(f64, f64) -> bool,
) -> Option<Step> {
    let before = state.score();
    pending.iter().find_map(|&service| {
        let from = state.placement(service);
        let made_step = make_step(state, service, targets[service])
            .or_else(|| start_route(state, service, targets[service]))?;
        if is_accepted(made_step.score, before) {
            return Some(made_step);
        }
        state.restore(service, from);
        None
    })
}

/// Makes the first step of a two-step route to a target that one step cannot reach.
fn start_route(state: &mut State<'_>, service: usize, target: Placement) -> Option<Step> {
    let (problem, from) = (state.problem(), state.placement(service));
    if StepKind::between(problem, service, from, target).is_some() {
        return None;
    }
    intermediate_placements(problem, service, from, target)
        .into_iter()
        .find_map(|middle| make_step(state, service, middle))
}

/// Makes the best step of a blocked instance, which is then no longer pending.
fn make_detour(
    state: &mut State<'_>,
    targets: &[Placement],
    pending: &mut Vec<usize>,
    nodes: &[usize],
) -> Option<Step> {
    let mut change_evaluator = ChangeEvaluator::new(state);
    let before = change_evaluator.score();
    while let Some(service) = pending.pop() {
        let Some((score, to)) = best_step(state, &mut change_evaluator, service, nodes) else { continue };
        if score < before - MIN_GAIN {
            let from = state.placement(service);
            let copies =
                |to| StepKind::between(state.problem(), service, from, to).map_or(0, StepKind::copies);
            // The step must not copy more disks than the step to the target.
            if copies(to) <= copies(targets[service]) {
                return make_step(state, service, to);
            }
        }
    }
    None
}
