//! The search for a plan: first by single steps, then beyond single steps with a similar number of disk copies. The better
//! plan is returned.

use super::anneal::{SearchLimits, anneal};
use super::greedy::{MIN_GAIN, approximate_steepest, polish, steepest};
use super::order::order;
use super::plan::{Plan, Step, step};
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

/// Share of the disk copies of the faster search that another plan may make, because that search copies a few more than
/// single steps need.
const ALLOWED_COPIES_SHARE: f64 = 0.88;

/// Number of disk copies of the plan by single steps for which the other search should save one copy. Another choice
/// among equal steps often needs fewer copies.
const COPIES_PER_SPARED: usize = 20;

/// Ratio to the score after single steps above which the search beyond them counts as unsuccessful.
const UNSUCCESSFUL_RATIO: f64 = 0.95;

/// Minimum gain for the copy of a disk, as a share of the score.
const MIN_GAIN_PER_COPY_SHARE: f64 = 5e-4;

/// Default number of evaluations for each instance.
const EVALUATIONS_PER_INSTANCE: usize = 6000;

/// Maximum default number of evaluations.
const MAX_EVALUATIONS: usize = 24_000_000;

/// Number of instances up to which the search beyond single steps runs at least twice, in two threads.
const MAX_INSTANCES_FOR_TWO_THREADS: usize = 1000;

/// Number of instances below which each thread repeats the search, as often as the instances fit into this number.
const REPEATED_INSTANCES: usize = 240;
const MAX_REPETITIONS: usize = 4;

/// Maximum number of examined steps for the plan by the best single steps. A faster search replaces it in clusters that
/// probably need more.
const MAX_EXAMINED_STEPS: usize = 5_000_000;

/// Share of the score below which the gain by single steps shows that the cluster was balanced, so that moves must be worth
/// their cost.
const BALANCED_GAIN_SHARE: f64 = 0.01;

/// Finds a plan. The same problem and goal give the same plan on every machine, unless time cuts the search.
pub fn search(problem: &Problem, goal: &Goal, time: &TimeLimit<'_>) -> Plan {
    let mut random = Random::new(goal.seed);
    let mut state = State::new(problem, &problem.start);
    let start = state.score();
    let empty = Plan { start, steps: Vec::new() };
    if start < goal.min_score || goal.max_length == 0 {
        return empty;
    }
    let (greedy, [copies, max_copies]) = by_single_steps(&mut state, goal, &mut random, time);
    let limits = SearchLimits {
        max_copies: copies,
        min_gain_per_copy: MIN_GAIN_PER_COPY_SHARE * greedy.end(),
        evaluations: goal
            .evaluations
            .unwrap_or_else(|| (problem.guests.len() * EVALUATIONS_PER_INSTANCE).min(MAX_EVALUATIONS)),
    };
    let final_search = FinalPlacementSearch { problem, start_placements: state.placements(), limits };
    let mut annealed = if problem.guests.len() <= MAX_INSTANCES_FOR_TWO_THREADS {
        final_search.search_in_two_threads(&mut random, time)
    } else {
        final_search.search_once(&mut random, time)
    };
    // An unsuccessful search is repeated with all copies, because some counts have a high weight and one more step may
    // lower them.
    if annealed.end() > UNSUCCESSFUL_RATIO * greedy.end() && copies < max_copies && !time.has_cut() {
        let limits = SearchLimits { max_copies, ..limits };
        let other = FinalPlacementSearch { limits, ..final_search }.search_once(&mut random, time);
        if other.end() < annealed.end() {
            annealed = other;
        }
    }
    let [annealed, greedy] =
        [annealed, greedy].map(|plan| without_small_gains(problem, truncate_at_best(plan, goal), goal));
    let balanced = start - greedy.end() < BALANCED_GAIN_SHARE * start;
    let better = if balanced {
        limits.cost(&annealed) <= limits.cost(&greedy)
    } else {
        annealed.end() <= greedy.end()
    };
    let is_kept = goal.keeps_single_steps
        && annealed.end() >= greedy.end() - MIN_GAIN
        && greedy.steps.len() <= annealed.steps.len();
    let better = better && !is_kept;
    if better { annealed } else { greedy }
}

/// Searches for final placements beyond single steps, from one placement.
#[derive(Clone, Copy)]
struct FinalPlacementSearch<'b> {
    problem: &'b Problem,
    start_placements: &'b [Placement],
    limits: SearchLimits,
}

