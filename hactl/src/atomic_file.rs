//! Atomic replacement of files: readers see the previous or the new content, even after a crash.

use crate::failure::Failure;
use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::{NamedTempFile, TempDir};

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates a scratch directory next to a file to write, so that the last step is a rename within one file system. The
/// directory is removed when the value is dropped.
///
/// # Errors
/// Fails if the directory of the file is missing or not writable.
pub(crate) fn scratch_directory(path: &Path, prefix: &str) -> Result<TempDir, Failure> {
    let directory = directory_of(path);
    tempfile::Builder::new()
        .prefix(prefix)
        .tempdir_in(directory)
        .map_err(|error| Failure::failed(format!("{}: {error}", directory.display())))
}

/// Replaces a file. `prepare` sets the owner and the permissions of the new file, which only its owner can read before.
///
/// # Errors
/// Fails if the directory is missing or not writable; the previous file then stays.
pub(crate) fn replace(
    path: &Path,
    text: &str,
    prepare: impl FnOnce(&NamedTempFile) -> io::Result<()>,
) -> io::Result<()> {
    let mut temporary = NamedTempFile::new_in(directory_of(path))?;
    temporary.write_all(text.as_bytes())?;
    prepare(&temporary)?;
    temporary.as_file().sync_all()?;
    temporary.persist(path).map(drop).map_err(|error| error.error)
}

/// Replaces a file like [`replace`], and sets its permissions.
///
/// # Errors
/// See [`replace`].
pub(crate) fn replace_with_mode(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    replace(path, text, |file| file.as_file().set_permissions(Permissions::from_mode(mode)))
}
