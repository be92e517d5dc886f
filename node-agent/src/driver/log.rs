//! Reads the last lines of a service's log within a bound: from files, and from programs that print it.

use super::program::Programs;
use ha_api_types::record::{LOG_BYTES_MAX, LogFailure};
use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::sync::Semaphore;

/// Limit of file reads in progress at the same time. A read that hangs on broken storage keeps its thread, so without a
/// limit, such reads could use up the threads of the agent.
static FILE_READS: Semaphore = Semaphore::const_new(2);

/// The part of a log to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogQuery {
    /// Maximum number of last lines.
    pub lines: u32,
    /// Age in seconds of the oldest line; `None` for no limit. A file whose lines have no times is returned whole if it
    /// was written in this period.
    pub since_seconds: Option<u64>,
}

/// The last lines of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogTail {
    /// Lines, at most [`LOG_BYTES_MAX`] bytes. The last line may be incomplete while it is being written.
    pub text: String,
    /// `true` if queried lines are missing because of the limit of bytes.
    pub truncated: bool,
}

/// The last bytes of a stream, kept in bounded memory.
#[derive(Debug, Default)]
pub(in crate::driver) struct TailBuffer {
    bytes: Vec<u8>,
    is_truncated: bool,
}

impl TailBuffer {
    /// Appends bytes, and drops the oldest bytes beyond the limit.
    pub(in crate::driver) fn push(&mut self, new_bytes: &[u8]) {
        self.bytes.extend_from_slice(new_bytes);
        // The buffer may have twice the limit, so that bytes are not moved for each small piece.
        if self.bytes.len() > 2 * LOG_BYTES_MAX {
            self.bytes.drain(..self.bytes.len() - LOG_BYTES_MAX);
            self.is_truncated = true;
        }
    }

    /// Returns the last lines.
    pub(in crate::driver) fn tail(&self, lines: u32) -> LogTail {
        let text = String::from_utf8_lossy(&self.bytes);
        let over = text.len().saturating_sub(LOG_BYTES_MAX);
        let start = (over..=text.len()).find(|index| text.is_char_boundary(*index)).unwrap_or(text.len());
        let (available, is_truncated) = (&text[start..], self.is_truncated || start > 0);
        let lines = usize::try_from(lines).unwrap_or(usize::MAX);
        if let Some(from) = start_of_last_lines(available, lines) {
            return LogTail { text: available[from..].to_owned(), truncated: false };
        }
        // The beginning of the first line is missing. The line is kept only if it is the only one.
        let whole_lines = if is_truncated {
            available.split_once('\n').map_or(available, |(_, rest)| rest)
        } else {
            available
        };
        let whole_lines = if whole_lines.is_empty() { available } else { whole_lines };
        LogTail { text: whole_lines.to_owned(), truncated: is_truncated }
    }
}

/// Returns the offset at which the last `lines` lines begin; `None` if `text` may lack the beginning of the first of
/// them.
fn start_of_last_lines(text: &str, lines: usize) -> Option<usize> {
    let body = text.strip_suffix('\n').unwrap_or(text);
    if lines == 0 {
        return Some(text.len());
    }
    body.rmatch_indices('\n').nth(lines - 1).map(|(index, _)| index + 1)
}

/// Returns the last lines of the output of a service's programs in its directory.
pub(in crate::driver) async fn of_programs(
    programs: &Programs,
    resource: &str,
    query: LogQuery,
) -> Result<LogTail, LogFailure> {
    let directory = programs.directory_of(resource);
    match of_file(directory.log(), query).await {
        // The file is created at the first output.
        Err(LogFailure::NotKept(_)) if directory.path().exists() => Ok(LogTail::default()),
        Err(LogFailure::NotKept(_)) => {
            Err(LogFailure::NotKept("the service has not run on this node".to_owned()))
        }
        read => read,
    }
}

