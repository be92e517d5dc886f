//! Process 1 of a machine: sets up mounts and host name, then starts the machine's programs and restarts them until the power
//! ends.
//!
//! This process replaces the service manager of a real machine, as far as tests need one. It reaps orphans, restarts daemons, and stops
//! them in reverse order on request. Tests control it through files in the machine's volatile directory: `go` starts the
//! programs, and `NAME.hold` prevents a restart of a program. It writes `NAME.pid` with the program's process id inside the
//! machine.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, sethostname, setsid};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

/// Delay before the restart of a program that ended. Service managers use a similar delay.
const RESTART_DELAY: Duration = Duration::from_millis(300);
/// Time between two checks of the directory for `go` and `NAME.hold`.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// Longest time for all programs to end on an orderly power-off.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// Configuration of process 1.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InitSpec {
    /// Host name of the machine.
    pub machine: String,
    /// Directory with the files that control process 1.
    pub volatile: PathBuf,
    /// Directory for the programs' output, with one file for each.
    pub logs: PathBuf,
    /// Directories that appear at another path on this machine, source first.
    pub bind_mounts: Vec<(PathBuf, PathBuf)>,
    /// Programs, in the order of their starts.
    pub programs: Vec<Program>,
}

/// A daemon of the machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Program {
    /// Short name, used for the log, the pid file and the hold file.
    pub name: String,
    /// Path of the program, and its arguments.
    pub command: Vec<String>,
    /// Variables added to the environment.
    pub environment: BTreeMap<String, String>,
}

/// Runs a machine until it receives SIGTERM.
///
/// # Errors
/// Fails if the machine cannot be set up. A program that cannot be started is retried indefinitely, because a build may be about
/// to create it.
pub fn run(spec: &InitSpec) -> Result<()> {
    // Each machine has its own session: a kernel that divides the processor by sessions then gives every machine the
    // same share.
    setsid().context("cannot create a session")?;
    sethostname(&spec.machine).context("cannot set the host name")?;
    for (source, target) in &spec.bind_mounts {
        bind_mount(source, target)?;
    }
    mount_own_run(&spec.volatile)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(ProgramSupervisor::new(spec).run_until_terminated())
}

/// Mounts `source` at `target`. The parent of `target` must be a directory that every system has, because a tmpfs covers it.
fn bind_mount(source: &Path, target: &Path) -> Result<()> {
    let parent = target.parent().context("bind target has no parent directory")?;
    // The source is opened before the mount, which could hide it.
    let handle = File::open(source).with_context(|| source.display().to_string())?;
    let source_path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&handle));
    let no_data: Option<&str> = None;
    mount(Some("tmpfs"), parent, Some("tmpfs"), MsFlags::empty(), Some("mode=755"))
        .with_context(|| format!("cannot mount a tmpfs on {}", parent.display()))?;
    fs::create_dir_all(target).with_context(|| target.display().to_string())?;
    mount(Some(source_path.as_str()), target, no_data, MsFlags::MS_BIND, no_data)
        .with_context(|| format!("cannot bind {} to {}", source.display(), target.display()))
}

/// Directory in which `ip` keeps the named network namespaces.
const NAMESPACE_DIRECTORY: &str = "/run/netns";

/// Mounts a `/run` for the machine, empty like after a boot, except for two directories of the host. The cluster's volatile
/// directory contains the socket of the power supply. The network namespaces include the switch that a fence agent of kind Fabric
/// configures.
fn mount_own_run(volatile: &Path) -> Result<()> {
    let run = Path::new("/run");
    let volatile = volatile.parent().filter(|directory| *directory != run).unwrap_or(volatile);
    let kept_directories =
        [volatile, Path::new(NAMESPACE_DIRECTORY)].into_iter().filter(|directory| directory.starts_with(run));
    // The directories are opened before the tmpfs covers them.
    let handles: Vec<(&Path, File)> = kept_directories
        .filter(|directory| directory.is_dir())
        .map(|directory| {
            File::open(directory)
                .map(|handle| (directory, handle))
                .with_context(|| directory.display().to_string())
        })
        .collect::<Result<_>>()?;
    let no_data: Option<&str> = None;
    mount(Some("tmpfs"), run, Some("tmpfs"), MsFlags::empty(), Some("mode=755"))
        .context("cannot mount a tmpfs on /run")?;
    // `/var/lock` is a link to this directory, which is writable for all users.
    fs::DirBuilder::new().mode(0o777).create(run.join("lock"))?;
    for (directory, handle) in handles {
        let source_path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&handle));
        fs::create_dir_all(directory)?;
        // The bind is recursive, because each named namespace is a mount.
        mount(Some(source_path.as_str()), directory, no_data, MsFlags::MS_BIND | MsFlags::MS_REC, no_data)
            .with_context(|| format!("{} could not be shown again", directory.display()))?;
    }
    Ok(())
}

