//! The result of a command: its exit status, or a failure with its cause, its context and a hint.

use std::process::ExitCode;

/// Exit statuses, which are fixed and documented in docs/hactl.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Exit {
    /// The command succeeded, the checked state is healthy, or no difference was found.
    Done,
    /// The request was refused or failed, the checked state is degraded, or a difference was found.
    Failed,
    /// Usage error or bad input. For `status`: a desired service does not run, or there is no leader.
    Usage,
    /// No controller is reachable, or etcd is unreachable for the controller.
    Unreachable,
    NotPermitted,
    /// The time of `--wait` or `--timeout` has passed.
    TimedOut,
}

impl Exit {
    /// Returns the number of the exit status.
    pub(crate) fn number(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// hactl, or the connection to the controllers.
    Client,
    /// A controller answered with an error, for this reason, such as `NotFound`. The reason may be empty.
    Server(String),
}

/// The failure of a command, as shown to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Exit status of the command.
    pub(crate) exit: Exit,
    /// Origin of the failure, which the first word of the output shows.
    pub(crate) origin: Origin,
    /// Context and cause of the failure, in one or several lines. Lower case, no full stop.
    pub(crate) message: String,
    /// Suggested action; empty if the message needs none.
    pub(crate) help: String,
}

/// Result of a command.
pub(crate) type Outcome = Result<Exit, Failure>;

impl Failure {
    /// Creates a failure without a hint.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, origin: Origin::Client, message: message.into(), help: String::new() }
    }

    /// Creates a failure of a refused or failed request.
    pub(crate) fn failed(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Failed, message)
    }

    /// Creates a failure for invalid usage or input.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, message)
    }

    /// Creates a failure of a timeout.
    pub(crate) fn timed_out(message: impl Into<String>) -> Failure {
        Failure::new(Exit::TimedOut, message)
    }

    /// Marks the failure as an answer of a controller.
    pub(crate) fn with_server_reason(mut self, reason: &str) -> Failure {
        self.origin = Origin::Server(reason.to_owned());
        self
    }

    /// Returns `true` if a controller answered that the object does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(&self.origin, Origin::Server(reason) if reason == "NotFound")
    }

    /// Returns the words before the message: `error`, or `Error from server (NotFound)` as in kubectl.
    pub(crate) fn title(&self) -> String {
        match &self.origin {
            Origin::Client => "error".to_owned(),
            Origin::Server(reason) if reason.is_empty() => "Error from server".to_owned(),
            Origin::Server(reason) => format!("Error from server ({reason})"),
        }
    }

    /// Prepends the context of the failure, such as a file or an object, to the message.
    pub(crate) fn with_context(mut self, context: &str) -> Failure {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// Adds a hint.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Failure {
        self.help = help.into();
        self
    }
}
