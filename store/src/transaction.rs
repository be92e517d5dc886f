//! Guarded transactions: the only way to write.

use ha_api_types::record::Revision;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A lease's id.
pub type LeaseId = i64;

/// A key with its value, as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Its value; shared, since an entry goes to everybody who watches.
    pub value: Arc<[u8]>,
    /// When the key was created (0 never occurs).
    pub create_revision: Revision,
    /// When it was last written.
    pub mod_revision: Revision,
    /// The lease that it goes with; 0: none.
    pub lease: LeaseId,
}

/// What must hold of a key for a transaction to be applied. A value, so that tests can read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Guard {
    /// The key does not exist.
    Absent,
    /// The key was last written at this revision.
    Unchanged(Revision),
    /// The key still is the one that was created at this revision, whatever was written to it since.
    Created(Revision),
}

/// What to do with a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Write a value; a leased key names its lease each time, since the store detaches it otherwise.
    Put {
        /// The value.
        value: Arc<[u8]>,
        /// The lease; 0: none.
        lease: LeaseId,
    },
    /// Remove the key.
    Delete,
}

/// A guarded transaction: all of it is applied, at one revision, or nothing.
///
/// Guarantees: every key that is written is guarded too (FENCING, section 1), so a write that arrives late conflicts
/// instead of overwriting; no key is written twice. Both hold by construction: there is no other way to add a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    guards: BTreeMap<String, Guard>,
    writes: BTreeMap<String, Write>,
}

/// etcd's default limit of the size of a request, bytes (`--max-request-bytes`).
pub const MAX_REQUEST_BYTES: usize = 1536 * 1024;

/// A guard that never holds: no key was ever written at this revision.
const NEVER: Guard = Guard::Unchanged(-1);

/// etcd's default limit of operations in a transaction (`--max-txn-ops`); it holds for guards and writes each.
pub const MAX_OPERATIONS: usize = 128;

impl Transaction {
    /// An empty transaction.
    pub fn new() -> Transaction {
        Transaction::default()
    }

    /// Adds a condition on a key that is not written.
    ///
    /// A key has one guard: the stricter wins (`Unchanged` and `Absent` over `Created`); two that contradict each other
    /// make a transaction that conflicts, which is what they mean.
    #[must_use]
    pub fn guard(mut self, key: impl Into<String>, guard: Guard) -> Transaction {
        self.add_guard(key.into(), guard);
        self
    }

    /// Writes a value under a guard, without a lease.
    #[must_use]
    pub fn put(self, key: impl Into<String>, guard: Guard, value: Vec<u8>) -> Transaction {
        self.put_leased(key, guard, value, 0)
    }

    /// Writes a value under a guard and a lease.
    #[must_use]
    pub fn put_leased(
        mut self,
        key: impl Into<String>,
        guard: Guard,
        value: Vec<u8>,
        lease: LeaseId,
    ) -> Transaction {
        let key = key.into();
        self.add_guard(key.clone(), guard);
        self.writes.insert(key, Write::Put { value: value.into(), lease });
        self
    }

    /// Removes a key under a guard.
    #[must_use]
    pub fn delete(mut self, key: impl Into<String>, guard: Guard) -> Transaction {
        let key = key.into();
        self.add_guard(key.clone(), guard);
        self.writes.insert(key, Write::Delete);
        self
    }

    fn add_guard(&mut self, key: String, guard: Guard) {
        let joined = match (self.guards.get(&key), guard) {
            (None, guard) | (Some(Guard::Created(_)), guard @ (Guard::Unchanged(_) | Guard::Absent)) => guard,
            (Some(known @ Guard::Unchanged(_)), Guard::Created(_)) => *known,
            (Some(known), guard) if *known == guard => guard,
            (Some(Guard::Absent | Guard::Unchanged(_) | Guard::Created(_)), _) => NEVER,
        };
        self.guards.insert(key, joined);
    }

    /// The guards, by key.
    pub fn guards(&self) -> &BTreeMap<String, Guard> {
        &self.guards
    }

    /// The writes, by key.
    pub fn writes(&self) -> &BTreeMap<String, Write> {
        &self.writes
    }

    /// Whether it writes this key.
    pub fn writes_key(&self, key: &str) -> bool {
        self.writes.contains_key(key)
    }

    /// Whether it fits into one transaction of etcd.
    pub fn fits(&self) -> bool {
        self.guards.len() <= MAX_OPERATIONS && self.writes.len() <= MAX_OPERATIONS
    }

    /// Whether a second application of this transaction is impossible while the first one stands: some write of it breaks
    /// the guard of its own key.
    ///
    /// A put under `Created` alone does not break its guard: a copy of it that arrives late writes its value again, over a
    /// later one of the same owner. Heartbeats are of this kind, and may be: a late one only makes observers wait longer.
    /// Everything else is to be guarded by `Absent` or `Unchanged` (FENCING, section 1).
    pub fn conflicts_when_repeated(&self) -> bool {
        self.writes.is_empty()
            || self.writes.iter().any(|(key, write)| match (write, self.guards.get(key)) {
                (Write::Put { .. }, Some(Guard::Absent | Guard::Unchanged(_)))
                | (Write::Delete, Some(Guard::Unchanged(_) | Guard::Created(_))) => true,
                (Write::Put { .. }, Some(Guard::Created(_)) | None)
                | (Write::Delete, Some(Guard::Absent) | None) => false,
            })
    }

