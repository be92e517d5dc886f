//! The request for the log of a service, and the answer of the agent. Both are leased and vanish after the request.

use crate::resource::ServiceDefinition;
use serde::{Deserialize, Serialize};

/// Maximum number of bytes of text in an answer. The JSON of the answer stays below etcd's size limit of a request,
/// even if every character is escaped.
pub const LOG_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of lines in a request.
pub const LOG_LINES_MAX: u32 = 10_000;

/// Number of lines in the answer to a request without a number.
pub const LOG_LINES_DEFAULT: u32 = 100;

/// Time to live of the leases of requests and answers, seconds.
pub const LOG_LEASE_SECONDS: i64 = 30;

/// Time limit of the agent for reading a log, and of the API for the answer, milliseconds.
pub const LOG_TIMEOUT_MS: u64 = 10_000;

/// `log/<node>/<id>`, leased, written by the API. The agent of the node answers it under [`LogAnswer`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LogRequest {
    /// Definition of the service, from its assignment to the node if there is one.
    pub definition: ServiceDefinition,
    /// Number of last lines to return, from 1 to [`LOG_LINES_MAX`].
    pub tail_lines: u32,
    /// Age in seconds of the oldest line to return; `None` for no limit. A log without times is returned whole if it
    /// was written in this period. Otherwise, no line is returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_seconds: Option<u64>,
}

/// `log-answer/<node>/<id>`, leased, written by the node's agent while the request exists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LogAnswer {
    /// Last lines of the log, at most [`LOG_BYTES_MAX`]. Bytes that are not UTF-8 are replaced.
    pub text: String,
    /// `true` if the limit of bytes removed lines that the request contained.
    pub truncated: bool,
    /// Reason for a missing log; `None` if the log was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<LogFailure>,
}

/// Reason why an agent returns no log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "message")]
pub enum LogFailure {
    /// The driver does not provide logs of this service. Contains the explanation for operators.
    NotKept(String),
    /// The log could not be read on this node. Contains the cause.
    Unreadable(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_answers_round_trip_within_request_limit() {
        let failed = LogAnswer {
            failure: Some(LogFailure::NotKept("driver simulated does not provide logs".to_owned())),
            ..LogAnswer::default()
        };
        let longest = LogAnswer { text: "\u{1}".repeat(LOG_BYTES_MAX), truncated: true, failure: None };
        for answer in [failed, longest] {
            let json = serde_json::to_vec(&answer).expect("JSON");
            assert!(json.len() < 1024 * 1024, "{}", json.len());
            assert_eq!(serde_json::from_slice::<LogAnswer>(&json).expect("an answer"), answer);
        }
    }
}
