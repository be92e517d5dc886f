//! A run of a program through the launcher. The program is killed with its process group when it exceeds its time
//! limit, or when the future is dropped.

use super::cgroup::ServiceCgroup;
use super::directory::ServiceDirectory;
use super::order::{LaunchFailure, LaunchOrder};
use super::{LAUNCH, Programs, launch, output};
use ha_api_types::time::Millis;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStdout, Command};

/// A program to run for a service.
pub(in crate::driver) struct Run<'a> {
    /// Program and arguments; not empty.
    pub(in crate::driver) program: &'a [String],
    /// The whole environment ([`Programs::environment`]).
    pub(in crate::driver) environment: Vec<(String, String)>,
    pub(in crate::driver) working_directory: PathBuf,
    /// User of the program; `None` means the agent's user.
    pub(in crate::driver) user: Option<String>,
    /// Control group for the program and the processes that it starts.
    pub(in crate::driver) cgroup: Option<ServiceCgroup>,
    /// Content of the standard input; `None` means /dev/null.
    pub(in crate::driver) input: Option<String>,
    /// Destination of the standard output.
    pub(in crate::driver) output: Output,
    /// `true` if the kernel kills the program when the agent ends, even by SIGKILL.
    pub(in crate::driver) killed_with_agent: bool,
}

/// Destination of a program's standard output. The standard error always goes to the service's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::driver) enum Output {
    /// The service's log.
    Log,
    /// The caller.
    Captured,
}

/// Outcome of a run.
#[derive(Debug)]
pub(in crate::driver) enum End {
    Ended(Ended),
    /// The program exceeded its time limit and was killed with its process group.
    TimedOut,
    /// The program was not executed.
    NotLaunched(LaunchFailure),
}

/// A program that ended without being killed by the agent.
#[derive(Clone, Debug)]
pub(in crate::driver) struct Ended {
    pub(in crate::driver) status: ExitStatus,
    /// End of the output that was logged during the run.
    pub(in crate::driver) logged_output: String,
    /// Captured standard output, if any, cut at [`OUTPUT_BYTES_MAX`].
    pub(in crate::driver) output: String,
}

impl Ended {
    /// Returns `: ` and the last line of output for the end of a message, or an empty string.
    pub(in crate::driver) fn last_line_suffix(&self) -> String {
        output::last_nonblank_line(&self.logged_output).map_or_else(String::new, |line| format!(": {line}"))
    }
}

/// Maximum length of a captured output in bytes; the rest is discarded.
pub(in crate::driver) const OUTPUT_BYTES_MAX: usize = 1024 * 1024;

/// Time after a program's end to wait for more output, if a process that it started still holds its standard output.
const LATE_OUTPUT_TIMEOUT: Duration = Duration::from_millis(200);

/// A running program. Dropping this value kills the program with its process group.
pub(in crate::driver) struct Running {
    group: Group,
    output: Option<ChildStdout>,
    directory: ServiceDirectory,
    /// Offset in the log at which the program's own output begins.
    log_offset: u64,
}

impl Programs {
    /// Runs a program to its end, for at most `timeout_ms`. Dropping the future earlier kills the program and its
    /// process group.
    pub(in crate::driver) async fn run(
        &self,
        resource: &str,
        run: Run<'_>,
        timeout_ms: Millis,
    ) -> io::Result<End> {
        let whole_run = async {
            match self.begin_run(resource, run).await? {
                Ok(running) => running.end().await.map(End::Ended),
                Err(failure) => Ok(End::NotLaunched(failure)),
            }
        };
        tokio::time::timeout(Duration::from_millis(timeout_ms), whole_run).await.unwrap_or(Ok(End::TimedOut))
    }

