//! The search for a plan: first by single steps, then beyond single steps with a similar number of disk copies. The better
//! plan is returned.

use super::anneal::{SearchLimits, anneal};
use super::greedy::{MIN_GAIN, approximate_steepest_descent, improve_until_local_optimum, steepest_descent};
use super::order::Order;
use super::plan::{Plan, Step, make_step};
use super::problem::{Placement, Problem};
use super::random::Random;
use super::state::State;
use super::threads::run_in_parallel;
use super::time_limit::TimeLimit;

/// The conditions under which a plan is good or long enough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// Score below which the plan is good enough.
    pub min_score: f64,
    /// Minimum gain of the last step once the score is below `min_gain_limit`.
    pub min_gain: f64,
    /// Score below which `min_gain` applies.
    pub min_gain_limit: f64,
    /// Maximum number of steps.
    pub max_length: usize,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Number of changes to evaluate in each search beyond single steps; `None` for a number that grows with the cluster.
    pub evaluations: Option<usize>,
    /// `true` if the plan by single steps is kept unless another one ends lower or has fewer steps. Otherwise another plan
    /// that ends equal but copies fewer disks is preferred.
    pub keeps_single_steps: bool,
}

impl Default for Goal {
    fn default() -> Goal {
        Goal {
            min_score: 1e-9,
            min_gain: 0.01,
            min_gain_limit: 0.1,
            max_length: usize::MAX,
            seed: 1,
            evaluations: None,
            keeps_single_steps: false,
        }
    }
}

/// Minimum gain in score for the copy of a disk, multiplied by the number of online nodes.
///
/// The price does not depend on anything that a step changes. Moves that gain enough at the start of a plan therefore
/// also gain enough after any of its steps: an interrupted plan is continued, not reverted.
const COPY_PRICE: f64 = 0.08;

/// Default number of evaluations for each instance of a small cluster. With this number of instances, it is doubled.
const EVALUATIONS_PER_INSTANCE: usize = 3000;
const DOUBLED_INSTANCES: usize = 2000;

/// Maximum default number of evaluations.
const MAX_EVALUATIONS: usize = 24_000_000;

/// Number of instances up to which the search beyond single steps runs at least twice, in two threads.
const MAX_INSTANCES_FOR_TWO_THREADS: usize = 1000;

/// Number of instances below which each thread repeats the search, as often as the instances fit into this number.
const REPEATED_INSTANCES: usize = 960;
const MAX_REPETITIONS: usize = 30;

/// Number of instances up to which the score of a plan does not rise after a step. In larger clusters, an interrupted plan
/// finds other moves.
const MAX_INSTANCES_WITHOUT_RISES: usize = 64;

/// Maximum ratio of the final score of an interrupted plan to the score without the interruption.
const CONTINUED_RATIO: f64 = 1.02;

/// Maximum number of examined steps for the plan by the best single steps. A faster search replaces it in clusters that
/// probably need more.
const MAX_EXAMINED_STEPS: usize = 5_000_000;

/// Share of the score below which the gain by single steps shows that the cluster was balanced, so that moves must be worth
/// their cost.
const BALANCED_GAIN_SHARE: f64 = 0.01;

/// Finds a plan. The same problem and goal give the same plan on every machine, unless the time limit ends the search
/// early.
///
/// The search is repeated from the end of the plan as long as it gains at least `min_gain`, so that a later search on the
/// result gains less.
pub fn search(problem: &Problem, goal: &Goal, time: &TimeLimit<'_>) -> Plan {
    let mut plan = search_once(problem, goal, time);
    let mut remaining_problem = problem.clone();
    while !plan.steps.is_empty() && plan.steps.len() < goal.max_length && !time.has_reached_limit() {
        remaining_problem.set_start_placements(plan.placements(problem));
        let remaining_goal = Goal { max_length: goal.max_length - plan.steps.len(), ..*goal };
        let next = search_once(&remaining_problem, &remaining_goal, time);
        if next.start_score - next.end_score() < goal.min_gain.max(MIN_GAIN) {
            break;
        }
        plan.steps.extend(next.steps);
    }
    plan
}

/// Searches once, by single steps and beyond them.
fn search_once(problem: &Problem, goal: &Goal, time: &TimeLimit<'_>) -> Plan {
    let mut random = Random::new(goal.seed);
    let mut state = State::new(problem, &problem.start_placements);
    let start = state.score();
    if start < goal.min_score || goal.max_length == 0 {
        return Plan { start_score: start, steps: Vec::new() };
    }
    let greedy = search_by_single_steps(&mut state, goal, &mut random, time);
    let online = problem.nodes.iter().filter(|node| !node.is_offline).count();
    let limits = SearchLimits {
        min_gain_per_copy: COPY_PRICE / online.max(1) as f64,
        evaluations: goal.evaluations.unwrap_or_else(|| default_evaluations(problem.services.len())),
    };
    let final_search = FinalPlacementSearch { problem, start_placements: state.placements(), limits, goal };
    let annealed = if problem.services.len() <= MAX_INSTANCES_FOR_TWO_THREADS {
        final_search.search_in_two_threads(&mut random, time)
    } else {
        final_search.search_once(&mut random, time)
    };
    let greedy = remove_ineffective_steps(problem, greedy, goal);
    let was_balanced = start - greedy.end_score() < BALANCED_GAIN_SHARE * start;
    let is_better = if was_balanced {
        limits.cost(&annealed) <= limits.cost(&greedy)
    } else {
        annealed.end_score() <= greedy.end_score()
    };
    let is_kept = goal.keeps_single_steps
        && annealed.end_score() >= greedy.end_score() - MIN_GAIN
        && greedy.steps.len() <= annealed.steps.len();
    let is_chosen = is_better && !is_kept && !leaves_other_instances(problem, &annealed, &greedy);
    if is_chosen { annealed } else { greedy }
}

