//! A service's directory in the state directory: order, record, ending, log, and the lock that a supervisor holds.

use super::order::{ProcessRecord, RecordedExit};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Result of an attempt to take the lock.
#[derive(Debug)]
pub(in crate::driver) enum Lock {
    /// The lock is held as long as this file, or a copy of its descriptor, is open.
    Acquired(File),
    /// A supervisor that runs, or is being started, holds the lock.
    HeldByOther,
    /// The lock file does not exist, so no process holds the lock.
    NotCreated,
}

#[derive(Clone, Debug)]
pub(in crate::driver) struct ServiceDirectory {
    path: PathBuf,
}

impl ServiceDirectory {
    /// Returns the directory at a path, which may not exist yet.
    pub(in crate::driver) fn at(path: PathBuf) -> ServiceDirectory {
        ServiceDirectory { path }
    }

    pub(in crate::driver) fn path(&self) -> &Path {
        &self.path
    }

    pub(in crate::driver) fn log(&self) -> PathBuf {
        self.path.join("output.log")
    }

    pub(in crate::driver) fn make(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path)
    }

    /// Takes the lock, and creates the directory if it does not exist.
    ///
    /// The lock belongs to the open file, which the supervisor inherits as its standard input. The lock is therefore
    /// held from before the start of the supervisor until the last copy is closed, even if the agent ends.
    pub(in crate::driver) fn lock(&self) -> io::Result<Lock> {
        self.make()?;
        OpenOptions::new().append(true).create(true).mode(0o600).open(self.order())?;
        self.lock_if_created()
    }

    /// Takes the lock without creating the directory, unlike [`ServiceDirectory::lock`]. The call leaves no trace of a
    /// service that was never here. It also works on a disk that is not writable, because a stop must be possible on a
    /// broken disk.
    pub(in crate::driver) fn lock_if_created(&self) -> io::Result<Lock> {
        let file = match File::open(self.order()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Lock::NotCreated),
            Err(error) => return Err(error),
        };
        match file.try_lock() {
            Ok(()) => Ok(Lock::Acquired(file)),
            Err(TryLockError::WouldBlock) => Ok(Lock::HeldByOther),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn order(&self) -> PathBuf {
        self.path.join("order.json")
    }

    /// Writes the order in place, because the supervisor reads it from the locked file that it inherits.
    pub(in crate::driver) fn write_order(&self, order: &impl Serialize) -> io::Result<()> {
        fs::write(self.order(), serde_json::to_vec(order)?)
    }

    /// Returns the record of the supervised process, running or ended.
    pub(in crate::driver) fn record(&self) -> io::Result<Option<ProcessRecord>> {
        self.read("process.json")
    }

    /// Returns how the main process of the record ended.
    pub(in crate::driver) fn recorded_exit(
        &self,
        record: &ProcessRecord,
    ) -> io::Result<Option<RecordedExit>> {
        Ok(self.read("ending.json")?.filter(|exit: &RecordedExit| exit.main == record.main))
    }

    pub(in crate::driver) fn write_record(&self, record: &ProcessRecord) -> io::Result<()> {
        self.write("process.json", record)
    }

    pub(in crate::driver) fn write_exit(&self, exit: &RecordedExit) -> io::Result<()> {
        self.write("ending.json", exit)
    }

    /// Removes the record and the ending; the log stays.
    pub(in crate::driver) fn remove_records(&self) -> io::Result<()> {
        ["process.json", "ending.json"].into_iter().try_for_each(|name| self.remove(name))
    }

    /// Removes a file, if it exists.
    pub(in crate::driver) fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Reads a file. Returns `None` if it does not exist.
    pub(in crate::driver) fn read<T: DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        let path = self.path.join(name);
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| {
                io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()))
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces a file atomically: readers get the old or the new content.
    pub(in crate::driver) fn write(&self, name: &str, content: &impl Serialize) -> io::Result<()> {
        let new = self.path.join(format!("{name}.new"));
        fs::write(&new, serde_json::to_vec(content)?)?;
        fs::rename(&new, self.path.join(name))
    }
}
