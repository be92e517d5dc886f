//! The single-step search: at each step the best move of all, as Ganeti's `hbal` does it; and a quicker one that nearly does.

use super::moves::{destinations, execute};
use super::plan::{Step, step};
use super::problem::Spot;
use super::promise::Promise;
use super::random::Random;
use super::search::Clock;
use super::state::{Probe, State};
use std::collections::BinaryHeap;
use std::ops::Range;

/// The share of the time after which the quicker search leaves the rest to others.
const MOST_TIME: f64 = 0.4;

/// Less than this is rounding.
pub(super) const LEAST_GAIN: f64 = 1e-9;

/// Does the best step of all again and again, until none lowers the score. It ends when time is over.
pub fn steepest(state: &mut State<'_>, most: usize, clock: Clock<'_>) -> Vec<Step> {
    let mut looked_at = 0;
    descend(state, most, usize::MAX, &mut looked_at, clock)
}

/// The same until it has looked at so many steps.
pub(super) fn descend(
    state: &mut State<'_>,
    most: usize,
    most_looks: usize,
    looked_at: &mut usize,
    clock: Clock<'_>,
) -> Vec<Step> {
    let mut probe = Probe::new(state);
    let mut steps = Vec::new();
    while steps.len() < most && *looked_at < most_looks && clock() < 1.0 {
        let mut better = better_steps(state, &probe, looked_at);
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
fn better_steps(state: &State<'_>, probe: &Probe, looked_at: &mut usize) -> Vec<(f64, usize, Spot)> {
    let hosts: Vec<usize> = (0..state.problem().hosts.len()).collect();
    let look = |guests: Range<usize>| {
        let (mut probe, mut better, mut spots, mut looked_at) = (probe.clone(), Vec::new(), Vec::new(), 0);
        for guest in guests.filter(|&guest| state.problem().guests[guest].movable) {
            destinations(state.problem(), guest, state.spot(guest), &hosts, &mut spots);
            looked_at += spots.len();
            for &to in &spots {
                let score = probe.after(state, &[(guest, to)]);
                if score < probe.score() - LEAST_GAIN {
                    better.push((score, guest, to));
                }
            }
        }
        (better, looked_at)
    };
    let count = state.problem().guests.len();
    let (better, looks) = if count < LEAST_SHARED || threads() < 2 {
        look(0..count)
    } else {
        // Two halves, whatever the number of cores: it is the same result.
        std::thread::scope(|scope| {
            let half = scope.spawn(|| look(count / 2..count));
            let (mut better, looks) = look(0..count / 2);
            match half.join() {
                Ok((more, more_looks)) => {
                    better.extend(more);
                    (better, looks + more_looks)
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    };
    *looked_at += looks;
    better
}

/// Cores that can be used.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
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

/// Nodes that a step of an instance is tried by way of; more find little more.
const TARGETS: usize = 40;

/// Does a step that is nearly the best again and again: gains are looked at anew only once they are the greatest, and in large
/// clusters some nodes are tried instead of all.
pub fn lazy(state: &mut State<'_>, random: &mut Random, most: usize, clock: Clock<'_>) -> Vec<Step> {
    let terms = Terms { steps: most, copies: usize::MAX, price: LEAST_GAIN, most_time: MOST_TIME };
    by_promise(state, random, terms, clock)
}

/// The share of the time after which nothing is polished any more.
const MOST_TIME_FOR_POLISH: f64 = 0.97;

/// Last steps, each of which gains more than the price of a copy.
pub(super) fn polish(
    state: &mut State<'_>,
    copies: usize,
    price: f64,
    random: &mut Random,
    clock: Clock<'_>,
) -> Vec<Step> {
    let terms = Terms { steps: usize::MAX, copies, price, most_time: MOST_TIME_FOR_POLISH };
    by_promise(state, random, terms, clock)
}

/// What the quicker search may do.
#[derive(Clone, Copy)]
struct Terms {
    steps: usize,
    copies: usize,
    /// What a step must gain.
    price: f64,
    most_time: f64,
}

fn by_promise(state: &mut State<'_>, random: &mut Random, mut terms: Terms, clock: Clock<'_>) -> Vec<Step> {
    let guests: Vec<usize> =
        (0..state.problem().guests.len()).filter(|&guest| state.problem().guests[guest].movable).collect();
    let mut probe = Probe::new(state);
    let mut steps = Vec::new();
    loop {
        let mut heap: BinaryHeap<Promise> = guests.iter().copied().map(Promise::unseen).collect();
        let done = steps.len();
        while let Some(promise) = heap.pop() {
            if steps.len() >= terms.steps || clock() >= terms.most_time {
                return steps;
            }
            let before = state.score();
            let via = if terms.copies == 0 && is_replicated(state, promise.guest) {
                Vec::new()
            } else {
                targets(state, random)
            };
            let Some((score, to)) = best_step(state, &mut probe, promise.guest, &via) else { continue };
            let gain = before - score;
            if gain <= terms.price {
                continue;
            }
            if heap.peek().is_some_and(|next| next.gain > gain) {
                heap.push(Promise { gain, guest: promise.guest });
            } else if let Some(done) = step(state, promise.guest, to) {
                terms.copies = terms.copies.saturating_sub(done.kind.copies());
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

fn is_replicated(state: &State<'_>, guest: usize) -> bool {
    state.spot(guest).secondary.is_some()
}

fn targets(state: &State<'_>, random: &mut Random) -> Vec<usize> {
    let count = state.problem().hosts.len();
    if count <= TARGETS {
        return (0..count).collect();
    }
    (0..TARGETS).map(|_| random.below(count)).collect()
}
