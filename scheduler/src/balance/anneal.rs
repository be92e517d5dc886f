//! The search that looks beyond one step: moves, exchanges and returns, also for the worse as long as it is early.
//!
//! Simulated annealing (Kirkpatrick, Gelatt, Vecchi 1983) over where instances end, not over the steps to there: an instance ends
//! where one step could bring it, or stays. What moving costs is part of what is minimised.

use super::moves::Kind;
use super::problem::{Problem, Spot};
use super::random::Random;
use super::search::Clock;
use super::state::State;

/// How far the search may go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Allowance {
    /// Disks that may be copied.
    pub(super) copies: usize,
    /// What the copy of a disk must gain.
    pub(super) price: f64,
    /// Candidates to be tried.
    pub(super) trials: usize,
}

/// How much moves cost beside the copies that they make, as a share of a copy's price.
const STEP_SHARE: f64 = 0.2;

/// What is spent so far, against the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Spent {
    copies: usize,
    migrations: usize,
    steps: usize,
}

impl Spent {
    /// What all of it must gain.
    fn price(self, allowance: Allowance) -> f64 {
        allowance.price
            * (self.copies as f64
                + STEP_SHARE * self.steps as f64
                + 0.1 * STEP_SHARE * self.migrations as f64)
    }

    /// Copies beyond what is allowed.
    fn excess(self, allowance: Allowance) -> usize {
        self.copies.saturating_sub(allowance.copies)
    }

    fn replace(&mut self, old: Spent, new: Spent) {
        self.copies = self.copies + new.copies - old.copies;
        self.migrations = self.migrations + new.migrations - old.migrations;
        self.steps = self.steps + new.steps - old.steps;
    }
}

/// What it costs to bring an instance from its start to a spot.
fn cost(problem: &Problem, guest: usize, to: Spot) -> Spent {
    let start = problem.start[guest];
    match Kind::between(problem, guest, start, to) {
        _ if start == to => Spent::default(),
        Some(kind) => Spent { copies: kind.copies(), migrations: kind.migrations(), steps: 1 },
        // By way of a spot in between.
        None => Spent { copies: 2, migrations: 1, steps: 2 },
    }
}

/// Heats to begin with, as shares of what a random change does to the score; each round begins where the best one ended.
const ROUNDS: [f64; 3] = [0.03, 0.01, 0.004];

/// What a copy beyond the allowance costs, in heats at the beginning of a round.
const FINE: f64 = 3.0;

/// How much colder a round ends.
const COOLING: f64 = 0.01;

/// The share of the time that is left to what comes after this search.
const MOST_TIME: f64 = 0.95;

/// The share of the time from which on the clock decides how fast it cools.
const SHORT_TIME: f64 = 0.5;

/// The last part of a round, in which nothing is made worse any more.
const QUENCH: f64 = 0.1;

/// The search: where instances should end. `state` is where the search begins, and where it ends after it: never at a higher score,
/// and with no more copies of disks than are allowed or were spent before.
pub(super) fn anneal(state: &mut State<'_>, allowance: Allowance, random: &mut Random, clock: Clock<'_>) {
    let problem = state.problem();
    let movable: Vec<usize> =
        (0..problem.guests.len()).filter(|&guest| problem.guests[guest].movable).collect();
    if movable.is_empty() || problem.hosts.len() < 2 {
        return;
    }
    for (round, rounds_left) in ROUNDS.into_iter().zip((1..=ROUNDS.len()).rev()) {
        let begun = clock();
        let allotted = (MOST_TIME - begun) / rounds_left as f64;
        let mut search = Search::new(state, &movable, allowance);
        let heat = round * search.typical_change(state, random);
        let before = (search.score + search.spent.price(allowance), state.spots().to_vec());
        let trials = allowance.trials / ROUNDS.len();
        search.fine = FINE * heat;
        let mut hurry = 0.0;
        for trial in 0..trials {
            if trial % 512 == 0 {
                let now = clock();
                if now >= MOST_TIME {
                    break;
                }
                // Work decides how fast it cools, so that the same problem gives the same plan; once time is short, the clock.
                hurry = if now > SHORT_TIME { (now - begun) / allotted } else { 0.0 };
            }
            let progress = f64::max(trial as f64 / trials as f64, hurry);
            if progress >= 1.0 {
                break;
            }
            let heat = if progress > 1.0 - QUENCH { 0.0 } else { heat * COOLING.powf(progress) };
            search.trial(state, heat, random);
        }
        if search.score + search.spent.price(allowance) > before.0 {
            for (guest, spot) in before.1.into_iter().enumerate() {
                if state.spot(guest) != spot {
                    state.restore(guest, spot);
                }
            }
        }
        if clock() >= MOST_TIME {
            return;
        }
    }
}

struct Search<'a> {
    problem: &'a Problem,
    movable: &'a [usize],
    /// Instances that are not where they were at the start, and the position of each in this list.
    moved: Vec<usize>,
    position: Vec<usize>,
    spent: Spent,
    allowance: Allowance,
    /// What each copy beyond the allowance costs.
    fine: f64,
    score: f64,
}

