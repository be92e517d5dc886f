//! State of the in-memory store: pure, driven from outside, with etcd's semantics. The simulator uses it directly.

use crate::store::{Change, Reading, StoreError, selects};
use crate::transaction::{
    Entry, Guard, LeaseId, MAX_OPERATIONS, MAX_REQUEST_BYTES, Outcome, Transaction, Write,
};
use ha_api_types::id::Revision;
use ha_api_types::time::{Millis, MonotonicTime};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Keys, history and leases. The caller passes the time.
#[derive(Clone, Debug)]
pub struct MemoryState {
    revision: Revision,
    compacted: Revision,
    entries: BTreeMap<String, Entry>,
    /// The entries at the compacted revision.
    compacted_entries: BTreeMap<String, Entry>,
    history: BTreeMap<Revision, Vec<Change>>,
    leases: BTreeMap<LeaseId, Lease>,
    next_lease: LeaseId,
    space: Space,
}

/// Space of the store for puts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    Available,
    /// The next transaction with a put is applied, but answered as if there were no space.
    ExhaustedByNextWrite,
    Exhausted,
}

/// etcd's error message without space.
const NO_SPACE_MESSAGE: &str = "mvcc: database space exceeded";

#[derive(Clone, Debug)]
struct Lease {
    ttl_ms: Millis,
    expires: MonotonicTime,
}

impl Default for MemoryState {
    fn default() -> MemoryState {
        MemoryState {
            // etcd starts at 1, so the first write is revision 2.
            revision: Revision(1),
            compacted: Revision(0),
            entries: BTreeMap::new(),
            compacted_entries: BTreeMap::new(),
            history: BTreeMap::new(),
            leases: BTreeMap::new(),
            next_lease: LeaseId(1),
            space: Space::Available,
        }
    }
}

impl MemoryState {
    /// Returns the state of an etcd with these entries at a revision, without history. Each entry with a lease gets a
    /// separate lease, which expires after `ttl_seconds`.
    pub fn with_entries(
        entries: impl IntoIterator<Item = Entry>,
        revision: Revision,
        now: MonotonicTime,
        ttl_seconds: i64,
    ) -> MemoryState {
        let mut state = MemoryState { revision, compacted: revision, ..MemoryState::default() };
        for mut entry in entries {
            if entry.lease != LeaseId::NONE {
                entry.lease = state.grant_lease(now, ttl_seconds);
            }
            state.entries.insert(entry.key.clone(), entry);
        }
        state.compacted_entries = state.entries.clone();
        state
    }

    /// Returns the revision of the last write.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Returns the revision up to which history was compacted.
    pub fn compacted(&self) -> Revision {
        self.compacted
    }

    /// Reads one key. The reading is empty if the key does not exist.
    pub fn get(&self, key: &str) -> Reading {
        Reading { entries: self.entries.get(key).cloned().into_iter().collect(), revision: self.revision }
    }

    /// Reads all keys under a selector.
    pub fn list(&self, selector: &str) -> Reading {
        Reading { entries: self.entries_of(selector).cloned().collect(), revision: self.revision }
    }

