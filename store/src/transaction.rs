//! Guarded transactions: the only way to write.

use ha_api_types::id::Revision;
use ha_api_types::time::Millis;
use ha_api_types::view::StoredKey;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Id of a lease.
///
/// The time to live of a lease is not its id:
///
/// ```compile_fail,E0308
/// use ha_store::StoreError;
/// use ha_store::memory_state::MemoryState;
/// use ha_api_types::time::MonotonicTime;
///
/// let (mut state, ttl_seconds) = (MemoryState::default(), 30_i64);
/// let remaining: Result<i64, StoreError> = state.keep_alive(MonotonicTime(0), ttl_seconds);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

impl LeaseId {
    /// No lease.
    pub const NONE: LeaseId = LeaseId(0);
}

/// A key with its value, as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the key.
    pub key: String,
    /// Value; shared, because each watch gets the entry.
    pub value: Arc<[u8]>,
    /// Revision at which the key was created; always positive.
    pub create_revision: Revision,
    /// Revision of the last write.
    pub mod_revision: Revision,
    /// Lease of the key; [`LeaseId::NONE`] if it has none.
    pub lease: LeaseId,
}

impl Entry {
    /// Returns the entry as in a dump of the cluster whose keys begin with `root`. `heartbeat_age_ms` is for heartbeats.
    pub fn to_dump(&self, root: &str, heartbeat_age_ms: Option<Millis>) -> StoredKey {
        let value = serde_json::from_slice(&self.value)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&self.value).into_owned()));
        StoredKey {
            key: self.key.strip_prefix(root).unwrap_or(&self.key).to_owned(),
            value,
            create_revision: self.create_revision,
            mod_revision: self.mod_revision,
            leased: self.lease != LeaseId::NONE,
            heartbeat_age_ms,
        }
    }
}

/// Condition on a key for a transaction to be applied. A plain value, so that tests can inspect it.
///
/// ```
/// use ha_store::memory_state::MemoryState;
/// use ha_store::{Guard, Outcome, Transaction};
///
/// let mut state = MemoryState::default();
/// let create = Transaction::new().put("web", Guard::Absent, b"1".to_vec());
/// let created = state.commit(&create).applied().unwrap();
/// // A late copy of the same write changes nothing.
/// assert_eq!(state.commit(&create), Outcome::Conflict(created));
/// let update = Transaction::new().put("web", Guard::Unchanged(created), b"2".to_vec());
/// assert_eq!(state.commit(&update), Outcome::Applied(created + 1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Guard {
    /// The key does not exist.
    Absent,
    /// The last write of the key was at this revision.
    Unchanged(Revision),
    /// The key was created at this revision, and not deleted since. Later writes are ignored.
    Created(Revision),
}

/// Write of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Writes a value. A put of a leased key must name the lease each time, otherwise the store detaches the key from
    /// the lease.
    Put {
        /// New value.
        value: Arc<[u8]>,
        /// Lease of the key; [`LeaseId::NONE`] if it has none.
        lease: LeaseId,
    },
    /// Deletes the key.
    Delete,
}

/// A guarded transaction: it is applied as a whole at one revision, or not at all.
///
/// Guarantees: every written key is also guarded (FENCING, section 1), so a late write conflicts instead of
/// overwriting. No key is written twice. Both properties hold by construction, because every method that adds a write
/// takes a guard.
///
/// ```
/// use ha_api_types::id::Revision;
/// use ha_store::{Guard, Transaction};
///
/// let transaction = Transaction::new()
///     .put("web", Guard::Absent, b"1".to_vec())
///     .guard("leader", Guard::Created(Revision(7)));
/// assert!(transaction.writes_key("web") && !transaction.writes_key("leader"));
/// assert_eq!(transaction.guards()["web"], Guard::Absent);
/// // The guard on the leader makes a second attempt safe: no later leader has this revision.
/// assert!(transaction.conflicts_when_repeated() && transaction.may_be_sent_again());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    guards: BTreeMap<String, Guard>,
    writes: BTreeMap<String, Write>,
}

