//! What the programs of this crate have in common: how they end, and how they speak.

use std::io::Write as _;
use std::process::{ExitCode, Termination};

use anyhow::{Context, Result};

/// The exit status for an outcome; a failure also becomes a line on standard error, which begins with `who`.
pub fn end<T: Termination>(who: &str, outcome: Result<T>) -> ExitCode {
    match outcome {
        Ok(done) => done.report(),
        Err(error) => {
            // Nothing sensible can be done when standard error is gone.
            let _ = writeln!(std::io::stderr(), "{who}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints one line for people.
///
/// # Errors
/// When nobody reads any more.
pub fn say(line: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{line}").context("standard output is closed")
}

/// Returns a number that follows from a text, the same with every build (FNV-1a): to draw by the hash of a commit.
pub fn number(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}
