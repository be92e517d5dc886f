//! Unix sockets with message boundaries, used between agent, daemon and simulated watchdog.

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, MsgFlags, SockFlag, SockType, UnixAddr, bind, connect as connect_socket, listen,
    recv, send as send_message, socket,
};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// Number of connections that may wait to be accepted.
const BACKLOG: i32 = 8;

fn new_socket() -> Result<OwnedFd, Errno> {
    socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)
}

/// Connects to the socket at this path.
pub(super) fn connect(path: &Path) -> Result<OwnedFd, Errno> {
    let socket = new_socket()?;
    connect_socket(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(socket)
}

/// Connects to the socket at this path; neither the connection nor its later use blocks.
pub(super) fn connect_nonblocking(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    connect_socket(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(socket)
}

/// Listens at this path without blocking. The socket file of an earlier process is removed. This is safe, because the
/// caller holds the lock that excludes a second process.
pub(super) fn listen_at(path: &Path) -> Result<UnixListener, Errno> {
    match nix::unistd::unlink(path) {
        Ok(()) | Err(Errno::ENOENT) => {}
        Err(errno) => return Err(errno),
    }
    let socket = new_socket()?;
    bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    listen(&socket, Backlog::new(BACKLOG)?)?;
    let listener = UnixListener::from(socket);
    listener.set_nonblocking(true).map_err(|_| Errno::EIO)?;
    Ok(listener)
}

/// Sends one message as a whole.
pub(super) fn send(socket: &impl AsRawFd, message: &[u8]) -> Result<(), Errno> {
    send_message(socket.as_raw_fd(), message, MsgFlags::MSG_NOSIGNAL).map(drop)
}

/// Sends one message as a whole, or fails immediately.
pub(super) fn send_now(socket: &impl AsRawFd, message: &[u8]) -> Result<(), Errno> {
    send_message(socket.as_raw_fd(), message, MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT).map(drop)
}

/// Waits for one message. Returns its real length, which may exceed the buffer; 0 if the other side has closed.
pub(super) fn receive(socket: &impl AsRawFd, message: &mut [u8]) -> Result<usize, Errno> {
    recv(socket.as_raw_fd(), message, MsgFlags::MSG_TRUNC)
}

/// Receives one message if there is one, otherwise fails with `EAGAIN`.
pub(super) fn receive_now(socket: &impl AsRawFd, message: &mut [u8]) -> Result<usize, Errno> {
    recv(socket.as_raw_fd(), message, MsgFlags::MSG_TRUNC | MsgFlags::MSG_DONTWAIT)
}
