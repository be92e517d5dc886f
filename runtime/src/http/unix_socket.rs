//! Unix sockets with an owner: creation in place of an abandoned one, and removal.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use tokio::net::UnixListener;

/// Binds a socket that only this user and root can open. A socket on which no process listens is replaced.
///
/// # Errors
/// Fails if another process listens on the socket, if the path is not a socket, or if the directory is not writable.
pub(super) fn bind(path: &Path) -> io::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|file_metadata| file_metadata.file_type().is_socket()) {
        match UnixStream::connect(path) {
            Ok(_) => {
                return Err(io::Error::new(
                    io::ErrorKind::AddrInUse,
                    "another process listens on this socket",
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)?,
            Err(error) => return Err(error),
        }
    }
    let listener = UnixListener::bind(path)?;
    // Before this call, the permissions depend on the umask. The server checks the credentials of each client in any case.
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Removes the socket of a server that has ended. A failure only leaves a file that the next start replaces.
pub(super) fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::debug!(path = %path.display(), %error, "cannot remove the socket");
    }
}
