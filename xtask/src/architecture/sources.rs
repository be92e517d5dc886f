//! The rules for source files: the first line, the location, and the files that may name etcd's client.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Returns a sentence for every rule that a source file breaks.
pub(crate) fn violations(root: &Path, packages: &[&Path]) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for package in packages {
        collect(package, &mut files)?;
    }
    files.sort();
    let mut violations = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let path = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        violations.extend(broken_rules(&path, &text));
    }
    Ok(violations)
}

/// Collects the Rust files in a package's `src`, `tests`, `benches` and `examples`.
fn collect(package: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let mut directories: Vec<PathBuf> =
        ["src", "tests", "benches", "examples"].iter().map(|part| package.join(part)).collect();
    while let Some(directory) = directories.pop() {
        if !directory.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    Ok(())
}

fn broken_rules(path: &str, text: &str) -> Vec<String> {
    let mut violations = Vec::new();
    if path.ends_with("/mod.rs") {
        violations.push(format!("{path}: move it next to its directory, as DIRECTORY.rs"));
    }
    if !text.starts_with("//! ") {
        violations.push(format!("{path}: begin with one `//!` sentence that says what lives there"));
    }
    // The name is in two halves, so that this file itself does not contain it.
    let client = concat!("etcd", "_client");
    if text.contains(client) && !path.starts_with("store/src/etcd") {
        violations.push(format!("{path}: mentions {client}; only store/src/etcd* may"));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str, expected: usize) {
        assert_eq!(broken_rules(path, text).len(), expected, "{path}: {text:.40}");
    }

    #[test]
    fn each_architecture_violation_is_found() {
        check("store/src/key.rs", "//! Keys.\n", 0);
        check("store/src/key.rs", "use std;\n", 1);
        check("store/src/key/mod.rs", "//! Keys.\n", 1);
        let naming = format!("//! Keys.\nuse {};\n", concat!("etcd", "_client"));
        check("controller/src/key.rs", &naming, 1);
        check("store/src/etcd/key.rs", &naming, 0);
    }
}
