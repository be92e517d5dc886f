//! Runs seeds until one fails and prints what it broke: what `dev/mutants` asks of each deliberate fault.

#![allow(clippy::print_stdout, reason = "a program that prints what it finds")]

use ha_simulator::random_run::{Campaign, Seeds, Size};
use std::process::ExitCode;

/// Short and crowded: a broken rule shows within seconds of virtual time, or not at all.
const SIZE: Size = Size { nodes: 5, resources: 8, faults_ms: 400_000 };

fn main() -> ExitCode {
    let seeds = std::env::args().nth(1).unwrap_or_else(|| "0..500".to_owned());
    let seeds = match Seeds::parse(&seeds) {
        Ok(seeds) => seeds,
        Err(problem) => {
            println!("{problem}");
            return ExitCode::from(2);
        }
    };
    let campaign = Campaign { seeds, size: SIZE, stop_at_first: true, shrunk: 0 };
    let done = match campaign.run(&|_, _| {}) {
        Ok(done) => done,
        Err(problem) => {
            println!("{problem}");
            return ExitCode::from(2);
        }
    };
    match done.failed.first() {
        None => {
            println!("none of {} seeds failed", done.ran);
            ExitCode::SUCCESS
        }
        Some(failed) => {
            let first = failed.violations.first();
            let (invariant, detail) =
                first.map_or(("", ""), |found| (found.invariant, found.detail.as_str()));
            println!("seed {}: {invariant}: {detail}", failed.seed);
            ExitCode::FAILURE
        }
    }
}
