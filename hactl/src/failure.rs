//! How a command ends: its exit status, and a failure that says what, where and what to do.

use std::process::ExitCode;

/// Exit statuses, fixed and documented in docs/hactl.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exit {
    /// Done, healthy, no difference.
    Done,
    /// Refused, failed, degraded, differs.
    Refused,
    /// Usage or bad input; for `status`: something wanted does not run, or there is no leader.
    Usage,
    /// No controller, or no store behind it, can be reached.
    Unreachable,
    /// Not permitted.
    NotPermitted,
    /// `--wait` or `--timeout` ran out.
    TimedOut,
}

impl Exit {
    /// The number that the shell sees.
    pub(crate) fn number(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Refused => 1,
            Exit::Usage => 2,
            Exit::Unreachable => 3,
            Exit::NotPermitted => 4,
            Exit::TimedOut => 124,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.number())
    }
}

/// Why a command failed, for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The exit status.
    pub(crate) exit: Exit,
    /// What failed and where; may have several lines. Lower case, no full stop.
    pub(crate) message: String,
    /// What to do; empty when the message says it all.
    pub(crate) help: String,
}

/// What a command gives back.
pub(crate) type Outcome = Result<Exit, Failure>;

impl Failure {
    /// Any failure.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into(), help: String::new() }
    }

    /// Refused or failed.
    pub(crate) fn refused(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Refused, message)
    }

    /// Wrong usage or bad input.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, message)
    }

    /// Time ran out.
    pub(crate) fn timed_out(message: impl Into<String>) -> Failure {
        Failure::new(Exit::TimedOut, message)
    }

    /// Says where it happened.
    pub(crate) fn at(mut self, place: &str) -> Failure {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// Adds what to do.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Failure {
        self.help = help.into();
        self
    }
}
