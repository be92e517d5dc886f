//! The meaning of a resource agent's exit status.

use crate::core::DriverFailure;
use crate::driver::program::order::LaunchFailure;
use crate::driver::program::output;
use crate::driver::program::run::{End, describe};
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use std::io;

/// Result of one run of a resource agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The resource agent exited with a status and a reason.
    Exited(i32, String),
    /// The resource agent was ended by a signal.
    Killed(String),
    /// The resource agent exceeded its time limit and was killed.
    TimedOut,
    /// The resource agent is not installed on this node.
    NotInstalled(String),
    /// The resource agent could not be run.
    NotRun(DriverFailure),
}

/// Result of a run of `monitor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MonitorResult {
    /// The service runs.
    Running,
    /// The service does not run.
    NotRunning,
    /// The service does not work, but parts of it may run.
    Failing(String),
    /// The resource agent cannot determine the state.
    Unclear(String),
}

// Exit statuses of the OCF resource agent API.
const SUCCESS: i32 = 0;
const INVALID_ARGUMENTS: i32 = 2;
const NOT_IMPLEMENTED: i32 = 3;
const NO_PERMISSION: i32 = 4;
const NOT_INSTALLED: i32 = 5;
const NOT_CONFIGURED: i32 = 6;
const NOT_RUNNING: i32 = 7;
const RUNNING_PROMOTED: i32 = 8;
const FAILED_PROMOTED: i32 = 9;
const DEGRADED: i32 = 190;
const DEGRADED_PROMOTED: i32 = 191;

impl Outcome {
    /// Converts the end of the program to the result of the run.
    pub(super) fn of(run_result: io::Result<End>) -> Outcome {
        match run_result {
            Ok(End::Ended(ended)) => match ended.status.code() {
                Some(code) => Outcome::Exited(code, exit_reason(&ended.logged_output)),
                None => Outcome::Killed(describe(ended.status)),
            },
            Ok(End::TimedOut) => Outcome::TimedOut,
            Ok(End::NotLaunched(failure)) => Outcome::NotRun(LaunchFailure::to_driver_failure(&failure)),
            Err(error) => {
                Outcome::NotRun(crate::driver::program::io_failure("cannot run the resource agent", &error))
            }
        }
    }

    /// Returns `true` if the action succeeded.
    pub(super) fn is_success(&self) -> bool {
        matches!(self, Outcome::Exited(SUCCESS, _))
    }

    /// Returns `true` if the result of `validate-all` rules out a start. Other failures do not rule out a start. Some
    /// resource agents have no `validate-all`, and for some, the action fails merely because the service does not run.
    pub(super) fn rules_out_start(&self) -> bool {
        match self {
            Outcome::Exited(code, _) => {
                matches!(*code, INVALID_ARGUMENTS | NO_PERMISSION | NOT_INSTALLED | NOT_CONFIGURED)
            }
            Outcome::TimedOut | Outcome::NotInstalled(_) | Outcome::NotRun(_) => true,
            Outcome::Killed(_) => false,
        }
    }

    /// Interprets the result of `monitor`. `start_recorded` is `true` if a start by this resource agent was requested
    /// since the boot. If it is `false`, a service that cannot run here with these parameters counts as not running.
    pub(super) fn monitor_result(&self, start_recorded: bool) -> MonitorResult {
        let message = || self.message("monitor");
        match self {
            Outcome::Exited(SUCCESS | RUNNING_PROMOTED | DEGRADED | DEGRADED_PROMOTED, _) => {
                MonitorResult::Running
            }
            Outcome::Exited(NOT_RUNNING, _) => MonitorResult::NotRunning,
            Outcome::Exited(INVALID_ARGUMENTS | NOT_INSTALLED | NOT_CONFIGURED, _)
            | Outcome::NotInstalled(_)
                if !start_recorded =>
            {
                MonitorResult::NotRunning
            }
            Outcome::Exited(
                INVALID_ARGUMENTS | NOT_IMPLEMENTED | NO_PERMISSION | NOT_INSTALLED | NOT_CONFIGURED,
                _,
            )
            | Outcome::NotInstalled(_)
            | Outcome::NotRun(_) => MonitorResult::Unclear(message()),
            Outcome::Exited(_, _) | Outcome::Killed(_) | Outcome::TimedOut => {
                MonitorResult::Failing(message())
            }
        }
    }

