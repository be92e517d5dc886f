//! Quality and duration of plans: `cargo bench -p ha-scheduler --bench balance -- [--nodes N] [--single N] [--hbal N]
//! [--interruptions N] [--family NAME] [--size NODESxINSTANCES] [--seed N]`.
//!
//! Each line compares the single-step search with the search of this project on one seeded cluster.
//!
//! - `--nodes` is the largest size (default 200). `--size` selects one size, which need not be in the list.
//! - `--single` is the largest size for the exhaustive single-step search (default 100).
//! - `--interruptions` is the number of steps after which each plan is interrupted and computed again (default 0). The
//!   output contains the highest ratio to the score without an interruption, and the number of ratios above 1.02.
//! - If Ganeti's `hbal` is installed, the score of every cluster is compared with that of `hbal`. Up to `--hbal` nodes
//!   (default 20), `hbal` also plans the same file. Otherwise the output states that `hbal` is missing.

#![allow(clippy::print_stdout, reason = "a program that prints figures")]

#[path = "balance/clusters.rs"]
mod clusters;

use clusters::{Family, cluster};
use ha_scheduler::balance::greedy::steepest_descent;
use ha_scheduler::balance::plan::Plan;
use ha_scheduler::balance::problem::{Problem, Settings};
use ha_scheduler::balance::score::{score, values};
use ha_scheduler::balance::search::{Goal, search};
use ha_scheduler::balance::state::State;
use ha_scheduler::balance::text;
use ha_scheduler::balance::time_limit::TimeLimit;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

const SIZES: [(usize, usize); 7] =
    [(8, 32), (20, 80), (40, 200), (100, 600), (200, 1500), (400, 4000), (1000, 100_000)];

/// Maximum duration of a search in seconds: the target for the largest size.
const BUDGET_SECONDS: f64 = 60.0;

fn main() {
    let number_option = |name: &str, default: usize| {
        let mut words = std::env::args().skip_while(|word| word != name).skip(1);
        words.next().and_then(|number| number.parse().ok()).unwrap_or(default)
    };
    let (largest, largest_single, largest_for_hbal) =
        (number_option("--nodes", 200), number_option("--single", 100), number_option("--hbal", 20));
    let interruptions = number_option("--interruptions", 0);
    let only_family = std::env::args().skip_while(|word| word != "--family").nth(1);
    let seed = number_option("--seed", 1) as u64;
    let size = std::env::args().skip_while(|word| word != "--size").nth(1).and_then(|size| {
        let (nodes, instances) = size.split_once('x')?;
        Some((nodes.parse().ok()?, instances.parse().ok()?))
    });
    let sizes = size.map_or_else(
        || SIZES.into_iter().filter(|(nodes, _)| *nodes <= largest).collect(),
        |size: (usize, usize)| vec![size],
    );
    let hbal = hbal_version();
    println!(
        "{}",
        hbal.clone().unwrap_or_else(|| "hbal is not installed: nothing is compared with it".to_owned())
    );
    println!(
        "{:10} {:>11} {:>9} | {:>9} {:>5} {:>6} {:>7} | {:>9} {:>5} {:>6} {:>7} {:>6} | {:>5} {:>5} | hbal",
        "family",
        "size",
        "start",
        "single",
        "steps",
        "copies",
        "s",
        "ours",
        "steps",
        "copies",
        "s",
        "GiB",
        "ratio",
        "again"
    );
    for (nodes, instances) in sizes {
        for (family, name) in Family::ALL {
            if only_family.as_deref().is_some_and(|only_family| only_family != name) {
                continue;
            }
            let file = cluster(family, nodes, instances, seed);
            line(name, &file, (nodes, instances), nodes <= largest_single, interruptions);
            if hbal.is_some() {
                print!(" {}", compare_with_hbal(&file, nodes <= largest_for_hbal, &own_values(&file)));
            }
            println!();
        }
    }
    println!("peak memory {}", peak_memory().unwrap_or_else(|| "unknown".to_owned()));
}

