//! The search for a plan: a quick one by single steps, then one that looks further with as many copies of disks, and the better of both.

use super::anneal::{Allowance, anneal};
use super::greedy::{LEAST_GAIN, lazy, polish, steepest};
use super::order::order;
use super::plan::{Plan, Step};
use super::problem::{Problem, Spot};
use super::random::Random;
use super::state::State;
use super::threads::side_by_side;
use std::sync::atomic::{AtomicU64, Ordering};

/// When a plan is good or long enough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// A score below this is good enough.
    pub min_score: f64,
    /// Once the score is below `min_gain_limit`, a last step must gain this.
    pub min_gain: f64,
    /// The score from which on `min_gain` counts.
    pub min_gain_limit: f64,
    /// At most as many steps.
    pub max_length: usize,
    /// What chance follows.
    pub seed: u64,
    /// Candidates to be tried for each instance.
    pub effort: usize,
}

impl Goal {
    /// The effort for which there is time in so many seconds.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    pub fn effort_within(seconds: f64) -> usize {
        (EFFORT_PER_SECOND * seconds).clamp(1.0, 1e7) as usize
    }
}

/// Candidates for each instance, for each second that may be used.
const EFFORT_PER_SECOND: f64 = 600.0;

impl Default for Goal {
    fn default() -> Goal {
        Goal {
            min_score: 1e-9,
            min_gain: 0.01,
            min_gain_limit: 0.1,
            max_length: usize::MAX,
            seed: 1,
            effort: 6000,
        }
    }
}

/// How many disks may be copied for each one that the quicker search copies: it copies a few more than single steps must.
const COPIES: f64 = 0.88;

/// Of so many copies that the best single steps make, one is spared: among steps that gain alike another choice needs a few less.
const SPARED: usize = 20;

/// Above this share of the score after single steps the search beyond them has led nowhere.
const NOWHERE: f64 = 0.95;

/// The share of the time after which it is not tried once more.
const ONCE_MORE: f64 = 0.2;

/// What the copy of a disk must gain, as a share of the score.
const PRICE: f64 = 5e-4;

/// In clusters with more instances no more candidates are tried than with so many.
const MOST_GUESTS: usize = 2700;

/// In clusters with no more instances the search beyond single steps is done twice at least, in two threads.
const MOST_TWICE: usize = 1000;

/// In clusters with fewer instances each thread searches as many times as they fit into this, but at most so many times.
const REPEATED: usize = 240;
const MOST_REPEATED: usize = 4;

/// The share of the time after which no search is begun again.
const SHORT_TIME: f64 = 0.2;

/// Steps that may be looked at for the plan by best single steps; in clusters that probably need more a quicker search takes over.
const MOST_LOOKS: usize = 5_000_000;

/// A plan by single steps that gains less than this share shows that the cluster was balanced: from then on moves must pay.
const BALANCED: f64 = 0.01;

/// Says which share of the time is used up; from 1 on the search ends.
pub type Clock<'a> = &'a mut dyn FnMut() -> f64;

/// Finds a plan. As long as less than 0.4 of the time is used up, the same problem gives the same plan.
pub fn search(problem: &Problem, goal: &Goal, clock: Clock<'_>) -> Plan {
    let mut random = Random::new(goal.seed);
    let mut state = State::new(problem, &problem.start);
    let start = state.score();
    let empty = Plan { start, steps: Vec::new() };
    if start < goal.min_score || goal.max_length == 0 {
        return empty;
    }
    let (greedy, [copies, most_copies]) = by_single_steps(&mut state, goal, &mut random, clock);
    let allowance = Allowance {
        copies,
        price: PRICE * greedy.end(),
        trials: problem.guests.len().min(MOST_GUESTS).saturating_mul(goal.effort),
    };
    let beyond = Beyond { problem, begin: state.spots(), allowance };
    let mut annealed = if problem.guests.len() <= MOST_TWICE {
        beyond.in_two_threads(&mut random, clock)
    } else {
        beyond.once(&mut random, clock)
    };
    // Once more with all copies where that has led nowhere: a count that one more step would lower weighs much.
    if annealed.end() > NOWHERE * greedy.end() && copies < most_copies && clock() < ONCE_MORE {
        let allowance = Allowance { copies: most_copies, ..allowance };
        let other = Beyond { allowance, ..beyond }.once(&mut random, clock);
        if other.end() < annealed.end() {
            annealed = other;
        }
    }
    let [annealed, greedy] = [annealed, greedy].map(|plan| cut(plan, goal));
    let balanced = start - greedy.end() < BALANCED * start;
    let better = if balanced {
        allowance.cost(&annealed) <= allowance.cost(&greedy)
    } else {
        annealed.end() <= greedy.end()
    };
    if better { annealed } else { greedy }
}

