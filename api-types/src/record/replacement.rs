//! The replacement of a replicated service's secondary: the request of the leader, and the answer of the agent.

use crate::id::{NodeName, ReplacementUid};
use crate::reason::Reason;
use crate::resource::ServiceDefinition;
use serde::{Deserialize, Serialize};

/// The request, part of an assignment in addition to its action. The service keeps running under its permit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Replacement {
    /// Unique id of this request; the agent's answer contains it, and the agent starts the replacement at most once.
    pub uid: ReplacementUid,
    /// Current secondary.
    #[serde(rename = "present", skip_serializing_if = "Option::is_none")]
    pub current_secondary: Option<NodeName>,
    /// Node that becomes the secondary.
    pub node: NodeName,
    /// Definition from the current spec; a stop of the service uses the definition with which it was started.
    pub definition: ServiceDefinition,
    /// `true` if the request is canceled: the agent ends the work in progress and still answers.
    #[serde(rename = "calledOff", skip_serializing_if = "std::ops::Not::not")]
    pub is_canceled: bool,
}

/// The answer, part of the service's report as long as the assignment contains the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplacementReport {
    /// Id of the answered request.
    pub uid: ReplacementUid,
    /// Phase of the replacement.
    pub phase: ReplacementPhase,
    /// Reason as a word.
    pub reason: Reason,
    /// Reason as a sentence, or the output of the driver.
    pub message: String,
}

/// The phase of a replacement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplacementPhase {
    /// Committed before the driver is called: from here on, the replacement may be in progress.
    #[default]
    Begun,
    /// The new secondary is in use.
    Done,
    /// The replacement failed or was canceled, and none of its processes runs any longer.
    Failed,
}