struct ProgramSupervisor<'a> {
    spec: &'a InitSpec,
    running: BTreeMap<&'a str, Pid>,
    ended_at: BTreeMap<&'a str, Instant>,
}

impl<'a> ProgramSupervisor<'a> {
    fn new(spec: &'a InitSpec) -> Self {
        Self { spec, running: BTreeMap::new(), ended_at: BTreeMap::new() }
    }

    async fn run_until_terminated(mut self) -> Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut child = signal(SignalKind::child())?;
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = child.recv() => self.reap(),
                _ = poll.tick() => { self.reap(); self.start_missing(); }
            }
        }
        self.stop().await;
        Ok(())
    }

    /// Records the end of children, and reaps orphans.
    fn reap(&mut self) {
        loop {
            match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _)) => self.record_end(pid),
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return,
                // Process 1 ignores stops and traces of children. Continue with the next child.
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return,
            }
        }
    }

    fn record_end(&mut self, pid: Pid) {
        let name = self.running.iter().find(|(_, running)| **running == pid).map(|(name, _)| *name);
        if let Some(name) = name {
            self.running.remove(name);
            self.ended_at.insert(name, Instant::now());
            // The file no longer exists if the machine is being removed. That is harmless.
            let _ = fs::remove_file(self.spec.volatile.join(format!("{name}.pid")));
        }
    }

    fn start_missing(&mut self) {
        if !self.spec.volatile.join("go").exists() {
            return;
        }
        for program in &self.spec.programs {
            let name = program.name.as_str();
            let is_held = self.spec.volatile.join(format!("{name}.hold")).exists();
            let is_delayed =
                self.ended_at.get(name).is_some_and(|ended_at| ended_at.elapsed() < RESTART_DELAY);
            if is_held || is_delayed || self.running.contains_key(name) {
                continue;
            }
            match self.start(program) {
                Ok(pid) => {
                    self.running.insert(name, pid);
                }
                Err(error) => {
                    self.log_line(name, &format!("cannot be started: {error:#}"));
                    self.ended_at.insert(name, Instant::now());
                }
            }
        }
    }

    fn start(&self, program: &Program) -> Result<Pid> {
        let (name, arguments) = program.command.split_first().context("command is empty")?;
        let log = self.log(&program.name)?;
        let child = Command::new(name)
            .args(arguments)
            .envs(&program.environment)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| name.clone())?;
        // `reap` collects the exit status of this child, as of all other children.
        let pid = Pid::from_raw(i32::try_from(child.id())?);
        fs::write(self.spec.volatile.join(format!("{}.pid", program.name)), pid.to_string())?;
        Ok(pid)
    }

    /// Stops the programs in reverse order, one at a time.
    async fn stop(&mut self) {
        let begin = Instant::now();
        for program in self.spec.programs.iter().rev() {
            let name = program.name.as_str();
            let Some(pid) = self.running.get(name).copied() else { continue };
            let _ = kill(pid, Signal::SIGTERM);
            while self.running.contains_key(name) && begin.elapsed() < STOP_TIMEOUT {
                tokio::time::sleep(POLL_INTERVAL).await;
                self.reap();
            }
        }
    }

    fn log(&self, name: &str) -> Result<File> {
        let path = self.spec.logs.join(format!("{name}.log"));
        OpenOptions::new().create(true).append(true).open(&path).with_context(|| path.display().to_string())
    }

    fn log_line(&self, name: &str, line: &str) {
        use std::io::Write;
        if let Ok(mut log) = self.log(name) {
            let _ = writeln!(log, "init: {line}");
        }
    }
}
