//! The annealing search of `hactl balance` on another problem: `cargo bench -p ha-scheduler --bench roadef -- [MODEL
//! ASSIGNMENT [SAVED]] [--seconds N] [--seed N]`.
//!
//! Instances are those of the ROADEF/EURO 2012 challenge (machine reassignment), each in two files. SAVED is the file to
//! which the found assignment is written. Without files, seeded instances are used. An evaluator that shares no code with
//! the search checks the result and computes its cost.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints figures")]

#[path = "roadef/evaluator.rs"]
mod evaluator;
#[path = "roadef/instance.rs"]
mod instance;
#[path = "roadef/landscape.rs"]
mod landscape;

use ha_scheduler::balance::cooling::run_cooling_schedule;
use ha_scheduler::balance::random::Random;
use ha_scheduler::balance::time_limit::TimeLimit;
use instance::Instance;
use landscape::Assignment;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// Maximum number of candidates per process.
const SEARCH_EFFORT: usize = 20_000;

fn main() -> ExitCode {
    let mut files: Vec<String> = Vec::new();
    let (mut seconds, mut seed) = (20.0, 1);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().unwrap_or_default();
        let is_read = match word.as_str() {
            // Cargo adds this argument.
            "--bench" => true,
            "--seconds" => number().parse().map(|number| seconds = number).is_ok(),
            "--seed" => number().parse().map(|number| seed = number).is_ok(),
            file => {
                files.push(file.to_owned());
                !file.starts_with('-')
            }
        };
        if !is_read {
            eprintln!("error: {word}: --seconds N, --seed N and files are what is understood");
            return ExitCode::from(2);
        }
    }
    println!(
        "{:24} {:>14} {:>14} {:>7} {:>7} {:>6}",
        "instance", "cost before", "after", "ratio", "moved", "s"
    );
    if files.is_empty() {
        for (machines, processes) in [(4, 100), (50, 1000), (100, 5000)] {
            let name = format!("seeded {machines}x{processes}");
            let _ = solve(&name, &Instance::seeded(machines, processes, seed), seconds, seed);
        }
        return ExitCode::SUCCESS;
    }
    let [model, assignment, ..] = files.as_slice() else {
        eprintln!("error: two files are needed, the model and the assignment");
        return ExitCode::from(2);
    };
    match Instance::read(Path::new(model), Path::new(assignment)) {
        Ok(instance) => {
            let machines = solve(model, &instance, seconds, seed);
            let Some(saved) = files.get(2) else { return ExitCode::SUCCESS };
            let text: Vec<String> = machines.iter().map(usize::to_string).collect();
            match std::fs::write(saved, text.join(" ") + "\n") {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("error: {saved}: cannot be written: {error}");
                    ExitCode::from(2)
                }
            }
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Searches, checks the result, and prints a line.
fn solve(name: &str, instance: &Instance, seconds: f64, seed: u64) -> Vec<usize> {
    let begun = Instant::now();
    let before = evaluator::cost(instance, &instance.initial_machines);
    let mut assignment = Assignment::new(instance);
    let trials = instance.processes.len().saturating_mul(SEARCH_EFFORT);
    let time = TimeLimit::new(|| begun.elapsed().as_secs_f64() / seconds);
    run_cooling_schedule(&mut assignment, trials, &mut Random::new(seed), &time);
    let (cost, machines) = assignment.best();
    let elapsed_seconds = begun.elapsed().as_secs_f64();
    let checked = evaluator::cost(instance, machines);
    assert_eq!(checked, cost, "the cost that was kept up is the one by definition");
    if let Some(fault) = evaluator::first_violation(instance, &instance.initial_machines) {
        println!("  the assignment that was given: {fault}");
    } else {
        assert_eq!(
            evaluator::first_violation(instance, machines),
            None,
            "the assignment breaks no constraint"
        );
    }
    let moved = machines
        .iter()
        .zip(&instance.initial_machines)
        .filter(|(machine, initial_machine)| machine != initial_machine)
        .count();
    let ratio = checked as f64 / before.max(1) as f64;
    println!("{name:24} {before:>14} {checked:>14} {ratio:>7.4} {moved:>7} {elapsed_seconds:>6.1}");
    machines.to_vec()
}
