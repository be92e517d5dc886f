//! The service manager's descriptor store, which keeps descriptors across restarts of the daemon.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, sendmsg, socket,
};
use nix::unistd::pipe;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use tracing::warn;

/// Number of descriptors that the daemon stores: the device and the record.
const MAX_STORED_DESCRIPTORS: u32 = 2;

/// Time limit for the service manager to close a descriptor, milliseconds.
const CLOSE_TIMEOUT_MS: u16 = 1000;

/// The service manager that started this process, if any.
#[derive(Debug)]
pub(super) struct ServiceManager {
    address: Option<UnixAddr>,
    stores_descriptors: bool,
}

impl ServiceManager {
    /// Finds the service manager by `NOTIFY_SOCKET`. `FDSTORE` (systemd 254 and newer) states whether it stores
    /// descriptors. For older versions, the unit passes the same number as its `FileDescriptorStoreMax`.
    pub(super) fn from_environment(descriptor_store_max: u32) -> Self {
        let reported_max = std::env::var("FDSTORE").ok().and_then(|text| text.parse().ok());
        let address = std::env::var("NOTIFY_SOCKET").ok().and_then(|path| {
            let address = match path.strip_prefix('@') {
                Some(name) => UnixAddr::new_abstract(name.as_bytes()),
                None => UnixAddr::new(path.as_str()),
            };
            address
                .map_err(|errno| warn!(path, %errno, "cannot use NOTIFY_SOCKET: not a valid socket address"))
                .ok()
        });
        let stores_descriptors =
            address.is_some() && reported_max.unwrap_or(descriptor_store_max) >= MAX_STORED_DESCRIPTORS;
        Self { address, stores_descriptors }
    }

    /// Returns `true` if the service manager keeps descriptors.
    pub(super) fn stores_descriptors(&self) -> bool {
        self.stores_descriptors
    }

    /// Stores a descriptor under a name. Returns `true` if the service manager keeps it.
    pub(super) fn store(&self, name: &str, descriptor: BorrowedFd<'_>) -> bool {
        self.stores_descriptors
            && self.notify(&format!("FDSTORE=1\nFDNAME={name}\n"), Some(descriptor)).is_ok()
    }

    /// Removes the descriptors of this name and waits until the service manager has closed them. A device stays open as
    /// long as any process has a descriptor of it.
    pub(super) fn remove(&self, name: &str) {
        if !self.stores_descriptors
            || self.notify(&format!("FDSTOREREMOVE=1\nFDNAME={name}\n"), None).is_err()
        {
            return;
        }
        let Ok((reader, writer)) = pipe() else { return };
        if self.notify("BARRIER=1\n", Some(writer.as_fd())).is_err() {
            return;
        }
        drop(writer);
        let mut descriptors = [PollFd::new(reader.as_fd(), PollFlags::empty())];
        // If the service manager does not answer in time, the daemon continues: the device has just been petted with a
        // full period.
        let _ = poll(&mut descriptors, PollTimeout::from(CLOSE_TIMEOUT_MS));
    }

    fn notify(&self, text: &str, descriptor: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        let Some(address) = &self.address else { return Ok(()) };
        let socket = socket(AddressFamily::Unix, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
        let raw = descriptor.map(|descriptor| [descriptor.as_raw_fd()]);
        let control = raw.as_ref().map(|raw| [ControlMessage::ScmRights(raw)]);
        let control: &[ControlMessage<'_>] = control.as_ref().map_or(&[], |control| control);
        let parts = [IoSlice::new(text.as_bytes())];
        sendmsg(socket.as_raw_fd(), &parts, control, MsgFlags::MSG_NOSIGNAL, Some(address)).map(drop)
    }
}
