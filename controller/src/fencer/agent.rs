//! One run of one fence agent: a child process in its own process group, with attributes on its standard input.

use crate::policy::Limits;
use ha_api_types::node::FencePart;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::path::PathBuf;
use std::process::Stdio;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PowerState {
    On,
    Off,
}

impl PowerState {
    /// Returns the action that leads to this state.
    pub(super) fn verb(self) -> &'static str {
        match self {
            PowerState::On => "on",
            PowerState::Off => "off",
        }
    }
}

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AgentExit {
    /// Exit status; `None` if the agent was killed by a signal.
    pub(super) code: Option<i32>,
    /// Last line of the output.
    pub(super) last_line: String,
}

impl AgentExit {
    /// Returns the power state that the exit status of `status` means; `None` for a failure.
    pub(super) fn power(&self) -> Option<PowerState> {
        match self.code {
            Some(0) => Some(PowerState::On),
            Some(2) => Some(PowerState::Off),
            Some(_) | None => None,
        }
    }

    pub(super) fn sentence(&self, verb: &str) -> String {
        let how =
            self.code.map_or_else(|| "was killed".to_owned(), |code| format!("ended with status {code}"));
        let last_line =
            if self.last_line.is_empty() { String::new() } else { format!(": {}", self.last_line) };
        format!("{verb} {how}{last_line}")
    }
}

/// An agent's program with its attributes. The attributes may contain passwords and are never printed.
pub(super) struct Agent {
    program: PathBuf,
    attributes: String,
}

/// Process group of a run; it is killed on drop.
struct ProcessGroup(Option<Pid>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            // The group may have ended without a signal.
            let _ = killpg(pid, Signal::SIGKILL);
        }
    }
}

/// Maximum length of the agent's output that is kept, in bytes.
const MAX_OUTPUT_BYTES: usize = 2_000;

impl Agent {
    /// Finds the program and reads its attributes. The error contains the suggested action.
    pub(super) fn find(directories: &[PathBuf], limits: &Limits, part: &FencePart) -> Result<Agent, String> {
        if part.agent.is_empty() || part.agent.contains('/') {
            return Err(format!(
                "{:?} is not a valid fence agent: use a name such as fence_ipmilan",
                part.agent
            ));
        }
        limits.check_part(part)?;
        let program = directories
            .iter()
            .map(|directory| directory.join(&part.agent))
            .find(|path| path.is_file())
            .ok_or_else(|| {
                format!("{} is not installed on this controller (package fence-agents)", part.agent)
            })?;
        let mut attributes = String::new();
        if let Some(file) = &part.attributes_file {
            let path = limits.file("attributesFile", file)?;
            let text =
                std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            attributes.push_str(text.trim_end());
            attributes.push('\n');
        }
        let values = limits.local_values();
        for (name, value) in &part.attributes {
            let value = values.text(name, value).map_err(|error| format!("attribute {error}"))?;
            if name.contains(['\n', '=']) || value.contains('\n') {
                return Err(format!("attribute {name:?} must be one line without '=' in its name"));
            }
            attributes.extend([name.as_str(), "=", value.as_str(), "\n"]);
        }
        Ok(Agent { program, attributes })
    }

    /// Runs the agent. If `deadline` passes or the future is dropped, the whole process group is killed.
    pub(super) async fn run(&self, verb: &str, deadline: Instant) -> Result<AgentExit, String> {
        let name = self.program.display().to_string();
        let child = Command::new(&self.program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("{name} cannot be started: {error}"))?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        // The group is dropped at the end of this run in every case. This also kills processes that the agent left in
        // the group.
        let _group = ProcessGroup(pid);
        let ended = tokio::time::timeout_at(deadline, self.run_child(child, verb)).await;
        ended.map_err(|_| format!("{verb} timed out"))?.map_err(|error| format!("{name}: {error}"))
    }

    async fn run_child(&self, mut child: Child, verb: &str) -> std::io::Result<AgentExit> {
        if let Some(mut input) = child.stdin.take() {
            let text = format!("{}action={verb}\n", self.attributes);
            // An agent that does not read its input reports the result by its exit status.
            let _ = input.write_all(text.as_bytes()).await;
        }
        let output = child.wait_with_output().await?;
        let text = [output.stderr, output.stdout].concat();
        let text = String::from_utf8_lossy(text.get(..text.len().min(MAX_OUTPUT_BYTES)).unwrap_or_default())
            .into_owned();
        let last_line =
            text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default().to_owned();
        Ok(AgentExit { code: output.status.code(), last_line })
    }
}
