//! The processes, control groups and commands that a simulated watchdog kills or runs when its timer fires.

use super::super::system_calls;
use super::Options;
use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The targets: processes and control groups to kill, then commands to run.
pub(super) struct Targets {
    processes: Vec<(u32, OwnedFd)>,
    groups: Vec<PathBuf>,
    commands: Vec<String>,
}

impl Targets {
    /// Opens the targets. A missing process is an error, because another process may get its pid later.
    pub(super) fn of(options: &Options) -> Result<Self> {
        let hold = |pid: &u32| {
            let process = system_calls::open_process(*pid).with_context(|| format!("--kill-pid {pid}"))?;
            Ok((*pid, process))
        };
        let processes = options.kill_pid.iter().map(hold).collect::<Result<Vec<_>>>()?;
        for group in &options.kill_cgroup {
            let file = group.join("cgroup.kill");
            ensure!(
                file.exists(),
                "--kill-cgroup {}: no cgroup.kill in this directory (requires cgroup v2 below the root, Linux 5.14)",
                group.display()
            );
        }
        let targets =
            Self { processes, groups: options.kill_cgroup.clone(), commands: options.exec_on_expiry.clone() };
        ensure!(
            !(targets.processes.is_empty() && targets.groups.is_empty() && targets.commands.is_empty()),
            "no action for the expiry: set --kill-pid, --kill-cgroup or --exec-on-expiry"
        );
        Ok(targets)
    }

    /// Returns the processes that have not ended.
    pub(super) fn alive(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.processes.iter().map(|(_, process)| process.as_fd())
    }

    /// Removes processes that have ended. Returns `true` if no process, control group or command is left.
    pub(super) fn remove_ended(&mut self) -> bool {
        self.processes.retain(|(_, process)| !has_ended(process));
        self.processes.is_empty() && self.groups.is_empty() && self.commands.is_empty()
    }

    /// Kills processes and control groups. Returns the failures.
    pub(super) fn kill(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for (pid, process) in &self.processes {
            match system_calls::kill_process(process) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(errno) => failures.push(format!("cannot kill process {pid}: {errno}")),
            }
        }
        for group in &self.groups {
            if let Err(error) = std::fs::write(group.join("cgroup.kill"), "1") {
                failures.push(format!("cannot kill group {}: {error}", group.display()));
            }
        }
        failures
    }

    /// Runs the commands one at a time. Returns the failures.
    pub(super) fn run_commands(&self) -> Vec<String> {
        let run = |command: &String| {
            let status = Command::new("sh").args(["-c", command]).stdin(Stdio::null()).status();
            match status {
                Ok(status) if status.success() => None,
                Ok(status) => Some(format!("{command}: {status}")),
                Err(error) => Some(format!("{command}: {error}")),
            }
        };
        self.commands.iter().filter_map(run).collect()
    }
}

fn has_ended(process: &OwnedFd) -> bool {
    let mut descriptors = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    matches!(poll(&mut descriptors, PollTimeout::ZERO), Ok(1))
}
