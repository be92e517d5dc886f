//! Detection of changed files, for settings that a running process reads again.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

/// Properties that identify a version of a file: inode number, length and modification time; none for a missing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp(Option<(u64, u64, Option<SystemTime>)>);

impl FileStamp {
    /// Returns the present properties of a file.
    pub fn of(path: &Path) -> FileStamp {
        FileStamp(
            std::fs::metadata(path).ok().map(|file_metadata| {
                (file_metadata.ino(), file_metadata.len(), file_metadata.modified().ok())
            }),
        )
    }
}