    /// Returns the failure of an action, with the reason and the nodes on which a retry makes sense.
    pub(super) fn failure(&self, action: &str, default_reason: Reason) -> DriverFailure {
        let (class, reason) = match self {
            Outcome::Exited(INVALID_ARGUMENTS | NOT_IMPLEMENTED | NOT_CONFIGURED, _) => {
                (FailureClass::ConfigurationWrong, Reason::BadConfiguration)
            }
            Outcome::Exited(NO_PERMISSION, _) => (FailureClass::NeverHere, default_reason),
            Outcome::Exited(NOT_INSTALLED, _) | Outcome::NotInstalled(_) => {
                (FailureClass::NeverHere, Reason::NotInstalled)
            }
            Outcome::Exited(_, _) | Outcome::Killed(_) => (FailureClass::RetryHere, default_reason),
            Outcome::TimedOut => (FailureClass::RetryHere, Reason::TimedOut),
            Outcome::NotRun(failure) => (failure.class, failure.reason),
        };
        DriverFailure { class, reason, message: self.message(action) }
    }

    /// Returns the result as a clause for a message.
    pub(super) fn message(&self, action: &str) -> String {
        match self {
            Outcome::Exited(code, reason_text) => {
                let meaning = match *code {
                    SUCCESS => " (success)",
                    INVALID_ARGUMENTS => " (invalid arguments)",
                    NOT_IMPLEMENTED => " (not implemented)",
                    NO_PERMISSION => " (not permitted)",
                    NOT_INSTALLED => " (not installed)",
                    NOT_CONFIGURED => " (not configured)",
                    NOT_RUNNING => " (not running)",
                    FAILED_PROMOTED => " (failed while promoted)",
                    _ => "",
                };
                let reason_text =
                    if reason_text.is_empty() { String::new() } else { format!(": {reason_text}") };
                format!("resource agent action {action} failed: exit status {code}{meaning}{reason_text}")
            }
            Outcome::Killed(end_text) => format!("resource agent action {action} was {end_text}"),
            Outcome::TimedOut => format!("resource agent action {action} timed out and was killed"),
            Outcome::NotInstalled(message) => message.clone(),
            Outcome::NotRun(failure) => failure.message.clone(),
        }
    }
}

/// Returns the observed state for a result of `monitor`. A failing service that was started counts as running.
pub(super) fn to_observed(result: MonitorResult, start_recorded: bool) -> Observed {
    match result {
        MonitorResult::Running => Observed::Running,
        MonitorResult::NotRunning => Observed::NotRunning,
        MonitorResult::Failing(_) if start_recorded => Observed::Running,
        MonitorResult::Failing(message) | MonitorResult::Unclear(message) => Observed::Unknown(message),
    }
}

/// Returns the reason from a resource agent's output: the line marked as the exit reason, else the last error, else the
/// last line.
fn exit_reason(text: &str) -> String {
    const EXIT_REASON_PREFIX: &str = "ocf-exit-reason:";
    let marked =
        text.lines().rev().find_map(|line| line.split_once(EXIT_REASON_PREFIX).map(|(_, reason)| reason));
    let error = || text.lines().rev().find(|line| line.contains("ERROR"));
    let line = marked
        .or_else(error)
        .and_then(output::last_nonblank_line)
        .or_else(|| output::last_nonblank_line(text));
    line.map(|line| without_date(&line).to_owned()).unwrap_or_default()
}

