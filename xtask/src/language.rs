//! The language check: the rules of docs/contributing/language.md that a machine can check, over every text of the repository
//! and the commit messages.

mod commits;
mod rules;
mod texts;

use std::process::Command;

use anyhow::{Context, Result, bail};

/// The guide, whose table of words the check reads.
const GUIDE: &str = "docs/contributing/language.md";

/// Files whose texts are not the project's prose: generated pages, and the patches of mutants, which quote code.
const LEFT_OUT: [&str; 6] = [
    "docs/reference/",
    "docs/schemas/",
    "simulator/mutants/",
    "simulator/scenarios/README.md",
    "charts/golden/",
    GUIDE,
];

/// Checks every tracked file and the commit messages, and reports all violations.
///
/// # Errors
/// A text breaks a rule, or git or a file cannot be read.
pub(crate) fn check() -> Result<()> {
    let root = crate::architecture::workspace_root()?;
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(&root)
        .output()
        .context("git ls-files")?;
    let listed = String::from_utf8(listed.stdout).context("git ls-files")?;
    let guide = std::fs::read_to_string(root.join(GUIDE)).context(GUIDE)?;
    let glossary = rules::Glossary::read(&guide);
    let mut found = Vec::new();
    for path in listed.lines().filter(|path| !LEFT_OUT.iter().any(|left_out| path.starts_with(left_out))) {
        // A tracked file may have been deleted since, and pictures are not text.
        let Ok(source) = std::fs::read_to_string(root.join(path)) else { continue };
        for text in texts::of(path, &source) {
            let broken = rules::broken(&text, &glossary);
            found.extend(broken.iter().map(|said| format!("{path}:{}: {said}", text.line)));
        }
    }
    for (hash, subject) in commits::read(&root)? {
        found.extend(rules::broken(&subject, &glossary).iter().map(|said| format!("commit {hash}: {said}")));
    }
    for violation in &found {
        crate::report(violation);
    }
    match found.len() {
        0 => {
            crate::report("language: every rule holds");
            Ok(())
        }
        count => bail!("{count} violations of the language guide ({GUIDE})"),
    }
}
