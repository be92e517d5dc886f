//! The daemon's state, in memory that outlives the daemon in the service manager's store.

use super::super::protocol::{MESSAGE_BYTES, SavedState, decode_saved, encode_saved};
use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::uio::{pread, pwrite};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A memory file with one record.
#[derive(Debug)]
pub(super) struct StateRecord {
    descriptor: OwnedFd,
}

impl StateRecord {
    /// Returns the record that an earlier daemon kept, or a new one.
    pub(super) fn new(stored_descriptor: Option<OwnedFd>) -> Result<Self, Errno> {
        let descriptor = match stored_descriptor {
            Some(descriptor) => descriptor,
            None => memfd_create("ha-watchdogd", MFdFlags::MFD_CLOEXEC)?,
        };
        Ok(Self { descriptor })
    }

    /// Returns the descriptor, for the service manager's store.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Writes the record. A failed write leaves an invalid record, or the old record, whose deadline is not later than
    /// the active one. The next daemon may therefore stop petting too early, but not too late.
    pub(super) fn write(&self, saved: &SavedState) {
        let bytes = encode_saved(saved);
        if pwrite(&self.descriptor, &bytes, 0) != Ok(MESSAGE_BYTES) {
            let _ = pwrite(&self.descriptor, &[0; MESSAGE_BYTES], 0);
        }
    }

    /// Returns the last record, if it is complete.
    pub(super) fn read(&self) -> Option<SavedState> {
        let mut bytes = [0; MESSAGE_BYTES];
        let length = pread(&self.descriptor, &mut bytes, 0).ok()?;
        bytes.get(..length).and_then(|bytes| decode_saved(bytes).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::DualClockTime;
    use super::super::super::protocol::State;
    use super::*;

    #[test]
    fn record_is_readable_through_inherited_descriptor() {
        let record = StateRecord::new(None).unwrap();
        assert_eq!(record.read(), None);
        let saved = SavedState {
            state: State::Armed { deadline: DualClockTime::on_both_clocks(7) },
            ..SavedState::default()
        };
        record.write(&saved);
        let next = StateRecord::new(Some(record.descriptor.try_clone().unwrap())).unwrap();
        drop(record);
        assert_eq!(next.read(), Some(saved));
    }
}