/// Removes the date that the resource agents' shell library writes before a line.
fn without_date(line: &str) -> &str {
    let pattern = "0000-00-00T00:00:00 ";
    let matches_pattern = |(character, pattern): (char, char)| {
        if pattern == '0' { character.is_ascii_digit() } else { character == pattern }
    };
    match line.get(pattern.len()..) {
        Some(rest) if line.chars().zip(pattern.chars()).all(matches_pattern) => rest.trim_start(),
        Some(_) | None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exited(code: i32) -> Outcome {
        Outcome::Exited(code, String::new())
    }

    #[test]
    fn monitor_exit_status_determines_service_state() {
        let check = |outcome: &Outcome, word_if_started: &str, word_if_not_started: &str| {
            let word = |is_started: bool| match to_observed(outcome.monitor_result(is_started), is_started) {
                Observed::Running => "running",
                Observed::NotRunning => "not running",
                Observed::Remnant(_) | Observed::Unknown(_) => "unknown",
            };
            assert_eq!((word(true), word(false)), (word_if_started, word_if_not_started), "{outcome:?}");
        };
        for code in [0, 8, 190, 191] {
            check(&exited(code), "running", "running");
        }
        check(&exited(7), "not running", "not running");
        for code in [1, 9, 99] {
            check(&exited(code), "running", "unknown");
        }
        check(&Outcome::TimedOut, "running", "unknown");
        check(&Outcome::Killed("killed by signal 9".to_owned()), "running", "unknown");
        for code in [2, 5, 6] {
            check(&exited(code), "unknown", "not running");
        }
        check(&Outcome::NotInstalled("it is not there".to_owned()), "unknown", "not running");
        for code in [3, 4] {
            check(&exited(code), "unknown", "unknown");
        }
    }

    #[test]
    fn ocf_exit_status_determines_failure_class() {
        let check = |outcome: &Outcome, class: FailureClass, reason: Reason| {
            let failure = outcome.failure("start", Reason::StartFailed);
            assert_eq!((failure.class, failure.reason), (class, reason), "{outcome:?}");
        };
        check(&exited(1), FailureClass::RetryHere, Reason::StartFailed);
        check(&exited(2), FailureClass::ConfigurationWrong, Reason::BadConfiguration);
        check(&exited(3), FailureClass::ConfigurationWrong, Reason::BadConfiguration);
        check(&exited(4), FailureClass::NeverHere, Reason::StartFailed);
        check(&exited(5), FailureClass::NeverHere, Reason::NotInstalled);
        check(&exited(6), FailureClass::ConfigurationWrong, Reason::BadConfiguration);
        check(&exited(7), FailureClass::RetryHere, Reason::StartFailed);
        check(&Outcome::TimedOut, FailureClass::RetryHere, Reason::TimedOut);
        check(&Outcome::NotInstalled(String::new()), FailureClass::NeverHere, Reason::NotInstalled);
    }

    #[test]
    fn validation_status_may_rule_out_start() {
        for (code, expected) in
            [(0, false), (1, false), (2, true), (3, false), (4, true), (5, true), (6, true), (7, false)]
        {
            assert_eq!(exited(code).rules_out_start(), expected, "{code}");
        }
    }

    #[test]
    fn failure_reason_is_found_in_agent_output() {
        for (text, expected) in [
            ("", ""),
            ("2026-11-23T02:41:35 INFO: fine\n2026-11-23T02:41:36 ERROR: no device\n\n", "ERROR: no device"),
            ("2026-11-23T02:41:36 ERROR: no device\nmore\n", "ERROR: no device"),
            (
                "ocf-exit-reason:Setup problem: no psql\n2026-11-23T02:41:36 ERROR: else\n",
                "Setup problem: no psql",
            ),
            ("plain words\n", "plain words"),
            ("2026 is not a date", "2026 is not a date"),
        ] {
            assert_eq!(exit_reason(text), expected, "{text:?}");
        }
        let outcome = Outcome::Exited(6, "no psql".to_owned());
        assert_eq!(
            outcome.message("start"),
            "resource agent action start failed: exit status 6 (not configured): no psql"
        );
    }
}
