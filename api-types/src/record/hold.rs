//! The etcd-outage hold (FENCING, section 9). An agent that cannot commit sends a request to every controller, and
//! each controller answers.

use crate::id::{BootId, ControllerId, Epoch, Revision};
use serde::{Deserialize, Serialize};

/// `POST /apis/hactl.io/v1/nodes/NAME/hold`: the request not to declare this node dead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HoldRequest {
    /// Id of the addressed controller, as in its candidate key. Several controllers may share an address, and the grant
    /// of one controller does not count for the other controllers.
    pub candidate: ControllerId,
    /// Sequence of the newest heartbeat that was sent, regardless of its outcome.
    pub sent_sequence: u64,
    /// Boot that holds the epoch.
    pub boot_id: BootId,
    /// Epoch under which the agent acts.
    pub epoch: Epoch,
}

/// The answer to a [`HoldRequest`]. A grant counts as an observation of the node at the time of the grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HoldAnswer {
    /// `true` if this controller will not declare the node dead before Th from now.
    pub granted: bool,
    /// Reason for a refusal, for operators.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// The part of a node's report that decides which controllers may draw conclusions from its silence.
///
/// A node under Hold sends its requests only to the controllers whose candidate keys it has read. A controller that
/// joined later receives no request, and must therefore not draw conclusions from the node's silence. Such a controller
/// must not close the epoch. If another controller has closed the epoch, it must not use silence as proof (a).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HoldTerms {
    /// Create revision of the newest candidate key that the node has read.
    pub candidate_generation: Revision,
}

impl HoldTerms {
    /// Returns `true` if the node sends requests to a candidate whose key was created at `joined`.
    pub fn includes_candidate(self, create_revision: Revision) -> bool {
        create_revision <= self.candidate_generation
    }
}
