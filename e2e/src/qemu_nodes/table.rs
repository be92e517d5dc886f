//! The table of results.

use std::fmt::Write;

use super::case::{Case, Outcome};

/// Returns the header line.
pub fn header() -> String {
    row(["case", "watchdog", "reset", "stopped", "elsewhere", "bound", "two at once", "returned", "verdict"])
}

/// Returns the line of one run, followed by a line for each violation.
pub fn line(case: &Case, outcome: &Outcome) -> String {
    let verdict = match (&outcome.invalid_reason, outcome.has_passed()) {
        (Some(_), _) => "not valid",
        (None, true) => "passed",
        (None, false) => "FAILED",
    };
    let two = if outcome.double_runs.is_empty() { "never" } else { "YES" };
    let returned = if outcome.has_returned { "yes" } else { "no" };
    let seconds =
        [outcome.reset_ms, outcome.stopped_ms, outcome.elsewhere_ms, outcome.limit_ms].map(seconds_text);
    let [reset, stopped, elsewhere, bound] = seconds.each_ref().map(String::as_str);
    let mut text =
        row([case.name, case.watchdog.module(), reset, stopped, elsewhere, bound, two, returned, verdict]);
    for detail in outcome.invalid_reason.iter().chain(&outcome.double_runs).chain(&outcome.failures) {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n    {detail}");
    }
    text
}

fn seconds_text(time_ms: Option<u64>) -> String {
    time_ms.map_or_else(|| "-".to_owned(), |time| format!("{}.{:02} s", time / 1000, time % 1000 / 10))
}

fn row(cells: [&str; 9]) -> String {
    let [case, watchdog, reset, stopped, elsewhere, bound, two, returned, verdict] = cells;
    format!(
        "{case:<28} {watchdog:<9} {reset:>9} {stopped:>9} {elsewhere:>9} {bound:>9}  {two:<11} {returned:<8} {verdict}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qemu_nodes::cases::ALL;

    fn check(outcome: &Outcome, expected: &[&str]) {
        let text = line(&ALL[0], outcome);
        for part in expected {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }

    #[test]
    fn table_shows_failures_and_invalid_times() {
        let passing_outcome = Outcome { has_returned: true, stopped_ms: Some(12_345), ..Outcome::default() };
        check(&passing_outcome, &["12.34 s", "never", "yes", "passed"]);
        check(
            &Outcome { double_runs: vec!["both".to_owned()], ..passing_outcome.clone() },
            &["YES", "FAILED", "both"],
        );
        check(&Outcome { failures: vec!["late".to_owned()], ..passing_outcome.clone() }, &["FAILED", "late"]);
        check(
            &Outcome { invalid_reason: Some("machine paused".to_owned()), ..passing_outcome },
            &["not valid", "machine paused"],
        );
    }
}
