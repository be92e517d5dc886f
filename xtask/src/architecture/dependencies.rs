//! The allowed dependencies between the crates of the workspace, compared with `cargo metadata`, and the crates that
//! pure crates link, directly or indirectly, with features resolved for each pure crate alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// The table of ARCHITECTURE.md: each crate with the workspace crates that it may depend on.
const ALLOWED_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("ha-api-types", &[]),
    ("ha-scheduler", &["ha-api-types"]),
    ("ha-store", &["ha-api-types"]),
    ("ha-runtime", &["ha-api-types"]),
    ("ha-pki", &["ha-api-types"]),
    ("ha-controller", &["ha-api-types", "ha-scheduler", "ha-store", "ha-runtime", "ha-pki"]),
    ("ha-node-agent", &["ha-api-types", "ha-store", "ha-runtime", "ha-pki"]),
    ("hactl", &["ha-api-types", "ha-scheduler", "ha-simulator", "ha-simulation-server", "ha-pki"]),
    ("ha-simulator", &["ha-api-types", "ha-scheduler", "ha-store", "ha-controller", "ha-node-agent"]),
    ("ha-simulation-server", &["ha-api-types", "ha-store", "ha-runtime", "ha-controller", "ha-simulator"]),
    ("ha-e2e", &["ha-api-types"]),
    // Completions and man pages need only the definition of the command line.
    ("ha-xtask", &["ha-api-types", "hactl"]),
];

/// External crates that only one workspace crate may use, because each is hidden behind an interface.
const RESERVED_DEPENDENCIES: &[(&str, &str)] = &[("etcd-client", "ha-store")];

/// Crates with the external and workspace crates that they must not link. This rule keeps the cores pure: the simulator
/// links every dependency of the cores.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("ha-api-types", &["tokio", "etcd-client", "nix", "reqwest"]),
    ("ha-scheduler", &["tokio", "etcd-client", "nix", "reqwest", "rand"]),
    ("ha-simulator", &["etcd-client", "ha-runtime", "axum", "hyper", "nix", "reqwest"]),
    ("ha-simulation-server", &["etcd-client"]),
    ("hactl", &["etcd-client"]),
];

/// The part of `cargo metadata` that the rules use.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    manifest_path: String,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
}

impl Metadata {
    /// Reads the metadata of the packages in the workspace.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version", "1", "--no-deps"])
            .current_dir(root)
            .output()
            .context("cargo metadata could not be run")?;
        if !output.status.success() {
            bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        serde_json::from_slice(&output.stdout).context("cargo metadata printed something else than expected")
    }

    /// Returns the directory of each package.
    pub(crate) fn directories(&self) -> Vec<&Path> {
        self.packages.iter().filter_map(|package| Path::new(&package.manifest_path).parent()).collect()
    }
}

/// Returns a sentence for every dependency that the table does not allow.
pub(crate) fn violations(metadata: &Metadata) -> Vec<String> {
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED_DEPENDENCIES.iter().copied().collect();
    let mut violations = Vec::new();
    for package in &metadata.packages {
        let name = package.name.as_str();
        let Some(permitted) = allowed.get(name) else {
            violations.push(format!(
                "{name}: is not in the dependency table; add it there with what it may depend on"
            ));
            continue;
        };
        for dependency in &package.dependencies {
            let target = dependency.name.as_str();
            if target != name && allowed.contains_key(target) && !permitted.contains(&target) {
                violations.push(format!("{name}: depends on {target}, which the table does not allow"));
            }
            for (reserved, owner) in RESERVED_DEPENDENCIES {
                if target == *reserved && name != *owner {
                    violations.push(format!("{name}: depends on {reserved}, which only {owner} may"));
                }
            }
        }
    }
    violations
}

/// Returns a sentence for every forbidden crate that is linked.
pub(crate) fn linkage_violations(root: &Path) -> Result<Vec<String>> {
    let mut violations = Vec::new();
    for (package, forbidden) in FORBIDDEN {
        let linked = linked_packages(root, package)?;
        for name in *forbidden {
            if linked.contains(*name) {
                violations.push(format!(
                    "{package}: links {name}; `cargo tree -p {package} -e normal -i {name}` shows through what"
                ));
            }
        }
    }
    Ok(violations)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(package: &str, dependencies: &[&str], expected: usize) {
        let metadata = Metadata {
            packages: vec![Package {
                name: package.to_owned(),
                manifest_path: String::new(),
                dependencies: dependencies
                    .iter()
                    .map(|name| Dependency { name: (*name).to_owned() })
                    .collect(),
            }],
        };
        assert_eq!(violations(&metadata).len(), expected, "{package} -> {dependencies:?}");
    }

    #[test]
    fn dependencies_outside_the_table_are_violations() {
        check("ha-scheduler", &["ha-api-types", "serde"], 0);
        check("ha-scheduler", &["ha-store"], 1);
        check("ha-controller", &["etcd-client", "ha-node-agent"], 2);
        check("ha-store", &["etcd-client"], 0);
        check("ha-newcomer", &[], 1);
    }
}
