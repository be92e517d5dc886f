//! Who is at the other end of a connection, and whether that process still lives.

use super::super::protocol::Refusal;
use super::super::system_calls;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// A process, held so that a later one of the same number is not taken for it.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) pid: u32,
    process: OwnedFd,
}

impl Peer {
    /// Identifies the process at the other end and checks that its user is root or the one allowed.
    pub(super) fn of(connection: &UnixStream, allowed_uid: Option<u32>) -> Result<Self, Refusal> {
        let failed = |errno: Errno| Refusal::DeviceFailed { errno: (errno as i32).unsigned_abs() };
        let credentials = getsockopt(connection, sockopt::PeerCredentials).map_err(failed)?;
        let uid = credentials.uid();
        if uid != 0 && Some(uid) != allowed_uid {
            return Err(Refusal::NotPermitted { uid });
        }
        // Number 0: a process that this namespace does not see, so its death could not be seen either.
        let pid = u32::try_from(credentials.pid()).unwrap_or(0);
        if pid == 0 {
            return Err(Refusal::NotPermitted { uid });
        }
        let process = match getsockopt(connection, sockopt::PeerPidfd) {
            Ok(process) => process,
            // Before Linux 6.5. The number may have been given to another process since it connected, but
            // then the first one's end of the connection is closed, which is looked at afterwards.
            Err(_) => system_calls::open_process(pid).map_err(failed)?,
        };
        if is_closed(connection) {
            return Err(failed(Errno::ECONNRESET));
        }
        Ok(Self { pid, process })
    }

    /// Whether the process has ended.
    pub(super) fn has_ended(&self) -> bool {
        let mut descriptors = [PollFd::new(self.process.as_fd(), PollFlags::POLLIN)];
        matches!(poll(&mut descriptors, PollTimeout::ZERO), Ok(1))
    }
}

/// Whether the other end is closed.
pub(super) fn is_closed(connection: &UnixStream) -> bool {
    let mut descriptors = [PollFd::new(connection.as_fd(), PollFlags::empty())];
    match poll(&mut descriptors, PollTimeout::ZERO) {
        Ok(_) => descriptors.iter().any(|descriptor| descriptor.any().unwrap_or(true)),
        Err(_) => true,
    }
}
