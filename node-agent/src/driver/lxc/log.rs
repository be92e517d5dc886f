//! The output of a container on its console, and LXC's own log of the container.

use super::config::Settings;
use super::container::Container;
use super::{Context, LxcSettings};
use crate::driver::log::of_file;
use crate::driver::{LogQuery, LogTail};
use ha_api_types::record::LogFailure;
use ha_api_types::resource::ServiceDefinition;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::PathBuf;

/// Size at which LXC rotates the output of the console, in bytes.
pub(super) const CONSOLE_BYTES: u64 = 1 << 20;
/// Size above which LXC's own log is emptied, in bytes. LXC writes lines at each run of a health check.
const LOG_BYTES_MAX: u64 = 1 << 20;

/// Files of a service.
#[derive(Clone, Debug)]
pub(super) struct LogFiles {
    directory: PathBuf,
}

impl LogFiles {
    pub(super) fn of(settings: &LxcSettings, service: &ServiceDefinition) -> LogFiles {
        LogFiles { directory: settings.directory.join(service.name.as_str()) }
    }

    /// Returns the file for the output of the console.
    pub(super) fn console(&self) -> PathBuf {
        self.directory.join("output.log")
    }

    /// Returns the file for LXC's own log of the container.
    pub(super) fn lxc(&self) -> PathBuf {
        self.directory.join("lxc.log")
    }

    /// Creates the directory, and empties LXC's log before a start.
    pub(super) fn prepare(&self) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        fs::write(self.lxc(), "")
    }

    /// Empties LXC's log if it is long. The monitor appends to it.
    pub(super) fn truncate_if_long(&self) {
        if fs::metadata(self.lxc()).is_ok_and(|metadata| metadata.len() > LOG_BYTES_MAX)
            && let Ok(file) = OpenOptions::new().write(true).open(self.lxc())
        {
            // The next call tries again.
            let _ = file.set_len(0);
        }
    }

    /// Returns the text of LXC's log.
    pub(super) fn text(&self) -> String {
        fs::read(self.lxc()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }
}

/// Returns the last lines of the console.
pub(super) async fn read(
    context: &Context,
    service: &ServiceDefinition,
    query: LogQuery,
) -> Result<LogTail, LogFailure> {
    let missing = || LogFailure::Unreadable("spec.driver.lxc.container is missing".to_owned());
    let container = Container::of(&context.settings, service).ok_or_else(missing)?;
    let configured =
        Settings::read(&container.config_file()).ok().and_then(|settings| settings.console_log());
    match configured {
        Some(file) => of_file(file, query).await,
        None => match of_file(LogFiles::of(&context.settings, service).console(), query).await {
            Err(LogFailure::NotKept(_)) => Err(LogFailure::NotKept(format!(
                "hactl has not started container {} on this node, or its console has no terminal (lxc.pty.max)",
                container.name
            ))),
            read => read,
        },
    }
}

/// Returns the last line of the console, for the end of a message; empty if there is none.
pub(super) async fn last_line(context: &Context, service: &ServiceDefinition) -> String {
    let query = LogQuery { lines: 1, since_seconds: Some(60) };
    let text = read(context, service, query).await.map(|tail| tail.text).unwrap_or_default();
    let line = text.trim();
    if line.is_empty() { String::new() } else { format!(": {line}") }
}

/// Returns the message of a line of LXC's log, and its level.
fn parse(line: &str) -> Option<(&str, &str)> {
    // lxc-start NAME TIME LEVEL    CATEGORY - FILE:FUNCTION:LINE - MESSAGE
    let mut parts = line.splitn(3, " - ");
    let level = parts.next()?.split_whitespace().nth(3)?;
    Some((level, parts.nth(1)?))
}

/// Returns the first error in LXC's log, which is the cause of the later errors.
pub(super) fn first_error(text: &str) -> Option<&str> {
    text.lines().filter_map(parse).find(|(level, _)| *level == "ERROR").map(|(_, message)| message)
}

/// Returns how the first process of a container ended, according to LXC's log.
pub(super) fn init_exit(text: &str, init: i32) -> Option<String> {
    let beginning = format!("Child <{init}> ended on ");
    let exit_message =
        text.lines().filter_map(parse).find_map(|(_, message)| message.strip_prefix(&beginning));
    let exit_text = exit_message?;
    let inner = |exit_text: &str, prefix: &str| {
        exit_text
            .strip_prefix(prefix)?
            .split_once('(')?
            .1
            .split_once(')')
            .map(|(number, _)| number.to_owned())
    };
    if let Some(status) = inner(exit_text, "error ") {
        return Some(format!("init process exited with status {status}"));
    }
    let signal = inner(exit_text, "signal ")?;
    Some(format!("init process was killed by signal {signal}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "lxc-start c1 20261126073530.399 NOTICE   start - ../src/lxc/start.c:start:2194 - Exec'ing \"/bin/init\"\n\
        lxc-start c1 20261126073531.579 ERROR    start - ../src/lxc/start.c:start:2197 - No such file or directory - Failed to exec \"/nope\"\n\
        lxc-start c1 20261126073531.579 ERROR    sync - ../src/lxc/sync.c:sync_wait:34 - An error occurred in another process\n";

    #[test]
    fn first_lxc_error_is_the_cause() {
        assert_eq!(first_error(LOG), Some("No such file or directory - Failed to exec \"/nope\""));
        assert_eq!(first_error("lxc-start c1 1 INFO     start - a.c:b:1 - fine\nno line of lxc\n"), None);
    }

    #[test]
    fn exit_status_of_init_process_is_read() {
        let line = |exit_text: &str| {
            format!(
                "lxc-start c1 2026 INFO     error - ../src/lxc/error.c:lxc_error_set_and_log:34 - Child <7> ended on {exit_text}\n"
            )
        };
        let check = |exit_text: &str, init: i32, expected: Option<&str>| {
            assert_eq!(init_exit(&line(exit_text), init).as_deref(), expected, "{exit_text}");
        };
        check("signal Killed(9)", 7, Some("init process was killed by signal 9"));
        check("error (3)", 7, Some("init process exited with status 3"));
        check("signal Killed(9)", 8, None);
        assert_eq!(init_exit(LOG, 7), None);
    }

    #[test]
    fn long_lxc_log_is_truncated() {
        let directory = tempfile::tempdir().unwrap();
        let files = LogFiles { directory: directory.path().join("web") };
        files.prepare().unwrap();
        fs::write(files.lxc(), "short").unwrap();
        files.truncate_if_long();
        assert_eq!(files.text(), "short");
        fs::write(files.lxc(), "x".repeat((1 << 20) + 1)).unwrap();
        files.truncate_if_long();
        assert_eq!(files.text(), "");
    }
}
