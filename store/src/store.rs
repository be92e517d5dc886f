//! The `Store` trait: the operations that hactl needs from etcd, and from the in-memory store with the same semantics.

use crate::transaction::{Entry, LeaseId, Outcome, Transaction};
use futures::stream::BoxStream;
use ha_api_types::id::Revision;
use std::future::Future;
use std::sync::Arc;

/// The entries of some keys, all at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Entries, sorted by key.
    pub entries: Vec<Entry>,
    /// Revision at which the keys were read. A watch from the next revision includes every later change.
    pub revision: Revision,
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The key was written.
    Put(Entry),
    /// The key was deleted, by a transaction or because its lease ended.
    Delete {
        /// Deleted key.
        key: String,
        /// Revision of the deletion.
        revision: Revision,
    },
}

impl Change {
    /// Returns the changed key.
    pub fn key(&self) -> &str {
        match self {
            Change::Put(entry) => &entry.key,
            Change::Delete { key, .. } => key,
        }
    }

    /// Returns the revision of the commit that made the change.
    pub fn revision(&self) -> Revision {
        match self {
            Change::Put(entry) => entry.mod_revision,
            Change::Delete { revision, .. } => *revision,
        }
    }
}

/// Item of a watch. The stream ends after an error; the caller must then read and watch again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchItem {
    /// All changes of one or more revisions, in order, complete up to and including `revision`.
    Changes {
        /// Changes in order of their revisions.
        changes: Vec<Change>,
        /// Revision up to which the changes are complete.
        revision: Revision,
    },
    /// No further changes exist up to this revision (a progress notification).
    Progress(Revision),
}

/// Reason for a failed read, watch or lease request. Every request has a time limit, and is not retried indefinitely.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No member answered in time.
    #[error("cannot reach etcd: {0}")]
    Unreachable(String),
    /// The requested revision was compacted; the caller must read the current state again.
    #[error("revision was compacted; the oldest revision is {oldest}")]
    Compacted {
        /// Oldest revision that can still be watched.
        oldest: Revision,
    },
    /// The lease does not exist.
    #[error("the lease does not exist")]
    LeaseNotFound,
    /// The store refused the request, for example because of missing permission.
    #[error("etcd rejected the request: {0}")]
    Refused(String),
    /// The client's settings are invalid; the text describes the problem and the fix.
    #[error("{0}")]
    Configuration(String),
    /// The etcd version is too old and has known defects.
    #[error("{0}")]
    Unsupported(String),
}

/// Returns `true` if a selector covers a key. A selector that ends in `/` covers every key below it. Any other selector
/// covers only the key with that name, so node1 does not cover node10. The empty selector covers all keys.
pub fn selects(selector: &str, key: &str) -> bool {
    if selector.is_empty() || selector.ends_with('/') { key.starts_with(selector) } else { key == selector }
}

