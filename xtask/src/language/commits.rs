//! The commit messages that the guide holds for.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::texts::{Kind, Text};

/// Time from which commit messages follow the guide. A time rather than a commit: a shallow clone may lack the commit.
const SINCE: &str = "2026-11-24T18:00:00Z";

/// Returns the short hash and the first line of the message of each commit since then, merges aside.
///
/// # Errors
/// Git cannot be run. A directory without history has no commits.
pub(super) fn read(root: &Path) -> Result<Vec<(String, Text)>> {
    let listed = Command::new("git")
        .args(["log", "--no-merges", "--format=%h %s", "--since", SINCE])
        .current_dir(root)
        .output()
        .context("git log")?;
    Ok(parsed(&String::from_utf8_lossy(&listed.stdout)))
}

fn parsed(listed: &str) -> Vec<(String, Text)> {
    let commits = listed.lines().filter_map(|line| line.split_once(' '));
    let text = |words: &str| Text { kind: Kind::Commit, line: 1, words: words.to_owned() };
    commits.map(|(hash, words)| (hash.to_owned(), text(words))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_have_a_hash_and_a_subject() {
        let subject = Text { kind: Kind::Commit, line: 1, words: "docs: fix a link".to_owned() };
        assert_eq!(parsed("1a2b docs: fix a link\n"), [("1a2b".to_owned(), subject)]);
        assert_eq!(parsed(""), []);
    }

    #[test]
    fn a_directory_without_history_has_no_commits() {
        assert_eq!(read(Path::new("/")).unwrap(), []);
    }
}
