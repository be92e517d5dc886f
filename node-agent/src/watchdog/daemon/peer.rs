//! The process at the other end of a connection, and whether it is still alive.

use super::super::protocol::Refusal;
use super::super::system_calls;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// A process, held by a pidfd so that a later process with the same pid is not mistaken for it.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) pid: u32,
    process: OwnedFd,
}

impl Peer {
    /// Identifies the process at the other end, and checks that its user is root or the allowed one.
    pub(super) fn of(connection: &UnixStream, allowed_uid: Option<u32>) -> Result<Self, Refusal> {
        let failed = |errno: Errno| Refusal::DeviceFailed { errno: (errno as i32).unsigned_abs() };
        let credentials = getsockopt(connection, sockopt::PeerCredentials).map_err(failed)?;
        let uid = credentials.uid();
        if uid != 0 && Some(uid) != allowed_uid {
            return Err(Refusal::NotPermitted { uid });
        }
        // Pid 0 is a process that this namespace does not see, so its death could not be detected either.
        let pid = u32::try_from(credentials.pid()).unwrap_or(0);
        if pid == 0 {
            return Err(Refusal::NotPermitted { uid });
        }
        let process = match getsockopt(connection, sockopt::PeerPidfd) {
            Ok(process) => process,
            // Linux before 6.5 has no SO_PEERPIDFD. If the pid was reused after the connection was made, the peer has
            // closed its end of the connection, which is checked below.
            Err(_) => system_calls::open_process(pid).map_err(failed)?,
        };
        if is_closed(connection) {
            return Err(failed(Errno::ECONNRESET));
        }
        Ok(Self { pid, process })
    }

    pub(super) fn has_ended(&self) -> bool {
        let mut descriptors = [PollFd::new(self.process.as_fd(), PollFlags::POLLIN)];
        matches!(poll(&mut descriptors, PollTimeout::ZERO), Ok(1))
    }
}

/// Returns `true` if the other end is closed.
pub(super) fn is_closed(connection: &UnixStream) -> bool {
    let mut descriptors = [PollFd::new(connection.as_fd(), PollFlags::empty())];
    match poll(&mut descriptors, PollTimeout::ZERO) {
        Ok(_) => descriptors.iter().any(|descriptor| descriptor.any().unwrap_or(true)),
        Err(_) => true,
    }
}
