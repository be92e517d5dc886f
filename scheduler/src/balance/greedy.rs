//! The single-step search: at each step the best move of all, as Ganeti's `hbal` does it; and a quicker one that nearly does.

use super::moves::{destinations, execute};
use super::plan::{Step, step};
use super::problem::Spot;
use super::promise::Promise;
use super::random::Random;
use super::search::Clock;
use super::state::{Probe, State};
use super::threads::{cores, side_by_side};
use std::collections::BinaryHeap;
use std::ops::Range;

/// The share of the time after which the quicker search leaves the rest to others.
const MOST_TIME: f64 = 0.4;

/// Less than this is rounding.
pub(super) const LEAST_GAIN: f64 = 1e-9;

/// Does the best step of all again and again, until none lowers the score. It ends when time is over.
pub fn steepest(state: &mut State<'_>, most: usize, clock: Clock<'_>) -> Vec<Step> {
    let mut probe = Probe::new(state);
    let mut steps = Vec::new();
    while steps.len() < most && clock() < 1.0 {
        let mut better = better_steps(state, &probe);
        better.sort_by(|one, other| one.0.total_cmp(&other.0));
        // The end first: only what would be the best is tried operation by operation.
        let Some(done) = better.into_iter().find_map(|(_, guest, to)| step(state, guest, to)) else { break };
        steps.push(done);
        probe.refresh(state);
    }
    steps
}

/// Fewer instances than this are looked at by one thread.
const LEAST_SHARED: usize = 100;

/// Every step that lowers the score, with the score after it, in the order of instances.
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
    // In two halves or in one it is the same result.
    let (mut better, more) = side_by_side(|| look(0..count / 2), || look(count / 2..count));
    better.extend(more);
    better
}

/// The best step of an instance by way of these nodes, and the score after it.
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
        // The end first: only what would be the best so far is worth being tried operation by operation.
        let score = probe.after(state, &[(guest, to)]);
        if best.is_none_or(|(least, _)| score < least) && execute(state, guest, to).is_some() {
            state.restore(guest, from);
            best = Some((score, to));
        }
    }
    best
}

/// Nodes that a step of an instance is tried by way of when last steps are looked for; more find little more.
const TARGETS: usize = 40;

/// The same for the quicker single-step search.
const MORE_TARGETS: usize = 200;

/// Instances that are looked at anew after each step of the quicker search, besides those with the greatest gains.
const ROLLING: usize = 8;

/// Does a step that is nearly the best again and again: gains are looked at anew in turn, and once they are the greatest; in
/// large clusters some nodes are tried instead of all.
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

/// The share of the time after which nothing is polished any more.
const MOST_TIME_FOR_POLISH: f64 = 0.97;

/// Last steps, each of which gains more than the price of a copy, with so many copies at most.
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
        let mut heap: BinaryHeap<Promise> = guests.iter().copied().map(Promise::unseen).collect();
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
                heap.push(Promise { gain, guest: promise.guest });
            } else if let Some(done) = step(state, promise.guest, to) {
                copies = copies.saturating_sub(done.kind.copies());
                steps.push(done);
                probe.refresh(state);
                heap.push(Promise { gain, guest: promise.guest });
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
