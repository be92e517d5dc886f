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

/// Files whose texts are generated, and the guide, which lists the replaced words.
const EXCLUDED_PATHS: [&str; 5] =
    ["docs/reference/", "docs/schemas/", "simulator/scenarios/README.md", "charts/golden/", GUIDE_FILE];

/// Time from which commit messages follow the guide. The start is a time and not a commit, because a shallow clone may
/// lack the commit.
const GUIDE_EFFECTIVE_TIME: &str = "2026-11-24T18:00:00Z";

/// Time from which the words and the columns of whole commit messages are checked, not only the form of the subject.
const BODY_EFFECTIVE_TIME: &str = "2026-11-27T17:30:00Z";

/// Separates the commits in the output of git, because a message can contain any line.
const COMMIT_SEPARATOR: char = '\u{1e}';

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
    let mut all_violations = Vec::new();
    for path in
        output.lines().filter(|path| !EXCLUDED_PATHS.iter().any(|excluded| path.starts_with(excluded)))
    {
        // A tracked file may have been deleted since, and pictures are not text.
        let Ok(source) = std::fs::read_to_string(root.join(path)) else { continue };
        for text in texts::extract(path, &source) {
            let violations = rules::violations(&text, &glossary);
            all_violations
                .extend(violations.iter().map(|message| format!("{path}:{}: {message}", text.line)));
        }
    }
    let mut commit_texts = commits(&root)?;
    commit_texts.extend(commit_messages(&root)?);
    for (hash, text) in commit_texts {
        all_violations.extend(
            rules::violations(&text, &glossary).iter().map(|message| format!("commit {hash}: {message}")),
        );
    }
    for violation in &all_violations {
        crate::report(violation);
    }
    match all_violations.len() {
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

/// Returns the lines of each commit message since [`BODY_EFFECTIVE_TIME`], except merges.
///
/// # Errors
/// Fails if git cannot be run. A directory without history has no commits.
fn commit_messages(root: &Path) -> Result<Vec<(String, Text)>> {
    let output = Command::new("git")
        .args(["log", "--no-merges", "--format=%x1e%h%n%B", "--since", BODY_EFFECTIVE_TIME])
        .current_dir(root)
        .output()
        .context("git log")?;
    Ok(parse_commit_messages(&String::from_utf8_lossy(&output.stdout)))
}

fn parse_commit_messages(output: &str) -> Vec<(String, Text)> {
    let mut texts = Vec::new();
    let messages = output.split(COMMIT_SEPARATOR).filter_map(|commit| commit.split_once('\n'));
    for (hash, message) in messages {
        for (line, words) in (1..).zip(message.trim().lines()) {
            for kind in [Kind::Comment, Kind::Line] {
                texts.push((hash.to_owned(), Text { kind, line, words: words.to_owned() }));
            }
        }
    }
    texts
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
    fn each_line_of_a_commit_message_is_checked() {
        let text =
            |kind, line, words: &str| ("1a2b".to_owned(), Text { kind, line, words: words.to_owned() });
        assert_eq!(
            parse_commit_messages("\u{1e}1a2b\ndocs: fix a link\n\nThe link\n"),
            [
                text(Kind::Comment, 1, "docs: fix a link"),
                text(Kind::Line, 1, "docs: fix a link"),
                text(Kind::Comment, 2, ""),
                text(Kind::Line, 2, ""),
                text(Kind::Comment, 3, "The link"),
                text(Kind::Line, 3, "The link"),
            ]
        );
        assert_eq!(parse_commit_messages(""), []);
    }

    #[test]
    fn a_directory_without_history_has_no_commits() {
        assert_eq!(commits(Path::new("/")).unwrap(), []);
        assert_eq!(commit_messages(Path::new("/")).unwrap(), []);
    }
}
