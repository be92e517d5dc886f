//! The search beyond single steps: moves, exchanges and returns, which may worsen the score in an early phase.
//!
//! Simulated annealing (Kirkpatrick, Gelatt, Vecchi 1983) over the final spots of instances, not over the steps.
//! The final spot of an instance is its start or one step away from it. The cost of moves is a part of the
//! minimized function.

use super::cooling::{Landscape, cool};
use super::moves::Kind;
use super::plan::Plan;
use super::problem::{Problem, Spot};
use super::random::Random;
use super::search::Clock;
use super::state::{Probe, State};
use proposals::{Changes, KINDS, Proposals};
use turns::Turns;

mod proposals;
mod turns;

/// Limits of the search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Allowance {
    /// Maximum number of disk copies.
    pub(super) copies: usize,
    /// Minimum gain in score for the copy of one disk.
    pub(super) price: f64,
    /// Number of candidates to try.
    pub(super) trials: usize,
}

/// Cost of a step without its copies, as a share of the price of a copy.
const STEP_SHARE: f64 = 0.2;

/// Cost of the current placement relative to the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Spent {
    copies: usize,
    migrations: usize,
    steps: usize,
}

impl Spent {
    /// Returns the gain in score that justifies this cost.
    fn price(self, allowance: Allowance) -> f64 {
        allowance.price
            * (self.copies as f64
                + STEP_SHARE * self.steps as f64
                + 0.1 * STEP_SHARE * self.migrations as f64)
    }

    /// Returns the number of copies beyond the limit.
    fn excess(self, allowance: Allowance) -> usize {
        self.copies.saturating_sub(allowance.copies)
    }

    fn replace(&mut self, old: Spent, new: Spent) {
        self.copies = self.copies + new.copies - old.copies;
        self.migrations = self.migrations + new.migrations - old.migrations;
        self.steps = self.steps + new.steps - old.steps;
    }
}

impl Allowance {
    /// Returns the score at the end of a plan plus the price of its steps.
    pub(super) fn cost(self, plan: &Plan) -> f64 {
        let spent = Spent { copies: plan.copies(), migrations: plan.migrations(), steps: plan.steps.len() };
        plan.end() + spent.price(self)
    }
}

/// Returns the cost of moving an instance from its start to a spot.
fn cost(problem: &Problem, guest: usize, to: Spot) -> Spent {
    let start = problem.start[guest];
    match Kind::between(problem, guest, start, to) {
        _ if start == to => Spent::default(),
        Some(kind) => Spent { copies: kind.copies(), migrations: kind.migrations(), steps: 1 },
        // Two steps through an intermediate spot.
        None => Spent { copies: 2, migrations: 1, steps: 2 },
    }
}

/// Initial penalty for a copy beyond the limit, in multiples of the first temperature.
const FINE: f64 = 3.0;

/// Factor by which the penalty for copies beyond the limit grows every 64 trials.
const PENALTY_GROWTH: f64 = 1.002;

/// Searches for the final spots of all instances, from the placement in `state`.
///
/// Afterwards `state` has at most as many disk copies as allowed, or as before. If `state` began within the limit, its cost
/// does not increase.
pub(super) fn anneal(state: &mut State<'_>, allowance: Allowance, random: &mut Random, clock: Clock<'_>) {
    let search = Search::new(state, allowance);
    if search.proposals.is_empty() {
        return;
    }
    let before = (search.score + search.spent.price(allowance), search.spent.excess(allowance));
    let spots = state.spots().to_vec();
    let mut walk = Walk { search, state };
    cool(&mut walk, allowance.trials, random, clock);
    let Walk { search, state } = walk;
    if before.1 == 0 && search.score + search.spent.price(allowance) > before.0 {
        for (guest, spot) in spots.into_iter().enumerate() {
            if state.spot(guest) != spot {
                state.restore(guest, spot);
            }
        }
    }
}