impl FinalPlacementSearch<'_> {
    /// Searches once, and returns the plan that leads to the result; without steps if it copies too many disks.
    fn search_once(self, random: &mut Random, time: &TimeLimit<'_>) -> Plan {
        let FinalPlacementSearch { problem, start_placements, limits } = self;
        let mut state = State::new(problem, start_placements);
        anneal(&mut state, limits, random, time);
        let targets = state.placements().to_vec();
        let mut state = State::new(problem, &problem.start);
        let start = state.score();
        let mut plan = Plan { start, steps: order(&mut state, &targets) };
        if plan.copies() > limits.max_copies {
            return Plan { start, steps: Vec::new() };
        }
        let remaining_copies = limits.max_copies - plan.copies();
        plan.steps.extend(polish(&mut state, remaining_copies, limits.min_gain_per_copy, random, time));
        plan
    }

    /// Returns the best plan of several searches with different random numbers.
    fn search_repeatedly(self, random: &mut Random, time: &TimeLimit<'_>) -> Plan {
        let mut best = self.search_once(random, time);
        for _ in 1..(REPEATED_INSTANCES / self.problem.guests.len().max(1)).clamp(1, MAX_REPETITIONS) {
            if time.has_cut() {
                break;
            }
            best = self.better(best, self.search_once(random, time));
        }
        best
    }

    /// Returns the better plan of searches in two threads. The result does not depend on the number of cores.
    fn search_in_two_threads(self, random: &mut Random, time: &TimeLimit<'_>) -> Plan {
        let mut other_random = Random::new(random.next_bits());
        let (one, other) = run_in_parallel(
            || self.search_repeatedly(random, time),
            || self.search_repeatedly(&mut other_random, time),
        );
        self.better(one, other)
    }

    /// Returns the plan with the lower cost; the first of equal ones.
    fn better(self, one: Plan, other: Plan) -> Plan {
        if self.limits.cost(&other) < self.limits.cost(&one) { other } else { one }
    }
}

/// Returns the plan by single steps, and the numbers of copies that another plan should and may make. Takes the best step
/// each time if the cluster is small enough.
fn by_single_steps(
    state: &mut State<'_>,
    goal: &Goal,
    random: &mut Random,
    time: &TimeLimit<'_>,
) -> (Plan, [usize; 2]) {
    let start = state.score();
    let (guests, hosts) = (state.problem().guests.len(), state.problem().hosts.len());
    // About half of the instances move. Before each step, every instance could move in four ways through every node.
    if (guests * guests * 2).saturating_mul(hosts) <= MAX_EXAMINED_STEPS {
        let plan = Plan { start, steps: steepest(state, goal.max_length, time) };
        let copies = plan.copies();
        return (plan, [copies - copies / COPIES_PER_SPARED, copies]);
    }
    let mut plan = Plan { start, steps: approximate_steepest(state, random, goal.max_length, time) };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "less than there are steps")]
    let copies = (plan.copies() as f64 * ALLOWED_COPIES_SHARE) as usize;
    // The search beyond single steps starts at the end of these steps. The plan itself keeps only the steps within the
    // allowed copies.
    let mut copies_so_far = 0;
    let within = plan.steps.iter().take_while(|step| {
        copies_so_far += step.kind.copies();
        copies_so_far <= copies
    });
    let within = within.count();
    plan.steps.truncate(within);
    (plan, [copies; 2])
}

/// Drops steps that gain less than `min_gain` once the score is below `min_gain_limit`, and steps that are not possible
/// without them.
fn without_small_gains(problem: &Problem, mut plan: Plan, goal: &Goal) -> Plan {
    let gains_enough =
        |before: f64, after: f64| before >= goal.min_gain_limit || before - after >= goal.min_gain;
    let scores = plan.steps.iter().map(|step| step.score);
    if std::iter::once(plan.start)
        .chain(scores.clone())
        .zip(scores)
        .all(|(before, after)| gains_enough(before, after))
    {
        return plan;
    }
    let mut state = State::new(problem, &problem.start);
    let made = plan.steps.iter().filter_map(|Step { guest, to, .. }| {
        let (before, from) = (state.score(), state.placement(*guest));
        let done = step(&mut state, *guest, *to)?;
        if gains_enough(before, done.score) {
            return Some(done);
        }
        state.restore(*guest, from);
        None
    });
    plan.steps = made.collect();
    plan
}

/// Truncates a plan: before a score above that of the start, after a score that is good enough, and after the lowest score.
/// So a plan can be interrupted after any step without harm.
fn truncate_at_best(mut plan: Plan, goal: &Goal) -> Plan {
    plan.steps.truncate(goal.max_length);
    if let Some(worse) = plan.steps.iter().position(|step| step.score > plan.start + MIN_GAIN) {
        plan.steps.truncate(worse);
    }
    if let Some(enough) = plan.steps.iter().position(|step| step.score < goal.min_score) {
        plan.steps.truncate(enough + 1);
    }
    let mut best = (plan.start, 0);
    for (index, step) in plan.steps.iter().enumerate() {
        if step.score < best.0 - MIN_GAIN {
            best = (step.score, index + 1);
        }
    }
    plan.steps.truncate(best.1);
    plan
}