/// A key-value store with guarded transactions, watches and leases.
///
/// Guarantees: reads are linearizable. A transaction is applied as a whole or not at all. A watch yields every change
/// from its start revision on, in order, or ends with an error. Every request has a time limit. An `Arc` of a store is
/// cheap to clone.
///
/// A *selector* is a prefix that ends in `/`, or one key ([`selects`]).
///
/// ```
/// use ha_store::{Guard, MemoryStore, Store, Transaction};
///
/// let runtime = tokio::runtime::Runtime::new().unwrap();
/// runtime.block_on(async {
///     let store = MemoryStore::new();
///     let create = Transaction::new().put("spec/web", Guard::Absent, b"1".to_vec());
///     let revision = store.commit(create).await.applied().unwrap();
///     let reading = store.list("spec/").await.unwrap();
///     assert_eq!((reading.entries.len(), reading.revision), (1, revision));
/// });
/// ```
pub trait Store: Send + Sync + 'static {
    /// Reads all keys under any of the selectors at one revision, sorted by key.
    fn list_all(&self, selectors: &[String]) -> impl Future<Output = Result<Reading, StoreError>> + Send;

    /// Reads all keys under any of the selectors as they were at an earlier revision, sorted by key.
    ///
    /// Errors: [`StoreError::Compacted`] if etcd no longer has that revision. The caller must know that etcd has reached
    /// the revision.
    fn list_at(
        &self,
        selectors: &[String],
        revision: Revision,
    ) -> impl Future<Output = Result<Reading, StoreError>> + Send;

    /// Returns the changes of the keys under any of the selectors, from a revision on (inclusive). Each item is
    /// complete up to its revision over all selectors: no later item has an older change.
    fn watch_all(
        &self,
        selectors: &[String],
        from: Revision,
    ) -> BoxStream<'static, Result<WatchItem, StoreError>>;

    /// Commits a transaction, with at most three attempts, each with the client's own time limit.
    ///
    /// If the transaction conflicts with itself ([`Transaction::conflicts_when_repeated`]), at most one attempt is
    /// applied. After a conflict that follows an unknown attempt, the outcome is the proven outcome of that attempt,
    /// otherwise unknown.
    fn commit(&self, transaction: Transaction) -> impl Future<Output = Outcome> + Send;

    /// Grants a lease, which expires `ttl_seconds` after its last keep-alive.
    fn grant_lease(&self, ttl_seconds: i64) -> impl Future<Output = Result<LeaseId, StoreError>> + Send;

    /// Extends a lease for another period, and returns the time to live in seconds. A lease is not proof (FENCING,
    /// section 3).
    fn keep_alive(&self, lease: LeaseId) -> impl Future<Output = Result<i64, StoreError>> + Send;

    /// Revokes a lease, and deletes its keys.
    fn revoke_lease(&self, lease: LeaseId) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Reads one key; `entries` has at most one element.
    fn get(&self, key: &str) -> impl Future<Output = Result<Reading, StoreError>> + Send {
        self.list(key)
    }

    /// Reads all keys under a selector.
    fn list(&self, selector: &str) -> impl Future<Output = Result<Reading, StoreError>> + Send {
        let selectors = vec![selector.to_owned()];
        async move { self.list_all(&selectors).await }
    }

    /// Returns the changes of the keys under a selector, from a revision on (inclusive).
    fn watch(&self, selector: &str, from: Revision) -> BoxStream<'static, Result<WatchItem, StoreError>> {
        self.watch_all(&[selector.to_owned()], from)
    }
}

impl<S: Store> Store for Arc<S> {
    fn list_all(&self, selectors: &[String]) -> impl Future<Output = Result<Reading, StoreError>> + Send {
        self.as_ref().list_all(selectors)
    }

    fn list_at(
        &self,
        selectors: &[String],
        revision: Revision,
    ) -> impl Future<Output = Result<Reading, StoreError>> + Send {
        self.as_ref().list_at(selectors, revision)
    }

    fn watch_all(
        &self,
        selectors: &[String],
        from: Revision,
    ) -> BoxStream<'static, Result<WatchItem, StoreError>> {
        self.as_ref().watch_all(selectors, from)
    }

    fn commit(&self, transaction: Transaction) -> impl Future<Output = Outcome> + Send {
        self.as_ref().commit(transaction)
    }

    fn grant_lease(&self, ttl_seconds: i64) -> impl Future<Output = Result<LeaseId, StoreError>> + Send {
        self.as_ref().grant_lease(ttl_seconds)
    }

    fn keep_alive(&self, lease: LeaseId) -> impl Future<Output = Result<i64, StoreError>> + Send {
        self.as_ref().keep_alive(lease)
    }

    fn revoke_lease(&self, lease: LeaseId) -> impl Future<Output = Result<(), StoreError>> + Send {
        self.as_ref().revoke_lease(lease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selector_matches_a_prefix_or_one_key() {
        let check = |selector: &str, key: &str, expected: bool| {
            assert_eq!(selects(selector, key), expected, "{selector} {key}");
        };
        check("alive/node1", "alive/node1", true);
        check("alive/node1", "alive/node10", false);
        check("report/node1/", "report/node1/node", true);
        check("report/node1/", "report/node10/node", false);
        check("", "anything", true);
    }
}