/// etcd's default limit of the size of a request in bytes (`--max-request-bytes`).
pub const MAX_REQUEST_BYTES: usize = 1536 * 1024;

/// A guard that is never satisfied, because no key was written at this revision.
const NEVER: Guard = Guard::Unchanged(Revision(-1));

/// etcd's default limit of operations in a transaction (`--max-txn-ops`), for guards and for writes separately.
pub const MAX_OPERATIONS: usize = 128;

impl Transaction {
    /// Returns an empty transaction.
    pub fn new() -> Transaction {
        Transaction::default()
    }

    /// Adds a guard for a key that is not written.
    ///
    /// A key has one guard, and the stricter one is kept (`Unchanged` and `Absent` over `Created`). Two guards that
    /// contradict each other result in a transaction that always conflicts.
    #[must_use]
    pub fn guard(mut self, key: impl Into<String>, guard: Guard) -> Transaction {
        self.add_guard(key.into(), guard);
        self
    }

    /// Adds a put with a guard and without a lease.
    #[must_use]
    pub fn put(self, key: impl Into<String>, guard: Guard, value: Vec<u8>) -> Transaction {
        self.put_leased(key, guard, value, LeaseId::NONE)
    }

    /// Adds a put with a guard and a lease.
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

    /// Adds a deletion with a guard.
    #[must_use]
    pub fn delete(mut self, key: impl Into<String>, guard: Guard) -> Transaction {
        let key = key.into();
        self.add_guard(key.clone(), guard);
        self.writes.insert(key, Write::Delete);
        self
    }

    fn add_guard(&mut self, key: String, guard: Guard) {
        let merged = match (self.guards.get(&key), guard) {
            (None, guard) | (Some(Guard::Created(_)), guard @ (Guard::Unchanged(_) | Guard::Absent)) => guard,
            (Some(existing_guard @ Guard::Unchanged(_)), Guard::Created(_)) => *existing_guard,
            (Some(existing_guard), guard) if *existing_guard == guard => guard,
            (Some(Guard::Absent | Guard::Unchanged(_) | Guard::Created(_)), _) => NEVER,
        };
        self.guards.insert(key, merged);
    }

    /// Returns the guards by key.
    pub fn guards(&self) -> &BTreeMap<String, Guard> {
        &self.guards
    }

    /// Returns the writes by key.
    pub fn writes(&self) -> &BTreeMap<String, Write> {
        &self.writes
    }

    /// Returns `true` if the transaction writes this key.
    pub fn writes_key(&self, key: &str) -> bool {
        self.writes.contains_key(key)
    }

    /// Returns `true` if the number of operations is within etcd's limit for one transaction.
    pub fn fits(&self) -> bool {
        self.guards.len() <= MAX_OPERATIONS && self.writes.len() <= MAX_OPERATIONS
    }

    /// Returns `true` if the transaction cannot be applied twice, because at least one of its writes violates the guard
    /// of its own key.
    ///
    /// A put under `Created` alone does not violate its guard: a late copy writes its value again, over a later value
    /// of the same owner. Heartbeats may be of this kind, because a late heartbeat only makes observers wait longer.
    /// All other transactions must have a guard `Absent` or `Unchanged` (FENCING, section 1).
    pub fn conflicts_when_repeated(&self) -> bool {
        self.writes.is_empty()
            || self.writes.iter().any(|(key, write)| match (write, self.guards.get(key)) {
                (Write::Put { .. }, Some(Guard::Absent | Guard::Unchanged(_)))
                | (Write::Delete, Some(Guard::Unchanged(_) | Guard::Created(_))) => true,
                (Write::Put { .. }, Some(Guard::Created(_)) | None)
                | (Write::Delete, Some(Guard::Absent) | None) => false,
            })
    }

