//! Single-step searches: the best move of all at each step, as in Ganeti's `hbal`, and a faster approximation.

use super::known_gain::KnownGain;
use super::moves::{destinations, execute};
use super::plan::{Step, make_step};
use super::problem::Placement;
use super::random::Random;
use super::state::{ChangeEvaluator, State};
use super::threads::{cores, run_in_parallel};
use super::time_limit::TimeLimit;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Share of the available time after which the faster search stops, to leave time for the other phases.
const SEARCH_TIME_SHARE: f64 = 0.4;

/// Smaller gains in score are rounding errors.
pub(super) const MIN_GAIN: f64 = 1e-9;

/// Repeats the best step of all until no step lowers the score, or `max_steps` steps are made, or the time limit has
/// passed.
pub fn steepest_descent(state: &mut State<'_>, max_steps: usize, time: &TimeLimit<'_>) -> Vec<Step> {
    let mut change_evaluator = ChangeEvaluator::new(state);
    let mut steps = Vec::new();
    while steps.len() < max_steps && !time.stop_after(1.0) {
        let mut improving = improving_steps(state, &change_evaluator);
        // Scores that differ by rounding only are equal, so that the first step is made, as in hbal.
        let rounded = |score: f64| (score / MIN_GAIN).round();
        improving.sort_by(|left, right| rounded(left.0).total_cmp(&rounded(right.0)));
        // In the order of final scores, the first step whose operations are all possible is made.
        let Some(made_step) =
            improving.into_iter().find_map(|(_, service, to)| make_step(state, service, to))
        else {
            break;
        };
        steps.push(made_step);
        change_evaluator.refresh(state);
    }
    steps
}

/// Number of instances below which one thread is used.
const MIN_PARALLEL_INSTANCES: usize = 100;

/// Returns every step that lowers the score, with the score after it, in the order of instances.
fn improving_steps(state: &State<'_>, change_evaluator: &ChangeEvaluator) -> Vec<(f64, usize, Placement)> {
    let nodes: Vec<usize> = (0..state.problem().nodes.len()).collect();
    let examine = |services: Range<usize>| {
        let (mut change_evaluator, mut improving, mut placements) =
            (change_evaluator.clone(), Vec::new(), Vec::new());
        for service in services.filter(|&service| state.problem().services[service].is_movable) {
            destinations(state.problem(), service, state.placement(service), &nodes, &mut placements);
            for &to in &placements {
                let score = change_evaluator.score_after(state, &[(service, to)]);
                if score < change_evaluator.score() - MIN_GAIN {
                    improving.push((score, service, to));
                }
            }
        }
        improving
    };
    let count = state.problem().services.len();
    if count < MIN_PARALLEL_INSTANCES || cores() < 2 {
        return examine(0..count);
    }
    // The result does not depend on the split into two halves.
    let (mut improving, second_half) =
        run_in_parallel(|| examine(0..count / 2), || examine(count / 2..count));
    improving.extend(second_half);
    improving
}

/// Returns the best step of an instance through these nodes, and the score after it.
pub(super) fn best_step(
    state: &mut State<'_>,
    change_evaluator: &mut ChangeEvaluator,
    service: usize,
    allowed_nodes: &[usize],
) -> Option<(f64, Placement)> {
    if !state.problem().services[service].is_movable {
        return None;
    }
    let from = state.placement(service);
    let mut placements = Vec::new();
    destinations(state.problem(), service, from, allowed_nodes, &mut placements);
    let mut best: Option<(f64, Placement)> = None;
    for to in placements {
        // The final score is compared first; only a step that would be the best so far is tried operation by operation.
        let score = change_evaluator.score_after(state, &[(service, to)]);
        if best.is_none_or(|(best_score, _)| score < best_score) && execute(state, service, to).is_some() {
            state.restore(service, from);
            best = Some((score, to));
        }
    }
    best
}

/// Number of nodes that are tried per instance in the polishing phase. More nodes rarely improve the result.
const POLISH_TARGETS: usize = 40;

/// Number of nodes that are tried per instance in the faster search.
const SEARCH_TARGETS: usize = 200;

/// Number of instances that are reevaluated in turn after each step of the faster search, in addition to those with the
/// largest gains.
const ROUND_ROBIN_INSTANCES: usize = 8;

