//! The architecture check: the dependency table, the linkage of pure crates, the rules for source files, and the protocol
//! map.

mod dependencies;
mod protocol;
mod sources;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// Checks every rule and reports all violations.
///
/// # Errors
/// Fails if a rule is broken, if cargo fails, or if the sources cannot be read.
pub(crate) fn check() -> Result<()> {
    let root = workspace_root()?;
    let metadata = dependencies::Metadata::read(&root)?;
    let mut violations = dependencies::violations(&metadata);
    violations.extend(dependencies::linkage_violations(&root)?);
    violations.extend(sources::violations(&root, &metadata.directories())?);
    violations.extend(protocol::violations(&root)?);
    for violation in &violations {
        crate::report(violation);
    }
    match violations.len() {
        0 => {
            crate::report("architecture: every rule holds");
            Ok(())
        }
        count => {
            bail!("{count} violations of the architecture (ARCHITECTURE.md says why each rule is there)")
        }
    }
}

pub(crate) fn workspace_root() -> Result<PathBuf> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    directory.parent().map(PathBuf::from).context("xtask has no parent directory")
}
