//! Processes of this host as shown in `/proc`: identity, namespace, environment and signals.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::wait::wait_until;

/// Longest time for all threads of a process to stop after SIGSTOP.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// A child process that is killed on drop.
#[derive(Debug)]
pub struct OwnedChild(pub Child);

impl OwnedChild {
    /// Starts a program whose output is appended to a file.
    ///
    /// # Errors
    /// Fails if the file cannot be opened, or if the program cannot be started.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let log = File::options().append(true).create(true).open(log)?;
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
        Ok(Self(child.with_context(|| format!("cannot start {}", command.get_program().display()))?))
    }
}

impl Drop for OwnedChild {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process, identified by process id and start time, because ids are reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    /// Process id in the host's (outermost) pid namespace.
    pub pid: i32,
    /// Start time, in clock ticks since the boot.
    pub start_ticks: u64,
}

impl ProcessId {
    /// Returns the process that has this id now; `None` if there is none, or only a zombie.
    pub fn of(pid: i32) -> Option<Self> {
        let stat = Stat::read(pid)?;
        (!stat.has_exited()).then_some(Self { pid, start_ticks: stat.start_ticks })
    }

    /// Returns this process itself.
    ///
    /// # Errors
    /// Fails if `/proc` is not mounted.
    pub fn own() -> Result<Self> {
        Self::of(Pid::this().as_raw()).context("/proc does not show this process; is /proc mounted?")
    }

    /// Returns `true` if the process still runs. A zombie does not run.
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid) == Some(*self)
    }

    /// Sends a signal. A process that no longer exists is not an error, because most callers expect the process to end.
    /// After `SIGSTOP`, this function returns when all threads have stopped: the kernel stops them one at a time.
    ///
    /// # Errors
    /// Fails if the kernel refuses, or if the threads do not stop in time.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        if !self.is_alive() {
            return Ok(());
        }
        match kill(Pid::from_raw(self.pid), signal) {
            Ok(()) if signal == Signal::SIGSTOP => {
                let condition_name = format!("process {} to be stopped", self.pid);
                wait_until(&condition_name, STOP_TIMEOUT, || !self.is_alive() || self.is_stopped())
            }
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => bail!("cannot send {signal} to process {}: {error}", self.pid),
        }
    }

    /// Returns `true` if every thread of the process is stopped.
    fn is_stopped(&self) -> bool {
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.pid)) else { return false };
        tasks.flatten().all(|task| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|fields| fields.trim_start().starts_with(['T', 't']))
        })
    }

    /// Returns the inode of the process's pid namespace, which identifies its machine.
    pub fn pid_namespace(&self) -> Option<u64> {
        pid_namespace(self.pid)
    }
}

/// The fields of `/proc/PID/stat` that this module needs.
#[derive(Debug)]
struct Stat {
    state: char,
    parent: i32,
    start_ticks: u64,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the program's name in parentheses and may contain any character, so search for the last one.
        let mut fields = text.get(text.rfind(')')? + 2..)?.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let start_ticks = fields.nth(17)?.parse().ok()?;
        Some(Self { state, parent, start_ticks })
    }

    fn has_exited(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// Returns the ids of all processes.
pub fn all_pids() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the living children of a process.
pub fn children_of(pid: i32) -> Vec<ProcessId> {
    all_pids()
        .into_iter()
        .filter(|candidate| Stat::read(*candidate).is_some_and(|stat| stat.parent == pid))
        .filter_map(ProcessId::of)
        .collect()
}

/// Returns the living processes of a pid namespace, without those of nested namespaces.
pub fn processes_in_namespace(namespace: u64) -> Vec<ProcessId> {
    all_pids()
        .into_iter()
        .filter(|pid| pid_namespace(*pid) == Some(namespace))
        .filter_map(ProcessId::of)
        .collect()
}

/// Returns the inode of a process's pid namespace.
pub fn pid_namespace(pid: i32) -> Option<u64> {
    let link = fs::read_link(format!("/proc/{pid}/ns/pid")).ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// Returns the id of a process inside its own pid namespace.
pub fn pid_in_namespace(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace().last()?.parse().ok()
}

/// Returns the environment with which a process was started.
pub fn environment(pid: i32) -> BTreeMap<String, String> {
    let Ok(bytes) = fs::read(format!("/proc/{pid}/environ")) else { return BTreeMap::new() };
    bytes
        .split(|byte| *byte == 0)
        .filter_map(|entry| {
            let (name, value) = std::str::from_utf8(entry).ok()?.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        })
        .collect()
}

/// Returns the file name of the program that a process executes; `None` if the process is ending.
pub fn program_name(pid: i32) -> Option<String> {
    let path = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let name = Path::new(&path).file_name()?.to_str()?;
    // The kernel appends this suffix if the file was replaced, for example by a rebuild.
    Some(name.strip_suffix(" (deleted)").unwrap_or(name).to_owned())
}

/// Returns the command line, with spaces between the arguments.
pub fn command_line(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let parts: Vec<_> = bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    parts.join(" ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_identified_by_id_and_start_time() {
        let own_process = ProcessId::own().unwrap();
        assert!(own_process.is_alive());
        let earlier = ProcessId { start_ticks: own_process.start_ticks - 1, ..own_process };
        assert!(!earlier.is_alive(), "the same number with another start is another process");
        assert_eq!(own_process.pid_namespace(), pid_namespace(own_process.pid));
        assert!(own_process.pid_namespace().is_some());
    }

    #[test]
    fn a_child_process_is_found_and_ends_after_a_signal() {
        let mut child =
            Command::new("sleep").arg("60").env("HA_RESOURCE", "web").stdin(Stdio::null()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let id = ProcessId::of(pid).unwrap();
        assert!(children_of(ProcessId::own().unwrap().pid).contains(&id));
        // During the exec, the kernel may already show the new program, but not yet its arguments and environment.
        let wait_result =
            crate::wait::wait_for("the child's program", std::time::Duration::from_secs(60), || {
                let has_started = program_name(pid).as_deref() == Some("sleep")
                    && environment(pid).get("HA_RESOURCE").map(String::as_str) == Some("web");
                (has_started && command_line(pid) == "sleep 60").then_some(())
            });
        wait_result.unwrap();
        id.signal(Signal::SIGSTOP).unwrap();
        assert!(id.is_stopped());
        id.signal(Signal::SIGKILL).unwrap();
        child.wait().unwrap();
        assert!(!id.is_alive());
        id.signal(Signal::SIGKILL).unwrap();
    }
}
