//! The supervisor of one service. It outlives the agent, adopts every orphaned process of the service, records the exit
//! status, and ends only when no process remains.

use super::request::{Report, SupervisorRequest};
use crate::driver::program::cgroup::ServiceCgroup;
use crate::driver::program::directory::ServiceDirectory;
use crate::driver::program::leftovers::descendants;
use crate::driver::program::order::{LaunchFailure, LaunchStep, ProcessRecord, RecordedExit};
use crate::driver::program::output::{Journal, Log};
use crate::driver::program::process::{ProcessIdentity, ProcessStatus};
use crate::driver::program::{LAUNCH, launch};
use nix::errno::Errno;
use nix::sys::stat::{Mode, umask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, dup2_stdin, dup2_stdout, setsid};
use rustix::process::{Signal, set_child_subreaper};
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

/// Reads a [`SupervisorRequest`] from the locked file on standard input, starts the main process, and writes one
/// [`Report`] to standard output. Returns when no process of the service remains.
pub(super) fn run() -> io::Result<()> {
    // The lock of the service's directory: held through this descriptor until this process ends.
    let mut lock = std::fs::File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let report = UnixStream::from(io::stdout().as_fd().try_clone_to_owned()?);
    launch::close_others(&[lock.as_raw_fd(), report.as_raw_fd()])?;
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    drop(null);
    setsid()?;
    std::env::set_current_dir("/")?;
    umask(Mode::from_bits_truncate(0o022));
    set_child_subreaper(Some(rustix::process::getpid()))?;
    let mut text = Vec::new();
    lock.read_to_end(&mut text)?;
    let supervised =
        serde_json::from_slice(&text).map_err(io::Error::from).and_then(|order| begin(order, &report));
    if let Err(error) = supervised {
        // The agent reads this report only if no other report was sent before.
        let failure = LaunchFailure::new(LaunchStep::Prepare, "supervisor of the service failed", &error);
        send_report(&report, &Report::Failed(failure));
    }
    drop(lock);
    Ok(())
}

fn begin(mut order: SupervisorRequest, mut report: &UnixStream) -> io::Result<()> {
    if order.environment.is_none() {
        let mut text = Vec::new();
        report.read_to_end(&mut text)?;
        order.environment = Some(serde_json::from_slice(&text)?);
    }
    if let Some(cgroup) = &order.launch.cgroup {
        // A failure is harmless: the supervisor leaves the agent's group only so that the group can be removed. The
        // launcher joins the service's own group.
        let _ = ServiceCgroup::at(cgroup.clone()).join_as_supervisor();
    }
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(supervise(order, report))
}

struct SupervisedService {
    directory: ServiceDirectory,
    record: ProcessRecord,
    log: Log,
    journal: Option<Journal>,

    main_process_ended: bool,
}

async fn supervise(order: SupervisorRequest, report: &UnixStream) -> io::Result<()> {
    // The handler is installed before the first child starts, so that no end of a child is missed.
    let mut child_ended = signal(SignalKind::child())?;
    let mut stop_signals =
        [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?];
    let (reader, writer) = io::pipe()?;
    let (channel, child_socket) = UnixStream::pair()?;
    let started = start(&order, writer.into(), child_socket)?;
    let mut supervised = SupervisedService {
        log: Log::new(ServiceDirectory::at(order.directory.clone()).log(), order.log_bytes_max),
        directory: ServiceDirectory::at(order.directory.clone()),
        journal: order.logs_to_journal.then(|| Journal::connect(&order.resource).ok()).flatten(),
        record: started,
        main_process_ended: false,
    };
    // The record is written before the program can run, so that a running program always has a record.
    supervised.directory.write_record(&supervised.record)?;
    let mut launch_failure = Box::pin(run_launcher(channel, order));
    let mut reported_failure = None;
    let mut output = Some(pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let [terminate, interrupt, hangup] = &mut stop_signals;
        tokio::select! {
            failure = &mut launch_failure, if reported_failure.is_none() => {
                send_report(report, &failure.as_ref().map_or_else(
                    || Report::Started(supervised.record.clone()),
                    |failure| Report::Failed(failure.clone()),
                ));
                // The agent reads this answer until the end of the stream.
                report.shutdown(Shutdown::Both).ok();
                reported_failure = Some(failure);
            }
            read = read_some(&mut output, &mut buffer) => supervised.handle_output(&mut output, &buffer, read),
            _ = child_ended.recv() => supervised.reap(),
            _ = terminate.recv() => supervised.forward_termination(),
            _ = interrupt.recv() => supervised.forward_termination(),
            _ = hangup.recv() => supervised.forward_termination(),
            () = tokio::time::sleep(Duration::from_millis(20)), if supervised.main_process_ended => {}
        }
        // A failed search does not prove that no process remains, so it is repeated.
        if supervised.main_process_ended
            && reported_failure.is_some()
            && supervised.kill_remaining().unwrap_or(false)
        {
            supervised.drain(&mut output, &mut buffer).await;
            return Ok(());
        }
    }
}

