//! Processes, told apart for certain: a pid with its start time, held by a pidfd.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};

/// A process of this boot. Pids are used again; together with the start time they are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::driver) struct ProcessIdentity {
    /// The process id.
    pub(in crate::driver) pid: i32,
    /// Field 22 of /proc/PID/stat: clock ticks from boot to its start.
    pub(in crate::driver) started_ticks: u64,
}

/// A process that is held: the handle never comes to mean another one.
#[derive(Debug)]
pub(in crate::driver) struct ProcessHandle {
    descriptor: OwnedFd,
}

/// What /proc says about a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::driver) struct ProcessStatus {
    /// Which one.
    pub(in crate::driver) identity: ProcessIdentity,
    /// Its program, as the kernel calls it.
    pub(in crate::driver) name: String,
    /// The process that is told of its end.
    pub(in crate::driver) parent: i32,
    /// Its session.
    pub(in crate::driver) session: i32,
    /// Whether it has ended and only its status is left.
    pub(in crate::driver) ended: bool,
}

impl ProcessIdentity {
    /// The identity of a process that this process may name for certain: itself or a child not waited for.
    pub(in crate::driver) fn of(pid: i32) -> io::Result<ProcessIdentity> {
        ProcessStatus::read(pid)?
            .map(|status| status.identity)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("process {pid} is gone")))
    }

    /// Takes hold of it; `None` once it has ended.
    pub(in crate::driver) fn open(self) -> io::Result<Option<ProcessHandle>> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(None) };
        let descriptor = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => descriptor,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Read after opening: if the start time is right now, it was when the descriptor was made.
        let same = ProcessStatus::read(self.pid)?.is_some_and(|status| status.identity == self);
        let handle = ProcessHandle { descriptor };
        if same && !handle.has_ended()? { Ok(Some(handle)) } else { Ok(None) }
    }

    /// Whether it has not ended.
    pub(in crate::driver) fn is_alive(self) -> io::Result<bool> {
        Ok(self.open()?.is_some())
    }

    /// Sends a signal to exactly this process; false: it had ended.
    pub(in crate::driver) fn signal(self, signal: Signal) -> io::Result<bool> {
        self.open()?.map_or(Ok(false), |handle| handle.signal(signal))
    }
}

impl ProcessHandle {
    /// Sends a signal; false: it has ended.
    pub(in crate::driver) fn signal(&self, signal: Signal) -> io::Result<bool> {
        match pidfd_send_signal(&self.descriptor, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns when it has ended, told by the kernel at once.
    pub(in crate::driver) async fn ended(self) -> io::Result<()> {
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

/// A pidfd is readable once the process, with all its threads, has ended.
fn readable(descriptor: &OwnedFd) -> io::Result<bool> {
    let mut polled = [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)];
    Ok(poll(&mut polled, PollTimeout::ZERO)? > 0)
}

impl ProcessStatus {
    /// Reads /proc/PID/stat; `None`: no such process.
    pub(in crate::driver) fn read(pid: i32) -> io::Result<Option<ProcessStatus>> {
        let text = match fs::read(format!("/proc/{pid}/stat")) {
            Ok(text) => text,
            Err(error) if vanished(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        match parse(pid, &String::from_utf8_lossy(&text)) {
            Some(mut status) => {
                // The first thread may have ended before the others: then the process lives on.
                status.ended = status.ended && threads(pid) <= 1;
                Ok(Some(status))
            }
            None => {
                Err(io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat is not understood")))
            }
        }
    }

    /// Every process that can be seen.
    pub(in crate::driver) fn all() -> io::Result<Vec<ProcessStatus>> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            found.extend(ProcessStatus::read(pid)?);
        }
        Ok(found)
    }

    /// Which of these variables its environment holds exactly so, as it was at its last exec.
    pub(in crate::driver) fn holds(&self, variables: [&str; 2]) -> [bool; 2] {
        // Not readable: it ended, or belongs to somebody else and so was not started by us.
        let environment = fs::read(format!("/proc/{}/environ", self.identity.pid)).unwrap_or_default();
        variables.map(|wanted| environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes()))
    }
}

fn vanished(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(nix::libc::ESRCH)
}

fn threads(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// The name stands in parentheses and may hold anything, also parentheses; what follows the last one is numbers.
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
    fn names_with_parentheses_do_not_confuse() {
        let text = "7 (a) Z 1 (b)) S 3 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 1 1";
        let status = parse(7, text).unwrap();
        assert_eq!((status.parent, status.session, status.ended), (3, 7, false));
        assert_eq!(status.identity, ProcessIdentity { pid: 7, started_ticks: 4711 });
        assert_eq!(status.name, "a) Z 1 (b)");
        assert_eq!(parse(7, "7 (cut) S 1"), None);
    }

    #[test]
    fn a_process_with_another_start_time_is_another_process() {
        let own = ProcessIdentity::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(own.is_alive().unwrap());
        let other = ProcessIdentity { started_ticks: own.started_ticks + 1, ..own };
        assert!(!other.is_alive().unwrap());
        assert!(!other.signal(Signal::KILL).unwrap(), "must not reach us");
    }

    #[tokio::test]
    async fn a_zombie_has_ended() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let identity = ProcessIdentity::of(i32::try_from(child.id()).unwrap()).unwrap();
        if let Some(handle) = identity.open().unwrap() {
            handle.ended().await.unwrap();
        }
        assert!(!identity.is_alive().unwrap());
        assert!(child.wait().unwrap().success());
    }
}
