//! Determines whether this machine shuts down, and how: from the service manager, systemd-logind and process 1.

use crate::core::Shutdown as Told;
use ha_api_types::record::Leave;
use serde_json::Value;

/// The evidence when the agent receives a request to exit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Evidence {
    /// The service manager's jobs, one per line: id, unit, type, state. `None` if the service manager does not answer.
    pub(super) jobs: Option<String>,
    /// The state of the service manager (`running`, `stopping`, …); `None` if it does not answer.
    pub(super) manager: Option<String>,
    /// The command line of process 1, with words separated by zero bytes.
    pub(super) first_process: String,
    /// `true` if the agent is being removed from a machine that keeps running.
    pub(super) removed: bool,
}

/// Determines why the agent is to exit.
///
/// A job for a shutdown target distinguishes power-off and reboot. After `--force` there are no jobs, and process 1 is
/// the program that ends the machine, with the verb on its command line. A manager that is stopping without a known job
/// also ends the machine. That counts as a power-off, so that services do not wait for a return. The same holds for the
/// agent's removal.
pub(super) fn why(evidence: &Evidence) -> Told {
    let by_jobs = evidence.jobs.as_deref().and_then(of_jobs);
    let leave = by_jobs.or_else(|| of_first_process(&evidence.first_process)).or_else(|| {
        let stopping = evidence.manager.as_deref().is_some_and(|state| state.trim() == "stopping");
        (stopping || evidence.removed).then_some(Leave::Poweroff)
    });
    leave.map_or(Told::Restart, Told::Leave)
}

fn of_jobs(jobs: &str) -> Option<Leave> {
    jobs.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        match (words.next()?, words.next()?) {
            (unit, "start") => of_verb(unit.strip_suffix(".target")?),
            _ => None,
        }
    })
}

fn of_first_process(command_line: &str) -> Option<Leave> {
    let mut words = command_line.split('\0');
    let program = words.next()?.rsplit('/').next()?;
    (program == "systemd-shutdown").then(|| words.next().and_then(of_verb)).flatten()
}

fn of_verb(verb: &str) -> Option<Leave> {
    match verb {
        "reboot" | "kexec" | "soft-reboot" => Some(Leave::Reboot),
        "poweroff" | "power-off" | "halt" => Some(Leave::Poweroff),
        _ => None,
    }
}

/// An announcement by systemd-logind, before it begins a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Announcement {
    /// The machine shuts down in this way.
    Ends(Leave),
    /// The machine shuts down in an unknown way (before systemd 255).
    EndsSomehow,
    /// The shutdown was canceled.
    Cancelled,
}

