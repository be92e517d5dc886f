//! The exclusive lock of the state directory: while this process holds it, no earlier process of this controller is
//! alive.

use std::fs::File;
use std::path::{Path, PathBuf};

/// The lock; released on drop, and by the kernel when the process ends.
#[derive(Debug)]
pub(super) struct StateLock {
    _directory: File,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum LockError {
    #[error(
        "{0} is locked by another controller: stop it, or set a separate --state-dir for each controller"
    )]
    Held(PathBuf),
    #[error("cannot lock {0}: {1}")]
    Unusable(PathBuf, std::io::Error),
}

/// Creates and locks the directory. The lock is on the directory itself, so only read permission is needed.
pub(super) fn lock(directory: &Path) -> Result<StateLock, LockError> {
    let unusable = |error| LockError::Unusable(directory.to_owned(), error);
    if !directory.exists() {
        std::fs::create_dir_all(directory).map_err(unusable)?;
    }
    let opened = File::open(directory).map_err(unusable)?;
    match opened.try_lock() {
        Ok(()) => Ok(StateLock { _directory: opened }),
        Err(std::fs::TryLockError::WouldBlock) => Err(LockError::Held(directory.to_owned())),
        Err(std::fs::TryLockError::Error(error)) => Err(unusable(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_process_holds_the_lock() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("a/state");
        let held = lock(&directory).unwrap();
        assert!(matches!(lock(&directory), Err(LockError::Held(_))));
        drop(held);
        lock(&directory).unwrap();
        let file = parent.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(matches!(lock(&file.join("state")), Err(LockError::Unusable(..))));
    }
}
