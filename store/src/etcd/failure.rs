//! Meaning of a failed attempt: the request was not sent, was refused, or has an unknown outcome.

use crate::store::StoreError;
use ha_api_types::id::Revision;
use std::error::Error as _;
use std::fmt;
use tonic::Code;

/// Reason why an attempt on one member failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The request certainly did not reach etcd's log: there was no connection, or the member rejected the request
    /// before proposing it.
    NotSent(String),
    /// The request may have been applied, or may still be applied.
    Unknown(String),
    /// etcd refused the request; it was not applied.
    Refused(String),
    /// etcd has no space left. etcd reports this before it proposes the request, when it applies the request, or even
    /// *after* it has applied the request (FENCING, R1.10). The request has ended: no copy of it arrives later.
    Full(String),
    /// The token has expired, or the user's permissions changed: authenticate again. The request was not applied.
    TokenExpired(String),
    /// A lease of the request does not exist; the request was not applied.
    LeaseNotFound,
    /// Revisions before this one were compacted.
    Compacted(Revision),
    /// The member's version is too old.
    Unsupported(String),
    /// The client's settings are invalid.
    Configuration(String),
}

impl Failure {
    /// Classifies an error of the client library. An ambiguous error is unknown.
    pub(super) fn of(error: &etcd_client::Error) -> Failure {
        if let etcd_client::Error::GRpcStatus(status) = error {
            return Failure::of_status(status);
        }
        let text = error.to_string();
        match error {
            etcd_client::Error::LeaseKeepAliveError(reason) if reason == "lease not found" => {
                Failure::LeaseNotFound
            }
            etcd_client::Error::InvalidArgs(_)
            | etcd_client::Error::InvalidUri(_)
            | etcd_client::Error::TransportError(_)
            | etcd_client::Error::InvalidMetadataValue(_)
            | etcd_client::Error::EndpointError(_)
            | etcd_client::Error::EndpointsNotManaged => Failure::NotSent(text),
            etcd_client::Error::IoError(_)
            | etcd_client::Error::GRpcStatus(_)
            | etcd_client::Error::WatchError(_)
            | etcd_client::Error::Utf8Error(_)
            | etcd_client::Error::LeaseKeepAliveError(_)
            | etcd_client::Error::ElectError(_)
            | etcd_client::Error::Internal(_) => Failure::Unknown(text),
        }
    }

    fn of_status(status: &tonic::Status) -> Failure {
        let text = describe(status);
        if never_connected(status) {
            return Failure::NotSent(text);
        }
        Failure::of_answer(status.code(), status.message(), text)
    }

    /// Classifies an answer by etcd's own codes and messages.
    fn of_answer(code: Code, message: &str, text: String) -> Failure {
        let message_contains = |part: &str| message.contains(part);
        if code == Code::Unauthenticated
            || message_contains("invalid auth token")
            || message_contains("auth store is old")
        {
            Failure::TokenExpired(text)
        } else if code == Code::PermissionDenied
            || code == Code::InvalidArgument
            || code == Code::DataLoss
            || message_contains("permission denied")
            || message_contains("message larger than max")
        {
            Failure::Refused(text)
        } else if message_contains("database space exceeded") {
            Failure::Full(text)
        } else if message_contains("requested lease not found") {
            Failure::LeaseNotFound
        } else if message_contains("too many requests")
            || message_contains("etcdserver: no leader")
            || code == Code::Unimplemented
        {
            // etcd rejected the request before proposing it to its members.
            Failure::NotSent(text)
        } else if message_contains("required revision has been compacted") {
            Failure::Compacted(Revision(0))
        } else {
            Failure::Unknown(text)
        }
    }

    /// Classifies the reason of a canceled watch, which has no code.
    pub(super) fn of_cancel_reason(reason: &str) -> Failure {
        let code = if reason.contains("permission denied") { Code::PermissionDenied } else { Code::Unknown };
        Failure::of_answer(code, reason, reason.to_owned())
    }