/// Maximum increase of the cost that is considered, in multiples of the temperature. The search would accept a larger
/// increase with a probability below one in a million.
const MAX_INCREASE: f64 = 15.0;

/// The search together with the placement that it changes.
struct Walk<'w, 's, 'a> {
    search: Search<'a>,
    state: &'w mut State<'s>,
}

impl Landscape for Walk<'_, '_, '_> {
    fn typical_change(&mut self, random: &mut Random) -> f64 {
        self.search.typical_change(self.state, random)
    }

    fn begin(&mut self, first_heat: f64) {
        self.search.fine = FINE * first_heat;
    }

    fn tighten(&mut self) {
        // The penalty grows until the number of copies is within the limit.
        if self.search.spent.excess(self.search.allowance) > 0 {
            self.search.fine *= PENALTY_GROWTH;
        }
    }

    fn trial(&mut self, heat: f64, random: &mut Random) {
        self.search.trial(self.state, heat, random);
    }
}

struct Search<'a> {
    problem: &'a Problem,
    proposals: Proposals<'a>,
    turns: Turns<KINDS>,
    probe: Probe,
    spent: Spent,
    allowance: Allowance,
    /// Penalty for each copy beyond the limit.
    fine: f64,
    score: f64,
    changes: Changes,
    before: Changes,
}

impl<'a> Search<'a> {
    fn new(state: &State<'a>, allowance: Allowance) -> Search<'a> {
        let problem = state.problem();
        let mut search = Search {
            problem,
            proposals: Proposals::new(state),
            turns: Turns::new(),
            probe: Probe::new(state),
            spent: Spent::default(),
            allowance,
            fine: 0.0,
            score: state.score(),
            changes: Changes::new(),
            before: Changes::new(),
        };
        for guest in 0..problem.guests.len() {
            search.spent.replace(Spent::default(), cost(problem, guest, state.spot(guest)));
        }
        search
    }

    /// Returns a typical worsening of the score by a change: the lowest decile of 1000 samples.
    fn typical_change(&mut self, state: &State<'_>, random: &mut Random) -> f64 {
        let mut worse = Vec::new();
        for _ in 0..1000 {
            let kind = random.below(KINDS);
            if self.proposals.propose(kind, state, random, &mut self.changes) {
                let change = self.probe.after(state, &self.changes) - self.score;
                if change > 0.0 && self.probe.counted_delta() == 0 {
                    worse.push(change);
                }
            }
        }
        worse.sort_by(f64::total_cmp);
        worse.get(worse.len() / 10).copied().unwrap_or(0.0).max(1e-9)
    }

    /// Tries a change, and keeps it if the score is good enough for this temperature.
    fn trial(&mut self, state: &mut State<'_>, heat: f64, random: &mut Random) {
        let kind = self.turns.next(random);
        if !self.proposals.propose(kind, state, random, &mut self.changes) {
            return;
        }
        let mut spent = self.spent;
        self.before.clear();
        for &(guest, to) in &self.changes {
            let from = state.spot(guest);
            self.before.push((guest, from));
            spent.replace(cost(self.problem, guest, from), cost(self.problem, guest, to));
        }
        let too_many = spent.copies > self.allowance.copies && spent.copies > self.spent.copies;
        if too_many || self.before == self.changes {
            return;
        }
        let price =
            |spent: Spent| spent.price(self.allowance) + spent.excess(self.allowance) as f64 * self.fine;
        let worse = self.probe.after(state, &self.changes) - self.score + price(spent) - price(self.spent);
        let good = worse <= 0.0 || (worse < MAX_INCREASE * heat && random.share() < (-worse / heat).exp());
        // Limits are checked last because the check is expensive and few changes reach it.
        if !good || !state.change(&self.changes) {
            return;
        }
        self.turns.keep(kind);
        self.probe.refresh(state);
        self.score = self.probe.score();
        self.spent = spent;
        for &(guest, to) in &self.changes {
            self.proposals.note(guest, to);
        }
    }
}