/// Repeats a step that is nearly the best. Known gains are reevaluated in turn, and when they are the largest. In large
/// clusters a random sample of nodes is tried.
pub fn approximate_steepest_descent(
    state: &mut State<'_>,
    random: &mut Random,
    max_steps: usize,
    time: &TimeLimit<'_>,
) -> Vec<Step> {
    let services: Vec<usize> = (0..state.problem().services.len())
        .filter(|&service| state.problem().services[service].is_movable)
        .collect();
    let mut change_evaluator = ChangeEvaluator::new(state);
    let mut best_moves: Vec<(f64, Option<Placement>)> = vec![(f64::INFINITY, None); services.len()];
    let mut evaluated_at = vec![usize::MAX; services.len()];
    let (mut steps, mut round_robin_position) = (Vec::new(), 0);
    while steps.len() < max_steps {
        let mut round_robin = ROUND_ROBIN_INSTANCES.min(services.len());
        let best = loop {
            if time.stop_after(SEARCH_TIME_SHARE) {
                return steps;
            }
            let position = if round_robin > 0 {
                round_robin -= 1;
                round_robin_position = (round_robin_position + 1) % services.len();
                round_robin_position
            } else {
                let by_gain =
                    |left: &usize, right: &usize| best_moves[*left].0.total_cmp(&best_moves[*right].0);
                let Some(position) = (0..services.len()).max_by(by_gain) else { return steps };
                if evaluated_at[position] == steps.len() {
                    break position;
                }
                position
            };
            if evaluated_at[position] != steps.len() {
                let allowed_nodes = draw_target_nodes(state, random, SEARCH_TARGETS);
                let best = best_step(state, &mut change_evaluator, services[position], &allowed_nodes);
                best_moves[position] =
                    best.map_or((0.0, None), |(score, to)| (change_evaluator.score() - score, Some(to)));
                evaluated_at[position] = steps.len();
            }
        };
        let (gain, Some(to)) = best_moves[best] else { break };
        if gain <= MIN_GAIN {
            break;
        }
        let Some(made_step) = make_step(state, services[best], to) else { break };
        steps.push(made_step);
        change_evaluator.refresh(state);
    }
    steps
}

/// Share of the available time after which polishing stops.
const POLISH_TIME_SHARE: f64 = 0.97;

/// Makes final steps, each of which gains more than `min_gain`, until no such step is left.
pub(super) fn improve_until_local_optimum(
    state: &mut State<'_>,
    min_gain: f64,
    random: &mut Random,
    time: &TimeLimit<'_>,
) -> Vec<Step> {
    let services: Vec<usize> = (0..state.problem().services.len())
        .filter(|&service| state.problem().services[service].is_movable)
        .collect();
    let mut change_evaluator = ChangeEvaluator::new(state);
    let mut steps = Vec::new();
    loop {
        let mut heap: BinaryHeap<KnownGain> = services.iter().copied().map(KnownGain::unknown).collect();
        let steps_before = steps.len();
        while let Some(candidate) = heap.pop() {
            if time.stop_after(POLISH_TIME_SHARE) {
                return steps;
            }
            let score_before = state.score();
            let allowed_nodes = draw_target_nodes(state, random, POLISH_TARGETS);
            let Some((score, to)) =
                best_step(state, &mut change_evaluator, candidate.service, &allowed_nodes)
            else {
                continue;
            };
            let gain = score_before - score;
            if gain <= min_gain {
                continue;
            }
            if heap.peek().is_some_and(|next| next.gain > gain) {
                heap.push(KnownGain { gain, service: candidate.service });
            } else if let Some(made_step) = make_step(state, candidate.service, to) {
                steps.push(made_step);
                change_evaluator.refresh(state);
                heap.push(KnownGain { gain, service: candidate.service });
            }
        }
        if steps.len() == steps_before {
            return steps;
        }
    }
}

fn draw_target_nodes(state: &State<'_>, random: &mut Random, max_count: usize) -> Vec<usize> {
    let count = state.problem().nodes.len();
    if count <= max_count {
        return (0..count).collect();
    }
    (0..max_count).map(|_| random.draw_below(count)).collect()
}
