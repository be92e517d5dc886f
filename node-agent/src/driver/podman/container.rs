//! The output of `podman inspect`, and the state of a container that follows from it.

use super::definition::{DEFINITION_LABEL, RESOURCE_LABEL};
use super::frames::last_line;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A container in the output of `podman inspect`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Container {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) state: State,
    config: Config,
    host_config: HostConfig,
    /// Ids of the container's exec sessions, including ended sessions that podman still keeps.
    #[serde(rename = "ExecIDs")]
    exec_sessions: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct State {
    pub(super) status: String,
    pub(super) pid: i32,
    pub(super) conmon_pid: i32,
    exit_code: i32,
    error: String,
    started_at: String,
    #[serde(rename = "OOMKilled")]
    oom_killed: bool,
    /// Reported only by newer versions of podman.
    stopped_by_user: bool,
    health: Option<HealthLog>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct HealthLog {
    log: Option<Vec<CheckLog>>,
}

/// One run of the health check.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct CheckLog {
    output: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Config {
    labels: Option<BTreeMap<String, String>>,
    healthcheck: Option<CheckConfig>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct CheckConfig {
    test: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct HostConfig {
    restart_policy: RestartPolicy,
    pid_mode: String,
    auto_remove: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct RestartPolicy {
    name: String,
}

/// One run of a container; every start begins a new run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) id: String,
    started_at: String,
}

/// Outcome of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Exit {
    /// Exit status; 128 plus the number of the signal that ended the process.
    pub(super) code: i32,
    /// `true` if the process was killed because of a lack of memory.
    pub(super) oom_killed: bool,
    /// `true` if `podman stop` ended the container; only newer versions of podman report this.
    pub(super) stopped_by_user: bool,
    /// Error message of podman, possibly empty.
    pub(super) error: String,
    /// `true` if podman did not detect the end of the container.
    pub(super) unnoticed: bool,
}

/// State of a container's main process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Process {
    Alive,
    /// The process has ended, and conmon has not yet reported the end to podman.
    Ending,
    Gone,
    /// Podman runs in another pid namespace, so its processes cannot be seen.
    Hidden,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ContainerState {
    /// The container runs or is paused, so it holds its data.
    Runs(Run),
    /// No process of the container runs.
    Ended(Exit),
    /// The container is between two states, with podman's name of its state.
    Changing(String),
}

impl Container {
    /// Returns the resource for which the container was created; `None` if hactl did not create it.
    pub(super) fn resource(&self) -> Option<&str> {
        self.label(RESOURCE_LABEL)
    }

    /// Returns the digest of the definition from which the container was created.
    pub(super) fn definition(&self) -> Option<&str> {
        self.label(DEFINITION_LABEL)
    }

    fn label(&self, name: &str) -> Option<&str> {
        self.config.labels.as_ref()?.get(name).map(String::as_str)
    }

    /// Returns the restart policy, or `None` if podman does not restart the container. With a policy, podman starts
    /// the container independently of hactl.
    pub(super) fn restart_policy(&self) -> Option<&str> {
        match self.host_config.restart_policy.name.as_str() {
            "" | "no" => None,
            name => Some(name),
        }
    }

    /// Returns the reason why an existing container cannot be a service of hactl, apart from its restart policy.
    pub(super) fn unsuitable_reason(&self) -> Option<String> {
        if let Some(unit) = self.label("PODMAN_SYSTEMD_UNIT") {
            return Some(format!("managed by the systemd unit {unit}: use driver systemd with this unit"));
        }
        if self.host_config.auto_remove {
            return Some(
                "created with --rm, so it could not be started again: create it without --rm".to_owned(),
            );
        }
        match self.host_config.pid_mode.as_str() {
            "" | "private" => None,
            mode => Some(format!(
                "created with --pid={mode}, so remaining processes cannot be detected: create it without --pid"
            )),
        }
    }

    /// Returns the ids of the container's exec sessions.
    pub(super) fn exec_sessions(&self) -> &[String] {
        self.exec_sessions.as_deref().unwrap_or_default()
    }

    /// Returns the health check's command, as podman executes it.
    pub(super) fn check(&self) -> Option<Vec<String>> {
        let test = self.config.healthcheck.as_ref()?.test.as_deref()?;
        match test {
            [kind, command @ ..] if kind == "CMD" && !command.is_empty() => Some(command.to_vec()),
            [kind, line] if kind == "CMD-SHELL" => {
                Some(["sh", "-c", line.as_str()].map(str::to_owned).to_vec())
            }
            _ => None,
        }
    }

    /// Returns the last line of output of the last health check. Podman does not store its exit status.
    pub(super) fn last_check(&self) -> Option<String> {
        let last = self.state.health.as_ref()?.log.as_ref()?.last()?;
        last_line(&last.output)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.state.status == "paused"
    }

    /// Returns the state of the container, given the state of its main process.
    pub(super) fn container_state(&self, process: Process) -> ContainerState {
        let state = &self.state;
        match state.status.as_str() {
            "running" | "paused" | "stopping" => match process {
                Process::Alive | Process::Hidden => {
                    ContainerState::Runs(Run { id: self.id.clone(), started_at: state.started_at.clone() })
                }
                Process::Ending => ContainerState::Changing("ending".to_owned()),
                // conmon was killed before it could report the end, so podman reports the container as running
                // indefinitely.
                Process::Gone => ContainerState::Ended(Exit { unnoticed: true, ..Exit::default() }),
            },
            "created" | "configured" | "exited" | "stopped" => ContainerState::Ended(Exit {
                code: state.exit_code,
                oom_killed: state.oom_killed,
                stopped_by_user: state.stopped_by_user,
                error: state.error.clone(),
                unnoticed: false,
            }),
            other => ContainerState::Changing(other.to_owned()),
        }
    }
}

impl Exit {
    /// Returns how the container ended, as a clause for a message.
    pub(super) fn describe(&self) -> String {
        if self.unnoticed {
            return "process of the container was killed together with podman's conmon".to_owned();
        }
        let exit_text = match self.code {
            _ if self.oom_killed => "killed because it ran out of memory".to_owned(),
            code @ 129..=192 => format!("exit status {code} (signal {})", code - 128),
            code => format!("exit status {code}"),
        };
        if self.error.is_empty() { exit_text } else { format!("{exit_text}: {}", self.error) }
    }
}

/// Returns the state of a container's main process according to `proc`.
pub(super) fn process(proc: &Path, pid: i32, container: &str) -> Process {
    let directory = proc.join(pid.to_string());
    let state = |text: &str| {
        text.rsplit_once(')').map(|(_, state_field)| state_field.trim_start().starts_with(['Z', 'X']))
    };
    let (Ok(stat), Ok(groups)) =
        (fs::read(directory.join("stat")), fs::read_to_string(directory.join("cgroup")))
    else {
        return Process::Gone;
    };
    // Another process may have reused the pid. That process has another control group.
    let is_ended = state(&String::from_utf8_lossy(&stat)).unwrap_or(false);
    if pid > 0 && !is_ended && groups.contains(container) { Process::Alive } else { Process::Gone }
}

/// Returns `true` if the conmon of a container is alive: a process that has the container's id among its arguments.
pub(super) fn is_conmon_alive(proc: &Path, pid: i32, container: &str) -> bool {
    let arguments = fs::read(proc.join(pid.to_string()).join("cmdline")).unwrap_or_default();
    !container.is_empty() && String::from_utf8_lossy(&arguments).contains(container)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::{Value, json};

    pub(in super::super) fn container(state: &Value) -> Container {
        serde_json::from_value(json!({"Id": "abc", "Name": "web", "State": state})).expect("a container")
    }

    fn check(state: &Value, process: Process, expected: &ContainerState) {
        assert_eq!(&container(state).container_state(process), expected, "{state}");
    }

    #[test]
    fn podman_status_maps_to_container_state() {
        let runs = ContainerState::Runs(Run { id: "abc".into(), started_at: "t1".into() });
        for status in ["running", "paused", "stopping"] {
            let state = json!({"Status": status, "StartedAt": "t1", "Pid": 7});
            check(&state, Process::Alive, &runs);
            check(&state, Process::Hidden, &runs);
            check(&state, Process::Ending, &ContainerState::Changing("ending".into()));
            let unnoticed = Exit { unnoticed: true, ..Exit::default() };
            check(&state, Process::Gone, &ContainerState::Ended(unnoticed));
        }
        for status in ["created", "configured", "exited", "stopped"] {
            let state = json!({"Status": status, "ExitCode": 3});
            check(&state, Process::Gone, &ContainerState::Ended(Exit { code: 3, ..Exit::default() }));
        }
        for status in ["initialized", "removing", "unknown", ""] {
            check(&json!({"Status": status}), Process::Gone, &ContainerState::Changing(status.into()));
        }
    }

    #[test]
    fn container_exits_are_described() {
        let describe = |state: Value| match container(&state).container_state(Process::Gone) {
            ContainerState::Ended(exit) => exit.describe(),
            other @ (ContainerState::Runs(_) | ContainerState::Changing(_)) => panic!("{other:?}"),
        };
        for (state, expected) in [
            (json!({"Status": "exited", "ExitCode": 0}), "exit status 0"),
            (json!({"Status": "exited", "ExitCode": 137}), "exit status 137 (signal 9)"),
            (
                json!({"Status": "exited", "ExitCode": 137, "OOMKilled": true}),
                "killed because it ran out of memory",
            ),
            (json!({"Status": "exited", "ExitCode": 1, "Error": "no disk"}), "exit status 1: no disk"),
            (
                json!({"Status": "running"}),
                "process of the container was killed together with podman's conmon",
            ),
        ] {
            assert_eq!(describe(state), expected);
        }
    }

    #[test]
    fn externally_managed_containers_are_refused() {
        let container = |fields: Value| serde_json::from_value::<Container>(fields).expect("a container");
        let policy = |name: &str| {
            container(json!({"HostConfig": {"RestartPolicy": {"Name": name}, "PidMode": "private"}}))
        };
        assert_eq!(policy("").restart_policy(), None);
        assert_eq!(policy("no").restart_policy(), None);
        assert_eq!(policy("always").restart_policy(), Some("always"));
        assert_eq!(policy("always").unsuitable_reason(), None);
        let unit = container(json!({"Config": {"Labels": {"PODMAN_SYSTEMD_UNIT": "web.service"}}}));
        assert!(unit.unsuitable_reason().is_some_and(|reason| reason.contains("web.service")));
        let host = container(json!({"HostConfig": {"PidMode": "host"}, "Config": {"Labels": null}}));
        assert!(host.unsuitable_reason().is_some_and(|reason| reason.contains("--pid=host")));
        let passing = container(json!({"HostConfig": {"AutoRemove": true}}));
        assert!(passing.unsuitable_reason().is_some_and(|reason| reason.contains("--rm")));
        assert_eq!(host.resource(), None);
        let created_by_hactl = container(
            json!({"Config": {"Labels": {"io.hactl.resource": "web", "io.hactl.definition": "d1"}}}),
        );
        assert_eq!((created_by_hactl.resource(), created_by_hactl.definition()), (Some("web"), Some("d1")));
    }

    #[test]
    fn container_health_checks_are_parsed() {
        let container = |fields: Value| serde_json::from_value::<Container>(fields).expect("a container");
        let check = |test: Value| container(json!({"Config": {"Healthcheck": {"Test": test}}})).check();
        let words = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(check(json!(["CMD", "a", "b"])), words(&["a", "b"]));
        assert_eq!(check(json!(["CMD-SHELL", "a || b"])), words(&["sh", "-c", "a || b"]));
        for without_check in [json!(["NONE"]), json!(["CMD"]), json!([]), json!(null)] {
            assert_eq!(check(without_check.clone()), None, "{without_check}");
        }
        assert_eq!(container(json!({})).check(), None);
        let log = json!([{"ExitCode": 0, "Output": ""}, {"ExitCode": 3, "Output": "first\nnot ok\n"}]);
        let checked_container = container(json!({"State": {"Health": {"Log": log}}}));
        assert_eq!(checked_container.last_check().as_deref(), Some("not ok"));
        assert_eq!(container(json!({"State": {"Health": {"Log": null}}})).last_check(), None);
    }

    #[test]
    fn container_process_is_identified_by_control_group() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let process_of = |pid: i32, state: char, group: &str| {
            let path = directory.path().join(pid.to_string());
            fs::create_dir_all(&path).expect("made");
            fs::write(path.join("stat"), format!("{pid} (a) b) {state} 1 1")).expect("written");
            fs::write(path.join("cgroup"), format!("0::{group}\n")).expect("written");
            process(directory.path(), pid, "abc")
        };
        assert_eq!(process(directory.path(), 5, "abc"), Process::Gone);
        assert_eq!(process_of(7, 'S', "/machine.slice/libpod-abc.scope"), Process::Alive);
        assert_eq!(process_of(7, 'Z', "/machine.slice/libpod-abc.scope"), Process::Gone);
        assert_eq!(
            process_of(8, 'S', "/machine.slice/libpod-def.scope"),
            Process::Gone,
            "the pid now belongs to another process"
        );
        assert_eq!(process_of(0, 'S', "/libpod-abc"), Process::Gone, "no process");
    }
}
