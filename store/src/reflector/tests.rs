//! Tests of the reflector with a store that returns wrong data, fails and falls behind.

use super::*;
use crate::memory::MemoryStore;
use crate::transaction::{Guard, LeaseId, Outcome, Transaction};
use std::sync::Mutex;

/// The in-memory store, with reads and watches that can be made to fail.
#[derive(Clone, Default)]
struct FaultyStore {
    store: MemoryStore,
    faults: Arc<Mutex<Faults>>,
}

#[derive(Default)]
struct Faults {
    /// Number of next listings that fail.
    lists_failing: u32,
    /// Key whose changes are not reported.
    hidden_key: Option<String>,
    /// `true` to report every item twice.
    is_doubled: bool,
    lists: u32,
    watches: Vec<Revision>,
    /// Ends all open watches when notified.
    watch_interruption: Arc<Notify>,
    /// If set, listings wait for this.
    held: Option<Arc<Notify>>,
}

impl FaultyStore {
    fn with<T>(&self, act: impl FnOnce(&mut Faults) -> T) -> T {
        act(&mut self.faults.lock().expect("not poisoned"))
    }

    async fn put(&self, key: &str) -> Revision {
        let entries = self.store.get(key).await.expect("in memory").entries;
        let guard = entries.first().map_or(Guard::Absent, |entry| Guard::Unchanged(entry.mod_revision));
        let outcome = self.store.commit(Transaction::new().put(key, guard, vec![1])).await;
        outcome.applied().expect("applied")
    }
}

impl Store for FaultyStore {
    async fn list_all(&self, selectors: &[String]) -> Result<Reading, StoreError> {
        let (fails, held) = self.with(|faults| {
            faults.lists += 1;
            let fails = faults.lists_failing > 0;
            faults.lists_failing = faults.lists_failing.saturating_sub(1);
            (fails, faults.held.clone())
        });
        if fails {
            return Err(StoreError::Unreachable("told to fail".to_owned()));
        }
        let reading = self.store.list_all(selectors).await;
        if let Some(held) = held {
            held.notified().await;
        }
        reading
    }

    async fn list_at(&self, selectors: &[String], revision: Revision) -> Result<Reading, StoreError> {
        self.store.list_at(selectors, revision).await
    }

