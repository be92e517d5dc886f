//! Runs LXC's programs: the agent does not link LXC, so a call that hangs is a process that can be killed.

use super::container::Container;
use std::io;
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::process::Command;
use tokio::time::timeout;

/// Time limit of a query. A monitor that is suspended by a signal does not answer.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3);

/// Reason for a missing answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ToolError {
    /// LXC is not installed.
    #[error("{0} is not installed: run apt install lxc")]
    Missing(&'static str),
    /// The program could not be run.
    #[error("cannot run {0}: {1}")]
    Broken(&'static str, io::Error),
    /// The monitor of the container does not answer.
    #[error("{program} did not exit within {} s", limit.as_secs())]
    TimedOut {
        program: &'static str,
        /// Time limit that was exceeded.
        limit: Duration,
    },
    /// The program reported an error.
    #[error("{0}: {1}")]
    Failed(&'static str, String),
}

/// State of a container as reported by its monitor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ContainerInfo {
    /// State in LXC's words, such as `RUNNING`.
    pub(super) state: String,
    /// Pid of the container's first process.
    pub(super) pid: Option<i32>,
}

impl ContainerInfo {
    /// Parses the output of `lxc-info --state --pid`.
    fn parse(text: &str) -> ContainerInfo {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        ContainerInfo {
            state: field("State:").unwrap_or_default().to_owned(),
            pid: field("PID:").and_then(|pid| pid.parse().ok()),
        }
    }

    /// Returns `true` if the container runs or is frozen, so that it holds its data.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.state.as_str(), "RUNNING" | "FREEZING" | "FROZEN" | "THAWED")
    }
}

/// Returns a command of a program for a container. Its output is in English.
pub(super) fn command(program: &str, container: &Container) -> Command {
    let mut command = Command::new(program);
    command
        .args(["-n", &container.name, "-P"])
        .arg(&container.path)
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Runs a program for a container, and returns its output.
pub(super) async fn run(
    program: &'static str,
    container: &Container,
    arguments: &[&str],
    limit: Duration,
) -> Result<String, ToolError> {
    let output = output(program, command(program, container).args(arguments), limit).await?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message =
        String::from_utf8_lossy(if output.stderr.is_empty() { &output.stdout } else { &output.stderr });
    let message = message.trim();
    let message = if message.is_empty() { output.status.to_string() } else { message.to_owned() };
    Err(ToolError::Failed(program, message))
}

/// Runs a command within a time limit.
pub(super) async fn output(
    program: &'static str,
    command: &mut Command,
    limit: Duration,
) -> Result<Output, ToolError> {
    match timeout(limit, command.output()).await {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Err(ToolError::Missing(program)),
        Ok(Err(error)) => Err(ToolError::Broken(program, error)),
        Err(_) => Err(ToolError::TimedOut { program, limit }),
    }
}

/// Reads the state of a container from its monitor. A container that is not defined is reported as stopped, or as an
/// error.
pub(super) async fn info(container: &Container) -> Result<ContainerInfo, ToolError> {
    run("lxc-info", container, &["--state", "--pid"], QUERY_TIMEOUT)
        .await
        .map(|text| ContainerInfo::parse(&text))
}

/// Checks that this machine has LXC.
pub(super) async fn check_usable() -> Result<(), String> {
    for program in ["lxc-start", "lxc-stop", "lxc-info", "lxc-attach"] {
        let mut command = Command::new(program);
        command.arg("--version").stdin(Stdio::null()).kill_on_drop(true);
        output(program, &mut command, QUERY_TIMEOUT).await.map_err(|error| error.to_string())?;
    }
    if !nix::unistd::geteuid().is_root() {
        return Err("the agent does not run as root".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lxc_states_are_parsed() {
        let check = |text: &str, state: &str, pid: Option<i32>, is_running: bool| {
            let info = ContainerInfo::parse(text);
            assert_eq!(info, ContainerInfo { state: state.to_owned(), pid }, "{text}");
            assert_eq!(info.is_running(), is_running, "{text}");
        };
        check("State:          RUNNING\nPID:            32217\n", "RUNNING", Some(32217), true);
        check("State:          FROZEN\nPID:            7\n", "FROZEN", Some(7), true);
        check("State:          STOPPED\n", "STOPPED", None, false);
        check("State:          STOPPING\nPID: 7\n", "STOPPING", Some(7), false);
        check("", "", None, false);
    }
}