/// Returns `true` if the plan leaves an instance on an offline node that the other plan moves away.
fn leaves_other_instances(problem: &Problem, plan: &Plan, other: &Plan) -> bool {
    let is_left = |placement: Placement| placement.nodes().any(|node| problem.nodes[node].is_offline);
    let mut placements = plan.placements(problem).into_iter().zip(other.placements(problem));
    placements.any(|(from, to)| is_left(from) && !is_left(to))
}

fn default_evaluations(instances: usize) -> usize {
    let per_instance = EVALUATIONS_PER_INSTANCE * (DOUBLED_INSTANCES + instances) / DOUBLED_INSTANCES;
    (instances * per_instance).min(MAX_EVALUATIONS)
}

/// Searches for final placements beyond single steps, from one placement.
#[derive(Clone, Copy)]
struct FinalPlacementSearch<'b> {
    problem: &'b Problem,
    start_placements: &'b [Placement],
    limits: SearchLimits,
    goal: &'b Goal,
}

impl FinalPlacementSearch<'_> {
    /// Searches once, and returns the plan that leads to the result.
    fn search_once(self, random: &mut Random, time: &TimeLimit<'_>) -> Plan {
        let (targets, _) = self.find_targets(random, time);
        self.plan_to(&targets, random, time)
    }

    /// Returns final placements and their cost.
    fn find_targets(self, random: &mut Random, time: &TimeLimit<'_>) -> (Vec<Placement>, f64) {
        let mut state = State::new(self.problem, self.start_placements);
        let cost = anneal(&mut state, self.limits, random, time);
        (state.placements().to_vec(), cost)
    }

    /// Returns the plan that leads to these placements.
    fn plan_to(self, targets: &[Placement], random: &mut Random, time: &TimeLimit<'_>) -> Plan {
        let FinalPlacementSearch { problem, limits, goal, .. } = self;
        let begin = State::new(problem, &problem.start_placements);
        let start = begin.score();
        let run = |order: &Order| {
            let steps = order.run(&mut begin.clone(), targets);
            let plan =
                remove_ineffective_steps(problem, Plan { start_score: start, steps: steps.clone() }, goal);
            let is_small = problem.services.len() <= MAX_INSTANCES_WITHOUT_RISES;
            (if is_small { truncate_before_rise(plan) } else { plan }, steps)
        };
        let (mut plan, steps) = run(&Order::descending(&begin, targets));
        let scores = || std::iter::once(start).chain(steps.iter().map(|step| step.score));
        let rises = scores().zip(scores().skip(1)).any(|(before, after)| after > before + MIN_GAIN);
        if let Some(order_with_small_rises) =
            rises.then(|| Order::with_small_rises(&begin, targets)).flatten()
        {
            let (other, _) = run(&order_with_small_rises);
            if other.end_score() <= plan.end_score() + MIN_GAIN {
                plan = other;
            }
        }
        let mut state = State::new(problem, &plan.placements(problem));
        plan.steps.extend(improve_until_local_optimum(&mut state, limits.min_gain_per_copy, random, time));
        remove_ineffective_steps(problem, plan, goal)
    }

    /// Returns the best plan of several searches with different random numbers.
    fn search_repeatedly(self, random: &mut Random, time: &TimeLimit<'_>) -> Plan {
        let mut best = self.search_once(random, time);
        for _ in 1..(REPEATED_INSTANCES / self.problem.services.len().max(1)).clamp(1, MAX_REPETITIONS) {
            if time.has_reached_limit() {
                break;
            }
            // The steps to placements of a higher cost cannot be a better plan.
            let (targets, cost) = self.find_targets(random, time);
            if cost < self.limits.cost(&best) - MIN_GAIN {
                best = self.cheaper_plan(best, self.plan_to(&targets, random, time));
            }
        }
        best
    }

    /// Returns the better plan of searches in two threads. The result does not depend on the number of cores.
    fn search_in_two_threads(self, random: &mut Random, time: &TimeLimit<'_>) -> Plan {
        let mut other_random = Random::new(random.draw_bits());
        let (plan, other_plan) = run_in_parallel(
            || self.search_repeatedly(random, time),
            || self.search_repeatedly(&mut other_random, time),
        );
        self.cheaper_plan(plan, other_plan)
    }

    /// Returns the plan with the lower cost; the first of equal ones.
    fn cheaper_plan(self, plan: Plan, other_plan: Plan) -> Plan {
        if self.limits.cost(&other_plan) < self.limits.cost(&plan) { other_plan } else { plan }
    }
}