/// Returns the last lines of a file and, if it is short, of the file that was rotated away last.
pub(in crate::driver) async fn of_file(path: PathBuf, query: LogQuery) -> Result<LogTail, LogFailure> {
    let permit = FILE_READS.try_acquire().map_err(|_| {
        LogFailure::Unreadable("too many log reads are in progress: try again later".to_owned())
    })?;
    let read = move || {
        let _permit = permit;
        let read = file_tail(&path, query, SystemTime::now());
        read.map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                LogFailure::NotKept(format!("{} does not exist", path.display()))
            } else {
                LogFailure::Unreadable(format!("cannot read {}: {error}", path.display()))
            }
        })
    };
    let task_failed = |error: tokio::task::JoinError| LogFailure::Unreadable(error.to_string());
    tokio::task::spawn_blocking(read).await.map_err(task_failed)?
}

fn file_tail(path: &Path, query: LogQuery, now: SystemTime) -> io::Result<LogTail> {
    let newest = end_of(path)?;
    let age = now.duration_since(newest.written).unwrap_or_default();
    if query.since_seconds.is_some_and(|seconds| age > Duration::from_secs(seconds)) {
        return Ok(LogTail::default());
    }
    let mut log_end = TailBuffer::default();
    if newest.bytes.len() < LOG_BYTES_MAX {
        let mut previous = path.as_os_str().to_owned();
        previous.push(".1");
        if let Ok(older) = end_of(Path::new(&previous)) {
            log_end.is_truncated = older.is_truncated;
            log_end.push(&older.bytes);
        }
    } else {
        log_end.is_truncated = newest.is_truncated;
    }
    log_end.push(&newest.bytes);
    Ok(log_end.tail(query.lines))
}

struct FileEnd {
    bytes: Vec<u8>,
    is_truncated: bool,
    written: SystemTime,
}

/// Reads the end of a regular file. Opening another kind of file must not block, so a pipe is opened without waiting
/// for a writer.
fn end_of(path: &Path) -> io::Result<FileEnd> {
    let mut file = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let from = metadata.len().saturating_sub(LOG_BYTES_MAX as u64);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(LOG_BYTES_MAX as u64).read_to_end(&mut bytes)?;
    Ok(FileEnd { bytes, is_truncated: from > 0, written: metadata.modified()? })
}

/// Returns the last lines that a program prints. Dropping the future kills the program.
pub(in crate::driver) async fn of_program(
    name: &str,
    arguments: &[String],
    query: LogQuery,
) -> Result<LogTail, LogFailure> {
    let unreadable = |error: &dyn std::fmt::Display| LogFailure::Unreadable(format!("{name}: {error}"));
    let mut child = Command::new(name)
        .args(arguments)
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| unreadable(&error))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (printed, error_output) = tokio::join!(collect(stdout), collect(stderr));
    let status = child.wait().await.map_err(|error| unreadable(&error))?;
    if status.success() {
        return printed.map(|printed| printed.tail(query.lines)).map_err(|error| unreadable(&error));
    }
    let error_output = error_output.map(|error_output| error_output.tail(1).text).unwrap_or_default();
    let cause = if error_output.trim().is_empty() { status.to_string() } else { error_output };
    Err(unreadable(&cause.trim()))
}

async fn collect(stream: Option<impl AsyncRead + Unpin>) -> io::Result<TailBuffer> {
    let mut log_end = TailBuffer::default();
    let Some(mut stream) = stream else { return Ok(log_end) };
    let mut buffer = vec![0; 16 * 1024];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(log_end),
            length => log_end.push(&buffer[..length]),
        }
    }
}