    /// Whether a copy of it that arrives late is harmless, whatever happened meanwhile: it writes nothing, or guards at
    /// least one revision, which never returns.
    ///
    /// A transaction that only creates keys is applied once more by such a copy after somebody has deleted them: what a
    /// user has deleted would be back. It is sent once, and is unknown without an answer.
    pub fn may_be_sent_again(&self) -> bool {
        self.writes.is_empty()
            || self.guards.values().any(|guard| matches!(guard, Guard::Unchanged(_) | Guard::Created(_)))
    }

    /// Whether a key that it writes is still at the revision of its `Unchanged` guard: it was not applied so far. `modified` gives
    /// the revision at which a key was last written; `None`: the key does not exist.
    pub fn leaves_untouched(&self, modified: impl Fn(&str) -> Option<Revision>) -> bool {
        self.writes.keys().any(|key| match self.guards.get(key) {
            Some(Guard::Unchanged(revision)) => modified(key) == Some(*revision),
            Some(Guard::Absent | Guard::Created(_)) | None => false,
        })
    }

    /// The bytes of its keys and values.
    pub fn size(&self) -> usize {
        let of_write = |write: &Write| match write {
            Write::Put { value, .. } => value.len(),
            Write::Delete => 0,
        };
        self.writes.iter().map(|(key, write)| key.len() + of_write(write)).sum()
    }

    /// Joins two transactions into one that is applied as a whole; `None` when both write the same key, when they guard a
    /// key differently, or when the result would be too large.
    pub fn join(&self, other: &Transaction) -> Option<Transaction> {
        let clash = other.writes.keys().any(|key| self.writes.contains_key(key))
            || other.guards.iter().any(|(key, guard)| self.guards.get(key).is_some_and(|own| own != guard));
        if clash {
            return None;
        }
        let mut joined = self.clone();
        joined.guards.extend(other.guards.iter().map(|(key, guard)| (key.clone(), *guard)));
        joined.writes.extend(other.writes.iter().map(|(key, write)| (key.clone(), write.clone())));
        joined.fits().then_some(joined)
    }
}

/// What became of a transaction. A conflict is an outcome, not an error, and *unknown* is its own outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Applied at this revision.
    Applied(Revision),
    /// A guard did not hold; nothing was applied. The store's revision then.
    Conflict(Revision),
    /// A lease named in it is gone; nothing was applied.
    LeaseNotFound,
    /// The store refused it (no permission, too large), or had no space for it and a reading has shown that it was not applied;
    /// nothing was applied, and nothing will be.
    Refused(String),
    /// No answer: it may have been applied, or may still be. The only legal next step is to read again.
    Unknown(String),
}

impl Outcome {
    /// The revision, if it was applied.
    pub fn applied(&self) -> Option<Revision> {
        match self {
            Outcome::Applied(revision) => Some(*revision),
            Outcome::Conflict(_) | Outcome::LeaseNotFound | Outcome::Refused(_) | Outcome::Unknown(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_written_key_is_guarded() {
        let transaction = Transaction::new()
            .put("a", Guard::Absent, vec![1])
            .delete("b", Guard::Unchanged(3))
            .guard("leader", Guard::Created(2));
        for key in transaction.writes().keys() {
            assert!(transaction.guards().contains_key(key), "{key}");
        }
    }

    #[test]
    fn what_guards_no_revision_is_sent_once() {
        let create = || Transaction::new().put("a", Guard::Absent, vec![1]);
        assert!(!create().may_be_sent_again());
        assert!(!create().guard("b", Guard::Absent).may_be_sent_again());
        assert!(create().guard("leader", Guard::Created(2)).may_be_sent_again());
        assert!(create().put("b", Guard::Unchanged(2), vec![1]).may_be_sent_again());
        assert!(Transaction::new().guard("a", Guard::Absent).may_be_sent_again());
    }

    #[test]
    fn guards_that_contradict_each_other_never_hold_and_the_stricter_of_two_stays() {
        let check = |first: Guard, second: Guard, expected: Guard| {
            let both = Transaction::new().guard("key", first).guard("key", second);
            assert_eq!(both.guards()["key"], expected, "{first:?} {second:?}");
        };
        check(Guard::Created(3), Guard::Unchanged(5), Guard::Unchanged(5));
        check(Guard::Unchanged(5), Guard::Created(3), Guard::Unchanged(5));
        check(Guard::Unchanged(5), Guard::Unchanged(5), Guard::Unchanged(5));
        check(Guard::Unchanged(5), Guard::Unchanged(6), NEVER);
        check(Guard::Unchanged(5), Guard::Absent, NEVER);
        check(Guard::Absent, Guard::Created(3), NEVER);
        check(Guard::Created(3), Guard::Created(4), NEVER);
    }

    #[test]
    fn transactions_join_unless_they_clash() {
        let leader = |t: Transaction| t.guard("leader", Guard::Created(2));
        let first = leader(Transaction::new().put("a", Guard::Absent, vec![1]));
        let second = leader(Transaction::new().put("b", Guard::Absent, vec![2]));
        assert_eq!(first.join(&second).map(|joined| joined.writes().len()), Some(2));
        assert_eq!(first.join(&first), None);
        let other_term =
            Transaction::new().put("c", Guard::Absent, vec![3]).guard("leader", Guard::Created(9));
        assert_eq!(first.join(&other_term), None);
    }
}
