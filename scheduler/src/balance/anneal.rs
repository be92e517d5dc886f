//! The search beyond single steps: moves, exchanges and returns, which may worsen the score in an early phase.
//!
//! Simulated annealing (Kirkpatrick, Gelatt, Vecchi 1983) over the final placements of instances, not over the steps.
//! The final placement of an instance is its start or one step away from it. The cost of moves is a part of the
//! minimized function.

use super::cooling::{Landscape, exponential, run_cooling_schedule};
use super::moves::StepKind;
use super::plan::Plan;
use super::problem::{Placement, Problem};
use super::random::Random;
use super::state::{ChangeEvaluator, State};
use super::time_limit::TimeLimit;
use kind_selector::KindSelector;
use proposals::{Changes, KIND_COUNT, Proposals};

mod kind_selector;
mod proposals;

/// The price of moves, and the length of the search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SearchLimits {
    /// Minimum gain in score for the copy of one disk.
    pub(super) min_gain_per_copy: f64,
    /// Number of changes to evaluate.
    pub(super) evaluations: usize,
}

/// Cost of a step without its copies, as a share of the price of a copy.
const STEP_COST_SHARE: f64 = 0.2;

/// Cost of the current placement relative to the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct MoveCost {
    copies: usize,
    migrations: usize,
    steps: usize,
}

impl MoveCost {
    /// Returns the gain in score that justifies this cost.
    fn required_gain(self, limits: SearchLimits) -> f64 {
        limits.min_gain_per_copy
            * (self.copies as f64
                + STEP_COST_SHARE * self.steps as f64
                + 0.1 * STEP_COST_SHARE * self.migrations as f64)
    }

    fn replace(&mut self, old: MoveCost, new: MoveCost) {
        self.copies = self.copies + new.copies - old.copies;
        self.migrations = self.migrations + new.migrations - old.migrations;
        self.steps = self.steps + new.steps - old.steps;
    }
}

impl SearchLimits {
    /// Returns the score at the end of a plan plus the price of its steps.
    pub(super) fn cost(self, plan: &Plan) -> f64 {
        let move_cost =
            MoveCost { copies: plan.copies(), migrations: plan.migrations(), steps: plan.steps.len() };
        plan.end_score() + move_cost.required_gain(self)
    }
}

/// Returns the cost of moving an instance from its start to a placement.
fn cost(problem: &Problem, service: usize, to: Placement) -> MoveCost {
    let start = problem.start_placements[service];
    match StepKind::between(problem, service, start, to) {
        _ if start == to => MoveCost::default(),
        Some(kind) => MoveCost { copies: kind.copies(), migrations: kind.migrations(), steps: 1 },
        // Two steps through an intermediate placement.
        None => MoveCost { copies: 2, migrations: 1, steps: 2 },
    }
}

/// Searches for the final placements of all instances, from the placement in `state`, and returns their cost. The cost does
/// not increase.
pub(super) fn anneal(
    state: &mut State<'_>,
    limits: SearchLimits,
    random: &mut Random,
    time: &TimeLimit<'_>,
) -> f64 {
    let search = AnnealingSearch::new(state, limits);
    if search.proposals.is_empty() {
        return search.cost();
    }
    let cost_before = search.cost();
    let placements = state.placements().to_vec();
    let mut landscape = PlacementLandscape { search, state };
    run_cooling_schedule(&mut landscape, limits.evaluations, random, time);
    let PlacementLandscape { search, state } = landscape;
    let cost = search.cost();
    if cost > cost_before {
        for (service, placement) in placements.into_iter().enumerate() {
            if state.placement(service) != placement {
                state.restore(service, placement);
            }
        }
    }
    cost.min(cost_before)
}

/// Maximum increase of the cost that is considered, in multiples of the temperature. The search would accept a larger
/// increase with a probability below one in a million.
const MAX_INCREASE: f64 = 15.0;

/// The search together with the placement that it changes.
struct PlacementLandscape<'w, 's, 'a> {
    search: AnnealingSearch<'a>,
    state: &'w mut State<'s>,
}

impl Landscape for PlacementLandscape<'_, '_, '_> {
    fn estimate_typical_increase(&mut self, random: &mut Random) -> f64 {
        self.search.estimate_typical_increase(self.state, random)
    }

    fn try_change(&mut self, temperature: f64, random: &mut Random) {
        self.search.try_change(self.state, temperature, random);
    }
}

struct AnnealingSearch<'a> {
    problem: &'a Problem,
    proposals: Proposals<'a>,
    kind_selector: KindSelector<KIND_COUNT>,
    change_evaluator: ChangeEvaluator,
    move_cost: MoveCost,
    limits: SearchLimits,
    score: f64,
    changes: Changes,
    before: Changes,
}

impl<'a> AnnealingSearch<'a> {
    fn new(state: &State<'a>, limits: SearchLimits) -> AnnealingSearch<'a> {
        let problem = state.problem();
        let mut search = AnnealingSearch {
            problem,
            proposals: Proposals::new(state),
            kind_selector: KindSelector::new(),
            change_evaluator: ChangeEvaluator::new(state),
            move_cost: MoveCost::default(),
            limits,
            score: state.score(),
            changes: Changes::new(),
            before: Changes::new(),
        };
        for service in 0..problem.services.len() {
            search.move_cost.replace(MoveCost::default(), cost(problem, service, state.placement(service)));
        }
        search
    }

    /// Returns the score plus the price of the moves.
    fn cost(&self) -> f64 {
        self.score + self.move_cost.required_gain(self.limits)
    }

    /// Returns by how much a change that worsens the score typically worsens it: the lowest decile of 1000 samples.
    fn estimate_typical_increase(&mut self, state: &State<'_>, random: &mut Random) -> f64 {
        let mut worse = Vec::new();
        for _ in 0..1000 {
            let kind = random.draw_below(KIND_COUNT);
            if self.proposals.propose(kind, state, random, &mut self.changes) {
                let change = self.change_evaluator.score_after(state, &self.changes) - self.score;
                if change > 0.0 && self.change_evaluator.count_score_delta() == 0 {
                    worse.push(change);
                }
            }
        }
        worse.sort_by(f64::total_cmp);
        worse.get(worse.len() / 10).copied().unwrap_or(0.0).max(1e-9)
    }

    /// Tries a change, and keeps it if the score is good enough for this temperature.
    fn try_change(&mut self, state: &mut State<'_>, temperature: f64, random: &mut Random) {
        let kind = self.kind_selector.draw_kind(random);
        if !self.proposals.propose(kind, state, random, &mut self.changes) {
            return;
        }
        let mut move_cost = self.move_cost;
        self.before.clear();
        for &(service, to) in &self.changes {
            let from = state.placement(service);
            self.before.push((service, from));
            move_cost.replace(cost(self.problem, service, from), cost(self.problem, service, to));
        }
        if self.before == self.changes {
            return;
        }
        let worse = self.change_evaluator.score_after(state, &self.changes)
            + move_cost.required_gain(self.limits)
            - self.cost();
        let is_accepted = worse <= 0.0
            || (worse < MAX_INCREASE * temperature
                && random.draw_unit_f64() < exponential(-worse / temperature));
        // Limits are checked last because the check is expensive and few changes reach it.
        if !is_accepted || !state.change(&self.changes) {
            return;
        }
        self.kind_selector.record_kept(kind);
        self.change_evaluator.refresh(state);
        self.score = self.change_evaluator.score();
        self.move_cost = move_cost;
        for &(service, to) in &self.changes {
            self.proposals.record_placement(service, to);
        }
    }
}