pub(in crate::driver) fn journal_arguments(unit: &str, query: LogQuery) -> Vec<String> {
    let mut arguments = vec![
        format!("--unit={unit}"),
        format!("--lines={}", query.lines),
        "--output=short-iso-precise".to_owned(),
        "--no-hostname".to_owned(),
        "--no-pager".to_owned(),
        "--quiet".to_owned(),
    ];
    arguments.extend(query.since_seconds.map(|seconds| format!("--since=-{seconds}s")));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const ALL: LogQuery = LogQuery { lines: 10_000, since_seconds: None };

    fn check(pieces: &[&[u8]], lines: u32, expected: &str, truncated: bool) {
        let mut log_end = TailBuffer::default();
        for piece in pieces {
            log_end.push(piece);
        }
        let expected = LogTail { text: expected.to_owned(), truncated };
        assert_eq!(log_end.tail(lines), expected, "{lines} lines of {} pieces", pieces.len());
    }

    #[test]
    fn log_tail_keeps_the_last_lines() {
        check(&[], 5, "", false);
        check(&[b"a\nb\nc\n"], 2, "b\nc\n", false);
        check(&[b"a\nb\nc\n"], 3, "a\nb\nc\n", false);
        check(&[b"a\nb", b"\nc"], 2, "b\nc", false);
        check(&[b"a\n\n\n"], 2, "\n\n", false);
        check(&[b"a\n"], 0, "", false);
        check(&[b"\xff\n"], 1, "\u{fffd}\n", false);
    }

    #[test]
    fn long_log_is_truncated_between_lines() {
        let line = format!("{}\n", "x".repeat(999));
        let mut log_end = TailBuffer::default();
        for _ in 0..500 {
            log_end.push(line.as_bytes());
        }
        let tail = log_end.tail(10_000);
        assert!(tail.truncated && tail.text.len() <= LOG_BYTES_MAX, "{}", tail.text.len());
        assert!(tail.text.lines().all(|line| line.len() == 999));
        assert_eq!(log_end.tail(2), LogTail { text: line.repeat(2), truncated: false });
        // A single line that is too long is cut, not omitted. Invalid bytes count with the length of their replacement.
        let long = vec![0xff; 3 * LOG_BYTES_MAX];
        let mut log_end = TailBuffer::default();
        log_end.push(&long);
        let tail = log_end.tail(5);
        assert!(tail.truncated && !tail.text.is_empty() && tail.text.len() <= LOG_BYTES_MAX);
    }

    #[test]
    fn log_tail_includes_the_rotated_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("output.log");
        let now = SystemTime::now();
        assert_eq!(file_tail(&path, ALL, now).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(&path, "new\n").unwrap();
        fs::write(directory.path().join("output.log.1"), "old\n").unwrap();
        assert_eq!(file_tail(&path, ALL, now).unwrap().text, "old\nnew\n");
        assert_eq!(file_tail(&path, LogQuery { lines: 1, ..ALL }, now).unwrap().text, "new\n");
        let recent = LogQuery { since_seconds: Some(60), ..ALL };
        assert_eq!(file_tail(&path, recent, now).unwrap().text, "old\nnew\n");
        let later = now + Duration::from_secs(120);
        assert_eq!(file_tail(&path, recent, later).unwrap(), LogTail::default());
        assert!(file_tail(directory.path(), ALL, now).is_err(), "a directory is not a log");
    }

    #[tokio::test]
    async fn log_program_failure_is_reported() {
        let output_of =
            async |script: &str| of_program("sh", &["-c".to_owned(), script.to_owned()], ALL).await;
        assert_eq!(output_of("printf 'a\\nb\\n'").await.unwrap().text, "a\nb\n");
        let failed = output_of("echo no journal >&2; exit 3").await.unwrap_err();
        assert_eq!(failed, LogFailure::Unreadable("sh: no journal".to_owned()));
        let missing = of_program("/nonexistent/journalctl", &[], ALL).await.unwrap_err();
        assert!(matches!(missing, LogFailure::Unreadable(why) if why.contains("No such file")));
    }

    #[test]
    fn journalctl_arguments_select_one_unit() {
        let query = LogQuery { lines: 7, since_seconds: Some(60) };
        let arguments = journal_arguments("nginx.service", query).join(" ");
        assert!(arguments.contains("--unit=nginx.service --lines=7 "), "{arguments}");
        assert!(arguments.ends_with("--since=-60s"), "{arguments}");
        assert!(!journal_arguments("a.service", ALL).join(" ").contains("--since"));
    }
}
