//! What a unit's state means: whether it runs, how it ended, whether by hand, and where to try next after a failure.

use super::state::{ActiveState, LoadState, MainEnd, UnitState};
use crate::core::DriverFailure;
use ha_api_types::reason::Reason;
use ha_api_types::record::FailureClass;

/// Whether a unit runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It does, or systemd is about to make it: also while systemd waits before it restarts it by itself.
    Running,
    /// It is being stopped.
    Ending,
    /// It does not; processes may be left all the same.
    Ended,
    /// It cannot be told.
    Unclear,
}

pub(super) fn standing(state: &UnitState) -> Standing {
    match state.active {
        ActiveState::Active | ActiveState::Activating => Standing::Running,
        ActiveState::Deactivating => Standing::Ending,
        ActiveState::Inactive | ActiveState::Failed => Standing::Ended,
        ActiveState::Unknown => Standing::Unclear,
    }
}

/// How a job of systemd's ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JobResult {
    Done,
    Failed,
    /// Another job took its place.
    Canceled,
    Timeout,
    /// A job that it waited for failed.
    Dependency,
    /// Its end was not seen: the unit's state has to tell.
    Unseen,
    /// `assert`, `unsupported`, `invalid` and what else there is.
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

/// Why a unit of the node cannot be a service here, whatever is done.
pub(super) fn refusal(unit: &str, state: &UnitState) -> Option<DriverFailure> {
    let (reason, message) = match &state.load {
        LoadState::NotFound => (Reason::NotInstalled, format!("this node has no unit {unit}")),
        LoadState::Masked => (
            Reason::BadConfiguration,
            format!("{unit} is masked: `systemctl unmask {unit}` makes it possible to start it"),
        ),
        LoadState::Broken(word, why) => {
            let why = if why.is_empty() { String::new() } else { format!(": {}", why.trim_end_matches('.')) };
            (Reason::BadConfiguration, format!("{unit} cannot be used ({word}){why}"))
        }
        LoadState::Loaded if state.ends_at_once() => (
            Reason::BadConfiguration,
            format!(
                "{unit} is Type=oneshot without RemainAfterExit=yes: it ends at once, so it cannot be a service"
            ),
        ),
        LoadState::Loaded => return None,
    };
    Some(never_here(reason, message))
}

/// A unit of this name that is not made of the command.
pub(super) fn occupied(unit: &str, state: &UnitState) -> Option<DriverFailure> {
    (!state.fragment.is_empty() && !state.is_transient).then(|| {
        let message = format!(
            "this node has a unit {unit} of its own ({}), so none can be made of the command: leave `unit` out, or name another",
            state.fragment
        );
        never_here(Reason::BadConfiguration, message)
    })
}

/// Why a start did not end with a running unit.
pub(super) fn start_failure(unit: &str, result: &JobResult, state: &UnitState) -> DriverFailure {
    let hint = format!("; see journalctl -u {unit}");
    let class = match &state.service {
        Some(service) if state.has_ended() && state.result == "exit-code" => main_class(service.main_end),
        Some(_) | None => (FailureClass::RetryHere, Reason::StartFailed),
    };
    let (class, message) = match result {
        JobResult::Dependency => (
            (FailureClass::RetryHere, Reason::StartFailed),
            "a unit that it needs could not be started".to_owned(),
        ),
        JobResult::Canceled => (
            (FailureClass::RetryHere, Reason::StartFailed),
            "its start was canceled: somebody, or another unit's start, stopped it meanwhile".to_owned(),
        ),
        JobResult::Timeout => (
            (FailureClass::RetryHere, Reason::TimedOut),
            "its start took longer than JobTimeoutSec=".to_owned(),
        ),
        JobResult::Other(word) => (
            (FailureClass::NeverHere, Reason::BadConfiguration),
            format!("systemd does not start it ({word})"),
        ),
        JobResult::Done | JobResult::Unseen if !state.conditions_held && state.has_ended() => (
            (FailureClass::TryElsewhere, Reason::StartFailed),
            "the conditions in its file do not hold on this node".to_owned(),
        ),
        JobResult::Done | JobResult::Unseen | JobResult::Failed if state.has_ended() => {
            (class, how_it_ended(state))
        }
        JobResult::Done | JobResult::Unseen | JobResult::Failed => {
            ((FailureClass::RetryHere, Reason::StartFailed), format!("it is {}", state.words))
        }
    };
    DriverFailure { class: class.0, reason: class.1, message: format!("{unit}: {message}{hint}") }
}

