//! The single-step search: at each step the best move of all, as Ganeti's `hbal` does it; and a quicker one that nearly does.

use super::moves::{destinations, execute};
use super::plan::{Step, step};
use super::problem::Spot;
use super::promise::Promise;
use super::random::Random;
use super::search::Clock;
use super::state::State;
use std::collections::BinaryHeap;

/// The share of the time after which the quicker search leaves the rest to others.
const MOST_TIME: f64 = 0.4;

/// Less than this is rounding.
pub(super) const LEAST_GAIN: f64 = 1e-9;

/// Does the best step of all again and again, until none lowers the score. It ends when time is over.
pub fn steepest(state: &mut State<'_>, most: usize, clock: Clock<'_>) -> Vec<Step> {
    let hosts: Vec<usize> = (0..state.problem().hosts.len()).collect();
    let mut steps = Vec::new();
    while steps.len() < most && clock() < 1.0 {
        let before = state.score();
        let mut best: Option<(f64, usize, Spot)> = None;
        for guest in 0..state.problem().guests.len() {
            if let Some((score, to)) = best_step(state, guest, &hosts)
                && best.is_none_or(|(least, _, _)| score < least)
            {
                best = Some((score, guest, to));
            }
        }
        let Some((score, guest, to)) = best else { break };
        if score >= before - LEAST_GAIN {
            break;
        }
        steps.extend(step(state, guest, to));
    }
    steps
}

/// The best step of an instance by way of these nodes, and the score after it.
pub(super) fn best_step(state: &mut State<'_>, guest: usize, via: &[usize]) -> Option<(f64, Spot)> {
    if !state.problem().guests[guest].movable {
        return None;
    }
    let from = state.spot(guest);
    let mut spots = Vec::new();
    destinations(state.problem(), guest, from, via, &mut spots);
    let mut best: Option<(f64, Spot)> = None;
    for to in spots {
        // The end first: only what would be the best so far is worth being tried operation by operation.
        if !state.change(&[(guest, to)]) {
            continue;
        }
        let score = state.score();
        state.restore(guest, from);
        if best.is_none_or(|(least, _)| score < least) && execute(state, guest, to).is_some() {
            state.restore(guest, from);
            best = Some((score, to));
        }
    }
    best
}

/// Nodes that a step of an instance is tried by way of; more find little more.
const TARGETS: usize = 40;

/// Does a step that is nearly the best again and again: gains are looked at anew only once they are the greatest, and in large
/// clusters some nodes are tried instead of all.
pub fn lazy(state: &mut State<'_>, random: &mut Random, most: usize, clock: Clock<'_>) -> Vec<Step> {
    let guests: Vec<usize> =
        (0..state.problem().guests.len()).filter(|&guest| state.problem().guests[guest].movable).collect();
    let mut steps = Vec::new();
    loop {
        let mut heap: BinaryHeap<Promise> = guests.iter().copied().map(Promise::unseen).collect();
        let done = steps.len();
        while let Some(promise) = heap.pop() {
            if steps.len() >= most || clock() >= MOST_TIME {
                return steps;
            }
            let before = state.score();
            let via = targets(state, random);
            let Some((score, to)) = best_step(state, promise.guest, &via) else { continue };
            let gain = before - score;
            if gain <= LEAST_GAIN {
                continue;
            }
            if heap.peek().is_some_and(|next| next.gain > gain) {
                heap.push(Promise { gain, guest: promise.guest });
            } else if let Some(done) = step(state, promise.guest, to) {
                steps.push(done);
                heap.push(Promise { gain, guest: promise.guest });
            }
        }
        if steps.len() == done {
            return steps;
        }
    }
}

fn targets(state: &State<'_>, random: &mut Random) -> Vec<usize> {
    let count = state.problem().hosts.len();
    if count <= TARGETS {
        return (0..count).collect();
    }
    (0..TARGETS).map(|_| random.below(count)).collect()
}
