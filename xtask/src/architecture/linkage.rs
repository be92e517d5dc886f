//! The crates that pure crates link, directly or indirectly, with features resolved for each pure crate alone.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Crates with the external and workspace crates that they must not link. This rule keeps the cores pure: the simulator
/// links every dependency of the cores.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("ha-api-types", &["tokio", "etcd-client", "nix", "reqwest"]),
    ("ha-scheduler", &["tokio", "etcd-client", "nix", "reqwest", "rand"]),
    ("ha-simulator", &["etcd-client", "ha-runtime", "axum", "hyper", "nix", "reqwest"]),
    ("hactl", &["etcd-client", "ha-runtime", "axum"]),
];

/// Returns a sentence for every forbidden crate that is linked.
pub(crate) fn violations(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for (package, forbidden) in FORBIDDEN {
        let linked = linked_packages(root, package)?;
        for name in *forbidden {
            if linked.contains(*name) {
                found.push(format!(
                    "{package}: links {name}; `cargo tree -p {package} -e normal -i {name}` shows through what"
                ));
            }
        }
    }
    Ok(found)
}

/// Returns the names of all packages that `package` links, including itself.
fn linked_packages(root: &Path, package: &str) -> Result<BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--package", package, "--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .current_dir(root)
        .output()
        .context("cargo tree could not be run")?;
    if !output.status.success() {
        bail!("cargo tree -p {package} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let names = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect::<BTreeSet<_>>();
    if !names.contains(package) {
        bail!("cargo tree -p {package} did not list the package itself");
    }
    Ok(names)
}
