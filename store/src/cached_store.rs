//! A store whose reads and watches come from the watch cache, so that the load on etcd does not depend on the number of
//! clients.

use crate::cache::{Reader, Update, Updates, selected};
use crate::store::{Reading, Store, StoreError, WatchItem};
use crate::transaction::{LeaseId, Outcome, Transaction};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use ha_api_types::id::Revision;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::sync::broadcast::error::RecvError;

/// Maximum time that a read waits for the cache. Then the store answers it.
const CACHE_LAG_LIMIT: Duration = Duration::from_millis(50);

/// A store with a watch cache of the keys under one prefix.
///
/// Guarantees: those of [`Store`]. A read is linearizable: a read of one key, which began after the call, confirms the
/// revision from which the cache answers. One such read confirms all calls that wait for it. The store
/// answers what the cache cannot: other keys, reads while the cache lags behind, and changes that it does not keep.
///
/// A watch fails when the watch of the cache fails. Assumptions: one task applies the items of one reflector to the
/// cache. Without it, all calls go to the store.
pub struct CachedStore<S> {
    shared: Arc<SharedStore<S>>,
}

struct SharedStore<S> {
    store: S,
    reader: Reader,
    prefix: String,
    probe: String,
    requested: AtomicU64,
    confirmed: Mutex<Confirmation>,
}

/// The last read that confirmed a revision.
struct Confirmation {
    /// Newest request that was made before that read began.
    covers: u64,
    revision: Result<Revision, StoreError>,
}

impl<S> Clone for CachedStore<S> {
    fn clone(&self) -> CachedStore<S> {
        CachedStore { shared: Arc::clone(&self.shared) }
    }
}

impl<S: Store> CachedStore<S> {
    /// Creates a store that reads the keys under `prefix` from a cache. `probe` is a small key that the store's
    /// identity may read; it need not exist.
    pub fn new(store: S, reader: Reader, prefix: &str, probe: String) -> CachedStore<S> {
        let confirmed = Mutex::new(Confirmation { covers: 0, revision: Ok(Revision(0)) });
        let (prefix, requested) = (prefix.to_owned(), AtomicU64::new(0));
        let shared = SharedStore { store, reader, prefix, probe, requested, confirmed };
        CachedStore { shared: Arc::new(shared) }
    }
}

impl<S: Store> SharedStore<S> {
    fn covers(&self, selectors: &[String]) -> bool {
        selectors.iter().all(|selector| selector.starts_with(&self.prefix))
    }

    /// Returns a revision that the store had reached after this call began.
    async fn confirm(&self) -> Result<Revision, StoreError> {
        let request = self.requested.fetch_add(1, Ordering::SeqCst) + 1;
        let mut confirmed = self.confirmed.lock().await;
        if confirmed.covers < request {
            let covers = self.requested.load(Ordering::SeqCst);
            let revision = self.store.get(&self.probe).await.map(|reading| reading.revision);
            *confirmed = Confirmation { covers, revision };
        }
        confirmed.revision.clone()
    }

    /// Reads from the cache; `None` if the cache cannot answer in time.
    async fn read_cached(&self, selectors: &[String]) -> Option<Result<Reading, StoreError>> {
        let before = self.reader.revision();
        if before == Revision(0) || !self.covers(selectors) {
            return None;
        }
        let confirmed = match self.confirm().await {
            Ok(confirmed) => confirmed,
            Err(error) => return Some(Err(error)),
        };
        // Only a restore from a backup decreases the revision of the store. The cache still has the earlier state.
        if confirmed < before {
            return None;
        }
        tokio::time::timeout(CACHE_LAG_LIMIT, self.reader.wait_for(confirmed)).await.ok()?;
        Some(Ok(self.reader.read(selectors)))
    }
}

/// Source of the items of one watch.
enum Source {
    /// The cache: changes that it kept, and the receiver of the later ones.
    Cache(Option<Update>, Updates),
    /// A watch of the store.
    Store(BoxStream<'static, Result<WatchItem, StoreError>>),
}

/// Next item of a source.
enum Next {
    Item(WatchItem),
    /// The cache dropped updates that this watch has not received.
    Lagged,
    Failed(StoreError),
}

impl Source {
    /// Returns the source of the changes after a revision: the cache if it has all of them.
    fn of<S: Store>(shared: &SharedStore<S>, selectors: &[String], after: Revision) -> Source {
        Source::cache(shared, selectors, after)
            .unwrap_or_else(|| Source::Store(shared.store.watch_all(selectors, after + 1)))
    }