/// Searches from one placement over where instances should end, which go beyond single steps.
#[derive(Clone, Copy)]
struct Beyond<'b> {
    problem: &'b Problem,
    begin: &'b [Spot],
    allowance: Allowance,
}

impl Beyond<'_> {
    /// One search, and the plan that leads to its end; no steps if that copies too much.
    fn once(self, random: &mut Random, clock: Clock<'_>) -> Plan {
        let Beyond { problem, begin, allowance } = self;
        let mut state = State::new(problem, begin);
        anneal(&mut state, allowance, random, clock);
        let targets = state.spots().to_vec();
        let mut state = State::new(problem, &problem.start);
        let start = state.score();
        let mut plan = Plan { start, steps: order(&mut state, &targets) };
        if plan.copies() > allowance.copies {
            return Plan { start, steps: Vec::new() };
        }
        let left = allowance.copies - plan.copies();
        plan.steps.extend(polish(&mut state, left, allowance.price, random, clock));
        plan
    }

    /// The best of several searches by different chance.
    fn repeated(self, random: &mut Random, clock: Clock<'_>) -> Plan {
        let mut best = self.once(random, clock);
        for _ in 1..(REPEATED / self.problem.guests.len().max(1)).clamp(1, MOST_REPEATED) {
            if clock() > SHORT_TIME {
                break;
            }
            best = self.better(best, self.once(random, clock));
        }
        best
    }

    /// The better end of searches in two threads; which one it is does not depend on how many cores there are.
    fn in_two_threads(self, random: &mut Random, clock: Clock<'_>) -> Plan {
        // The other thread sees the time that this one last saw.
        let now = AtomicU64::new(clock().to_bits());
        let mut other_random = Random::new(random.next_bits());
        let (one, other) = side_by_side(
            || {
                let mut clock = || {
                    let seen = clock();
                    now.store(seen.to_bits(), Ordering::Relaxed);
                    seen
                };
                self.repeated(random, &mut clock)
            },
            || {
                let mut clock = || f64::from_bits(now.load(Ordering::Relaxed));
                self.repeated(&mut other_random, &mut clock)
            },
        );
        self.better(one, other)
    }

    /// The one of two plans that is worth more; the first of equals.
    fn better(self, one: Plan, other: Plan) -> Plan {
        if self.allowance.cost(&other) < self.allowance.cost(&one) { other } else { one }
    }
}

/// The plan by single steps, the best one each time while that can be paid for, and how many copies another plan should
/// and may make.
fn by_single_steps(
    state: &mut State<'_>,
    goal: &Goal,
    random: &mut Random,
    clock: Clock<'_>,
) -> (Plan, [usize; 2]) {
    let start = state.score();
    let (guests, hosts) = (state.problem().guests.len(), state.problem().hosts.len());
    // Each of about half of the instances moves, and before it each could go by way of each node in four manners.
    if (guests * guests * 2).saturating_mul(hosts) <= MOST_LOOKS {
        let plan = Plan { start, steps: steepest(state, goal.max_length, clock) };
        let copies = plan.copies();
        return (plan, [copies - copies / SPARED, copies]);
    }
    let mut plan = Plan { start, steps: lazy(state, random, goal.max_length, clock) };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "less than there are steps")]
    let copies = (plan.copies() as f64 * COPIES) as usize;
    // The search beyond single steps begins where they end; as a plan only what copies no more counts.
    let mut kept = 0;
    let within = plan.steps.iter().take_while(|step| {
        kept += step.kind.copies();
        kept <= copies
    });
    let within = within.count();
    plan.steps.truncate(within);
    (plan, [copies; 2])
}

/// Leaves out what follows a score that is good enough, what no longer lowers it, and last steps that gain too little.
fn cut(mut plan: Plan, goal: &Goal) -> Plan {
    plan.steps.truncate(goal.max_length);
    if let Some(enough) = plan.steps.iter().position(|step| step.score < goal.min_score) {
        plan.steps.truncate(enough + 1);
    }
    let mut best = (plan.start, 0);
    for (index, step) in plan.steps.iter().enumerate() {
        if step.score < best.0 - LEAST_GAIN {
            best = (step.score, index + 1);
        }
    }
    plan.steps.truncate(best.1);
    let before = |steps: &[Step]| steps.iter().rev().nth(1).map_or(plan.start, |step| step.score);
    while let Some(last) = plan.steps.last() {
        let previous = before(&plan.steps);
        if previous >= goal.min_gain_limit || previous - last.score >= goal.min_gain {
            break;
        }
        plan.steps.pop();
    }
    plan
}