    pub(super) fn into_store_error(self) -> StoreError {
        match self {
            Failure::NotSent(text) | Failure::Unknown(text) => StoreError::Unreachable(text),
            Failure::Refused(text) | Failure::TokenExpired(text) | Failure::Full(text) => {
                StoreError::Refused(text)
            }
            Failure::LeaseNotFound => StoreError::LeaseNotFound,
            Failure::Compacted(oldest) => StoreError::Compacted { oldest },
            Failure::Unsupported(text) => StoreError::Unsupported(text),
            Failure::Configuration(text) => StoreError::Configuration(text),
        }
    }

    /// Adds the endpoint of the member to the message of a failed connection or a missing answer.
    pub(super) fn at(self, endpoint: &str) -> Failure {
        match self {
            Failure::NotSent(text) => Failure::NotSent(format!("{endpoint}: {text}")),
            Failure::Unknown(text) => Failure::Unknown(format!("{endpoint}: {text}")),
            Failure::Refused(text) => Failure::Refused(text),
            Failure::Full(text) => Failure::Full(text),
            Failure::TokenExpired(text) => Failure::TokenExpired(text),
            Failure::LeaseNotFound => Failure::LeaseNotFound,
            Failure::Compacted(oldest) => Failure::Compacted(oldest),
            Failure::Unsupported(text) => Failure::Unsupported(text),
            Failure::Configuration(text) => Failure::Configuration(text),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NotSent(text)
            | Failure::Unknown(text)
            | Failure::Refused(text)
            | Failure::Full(text)
            | Failure::TokenExpired(text)
            | Failure::Unsupported(text)
            | Failure::Configuration(text) => f.write_str(text),
            Failure::LeaseNotFound => f.write_str("the lease does not exist"),
            Failure::Compacted(oldest) => write!(f, "compacted up to revision {oldest}"),
        }
    }
}

/// Returns `true` if the request was still waiting for a connection when it failed.
fn never_connected(status: &tonic::Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Returns the message and its innermost cause, without duplicates.
fn describe(status: &tonic::Status) -> String {
    let mut text = status.message().trim_start_matches("etcdserver: ").to_owned();
    let mut cause = status.source();
    while let Some(error) = cause {
        cause = error.source();
        let reason = error.to_string();
        if cause.is_none() && !text.contains(&reason) {
            text = if text.is_empty() { reason } else { format!("{text}: {reason}") };
        }
    }
    if text.contains("database space exceeded") {
        text.push_str(" (etcd is full: compact, defragment and increase the quota, then disarm the alarm)");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: Code, message: &str, expected: impl FnOnce(String) -> Failure) {
        let status = tonic::Status::new(code, message);
        assert_eq!(Failure::of(&etcd_client::Error::GRpcStatus(status)), {
            let text = describe(&tonic::Status::new(code, message));
            expected(text)
        });
    }

    #[test]
    fn ambiguous_failures_have_unknown_outcome() {
        check(Code::Unavailable, "etcdserver: request timed out", Failure::Unknown);
        check(Code::Unavailable, "etcdserver: leader changed", Failure::Unknown);
        check(Code::Unavailable, "etcdserver: server stopped", Failure::Unknown);
        check(Code::DeadlineExceeded, "context deadline exceeded", Failure::Unknown);
        check(Code::Cancelled, "connection closed", Failure::Unknown);
        check(Code::Unavailable, "etcdserver: no leader", Failure::NotSent);
        check(Code::ResourceExhausted, "etcdserver: too many requests", Failure::NotSent);
        check(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", Failure::Full);
        check(Code::PermissionDenied, "etcdserver: permission denied", Failure::Refused);
        check(Code::InvalidArgument, "etcdserver: request is too large", Failure::Refused);
        check(Code::Unauthenticated, "etcdserver: invalid auth token", Failure::TokenExpired);
        check(Code::InvalidArgument, "etcdserver: revision of auth store is old", Failure::TokenExpired);
        check(Code::NotFound, "etcdserver: requested lease not found", |_| Failure::LeaseNotFound);
    }
}
