//! What agent, supervisor and launcher tell each other, and what of it outlives them in the service's folder.

use super::process::ProcessIdentity;
use crate::core::DriverFailure;
use ha_api_types::reason::Reason;
use ha_api_types::record::FailureClass;
use nix::libc;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What the supervisor is to do: its standard input, the locked order file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SupervisorOrder {
    /// The resource, for the journal.
    pub(super) resource: String,
    /// The resource's uid.
    pub(super) uid: String,
    /// The boot.
    pub(super) boot_id: String,
    /// The service's folder.
    pub(super) folder: PathBuf,
    /// The log is rotated when it is longer.
    pub(super) log_bytes_max: u64,
    /// Whether the output also goes to the journal of systemd.
    pub(super) journal: bool,
    /// The service's environment.
    pub(super) environment: Vec<(String, String)>,
    /// The main process.
    pub(super) launch: LaunchOrder,
}

/// What the launcher is to become: read from the socket that is its standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LaunchOrder {
    /// Program and arguments; not empty.
    pub(super) program: Vec<String>,
    /// Where it runs.
    pub(super) working_directory: PathBuf,
    /// Whom it runs as.
    pub(super) user: Option<String>,
    /// The folder of the service's control group, to be joined.
    pub(super) cgroup: Option<PathBuf>,
    /// The process with which it dies, and whose child it is; it gets a session of its own then.
    pub(super) supervisor: Option<i32>,
}

/// Where a launch failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LaunchStep {
    /// The order did not arrive, or the process could not be prepared.
    Prepare,
    /// The user.
    User,
    /// The working directory.
    Directory,
    /// The program.
    Program,
}

/// A launch that failed, before anything of the service ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LaunchFailure {
    /// Where.
    pub(super) step: LaunchStep,
    /// The kernel's number for it, when there is one.
    pub(super) errno: Option<i32>,
    /// In a sentence.
    pub(super) message: String,
}

/// What the supervisor tells the agent, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Report {
    /// The program was executed.
    Started(Record),
    /// It was not; nothing runs.
    Failed(LaunchFailure),
}

/// What runs, in the service's folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    /// The resource's uid under which it was started.
    pub(super) uid: String,
    /// The boot in which the identities mean something.
    pub(super) boot_id: String,
    /// The supervisor.
    pub(super) supervisor: ProcessIdentity,
    /// The main process.
    pub(super) main: ProcessIdentity,
    /// The folder of the service's control group.
    pub(super) cgroup: Option<PathBuf>,
}

/// How the main process ended, in the service's folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ending {
    /// Which one.
    pub(super) main: ProcessIdentity,
    /// How, in a sentence.
    pub(super) message: String,
}

impl LaunchFailure {
    /// A failure of a step.
    pub(super) fn new(step: LaunchStep, what: &str, error: &std::io::Error) -> LaunchFailure {
        LaunchFailure { step, errno: error.raw_os_error(), message: format!("{what}: {error}") }
    }

    /// Whoever should have prepared it ended without saying why.
    pub(super) fn unexplained(message: String) -> LaunchFailure {
        LaunchFailure { step: LaunchStep::Prepare, errno: None, message }
    }

    /// Where the leader should try next.
    pub(super) fn to_driver_failure(&self) -> DriverFailure {
        let (class, reason) = match (self.step, self.errno) {
            (LaunchStep::User, Some(libc::ENOMEM | libc::EAGAIN) | None)
            | (
                LaunchStep::Program,
                Some(libc::ENOMEM | libc::EAGAIN | libc::ETXTBSY | libc::EMFILE | libc::ENFILE),
            )
            | (LaunchStep::Prepare, _) => (FailureClass::RetryHere, Reason::StartFailed),
            // The user or the directory may exist on another node.
            (LaunchStep::User | LaunchStep::Directory, _) => {
                (FailureClass::NeverHere, Reason::BadConfiguration)
            }
            (LaunchStep::Program, Some(libc::E2BIG) | None) => {
                (FailureClass::ConfigurationWrong, Reason::BadConfiguration)
            }
            (LaunchStep::Program, Some(_)) => (FailureClass::NeverHere, Reason::NotInstalled),
        };
        DriverFailure { class, reason, message: self.message.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(step: LaunchStep, errno: Option<i32>, expected: FailureClass) {
        let failure = LaunchFailure { step, errno, message: String::new() };
        assert_eq!(failure.to_driver_failure().class, expected, "{failure:?}");
    }

    #[test]
    fn failures_say_where_to_try_next() {
        check(LaunchStep::Program, Some(libc::ENOENT), FailureClass::NeverHere);
        check(LaunchStep::Program, Some(libc::EACCES), FailureClass::NeverHere);
        check(LaunchStep::Program, Some(libc::ENOEXEC), FailureClass::NeverHere);
        check(LaunchStep::Program, Some(libc::EAGAIN), FailureClass::RetryHere);
        check(LaunchStep::Program, Some(libc::E2BIG), FailureClass::ConfigurationWrong);
        check(LaunchStep::Program, None, FailureClass::ConfigurationWrong);
        check(LaunchStep::Directory, Some(libc::ENOENT), FailureClass::NeverHere);
        check(LaunchStep::User, Some(libc::ENOENT), FailureClass::NeverHere);
        check(LaunchStep::User, Some(libc::EAGAIN), FailureClass::RetryHere);
        check(LaunchStep::Prepare, Some(libc::ENOENT), FailureClass::RetryHere);
    }
}
