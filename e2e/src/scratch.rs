//! A folder of its own for each test's cluster, below the build folder, where logs stay when the test fails.

use std::path::PathBuf;

use anyhow::{Context, Result};

/// The folder for the cluster of the test called `name`; it need not exist.
///
/// # Errors
/// When the running program's own path is unknown.
pub fn folder(name: &str) -> Result<PathBuf> {
    Ok(build_folder()?.join("e2e").join(format!("{name}-{}", std::process::id())))
}

/// The folder with the programs that cargo built, in which the running one is.
///
/// # Errors
/// When the running program's own path is unknown, or cargo did not build it.
pub fn build_folder() -> Result<PathBuf> {
    let current = std::env::current_exe().context("this program's own path is unknown")?;
    let build = current.ancestors().find(|folder| folder.join("deps").is_dir());
    Ok(build.context("this program is in no folder of cargo's")?.to_owned())
}
