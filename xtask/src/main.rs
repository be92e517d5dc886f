//! Project chores, run as `cargo run -p ha-xtask -- CHORE`.

mod architecture;
mod generated;
mod language;
mod metrics;
mod reference;
mod scenarios;
mod schemas;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "xtask", about = "Project chores")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Check that crates depend only on what ARCHITECTURE.md allows, and that source files keep the house rules
    Architecture,
    /// Check that texts keep the rules of docs/contributing/language.md
    Language,
    /// Write the reference of every metric to docs/metrics.md
    Metrics {
        /// Only compare, and fail when it is out of date
        #[arg(long)]
        check: bool,
    },
    /// Write the reference of every field and every reason to docs/reference
    Reference {
        /// Only compare, and fail when a page is out of date
        #[arg(long)]
        check: bool,
    },
    /// Write the index of the simulator's scenarios
    Scenarios {
        /// Only compare, and fail when it is out of date
        #[arg(long)]
        check: bool,
    },
    /// Write the schema of every kind to docs/schemas
    Schemas {
        /// Only compare, and fail when a file is out of date
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().chore {
        Chore::Architecture => architecture::check(),
        Chore::Language => language::check(),
        Chore::Metrics { check } => metrics::write(check),
        Chore::Reference { check } => reference::write(check),
        Chore::Scenarios { check } => scenarios::write(check),
        Chore::Schemas { check } => schemas::write(check),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints one line on the standard error stream.
#[expect(clippy::print_stderr, reason = "this program speaks to a person, there is no log")]
pub(crate) fn report(line: &str) {
    eprintln!("{line}");
}