/// Returns the score of the first group, and its values in order.
fn own_values(file: &str) -> Vec<f64> {
    let cluster = text::read(file).expect("what the generator writes can be read");
    let problem = Problem::new(&cluster, 0, &Settings::default());
    let mut score_and_values = vec![score(&problem, &problem.start_placements)];
    score_and_values.extend(values(&problem, &problem.start_placements));
    score_and_values
}

/// Sums over the plans of all groups.
#[derive(Default)]
struct Outcome {
    score: f64,
    steps: usize,
    copies: usize,
    gib: i64,
}

impl Outcome {
    fn of(plans: &[(Problem, Plan)]) -> Outcome {
        let mut outcome = Outcome::default();
        for (problem, plan) in plans {
            outcome.score += plan.end_score();
            outcome.steps += plan.steps.len();
            outcome.copies += plan.copies();
            outcome.gib += plan.copied_mib(problem) / 1024;
        }
        outcome
    }
}

fn line(
    name: &str,
    file: &str,
    (nodes, instances): (usize, usize),
    runs_single_steps: bool,
    interruptions: usize,
) {
    let cluster = text::read(file).expect("what the generator writes can be read");
    let problems: Vec<Problem> =
        (0..cluster.groups.len()).map(|group| Problem::new(&cluster, group, &Settings::default())).collect();
    let start: f64 = problems.iter().map(|problem| score(problem, &problem.start_placements)).sum();
    print!("{name:10} {:>11} {start:9.4} | ", format!("{nodes}x{instances}"));
    let planned = |problems: &[Problem], search: &dyn Fn(&Problem) -> Plan| {
        let begin = Instant::now();
        let plans: Vec<_> = problems.iter().map(|problem| (problem.clone(), search(problem))).collect();
        let outcome = Outcome::of(&plans);
        (plans, outcome, begin.elapsed().as_secs_f64())
    };
    let mut single_step_score = None;
    if runs_single_steps {
        let (_, outcome, seconds) = planned(&problems, &|problem| {
            let mut state = State::new(problem, &problem.start_placements);
            let start = state.score();
            Plan {
                start_score: start,
                steps: steepest_descent(&mut state, usize::MAX, &TimeLimit::unlimited()),
            }
        });
        let Outcome { score, steps, copies, .. } = outcome;
        print!("{score:9.4} {steps:5} {copies:6} {seconds:7.2} | ");
        single_step_score = Some(score);
    } else {
        print!("{:>9} {:>5} {:>6} {:>7} | ", "-", "-", "-", "-");
    }
    let ours = |problem: &Problem| {
        let begin = Instant::now();
        let time = TimeLimit::new(move || begin.elapsed().as_secs_f64() / BUDGET_SECONDS);
        search(problem, &Goal::default(), &time)
    };
    let (plans, Outcome { score, steps, copies, gib }, seconds) = planned(&problems, &ours);
    let ratio = single_step_score
        .map_or_else(|| "-".to_owned(), |runs_single_steps| format!("{:.2}", score / runs_single_steps));
    print!("{score:9.4} {steps:5} {copies:6} {seconds:7.2} {gib:6} | {ratio:>5}");
    let after: Vec<Problem> = plans
        .into_iter()
        .map(|(problem, plan)| Problem { start_placements: plan.placements(&problem), ..problem })
        .collect();
    let next_plan = planned(&after, &ours).1;
    print!(" {:5} {:7.4} |", next_plan.steps, score - next_plan.score);
    if interruptions > 0 {
        let Interrupted { worst, above, count, returns } = problems
            .iter()
            .fold(Interrupted::default(), |sum, problem| sum.add(problem, &ours, interruptions));
        print!(" interrupted: worst {worst:.3}, {above} of {count} above 1.02, {returns} returns |");
    }
}

/// Results of plans that are interrupted and computed again.
#[derive(Default)]
struct Interrupted {
    /// Highest ratio of the final score to that without an interruption.
    worst: f64,
    /// Number of interruptions after which the ratio is above 1.02.
    above: usize,
    count: usize,
    /// Number of steps back to a node that the same instance left before the interruption.
    returns: usize,
}