impl<'a> Search<'a> {
    fn new(state: &State<'a>, movable: &'a [usize], allowance: Allowance) -> Search<'a> {
        let problem = state.problem();
        let mut search = Search {
            problem,
            movable,
            moved: Vec::new(),
            position: vec![usize::MAX; problem.guests.len()],
            spent: Spent::default(),
            allowance,
            fine: 0.0,
            score: state.score(),
        };
        for guest in 0..problem.guests.len() {
            search.spent.replace(Spent::default(), cost(problem, guest, state.spot(guest)));
            search.note(guest, state.spot(guest) != problem.start[guest]);
        }
        search
    }

    /// How much a random change changes what is not counted, typically: what is counted should hardly get worse.
    fn typical_change(&mut self, state: &mut State<'_>, random: &mut Random) -> f64 {
        let smooth = state.smooth_score();
        let mut changes = Vec::new();
        for _ in 0..200 {
            let guest = self.movable[random.below(self.movable.len())];
            let from = state.spot(guest);
            let Some(to) = self.somewhere(guest, random) else { continue };
            if state.change(&[(guest, to)]) {
                changes.push((state.smooth_score() - smooth).abs());
                state.restore(guest, from);
            }
        }
        changes.sort_by(f64::total_cmp);
        changes.get(changes.len() / 2).copied().unwrap_or(0.0).max(1e-9)
    }

    /// A spot that one step from the start could bring an instance to.
    fn somewhere(&self, guest: usize, random: &mut Random) -> Option<Spot> {
        let start = self.problem.start[guest];
        let node = random.below(self.problem.hosts.len());
        let to = match start.secondary {
            None => Spot { primary: node, secondary: None },
            Some(secondary) => match random.below(9) {
                0 => Spot { primary: secondary, secondary: Some(start.primary) },
                1 | 2 => Spot { primary: start.primary, secondary: Some(node) },
                3 | 4 => Spot { primary: node, secondary: Some(start.primary) },
                5 | 6 => Spot { primary: secondary, secondary: Some(node) },
                _ => Spot { primary: node, secondary: Some(secondary) },
            },
        };
        self.reachable(guest, to).then_some(to)
    }

    fn reachable(&self, guest: usize, to: Spot) -> bool {
        to.secondary != Some(to.primary)
            && (to == self.problem.start[guest]
                || Kind::between(self.problem, guest, self.problem.start[guest], to).is_some())
    }

    /// Tries a change, and keeps it if it is good enough for this heat.
    fn trial(&mut self, state: &mut State<'_>, heat: f64, random: &mut Random) {
        let choice = random.below(10);
        let mut changes: [(usize, Spot); 2] = [(0, Spot { primary: 0, secondary: None }); 2];
        let mut count = 1;
        let any = |random: &mut Random| self.movable[random.below(self.movable.len())];
        let already = |random: &mut Random| {
            if self.moved.is_empty() { any(random) } else { self.moved[random.below(self.moved.len())] }
        };
        let guest = if choice < 4 { already(random) } else { any(random) };
        let start = self.problem.start[guest];
        match choice {
            // Back, alone or while another one goes.
            0 | 1 if state.spot(guest) != start => changes[0] = (guest, start),
            2 if state.spot(guest) != start => {
                let other = any(random);
                let Some(to) = self.somewhere(other, random) else { return };
                changes = [(guest, start), (other, to)];
                count = if other == guest { 1 } else { 2 };
            }
            // Two exchange their primaries, or their secondaries.
            8 | 9 => {
                let other = if choice == 8 { already(random) } else { any(random) };
                let (mine, theirs) = (state.spot(guest), state.spot(other));
                if other == guest {
                    return;
                }
                changes = if random.below(2) == 0 {
                    [
                        (guest, Spot { primary: theirs.primary, ..mine }),
                        (other, Spot { primary: mine.primary, ..theirs }),
                    ]
                } else {
                    if mine.secondary.is_none() || theirs.secondary.is_none() {
                        return;
                    }
                    [
                        (guest, Spot { secondary: theirs.secondary, ..mine }),
                        (other, Spot { secondary: mine.secondary, ..theirs }),
                    ]
                };
                count = 2;
                if !changes.iter().all(|&(guest, to)| self.reachable(guest, to)) {
                    return;
                }
            }
            _ => {
                let Some(to) = self.somewhere(guest, random) else { return };
                changes[0] = (guest, to);
            }
        }
        self.attempt(state, &changes[..count], heat, random);
    }

    fn attempt(&mut self, state: &mut State<'_>, changes: &[(usize, Spot)], heat: f64, random: &mut Random) {
        let mut before = [Spot { primary: 0, secondary: None }; 2];
        let mut spent = self.spent;
        for (slot, &(guest, to)) in before.iter_mut().zip(changes) {
            *slot = state.spot(guest);
            spent.replace(cost(self.problem, guest, *slot), cost(self.problem, guest, to));
        }
        let too_many = spent.copies > self.allowance.copies && spent.copies > self.spent.copies;
        let nothing = changes.iter().zip(&before).all(|((_, to), from)| to == from);
        if too_many || nothing || !state.change(changes) {
            return;
        }
        let score = state.score();
        let price =
            |spent: Spent| spent.price(self.allowance) + spent.excess(self.allowance) as f64 * self.fine;
        let worse = score - self.score + price(spent) - price(self.spent);
        if worse <= 0.0 || (heat > 0.0 && random.share() < (-worse / heat).exp()) {
            self.score = score;
            self.spent = spent;
            for &(guest, to) in changes {
                self.note(guest, to != self.problem.start[guest]);
            }
        } else {
            for (&(guest, _), from) in changes.iter().zip(before) {
                state.restore(guest, from);
            }
        }
    }

    /// Keeps the list of moved instances.
    fn note(&mut self, guest: usize, moved: bool) {
        let position = self.position[guest];
        if moved && position == usize::MAX {
            self.position[guest] = self.moved.len();
            self.moved.push(guest);
        } else if !moved && position != usize::MAX {
            self.moved.swap_remove(position);
            self.position[guest] = usize::MAX;
            if let Some(&other) = self.moved.get(position) {
                self.position[other] = position;
            }
        }
    }
}
