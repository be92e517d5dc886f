//! Directories for the clusters of tests, inside cargo's build directory. The logs of a failed test stay there.

use std::path::PathBuf;

use anyhow::{Context, Result};

/// Returns the directory for the cluster of the test `name`. The directory need not exist.
///
/// # Errors
/// Fails if the running program's own path is unknown.
pub fn directory(name: &str) -> Result<PathBuf> {
    Ok(build_directory()?.join("e2e").join(format!("{name}-{}", std::process::id())))
}

/// Returns the directory with the programs that cargo built, which contains the running program.
///
/// # Errors
/// Fails if the running program's own path is unknown, or if cargo did not build it.
pub fn build_directory() -> Result<PathBuf> {
    let current = std::env::current_exe().context("cannot determine the path of this program")?;
    let build = current.ancestors().find(|directory| directory.join("deps").is_dir());
    Ok(build.context("program is not in a build directory of cargo")?.to_owned())
}
