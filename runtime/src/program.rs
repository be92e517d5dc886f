//! The common `main` of all daemons: options, logging, the asynchronous runtime, and the exit status.

use crate::config::{self, ConfigError};
use crate::logging::{self, LogOptions};
use clap::{CommandFactory, FromArgMatches};
use std::process::ExitCode;

/// Common properties of a daemon's options.
pub trait ProgramOptions: CommandFactory + FromArgMatches {
    /// Prefix of the daemon's environment variables.
    const PREFIX: &'static str;

    /// Returns the logging options.
    fn logging(&self) -> &LogOptions;

    /// Checks for options that are invalid on every machine.
    ///
    /// # Errors
    /// Fails if an option is invalid; the message gives the option, the problem and the expected value.
    fn check(&self) -> anyhow::Result<()>;
}

/// Error of settings with which the daemon cannot work on this machine.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct InvalidSettings(String);

/// Marks an error as caused by the settings: the exit status is 2, and a restart does not help.
pub fn invalid_settings(error: impl Into<anyhow::Error>) -> anyhow::Error {
    InvalidSettings(format!("{:#}", error.into())).into()
}

/// Reads the options, runs the daemon, and returns the exit status: 0 for an orderly end, 1 for a failure, 2 for
/// invalid settings.
pub fn main<O: ProgramOptions, F: Future<Output = anyhow::Result<()>>>(run: impl FnOnce(O) -> F) -> ExitCode {
    let options = match config::read::<O>(O::PREFIX) {
        Ok(options) => options,
        Err(ConfigError::Usage(usage)) => usage.exit(),
        Err(error) => return usage_error(&error),
    };
    if let Err(error) = options.check().and_then(|()| Ok(logging::init(options.logging())?)) {
        return usage_error(&*error);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "cannot start the async runtime");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<InvalidSettings>() => usage_error(&format!("{error:#}")),
        Err(error) => {
            tracing::error!(error = %format!("{error:#}"), "exiting because of an error");
            ExitCode::FAILURE
        }
    }
}

/// Checks a name that becomes a part of a key in etcd.
///
/// # Errors
/// Fails if the name is invalid; the message gives the flag and the allowed characters.
pub fn check_name(flag: &str, name: &str) -> anyhow::Result<()> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if name.is_empty() || name.len() > 253 || !name.bytes().all(allowed) {
        anyhow::bail!("{flag} {name:?}: use 1 to 253 letters, digits, '-', '.' or '_'");
    }
    Ok(())
}

#[allow(clippy::print_stderr, reason = "logging may not be set up yet")]
fn usage_error(error: &(impl std::fmt::Display + ?Sized)) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_names_must_be_valid_in_keys() {
        for valid in ["node1", "a.b-c_D", &"x".repeat(253)] {
            assert!(check_name("--node", valid).is_ok(), "{valid}");
        }
        for invalid in ["", "a/b", "a b", "ä", &"x".repeat(254)] {
            let error = check_name("--node", invalid).unwrap_err().to_string();
            assert!(error.starts_with("--node") && error.contains("253 letters"), "{error}");
        }
    }
}