/// Parses one line of `busctl monitor --json=short`; `None` if it is not an announcement.
pub(super) fn announced(line: &str) -> Option<Announcement> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["interface"] != "org.freedesktop.login1.Manager" {
        return None;
    }
    let data = &message["payload"]["data"];
    let begins = data[0].as_bool()?;
    match (message["member"].as_str()?, begins) {
        ("PrepareForShutdown" | "PrepareForShutdownWithMetadata", false) => Some(Announcement::Cancelled),
        // Newer versions send both signals; the one without a kind is repeated with its kind.
        ("PrepareForShutdown", true) => Some(Announcement::EndsSomehow),
        ("PrepareForShutdownWithMetadata", true) => {
            let kind = data[1]["type"]["data"].as_str().and_then(of_verb);
            Some(kind.map_or(Announcement::EndsSomehow, Announcement::Ends))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(jobs: Option<&str>, manager: Option<&str>, first_process: &str, expected: Told) {
        let evidence = Evidence {
            jobs: jobs.map(str::to_owned),
            manager: manager.map(str::to_owned),
            first_process: first_process.to_owned(),
            removed: false,
        };
        assert_eq!(why(&evidence), expected, "{evidence:?}");
    }

    #[test]
    fn a_shutdown_is_told_from_a_restart_and_a_reboot_from_a_power_off() {
        let (reboot, off) = (Told::Leave(Leave::Reboot), Told::Leave(Leave::Poweroff));
        let running = Some("running\n");
        check(Some(""), running, "/sbin/init\0", Told::Restart);
        check(Some("12 ha-node-agent.service restart running\n"), running, "/sbin/init\0", Told::Restart);
        check(Some("12 ha-node-agent.service stop running\n"), running, "/sbin/init\0", Told::Restart);
        check(Some("12 a.service stop running\n13 reboot.target start waiting\n"), running, "", reboot);
        check(Some("13 kexec.target start waiting\n"), running, "", reboot);
        check(Some("13 soft-reboot.target start waiting\n"), running, "", reboot);
        check(Some("13 poweroff.target start waiting\n"), running, "", off);
        check(Some("13 halt.target start waiting\n"), running, "", off);
        // A job that stops a target does not end the machine, and other targets do not either.
        check(Some("13 reboot.target stop waiting\n"), running, "", Told::Restart);
        check(Some("13 rescue.target start waiting\n"), running, "", Told::Restart);
    }

    #[test]
    fn a_removed_agent_leaves_for_good() {
        let told = |jobs: &str, removed| {
            let evidence = Evidence { jobs: Some(jobs.to_owned()), removed, ..Evidence::default() };
            why(&evidence)
        };
        let stopped = "12 ha-node-agent.service stop running\n";
        assert_eq!(told(stopped, true), Told::Leave(Leave::Poweroff));
        assert_eq!(told(stopped, false), Told::Restart);
        // A shutdown of the machine takes precedence.
        assert_eq!(told("13 reboot.target start waiting\n", true), Told::Leave(Leave::Reboot));
    }

    #[test]
    fn without_jobs_process_one_and_the_managers_state_tell() {
        let (reboot, off) = (Told::Leave(Leave::Reboot), Told::Leave(Leave::Poweroff));
        check(None, None, "/usr/lib/systemd/systemd-shutdown\0reboot\0--log-level\x006\0", reboot);
        check(None, None, "/usr/lib/systemd/systemd-shutdown\0poweroff\0", off);
        check(None, None, "/usr/bin/reboot-watcher\0reboot\0", Told::Restart);
        check(None, Some("stopping\n"), "/sbin/init\0", off);
        check(Some("13 reboot.target start running\n"), Some("stopping\n"), "/sbin/init\0", reboot);
        // Without any service manager, such as in a container, only the agent exits.
        check(None, None, "/sbin/tini\0", Told::Restart);
    }

    #[test]
    fn announcements_of_the_log_in_manager_are_understood() {
        let line = |member: &str, payload: &str| {
            format!(
                "{{\"type\":\"signal\",\"interface\":\"org.freedesktop.login1.Manager\",\"member\":\"{member}\",\
                 \"payload\":{payload}}}"
            )
        };
        let with = |kind: &str| {
            line(
                "PrepareForShutdownWithMetadata",
                &format!(
                    "{{\"type\":\"ba{{sv}}\",\"data\":[true,{{\"type\":{{\"type\":\"s\",\"data\":\"{kind}\"}}}}]}}"
                ),
            )
        };
        let check =
            |line: &str, expected: Option<Announcement>| assert_eq!(announced(line), expected, "{line}");
        check(&with("reboot"), Some(Announcement::Ends(Leave::Reboot)));
        check(&with("power-off"), Some(Announcement::Ends(Leave::Poweroff)));
        check(&with("something-new"), Some(Announcement::EndsSomehow));
        check(
            &line("PrepareForShutdown", "{\"type\":\"b\",\"data\":[true]}"),
            Some(Announcement::EndsSomehow),
        );
        check(
            &line("PrepareForShutdown", "{\"type\":\"b\",\"data\":[false]}"),
            Some(Announcement::Cancelled),
        );
        check(&line("PrepareForSleep", "{\"type\":\"b\",\"data\":[true]}"), None);
        check("not json", None);
        check("{}", None);
    }
}
