//! Processes with a unique identity: a pid with its start time, and a pidfd as handle.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};

/// Identity of a process in this boot. A pid may be reused; a pid with its start time is unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::driver) struct ProcessIdentity {
    pub(in crate::driver) pid: i32,
    /// Field 22 of /proc/PID/stat: clock ticks from boot to the start of the process.
    pub(in crate::driver) started_ticks: u64,
}

/// A handle to a process, which never refers to another process.
#[derive(Debug)]
pub(in crate::driver) struct ProcessHandle {
    descriptor: OwnedFd,
}

/// Status of a process from /proc.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::driver) struct ProcessStatus {
    pub(in crate::driver) identity: ProcessIdentity,
    /// Name of the program in the kernel, at most 15 characters.
    pub(in crate::driver) name: String,
    /// Pid of the parent process.
    pub(in crate::driver) parent: i32,
    /// Session id.
    pub(in crate::driver) session: i32,
    /// `true` if the process has ended and is waiting to be reaped.
    pub(in crate::driver) ended: bool,
}

impl ProcessIdentity {
    /// Returns the identity of a process whose pid cannot be reused now: this process or a child that was not reaped.
    pub(in crate::driver) fn of(pid: i32) -> io::Result<ProcessIdentity> {
        ProcessStatus::read(pid)?
            .map(|status| status.identity)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("process {pid} no longer exists")))
    }

    /// Opens a handle to the process; `None` once the process has ended.
    pub(in crate::driver) fn open(self) -> io::Result<Option<ProcessHandle>> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(None) };
        let descriptor = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => descriptor,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // The start time is checked after the opening: if it matches now, it also matched when the descriptor was
        // opened.
        let is_same_process = ProcessStatus::read(self.pid)?.is_some_and(|status| status.identity == self);
        let handle = ProcessHandle { descriptor };
        if is_same_process && !handle.has_ended()? { Ok(Some(handle)) } else { Ok(None) }
    }

    /// Returns `true` if the process has not ended.
    pub(in crate::driver) fn is_alive(self) -> io::Result<bool> {
        Ok(self.open()?.is_some())
    }

    /// Sends a signal to exactly this process. Returns `false` if the process has ended.
    pub(in crate::driver) fn signal(self, signal: Signal) -> io::Result<bool> {
        self.open()?.map_or(Ok(false), |handle| handle.signal(signal))
    }
}

impl ProcessHandle {
    /// Sends a signal. Returns `false` if the process has ended.
    pub(in crate::driver) fn signal(&self, signal: Signal) -> io::Result<bool> {
        match pidfd_send_signal(&self.descriptor, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the process has ended; the kernel reports the end immediately.
    pub(in crate::driver) async fn wait_for_end(self) -> io::Result<()> {
        #[expect(deprecated, reason = "sound with an owned descriptor; the newer one is unsafe to call")]
        let descriptor = AsyncFd::with_interest(self.descriptor, Interest::READABLE)?;
        loop {
            let mut guard = descriptor.readable().await?;
            if readable(descriptor.get_ref())? {
                return Ok(());
            }
            guard.clear_ready_matching(Ready::READABLE);
        }
    }

    fn has_ended(&self) -> io::Result<bool> {
        readable(&self.descriptor)
    }
}

/// Returns `true` if the pidfd is readable, that is, if the process has ended with all its threads.
fn readable(descriptor: &OwnedFd) -> io::Result<bool> {
    let mut polled = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
    Ok(poll(&mut polled, PollTimeout::ZERO)? > 0)
}

impl ProcessStatus {
    /// Reads /proc/PID/stat. Returns `None` if the process does not exist.
    pub(in crate::driver) fn read(pid: i32) -> io::Result<Option<ProcessStatus>> {
        let text = match fs::read(format!("/proc/{pid}/stat")) {
            Ok(text) => text,
            Err(error) if is_process_gone(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        match parse(pid, &String::from_utf8_lossy(&text)) {
            Some(mut status) => {
                // If the first thread ends before the other threads, the process is still alive.
                status.ended = status.ended && threads(pid) <= 1;
                Ok(Some(status))
            }
            None => Err(io::Error::new(io::ErrorKind::InvalidData, format!("cannot parse /proc/{pid}/stat"))),
        }
    }

    /// Returns all visible processes.
    pub(in crate::driver) fn all() -> io::Result<Vec<ProcessStatus>> {
        let mut processes = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            processes.extend(ProcessStatus::read(pid)?);
        }
        Ok(processes)
    }

    /// Returns, for each variable (`NAME=value`), `true` if the environment of the process at its last exec contains
    /// the variable.
    pub(in crate::driver) fn has_variables(&self, variables: [&str; 2]) -> [bool; 2] {
        // An unreadable environment means that the process has ended, or belongs to another user and was not started by
        // the agent.
        let environment = fs::read(format!("/proc/{}/environ", self.identity.pid)).unwrap_or_default();
        variables
            .map(|variable| environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes()))
    }
}

fn is_process_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(nix::libc::ESRCH)
}

fn threads(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// Parses /proc/PID/stat. The name in parentheses may contain any character, so the numbers are read after the last
/// parenthesis.
fn parse(pid: i32, text: &str) -> Option<ProcessStatus> {
    let (before, after) = text.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<i32>().ok();
    Some(ProcessStatus {
        identity: ProcessIdentity { pid, started_ticks: fields.get(19)?.parse().ok()? },
        name: name.to_owned(),
        parent: number(1)?,
        session: number(3)?,
        ended: matches!(*fields.first()?, "Z" | "X"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_names_with_parentheses_are_parsed() {
        let text = "7 (a) Z 1 (b)) S 3 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 1 1";
        let status = parse(7, text).unwrap();
        assert_eq!((status.parent, status.session, status.ended), (3, 7, false));
        assert_eq!(status.identity, ProcessIdentity { pid: 7, started_ticks: 4711 });
        assert_eq!(status.name, "a) Z 1 (b)");
        assert_eq!(parse(7, "7 (cut) S 1"), None);
    }

    #[test]
    fn a_process_with_another_start_time_is_another_process() {
        let this_process = ProcessIdentity::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(this_process.is_alive().unwrap());
        let other_process = ProcessIdentity { started_ticks: this_process.started_ticks + 1, ..this_process };
        assert!(!other_process.is_alive().unwrap());
        assert!(!other_process.signal(Signal::KILL).unwrap(), "must not reach us");
    }

    #[tokio::test]
    async fn a_zombie_has_ended() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let identity = ProcessIdentity::of(i32::try_from(child.id()).unwrap()).unwrap();
        if let Some(handle) = identity.open().unwrap() {
            handle.wait_for_end().await.unwrap();
        }
        assert!(!identity.is_alive().unwrap());
        assert!(child.wait().unwrap().success());
    }
}
