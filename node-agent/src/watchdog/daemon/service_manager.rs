//! The service manager's store that keeps descriptors over the daemon's death.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, sendmsg, socket,
};
use nix::unistd::pipe;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use tracing::warn;

/// Descriptors that the daemon wants kept: the device and the record.
const WANTED: u32 = 2;

/// How long to wait for the service manager to have let go of a descriptor, in milliseconds.
const LET_GO_WITHIN_MS: u16 = 1000;

/// The service manager that started this process, if one did.
#[derive(Debug)]
pub(super) struct ServiceManager {
    address: Option<UnixAddr>,
    retains: bool,
}

impl ServiceManager {
    /// Finds it by `NOTIFY_SOCKET`. Whether it stores descriptors is said by `FDSTORE` (systemd 254 and
    /// newer) or, for older ones, by what the unit sets next to its `FileDescriptorStoreMax`.
    pub(super) fn from_environment(descriptor_store_max: u32) -> Self {
        let told = std::env::var("FDSTORE").ok().and_then(|text| text.parse().ok());
        let address = std::env::var("NOTIFY_SOCKET").ok().and_then(|path| {
            let address = match path.strip_prefix('@') {
                Some(name) => UnixAddr::new_abstract(name.as_bytes()),
                None => UnixAddr::new(path.as_str()),
            };
            address.map_err(|errno| warn!(path, %errno, "NOTIFY_SOCKET is no socket address")).ok()
        });
        let retains = address.is_some() && told.unwrap_or(descriptor_store_max) >= WANTED;
        Self { address, retains }
    }

    /// Whether it keeps descriptors.
    pub(super) fn retains(&self) -> bool {
        self.retains
    }

    /// Has it keep a descriptor under a name; whether it does.
    pub(super) fn store(&self, name: &str, descriptor: BorrowedFd<'_>) -> bool {
        self.retains && self.tell(&format!("FDSTORE=1\nFDNAME={name}\n"), Some(descriptor)).is_ok()
    }

    /// Has it let go of the descriptors of this name, and waits until it has: a device stays open as long
    /// as anybody holds it.
    pub(super) fn remove(&self, name: &str) {
        if !self.retains || self.tell(&format!("FDSTOREREMOVE=1\nFDNAME={name}\n"), None).is_err() {
            return;
        }
        let Ok((reader, writer)) = pipe() else { return };
        if self.tell("BARRIER=1\n", Some(writer.as_fd())).is_err() {
            return;
        }
        drop(writer);
        let mut descriptors = [PollFd::new(reader.as_fd(), PollFlags::empty())];
        // One that does not answer in time is left behind: the device was given a full period before.
        let _ = poll(&mut descriptors, PollTimeout::from(LET_GO_WITHIN_MS));
    }

    fn tell(&self, text: &str, descriptor: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        let Some(address) = &self.address else { return Ok(()) };
        let socket = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
        let raw = descriptor.map(|descriptor| [descriptor.as_raw_fd()]);
        let control = raw.as_ref().map(|raw| [ControlMessage::ScmRights(raw)]);
        let control: &[ControlMessage<'_>] = control.as_ref().map_or(&[], |control| control);
        let parts = [IoSlice::new(text.as_bytes())];
        sendmsg(socket.as_raw_fd(), &parts, control, MsgFlags::MSG_NOSIGNAL, Some(address)).map(drop)
    }
}
