//! Process 1 of a machine: mounts, host name, then its programs, started again when they die, until the power goes.
//!
//! It stands where a service manager stands on a real machine, with the part of its behaviour that matters here: it reaps orphans,
//! restarts daemons, and stops them in reverse order when asked to.
//! The outside speaks to it through files in the machine's volatile folder: `go` (begin), `NAME.hold` (leave this program dead).
//! It writes `NAME.pid`, the number that the program has inside.

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

/// How soon a program that died is started again, as service managers do.
const RESTART: Duration = Duration::from_millis(300);
/// How often the folder is looked at for `go` and `NAME.hold`.
const LOOK: Duration = Duration::from_millis(25);
/// How long programs may take to end on an orderly power-off.
const STOP_CEILING: Duration = Duration::from_secs(60);

/// Everything that process 1 has to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    /// The machine's host name.
    pub machine: String,
    /// The folder through which the outside speaks to it.
    pub volatile: PathBuf,
    /// Where output of the programs goes, one file each.
    pub logs: PathBuf,
    /// Folders that appear elsewhere on this machine, source first.
    pub binds: Vec<(PathBuf, PathBuf)>,
    /// What runs, in the order of starting.
    pub programs: Vec<Program>,
}

/// A daemon of the machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Program {
    /// A short name: of its log, its process number file and its hold file.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Added to the environment.
    pub environment: BTreeMap<String, String>,
}

/// Runs a machine until it is told to stop.
///
/// # Errors
/// When the machine cannot be set up; a program that cannot be started is tried again for ever, as it may be being built.
pub fn run(spec: &Spec) -> Result<()> {
    // A session of its own: where the kernel shares the processor out by sessions, each machine gets a share as large as any other's.
    setsid().context("no session of its own")?;
    sethostname(&spec.machine).context("the host name could not be set")?;
    for (source, target) in &spec.binds {
        bind(source, target)?;
    }
    own_run(&spec.volatile)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Machine::new(spec).live())
}

/// Shows `source` at `target`, whose parent must be a folder that every system has; a tmpfs covers that parent.
fn bind(source: &Path, target: &Path) -> Result<()> {
    let parent = target.parent().context("a bind target needs a parent folder")?;
    // Opened first, so that covering the parent cannot hide it.
    let handle = File::open(source).with_context(|| source.display().to_string())?;
    let through = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&handle));
    let none: Option<&str> = None;
    mount(Some("tmpfs"), parent, Some("tmpfs"), MsFlags::empty(), Some("mode=755"))
        .with_context(|| format!("a tmpfs could not be mounted on {}", parent.display()))?;
    fs::create_dir_all(target).with_context(|| target.display().to_string())?;
    mount(Some(through.as_str()), target, none, MsFlags::MS_BIND, none)
        .with_context(|| format!("{} could not be bound to {}", source.display(), target.display()))
}

/// Where `ip` keeps the network namespaces that have a name.
const NAMESPACES: &str = "/run/netns";

/// Gives the machine a `/run` of its own, empty as after a boot, except for two directories of the world between the machines: the
/// volatile folder of its cluster, which has the socket of the power supply, and the network namespaces, one of which is the
/// switch that a fence agent of kind Fabric configures.
fn own_run(volatile: &Path) -> Result<()> {
    let run = Path::new("/run");
    let volatile = volatile.parent().filter(|folder| *folder != run).unwrap_or(volatile);
    let shown = [volatile, Path::new(NAMESPACES)].into_iter().filter(|folder| folder.starts_with(run));
    // Opened first: the tmpfs covers them.
    let handles: Vec<(&Path, File)> = shown
        .filter(|folder| folder.is_dir())
        .map(|folder| {
            File::open(folder).map(|handle| (folder, handle)).with_context(|| folder.display().to_string())
        })
        .collect::<Result<_>>()?;
    let none: Option<&str> = None;
    mount(Some("tmpfs"), run, Some("tmpfs"), MsFlags::empty(), Some("mode=755"))
        .context("a tmpfs could not be mounted on /run")?;
    // /var/lock is a link to it, and everybody's.
    fs::DirBuilder::new().mode(0o777).create(run.join("lock"))?;
    for (folder, handle) in handles {
        let through = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&handle));
        fs::create_dir_all(folder)?;
        // With what is mounted below: each namespace is a mount.
        mount(Some(through.as_str()), folder, none, MsFlags::MS_BIND | MsFlags::MS_REC, none)
            .with_context(|| format!("{} could not be shown again", folder.display()))?;
    }
    Ok(())
}

