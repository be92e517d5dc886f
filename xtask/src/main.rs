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
#[command(name = "xtask", about = "Run maintenance tasks of the project")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Check crate dependencies and source files against ARCHITECTURE.md
    Architecture,
    /// Check texts against docs/contributing/language.md
    Language,
    /// Generate docs/metrics.md
    Metrics {
        /// Compare only; fail if the page is out of date
        #[arg(long)]
        check: bool,
    },
    /// Generate docs/reference
    Reference {
        /// Compare only; fail if a page is out of date
        #[arg(long)]
        check: bool,
    },
    /// Generate the index of the simulator scenarios
    Scenarios {
        /// Compare only; fail if the page is out of date
        #[arg(long)]
        check: bool,
    },
    /// Generate docs/schemas
    Schemas {
        /// Compare only; fail if a file is out of date
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
#[expect(clippy::print_stderr, reason = "the output is for the user, not a log")]
pub(crate) fn report(line: &str) {
    eprintln!("{line}");
}
