//! What a candidate sees of the election's keys, and what proves that it leads.

use crate::transaction::{Entry, Guard, Transaction};
use ha_api_types::record::{Candidate, Leader, Revision};
use ha_api_types::time::Mono;

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

/// What one reading or watch says about the election's keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElectionView {
    /// Complete up to here.
    pub revision: Revision,
    /// The leader key.
    pub leader: Option<Entry>,
    /// This controller's candidate key.
    pub candidate: Option<Entry>,
    /// This controller's refresh key.
    pub refresh: Option<Entry>,
    /// A node is held by older controllers only, and one of them was seen until then: this one does not campaign before
    /// (R9.28).
    pub yields_until: Option<Mono>,
}

/// This process's own candidate key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The create revision of the key: the `joinedGeneration`.
    pub joined: Revision,
    /// The revision at which this very process put the key: what its declarations guard (R9.18).
    pub revision: Revision,
}

/// The leader that a key names; an unreadable one is somebody else.
pub(super) fn leader_of(entry: &Entry) -> Leader {
    serde_json::from_slice(&entry.value).unwrap_or_default()
}

/// The candidate that a key names; an unreadable one is somebody else.
pub(super) fn candidate_of(entry: &Entry) -> Candidate {
    serde_json::from_slice(&entry.value).unwrap_or_default()
}