/// Exit statuses that systemd gives when it cannot even execute the program.
const CANNOT_CHANGE_DIRECTORY: i32 = 200;
const CANNOT_EXECUTE: i32 = 203;
const NO_SUCH_GROUP: i32 = 216;
const NO_SUCH_USER: i32 = 217;
const CANNOT_MAKE_NAMESPACE: i32 = 226;

fn main_class(end: MainEnd) -> (FailureClass, Reason) {
    match end {
        MainEnd::Exited(CANNOT_EXECUTE) => (FailureClass::NeverHere, Reason::NotInstalled),
        MainEnd::Exited(CANNOT_CHANGE_DIRECTORY | NO_SUCH_GROUP | NO_SUCH_USER) => {
            (FailureClass::NeverHere, Reason::BadConfiguration)
        }
        MainEnd::Exited(_) | MainEnd::Killed(_) | MainEnd::Dumped(_) | MainEnd::None => {
            (FailureClass::RetryHere, Reason::StartFailed)
        }
    }
}

/// How a unit that has ended did so, in a sentence.
pub(super) fn how_it_ended(state: &UnitState) -> String {
    let main = state.service.as_ref().map_or(MainEnd::None, |service| service.main_end);
    match state.result.as_str() {
        "success" | "exit-code" | "signal" | "core-dump" => main_end(main, &state.result),
        "oom-kill" => "the kernel's memory killer ended it".to_owned(),
        "watchdog" => "it did not report to systemd in time (WatchdogSec=)".to_owned(),
        "timeout" => {
            "a time limit of the unit ran out (TimeoutStartSec=, TimeoutStopSec=, RuntimeMaxSec=)".to_owned()
        }
        "start-limit-hit" => "systemd gave up restarting it (start-limit-hit)".to_owned(),
        "protocol" => "it did not do what its Type= asks for (protocol)".to_owned(),
        "resources" => "systemd lacked what it takes to run it (resources)".to_owned(),
        // Units that are not loaded any more have no result.
        "" => "it ended".to_owned(),
        other => format!("it failed ({other})"),
    }
}

fn main_end(end: MainEnd, result: &str) -> String {
    match end {
        MainEnd::Exited(CANNOT_CHANGE_DIRECTORY) => {
            "its working directory cannot be entered (exit status 200)".to_owned()
        }
        MainEnd::Exited(CANNOT_EXECUTE) => "its program cannot be executed (exit status 203)".to_owned(),
        MainEnd::Exited(NO_SUCH_GROUP) => "its group does not exist (exit status 216)".to_owned(),
        MainEnd::Exited(NO_SUCH_USER) => "its user does not exist (exit status 217)".to_owned(),
        MainEnd::Exited(CANNOT_MAKE_NAMESPACE) => {
            "its namespaces cannot be set up (exit status 226)".to_owned()
        }
        // The main process may have gone well, and a command beside it not.
        MainEnd::Exited(0) if result == "exit-code" => "a command of the unit failed".to_owned(),
        MainEnd::Exited(status) => format!("its main process ended with exit status {status}"),
        MainEnd::Killed(signal) => format!("its main process was killed by signal {signal}"),
        MainEnd::Dumped(signal) => format!("its main process dumped core on signal {signal}"),
        MainEnd::None => "it ended".to_owned(),
    }
}

