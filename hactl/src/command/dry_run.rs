//! `--dry-run`: runs a command without its changes. The flag has the same values and default in every command.

use crate::client::WriteMode;
use clap::{Args, ValueEnum};

/// Selection of a dry run.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct DryRunFlag {
    /// Preview the change without making it; without a value: server
    #[arg(
        id = "dry_run",
        long = "dry-run",
        value_name = "none|server|client",
        hide_possible_values = true,
        num_args = 0..=1,
        require_equals = true,
        default_value = "none",
        default_missing_value = "server"
    )]
    pub(crate) mode: DryRun,
}

/// The values of `--dry-run`, as in kubectl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    /// Make the change
    None,
    /// Run all checks of the server; store nothing
    Server,
    /// Do not send the change to the server
    Client,
}

impl DryRun {
    /// Returns how changes are sent; `None` if changes are not sent.
    pub(crate) fn write_mode(self) -> Option<WriteMode> {
        match self {
            DryRun::None => Some(WriteMode::Persist),
            DryRun::Server => Some(WriteMode::DryRun),
            DryRun::Client => None,
        }
    }

    /// Returns the end of a line of confirmation.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            DryRun::None => "",
            DryRun::Server => " (server dry run)",
            DryRun::Client => " (dry run)",
        }
    }
}