struct Machine<'a> {
    spec: &'a Spec,
    running: BTreeMap<&'a str, Pid>,
    died: BTreeMap<&'a str, Instant>,
}

impl<'a> Machine<'a> {
    fn new(spec: &'a Spec) -> Self {
        Self { spec, running: BTreeMap::new(), died: BTreeMap::new() }
    }

    async fn live(mut self) -> Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut child = signal(SignalKind::child())?;
        let mut look = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = child.recv() => self.reap(),
                _ = look.tick() => { self.reap(); self.start_missing(); }
            }
        }
        self.stop().await;
        Ok(())
    }

    /// Takes note of children that ended, and of orphans that ended here.
    fn reap(&mut self) {
        loop {
            match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _)) => self.ended(pid),
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return,
                // Stops and traces of children do not concern process 1; look for the next one.
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return,
            }
        }
    }

    fn ended(&mut self, pid: Pid) {
        let name = self.running.iter().find(|(_, running)| **running == pid).map(|(name, _)| *name);
        if let Some(name) = name {
            self.running.remove(name);
            self.died.insert(name, Instant::now());
            // Gone already when the machine is being removed, which is as well.
            let _ = fs::remove_file(self.spec.volatile.join(format!("{name}.pid")));
        }
    }

    fn start_missing(&mut self) {
        if !self.spec.volatile.join("go").exists() {
            return;
        }
        for program in &self.spec.programs {
            let name = program.name.as_str();
            let held = self.spec.volatile.join(format!("{name}.hold")).exists();
            let resting = self.died.get(name).is_some_and(|died| died.elapsed() < RESTART);
            if held || resting || self.running.contains_key(name) {
                continue;
            }
            match self.start(program) {
                Ok(pid) => {
                    self.running.insert(name, pid);
                }
                Err(error) => {
                    self.note(name, &format!("could not be started: {error:#}"));
                    self.died.insert(name, Instant::now());
                }
            }
        }
    }

    fn start(&self, program: &Program) -> Result<Pid> {
        let (name, arguments) = program.command.split_first().context("an empty command")?;
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
        // Its end is seen by `reap`, together with everybody else's.
        let pid = Pid::from_raw(i32::try_from(child.id())?);
        fs::write(self.spec.volatile.join(format!("{}.pid", program.name)), pid.to_string())?;
        Ok(pid)
    }

    /// Asks the programs to end, the last one first, and waits for each.
    async fn stop(&mut self) {
        let begin = Instant::now();
        for program in self.spec.programs.iter().rev() {
            let name = program.name.as_str();
            let Some(pid) = self.running.get(name).copied() else { continue };
            let _ = kill(pid, Signal::SIGTERM);
            while self.running.contains_key(name) && begin.elapsed() < STOP_CEILING {
                tokio::time::sleep(LOOK).await;
                self.reap();
            }
        }
    }

    fn log(&self, name: &str) -> Result<File> {
        let path = self.spec.logs.join(format!("{name}.log"));
        OpenOptions::new().create(true).append(true).open(&path).with_context(|| path.display().to_string())
    }

    fn note(&self, name: &str, line: &str) {
        use std::io::Write;
        if let Ok(mut log) = self.log(name) {
            let _ = writeln!(log, "init: {line}");
        }
    }
}
