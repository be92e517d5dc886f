//! The result of one check by `hactl doctor`: verdict, observation and suggested fix.

use crate::kind::Kind;
use crate::renamed;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

/// Result of a check; later values are worse.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Verdict {
    /// Passed.
    #[default]
    #[serde(alias = "Pass")]
    #[schemars(rename = "Pass")]
    Ok,
    /// Protection, speed or safety is reduced.
    Warn,
    /// A guarantee does not hold: services are not recovered, or a machine is reset late or without need.
    Fail,
}

/// A check of a machine or of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Check {
    /// Stable name of the check, for scripts, such as `watchdog-owner`.
    pub name: String,
    /// Result of the check.
    #[serde(rename = "verdict", alias = "status")]
    #[schemars(rename = "status")]
    pub verdict: Verdict,
    /// Observation, as a sentence.
    #[serde(rename = "seen", alias = "message")]
    #[schemars(rename = "message")]
    pub finding: String,
    /// Suggested fix: a command or setting. Empty if no fix is needed.
    #[serde(rename = "help", alias = "remediation", skip_serializing_if = "String::is_empty")]
    #[schemars(rename = "remediation")]
    pub help: String,
}

/// Serializes checks under the field names of the API, for answers that are not objects.
///
/// # Errors
/// Fails if the serializer fails.
pub fn serialize_for_api<S: Serializer>(checks: &Vec<Check>, serializer: S) -> Result<S::Ok, S::Error> {
    renamed::serialize_part(Kind::Node, &["status", "checks"], checks, serializer)
}

impl Check {
    /// Builds a passed check.
    pub fn ok(name: &str, finding: impl Into<String>) -> Check {
        Check { name: name.to_owned(), verdict: Verdict::Ok, finding: finding.into(), help: String::new() }
    }

    /// Builds a check with a warning, for a state that works but could be better.
    pub fn warn(name: &str, finding: impl Into<String>, help: impl Into<String>) -> Check {
        Check { name: name.to_owned(), verdict: Verdict::Warn, finding: finding.into(), help: help.into() }
    }

    /// Builds a failed check, for a guarantee that does not hold.
    pub fn fail(name: &str, finding: impl Into<String>, help: impl Into<String>) -> Check {
        Check { name: name.to_owned(), verdict: Verdict::Fail, finding: finding.into(), help: help.into() }
    }
}
