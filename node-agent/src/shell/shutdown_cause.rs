//! Requests to exit as inputs: SIGTERM alone restarts the agent; while the machine shuts down or the agent is removed,
//! the node leaves.
//!
//! The service manager, systemd-logind and process 1 provide the evidence whether this machine shuts down, and how.

use super::Inputs;
use crate::core::{Input, Shutdown as ShutdownRequest};
use ha_api_types::record::ShutdownKind;
use ha_runtime::shutdown::Shutdown;
use serde_json::Value;
use std::time::Duration;
use tokio::process::Command;

/// Time limit of one answer of the service manager.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of attempts to query the service manager.
const ATTEMPTS: usize = 3;
/// File that the package's script creates before it stops an agent that is being removed.
const REMOVED: &str = "/run/hactl/agent-removed";

/// Evidence at the time of a request to exit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ShutdownEvidence {
    /// The service manager's jobs, one per line: id, unit, type, state. `None` if the service manager does not answer.
    jobs: Option<String>,
    /// The state of the service manager (`running`, `stopping`, …); `None` if it does not answer.
    manager: Option<String>,
    /// The command line of process 1, with words separated by zero bytes.
    first_process: String,
    /// `true` if the agent is being removed from a machine that keeps running.
    removed: bool,
}

/// Waits for the request to exit and passes its cause to the core.
pub(super) fn spawn(shutdown: Shutdown, inputs: Inputs) {
    tokio::spawn(async move {
        shutdown.wait_for_request().await;
        let evidence = ShutdownEvidence {
            jobs: run_systemctl(&["list-jobs", "--plain", "--no-legend", "--no-pager"]).await,
            manager: run_systemctl(&["is-system-running"]).await,
            first_process: std::fs::read_to_string("/proc/1/cmdline").unwrap_or_default(),
            // The file is deleted when it is found, because it applies only to this exit.
            removed: std::fs::remove_file(REMOVED).is_ok(),
        };
        let cause = exit_cause(&evidence);
        tracing::info!(?cause, "received a request to stop");
        // Sending fails only once the loop has ended.
        let _ = inputs.send(Input::Shutdown(cause));
    });
}

/// Returns the output of systemctl for any exit status; `None` if no service manager answers.
async fn run_systemctl(words: &[&str]) -> Option<String> {
    for _ in 0..ATTEMPTS {
        let answer = Command::new("systemctl").args(words).kill_on_drop(true).output();
        match tokio::time::timeout(ANSWER_TIMEOUT, answer).await {
            Ok(Ok(output)) => return Some(String::from_utf8_lossy(&output.stdout).into_owned()),
            Ok(Err(error)) => {
                tracing::debug!(%error, "cannot run systemctl");
                return None;
            }
            Err(_) => {
                tracing::warn!(
                    "cannot determine from systemd whether this machine is shutting down, retrying"
                );
            }
        }
    }
    None
}

/// Determines the cause of a request to exit.
///
/// A job for a shutdown target distinguishes power-off and reboot. After `--force` there are no jobs, and process 1 is
/// the program that ends the machine, with the verb on its command line. A manager that is stopping without a known job
/// also ends the machine. Such a shutdown, and the agent's removal, count as a power-off, so that services do not wait
/// for the node to return.
fn exit_cause(evidence: &ShutdownEvidence) -> ShutdownRequest {
    let by_jobs = evidence.jobs.as_deref().and_then(shutdown_kind_from_jobs);
    let shutdown_kind =
        by_jobs.or_else(|| shutdown_kind_from_first_process(&evidence.first_process)).or_else(|| {
            let stopping = evidence.manager.as_deref().is_some_and(|state| state.trim() == "stopping");
            (stopping || evidence.removed).then_some(ShutdownKind::Poweroff)
        });
    shutdown_kind.map_or(ShutdownRequest::Restart, ShutdownRequest::Machine)
}

fn shutdown_kind_from_jobs(jobs: &str) -> Option<ShutdownKind> {
    jobs.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        match (fields.next()?, fields.next()?) {
            (unit, "start") => shutdown_kind_from_verb(unit.strip_suffix(".target")?),
            _ => None,
        }
    })
}

fn shutdown_kind_from_first_process(command_line: &str) -> Option<ShutdownKind> {
    let mut arguments = command_line.split('\0');
    let program = arguments.next()?.rsplit('/').next()?;
    (program == "systemd-shutdown").then(|| arguments.next().and_then(shutdown_kind_from_verb)).flatten()
}

fn shutdown_kind_from_verb(verb: &str) -> Option<ShutdownKind> {
    match verb {
        "reboot" | "kexec" | "soft-reboot" => Some(ShutdownKind::Reboot),
        "poweroff" | "power-off" | "halt" => Some(ShutdownKind::Poweroff),
        _ => None,
    }
}

/// An announcement by systemd-logind, before it begins a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Announcement {
    /// The machine shuts down in this way.
    ShutsDown(ShutdownKind),
    /// The machine shuts down, but the kind is unknown (before systemd 255).
    ShutsDownForUnknownReason,
    /// The shutdown was canceled.
    Canceled,
}

