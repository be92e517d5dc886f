//! Messages between the agent and the launcher, and the records of supervised processes in the service's directory.

use super::process::ProcessIdentity;
use crate::core::DriverFailure;
use ha_api_types::id::{BootId, ObjectUid};
use ha_api_types::reason::Reason;
use ha_api_types::record::FailureClass;
use nix::libc;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Order to the launcher, read from the socket on its standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::driver) struct LaunchOrder {
    /// Program and arguments; not empty.
    pub(in crate::driver) program: Vec<String>,
    /// Working directory of the program.
    pub(in crate::driver) working_directory: PathBuf,
    /// User of the program; `None` means the agent's user.
    pub(in crate::driver) user: Option<String>,
    /// Directory of the service's control group, which the launcher joins.
    pub(in crate::driver) cgroup: Option<PathBuf>,
    /// Pid of the parent process whose end must also end the program. If set, the program gets its own session.
    pub(in crate::driver) supervisor: Option<i32>,
    /// Content of the program's standard input; `None` means /dev/null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::driver) input: Option<String>,
}

/// Step of a launch that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::driver) enum LaunchStep {
    /// The order did not arrive, or the process could not be prepared.
    Prepare,
    /// Change to the user.
    User,
    /// Change to the working directory.
    Directory,
    /// Execution of the program.
    Program,
}

/// A failed launch; no program of the service ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::driver) struct LaunchFailure {
    /// Step that failed.
    pub(in crate::driver) step: LaunchStep,
    /// Error number of the kernel, if any.
    pub(in crate::driver) errno: Option<i32>,
    /// Description of the failure.
    pub(in crate::driver) message: String,
}

/// Record of the supervised process, stored in the service's directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::driver) struct ProcessRecord {
    /// Uid of the resource at the start.
    pub(in crate::driver) uid: ObjectUid,
    /// Boot in which the process identities are valid.
    pub(in crate::driver) boot_id: BootId,
    pub(in crate::driver) supervisor: ProcessIdentity,
    pub(in crate::driver) main: ProcessIdentity,
    /// Directory of the service's control group.
    pub(in crate::driver) cgroup: Option<PathBuf>,
}

/// Outcome of the main process, stored in the service's directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::driver) struct RecordedExit {
    pub(in crate::driver) main: ProcessIdentity,
    /// Description of the end.
    pub(in crate::driver) message: String,
}

impl LaunchFailure {
    pub(in crate::driver) fn new(step: LaunchStep, operation: &str, error: &std::io::Error) -> LaunchFailure {
        LaunchFailure { step, errno: error.raw_os_error(), message: format!("{operation}: {error}") }
    }

    /// Returns the failure of a launcher or supervisor that ended without an answer.
    pub(in crate::driver) fn without_answer(message: String) -> LaunchFailure {
        LaunchFailure { step: LaunchStep::Prepare, errno: None, message }
    }

    /// Returns the failure for the leader, with the nodes on which a retry makes sense.
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

    fn assert_failure_class(step: LaunchStep, errno: Option<i32>, expected: FailureClass) {
        let failure = LaunchFailure { step, errno, message: String::new() };
        assert_eq!(failure.to_driver_failure().class, expected, "{failure:?}");
    }

    #[test]
    fn program_failures_map_to_failure_classes() {
        assert_failure_class(LaunchStep::Program, Some(libc::ENOENT), FailureClass::NeverHere);
        assert_failure_class(LaunchStep::Program, Some(libc::EACCES), FailureClass::NeverHere);
        assert_failure_class(LaunchStep::Program, Some(libc::ENOEXEC), FailureClass::NeverHere);
        assert_failure_class(LaunchStep::Program, Some(libc::EAGAIN), FailureClass::RetryHere);
        assert_failure_class(LaunchStep::Program, Some(libc::E2BIG), FailureClass::ConfigurationWrong);
        assert_failure_class(LaunchStep::Program, None, FailureClass::ConfigurationWrong);
        assert_failure_class(LaunchStep::Directory, Some(libc::ENOENT), FailureClass::NeverHere);
        assert_failure_class(LaunchStep::User, Some(libc::ENOENT), FailureClass::NeverHere);
        assert_failure_class(LaunchStep::User, Some(libc::EAGAIN), FailureClass::RetryHere);
        assert_failure_class(LaunchStep::Prepare, Some(libc::ENOENT), FailureClass::RetryHere);
    }
}