    fn cache<S: Store>(shared: &SharedStore<S>, selectors: &[String], after: Revision) -> Option<Source> {
        if !shared.covers(selectors) {
            return None;
        }
        let (kept, updates) = shared.reader.subscribe(selectors, after).ok()?;
        Some(Source::Cache(Some(kept), updates))
    }

    async fn next(&mut self, selectors: &[String], complete: Revision) -> Next {
        match self {
            Source::Cache(kept, updates) => {
                let Update { changes, revision } = match kept.take() {
                    Some(kept) => kept,
                    None => match updates.recv().await {
                        Ok(Ok(update)) => Update {
                            changes: selected(update.changes.iter(), selectors, complete),
                            revision: update.revision,
                        },
                        Ok(Err(error)) => return Next::Failed(error),
                        Err(RecvError::Lagged(_)) => return Next::Lagged,
                        Err(RecvError::Closed) => {
                            return Next::Failed(StoreError::Unreachable(
                                "the watch cache has ended".to_owned(),
                            ));
                        }
                    },
                };
                Next::Item(if changes.is_empty() {
                    WatchItem::Progress(revision)
                } else {
                    WatchItem::Changes { changes, revision }
                })
            }
            Source::Store(items) => match items.next().await {
                Some(Ok(item)) => Next::Item(item),
                Some(Err(error)) => Next::Failed(error),
                None => Next::Failed(StoreError::Unreachable("watch ended".to_owned())),
            },
        }
    }
}

impl<S: Store> Store for CachedStore<S> {
    async fn list_all(&self, selectors: &[String]) -> Result<Reading, StoreError> {
        match self.shared.read_cached(selectors).await {
            Some(result) => result,
            None => self.shared.store.list_all(selectors).await,
        }
    }

    async fn list_at(&self, selectors: &[String], revision: Revision) -> Result<Reading, StoreError> {
        self.shared.store.list_at(selectors, revision).await
    }

    fn watch_all(
        &self,
        selectors: &[String],
        from: Revision,
    ) -> BoxStream<'static, Result<WatchItem, StoreError>> {
        let (shared, selectors) = (Arc::clone(&self.shared), selectors.to_vec());
        async_stream::stream! {
            // The stream is complete up to this revision.
            let mut complete = Revision(from.0 - 1);
            let mut source = Source::of(&shared, &selectors, complete);
            loop {
                match source.next(&selectors, complete).await {
                    Next::Item(item) => {
                        let (WatchItem::Changes { revision, .. } | WatchItem::Progress(revision)) = &item;
                        complete = complete.max(*revision);
                        yield Ok(item);
                        // A watch of the store is needed only until the cache has all later changes.
                        if let Source::Store(_) = source
                            && let Some(cache) = Source::cache(&shared, &selectors, complete)
                        {
                            source = cache;
                        }
                    }
                    Next::Lagged => source = Source::of(&shared, &selectors, complete),
                    Next::Failed(error) => {
                        yield Err(error);
                        return;
                    }
                }
            }
        }
        .boxed()
    }

    async fn commit(&self, transaction: Transaction) -> Outcome {
        self.shared.store.commit(transaction).await
    }

    async fn grant_lease(&self, ttl_seconds: i64) -> Result<LeaseId, StoreError> {
        self.shared.store.grant_lease(ttl_seconds).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<i64, StoreError> {
        self.shared.store.keep_alive(lease).await
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.shared.store.revoke_lease(lease).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Writer, cache};
    use crate::memory::MemoryStore;
    use crate::reflector::Item;
    use crate::transaction::Guard;

    /// A store that counts reads and watches.
    #[derive(Clone, Default)]
    struct Counted {
        store: MemoryStore,
        reads: Arc<AtomicU64>,
        watches: Arc<AtomicU64>,
    }

    impl Store for Counted {
        async fn list_all(&self, selectors: &[String]) -> Result<Reading, StoreError> {
            self.reads.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(5)).await;
            self.store.list_all(selectors).await
        }

        async fn list_at(&self, selectors: &[String], revision: Revision) -> Result<Reading, StoreError> {
            self.store.list_at(selectors, revision).await
        }

        fn watch_all(
            &self,
            selectors: &[String],
            from: Revision,
        ) -> BoxStream<'static, Result<WatchItem, StoreError>> {
            self.watches.fetch_add(1, Ordering::SeqCst);
            self.store.watch_all(selectors, from)
        }