/// Parses one line of `busctl monitor --json=short`; `None` if it is not an announcement.
pub(super) fn parse_announcement(line: &str) -> Option<Announcement> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["interface"] != "org.freedesktop.login1.Manager" {
        return None;
    }
    let data = &message["payload"]["data"];
    let is_beginning = data[0].as_bool()?;
    match (message["member"].as_str()?, is_beginning) {
        ("PrepareForShutdown" | "PrepareForShutdownWithMetadata", false) => Some(Announcement::Canceled),
        // Newer versions send both signals; the signal without a kind is repeated with its kind.
        ("PrepareForShutdown", true) => Some(Announcement::ShutsDownForUnknownReason),
        ("PrepareForShutdownWithMetadata", true) => {
            let kind = data[1]["type"]["data"].as_str().and_then(shutdown_kind_from_verb);
            Some(kind.map_or(Announcement::ShutsDownForUnknownReason, Announcement::ShutsDown))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(jobs: Option<&str>, manager: Option<&str>, first_process: &str, expected: ShutdownRequest) {
        let evidence = ShutdownEvidence {
            jobs: jobs.map(str::to_owned),
            manager: manager.map(str::to_owned),
            first_process: first_process.to_owned(),
            removed: false,
        };
        assert_eq!(exit_cause(&evidence), expected, "{evidence:?}");
    }

    #[test]
    fn systemd_jobs_determine_the_shutdown_cause() {
        let (reboot, poweroff) = (
            ShutdownRequest::Machine(ShutdownKind::Reboot),
            ShutdownRequest::Machine(ShutdownKind::Poweroff),
        );
        let running = Some("running\n");
        check(Some(""), running, "/sbin/init\0", ShutdownRequest::Restart);
        check(
            Some("12 ha-node-agent.service restart running\n"),
            running,
            "/sbin/init\0",
            ShutdownRequest::Restart,
        );
        check(
            Some("12 ha-node-agent.service stop running\n"),
            running,
            "/sbin/init\0",
            ShutdownRequest::Restart,
        );
        check(Some("12 a.service stop running\n13 reboot.target start waiting\n"), running, "", reboot);
        check(Some("13 kexec.target start waiting\n"), running, "", reboot);
        check(Some("13 soft-reboot.target start waiting\n"), running, "", reboot);
        check(Some("13 poweroff.target start waiting\n"), running, "", poweroff);
        check(Some("13 halt.target start waiting\n"), running, "", poweroff);
        // Neither a job that stops a shutdown target nor a job of another target ends the machine.
        check(Some("13 reboot.target stop waiting\n"), running, "", ShutdownRequest::Restart);
        check(Some("13 rescue.target start waiting\n"), running, "", ShutdownRequest::Restart);
    }

    #[test]
    fn removed_agent_leaves_the_cluster() {
        let cause_of = |jobs: &str, removed| {
            let evidence =
                ShutdownEvidence { jobs: Some(jobs.to_owned()), removed, ..ShutdownEvidence::default() };
            exit_cause(&evidence)
        };
        let stopped = "12 ha-node-agent.service stop running\n";
        assert_eq!(cause_of(stopped, true), ShutdownRequest::Machine(ShutdownKind::Poweroff));
        assert_eq!(cause_of(stopped, false), ShutdownRequest::Restart);
        // A shutdown of the machine takes precedence.
        assert_eq!(
            cause_of("13 reboot.target start waiting\n", true),
            ShutdownRequest::Machine(ShutdownKind::Reboot)
        );
    }

    #[test]
    fn init_process_reveals_shutdown_without_jobs() {
        let (reboot, poweroff) = (
            ShutdownRequest::Machine(ShutdownKind::Reboot),
            ShutdownRequest::Machine(ShutdownKind::Poweroff),
        );
        check(None, None, "/usr/lib/systemd/systemd-shutdown\0reboot\0--log-level\x006\0", reboot);
        check(None, None, "/usr/lib/systemd/systemd-shutdown\0poweroff\0", poweroff);
        check(None, None, "/usr/bin/reboot-watcher\0reboot\0", ShutdownRequest::Restart);
        check(None, Some("stopping\n"), "/sbin/init\0", poweroff);
        check(Some("13 reboot.target start running\n"), Some("stopping\n"), "/sbin/init\0", reboot);
        // Without any service manager, such as in a container, only the agent exits.
        check(None, None, "/sbin/tini\0", ShutdownRequest::Restart);
    }

    #[test]
    fn logind_shutdown_signals_are_parsed() {
        let line = |member: &str, payload: &str| {
            format!(
                "{{\"type\":\"signal\",\"interface\":\"org.freedesktop.login1.Manager\",\"member\":\"{member}\",\
                 \"payload\":{payload}}}"
            )
        };
        let announcement_of = |kind: &str| {
            line(
                "PrepareForShutdownWithMetadata",
                &format!(
                    "{{\"type\":\"ba{{sv}}\",\"data\":[true,{{\"type\":{{\"type\":\"s\",\"data\":\"{kind}\"}}}}]}}"
                ),
            )
        };
        let check = |line: &str, expected: Option<Announcement>| {
            assert_eq!(parse_announcement(line), expected, "{line}");
        };
        check(&announcement_of("reboot"), Some(Announcement::ShutsDown(ShutdownKind::Reboot)));
        check(&announcement_of("power-off"), Some(Announcement::ShutsDown(ShutdownKind::Poweroff)));
        check(&announcement_of("something-new"), Some(Announcement::ShutsDownForUnknownReason));
        check(
            &line("PrepareForShutdown", "{\"type\":\"b\",\"data\":[true]}"),
            Some(Announcement::ShutsDownForUnknownReason),
        );
        check(&line("PrepareForShutdown", "{\"type\":\"b\",\"data\":[false]}"), Some(Announcement::Canceled));
        check(&line("PrepareForSleep", "{\"type\":\"b\",\"data\":[true]}"), None);
        check("not json", None);
        check("{}", None);
    }
}
