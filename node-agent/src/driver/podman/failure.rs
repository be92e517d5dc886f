//! Classification of podman's errors: where to retry a service.

use super::connection::ApiError;
use crate::core::DriverFailure;
use ha_api_types::reason::Reason;
use ha_api_types::record::FailureClass;

pub(super) fn failure(class: FailureClass, reason: Reason, message: impl Into<String>) -> DriverFailure {
    DriverFailure { class, reason, message: message.into() }
}

/// Returns a failure that a retry on this node may resolve.
pub(super) fn retry_here(reason: Reason, message: impl Into<String>) -> DriverFailure {
    failure(FailureClass::RetryHere, reason, message)
}

/// Classifies an error of podman while a container was created or started.
pub(super) fn start_failure(operation: &str, error: &ApiError) -> DriverFailure {
    let text = error.to_string();
    let message = format!("{operation}: {text}");
    let ApiError::Refused { cause, .. } = error else { return retry_here(Reason::StartFailed, message) };
    let has_text = |part: &str| cause.contains(part) || text.contains(part);
    if has_text("invalid reference format") {
        failure(FailureClass::ConfigurationWrong, Reason::BadConfiguration, message)
    } else if has_text("image not known") || has_text("command that was not found") {
        failure(FailureClass::NeverHere, Reason::NotInstalled, message)
    // Two causes have the same message of the kernel: limits above podman's own, and programs that are not executable.
    } else if ((has_text("OCI permission denied") || has_text("is a directory")) && has_text("exec:"))
        || has_text("no matching entries in passwd file")
        || has_text("no matching entries in group file")
        || has_text("network not found")
        || has_text("wrong rlimit value")
        || (has_text("workdir") && has_text("does not exist on container"))
        || has_text("that name is already in use")
        || has_text("json: cannot unmarshal")
    {
        failure(FailureClass::NeverHere, Reason::BadConfiguration, message)
    } else {
        retry_here(Reason::StartFailed, message)
    }
}

/// Classifies an error of a pull.
pub(super) fn pull_failure(image: &str, error: &ApiError) -> DriverFailure {
    let message = format!("image {image} is not on this node, and the pull failed: {error}");
    let ApiError::Refused { message: text, .. } = error else {
        return failure(FailureClass::TryElsewhere, Reason::StartFailed, message);
    };
    let has_text = |part: &str| text.contains(part);
    if has_text("invalid reference format") {
        failure(FailureClass::ConfigurationWrong, Reason::BadConfiguration, message)
    } else if has_text("manifest unknown")
        || has_text("name unknown")
        || has_text("not found: ")
        || has_text("access to the resource is denied")
        || has_text("short-name")
    {
        // Another node may have the image, or permission to pull it.
        failure(FailureClass::NeverHere, Reason::NotInstalled, message)
    } else {
        failure(FailureClass::TryElsewhere, Reason::StartFailed, message)
    }
}

/// Classifies the end of a program right after its start.
pub(super) fn early_exit_failure(code: i32, exit_text: &str) -> DriverFailure {
    let message = format!("service exited immediately after its start: {exit_text}");
    match code {
        126 => failure(FailureClass::NeverHere, Reason::BadConfiguration, message),
        127 => failure(FailureClass::NeverHere, Reason::NotInstalled, message),
        _ => retry_here(Reason::StartFailed, message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::StatusCode;

    fn refused(cause: &str, message: &str) -> ApiError {
        ApiError::Refused {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            cause: cause.to_owned(),
            message: message.to_owned(),
        }
    }

    /// Causes and messages were recorded with podman 4.3 and 5.4 and runc.
    #[test]
    fn starts_fail_in_classes() {
        use FailureClass::{ConfigurationWrong, NeverHere, RetryHere};
        let not_found = "OCI runtime attempted to invoke a command that was not found";
        for (cause, message, class, reason) in [
            (
                not_found,
                "runc: runc create failed: exec: \"/bin/nope\": stat /bin/nope",
                NeverHere,
                Reason::NotInstalled,
            ),
            (
                "OCI permission denied",
                "runc: runc create failed: unable to start container process: exec: \"/etc\": permission denied: OCI permission denied",
                NeverHere,
                Reason::BadConfiguration,
            ),
            (
                "OCI permission denied",
                "error setting rlimits for ready process: error setting rlimit type 7: operation not permitted: OCI permission denied",
                RetryHere,
                Reason::StartFailed,
            ),
            (
                "OCI runtime error",
                "runc create failed: unable to start container process: exec: \"/etc\": is a directory: OCI runtime error",
                NeverHere,
                Reason::BadConfiguration,
            ),
            (
                "no matching entries in passwd file",
                "unable to find user joe",
                NeverHere,
                Reason::BadConfiguration,
            ),
            ("image not known", "localhost/none:1: image not known", NeverHere, Reason::NotInstalled),
            (
                "invalid reference format",
                "invalid reference format",
                ConfigurationWrong,
                Reason::BadConfiguration,
            ),
            (
                "workdir \"/nope\" does not exist on container 98c7",
                "workdir \"/nope\" does not exist on container 98c7",
                NeverHere,
                Reason::BadConfiguration,
            ),
            (
                "network not found",
                "unable to find network with name or ID mynet",
                NeverHere,
                Reason::BadConfiguration,
            ),
            (
                "OCI runtime error",
                "wrong rlimit value: RLIMIT_FOO: OCI runtime error",
                NeverHere,
                Reason::BadConfiguration,
            ),
            ("OCI runtime error", "unable to set memory limit to 100", RetryHere, Reason::StartFailed),
            ("", "listen tcp4 :80: bind: address already in use", RetryHere, Reason::StartFailed),
        ] {
            let failure = start_failure("it cannot be started", &refused(cause, message));
            assert_eq!((failure.class, failure.reason), (class, reason), "{message}");
            assert_eq!(failure.message, format!("it cannot be started: {message}"));
        }
        let failure =
            start_failure("it cannot be started", &ApiError::Slow(std::time::Duration::from_secs(9)));
        assert_eq!(failure.class, RetryHere);
    }

    #[test]
    fn pull_errors_map_to_failure_classes() {
        use FailureClass::{ConfigurationWrong, NeverHere, TryElsewhere};
        for (message, class) in [
            ("pinging container registry: dial tcp 127.0.0.1:443: connect: connection refused", TryElsewhere),
            ("dial tcp: lookup registry-1.docker.io on 192.0.2.1:53: no such host", TryElsewhere),
            ("reading manifest 9 in docker.io/library/redis: manifest unknown", NeverHere),
            ("requested access to the resource is denied", NeverHere),
            ("short-name \"nosuch\" did not resolve to an alias", NeverHere),
            ("invalid reference format", ConfigurationWrong),
        ] {
            let failure = pull_failure("i", &refused("", message));
            assert_eq!(failure.class, class, "{message}");
            assert!(failure.message.ends_with(message));
        }
        assert_eq!(pull_failure("i", &ApiError::Unreadable("x".into())).class, TryElsewhere);
    }

    #[test]
    fn early_exit_status_determines_failure_class() {
        for (code, class) in [
            (0, FailureClass::RetryHere),
            (1, FailureClass::RetryHere),
            (126, FailureClass::NeverHere),
            (127, FailureClass::NeverHere),
        ] {
            assert_eq!(early_exit_failure(code, "x").class, class, "{code}");
        }
    }
}