    fn watch_all(
        &self,
        selectors: &[String],
        from: Revision,
    ) -> BoxStream<'static, Result<WatchItem, StoreError>> {
        let watch_interruption = self.with(|faults| {
            faults.watches.push(from);
            faults.watch_interruption.clone()
        });
        let faulty = self.clone();
        let mut items = self.store.watch_all(selectors, from);
        async_stream::stream! {
            loop {
                let item = tokio::select! {
                    item = items.next() => item,
                    () = watch_interruption.notified() => Some(Err(StoreError::Unreachable("cut".to_owned()))),
                };
                let Some(item) = item else { return };
                let (hidden_key, is_doubled) = faulty.with(|faults| (faults.hidden_key.clone(), faults.is_doubled));
                let item = item.map(|item| without(item, hidden_key.as_deref()));
                let failed = item.is_err();
                yield item.clone();
                if is_doubled {
                    yield item;
                }
                if failed {
                    return;
                }
            }
        }
        .boxed()
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

fn without(item: WatchItem, hidden_key: Option<&str>) -> WatchItem {
    match item {
        WatchItem::Changes { mut changes, revision } => {
            changes.retain(|change| Some(change.key()) != hidden_key);
            WatchItem::Changes { changes, revision }
        }
        WatchItem::Progress(revision) => WatchItem::Progress(revision),
    }
}

fn start(faulty: &FaultyStore) -> (Refresher, BoxStream<'static, Item>) {
    reflector(faulty.clone(), vec!["a/".to_owned(), "b".to_owned()], Options::default())
}

async fn synced(items: &mut BoxStream<'static, Item>) -> (Vec<String>, Revision) {
    loop {
        if let Item::Synced(reading) = items.next().await.expect("a reflector does not end") {
            return (reading.entries.into_iter().map(|entry| entry.key).collect(), reading.revision);
        }
    }
}

async fn changed(items: &mut BoxStream<'static, Item>) -> Vec<(String, Revision)> {
    loop {
        if let Item::Changes { changes, .. } = items.next().await.expect("a reflector does not end") {
            return changes.iter().map(|change| (change.key().to_owned(), change.revision())).collect();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn reflector_sends_listing_then_every_change() {
    let faulty = FaultyStore::default();
    let first = faulty.put("a/1").await;
    let (_refresher, mut items) = start(&faulty);
    assert_eq!(synced(&mut items).await, (vec!["a/1".to_owned()], first));
    let second = faulty.put("b").await;
    faulty.put("c").await;
    let third = faulty.put("a/1").await;
    assert_eq!(changed(&mut items).await, vec![("b".to_owned(), second)]);
    assert_eq!(changed(&mut items).await, vec![("a/1".to_owned(), third)]);
}

#[tokio::test(start_paused = true)]
async fn reflector_reports_and_retries_etcd_failures() {
    let faulty = FaultyStore::default();
    faulty.with(|faults| faults.lists_failing = 3);
    let (_refresher, mut items) = start(&faulty);
    for _ in 0..3 {
        assert!(matches!(items.next().await, Some(Item::Unavailable(_))));
    }
    assert!(matches!(items.next().await, Some(Item::Synced(_))));
}

#[tokio::test(start_paused = true)]
async fn a_broken_watch_resumes_after_the_last_change() {
    let faulty = FaultyStore::default();
    let (_refresher, mut items) = start(&faulty);
    synced(&mut items).await;
    let first = faulty.put("a/1").await;
    changed(&mut items).await;
    faulty.with(|faults| faults.watch_interruption.notify_one());
    assert!(matches!(items.next().await, Some(Item::Unavailable(_))));
    let second = faulty.put("a/2").await;
    assert_eq!(changed(&mut items).await, vec![("a/2".to_owned(), second)]);
    assert_eq!(faulty.with(|faults| (faults.lists, faults.watches.last().copied())), (1, Some(first + 1)));
}

#[tokio::test(start_paused = true)]
async fn reflector_lists_again_after_compaction() {
    let faulty = FaultyStore::default();
    let (_refresher, mut items) = start(&faulty);
    synced(&mut items).await;
    faulty.with(|faults| faults.watch_interruption.notify_one());
    assert!(matches!(items.next().await, Some(Item::Unavailable(_))));
    faulty.put("a/1").await;
    let last = faulty.put("a/2").await;
    faulty.store.compact(last);
    assert_eq!(synced(&mut items).await, (vec!["a/1".to_owned(), "a/2".to_owned()], last));
    let after = faulty.put("a/3").await;
    assert_eq!(changed(&mut items).await, vec![("a/3".to_owned(), after)]);
}

#[tokio::test(start_paused = true)]
async fn duplicate_events_are_yielded_once() {
    let faulty = FaultyStore::default();
    faulty.with(|faults| faults.is_doubled = true);
    let (_refresher, mut items) = start(&faulty);
    synced(&mut items).await;
    let first = faulty.put("a/1").await;
    assert_eq!(changed(&mut items).await, vec![("a/1".to_owned(), first)]);
    let second = faulty.put("a/2").await;
    assert_eq!(changed(&mut items).await, vec![("a/2".to_owned(), second)]);
}

#[tokio::test(start_paused = true)]
async fn comparison_with_listing_detects_lost_event() {
    let faulty = FaultyStore::default();
    let (_refresher, mut items) = start(&faulty);
    synced(&mut items).await;
    faulty.with(|faults| faults.hidden_key = Some("a/lost".to_owned()));
    let revision = faulty.put("a/lost").await;
    assert_eq!(synced(&mut items).await, (vec!["a/lost".to_owned()], revision));
}

#[tokio::test(start_paused = true)]
async fn comparison_without_difference_yields_only_progress() {
    let faulty = FaultyStore::default();
    let (_refresher, mut items) = start(&faulty);
    synced(&mut items).await;
    let before = faulty.with(|faults| faults.lists);
    while faulty.with(|faults| faults.lists) < before + 3 {
        assert!(matches!(items.next().await, Some(Item::Progress(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refresh_is_not_older_than_its_request() {
    let faulty = FaultyStore::default();
    let (refresher, mut items) = start(&faulty);
    synced(&mut items).await;
    // A listing that was read before the request is still in progress: it does not answer the request.
    let held = Arc::new(Notify::new());
    faulty.with(|faults| faults.held = Some(held.clone()));
    let first = refresher.request();
    tokio::time::timeout(Duration::from_millis(10), items.next()).await.expect_err("nothing yet");
    faulty.with(|faults| faults.hidden_key = Some("a/new".to_owned()));
    let revision = faulty.put("a/new").await;
    let second = refresher.request();
    assert!(matches!(items.next().await, Some(Item::Progress(_))));
    faulty.with(|faults| faults.held = None);
    held.notify_one();
    assert_eq!(synced(&mut items).await.0, Vec::<String>::new());
    assert_eq!(refresher.answered(), first);
    assert_eq!(synced(&mut items).await, (vec!["a/new".to_owned()], revision));
    assert_eq!(refresher.answered(), second);
}

#[tokio::test(start_paused = true)]
async fn refresh_completes_when_etcd_is_readable() {
    let faulty = FaultyStore::default();
    let (refresher, mut items) = start(&faulty);
    synced(&mut items).await;
    faulty.with(|faults| faults.lists_failing = 2);
    let number = refresher.request();
    assert!(matches!(items.next().await, Some(Item::Unavailable(_))));
    assert!(matches!(items.next().await, Some(Item::Unavailable(_))));
    synced(&mut items).await;
    assert_eq!(refresher.answered(), number);
}

#[tokio::test(start_paused = true)]
async fn a_slow_listing_keeps_watched_changes() {
    let faulty = FaultyStore::default();
    let (refresher, mut items) = start(&faulty);
    synced(&mut items).await;
    let held = Arc::new(Notify::new());
    faulty.with(|faults| faults.held = Some(held.clone()));
    refresher.request();
    tokio::time::timeout(Duration::from_millis(10), items.next()).await.expect_err("nothing yet");
    let revision = faulty.put("a/1").await;
    assert_eq!(changed(&mut items).await, vec![("a/1".to_owned(), revision)]);
    held.notify_one();
    assert_eq!(synced(&mut items).await, (vec!["a/1".to_owned()], revision));
}

#[tokio::test(start_paused = true)]
async fn restored_etcd_replaces_the_view() {
    let faulty = FaultyStore::default();
    faulty.put("a/1").await;
    faulty.put("a/2").await;
    let (_refresher, mut items) = start(&faulty);
    synced(&mut items).await;
    let restored = MemoryStore::new();
    let older = FaultyStore { store: restored, faults: faulty.faults.clone() };
    let revision = older.put("a/0").await;
    let replaceable = ReplaceableStore { current: Arc::new(Mutex::new(faulty)) };
    let (refresher, mut items) = reflector(replaceable.clone(), vec!["a/".to_owned()], Options::default());
    synced(&mut items).await;
    *replaceable.current.lock().expect("not poisoned") = older.clone();
    refresher.request();
    assert_eq!(synced(&mut items).await, (vec!["a/0".to_owned()], revision));
    let next = older.put("a/3").await;
    assert_eq!(changed(&mut items).await, vec![("a/3".to_owned(), next)]);
}

/// A store that is replaced while it is in use, as by a restore of a backup.
#[derive(Clone)]
struct ReplaceableStore {
    current: Arc<Mutex<FaultyStore>>,
}

impl ReplaceableStore {
    fn store(&self) -> FaultyStore {
        self.current.lock().expect("not poisoned").clone()
    }
}

impl Store for ReplaceableStore {
    async fn list_all(&self, selectors: &[String]) -> Result<Reading, StoreError> {
        self.store().list_all(selectors).await
    }

    async fn list_at(&self, selectors: &[String], revision: Revision) -> Result<Reading, StoreError> {
        self.store().list_at(selectors, revision).await
    }

    fn watch_all(
        &self,
        selectors: &[String],
        from: Revision,
    ) -> BoxStream<'static, Result<WatchItem, StoreError>> {
        self.store().watch_all(selectors, from)
    }

    async fn commit(&self, transaction: Transaction) -> Outcome {
        self.store().commit(transaction).await
    }

    async fn grant_lease(&self, ttl_seconds: i64) -> Result<LeaseId, StoreError> {
        self.store().grant_lease(ttl_seconds).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<i64, StoreError> {
        self.store().keep_alive(lease).await
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.store().revoke_lease(lease).await
    }
}
