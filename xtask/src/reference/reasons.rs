//! The page with every reason: its subject, its meaning and the suggested action.

use super::table_cell;
use anyhow::{Context, Result};
use ha_api_types::error_reason::ErrorReason;
use ha_api_types::problem::ProblemKind;
use ha_api_types::reason::{Reason, Subject};
use std::fmt::Write;

const INTRODUCTION: &str = "\
# Reasons

Every cause that hactl reports is one of these words: `reason` of conditions, events and operations, the log field
`HACTL_REASON`, the label `reason` of metrics, and the verdicts of `hactl why`. The message next to the reason names the
objects. The list is closed; a word of a newer version is read as Unknown. This page is generated from the code:
`cargo run -p ha-xtask -- reference`.
";

const ERRORS_SECTION: &str = "
## Errors of the API

`reason` and `code` of the `Status` in the response to a request, as in Kubernetes.

| reason | code | means | what to do |
|---|---|---|---|
";

const CAUSES_SECTION: &str = "
## Causes of errors

`details.causes` of such a `Status` names fields, each with one of these words, or with a reason from above if the state of
an object blocks the request.

| reason | means |
|---|---|
";

pub(super) fn page() -> Result<String> {
    let mut page = INTRODUCTION.to_owned();
    for subject in Subject::ALL {
        let (title, description) = subject.title_and_text();
        // Writing to a string cannot fail.
        let _ =
            write!(page, "\n## {title}\n\n{description}\n\n| reason | means | what to do |\n|---|---|---|\n");
        for reason in Reason::ALL.iter().filter(|reason| reason.subject() == subject) {
            let help = if reason.help().is_empty() { "–" } else { reason.help() };
            let _ = writeln!(page, "| {reason} | {} | {} |", table_cell(reason.sentence()), table_cell(help));
        }
    }
    page += ERRORS_SECTION;
    for reason in ErrorReason::ALL {
        let (code, meaning, help) = (reason.code(), table_cell(reason.meaning()), table_cell(reason.help()));
        let _ = writeln!(page, "| {reason} | {code} | {meaning} | {help} |");
    }
    page += CAUSES_SECTION;
    for (word, meaning) in problems()? {
        let _ = writeln!(page, "| {word} | {} |", table_cell(&meaning));
    }
    Ok(page)
}

/// Returns the words for the problems of a field, with the doc comments of their declarations.
fn problems() -> Result<Vec<(String, String)>> {
    let schema = schemars::schema_for!(ProblemKind).to_value();
    let words = schema["oneOf"].as_array().context("the schema of an enumeration lists its words")?;
    let text = |word: &serde_json::Value, name: &str| word[name].as_str().unwrap_or_default().to_owned();
    Ok(words.iter().map(|word| (text(word, "const"), text(word, "description"))).collect())
}
