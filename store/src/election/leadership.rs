//! A candidate's view of the election's keys, and the evidence that it is leader.

use crate::transaction::{Entry, Guard, Transaction};
use ha_api_types::id::{Revision, Term};
use ha_api_types::record::{Candidate, Leader};
use ha_api_types::time::MonotonicTime;

/// Evidence that this process became leader. Only an applied commit of the leader key creates this value. A leader's
/// write needs it for the guard on the leader key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leadership {
    pub(super) key: String,
    pub(super) term: Term,
}

impl Leadership {
    /// Returns the number of this leadership; every later leadership has a larger number.
    pub fn term(&self) -> Term {
        self.term
    }

    /// Adds the guard `Created(leader)` to the transaction, so that a late copy from a deposed leader conflicts.
    #[must_use]
    pub fn sign(&self, transaction: Transaction) -> Transaction {
        transaction.guard(self.key.clone(), Guard::Created(self.term.revision()))
    }
}

/// Content of the election's keys in a read or watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElectionView {
    /// Revision at which the view is complete.
    pub revision: Revision,
    /// Leader key; `None` if absent.
    pub leader: Option<Entry>,
    /// Candidate key of this controller; `None` if absent.
    pub candidate: Option<Entry>,
    /// Refresh key of this controller; `None` if absent.
    pub refresh: Option<Entry>,
    /// Time before which this controller does not campaign (R9.28): a node uses the grants of older controllers only,
    /// and one of these was seen recently. `None` if this does not apply.
    pub yields_until: Option<MonotonicTime>,
}

/// The candidate key of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CandidateKey {
    /// Create revision of the key: the `joinedGeneration`.
    pub joined: Revision,
    /// Revision at which this process put the key; its declarations guard this revision (R9.18).
    pub revision: Revision,
}

/// Returns the content of a leader key. An unreadable key counts as the key of another process.
pub(super) fn leader_of(entry: &Entry) -> Leader {
    serde_json::from_slice(&entry.value).unwrap_or_default()
}

/// Returns the content of a candidate key. An unreadable key counts as the key of another process.
pub(super) fn candidate_of(entry: &Entry) -> Candidate {
    serde_json::from_slice(&entry.value).unwrap_or_default()
}