/// Returns the plan by single steps. Takes the best step each time if the cluster is small enough.
fn search_by_single_steps(
    state: &mut State<'_>,
    goal: &Goal,
    random: &mut Random,
    time: &TimeLimit<'_>,
) -> Plan {
    let start = state.score();
    let (services, nodes) = (state.problem().services.len(), state.problem().nodes.len());
    // About half of the instances move. Before each step, every instance could move in four ways through every node.
    let steps = if (services * services * 2).saturating_mul(nodes) <= MAX_EXAMINED_STEPS {
        steepest_descent(state, goal.max_length, time)
    } else {
        approximate_steepest_descent(state, random, goal.max_length, time)
    };
    Plan { start_score: start, steps }
}

/// Truncates a plan before a score that is exceeded later, unless the plan could as well end there. A plan that is
/// interrupted at that score cannot be continued, because no step may end above the initial score.
fn truncate_before_rise(mut plan: Plan) -> Plan {
    let (mut max_later_score, end_score) = (plan.end_score(), plan.end_score());
    let mut length = plan.steps.len();
    for (index, step) in plan.steps.iter().enumerate().rev() {
        if max_later_score > step.score + MIN_GAIN && step.score > end_score * CONTINUED_RATIO {
            length = index + 1;
        }
        max_later_score = max_later_score.max(step.score);
    }
    plan.steps.truncate(length);
    plan
}

/// Drops the steps that a plan must not or need not make.
fn remove_ineffective_steps(problem: &Problem, plan: Plan, goal: &Goal) -> Plan {
    truncate_at_best(without_small_gains(problem, truncate_at_best(plan, goal), goal), goal)
}

/// Drops steps that gain less than `min_gain` once the score is below `min_gain_limit`, and steps that are not possible
/// without them.
fn without_small_gains(problem: &Problem, mut plan: Plan, goal: &Goal) -> Plan {
    let gains_enough =
        |before: f64, after: f64| before >= goal.min_gain_limit || before - after >= goal.min_gain;
    let scores = plan.steps.iter().map(|step| step.score);
    if std::iter::once(plan.start_score)
        .chain(scores.clone())
        .zip(scores)
        .all(|(before, after)| gains_enough(before, after))
    {
        return plan;
    }
    let mut state = State::new(problem, &problem.start_placements);
    let kept_steps = plan.steps.iter().filter_map(|Step { service, to, .. }| {
        let (before, from) = (state.score(), state.placement(*service));
        let made_step = make_step(&mut state, *service, *to)?;
        if gains_enough(before, made_step.score) {
            return Some(made_step);
        }
        state.restore(*service, from);
        None
    });
    plan.steps = kept_steps.collect();
    plan
}

/// Truncates a plan: before a score above that of the start, after a score that is good enough, and after the lowest score.
/// So a plan can be interrupted after any step without harm.
fn truncate_at_best(mut plan: Plan, goal: &Goal) -> Plan {
    plan.steps.truncate(goal.max_length);
    if let Some(first_worse) = plan.steps.iter().position(|step| step.score > plan.start_score + MIN_GAIN) {
        plan.steps.truncate(first_worse);
    }
    if let Some(first_good_enough) = plan.steps.iter().position(|step| step.score < goal.min_score) {
        plan.steps.truncate(first_good_enough + 1);
    }
    let mut best = (plan.start_score, 0);
    for (index, step) in plan.steps.iter().enumerate() {
        if step.score < best.0 - MIN_GAIN {
            best = (step.score, index + 1);
        }
    }
    plan.steps.truncate(best.1);
    plan
}

#[cfg(test)]
mod tests {
    use super::super::moves::StepKind;
    use super::super::plan::{Plan, Step};
    use super::super::problem::Placement;
    use super::truncate_before_rise;

    #[test]
    fn plan_ends_before_a_score_that_is_exceeded_later() {
        let length = |scores: &[f64]| {
            let placement_on = |primary| Placement { primary, secondary: None };
            let step = |&score: &f64| Step {
                service: 0,
                from: placement_on(0),
                to: placement_on(1),
                kind: StepKind::MoveTo,
                score,
            };
            truncate_before_rise(Plan { start_score: 10.0, steps: scores.iter().map(step).collect() })
                .steps
                .len()
        };
        for (scores, expected) in [
            (vec![], 0),
            (vec![3.0, 1.0, 0.3], 3),
            // The exchange of the second and third step could not be made after the first step.
            (vec![1.0, 3.0, 0.3], 1),
            (vec![5.0, 1.0, 3.0, 0.5, 0.8, 0.3], 2),
            // The plan could as well end after the first step.
            (vec![0.301, 0.4, 0.3], 3),
        ] {
            assert_eq!(length(&scores), expected, "{scores:?}");
        }
    }
}
