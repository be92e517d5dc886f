//! What agent and launcher tell each other, and what is noted in the service's folder of what runs under a supervisor.

use super::process::ProcessIdentity;
use crate::core::DriverFailure;
use ha_api_types::reason::Reason;
use ha_api_types::record::FailureClass;
use nix::libc;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What the launcher is to become: read from the socket that is its standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::driver) struct LaunchOrder {
    /// Program and arguments; not empty.
    pub(in crate::driver) program: Vec<String>,
    /// Where it runs.
    pub(in crate::driver) working_directory: PathBuf,
    /// Whom it runs as.
    pub(in crate::driver) user: Option<String>,
    /// The folder of the service's control group, to be joined.
    pub(in crate::driver) cgroup: Option<PathBuf>,
    /// The process with which it dies, and whose child it is; it gets a session of its own then.
    pub(in crate::driver) supervisor: Option<i32>,
    /// What the program reads on its standard input; without it that is /dev/null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::driver) input: Option<String>,
}

/// Where a launch failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::driver) enum LaunchStep {
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
pub(in crate::driver) struct LaunchFailure {
    /// Where.
    pub(in crate::driver) step: LaunchStep,
    /// The kernel's number for it, when there is one.
    pub(in crate::driver) errno: Option<i32>,
    /// In a sentence.
    pub(in crate::driver) message: String,
}

/// What runs, in the service's folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::driver) struct Record {
    /// The resource's uid under which it was started.
    pub(in crate::driver) uid: String,
    /// The boot in which the identities mean something.
    pub(in crate::driver) boot_id: String,
    /// The supervisor.
    pub(in crate::driver) supervisor: ProcessIdentity,
    /// The main process.
    pub(in crate::driver) main: ProcessIdentity,
    /// The folder of the service's control group.
    pub(in crate::driver) cgroup: Option<PathBuf>,
}

/// How the main process ended, in the service's folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::driver) struct Ending {
    /// Which one.
    pub(in crate::driver) main: ProcessIdentity,
    /// How, in a sentence.
    pub(in crate::driver) message: String,
}

impl LaunchFailure {
    /// A failure of a step.
    pub(in crate::driver) fn new(step: LaunchStep, what: &str, error: &std::io::Error) -> LaunchFailure {
        LaunchFailure { step, errno: error.raw_os_error(), message: format!("{what}: {error}") }
    }

    /// Whoever should have prepared it ended without saying why.
    pub(in crate::driver) fn unexplained(message: String) -> LaunchFailure {
        LaunchFailure { step: LaunchStep::Prepare, errno: None, message }
    }

    /// Where the leader should try next.
    pub(in crate::driver) fn to_driver_failure(&self) -> DriverFailure {
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
