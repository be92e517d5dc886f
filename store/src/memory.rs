//! The in-memory store in real time: [`MemoryState`] behind a lock, with leases that expire in real time, and live
//! watches.

use crate::memory_state::MemoryState;
use crate::store::{Change, Reading, Store, StoreError, WatchItem};
use crate::transaction::{LeaseId, Outcome, Transaction};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use ha_api_types::id::Revision;
use ha_api_types::time::{Millis, MonotonicTime};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Number of revisions of history that are kept. Older revisions are compacted, as by etcd's automatic compaction.
const RETAINED_REVISIONS: i64 = 50_000;

/// A store in this process's memory, for tests. Clones share it.
///
/// Guarantees: the same semantics as etcd, which the conformance suite checks. Every commit is answered. An outcome is
/// unknown only while the store is full ([`MemoryStore::fill`]).
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<MemoryState>,
    started: Instant,
    revision: watch::Sender<Revision>,
    /// Notified when a lease is granted, for the task that expires leases.
    lease_change: Arc<Notify>,
    /// Starts that task with the first lease.
    expiry_task: Once,
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> MemoryStore {
        let state = MemoryState::default();
        let (revision, _) = watch::channel(state.revision());
        let shared = Shared {
            state: Mutex::new(state),
            started: Instant::now(),
            revision,
            lease_change: Arc::new(Notify::new()),
            expiry_task: Once::new(),
        };
        MemoryStore { shared: Arc::new(shared) }
    }

    /// Compacts history up to and including a revision.
    pub fn compact(&self, revision: Revision) {
        self.shared.update(|state, _| state.compact(revision));
    }

    /// Returns a copy of the current state, as a backup.
    pub fn backup(&self) -> MemoryState {
        self.shared.lock().clone()
    }

    /// Replaces the state, as a restore of a backup does.
    pub fn replace(&self, other: MemoryState) {
        self.shared.update(|state, _| *state = other);
    }

    /// Fills the store; see [`MemoryState::fill`].
    pub fn fill(&self, applies_next: bool) {
        self.shared.update(|state, _| state.fill(applies_next));
    }

    /// Ends the state that [`MemoryStore::fill`] began.
    pub fn make_space(&self) {
        self.shared.update(|state, _| state.make_space());
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        // A panic in another thread may leave the state half-changed, but this does not affect a test.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> MonotonicTime {
        MonotonicTime(Millis::try_from(self.started.elapsed().as_millis()).unwrap_or(Millis::MAX))
    }

    /// Runs an action at the current time, after the expiry of leases, and notifies the watches.
    fn update<T>(&self, change: impl FnOnce(&mut MemoryState, MonotonicTime) -> T) -> T {
        let mut state = self.lock();
        let now = self.now();
        state.expire(now);
        let result = change(&mut state, now);
        let revision = state.revision();
        if revision - state.compacted() > 2 * RETAINED_REVISIONS {
            state.compact(revision - RETAINED_REVISIONS);
        }
        self.revision.send_if_modified(|current| std::mem::replace(current, revision) != revision);
        result
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // This call wakes the task that expires leases. The task detects that the store was dropped, and ends.
        self.lease_change.notify_one();
    }
}

/// Expires leases until the store is dropped.
async fn expire_leases(shared: Weak<Shared>, lease_change: Arc<Notify>) {
    loop {
        let Some(next) = shared.upgrade().map(|shared| {
            let next = shared.lock().next_expiry();
            next.map(|at| shared.started + Duration::from_millis(at.0))
        }) else {
            return;
        };
        match next {
            Some(at) => tokio::select! {
                () = tokio::time::sleep_until(at) => {}
                () = lease_change.notified() => {}
            },
            None => lease_change.notified().await,
        }
        match shared.upgrade() {
            Some(shared) => shared.update(|_, _| ()),
            None => return,
        }
    }
}

/// The changes from a revision on, one vector for each revision, and the present revision.
pub type ChangesSince = (Vec<(Revision, Vec<Change>)>, Revision);

/// Follows the changes of an in-memory store, as [`Store::watch_all`] requires. `read` returns the changes from a revision
/// on. It is called again after each notification of `notifications`. The stream ends with its first error.
pub fn follow<N: Send + Sync + 'static>(
    mut notifications: watch::Receiver<N>,
    from: Revision,
    read: impl Fn(Revision) -> Result<ChangesSince, StoreError> + Send + 'static,
) -> BoxStream<'static, Result<WatchItem, StoreError>> {
    async_stream::stream! {
        let mut next = from;
        loop {
            notifications.mark_unchanged();
            let (changes, revision) = match read(next) {
                Ok(changes_and_revision) => changes_and_revision,
                Err(error) => {
                    yield Err(error);
                    return;
                }
            };
            let mut complete = next - 1;
            for (revision, changes) in changes {
                complete = revision;
                yield Ok(WatchItem::Changes { changes, revision });
            }
            if revision > complete {
                yield Ok(WatchItem::Progress(revision));
            }
            next = next.max(revision + 1);
            if notifications.changed().await.is_err() {
                return;
            }
        }
    }
    .boxed()
}

impl Store for MemoryStore {
    async fn list_all(&self, selectors: &[String]) -> Result<Reading, StoreError> {
        Ok(self.shared.update(|state, _| state.list_all(selectors)))
    }

    async fn list_at(&self, selectors: &[String], revision: Revision) -> Result<Reading, StoreError> {
        self.shared.update(|state, _| state.list_at(selectors, revision))
    }

    fn watch_all(
        &self,
        selectors: &[String],
        from: Revision,
    ) -> BoxStream<'static, Result<WatchItem, StoreError>> {
        let shared = self.shared.clone();
        let selectors = selectors.to_vec();
        follow(self.shared.revision.subscribe(), from, move |next| {
            let state = shared.lock();
            Ok((state.changes_of(&selectors, next)?, state.revision()))
        })
    }

    async fn commit(&self, transaction: Transaction) -> Outcome {
        self.shared.update(|state, _| state.commit(&transaction))
    }

    async fn grant_lease(&self, ttl_seconds: i64) -> Result<LeaseId, StoreError> {
        let lease =
            self.shared.update(|state, now| (!state.is_full()).then(|| state.grant_lease(now, ttl_seconds)));
        let lease = lease.ok_or_else(|| StoreError::Refused("etcd is full".to_owned()))?;
        let lease_change = self.shared.lease_change.clone();
        self.shared.expiry_task.call_once(|| {
            tokio::spawn(expire_leases(Arc::downgrade(&self.shared), lease_change));
        });
        self.shared.lease_change.notify_one();
        Ok(lease)
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<i64, StoreError> {
        self.shared.update(|state, now| state.keep_alive(now, lease))
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.shared.update(|state, _| state.revoke_lease(lease))
    }
}
