//! Files that a chore writes and a test compares.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;

/// Writes a file; with `check` only compares it. A difference is an error that names the chore to run.
pub(crate) fn write(path: &Path, text: &str, chore: &str, check: bool) -> Result<()> {
    if check {
        let current = fs::read_to_string(path).unwrap_or_default();
        ensure!(current == text, "{} is out of date; run: cargo run -p ha-xtask -- {chore}", path.display());
        return Ok(());
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
