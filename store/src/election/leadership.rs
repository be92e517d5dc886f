//! What a candidate sees of the two keys, and what proves that it leads.

use crate::transaction::{Entry, Guard, Transaction};
use ha_api_types::record::{Candidate, Leader, Revision};

/// Proof that this process became leader: only an applied commit of the leader key makes one, and it is the only way to
/// sign a leader's write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leadership {
    pub(super) key: String,
    pub(super) term: Revision,
}

impl Leadership {
    /// The create revision of the leader key; every later leader has a larger one.
    pub fn term(&self) -> Revision {
        self.term
    }

    /// The transaction with `Created(leader)`: a deposed leader's copy of it conflicts, whenever it arrives.
    #[must_use]
    pub fn sign(&self, transaction: Transaction) -> Transaction {
        transaction.guard(self.key.clone(), Guard::Created(self.term))
    }
}

/// What one reading or watch says about the two keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElectionView {
    /// Complete up to here.
    pub revision: Revision,
    /// The leader key.
    pub leader: Option<Entry>,
    /// This controller's candidate key.
    pub candidate: Option<Entry>,
}

/// The leader that a key names; an unreadable one is somebody else.
pub(super) fn leader_of(entry: &Entry) -> Leader {
    serde_json::from_slice(&entry.value).unwrap_or_default()
}

/// The candidate that a key names; an unreadable one is somebody else.
pub(super) fn candidate_of(entry: &Entry) -> Candidate {
    serde_json::from_slice(&entry.value).unwrap_or_default()
}
