//! The `Store` seam: what hactl asks of etcd, and of the in-memory store with the same semantics.

use crate::transaction::{Entry, LeaseId, Outcome, Transaction};
use futures::stream::BoxStream;
use ha_api_types::record::Revision;
use std::future::Future;
use std::sync::Arc;

/// A consistent reading of a key or a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The entries, by key.
    pub entries: Vec<Entry>,
    /// The store's revision when this was read; a watch goes on from the next.
    pub revision: Revision,
}

/// One change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Written.
    Put(Entry),
    /// Removed, at this revision (by a transaction, or because its lease ended).
    Delete {
        /// The key.
        key: String,
        /// When.
        revision: Revision,
    },
}

impl Change {
    /// The key that changed.
    pub fn key(&self) -> &str {
        match self {
            Change::Put(entry) => &entry.key,
            Change::Delete { key, .. } => key,
        }
    }

    /// When it changed.
    pub fn revision(&self) -> Revision {
        match self {
            Change::Put(entry) => entry.mod_revision,
            Change::Delete { revision, .. } => *revision,
        }
    }
}

/// What a watch yields. The stream ends after an error; who watches reads again and watches anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchItem {
    /// All changes of one or more revisions, in order, complete up to and including `revision`.
    Changes {
        /// The changes.
        changes: Vec<Change>,
        /// Complete up to here.
        revision: Revision,
    },
    /// Nothing changed up to here (a progress notification).
    Progress(Revision),
}

/// Why a read, watch or lease request failed. Every request is bounded in time; none is retried for ever.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No member answered in time.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    /// The revision asked for is compacted; read again from now.
    #[error("revision is compacted, the oldest is {oldest}")]
    Compacted {
        /// The oldest revision that can still be watched.
        oldest: Revision,
    },
    /// The lease is gone.
    #[error("the lease is gone")]
    LeaseNotFound,
    /// No permission.
    #[error("the store refuses: {0}")]
    Refused(String),
    /// The client's own settings are unusable; the text says which and what to do.
    #[error("{0}")]
    Configuration(String),
    /// An older etcd with known defects.
    #[error("{0}")]
    Unsupported(String),
}

/// Whether a selector covers a key: one that ends in `/` covers every key below it, any other only the key of that name,
/// so that node1 is never node10. The empty selector covers everything.
pub fn selects(selector: &str, key: &str) -> bool {
    if selector.is_empty() || selector.ends_with('/') { key.starts_with(selector) } else { key == selector }
}

/// The store.
///
/// Guarantees: reads are linearizable; a transaction is applied as a whole or not at all; a watch yields every change
/// after its start revision, in order, or ends with an error; every request is bounded in time. Cheap to clone by `Arc`.
///
/// A *selector* is a prefix that ends in `/`, or one key ([`selects`]).
pub trait Store: Send + Sync + 'static {
    /// All keys under any of the selectors, sorted, read at one revision.
    fn list_all(&self, selectors: &[String]) -> impl Future<Output = Result<Reading, StoreError>> + Send;

    /// Changes of the keys under any of the selectors, from a revision on (inclusive). Each item is complete up to its
    /// revision over all selectors: nothing that comes later is older.
    fn watch_all(
        &self,
        selectors: &[String],
        from: Revision,
    ) -> BoxStream<'static, Result<WatchItem, StoreError>>;

    /// Commits a transaction, with the client's own deadline for one attempt and at most three attempts. Of the attempts at
    /// most one is applied, if the transaction conflicts with itself ([`Transaction::conflicts_when_repeated`]). A conflict
    /// seen after an unknown attempt is reported as what is proven of it, else as unknown.
    fn commit(&self, transaction: Transaction) -> impl Future<Output = Outcome> + Send;

    /// A new lease.
    fn grant_lease(&self, ttl_seconds: i64) -> impl Future<Output = Result<LeaseId, StoreError>> + Send;

    /// Keeps a lease for another period; proves nothing (FENCING, section 3). Returns the time to live, seconds.
    fn keep_alive(&self, lease: LeaseId) -> impl Future<Output = Result<i64, StoreError>> + Send;

    /// Ends a lease; its keys go with it.
    fn revoke_lease(&self, lease: LeaseId) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// One key (`entries` has at most one element).
    fn get(&self, key: &str) -> impl Future<Output = Result<Reading, StoreError>> + Send {
        self.list(key)
    }

    /// All keys under a selector.
    fn list(&self, selector: &str) -> impl Future<Output = Result<Reading, StoreError>> + Send {
        let selectors = vec![selector.to_owned()];
        async move { self.list_all(&selectors).await }
    }

    /// Changes of the keys under a selector, from a revision on (inclusive).
    fn watch(&self, selector: &str, from: Revision) -> BoxStream<'static, Result<WatchItem, StoreError>> {
        self.watch_all(&[selector.to_owned()], from)
    }
}

impl<S: Store> Store for Arc<S> {
    fn list_all(&self, selectors: &[String]) -> impl Future<Output = Result<Reading, StoreError>> + Send {
        self.as_ref().list_all(selectors)
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
    fn a_selector_is_a_folder_or_one_key() {
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
