//! The language check: the rules of docs/contributing/language.md that a machine can check, over every text of the repository
//! and the commit messages.

mod rules;
mod texts;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use texts::{Kind, Text};

/// The guide, whose table of words the check reads.
const GUIDE_FILE: &str = "docs/contributing/language.md";

/// Files whose texts are not the project's prose: generated pages, and the patches of mutants, which quote code.
const EXCLUDED_PATHS: [&str; 6] = [
    "docs/reference/",
    "docs/schemas/",
    "simulator/mutants/",
    "simulator/scenarios/README.md",
    "charts/golden/",
    GUIDE_FILE,
];

/// Time from which commit messages follow the guide. The start is a time and not a commit, because a shallow clone may
/// lack the commit.
const GUIDE_EFFECTIVE_TIME: &str = "2026-11-24T18:00:00Z";

/// Checks every tracked file and the commit messages, and reports all violations.
///
/// # Errors
/// Fails if a text breaks a rule, if git fails, or if a file cannot be read.
pub(crate) fn check() -> Result<()> {
    let root = crate::architecture::workspace_root()?;
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(&root)
        .output()
        .context("git ls-files")?;
    let output = String::from_utf8(output.stdout).context("git ls-files")?;
    let guide = std::fs::read_to_string(root.join(GUIDE_FILE)).context(GUIDE_FILE)?;
    let glossary = rules::Glossary::read(&guide);
    let mut found = Vec::new();
    for path in
        output.lines().filter(|path| !EXCLUDED_PATHS.iter().any(|excluded| path.starts_with(excluded)))
    {
        // A tracked file may have been deleted since, and pictures are not text.
        let Ok(source) = std::fs::read_to_string(root.join(path)) else { continue };
        for text in texts::extract(path, &source) {
            let violations = rules::violations(&text, &glossary);
            found.extend(violations.iter().map(|message| format!("{path}:{}: {message}", text.line)));
        }
    }
    for (hash, subject) in commits(&root)? {
        found.extend(
            rules::violations(&subject, &glossary).iter().map(|message| format!("commit {hash}: {message}")),
        );
    }
    for violation in &found {
        crate::report(violation);
    }
    match found.len() {
        0 => {
            crate::report("language: every rule holds");
            Ok(())
        }
        count => bail!("{count} violations of the language guide ({GUIDE_FILE})"),
    }
}

/// Returns the short hash and the first line of the message of each commit since [`GUIDE_EFFECTIVE_TIME`], except merges.
///
/// # Errors
/// Fails if git cannot be run. A directory without history has no commits.
fn commits(root: &Path) -> Result<Vec<(String, Text)>> {
    let output = Command::new("git")
        .args(["log", "--no-merges", "--format=%h %s", "--since", GUIDE_EFFECTIVE_TIME])
        .current_dir(root)
        .output()
        .context("git log")?;
    Ok(parse_commits(&String::from_utf8_lossy(&output.stdout)))
}

fn parse_commits(output: &str) -> Vec<(String, Text)> {
    let commits = output.lines().filter_map(|line| line.split_once(' '));
    let text = |words: &str| Text { kind: Kind::Commit, line: 1, words: words.to_owned() };
    commits.map(|(hash, words)| (hash.to_owned(), text(words))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_have_a_hash_and_a_subject() {
        let subject = Text { kind: Kind::Commit, line: 1, words: "docs: fix a link".to_owned() };
        assert_eq!(parse_commits("1a2b docs: fix a link\n"), [("1a2b".to_owned(), subject)]);
        assert_eq!(parse_commits(""), []);
    }

    #[test]
    fn a_directory_without_history_has_no_commits() {
        assert_eq!(commits(Path::new("/")).unwrap(), []);
    }
}
