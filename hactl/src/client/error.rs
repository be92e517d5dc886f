//! The errors of a request, and their messages to the user.

use super::exit_for_status;
use crate::failure::{Exit, Failure};
use ha_api_types::kubernetes::{Status, StatusCause};
use ha_api_types::lenient;
use serde_json::Value;

/// The error of a request. Callers handle each variant differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ApiError {
    /// A controller answered with an error.
    Status(Status),
    /// No controller answered, and no object was changed.
    Unreachable {
        /// Each controller with its error.
        attempts: Vec<(String, String)>,
    },
    /// A change was sent and the answer is missing: the change may have been made or not.
    OutcomeUnknown {
        /// Controller that received the change.
        server: String,
        /// Description of the failure.
        message: String,
    },
    /// The answer does not conform to the API.
    Malformed {
        /// Controller that answered.
        server: String,
        /// Description of the defect.
        message: String,
    },
}

/// Returns `true` if a controller has refused the client's certificate, for example because it was revoked.
fn is_certificate_refusal(message: &str) -> bool {
    message.contains("fatal alert: Certificate")
}

/// Reads the body of an answer with an error status. If the body has no message, the HTTP status and the beginning of
/// the body become the message.
pub(super) fn read_status(code: u16, body: &[u8]) -> Status {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut status = Status { code, ..lenient::read_part(&value) };
    if status.message.is_empty() {
        let body_text: String = String::from_utf8_lossy(body).trim().chars().take(200).collect();
        status.message = if body_text.is_empty() {
            format!("HTTP status {code}")
        } else {
            format!("HTTP status {code}: {body_text}")
        };
    }
    status
}

/// Reads the object of an ERROR event of a watch.
pub(super) fn status_of_event(object: &Value) -> Status {
    let code = lenient::read_part::<Status>(object).code;
    read_status(if code == 0 { 500 } else { code }, object.to_string().as_bytes())
}

impl ApiError {
    /// Returns `true` if a controller answered with this HTTP status.
    pub(crate) fn is_status(&self, code: u16) -> bool {
        match self {
            ApiError::Status(status) => status.code == code,
            ApiError::Unreachable { .. } | ApiError::OutcomeUnknown { .. } | ApiError::Malformed { .. } => {
                false
            }
        }
    }

    /// Returns `true` if a later retry may succeed without a change by the user.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            ApiError::Status(status) => status.code == 429 || status.code >= 500,
            ApiError::Unreachable { attempts } => {
                attempts.iter().any(|(_, message)| !is_certificate_refusal(message))
            }
            ApiError::OutcomeUnknown { .. } | ApiError::Malformed { .. } => true,
        }
    }

    /// Converts the error to a failure with a message for the user.
    pub(crate) fn into_failure(self) -> Failure {
        match self {
            ApiError::Status(status) => {
                let mut message = status.message;
                for StatusCause { field, message: cause } in &status.details.causes {
                    // The summary usually repeats a single cause.
                    if !message.contains(cause.as_str()) {
                        message.push('\n');
                        message.push_str(&if field.is_empty() {
                            cause.clone()
                        } else {
                            format!("{field}: {cause}")
                        });
                    }
                }
                let is_stale = message.contains("has been modified");
                let failure =
                    Failure::new(exit_for_status(status.code), message).with_server_reason(&status.reason);
                match status.code {
                    401 => {
                        failure.help("add --client-certificate and --client-key, or use another --context")
                    }
                    403 => failure.help("ask an administrator of the cluster for the permission"),
                    // If the base revision is not stale, the server refused the content of the request.
                    409 if status.reason == "Conflict" && is_stale => {
                        failure.help("the object was changed by another client; run the command again")
                    }
                    410 => failure.help("run the command again"),
                    503 | 504 => failure.help("run \"hactl status\" to check etcd and the controllers"),
                    _ => failure,
                }
            }
            ApiError::Unreachable { attempts } => {
                let lines: Vec<String> =
                    attempts.iter().map(|(server, message)| format!("{server}: {message}")).collect();
                let help = if lines
                    .iter()
                    .any(|line| line.contains("certificate") || line.contains("UnknownIssuer"))
                {
                    "check --certificate-authority, --client-certificate and --client-key, or run \"hactl config view\""
                } else {
                    "check that a controller runs there, or use another address: --server URL, HACTL_SERVER or \"hactl config set-context\""
                };
                Failure::new(Exit::Unreachable, format!("cannot reach any controller\n{}", lines.join("\n")))
                    .help(help)
            }
            ApiError::OutcomeUnknown { server, message } => Failure::new(
                Exit::Unreachable,
                format!("no response from {server} ({message}): the change may or may not have been applied"),
            )
            .help("run \"hactl get\" to check the object, then run the command again"),
            ApiError::Malformed { server, message } => {
                Failure::new(Exit::Unreachable, format!("unexpected response from {server}: {message}"))
                    .help("check --server and HACTL_SERVER, or run \"hactl config view\"")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(body: &Value, expected_help: &str) {
        let status = read_status(409, body.to_string().as_bytes());
        let failure = ApiError::Status(status).into_failure();
        assert_eq!((failure.exit, failure.help.as_str()), (Exit::Failed, expected_help), "{body}");
    }

    #[test]
    fn only_stale_revisions_suggest_a_retry() {
        let stale = json!({"reason": "Conflict", "message": "the object has been modified"});
        check(&stale, "the object was changed by another client; run the command again");
        let cause = json!({"reason": "InsufficientFailoverCapacity", "field": "spec", "message": "the check would fail"});
        check(&json!({"reason": "Conflict", "message": "node node1 has an active registration"}), "");
        check(&json!({"reason": "Conflict", "message": "refused", "details": {"causes": [cause]}}), "");
        check(&json!({"reason": "AlreadyExists", "message": "it is there"}), "");
    }

    #[test]
    fn a_watch_ends_when_every_controller_refuses_the_certificate() {
        let unreachable = |messages: &[&str]| ApiError::Unreachable {
            attempts: messages.iter().map(|message| (String::new(), (*message).to_owned())).collect(),
        };
        let revoked = "received fatal alert: CertificateRevoked";
        assert!(!unreachable(&[revoked, revoked]).is_transient());
        assert!(unreachable(&[revoked, "connection refused"]).is_transient());
    }

    #[test]
    fn error_title_names_the_origin() {
        let check = |error: ApiError, expected: &str| assert_eq!(error.into_failure().title(), expected);
        let status = |reason: &str| Status { code: 404, reason: reason.to_owned(), ..Status::default() };
        check(ApiError::Status(status("NotFound")), "Error from server (NotFound)");
        check(ApiError::Status(status("")), "Error from server");
        check(ApiError::Unreachable { attempts: Vec::new() }, "error");
        let (server, message) = (String::new(), String::new());
        check(ApiError::Malformed { server, message }, "error");
    }
}