    /// Returns `true` if a late copy of the transaction is always harmless: the transaction writes nothing, or guards
    /// at least one revision, which does not occur again.
    ///
    /// A late copy of a transaction that only creates keys could be applied after a user has deleted them, and would
    /// restore them. Such a transaction is therefore sent once, and without an answer, its outcome is unknown.
    pub fn may_be_sent_again(&self) -> bool {
        self.writes.is_empty()
            || self.guards.values().any(|guard| matches!(guard, Guard::Unchanged(_) | Guard::Created(_)))
    }

    /// Returns `true` if a key that the transaction writes is still at the revision of its `Unchanged` guard. In that
    /// case, the transaction was not applied so far. `mod_revision` returns the revision of a key's last write, or `None`
    /// if the key does not exist.
    pub fn leaves_untouched(&self, mod_revision: impl Fn(&str) -> Option<Revision>) -> bool {
        self.writes.keys().any(|key| match self.guards.get(key) {
            Some(Guard::Unchanged(revision)) => mod_revision(key) == Some(*revision),
            Some(Guard::Absent | Guard::Created(_)) | None => false,
        })
    }

    /// Returns the size of the written keys and values in bytes.
    pub fn size(&self) -> usize {
        let value_length = |write: &Write| match write {
            Write::Put { value, .. } => value.len(),
            Write::Delete => 0,
        };
        self.writes.iter().map(|(key, write)| key.len() + value_length(write)).sum()
    }

    /// Joins two transactions into one that is applied as a whole. Returns `None` if both write the same key, if their
    /// guards of a key differ, or if the result has too many operations.
    pub fn join(&self, other: &Transaction) -> Option<Transaction> {
        let has_conflict = other.writes.keys().any(|key| self.writes.contains_key(key))
            || other
                .guards
                .iter()
                .any(|(key, guard)| self.guards.get(key).is_some_and(|own_guard| own_guard != guard));
        if has_conflict {
            return None;
        }
        let mut merged = self.clone();
        merged.guards.extend(other.guards.iter().map(|(key, guard)| (key.clone(), *guard)));
        merged.writes.extend(other.writes.iter().map(|(key, write)| (key.clone(), write.clone())));
        merged.fits().then_some(merged)
    }
}

/// Outcome of a transaction. A conflict is an outcome, not an error, and *unknown* is a separate outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The transaction was applied at this revision.
    Applied(Revision),
    /// A guard did not hold, and nothing was applied. Contains the store's revision at that time.
    Conflict(Revision),
    /// A lease of the transaction does not exist; nothing was applied.
    LeaseNotFound,
    /// The store refused the transaction (no permission, too large), or had no space for it, and a read has shown that
    /// it was not applied. The transaction was not applied, and will not be applied later.
    Refused(String),
    /// No answer arrived: the transaction may have been applied, or may still be applied. The only legal next step
    /// is another read.
    Unknown(String),
}

impl Outcome {
    /// Returns the revision at which the transaction was applied; `None` for other outcomes.
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
            .delete("b", Guard::Unchanged(Revision(3)))
            .guard("leader", Guard::Created(Revision(2)));
        assert_eq!(transaction.writes().keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(transaction.guards()["a"], Guard::Absent);
        assert_eq!(transaction.guards()["b"], Guard::Unchanged(Revision(3)));
        assert_eq!(transaction.guards()["leader"], Guard::Created(Revision(2)));
        assert!(transaction.writes_key("b") && !transaction.writes_key("leader"));
    }

    #[test]
    fn repeated_transactions_conflict_if_a_write_violates_its_guard() {
        let (unchanged, created) = (Guard::Unchanged(Revision(3)), Guard::Created(Revision(3)));
        let put = |guard| Transaction::new().put("a", guard, vec![1]);
        let delete = |guard| Transaction::new().delete("a", guard);
        let conflicts = |guard| [put(guard), delete(guard)].map(|each| each.conflicts_when_repeated());
        assert_eq!(conflicts(Guard::Absent), [true, false]);
        assert_eq!(conflicts(unchanged), [true, true]);
        assert_eq!(conflicts(created), [false, true]);
        assert!(put(created).put("b", unchanged, vec![1]).conflicts_when_repeated(), "one write suffices");
        assert!(Transaction::new().guard("a", created).conflicts_when_repeated(), "nothing is written");
    }