impl Interrupted {
    /// Interrupts a plan at this number of evenly distributed steps.
    fn add(
        mut self,
        problem: &Problem,
        search: &dyn Fn(&Problem) -> Plan,
        interruptions: usize,
    ) -> Interrupted {
        let plan = search(problem);
        for index in 1..=interruptions.min(plan.steps.len().saturating_sub(1)) {
            let step_count = (plan.steps.len() * index / (interruptions + 1)).max(1);
            let applied_plan =
                Plan { start_score: plan.start_score, steps: plan.steps[..step_count].to_vec() };
            let remaining_plan =
                search(&Problem { start_placements: applied_plan.placements(problem), ..problem.clone() });
            let ratio = remaining_plan.end_score() / plan.end_score().max(1e-9);
            self.worst = self.worst.max(ratio);
            self.above += usize::from(ratio > 1.02);
            self.count += 1;
            self.returns += remaining_plan
                .steps
                .iter()
                .filter(|step| {
                    let earlier = applied_plan.steps.iter().filter(|earlier| earlier.service == step.service);
                    let left_nodes: Vec<usize> = earlier
                        .flat_map(|earlier_step| {
                            earlier_step.from.nodes().filter(|&node| !earlier_step.to.contains(node))
                        })
                        .collect();
                    step.to.nodes().any(|node| !step.from.contains(node) && left_nodes.contains(&node))
                })
                .count();
        }
        self
    }
}

/// Returns the peak resident memory of this process with its unit, from `/proc/self/status`.
fn peak_memory() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    Some(status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().to_owned())
}

/// Returns the version of `hbal`; `None` if it is not installed.
fn hbal_version() -> Option<String> {
    let output = Command::new("hbal").arg("--version").output().ok()?;
    String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned)
}

/// Compares the score and its values by Ganeti's `hbal` with `ours`, and also the plan if `plan` is set. Only the first
/// group is compared.
fn compare_with_hbal(file: &str, plan: bool, ours: &[f64]) -> String {
    let path: PathBuf = std::env::temp_dir().join(format!("balance-{}.data", std::process::id()));
    if let Err(error) = std::fs::write(&path, file) {
        return format!("cannot write the file for hbal: {error}");
    }
    let run = |arguments: &[&str]| {
        let output =
            Command::new("hbal").arg("-t").arg(&path).args(["-G", "group0"]).args(arguments).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
    };
    let table = run(&["-l", "0", "-vvv"]);
    let hbal_scores = coefficients(&table);
    let scores = if hbal_scores.len() == ours.len() {
        let worst = ours
            .iter()
            .zip(&hbal_scores)
            .map(|(score, hbal_score)| (score - hbal_score).abs())
            .fold(0.0, f64::max);
        format!("scores differ by {worst:.1e} at most")
    } else {
        format!("scores cannot be compared: {} values instead of {}", hbal_scores.len(), ours.len())
    };
    let planned = if plan {
        let begin = Instant::now();
        let said = run(&[]);
        let seconds = begin.elapsed().as_secs_f64();
        let improved = said.lines().find(|line| line.starts_with("Cluster score improved"));
        let end = improved.and_then(|line| line.split_whitespace().last()).unwrap_or("-");
        let copies = said.matches(" r:").count() + said.matches("a=r:").count();
        format!(", its plan: {end}, {copies} copies, {seconds:.1} s")
    } else {
        String::new()
    };
    // A leftover file in the directory for temporary files is harmless.
    let _ = std::fs::remove_file(&path);
    scores + &planned
}

/// Parses the overall score and the values from the table that `-vvv` prints.
fn coefficients(text: &str) -> Vec<f64> {
    let overall = text.lines().find_map(|line| line.strip_prefix("Initial coefficients: overall "));
    let rows = text.lines().filter(|line| line.starts_with("   ")).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [_, value, weight] if weight.starts_with('x') => value.parse().ok(),
            _ => None,
        }
    });
    overall.and_then(|score| score.trim().parse().ok()).into_iter().chain(rows).collect()
}
