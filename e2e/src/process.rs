//! Processes of this machine as `/proc` shows them: identity, namespace, environment, signals.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::wait::wait_until;

/// The longest that the threads of a stopped process may take to stand still.
const STANDSTILL: Duration = Duration::from_secs(60);

/// One process, told from a later one with the same number by its start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its number in the machine's own (outermost) pid namespace.
    pub pid: i32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
}

impl ProcessId {
    /// The process that has this number now; `None` when there is none, or only a zombie.
    pub fn of(pid: i32) -> Option<Self> {
        let stat = Stat::read(pid)?;
        (!stat.is_dead()).then_some(Self { pid, start_ticks: stat.start_ticks })
    }

    /// This process itself.
    ///
    /// # Errors
    /// When `/proc` is not there.
    pub fn own() -> Result<Self> {
        Self::of(Pid::this().as_raw()).context("/proc does not show this process; is /proc mounted?")
    }

    /// Whether it still runs (a zombie does not).
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid) == Some(*self)
    }

    /// Sends a signal. A process that is gone is no error: that is what most callers want in the end. After `SIGSTOP` it
    /// stands still when this returns: the kernel only asks its threads, one by one.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        if !self.is_alive() {
            return Ok(());
        }
        match kill(Pid::from_raw(self.pid), signal) {
            Ok(()) if signal == Signal::SIGSTOP => {
                let what = format!("process {} to stand still", self.pid);
                wait_until(&what, STANDSTILL, || !self.is_alive() || self.stands_still())
            }
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => bail!("{signal} could not be sent to process {}: {error}", self.pid),
        }
    }

    /// Whether every thread of it is stopped.
    fn stands_still(&self) -> bool {
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.pid)) else { return false };
        tasks.flatten().all(|task| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|fields| fields.trim_start().starts_with(['T', 't']))
        })
    }

    /// The inode of its pid namespace, which names the machine that it runs on.
    pub fn pid_namespace(&self) -> Option<u64> {
        pid_namespace(self.pid)
    }
}

/// The parts of `/proc/PID/stat` that are used here.
#[derive(Debug)]
struct Stat {
    state: char,
    parent: i32,
    start_ticks: u64,
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the program's name in brackets and may hold anything, so look behind the last one.
        let mut fields = text.get(text.rfind(')')? + 2..)?.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let start_ticks = fields.nth(17)?.parse().ok()?;
        Some(Self { state, parent, start_ticks })
    }

    fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// The numbers of all processes.
pub fn all() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The living children of a process.
pub fn children_of(pid: i32) -> Vec<ProcessId> {
    all()
        .into_iter()
        .filter(|candidate| Stat::read(*candidate).is_some_and(|stat| stat.parent == pid))
        .filter_map(ProcessId::of)
        .collect()
}

/// The living processes of a pid namespace (not of those nested in it).
pub fn in_namespace(namespace: u64) -> Vec<ProcessId> {
    all().into_iter().filter(|pid| pid_namespace(*pid) == Some(namespace)).filter_map(ProcessId::of).collect()
}

/// The inode of a process's pid namespace.
pub fn pid_namespace(pid: i32) -> Option<u64> {
    let link = fs::read_link(format!("/proc/{pid}/ns/pid")).ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// The number that a process has inside its own pid namespace.
pub fn pid_inside(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_whitespace().last()?.parse().ok()
}

/// The environment that a process was started with.
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

/// The file name of the program that a process executes; `None` for one that is just ending.
pub fn program(pid: i32) -> Option<String> {
    let path = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let name = Path::new(&path).file_name()?.to_str()?;
    // The kernel appends this when the file was replaced, as a rebuild does.
    Some(name.strip_suffix(" (deleted)").unwrap_or(name).to_owned())
}

/// The command line, its parts separated by blanks.
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
    fn a_process_is_known_by_number_and_start() {
        let own = ProcessId::own().unwrap();
        assert!(own.is_alive());
        let earlier = ProcessId { start_ticks: own.start_ticks - 1, ..own };
        assert!(!earlier.is_alive(), "the same number with another start is another process");
        assert_eq!(own.pid_namespace(), pid_namespace(own.pid));
        assert!(own.pid_namespace().is_some());
    }

    #[test]
    fn a_child_is_found_signalled_and_gone() {
        let mut child =
            Command::new("sleep").arg("60").env("HA_RESOURCE", "web").stdin(Stdio::null()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let id = ProcessId::of(pid).unwrap();
        assert!(children_of(ProcessId::own().unwrap().pid).contains(&id));
        // While it executes its program, the file is the new one already, and arguments and environment are not there yet.
        let seen = crate::wait::wait_for("the child's program", std::time::Duration::from_secs(60), || {
            let whole = program(pid).as_deref() == Some("sleep")
                && environment(pid).get("HA_RESOURCE").map(String::as_str) == Some("web");
            (whole && command_line(pid) == "sleep 60").then_some(())
        });
        seen.unwrap();
        id.signal(Signal::SIGSTOP).unwrap();
        assert!(id.stands_still());
        id.signal(Signal::SIGKILL).unwrap();
        child.wait().unwrap();
        assert!(!id.is_alive());
        id.signal(Signal::SIGKILL).unwrap();
    }
}
