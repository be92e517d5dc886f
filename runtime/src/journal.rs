//! Client of the systemd journal, over its datagram protocol.

use nix::sys::stat::fstat;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// Path of the journal's socket on every machine with systemd.
pub const SOCKET_PATH: &str = "/run/systemd/journal/socket";
/// Maximum length of a value in bytes; longer values are cut, because an entry must fit into one datagram.
const MAX_VALUE_BYTES: usize = 16 * 1024;

/// Returns `true` if the process's standard error goes to the journal. `JOURNAL_STREAM` must match the device and inode
/// of this descriptor, because a process may inherit the variable from its parent.
pub fn has_standard_error() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    fstat(io::stderr())
        .is_ok_and(|standard_error| stream == format!("{}:{}", standard_error.st_dev, standard_error.st_ino))
}

/// A connection to the journal. Sending never waits, so that a journal that hangs does not block the process.
#[derive(Debug)]
pub struct Journal {
    socket: UnixDatagram,
}

impl Journal {
    /// Connects to the journal of this machine.
    ///
    /// # Errors
    /// Fails if no journal accepts messages on the socket.
    pub fn connect() -> io::Result<Journal> {
        Journal::connect_to(Path::new(SOCKET_PATH))
    }

    /// Connects to the journal at a socket path.
    ///
    /// # Errors
    /// Fails if no journal accepts messages on the socket.
    pub fn connect_to(socket_path: &Path) -> io::Result<Journal> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(socket_path)?;
        socket.set_nonblocking(true)?;
        Ok(Journal { socket })
    }

    /// Sends an entry.
    ///
    /// # Errors
    /// Fails if the journal does not accept the entry immediately. The entry is then lost.
    pub fn send(&self, entry: &Entry) -> io::Result<()> {
        self.socket.send(&entry.bytes).map(drop)
    }
}

/// A journal entry, being built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    bytes: Vec<u8>,
}

impl Entry {
    /// Adds a field. `name` consists of capital letters, digits and `_`, and begins with a letter. The value may
    /// contain any bytes; a very long one is cut.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Entry {
        let value = value.as_ref();
        let value = &value[..value.len().min(MAX_VALUE_BYTES)];
        self.bytes.extend(name.as_bytes());
        self.bytes.push(b'\n');
        self.bytes.extend((value.len() as u64).to_le_bytes());
        self.bytes.extend(value);
        self.bytes.push(b'\n');
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journal_entries_hold_any_bytes_and_are_bounded() {
        let long = "x".repeat(MAX_VALUE_BYTES + 1);
        let entry = Entry::default().with("A", b"a=\n\xff").with("B", &long);
        let mut expected = b"A\n\x04\0\0\0\0\0\0\0a=\n\xff\nB\n\0\x40\0\0\0\0\0\0".to_vec();
        expected.extend(&long.as_bytes()[1..]);
        expected.push(b'\n');
        assert_eq!(entry.bytes, expected);
    }

    #[test]
    fn a_hanging_journal_does_not_block() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        assert!(Journal::connect_to(&path).is_err(), "nobody listens");
        let _hanging = UnixDatagram::bind(&path).unwrap();
        let journal = Journal::connect_to(&path).unwrap();
        let entry = Entry::default().with("MESSAGE", "word");
        let refused = (0..100_000).find_map(|_| journal.send(&entry).err()).unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    }
}