/// Whether the end of a unit was begun from outside: it left the active state before its main process ended, by a job
/// (`told`) that was not ours.
///
/// A process that ends by itself, with whatever status, or is killed, ends before the unit leaves that state. What systemd ends for reasons of its
/// own (a watchdog, the kernel's memory killer) has them as its result; a limit of time may also be that of a stop.
pub(super) fn is_by_hand(state: &UnitState, told: bool) -> bool {
    let began_before_the_end = match &state.service {
        Some(service) if !service.remains && service.main_ended_us > 0 => {
            state.active_until_us < service.main_ended_us
        }
        // Nothing of it could have ended by itself.
        Some(_) => true,
        None => return state.result == "success",
    };
    let asked = matches!(state.result.as_str(), "" | "success" | "exit-code" | "signal" | "timeout");
    told && began_before_the_end && asked
}

pub(super) fn never_here(reason: Reason, message: String) -> DriverFailure {
    DriverFailure { class: FailureClass::NeverHere, reason, message }
}

#[cfg(test)]
mod tests {
    use super::super::state::testing::unit;
    use super::*;
    use zbus::zvariant::Value;

    const MAIN_END: [(&str, i32); 3] = [("exited", 1), ("killed", 2), ("dumped", 3)];

    fn ended(result: &str, (word, status): (&str, i32)) -> UnitState {
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
            ("active", "running", Standing::Running),
            ("active", "exited", Standing::Running),
            ("reloading", "reload", Standing::Running),
            ("activating", "start", Standing::Running),
            ("activating", "auto-restart", Standing::Running),
            ("deactivating", "stop-sigterm", Standing::Ending),
            ("inactive", "dead", Standing::Ended),
            ("failed", "failed", Standing::Ended),
            ("strange", "", Standing::Unclear),
        ] {
            let state = unit(&[("ActiveState", Value::from(active)), ("SubState", Value::from(sub))]);
            assert_eq!(standing(&state), expected, "{active}/{sub}");
        }
    }

    #[test]
    fn what_cannot_be_a_service_here_is_refused() {
        let check = |properties: &[(&str, Value<'_>)], expected: Option<(Reason, &str)>| {
            let failure = refusal("web.service", &unit(properties));
            let found = failure.as_ref().map(|failure| (failure.reason, failure.message.as_str()));
            assert_eq!(found, expected);
            assert!(failure.is_none_or(|failure| failure.class == FailureClass::NeverHere));
        };
        check(&[("Type", Value::from("simple"))], None);
        check(
            &[("LoadState", Value::from("not-found"))],
            Some((Reason::NotInstalled, "this node has no unit web.service")),
        );
        check(
            &[("LoadState", Value::from("masked"))],
            Some((
                Reason::BadConfiguration,
                "web.service is masked: `systemctl unmask web.service` makes it possible to start it",
            )),
        );
        check(
            &[("LoadState", Value::from("error"))],
            Some((Reason::BadConfiguration, "web.service cannot be used (error)")),
        );
        check(
            &[("Type", Value::from("oneshot"))],
            Some((
                Reason::BadConfiguration,
                "web.service is Type=oneshot without RemainAfterExit=yes: it ends at once, so it cannot be a service",
            )),
        );
    }

    #[test]
    fn a_unit_file_is_not_overridden_by_a_command() {
        assert_eq!(occupied("web.service", &unit(&[])), None);
        let file = ("FragmentPath", Value::from("/etc/systemd/system/web.service"));
        assert!(occupied("web.service", &unit(&[file])).is_some());
        let file = ("FragmentPath", Value::from("/run/systemd/transient/web.service"));
        assert_eq!(occupied("web.service", &unit(&[file, ("Transient", Value::from(true))])), None);
    }

    #[test]
    fn failed_starts_are_explained() {
        let check = |result: &str, state: &UnitState, class, reason, message: &str| {
            let failure = start_failure("web.service", &JobResult::of(result), state);
            assert_eq!((failure.class, failure.reason), (class, reason), "{}", failure.message);
            assert_eq!(failure.message, format!("web.service: {message}; see journalctl -u web.service"));
        };
        let (here, never) = (FailureClass::RetryHere, FailureClass::NeverHere);
        let failed = |status| ended("exit-code", ("exited", status));
        check("failed", &failed(1), here, Reason::StartFailed, "its main process ended with exit status 1");
        let missing = "its program cannot be executed (exit status 203)";
        check("failed", &failed(203), never, Reason::NotInstalled, missing);
        check("done", &failed(203), never, Reason::NotInstalled, missing);
        let user = "its user does not exist (exit status 217)";
        check("failed", &failed(217), never, Reason::BadConfiguration, user);
        check("failed", &failed(0), here, Reason::StartFailed, "a command of the unit failed");
        let killed = ended("signal", ("killed", 9));
        check("failed", &killed, here, Reason::StartFailed, "its main process was killed by signal 9");
        let late = ended("timeout", ("killed", 15));
        let message = "a time limit of the unit ran out (TimeoutStartSec=, TimeoutStopSec=, RuntimeMaxSec=)";
        check("failed", &late, here, Reason::StartFailed, message);
        let message = "its start took longer than JobTimeoutSec=";
        check("timeout", &failed(1), here, Reason::TimedOut, message);
        let message = "a unit that it needs could not be started";
        check("dependency", &failed(1), here, Reason::StartFailed, message);
        let message = "systemd does not start it (assert)";
        check("assert", &failed(1), never, Reason::BadConfiguration, message);
        let unmet = unit(&[("ActiveState", Value::from("inactive"))]);
        let message = "the conditions in its file do not hold on this node";
        check("done", &unmet, FailureClass::TryElsewhere, Reason::StartFailed, message);
        let restarting =
            unit(&[("ActiveState", Value::from("activating")), ("SubState", Value::from("auto-restart"))]);
        check("failed", &restarting, here, Reason::StartFailed, "it is activating/auto-restart");
    }

    #[test]
    fn ends_are_told_in_a_sentence() {
        for (result, end, expected) in [
            ("success", ("exited", 0), "its main process ended with exit status 0"),
            ("core-dump", ("dumped", 11), "its main process dumped core on signal 11"),
            ("oom-kill", ("killed", 9), "the kernel's memory killer ended it"),
            ("watchdog", ("dumped", 6), "it did not report to systemd in time (WatchdogSec=)"),
            ("start-limit-hit", ("exited", 1), "systemd gave up restarting it (start-limit-hit)"),
            ("", ("", 0), "it ended"),
            ("exec-condition", ("", 0), "it failed (exec-condition)"),
        ] {
            assert_eq!(how_it_ended(&ended(result, end)), expected);
        }
    }

    #[test]
    fn a_stop_by_hand_is_told_from_a_crash() {
        let check = |result: &str, active_until: u64, main_ended: u64, told: bool, expected: bool| {
            let mut state = ended(result, ("killed", 15));
            state.active_until_us = active_until;
            if let Some(service) = &mut state.service {
                service.main_ended_us = main_ended;
            }
            assert_eq!(is_by_hand(&state, told), expected, "{result} {active_until} {main_ended} {told}");
        };
        // systemctl stop: the job first, then the process, however that takes it.
        check("success", 10, 20, true, true);
        check("exit-code", 10, 20, true, true);
        check("timeout", 10, 20, true, true);
        // It ended by itself, or was killed.
        check("success", 20, 20, true, false);
        check("exit-code", 21, 20, false, false);
        check("signal", 21, 20, true, false);
        // It said that it is stopping, and nobody had told it to.
        check("success", 10, 20, false, false);
        // systemd's own reasons.
        check("watchdog", 10, 20, true, false);
        check("oom-kill", 10, 20, true, false);
        // A service without a process, and a mount.
        check("success", 10, 0, true, true);
        let mut mount = unit(&[("Id", Value::from("srv.mount")), ("Result", Value::from("success"))]);
        assert!(is_by_hand(&mount, false));
        mount.result = "exit-code".to_owned();
        assert!(!is_by_hand(&mount, true));
    }
}
