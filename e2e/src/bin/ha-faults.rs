//! Program of the fault suite: injects seeded faults into a cluster on this machine, prints a line for each, and prints a report.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use ha_e2e::faults::campaign::{self, Settings};
use ha_e2e::program::{exit_code_of, print_line};
use ha_e2e::scratch;

/// Inject faults into a cluster of real programs and check the invariants
#[derive(Parser)]
struct Arguments {
    /// Duration in minutes
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    minutes: u32,
    /// Number of faults; default: 18 per minute
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    faults: Option<u32>,
    /// Random seed of the faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    exit_code_of("error", run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let settings = Settings {
        seed: arguments.seed,
        faults: arguments.faults.unwrap_or(arguments.minutes * 18),
        duration_ms: u64::from(arguments.minutes) * 60_000,
    };
    let directory = scratch::directory(&format!("faults-{}", settings.seed))?;
    let mut out = std::io::stdout();
    writeln!(out, "seed {}, {} faults in {} minutes", settings.seed, settings.faults, arguments.minutes)?;
    let report = campaign::run(&directory, settings, &mut |line| {
        // A closed standard output must not stop the campaign.
        let _ = writeln!(out, "{line}");
    })?;
    print_line(&format!("\n{report}"))
}
