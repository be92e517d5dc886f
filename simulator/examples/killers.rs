//! Runs scenario files and random clusters until a run fails, and prints the failed run. `dev/mutants` runs it on each
//! mutant.

#![allow(clippy::print_stdout, reason = "a program that prints what it finds")]

use ha_simulator::random_run::{Campaign, SeedRange, Size};
use ha_simulator::scenario::Scenario;
use ha_simulator::world::World;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;

/// Size of a random run. The run is short and has many faults: a broken rule appears within seconds of virtual time, or
/// never.
const SIZE: Size = Size { nodes: 5, resources: 8, faults_ms: 400_000 };

/// Exit status 0: no killer failed. 1: the printed killer failed. 2: invalid arguments.
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match first_failure(&arguments) {
        Ok(None) => println!("none of {}", arguments.join(", ")),
        Ok(Some(failure)) => {
            println!("{failure}");
            return ExitCode::FAILURE;
        }
        Err(problem) => {
            println!("{problem}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

/// Runs all scenario files, given as files or directories, and then the seeds, given as `A..B`. Returns the first failure.
fn first_failure(arguments: &[String]) -> Result<Option<String>, String> {
    let is_seeds = |argument: &&String| argument.contains("..") && !argument.contains('/');
    let (seeds, paths): (Vec<&String>, Vec<&String>) = arguments.iter().partition(is_seeds);
    let mut files = Vec::new();
    for path in paths {
        let before = files.len();
        collect(Path::new(path), &mut files);
        if files.len() == before {
            return Err(format!("{path}: no such scenario"));
        }
    }
    files.sort();
    if let Some(failure) = scenarios(files)? {
        return Ok(Some(failure));
    }
    for argument in seeds {
        if let Some(failure) = random(SeedRange::parse(argument)?)? {
            return Ok(Some(failure));
        }
    }
    Ok(None)
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) {
    if let Ok(entries) = fs::read_dir(path) {
        for entry in entries.flatten() {
            collect(&entry.path(), files);
        }
    } else if path.is_file() && path.extension().is_some_and(|extension| extension == "yaml") {
        files.push(path.to_owned());
    }
}

/// Runs the files on all cores until one fails.
fn scenarios(files: Vec<PathBuf>) -> Result<Option<String>, String> {
    let next = Mutex::new(files.into_iter());
    let failed = Mutex::new(None);
    let next_file = || next.lock().ok()?.next();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            scope.spawn(|| {
                while let Some(file) = next_file() {
                    let Some(failure) = scenario(&file).transpose() else { continue };
                    if let Ok(mut next) = next.lock() {
                        *next = Vec::new().into_iter();
                    }
                    if let Ok(mut failed) = failed.lock() {
                        failed.get_or_insert(failure);
                    }
                }
            });
        }
    });
    failed.into_inner().map_err(|_| "a run panicked".to_owned())?.transpose()
}

fn scenario(file: &Path) -> Result<Option<String>, String> {
    let name = file.display().to_string();
    let text = fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
    let scenario = Scenario::parse(&name, &text, file.parent().unwrap_or(Path::new(".")))?;
    let mut world = World::new(scenario)?;
    if catch_unwind(AssertUnwindSafe(|| world.run())).is_err() {
        return Ok(Some(format!("scenario {name}: panicked")));
    }
    let violated =
        world.violations().first().map(|violation| format!("{}: {}", violation.invariant, violation.detail));
    let summary = world.summary();
    let unmet = summary["expect"].as_array().into_iter().flatten().find(|check| check["ok"] != true);
    let unmet = unmet.map(|check| format!("{}, but: {}", check["check"], check["got"]));
    Ok(violated.or(unmet).map(|detail| format!("scenario {name}: {detail}")))
}

fn random(seeds: SeedRange) -> Result<Option<String>, String> {
    let result =
        Campaign { seeds, size: SIZE, stop_at_first_failure: true, max_shrunk_seeds: 0 }.run(&|_, _| {})?;
    let Some(failed) = result.failed.first() else { return Ok(None) };
    let first = failed.violations.first();
    let (invariant, detail) =
        first.map_or(("", ""), |violation| (violation.invariant, violation.detail.as_str()));
    Ok(Some(format!("seed {}: {invariant}: {detail}", failed.seed)))
}
