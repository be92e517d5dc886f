//! What an agent that cannot commit asks of every controller, and what each answers (FENCING, section 9).

use super::Revision;
use serde::{Deserialize, Serialize};

/// `POST /apis/hactl.io/v1/nodes/NAME/hold`: do not declare this node dead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HoldRequest {
    /// The controller that is meant, by the id of its candidate key: an address that several share must not grant for all.
    pub candidate: String,
    /// The newest heartbeat that was sent, whatever became of it.
    pub sent_sequence: u64,
    /// The boot that holds the epoch.
    pub boot_id: String,
    /// The epoch under which the agent acts.
    pub epoch: u64,
}

/// The answer. A grant counts as an observation of the node, from when it was given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HoldAnswer {
    /// Whether this controller will not declare the node dead before Th from now.
    pub granted: bool,
    /// Why not; for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// What of a node's report decides who may conclude anything from its silence.
///
/// A node under Hold asks the controllers that it knows. Whoever joined later is not asked, so it must not take the node's
/// silence for anything, neither to close its epoch nor, once somebody else has closed it, for proof (a).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HoldTerms {
    /// The newest candidate's create revision that the node knows.
    pub candidate_generation: Revision,
}

impl HoldTerms {
    /// Whether a candidate whose key was created at `joined` is asked by the node.
    pub fn include(self, joined: Revision) -> bool {
        joined <= self.candidate_generation
    }
}
