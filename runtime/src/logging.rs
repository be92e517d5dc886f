//! Log output: text or JSON on standard error, or entries of the systemd journal.

mod event;
mod journald;

pub use event::event;

use crate::journal::{self, Journal};
use journald::JournalLayer;
use std::io::{self, IsTerminal};
use std::path::Path;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// Format and destination of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Journald if standard error is the systemd journal; otherwise text
    #[default]
    Auto,
    /// One line of text, on standard error
    Text,
    /// One JSON object per line, on standard error
    Json,
    /// Entries of the systemd journal, with fields such as `HACTL_RESOURCE`
    Journald,
}

/// Logging options, to be flattened into the options of a daemon.
#[derive(Clone, Debug, clap::Args)]
pub struct LogOptions {
    /// Format and destination of log lines
    #[arg(long, value_enum, default_value_t = LogFormat::Auto, help_heading = "Logging")]
    pub log_format: LogFormat,
    /// Log filter: a level, or directives such as `info,ha_store=debug`
    #[arg(long, value_name = "FILTER", default_value = "info", help_heading = "Logging")]
    pub log_filter: String,
}

/// Reason why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter is invalid.
    #[error(
        "invalid log filter `{filter}`: expected a level (error, warn, info, debug, trace) or target=level,…"
    )]
    Filter {
        /// Filter as given.
        filter: String,
        /// Error of the parser.
        source: ParseError,
    },
    /// Logging was already set up.
    #[error("logging is already set up")]
    AlreadySet,
}

/// Destination of log lines.
#[derive(Debug)]
enum Output {
    Text,
    Json,
    Journal(Journal),
}

/// Sets up logging; may be called once per process. If the journal is not available, lines are text on standard error,
/// and the first line gives the reason.
pub fn init(options: &LogOptions) -> Result<(), LogError> {
    let filter = EnvFilter::try_new(&options.log_filter)
        .map_err(|source| LogError::Filter { filter: options.log_filter.clone(), source })?;
    let (output, missing) =
        select_output(options.log_format, journal::has_standard_error(), Journal::connect);
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let layer = match output {
        Output::Json => lines.json().flatten_event(true).with_current_span(true).boxed(),
        Output::Text => lines.with_ansi(io::stderr().is_terminal() && !no_color()).with_target(false).boxed(),
        Output::Journal(journal) => JournalLayer::new(journal, identifier()).boxed(),
    };
    tracing_subscriber::registry().with(layer).with(filter).try_init().map_err(|_| LogError::AlreadySet)?;
    if let Some(error) = missing {
        tracing::warn!(%error, socket = journal::SOCKET_PATH, "cannot use the systemd journal, logging text to standard error");
    }
    Ok(())
}

/// Returns the destination of log lines, and the error if the journal is requested but not available.
fn select_output(
    format: LogFormat,
    has_journal: bool,
    connect: impl FnOnce() -> io::Result<Journal>,
) -> (Output, Option<io::Error>) {
    match format {
        LogFormat::Text => (Output::Text, None),
        LogFormat::Json => (Output::Json, None),
        LogFormat::Auto if !has_journal => (Output::Text, None),
        LogFormat::Auto | LogFormat::Journald => match connect() {
            Ok(journal) => (Output::Journal(journal), None),
            Err(error) => (Output::Text, Some(error)),
        },
    }
}

/// Returns the program's name, which the journal shows before each line.
fn identifier() -> String {
    let program = std::env::args_os().next().unwrap_or_default();
    Path::new(&program)
        .file_name()
        .map_or_else(|| "hactl".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Returns `true` if the user requests output without colors (no-color.org).
fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn invalid_log_filter_is_named() {
        let options = LogOptions { log_format: LogFormat::Text, log_filter: "ha_store=loudly".to_owned() };
        let error = init(&options).unwrap_err();
        assert!(error.to_string().contains("ha_store=loudly"), "{error}");
    }

    #[test]
    fn journal_is_used_if_stderr_or_configured() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let mut listener = None;
        for journal_exists in [false, true] {
            if journal_exists {
                listener = Some(UnixDatagram::bind(&path).unwrap());
            }
            for (format, has_journal, wants_journal) in [
                (LogFormat::Auto, false, false),
                (LogFormat::Auto, true, true),
                (LogFormat::Journald, false, true),
                (LogFormat::Text, true, false),
                (LogFormat::Json, true, false),
            ] {
                let (output, missing) = select_output(format, has_journal, || Journal::connect_to(&path));
                let used = matches!(output, Output::Journal(_));
                assert_eq!(
                    used,
                    wants_journal && journal_exists,
                    "{format:?} with {has_journal}, {journal_exists}"
                );
                assert_eq!(
                    missing.is_some(),
                    wants_journal && !journal_exists,
                    "{format:?} with {has_journal}, {journal_exists}"
                );
                assert_eq!(matches!(output, Output::Json), format == LogFormat::Json);
            }
        }
        drop(listener);
    }
}
