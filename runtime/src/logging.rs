//! Log lines on standard error: text for people, JSON for collectors.

use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One line for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The options about logging, to be flattened into a daemon's own.
#[derive(Clone, Debug, clap::Args)]
pub struct LogOptions {
    /// How log lines look.
    #[arg(long, value_enum, default_value_t = LogFormat::Text, help_heading = "Logging")]
    pub log_format: LogFormat,
    /// What is logged: a level, or directives as in `info,ha_store=debug`.
    #[arg(long, value_name = "FILTER", default_value = "info", help_heading = "Logging")]
    pub log_filter: String,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter is not understood.
    #[error(
        "log filter `{filter}` is not understood: give a level (error, warn, info, debug, trace) or target=level,…"
    )]
    Filter {
        /// As given.
        filter: String,
        /// What is wrong with it.
        source: ParseError,
    },
    /// A second call.
    #[error("logging is already set up")]
    AlreadySet,
}

/// Sends everything that the process logs to standard error from here on; once per process.
pub fn init(options: &LogOptions) -> Result<(), LogError> {
    let filter = EnvFilter::try_new(&options.log_filter)
        .map_err(|source| LogError::Filter { filter: options.log_filter.clone(), source })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let set = match options.log_format {
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(true).try_init(),
        LogFormat::Text => {
            builder.with_ansi(std::io::stderr().is_terminal() && !no_color()).with_target(false).try_init()
        }
    };
    set.map_err(|_| LogError::AlreadySet)
}

/// Whether the user asked for no colour (no-color.org).
fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_filter_is_named() {
        let options = LogOptions { log_format: LogFormat::Text, log_filter: "ha_store=loudly".to_owned() };
        let error = init(&options).unwrap_err();
        assert!(error.to_string().contains("ha_store=loudly"), "{error}");
    }
}