        async fn commit(&self, transaction: Transaction) -> Outcome {
            self.store.commit(transaction).await
        }

        async fn grant_lease(&self, ttl_seconds: i64) -> Result<LeaseId, StoreError> {
            self.store.grant_lease(ttl_seconds).await
        }

        async fn keep_alive(&self, lease: LeaseId) -> Result<i64, StoreError> {
            self.store.keep_alive(lease).await
        }

        async fn revoke_lease(&self, lease: LeaseId) -> Result<(), StoreError> {
            self.store.revoke_lease(lease).await
        }
    }

    async fn put(store: &impl Store, key: &str) -> Revision {
        let put = Transaction::new().put(key, Guard::Absent, Vec::new());
        store.commit(put).await.applied().expect("the key is new")
    }

    /// Returns a store with `k/a`, its counters, and a cache that has read it.
    async fn cached() -> (CachedStore<Counted>, Counted, Writer) {
        let counted = Counted::default();
        put(&counted, "k/a").await;
        let (reader, writer) = cache(Vec::new());
        let reading = counted.store.list("k/").await.expect("the store answers");
        writer.apply(&Item::Synced(reading));
        (CachedStore::new(counted.clone(), reader, "k/", "k/probe".to_owned()), counted, writer)
    }

    fn reads(counted: &Counted) -> u64 {
        counted.reads.load(Ordering::SeqCst)
    }

    #[tokio::test(start_paused = true)]
    async fn one_read_confirms_all_waiting_calls() {
        let (store, counted, _writer) = cached().await;
        let readings = futures::future::join_all((0..100).map(|_| store.list("k/"))).await;
        assert!(readings.iter().all(|reading| reading.as_ref().unwrap().entries.len() == 1));
        assert_eq!(reads(&counted), 2, "the first call, and all that came during its read");
    }

    #[tokio::test(start_paused = true)]
    async fn read_sees_writes_before_it_although_the_cache_lags() {
        let (store, counted, writer) = cached().await;
        let revision = put(&store, "k/b").await;
        let reading = store.list("k/").await.unwrap();
        assert_eq!((reading.entries.len(), reads(&counted)), (2, 2), "the store answers");
        let reading = counted.store.list("k/").await.unwrap();
        writer.apply(&Item::Synced(Reading { revision, ..reading }));
        assert_eq!(store.list("k/").await.unwrap().entries.len(), 2);
        assert_eq!(reads(&counted), 3, "only the confirmation");
    }

    #[tokio::test(start_paused = true)]
    async fn restored_store_is_read_until_the_cache_knows() {
        let (store, counted, writer) = cached().await;
        writer.apply(&Item::Progress(Revision(1000)));
        assert_eq!(store.list("k/").await.unwrap().revision, Revision(2));
        assert_eq!(reads(&counted), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn watches_share_the_watch_of_the_cache() {
        let (store, counted, writer) = cached().await;
        let mut watches: Vec<_> = (0..50).map(|_| store.watch("k/", Revision(3))).collect();
        for watch in &mut watches {
            assert_eq!(watch.next().await, Some(Ok(WatchItem::Progress(Revision(2)))));
        }
        let revision = put(&store, "k/b").await;
        let change = counted.store.list("k/b").await.unwrap().entries.remove(0);
        let changes = vec![crate::Change::Put(change)];
        writer.apply(&Item::Changes { changes: changes.clone(), revision });
        for watch in &mut watches {
            let expected = WatchItem::Changes { changes: changes.clone(), revision };
            assert_eq!(watch.next().await, Some(Ok(expected)));
        }
        assert_eq!(counted.watches.load(Ordering::SeqCst), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn older_changes_come_from_the_store_once() {
        let (store, counted, writer) = cached().await;
        let mut watch = store.watch("k/", Revision(1));
        let Some(Ok(WatchItem::Changes { changes, revision })) = watch.next().await else {
            panic!("no change")
        };
        assert_eq!((changes.len(), revision), (1, Revision(2)));
        assert_eq!(watch.next().await, Some(Ok(WatchItem::Progress(Revision(2)))));
        writer.apply(&Item::Progress(Revision(5)));
        assert_eq!(watch.next().await, Some(Ok(WatchItem::Progress(Revision(5)))), "from the cache");
        assert_eq!(counted.watches.load(Ordering::SeqCst), 1);
        writer.apply(&Item::Unavailable(StoreError::Unreachable("cut".to_owned())));
        assert_eq!(watch.next().await, Some(Err(StoreError::Unreachable("cut".to_owned()))));
    }
}
