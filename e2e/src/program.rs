//! Output and exit status of this crate's programs.

use std::io::Write as _;
use std::process::{ExitCode, Termination};

use anyhow::{Context, Result};

/// Returns the exit status for an outcome. For a failure, also writes a line that starts with `program_name` to standard error.
pub fn exit_code_of<T: Termination>(program_name: &str, outcome: Result<T>) -> ExitCode {
    match outcome {
        Ok(outcome) => outcome.report(),
        Err(error) => {
            // An error is ignored, because no other output is available.
            let _ = writeln!(std::io::stderr(), "{program_name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the exit status of a suite: success if the suite passed. For an error, also writes a line to standard error.
pub fn exit_code_of_suite(passed: Result<bool>) -> ExitCode {
    exit_code_of("error", passed.map(|passed| if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

/// Prints one line to standard output.
///
/// # Errors
/// Fails if standard output is closed.
pub fn print_line(line: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{line}").context("standard output is closed")
}

/// Returns the FNV-1a hash of a text, which is the same in every build. It selects a case by the hash of a commit.
pub fn fnv1a_hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
