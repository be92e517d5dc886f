//! Output of a service: a log file of limited size in its directory, and the systemd journal if there is one.

use ha_runtime::journal::{self, Entry};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A log file that is rotated: `output.log`, and the previous file `output.log.1`.
#[derive(Debug)]
pub(in crate::driver) struct Log {
    path: PathBuf,
    file: Option<File>,
    bytes: u64,
    bytes_max: u64,
}

impl Log {
    /// Returns a log that is opened at the first write.
    pub(in crate::driver) fn new(path: PathBuf, bytes_max: u64) -> Log {
        Log { path, file: None, bytes: 0, bytes_max }
    }

    /// Appends output. On a full disk, the output is lost, but the service continues. The function returns the error,
    /// and the next write is attempted as usual.
    pub(in crate::driver) fn write(&mut self, output: &[u8]) -> io::Result<()> {
        if self.bytes.saturating_add(output.len() as u64) > self.bytes_max && self.bytes > 0 {
            self.file = None;
            fs::rename(&self.path, previous_path(&self.path))?;
        }
        let mut file = if let Some(file) = self.file.take() {
            file
        } else {
            let file = open_log(&self.path)?;
            self.bytes = file.metadata()?.len();
            file
        };
        file.write_all(output)?;
        self.bytes += output.len() as u64;
        self.file = Some(file);
        Ok(())
    }
}

pub(in crate::driver) fn open_log(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o640).open(path)
}

/// Rotates a log that other processes hold open: copies it to the previous file and truncates it in place.
pub(in crate::driver) fn rotate_in_place(path: &Path, bytes_max: u64) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|metadata| metadata.len() > bytes_max) {
        fs::copy(path, previous_path(path))?;
        OpenOptions::new().write(true).open(path)?.set_len(0)?;
    }
    Ok(())
}

/// Returns the current length of a log in bytes, which is the start of the next output.
pub(in crate::driver) fn log_length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Returns at most the last 4096 bytes of the output since `from`.
pub(in crate::driver) fn text_since(path: &Path, from: u64) -> String {
    const MAX_BYTES: u64 = 4096;
    let read = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        // The log was rotated in the meantime, so all of it is new.
        let from = if length < from { 0 } else { from };
        file.seek(SeekFrom::Start(from.max(length.saturating_sub(MAX_BYTES))))?;
        let mut text = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut text)?;
        io::Result::Ok(text)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// Returns the last line of the output since `from`, shortened; `None` if there is none.
pub(in crate::driver) fn last_line(path: &Path, from: u64) -> Option<String> {
    last_nonblank_line(&text_since(path, from))
}

/// Returns the last line of a text that is not blank, without control characters and at most 300 characters long.
pub(in crate::driver) fn last_nonblank_line(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    Some(line.chars().filter(|letter| !letter.is_control()).take(300).collect())
}

fn previous_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// Connection to the systemd journal for the output of one resource.
#[derive(Debug)]
pub(in crate::driver) struct Journal {
    connection: journal::Journal,
    resource: String,
    line: Vec<u8>,
}

/// Maximum length of a line in bytes; longer lines are split.
const MAX_LINE_BYTES: usize = 16 * 1024;

impl Journal {
    pub(in crate::driver) fn connect(resource: &str) -> io::Result<Journal> {
        Ok(Journal::new(journal::Journal::connect()?, resource))
    }

    fn new(connection: journal::Journal, resource: &str) -> Journal {
        Journal { connection, resource: resource.to_owned(), line: Vec::new() }
    }

    /// Sends complete lines, and keeps the rest for the next call.
    pub(in crate::driver) fn write(&mut self, output: &[u8]) {
        for byte in output {
            if *byte == b'\n' || self.line.len() >= MAX_LINE_BYTES {
                let line = std::mem::take(&mut self.line);
                // If the journal rejects the line, it is still in the log file.
                let _ = self.connection.send(&journal_entry(&self.resource, &line));
            }
            if *byte != b'\n' {
                self.line.push(*byte);
            }
        }
    }
}

fn journal_entry(resource: &str, line: &[u8]) -> Entry {
    Entry::default()
        .with("PRIORITY", "6")
        .with("SYSLOG_IDENTIFIER", resource)
        .with("HACTL_RESOURCE", resource)
        .with("MESSAGE", line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn a_log_is_limited_and_its_previous_file_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("output.log");
        let mut log = Log::new(path.clone(), 10);
        for line in ["12345678\n", "abcdefgh\n", "x\n"] {
            log.write(line.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "x\n");
        assert_eq!(fs::read_to_string(previous_path(&path)).unwrap(), "abcdefgh\n");
        log.write(b"longer than the bound\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "longer than the bound\n", "a long line is not cut");
        let mut reopened_log = Log::new(path.clone(), 100);
        reopened_log.write(b"more\n").unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "longer than the bound\nmore\n",
            "appended after a restart"
        );
    }

    #[test]
    fn a_log_that_other_processes_have_open_is_rotated_in_place() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("output.log");
        let mut open_file = open_log(&path).unwrap();
        open_file.write_all(b"0123456789").unwrap();
        rotate_in_place(&path, 10).unwrap();
        assert_eq!(log_length(&path), 10);
        rotate_in_place(&path, 9).unwrap();
        open_file.write_all(b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_to_string(previous_path(&path)).unwrap(), "0123456789");
    }

    #[test]
    fn last_line_ignores_output_before_offset() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("output.log");
        assert_eq!(last_line(&path, 0), None);
        fs::write(&path, "old\n").unwrap();
        assert_eq!(last_line(&path, 4), None);
        fs::write(&path, "old\nfirst\n\n  the \u{7}cause \n\n").unwrap();
        assert_eq!(last_line(&path, 4).as_deref(), Some("the cause"));
        assert_eq!(last_line(&path, 4000).as_deref(), Some("the cause"), "rotated");
    }

    #[test]
    fn journal_receives_whole_lines_with_any_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixDatagram::bind(&path).unwrap();
        let mut journal = Journal::new(journal::Journal::connect_to(&path).unwrap(), "db");
        journal.write(b"a");
        journal.write(b"=b\n\xff\nrest");
        let mut received = [0; 200];
        for line in [b"MESSAGE\n\x03\0\0\0\0\0\0\0a=b\n".as_slice(), b"MESSAGE\n\x01\0\0\0\0\0\0\0\xff\n"] {
            let length = listener.recv(&mut received).unwrap();
            let received = &received[..length];
            assert!(received.ends_with(line), "{}", received.escape_ascii());
            let resource = b"HACTL_RESOURCE\n\x02\0\0\0\0\0\0\0db\n";
            assert!(
                received.windows(resource.len()).any(|part| part == resource),
                "{}",
                received.escape_ascii()
            );
        }
        listener.set_nonblocking(true).unwrap();
        assert!(listener.recv(&mut received).is_err(), "a line that has not ended is kept");
    }
}
