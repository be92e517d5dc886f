//! Single-step searches: the best move of all at each step, as in Ganeti's `hbal`, and a faster approximation.

use super::moves::{destinations, execute};
use super::plan::{Step, step};
use super::problem::Spot;
use super::promise::KnownGain;
use super::random::Random;
use super::search::Clock;
use super::state::{Probe, State};
use super::threads::{cores, side_by_side};
use std::collections::BinaryHeap;
use std::ops::Range;

/// Share of the available time after which the faster search stops, to leave time for the other phases.
const MOST_TIME: f64 = 0.4;

/// Smaller gains in score are rounding errors.
pub(super) const LEAST_GAIN: f64 = 1e-9;

/// Repeats the best step of all until no step lowers the score, or `most` steps are made, or the time is over.
pub fn steepest(state: &mut State<'_>, most: usize, clock: Clock<'_>) -> Vec<Step> {
    let mut probe = Probe::new(state);
    let mut steps = Vec::new();
    while steps.len() < most && clock() < 1.0 {
        let mut better = better_steps(state, &probe);
        // Scores that differ by rounding only are equal, so that the first step is made, as in hbal.
        let rounded = |score: f64| (score / LEAST_GAIN).round();
        better.sort_by(|one, other| rounded(one.0).total_cmp(&rounded(other.0)));
        // Steps are sorted by their final score first, and only the best candidates are tried operation by operation.
        let Some(done) = better.into_iter().find_map(|(_, guest, to)| step(state, guest, to)) else { break };
        steps.push(done);
        probe.refresh(state);
    }
    steps
}

/// Number of instances below which one thread is used.
const LEAST_SHARED: usize = 100;

/// Returns every step that lowers the score, with the score after it, in the order of instances.
fn better_steps(state: &State<'_>, probe: &Probe) -> Vec<(f64, usize, Spot)> {
    let hosts: Vec<usize> = (0..state.problem().hosts.len()).collect();
    let look = |guests: Range<usize>| {
        let (mut probe, mut better, mut spots) = (probe.clone(), Vec::new(), Vec::new());
        for guest in guests.filter(|&guest| state.problem().guests[guest].movable) {
            destinations(state.problem(), guest, state.spot(guest), &hosts, &mut spots);
            for &to in &spots {
                let score = probe.after(state, &[(guest, to)]);
                if score < probe.score() - LEAST_GAIN {
                    better.push((score, guest, to));
                }
            }
        }
        better
    };
    let count = state.problem().guests.len();
    if count < LEAST_SHARED || cores() < 2 {
        return look(0..count);
    }
    // The result does not depend on the split into two halves.
    let (mut better, more) = side_by_side(|| look(0..count / 2), || look(count / 2..count));
    better.extend(more);
    better
}

/// Returns the best step of an instance through these nodes, and the score after it.
pub(super) fn best_step(
    state: &mut State<'_>,
    probe: &mut Probe,
    guest: usize,
    via: &[usize],
) -> Option<(f64, Spot)> {
    if !state.problem().guests[guest].movable {
        return None;
    }
    let from = state.spot(guest);
    let mut spots = Vec::new();
    destinations(state.problem(), guest, from, via, &mut spots);
    let mut best: Option<(f64, Spot)> = None;
    for to in spots {
        // The final score is compared first; only a step that would be the best so far is tried operation by operation.
        let score = probe.after(state, &[(guest, to)]);
        if best.is_none_or(|(least, _)| score < least) && execute(state, guest, to).is_some() {
            state.restore(guest, from);
            best = Some((score, to));
        }
    }
    best
}

/// Number of nodes that are tried per instance in the polishing phase. More nodes rarely improve the result.
const TARGETS: usize = 40;

/// Number of nodes that are tried per instance in the faster search.
const MORE_TARGETS: usize = 200;

/// Number of instances that are reevaluated in turn after each step of the faster search, in addition to those with the
/// greatest gains.
const ROLLING: usize = 8;

/// Repeats a step that is nearly the best. Known gains are reevaluated in turn, and when they are the greatest. In large
/// clusters a random sample of nodes is tried.
pub fn lazy(state: &mut State<'_>, random: &mut Random, most: usize, clock: Clock<'_>) -> Vec<Step> {
    let guests: Vec<usize> =
        (0..state.problem().guests.len()).filter(|&guest| state.problem().guests[guest].movable).collect();
    let mut probe = Probe::new(state);
    let mut known: Vec<(f64, Option<Spot>)> = vec![(f64::INFINITY, None); guests.len()];
    let mut fresh = vec![usize::MAX; guests.len()];
    let (mut steps, mut turn) = (Vec::new(), 0);
    while steps.len() < most {
        let mut rolling = ROLLING.min(guests.len());
        let best = loop {
            if clock() >= MOST_TIME {
                return steps;
            }
            let position = if rolling > 0 {
                rolling -= 1;
                turn = (turn + 1) % guests.len();
                turn
            } else {
                let greatest = |one: &usize, other: &usize| known[*one].0.total_cmp(&known[*other].0);
                let Some(position) = (0..guests.len()).max_by(greatest) else { return steps };
                if fresh[position] == steps.len() {
                    break position;
                }
                position
            };
            if fresh[position] != steps.len() {
                let via = targets(state, random, MORE_TARGETS);
                let best = best_step(state, &mut probe, guests[position], &via);
                known[position] = best.map_or((0.0, None), |(score, to)| (probe.score() - score, Some(to)));
                fresh[position] = steps.len();
            }
        };
        let (gain, Some(to)) = known[best] else { break };
        if gain <= LEAST_GAIN {
            break;
        }
        let Some(done) = step(state, guests[best], to) else { break };
        steps.push(done);
        probe.refresh(state);
    }
    steps
}

/// Share of the available time after which polishing stops.
const MOST_TIME_FOR_POLISH: f64 = 0.97;

/// Makes final steps, each of which gains more than `price`, until no such step is left.
pub(super) fn polish(
    state: &mut State<'_>,
    mut copies: usize,
    price: f64,
    random: &mut Random,
    clock: Clock<'_>,
) -> Vec<Step> {
    let guests: Vec<usize> =
        (0..state.problem().guests.len()).filter(|&guest| state.problem().guests[guest].movable).collect();
    let mut probe = Probe::new(state);
    let mut steps = Vec::new();
    loop {
        let mut heap: BinaryHeap<KnownGain> = guests.iter().copied().map(KnownGain::unseen).collect();
        let done = steps.len();
        while let Some(promise) = heap.pop() {
            if clock() >= MOST_TIME_FOR_POLISH {
                return steps;
            }
            let before = state.score();
            let via = if copies == 0 && state.spot(promise.guest).secondary.is_some() {
                Vec::new()
            } else {
                targets(state, random, TARGETS)
            };
            let Some((score, to)) = best_step(state, &mut probe, promise.guest, &via) else { continue };
            let gain = before - score;
            if gain <= price {
                continue;
            }
            if heap.peek().is_some_and(|next| next.gain > gain) {
                heap.push(KnownGain { gain, guest: promise.guest });
            } else if let Some(done) = step(state, promise.guest, to) {
                copies = copies.saturating_sub(done.kind.copies());
                steps.push(done);
                probe.refresh(state);
                heap.push(KnownGain { gain, guest: promise.guest });
            }
        }
        if steps.len() == done {
            return steps;
        }
    }
}

fn targets(state: &State<'_>, random: &mut Random, most: usize) -> Vec<usize> {
    let count = state.problem().hosts.len();
    if count <= most {
        return (0..count).collect();
    }
    (0..most).map(|_| random.below(count)).collect()
}