    /// Starts a program. When this returns, the program has been executed.
    pub(in crate::driver) async fn begin_run(
        &self,
        resource: &str,
        run: Run<'_>,
    ) -> io::Result<Result<Running, LaunchFailure>> {
        let directory = self.directory_of(resource);
        let log = open_log(&directory, self.settings.log_bytes_max)?;
        let log_offset = output::log_length(&directory.log());
        let (agent_socket, shim_socket) = UnixStream::pair()?;
        let mut command = Command::new(&self.settings.shim_path);
        command
            .arg(LAUNCH)
            .env_clear()
            .envs(run.environment)
            .stdin(OwnedFd::from(shim_socket))
            .kill_on_drop(true);
        if !run.killed_with_agent {
            // With `killed_with_agent`, the launcher creates a session, which is also a process group.
            command.process_group(0);
        }
        match run.output {
            Output::Log => command.stdout(log.try_clone()?),
            Output::Captured => command.stdout(Stdio::piped()),
        };
        command.stderr(log);
        let mut group = Group { child: command.spawn()? };
        // The command holds a copy of the socket's other end. While this copy is open, the answer does not end.
        drop(command);
        let order = LaunchOrder {
            program: run.program.to_vec(),
            working_directory: run.working_directory,
            user: run.user,
            cgroup: run.cgroup.map(|cgroup| cgroup.path().to_owned()),
            supervisor: run.killed_with_agent.then(|| std::process::id().cast_signed()),
            input: run.input,
        };
        let output = group.child.stdout.take();
        if let Some(failure) = launch::send_launch_request(agent_socket, &order).await? {
            return Ok(Err(failure));
        }
        Ok(Ok(Running { group, output, directory, log_offset }))
    }
}

impl Running {
    /// Waits for the end of the program.
    pub(in crate::driver) async fn end(mut self) -> io::Result<Ended> {
        let mut captured = Vec::new();
        let status = self.capture_output(&mut captured).await?;
        let logged_output = output::text_since(&self.directory.log(), self.log_offset);
        Ok(Ended { status, logged_output, output: String::from_utf8_lossy(&captured).into_owned() })
    }

    /// Returns the captured standard output for reading during the run; `None` if not captured, or already taken.
    pub(in crate::driver) fn take_output(&mut self) -> Option<ChildStdout> {
        self.output.take()
    }

    async fn capture_output(&mut self, captured: &mut Vec<u8>) -> io::Result<ExitStatus> {
        let Some(mut output) = self.output.take() else { return self.group.child.wait().await };
        let mut buffer = vec![0; 16 * 1024];
        let status = loop {
            tokio::select! {
                read = output.read(&mut buffer) => match read? {
                    0 => return self.group.child.wait().await,
                    length => append_bounded(captured, &buffer[..length]),
                },
                status = self.group.child.wait() => break status?,
            }
        };
        while let Ok(Ok(length @ 1..)) =
            tokio::time::timeout(LATE_OUTPUT_TIMEOUT, output.read(&mut buffer)).await
        {
            append_bounded(captured, &buffer[..length]);
            if captured.len() >= OUTPUT_BYTES_MAX {
                break;
            }
        }
        Ok(status)
    }
}

fn append_bounded(captured: &mut Vec<u8>, new_bytes: &[u8]) {
    let remaining = OUTPUT_BYTES_MAX.saturating_sub(captured.len()).min(new_bytes.len());
    captured.extend_from_slice(&new_bytes[..remaining]);
}

/// Opens the log for a program's output. On a full or broken disk, the output is lost and the program runs without a
/// log, so that a service can still be stopped.
fn open_log(directory: &ServiceDirectory, bytes_max: u64) -> io::Result<File> {
    let log = directory.make().and_then(|()| {
        output::rotate_in_place(&directory.log(), bytes_max)?;
        output::open_log(&directory.log())
    });
    log.or_else(|error| {
        tracing::warn!(log = %directory.log().display(), %error, "cannot write the log; output is lost");
        File::options().write(true).open("/dev/null")
    })
}

/// A program in its own process group, killed with the group on drop unless it was waited for.
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

/// Returns how a program ended, as a clause for a message.
pub(in crate::driver) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}
