//! The replacement of a replicated service's secondary: what the leader asks for, and what the agent answers.

use crate::reason::Reason;
use crate::resource::ServiceDefinition;
use serde::{Deserialize, Serialize};

/// Asked for in an assignment, beside its action: the service goes on under the permit that it has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Replacement {
    /// Tells this request from every other; answered with the same, and begun at most once.
    pub uid: String,
    /// The secondary in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<String>,
    /// The node that becomes the secondary.
    pub node: String,
    /// How to do it: as the spec is now, while the service is stopped as it was started.
    pub definition: ServiceDefinition,
    /// It is not wanted any more: what is under way is ended, and answered for all the same.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub called_off: bool,
}

/// Answered in the report of the service; kept there for as long as the assignment asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplacementReport {
    /// The request that this answers.
    pub uid: String,
    /// How far it is.
    pub phase: ReplacementPhase,
    /// Why, in a word.
    pub reason: Reason,
    /// Why, in a sentence; what the driver said.
    pub message: String,
}

/// How far a replacement is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplacementPhase {
    /// Committed before the driver is asked: from here on it may be under way.
    #[default]
    Begun,
    /// The new secondary is in use.
    Done,
    /// It ended otherwise, and nothing of it is left running.
    Failed,
}