    /// Returns the entries of all keys under a selector, sorted by key.
    pub fn entries_of(&self, selector: &str) -> impl Iterator<Item = &Entry> {
        self.entries
            .range::<str, _>((Bound::Included(selector), Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(selector))
            .filter(move |(key, _)| selects(selector, key))
            .map(|(_, entry)| entry)
    }

    /// Reads all keys under any of the selectors, sorted by key.
    pub fn list_all(&self, selectors: &[String]) -> Reading {
        let selected_entries: BTreeMap<String, Entry> = selectors
            .iter()
            .flat_map(|selector| self.list(selector).entries)
            .map(|entry| (entry.key.clone(), entry))
            .collect();
        Reading { entries: selected_entries.into_values().collect(), revision: self.revision }
    }

    /// Reads all keys under any of the selectors as they were at an earlier revision, sorted by key.
    ///
    /// Errors: [`StoreError::Compacted`] if the revision is before the compacted one.
    pub fn list_at(&self, selectors: &[String], revision: Revision) -> Result<Reading, StoreError> {
        if revision < self.compacted {
            return Err(StoreError::Compacted { oldest: self.compacted });
        }
        let mut entries = self.compacted_entries.clone();
        let changes = self.history.range(..=revision).flat_map(|(_, changes)| changes);
        changes.for_each(|change| apply_change(&mut entries, change.clone()));
        entries.retain(|key, _| selectors.iter().any(|selector| selects(selector, key)));
        Ok(Reading { entries: entries.into_values().collect(), revision })
    }

    /// Fills the store as etcd is at its quota (FENCING, R1.10). From now on, transactions with puts are answered
    /// without being applied; with `applies_next`, the next such transaction is still applied. Deletes still work.
    pub fn fill(&mut self, applies_next: bool) {
        self.space = if applies_next { Space::ExhaustedByNextWrite } else { Space::Exhausted };
    }

    /// Ends the state that [`MemoryState::fill`] began.
    pub fn make_space(&mut self) {
        self.space = Space::Available;
    }

    /// Returns `true` if there is no space for puts or leases.
    pub fn is_full(&self) -> bool {
        self.space != Space::Available
    }

    /// Applies a transaction, and returns its outcome. If the store is full, the outcome is that which etcd's client
    /// determines after one read.
    pub fn commit(&mut self, transaction: &Transaction) -> Outcome {
        let puts = transaction.writes().values().any(|write| match write {
            Write::Put { .. } => true,
            Write::Delete => false,
        });
        match self.space {
            Space::ExhaustedByNextWrite if puts => {
                self.space = Space::Exhausted;
                match self.apply(transaction) {
                    Outcome::Applied(_) => Outcome::Unknown(NO_SPACE_MESSAGE.to_owned()),
                    other @ (Outcome::Conflict(_)
                    | Outcome::LeaseNotFound
                    | Outcome::Refused(_)
                    | Outcome::Unknown(_)) => other,
                }
            }
            Space::Exhausted if puts => {
                if transaction.leaves_untouched(|key| self.entries.get(key).map(|entry| entry.mod_revision)) {
                    Outcome::Refused(NO_SPACE_MESSAGE.to_owned())
                } else {
                    Outcome::Unknown(NO_SPACE_MESSAGE.to_owned())
                }
            }
            Space::Available | Space::ExhaustedByNextWrite | Space::Exhausted => self.apply(transaction),
        }
    }

    /// Applies a transaction without regard to space, and returns its outcome.
    fn apply(&mut self, transaction: &Transaction) -> Outcome {
        if transaction.guards().len() > MAX_OPERATIONS || transaction.writes().len() > MAX_OPERATIONS {
            return Outcome::Refused("too many operations in one transaction".to_owned());
        }
        if transaction.size() > MAX_REQUEST_BYTES {
            return Outcome::Refused("the transaction is too large".to_owned());
        }
        let holds = transaction.guards().iter().all(|(key, guard)| {
            let current_entry = self.entries.get(key);
            match guard {
                Guard::Absent => current_entry.is_none(),
                Guard::Unchanged(revision) => {
                    current_entry.is_some_and(|entry| entry.mod_revision == *revision)
                }
                Guard::Created(revision) => {
                    current_entry.is_some_and(|entry| entry.create_revision == *revision)
                }
            }
        });
        if !holds {
            return Outcome::Conflict(self.revision);
        }
        let leases_exist = transaction.writes().values().all(|write| match write {
            Write::Put { lease, .. } => *lease == LeaseId::NONE || self.leases.contains_key(lease),
            Write::Delete => true,
        });
        if !leases_exist {
            return Outcome::LeaseNotFound;
        }
        let changes_something = transaction.writes().iter().any(|(key, write)| match write {
            Write::Put { .. } => true,
            Write::Delete => self.entries.contains_key(key),
        });
        if changes_something {
            self.revision += 1;
            let changes =
                transaction.writes().iter().filter_map(|(key, write)| self.write(key, write)).collect();
            self.history.insert(self.revision, changes);
        }
        Outcome::Applied(self.revision)
    }

    fn write(&mut self, key: &str, write: &Write) -> Option<Change> {
        match write {
            Write::Put { value, lease } => {
                let create_revision =
                    self.entries.get(key).map_or(self.revision, |entry| entry.create_revision);
                let entry = Entry {
                    key: key.to_owned(),
                    value: value.clone(),
                    create_revision,
                    mod_revision: self.revision,
                    lease: *lease,
                };
                self.entries.insert(key.to_owned(), entry.clone());
                Some(Change::Put(entry))
            }
            Write::Delete => self
                .entries
                .remove(key)
                .map(|_| Change::Delete { key: key.to_owned(), revision: self.revision }),
        }
    }

    /// Returns the changes of the keys under a selector from a revision on, one vector for each revision.
    pub fn changes_since(
        &self,
        selector: &str,
        from: Revision,
    ) -> Result<Vec<(Revision, Vec<Change>)>, StoreError> {
        self.changes_of(&[selector.to_owned()], from)
    }

    /// Returns the changes of the keys under any of the selectors from a revision on, one vector for each revision.
    pub fn changes_of(
        &self,
        selectors: &[String],
        from: Revision,
    ) -> Result<Vec<(Revision, Vec<Change>)>, StoreError> {
        if from <= self.compacted {
            return Err(StoreError::Compacted { oldest: self.compacted + 1 });
        }
        let is_selected = |change: &&Change| selectors.iter().any(|selector| selects(selector, change.key()));
        Ok(self
            .history
            .range(from..)
            .map(|(revision, changes)| {
                (*revision, changes.iter().filter(is_selected).cloned().collect::<Vec<_>>())
            })
            .filter(|(_, changes)| !changes.is_empty())
            .collect())
    }

    /// Compacts history up to and including a revision.
    pub fn compact(&mut self, revision: Revision) {
        self.compacted = revision.clamp(self.compacted, self.revision);
        let remaining = self.history.split_off(&(self.compacted + 1));
        for change in std::mem::replace(&mut self.history, remaining).into_values().flatten() {
            apply_change(&mut self.compacted_entries, change);
        }
    }

    /// Returns the state after a restore from this state as a backup. As in etcd, the revision is raised, history is
    /// empty, and leases start again. Then the keys under the selectors `forgotten` are deleted, and the key `marker`
    /// is put.
    #[must_use]
    pub fn restored(
        &self,
        now: MonotonicTime,
        raise: i64,
        deleted_prefixes: &[String],
        marker: (String, Vec<u8>),
    ) -> MemoryState {
        let mut restored = self.clone();
        restored.revision += raise;
        for lease in restored.leases.values_mut() {
            lease.expires = now + lease.ttl_ms;
        }
        restored.entries.retain(|key, _| !deleted_prefixes.iter().any(|part| selects(part, key)));
        restored.revision += 1;
        let (key, value) = marker;
        restored.write(&key, &Write::Put { value: value.into(), lease: LeaseId::NONE });
        restored.history.clear();
        restored.compacted = restored.revision;
        restored.compacted_entries = restored.entries.clone();
        restored
    }

    /// Grants a lease of at least one second.
    pub fn grant_lease(&mut self, now: MonotonicTime, ttl_seconds: i64) -> LeaseId {
        let lease = self.next_lease;
        self.next_lease.0 += 1;
        let ttl_ms = u64::try_from(ttl_seconds).unwrap_or(0).max(1) * 1000;
        self.leases.insert(lease, Lease { ttl_ms, expires: now + ttl_ms });
        lease
    }

    /// Extends a lease for another period.
    pub fn keep_alive(&mut self, now: MonotonicTime, lease: LeaseId) -> Result<i64, StoreError> {
        let granted_lease = self.leases.get_mut(&lease).ok_or(StoreError::LeaseNotFound)?;
        granted_lease.expires = now + granted_lease.ttl_ms;
        i64::try_from(granted_lease.ttl_ms / 1000).map_err(|_| StoreError::LeaseNotFound)
    }

    /// Revokes a lease, and deletes its keys at one revision.
    pub fn revoke_lease(&mut self, lease: LeaseId) -> Result<(), StoreError> {
        self.leases.remove(&lease).ok_or(StoreError::LeaseNotFound)?;
        let keys: BTreeSet<String> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.lease == lease)
            .map(|(key, _)| key.clone())
            .collect();
        if !keys.is_empty() {
            self.revision += 1;
            let changes = keys.iter().filter_map(|key| self.write(key, &Write::Delete)).collect();
            self.history.insert(self.revision, changes);
        }
        Ok(())
    }

    /// Revokes the leases that have expired. Call this at or after [`MemoryState::next_expiry`].
    pub fn expire(&mut self, now: MonotonicTime) {
        let expired_leases: Vec<LeaseId> =
            self.leases.iter().filter(|(_, lease)| lease.expires <= now).map(|(id, _)| *id).collect();
        for lease in expired_leases {
            // The lease was just listed, so it exists.
            let _ = self.revoke_lease(lease);
        }
    }

    /// Returns the time at which the next lease expires.
    pub fn next_expiry(&self) -> Option<MonotonicTime> {
        self.leases.values().map(|lease| lease.expires).min()
    }
}

fn apply_change(entries: &mut BTreeMap<String, Entry>, change: Change) {
    match change {
        Change::Put(entry) => drop(entries.insert(entry.key.clone(), entry)),
        Change::Delete { key, .. } => drop(entries.remove(&key)),
    }
}
