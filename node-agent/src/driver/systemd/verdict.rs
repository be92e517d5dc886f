//! Interpretation of a unit's state: whether the unit runs, how it ended, whether an operator ended it, and the nodes
//! on which to retry after a failure.

use super::state::{ActiveState, LoadState, MainEnd, UnitState};
use crate::core::DriverFailure;
use ha_api_types::reason::Reason;
use ha_api_types::record::FailureClass;

/// Run state of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RunState {
    /// The unit runs, or systemd is about to start it, possibly after the delay before an automatic restart.
    Running,
    /// The unit is being stopped.
    Ending,
    /// The unit does not run; some of its processes may still remain.
    Ended,
    /// The state is unknown.
    Unclear,
}

pub(super) fn run_state(state: &UnitState) -> RunState {
    match state.active {
        ActiveState::Active | ActiveState::Activating => RunState::Running,
        ActiveState::Deactivating => RunState::Ending,
        ActiveState::Inactive | ActiveState::Failed => RunState::Ended,
        ActiveState::Unknown => RunState::Unclear,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JobResult {
    Done,
    Failed,
    /// Another job replaced this one.
    Canceled,
    Timeout,
    /// Another job, on which this job depends, failed.
    Dependency,
    /// The end of the job was not seen; the unit's state shows the result.
    NotObserved,
    /// Any other result, such as `assert`, `unsupported` or `invalid`.
    Other(String),
}

impl JobResult {
    pub(super) fn of(word: &str) -> JobResult {
        match word {
            "done" => JobResult::Done,
            "failed" => JobResult::Failed,
            "canceled" => JobResult::Canceled,
            "timeout" => JobResult::Timeout,
            "dependency" => JobResult::Dependency,
            other => JobResult::Other(other.to_owned()),
        }
    }
}

/// Returns the failure of a unit of the node that cannot be a service here in its current form.
pub(super) fn refusal(unit: &str, state: &UnitState) -> Option<DriverFailure> {
    let (reason, message) = match &state.load {
        LoadState::NotFound => (Reason::NotInstalled, format!("unit {unit} does not exist on this node")),
        LoadState::Masked => {
            (Reason::BadConfiguration, format!("{unit} is masked: run `systemctl unmask {unit}`"))
        }
        LoadState::Broken(word, cause) => {
            let cause =
                if cause.is_empty() { String::new() } else { format!(": {}", cause.trim_end_matches('.')) };
            (Reason::BadConfiguration, format!("{unit} cannot be used ({word}){cause}"))
        }
        LoadState::Loaded if state.ends_after_start() => (
            Reason::BadConfiguration,
            format!(
                "{unit} is Type=oneshot without RemainAfterExit=yes and exits immediately, so it cannot be a service"
            ),
        ),
        LoadState::Loaded => return None,
    };
    Some(never_here_failure(reason, message))
}

/// Returns the failure if the node has a unit of this name that was not created from the command.
pub(super) fn unit_name_conflict(unit: &str, state: &UnitState) -> Option<DriverFailure> {
    (!state.fragment.is_empty() && !state.is_transient).then(|| {
        let message = format!(
            "unit {unit} already exists on this node ({}) and cannot be created from the command: omit `unit`, or set another name",
            state.fragment
        );
        never_here_failure(Reason::BadConfiguration, message)
    })
}

/// Returns the failure of a start after which the unit does not run.
pub(super) fn start_failure(unit: &str, result: &JobResult, state: &UnitState) -> DriverFailure {
    let hint = format!("; run journalctl -u {unit}");
    let class_and_reason = match &state.service {
        Some(service) if state.has_ended() && state.result == "exit-code" => {
            exit_failure_class(service.main_end)
        }
        Some(_) | None => (FailureClass::RetryHere, Reason::StartFailed),
    };
    let (class_and_reason, message) = match result {
        JobResult::Dependency => (
            (FailureClass::RetryHere, Reason::StartFailed),
            "a required unit could not be started".to_owned(),
        ),
        JobResult::Canceled => (
            (FailureClass::RetryHere, Reason::StartFailed),
            "start canceled: an operator or the start of another unit stopped the unit".to_owned(),
        ),
        JobResult::Timeout => {
            ((FailureClass::RetryHere, Reason::TimedOut), "start took longer than JobTimeoutSec=".to_owned())
        }
        JobResult::Other(word) => (
            (FailureClass::NeverHere, Reason::BadConfiguration),
            format!("systemd rejected the start ({word})"),
        ),
        JobResult::Done | JobResult::NotObserved if !state.are_conditions_met && state.has_ended() => (
            (FailureClass::TryElsewhere, Reason::StartFailed),
            "conditions in the unit file are not met on this node".to_owned(),
        ),
        JobResult::Done | JobResult::NotObserved | JobResult::Failed if state.has_ended() => {
            (class_and_reason, end_description(state))
        }
        JobResult::Done | JobResult::NotObserved | JobResult::Failed => {
            ((FailureClass::RetryHere, Reason::StartFailed), format!("unit is {}", state.description))
        }
    };
    DriverFailure {
        class: class_and_reason.0,
        reason: class_and_reason.1,
        message: format!("{unit}: {message}{hint}"),
    }
}

/// Exit statuses with which systemd reports that it could not execute the program.
const CANNOT_CHANGE_DIRECTORY: i32 = 200;
const CANNOT_EXECUTE: i32 = 203;
const NO_SUCH_GROUP: i32 = 216;
const NO_SUCH_USER: i32 = 217;
const CANNOT_MAKE_NAMESPACE: i32 = 226;

fn exit_failure_class(process_end: MainEnd) -> (FailureClass, Reason) {
    match process_end {
        MainEnd::Exited(CANNOT_EXECUTE) => (FailureClass::NeverHere, Reason::NotInstalled),
        MainEnd::Exited(CANNOT_CHANGE_DIRECTORY | NO_SUCH_GROUP | NO_SUCH_USER) => {
            (FailureClass::NeverHere, Reason::BadConfiguration)
        }
        MainEnd::Exited(_) | MainEnd::Killed(_) | MainEnd::Dumped(_) | MainEnd::None => {
            (FailureClass::RetryHere, Reason::StartFailed)
        }
    }
}

/// Returns how an ended unit ended, as a clause for a message.
pub(super) fn end_description(state: &UnitState) -> String {
    let main = state.service.as_ref().map_or(MainEnd::None, |service| service.main_end);
    match state.result.as_str() {
        "success" | "exit-code" | "signal" | "core-dump" => describe_main_end(main, &state.result),
        "oom-kill" => "killed by the kernel's out-of-memory killer".to_owned(),
        "watchdog" => "no report to systemd in time (WatchdogSec=)".to_owned(),
        "timeout" => {
            "time limit of the unit exceeded (TimeoutStartSec=, TimeoutStopSec=, RuntimeMaxSec=)".to_owned()
        }
        "start-limit-hit" => "systemd stopped restarting the unit (start-limit-hit)".to_owned(),
        "protocol" => "main process did not follow the protocol of Type= (protocol)".to_owned(),
        "resources" => "systemd lacked resources to run the unit (resources)".to_owned(),
        // A unit that is no longer loaded has no result.
        "" => "service exited".to_owned(),
        other => format!("unit failed ({other})"),
    }
}

fn describe_main_end(process_end: MainEnd, result: &str) -> String {
    match process_end {
        MainEnd::Exited(CANNOT_CHANGE_DIRECTORY) => {
            "cannot enter the working directory (exit status 200)".to_owned()
        }
        MainEnd::Exited(CANNOT_EXECUTE) => "cannot execute the program (exit status 203)".to_owned(),
        MainEnd::Exited(NO_SUCH_GROUP) => "group does not exist (exit status 216)".to_owned(),
        MainEnd::Exited(NO_SUCH_USER) => "user does not exist (exit status 217)".to_owned(),
        MainEnd::Exited(CANNOT_MAKE_NAMESPACE) => "cannot set up namespaces (exit status 226)".to_owned(),
        // The main process succeeded, but another command of the unit failed.
        MainEnd::Exited(0) if result == "exit-code" => "a command of the unit failed".to_owned(),
        MainEnd::Exited(status) => format!("main process exited with status {status}"),
        MainEnd::Killed(signal) => format!("main process was killed by signal {signal}"),
        MainEnd::Dumped(signal) => format!("main process dumped core on signal {signal}"),
        MainEnd::None => "service exited".to_owned(),
    }
}

/// Returns `true` if the end of a unit was requested outside hactl. The unit left the active state before its main
/// process ended, because of a job (`is_job_observed`) that the agent did not request.
///
/// A process that exits or is killed ends before the unit leaves the active state. If systemd ends a unit for its own
/// reasons, such as a watchdog or the OOM killer, the result shows that. The result `timeout` may also belong to a
/// requested stop.
pub(super) fn is_stopped_externally(state: &UnitState, is_job_observed: bool) -> bool {
    let stop_preceded_exit = match &state.service {
        Some(service) if !service.remain_after_exit && service.main_ended_us > 0 => {
            state.active_until_us < service.main_ended_us
        }
        // A unit without a main process ends only by a job.
        Some(_) => true,
        None => return state.result == "success",
    };
    let is_requested_result =
        matches!(state.result.as_str(), "" | "success" | "exit-code" | "signal" | "timeout");
    is_job_observed && stop_preceded_exit && is_requested_result
}

pub(super) fn never_here_failure(reason: Reason, message: String) -> DriverFailure {
    DriverFailure { class: FailureClass::NeverHere, reason, message }
}

#[cfg(test)]
mod tests {
    use super::super::state::testing::unit;
    use super::*;
    use zbus::zvariant::Value;

    const MAIN_END: [(&str, i32); 3] = [("exited", 1), ("killed", 2), ("dumped", 3)];

    fn ended_unit(result: &str, (word, status): (&str, i32)) -> UnitState {
        let code = MAIN_END.iter().find(|(name, _)| *name == word).map_or(0, |(_, code)| *code);
        unit(&[
            ("ActiveState", Value::from(if result == "success" { "inactive" } else { "failed" })),
            ("SubState", Value::from("failed")),
            ("Result", Value::from(result)),
            ("ExecMainCode", Value::from(code)),
            ("ExecMainStatus", Value::from(status)),
            ("ConditionResult", Value::from(true)),
        ])
    }

    #[test]
    fn a_unit_runs_also_while_systemd_restarts_it() {
        for (active, sub, expected) in [
            ("active", "running", RunState::Running),
            ("active", "exited", RunState::Running),
            ("reloading", "reload", RunState::Running),
            ("activating", "start", RunState::Running),
            ("activating", "auto-restart", RunState::Running),
            ("deactivating", "stop-sigterm", RunState::Ending),
            ("inactive", "dead", RunState::Ended),
            ("failed", "failed", RunState::Ended),
            ("strange", "", RunState::Unclear),
        ] {
            let state = unit(&[("ActiveState", Value::from(active)), ("SubState", Value::from(sub))]);
            assert_eq!(run_state(&state), expected, "{active}/{sub}");
        }
    }

    #[test]
    fn unsuitable_units_are_refused() {
        let check = |properties: &[(&str, Value<'_>)], expected: Option<(Reason, &str)>| {
            let failure = refusal("web.service", &unit(properties));
            let found_refusal = failure.as_ref().map(|failure| (failure.reason, failure.message.as_str()));
            assert_eq!(found_refusal, expected);
            assert!(failure.is_none_or(|failure| failure.class == FailureClass::NeverHere));
        };
        check(&[("Type", Value::from("simple"))], None);
        check(
            &[("LoadState", Value::from("not-found"))],
            Some((Reason::NotInstalled, "unit web.service does not exist on this node")),
        );
        check(
            &[("LoadState", Value::from("masked"))],
            Some((Reason::BadConfiguration, "web.service is masked: run `systemctl unmask web.service`")),
        );
        check(
            &[("LoadState", Value::from("error"))],
            Some((Reason::BadConfiguration, "web.service cannot be used (error)")),
        );
        check(
            &[("Type", Value::from("oneshot"))],
            Some((
                Reason::BadConfiguration,
                "web.service is Type=oneshot without RemainAfterExit=yes and exits immediately, so it cannot be a service",
            )),
        );
    }

    #[test]
    fn a_unit_file_is_not_overridden_by_a_command() {
        assert_eq!(unit_name_conflict("web.service", &unit(&[])), None);
        let file = ("FragmentPath", Value::from("/etc/systemd/system/web.service"));
        assert!(unit_name_conflict("web.service", &unit(&[file])).is_some());
        let file = ("FragmentPath", Value::from("/run/systemd/transient/web.service"));
        assert_eq!(unit_name_conflict("web.service", &unit(&[file, ("Transient", Value::from(true))])), None);
    }

    #[test]
    fn failed_unit_starts_are_explained() {
        let check = |result: &str, state: &UnitState, class, reason, message: &str| {
            let failure = start_failure("web.service", &JobResult::of(result), state);
            assert_eq!((failure.class, failure.reason), (class, reason), "{}", failure.message);
            assert_eq!(failure.message, format!("web.service: {message}; run journalctl -u web.service"));
        };
        let (retry_here, never_here) = (FailureClass::RetryHere, FailureClass::NeverHere);
        let failed = |status| ended_unit("exit-code", ("exited", status));
        check("failed", &failed(1), retry_here, Reason::StartFailed, "main process exited with status 1");
        let missing = "cannot execute the program (exit status 203)";
        check("failed", &failed(203), never_here, Reason::NotInstalled, missing);
        check("done", &failed(203), never_here, Reason::NotInstalled, missing);
        let user = "user does not exist (exit status 217)";
        check("failed", &failed(217), never_here, Reason::BadConfiguration, user);
        check("failed", &failed(0), retry_here, Reason::StartFailed, "a command of the unit failed");
        let killed = ended_unit("signal", ("killed", 9));
        check("failed", &killed, retry_here, Reason::StartFailed, "main process was killed by signal 9");
        let timed_out = ended_unit("timeout", ("killed", 15));
        let message = "time limit of the unit exceeded (TimeoutStartSec=, TimeoutStopSec=, RuntimeMaxSec=)";
        check("failed", &timed_out, retry_here, Reason::StartFailed, message);
        let message = "start took longer than JobTimeoutSec=";
        check("timeout", &failed(1), retry_here, Reason::TimedOut, message);
        let message = "a required unit could not be started";
        check("dependency", &failed(1), retry_here, Reason::StartFailed, message);
        let message = "systemd rejected the start (assert)";
        check("assert", &failed(1), never_here, Reason::BadConfiguration, message);
        let unmet = unit(&[("ActiveState", Value::from("inactive"))]);
        let message = "conditions in the unit file are not met on this node";
        check("done", &unmet, FailureClass::TryElsewhere, Reason::StartFailed, message);
        let restarting =
            unit(&[("ActiveState", Value::from("activating")), ("SubState", Value::from("auto-restart"))]);
        check("failed", &restarting, retry_here, Reason::StartFailed, "unit is activating/auto-restart");
    }

    #[test]
    fn unit_exits_are_described() {
        for (result, end, expected) in [
            ("success", ("exited", 0), "main process exited with status 0"),
            ("core-dump", ("dumped", 11), "main process dumped core on signal 11"),
            ("oom-kill", ("killed", 9), "killed by the kernel's out-of-memory killer"),
            ("watchdog", ("dumped", 6), "no report to systemd in time (WatchdogSec=)"),
            ("start-limit-hit", ("exited", 1), "systemd stopped restarting the unit (start-limit-hit)"),
            ("", ("", 0), "service exited"),
            ("exec-condition", ("", 0), "unit failed (exec-condition)"),
        ] {
            assert_eq!(end_description(&ended_unit(result, end)), expected);
        }
    }

    #[test]
    fn manual_stop_is_distinguished_from_crash() {
        let check =
            |result: &str, active_until: u64, main_ended: u64, is_job_observed: bool, expected: bool| {
                let mut state = ended_unit(result, ("killed", 15));
                state.active_until_us = active_until;
                if let Some(service) = &mut state.service {
                    service.main_ended_us = main_ended;
                }
                assert_eq!(
                    is_stopped_externally(&state, is_job_observed),
                    expected,
                    "{result} {active_until} {main_ended} {is_job_observed}"
                );
            };
        // systemctl stop: the job comes first, then the end of the process with any result.
        check("success", 10, 20, true, true);
        check("exit-code", 10, 20, true, true);
        check("timeout", 10, 20, true, true);
        // The process exited or was killed.
        check("success", 20, 20, true, false);
        check("exit-code", 21, 20, false, false);
        check("signal", 21, 20, true, false);
        // The service announced its end, without a job.
        check("success", 10, 20, false, false);
        // Reasons of systemd itself.
        check("watchdog", 10, 20, true, false);
        check("oom-kill", 10, 20, true, false);
        // A service without a process, and a mount.
        check("success", 10, 0, true, true);
        let mut mount = unit(&[("Id", Value::from("srv.mount")), ("Result", Value::from("success"))]);
        assert!(is_stopped_externally(&mount, false));
        mount.result = "exit-code".to_owned();
        assert!(!is_stopped_externally(&mount, true));
    }
}
