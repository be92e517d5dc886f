//! Runs seeds and prints what fails, shrunk to a scenario file: `ha-random-runs FROM..TO [--shrink]`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool that prints what it finds")]

use ha_simulator::random_run::{Size, run_value, scenario_of, shrink};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let range = arguments.first().and_then(|text| {
        let (from, to) = text.split_once("..")?;
        Some((from.parse::<u64>().ok()?, to.parse::<u64>().ok()?))
    });
    let Some((from, to)) = range else {
        eprintln!("usage: ha-random-runs FROM..TO [--shrink] [--log]");
        return ExitCode::from(2);
    };
    let asked = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let mut failed = 0;
    for seed in from..to {
        let scenario = scenario_of(seed, Size::default());
        let world = match run_value(&scenario) {
            Ok(world) => world,
            Err(error) => {
                eprintln!("seed {seed}: {error}");
                return ExitCode::from(2);
            }
        };
        if world.is_good() {
            continue;
        }
        failed += 1;
        for violation in world.violations() {
            println!(
                "seed {seed}: {:.3} s {}: {}",
                violation.at as f64 / 1000.0,
                violation.invariant,
                violation.detail
            );
        }
        if asked("--log") {
            println!("{}", world.timeline().join("\n"));
        }
        if asked("--shrink") {
            let small = shrink(&scenario, 150);
            if let (Ok(world), Ok(text)) = (run_value(&small), serde_yaml::to_string(&small)) {
                println!("{}\n# ---\n{text}", world.timeline().join("\n"));
            }
        }
    }
    println!("{failed} of {} seeds failed", to.saturating_sub(from));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
