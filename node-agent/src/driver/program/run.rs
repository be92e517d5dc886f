//! One run of a program through the launcher: killed with its process group when it takes too long, or when nobody waits for
//! it any more.

use super::cgroup::ServiceCgroup;
use super::folder::ServiceFolder;
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

/// A program that is to be run for a service.
pub(in crate::driver) struct Run<'a> {
    /// Program and arguments; not empty.
    pub(in crate::driver) program: &'a [String],
    /// All that it finds in its environment ([`Programs::environment`]).
    pub(in crate::driver) environment: Vec<(String, String)>,
    /// Where it runs.
    pub(in crate::driver) working_directory: PathBuf,
    /// Whom it runs as; `None`: the agent's user.
    pub(in crate::driver) user: Option<String>,
    /// The group that it, and what it starts, shall live in.
    pub(in crate::driver) cgroup: Option<ServiceCgroup>,
    /// What it reads on its standard input; `None`: nothing.
    pub(in crate::driver) input: Option<String>,
    /// Where its standard output goes.
    pub(in crate::driver) output: Output,
    /// Whether the kernel kills it when the agent ends, however that ends.
    pub(in crate::driver) dies_with_agent: bool,
}

/// Where a program's standard output goes. Its standard error goes to the service's log always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::driver) enum Output {
    /// To the service's log.
    Log,
    /// To whoever runs it.
    Captured,
}

/// How a program ended.
#[derive(Debug)]
pub(in crate::driver) enum End {
    /// By itself.
    Ended(Ended),
    /// It took too long and was killed with its process group.
    TimedOut,
    /// It never ran.
    NotLaunched(LaunchFailure),
}

/// A program that ended by itself.
#[derive(Clone, Debug)]
pub(in crate::driver) struct Ended {
    /// With this status.
    pub(in crate::driver) status: ExitStatus,
    /// The end of what went to the log meanwhile.
    pub(in crate::driver) said: String,
    /// What it printed, if that was captured; cut at [`OUTPUT_BYTES_MAX`].
    pub(in crate::driver) output: String,
}

impl Ended {
    /// `: what it said last`, or nothing.
    pub(in crate::driver) fn said_last(&self) -> String {
        output::last_of(&self.said).map_or_else(String::new, |line| format!(": {line}"))
    }
}

/// Of a longer output the rest is read and dropped.
pub(in crate::driver) const OUTPUT_BYTES_MAX: usize = 1024 * 1024;

/// After a program's end, how long to wait for more from a standard output that something it started still holds.
const HELD_OUTPUT: Duration = Duration::from_millis(200);

/// A program that runs. Dropping it kills the program with its process group.
pub(in crate::driver) struct Running {
    group: Group,
    output: Option<ChildStdout>,
    folder: ServiceFolder,
    /// Where in the log its own part begins.
    from: u64,
}

impl Programs {
    /// Runs a program to its end, for at most so long. When this is dropped before, the program and its process group are
    /// killed.
    pub(in crate::driver) async fn run(
        &self,
        resource: &str,
        run: Run<'_>,
        limit_ms: Millis,
    ) -> io::Result<End> {
        let whole = async {
            match self.begin_run(resource, run).await? {
                Ok(running) => running.end().await.map(End::Ended),
                Err(failure) => Ok(End::NotLaunched(failure)),
            }
        };
        tokio::time::timeout(Duration::from_millis(limit_ms), whole).await.unwrap_or(Ok(End::TimedOut))
    }

    /// Starts a program; it has been executed when this returns.
    pub(in crate::driver) async fn begin_run(
        &self,
        resource: &str,
        run: Run<'_>,
    ) -> io::Result<Result<Running, LaunchFailure>> {
        let folder = self.folder_of(resource);
        let log = open_log(&folder, self.settings.log_bytes_max)?;
        let from = output::end(&folder.log());
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(&self.settings.shim);
        command.arg(LAUNCH).env_clear().envs(run.environment).stdin(OwnedFd::from(theirs)).kill_on_drop(true);
        if !run.dies_with_agent {
            // Otherwise it makes a session of its own, which is a group too.
            command.process_group(0);
        }
        match run.output {
            Output::Log => command.stdout(log.try_clone()?),
            Output::Captured => command.stdout(Stdio::piped()),
        };
        command.stderr(log);
        let mut group = Group { child: command.spawn()? };
        // Its copy of our end's peer must go, or the end of the answer is never seen.
        drop(command);
        let order = LaunchOrder {
            program: run.program.to_vec(),
            working_directory: run.working_directory,
            user: run.user,
            cgroup: run.cgroup.map(|cgroup| cgroup.path().to_owned()),
            supervisor: run.dies_with_agent.then(|| std::process::id().cast_signed()),
            input: run.input,
        };
        let output = group.child.stdout.take();
        if let Some(failure) = launch::give_order(ours, &order).await? {
            return Ok(Err(failure));
        }
        Ok(Ok(Running { group, output, folder, from }))
    }
}

impl Running {
    /// Waits for its end.
    pub(in crate::driver) async fn end(mut self) -> io::Result<Ended> {
        let mut printed = Vec::new();
        let status = self.collect(&mut printed).await?;
        let said = output::since(&self.folder.log(), self.from);
        Ok(Ended { status, said, output: String::from_utf8_lossy(&printed).into_owned() })
    }

    /// Its standard output, for whoever reads it while it runs; only once, and only when it is captured.
    pub(in crate::driver) fn take_output(&mut self) -> Option<ChildStdout> {
        self.output.take()
    }

    async fn collect(&mut self, printed: &mut Vec<u8>) -> io::Result<ExitStatus> {
        let Some(mut output) = self.output.take() else { return self.group.child.wait().await };
        let mut buffer = vec![0; 16 * 1024];
        let status = loop {
            tokio::select! {
                read = output.read(&mut buffer) => match read? {
                    0 => return self.group.child.wait().await,
                    length => keep(printed, &buffer[..length]),
                },
                status = self.group.child.wait() => break status?,
            }
        };
        while let Ok(Ok(length @ 1..)) = tokio::time::timeout(HELD_OUTPUT, output.read(&mut buffer)).await {
            keep(printed, &buffer[..length]);
            if printed.len() >= OUTPUT_BYTES_MAX {
                break;
            }
        }
        Ok(status)
    }
}

fn keep(printed: &mut Vec<u8>, more: &[u8]) {
    let room = OUTPUT_BYTES_MAX.saturating_sub(printed.len()).min(more.len());
    printed.extend_from_slice(&more[..room]);
}

/// The log, for what a program prints. A full or broken disk costs the output: a stop must be possible all the same.
fn open_log(folder: &ServiceFolder, bytes_max: u64) -> io::Result<File> {
    let log = folder.make().and_then(|()| {
        output::rotate_in_place(&folder.log(), bytes_max)?;
        output::open(&folder.log())
    });
    log.or_else(|error| {
        tracing::warn!(log = %folder.log().display(), %error, "output is lost");
        File::options().write(true).open("/dev/null")
    })
}

/// A program in a process group of its own, killed with the group unless it was waited for.
struct Group {
    child: Child,
}

impl Drop for Group {
    fn drop(&mut self) {
        // The number is the child's for as long as it was not waited for.
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()) {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

/// How a program ended, for people.
pub(in crate::driver) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}
