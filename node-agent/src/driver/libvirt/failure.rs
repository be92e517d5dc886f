//! Classification of libvirt's failures.

use super::virsh::VirshError;
use crate::core::DriverFailure;
use ha_api_types::reason::Reason;
use ha_api_types::record::FailureClass;

/// Classifies a failed start by the text of the message, because `virsh` does not print libvirt's error numbers.
pub(super) fn start_failure(error: &VirshError) -> DriverFailure {
    let message = error.to_string();
    let (class, reason) = match error {
        VirshError::Missing => (FailureClass::NeverHere, Reason::NotInstalled),
        VirshError::TimedOut { .. } => (FailureClass::RetryHere, Reason::TimedOut),
        VirshError::Broken(_) => (FailureClass::RetryHere, Reason::StartFailed),
        VirshError::Reported(error_text) => {
            let contains_any = |texts: &[&str]| texts.iter().any(|text| error_text.contains(text));
            if contains_any(&DEFINITION_ERRORS) {
                (FailureClass::ConfigurationWrong, Reason::BadConfiguration)
            } else if contains_any(&UNSUPPORTED_ERRORS) {
                (FailureClass::NeverHere, Reason::NotInstalled)
            } else if contains_any(&DEPENDENCY_ERRORS) {
                (FailureClass::TryElsewhere, Reason::StartFailed)
            } else {
                (FailureClass::RetryHere, Reason::StartFailed)
            }
        }
    };
    DriverFailure { class, reason, message }
}

/// Texts of errors in the definition, which occur on every node.
const DEFINITION_ERRORS: [&str; 3] = ["XML error", "XML document failed to validate", "(domain_definition)"];
/// Texts of errors about features that this node's hardware or software does not have.
const UNSUPPORTED_ERRORS: [&str; 7] = [
    "does not support virt type",
    "could not find capabilities for",
    "Cannot check QEMU binary",
    "unsupported machine type",
    "does not support machine type",
    "guest CPU doesn't match specification",
    "unknown OS type",
];
/// Texts of errors about missing or insufficient storage, network, memory and other dependencies.
const DEPENDENCY_ERRORS: [&str; 9] = [
    "No such file or directory",
    "Cannot access storage file",
    "Cannot access backing file",
    "Cannot get interface MTU",
    "Cannot allocate memory",
    "cannot set up guest memory",
    "Network not found",
    "is not active",
    "already exists with uuid",
];

/// Returns a failure that a retry on this node may resolve.
pub(super) fn retry_here(reason: Reason, message: impl Into<String>) -> DriverFailure {
    DriverFailure { class: FailureClass::RetryHere, reason, message: message.into() }
}

/// Returns a failure that may not occur on another node.
pub(super) fn try_elsewhere(reason: Reason, message: impl Into<String>) -> DriverFailure {
    DriverFailure { class: FailureClass::TryElsewhere, reason, message: message.into() }
}

/// Returns a failure of the resource's configuration, on every node.
pub(super) fn invalid_configuration(message: impl Into<String>) -> DriverFailure {
    let class = FailureClass::ConfigurationWrong;
    DriverFailure { class, reason: Reason::BadConfiguration, message: message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virsh_errors_map_to_failure_classes() {
        for (error_text, expected) in [
            ("Failed to create domain from /x: XML error: no OS", FailureClass::ConfigurationWrong),
            ("(domain_definition):3: Opening and ending tag mismatch", FailureClass::ConfigurationWrong),
            (
                "unsupported configuration: Emulator '/usr/bin/qemu-system-x86_64' does not support virt type 'kvm'",
                FailureClass::NeverHere,
            ),
            (
                "the CPU is incompatible with host CPU: guest CPU doesn't match specification",
                FailureClass::NeverHere,
            ),
            (
                "Cannot access storage file '/srv/a.qcow2': No such file or directory",
                FailureClass::TryElsewhere,
            ),
            ("Requested operation is not valid: network 'default' is not active", FailureClass::TryElsewhere),
            ("internal error: qemu unexpectedly closed the monitor", FailureClass::RetryHere),
        ] {
            assert_eq!(
                start_failure(&VirshError::Reported(error_text.to_owned())).class,
                expected,
                "{error_text}"
            );
        }
        assert_eq!(start_failure(&VirshError::Missing).class, FailureClass::NeverHere);
    }
}