    #[test]
    fn written_key_at_its_guarded_revision_was_not_written() {
        let update = Transaction::new()
            .put("a", Guard::Unchanged(Revision(3)), vec![1])
            .guard("b", Guard::Unchanged(Revision(4)));
        let leaves_untouched = |revision: Option<i64>| {
            let mod_revision =
                |key: &str| if key == "a" { revision.map(Revision) } else { Some(Revision(4)) };
            update.leaves_untouched(mod_revision)
        };
        assert!(leaves_untouched(Some(3)));
        assert!(!leaves_untouched(Some(5)) && !leaves_untouched(None));
        let create = Transaction::new().put("a", Guard::Absent, vec![1]);
        assert!(!create.leaves_untouched(|_| None), "the key may have been deleted since");
    }

    #[test]
    fn transaction_size_is_limited_by_etcd() {
        let put = |count: usize| {
            (0..count).fold(Transaction::new(), |all, key| all.put(key.to_string(), Guard::Absent, vec![1]))
        };
        assert!(put(MAX_OPERATIONS).fits() && !put(MAX_OPERATIONS + 1).fits());
        let one_more = Transaction::new().guard("other", Guard::Absent);
        assert!(!put(MAX_OPERATIONS).guard("other", Guard::Absent).fits(), "guards count too");
        assert_eq!(put(MAX_OPERATIONS).join(&one_more), None);
        let sized =
            Transaction::new().put("ab", Guard::Absent, vec![0; 4]).delete("c", Guard::Created(Revision(1)));
        assert_eq!(sized.size(), 7);
    }

    #[test]
    fn writes_without_revision_guards_are_never_retried() {
        let create = || Transaction::new().put("a", Guard::Absent, vec![1]);
        assert!(!create().may_be_sent_again());
        assert!(!create().guard("b", Guard::Absent).may_be_sent_again());
        assert!(create().guard("leader", Guard::Created(Revision(2))).may_be_sent_again());
        assert!(create().put("b", Guard::Unchanged(Revision(2)), vec![1]).may_be_sent_again());
        assert!(Transaction::new().guard("a", Guard::Absent).may_be_sent_again());
    }

    #[test]
    fn contradictory_guards_never_hold() {
        let check = |first: Guard, second: Guard, expected: Guard| {
            let both = Transaction::new().guard("key", first).guard("key", second);
            assert_eq!(both.guards()["key"], expected, "{first:?} {second:?}");
        };
        check(Guard::Created(Revision(3)), Guard::Unchanged(Revision(5)), Guard::Unchanged(Revision(5)));
        check(Guard::Unchanged(Revision(5)), Guard::Created(Revision(3)), Guard::Unchanged(Revision(5)));
        check(Guard::Unchanged(Revision(5)), Guard::Unchanged(Revision(5)), Guard::Unchanged(Revision(5)));
        check(Guard::Unchanged(Revision(5)), Guard::Unchanged(Revision(6)), NEVER);
        check(Guard::Unchanged(Revision(5)), Guard::Absent, NEVER);
        check(Guard::Absent, Guard::Created(Revision(3)), NEVER);
        check(Guard::Created(Revision(3)), Guard::Created(Revision(4)), NEVER);
    }

    #[test]
    fn transactions_merge_unless_they_conflict() {
        let leader = |t: Transaction| t.guard("leader", Guard::Created(Revision(2)));
        let first = leader(Transaction::new().put("a", Guard::Absent, vec![1]));
        let second = leader(Transaction::new().put("b", Guard::Absent, vec![2]));
        assert_eq!(first.join(&second).map(|merged| merged.writes().len()), Some(2));
        assert_eq!(first.join(&first), None);
        let other_term =
            Transaction::new().put("c", Guard::Absent, vec![3]).guard("leader", Guard::Created(Revision(9)));
        assert_eq!(first.join(&other_term), None);
    }
}
