//! Runs `virsh`, libvirt's own client: the agent does not link libvirt, so a call that hangs is a process that can be
//! killed.

use crate::driver::program::process::ProcessStatus;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// Environment variable that marks every `virsh` of an agent, so that the next agent finds leftover processes.
const MARK: &str = "HA_LIBVIRT_FOLDER";
/// Maximum length of an error message, in characters.
const MAX_ERROR_CHARACTERS: usize = 4000;

/// A connection to one libvirt of this node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Virsh {
    uri: String,
    /// The driver's directory.
    directory: PathBuf,
}

/// Reason for a missing answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum VirshError {
    /// `virsh` is not installed.
    #[error("virsh is not installed: run apt install libvirt-clients libvirt-daemon-system")]
    Missing,
    /// `virsh` could not be started, or waiting for it failed.
    #[error("cannot run virsh: {0}")]
    Broken(io::Error),
    /// Libvirt hangs or needs too long.
    #[error("virsh {command} timed out after {} s", limit.as_secs())]
    TimedOut {
        command: String,
        /// Time limit that was exceeded.
        limit: Duration,
    },
    #[error("{0}")]
    Reported(String),
}

impl VirshError {
    /// Returns `true` if libvirt does not run on this node, so that it cannot start a domain.
    pub(super) fn is_not_running(&self) -> bool {
        match self {
            VirshError::Missing => true,
            VirshError::Reported(error_text) => {
                error_text.contains("Failed to connect socket")
                    && ["No such file or directory", "Connection refused"]
                        .iter()
                        .any(|failure_text| error_text.contains(failure_text))
            }
            VirshError::Broken(_) | VirshError::TimedOut { .. } => false,
        }
    }

    /// Returns `true` if libvirt was reached and reported an error.
    pub(super) fn is_answer(&self) -> bool {
        match self {
            VirshError::Reported(error_text) => !is_unreachable(error_text),
            VirshError::Missing | VirshError::Broken(_) | VirshError::TimedOut { .. } => false,
        }
    }
}

/// Returns `true` if the error of virsh means that it could not reach libvirt.
fn is_unreachable(error_text: &str) -> bool {
    [
        "failed to connect to the hypervisor",
        "Failed to connect socket",
        "client socket is closed",
        "End of file while reading data",
    ]
    .iter()
    .any(|text| error_text.contains(text))
}

impl Virsh {
    pub(super) fn new(uri: &str, directory: &Path) -> Virsh {
        Virsh { uri: uri.to_owned(), directory: directory.to_owned() }
    }

    /// Returns the connection URI of libvirt.
    pub(super) fn uri(&self) -> &str {
        &self.uri
    }

    /// Runs a command and returns its output.
    ///
    /// If the future is dropped early, virsh is killed, but libvirt still completes the operation.
    pub(super) async fn run(&self, limit: Duration, arguments: &[&str]) -> Result<String, VirshError> {
        let command = || arguments.first().copied().unwrap_or_default().to_owned();
        let running = self.begin(arguments)?;
        let ended = tokio::time::timeout(limit, running.end()).await;
        ended.unwrap_or_else(|_| Err(VirshError::TimedOut { command: command(), limit }))
    }

    /// Starts a command that may take a long time.
    pub(super) fn begin(&self, arguments: &[&str]) -> Result<Running, VirshError> {
        let child = Command::new("virsh")
            .args(["-q", "-c", &self.uri])
            .args(arguments)
            // The output is parsed, so it must be in English.
            .env("LC_ALL", "C")
            .env(MARK, &self.directory)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| {
                let is_missing = error.kind() == io::ErrorKind::NotFound;
                if is_missing { VirshError::Missing } else { VirshError::Broken(error) }
            })?;
        Ok(Running { group: Group { child } })
    }
}

/// A running `virsh`; dropping it kills the process.
pub(super) struct Running {
    group: Group,
}

impl Running {
    /// Returns the lines of the output. `None` if they were taken before.
    pub(super) fn lines(&mut self) -> Option<Lines<BufReader<ChildStdout>>> {
        use tokio::io::AsyncBufReadExt;
        Some(BufReader::new(self.group.child.stdout.take()?).lines())
    }

    /// Waits for the end, and returns the output.
    pub(super) async fn end(mut self) -> Result<String, VirshError> {
        let (mut printed, mut error_text) = (Vec::new(), Vec::new());
        let (stdout, stderr) = (self.group.child.stdout.take(), self.group.child.stderr.take());
        let status: io::Result<ExitStatus> = async {
            let read_out = async {
                match stdout {
                    Some(mut stdout) => stdout.read_to_end(&mut printed).await,
                    None => Ok(0),
                }
            };
            let read_err = async {
                match stderr {
                    Some(mut stderr) => stderr.read_to_end(&mut error_text).await,
                    None => Ok(0),
                }
            };
            let (out, err) = tokio::join!(read_out, read_err);
            out.and(err)?;
            self.group.child.wait().await
        }
        .await;
        if status.map_err(VirshError::Broken)?.success() {
            return Ok(String::from_utf8_lossy(&printed).into_owned());
        }
        Err(VirshError::Reported(join_error_lines(&String::from_utf8_lossy(&error_text))))
    }
}

/// Joins lines such as `error: a` and `error: b` to `a: b`.
fn join_error_lines(error_text: &str) -> String {
    let lines: Vec<&str> = error_text
        .lines()
        .map(|line| line.strip_prefix("error: ").unwrap_or(line).trim())
        .filter(|line| !line.is_empty())
        .collect();
    let mut text = lines.join(": ");
    if let Some((end, _)) = text.char_indices().nth(MAX_ERROR_CHARACTERS) {
        text.truncate(end);
    }
    if text.is_empty() { "virsh failed without a message".to_owned() } else { text }
}

/// Kills each virsh of an earlier agent, so that its command cannot still take effect.
pub(super) fn kill_leftovers(directory: &Path) -> io::Result<()> {
    let mark = format!("{MARK}={}", directory.display());
    for process in ProcessStatus::all()? {
        if process.name == "virsh" && process.has_variables([&mark, &mark])[0] {
            tracing::info!(pid = process.identity.pid, "killing a virsh process of an earlier agent");
            process.identity.signal(rustix::process::Signal::KILL)?;
        }
    }
    Ok(())
}

/// A process in its own process group, killed with the group on drop unless it was waited for.
struct Group {
    child: Child,
}

impl Drop for Group {
    fn drop(&mut self) {
        // The pid belongs to the child as long as the child was not waited for.
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()) {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virsh_error_lines_are_joined() {
        for (error_text, expected, answer, not_running) in [
            (
                "error: Failed to create domain from /x\nerror: XML error: no OS\n\n",
                "Failed to create domain from /x: XML error: no OS",
                true,
                false,
            ),
            (
                "error: failed to connect to the hypervisor\nerror: Failed to connect socket to '/run/libvirt/libvirt-sock': No such file or directory\n",
                "failed to connect to the hypervisor: Failed to connect socket to '/run/libvirt/libvirt-sock': No such file or directory",
                false,
                true,
            ),
            (
                "error: failed to connect to the hypervisor\nerror: Cannot recv data: Connection reset by peer\n",
                "failed to connect to the hypervisor: Cannot recv data: Connection reset by peer",
                false,
                false,
            ),
            ("", "virsh failed without a message", true, false),
        ] {
            let error = VirshError::Reported(join_error_lines(error_text));
            assert_eq!((error.to_string().as_str(), error.is_answer()), (expected, answer));
            assert_eq!(error.is_not_running(), not_running, "{error_text}");
        }
    }
}