/// Starts the launcher, which waits for its order: no program of the service runs yet.
fn start(order: &SupervisorRequest, output: OwnedFd, channel: UnixStream) -> io::Result<ProcessRecord> {
    let child = Command::new("/proc/self/exe")
        .arg(LAUNCH)
        .env_clear()
        .envs(order.environment.iter().flatten().map(|(name, value)| (name, value)))
        .stdin(OwnedFd::from(channel))
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()?;
    let identity_of = |pid: u32| i32::try_from(pid).map_err(io::Error::other).and_then(ProcessIdentity::of);
    Ok(ProcessRecord {
        uid: order.uid.clone(),
        boot_id: order.boot_id.clone(),
        supervisor: identity_of(std::process::id())?,
        main: identity_of(child.id())?,
        cgroup: order.launch.cgroup.clone(),
    })
}

/// Sends the launcher its order. Returns `None` once the program was executed.
async fn run_launcher(channel: UnixStream, order: SupervisorRequest) -> Option<LaunchFailure> {
    let mut launch = order.launch;
    launch.supervisor = i32::try_from(std::process::id()).ok();
    launch::send_launch_request(channel, &launch).await.unwrap_or_else(|error| {
        Some(LaunchFailure::new(LaunchStep::Prepare, "launcher exited without a result", &error))
    })
}

/// Sends the report. A failure is ignored: if the agent has ended, the next agent process reads the record.
fn send_report(mut channel: &UnixStream, report: &Report) {
    if let Ok(text) = serde_json::to_vec(report) {
        let _ = channel.write_all(&text);
    }
}

/// Reads from the service's output; never returns once the output has ended.
async fn read_some(output: &mut Option<pipe::Receiver>, buffer: &mut [u8]) -> io::Result<usize> {
    match output {
        Some(output) => output.read(buffer).await,
        None => std::future::pending().await,
    }
}

impl SupervisedService {
    fn handle_output(&mut self, output: &mut Option<pipe::Receiver>, buffer: &[u8], read: io::Result<usize>) {
        match read {
            Ok(1..) => {
                let printed = read.ok().and_then(|length| buffer.get(..length)).unwrap_or_default();
                // A log that cannot be written must not stop the service.
                let _ = self.log.write(printed);
                if let Some(journal) = &mut self.journal {
                    journal.write(printed);
                }
            }
            Ok(0) | Err(_) => *output = None,
        }
    }

    /// Reaps every child that has ended, including adopted children.
    fn reap(&mut self) {
        loop {
            let (pid, message) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, format!("exit status {code}")),
                Ok(WaitStatus::Signaled(pid, signal, _)) => {
                    (pid, format!("killed by signal {} ({signal})", signal as i32))
                }
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return,
                Ok(_) | Err(Errno::EINTR) => continue,
                Err(_) => return,
            };
            if pid == Pid::from_raw(self.record.main.pid) && !self.main_process_ended {
                self.main_process_ended = true;
                // If the disk is full, the agent detects the end of the process, but not its exit status.
                let _ = self.directory.write_exit(&RecordedExit { main: self.record.main, message });
            }
        }
    }

    /// Forwards a termination signal to the service, because a signal to the supervisor is meant for the service.
    fn forward_termination(&self) {
        let _ = self.record.main.signal(Signal::TERM);
    }

    /// Kills the processes that the main process left behind. Returns `true` once no process remains.
    fn kill_remaining(&mut self) -> io::Result<bool> {
        self.reap();
        let cgroup = self.record.cgroup.clone().map(ServiceCgroup::at);
        if let Some(cgroup) = &cgroup {
            cgroup.kill()?;
        }
        let processes = ProcessStatus::all()?;
        let descendant_pids = descendants(&processes, self.record.supervisor.pid);
        for process in processes.iter().filter(|process| descendant_pids.contains(&process.identity.pid)) {
            process.identity.signal(Signal::KILL)?;
        }
        let members = cgroup.map_or(Ok(Vec::new()), |cgroup| cgroup.members())?;
        Ok(descendant_pids.is_empty() && members.is_empty())
    }

    /// Reads the rest of the pipe, for at most 1 s, because a process outside the service may hold the other end.
    async fn drain(&mut self, output: &mut Option<pipe::Receiver>, buffer: &mut [u8]) {
        let deadline = Instant::now() + Duration::from_secs(1);
        while output.is_some() {
            match tokio::time::timeout_at(deadline, read_some(output, buffer)).await {
                Ok(read) => self.handle_output(output, buffer, read),
                Err(_) => return,
            }
        }
    }
}
