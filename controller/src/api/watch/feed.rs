//! The changes of the objects of one kind, which all watches of the kind share.

use super::table::{ObjectChange, ObjectTable};
use crate::api::lock;
use crate::api::read::{self, StoredKeys};
use futures::StreamExt;
use ha_api_types::id::Revision;
use ha_api_types::keys::Keys;
use ha_api_types::kind::Kind;
use ha_store::recent::Recent;
use ha_store::reflector::{Item, Options, reflector};
use ha_store::{Store, StoreError};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{broadcast, watch};

/// Number of recent changes of objects that are kept for watches that resume.
const MAX_RECENT_CHANGES: usize = 10_000;
/// Number of updates by which a watch may lag behind before it must resume.
const SUBSCRIBER_UPDATES: usize = 1024;
/// Maximum time that a watch waits for the feed. Then it reads the store itself.
const FEED_LAG_LIMIT: Duration = Duration::from_millis(50);

/// Changes of objects, complete up to a revision.
#[derive(Clone)]
pub(super) struct FeedUpdate {
    pub(super) changes: Vec<Arc<ObjectChange>>,
    pub(super) revision: Revision,
}

/// Receiver of the updates of a feed. After an error, the client must list again.
pub(super) type FeedUpdates = broadcast::Receiver<Result<Arc<FeedUpdate>, StoreError>>;

/// Start of a watch: its objects or missed changes, and the receiver of the later changes.
pub(super) struct Subscription {
    /// All objects, if the watch begins with them.
    pub(super) objects: Vec<Arc<StoredKeys>>,
    /// Changes after the revision from which the watch resumes.
    pub(super) update: FeedUpdate,
    pub(super) updates: FeedUpdates,
    pub(super) progress: Progress,
}

/// Revision up to which the feed is complete. Most changes of the store, such as heartbeats, concern no object. They do
/// not wake the watches, which ask for the progress before they send a bookmark.
pub(super) struct Progress(watch::Receiver<Revision>);

impl Progress {
    /// Returns the revision up to which a watch has received all changes; `None` if it must receive others first.
    pub(super) fn reached(&self, updates: &FeedUpdates) -> Option<Revision> {
        // The feed sends changes before it reports their revision.
        let revision = *self.0.borrow();
        (revision > Revision(0) && updates.is_empty()).then_some(revision)
    }
}

/// The feed of one kind.
pub(crate) struct ObjectFeed {
    kind: Kind,
    state: Mutex<Option<FeedState>>,
    updates: broadcast::Sender<Result<Arc<FeedUpdate>, StoreError>>,
    /// Revision up to which the feed is complete; 0 if it does not follow the store.
    revision: watch::Sender<Revision>,
}

struct FeedState {
    table: ObjectTable,
    revision: Revision,
    recent: Recent<Arc<ObjectChange>>,
}

impl ObjectFeed {
    /// Creates a feed that does not follow the store yet.
    pub(crate) fn new(kind: Kind) -> ObjectFeed {
        let (updates, _) = broadcast::channel(SUBSCRIBER_UPDATES);
        let (revision, _) = watch::channel(Revision(0));
        ObjectFeed { kind, state: Mutex::new(None), updates, revision }
    }

    /// Follows the store until dropped.
    pub(crate) async fn run<S: Store + Clone>(&self, store: S, keys: &Keys) {
        let selectors = read::selectors(keys, self.kind).to_vec();
        let (_refresher, mut items) = reflector(store, selectors, Options::without_comparison());
        while let Some(item) = items.next().await {
            self.apply(keys, item);
        }
    }

    fn apply(&self, keys: &Keys, item: Item) {
        let mut state = lock(&self.state);
        let revision = match (item, &mut *state) {
            (Item::Synced(reading), state) => {
                // Watches cannot continue: the reading does not say which changes led to it.
                let _ = self.updates.send(Err(StoreError::Compacted { oldest: reading.revision }));
                let table = ObjectTable::new(self.kind, keys.clone(), &reading.entries, false);
                let mut recent =
                    Recent::new(MAX_RECENT_CHANGES, |change: &Arc<ObjectChange>| change.revision);
                recent.restart(reading.revision);
                *state = Some(FeedState { table, revision: reading.revision, recent });
                reading.revision
            }
            (Item::Changes { changes, revision }, Some(state)) => {
                let changes = state.table.apply(&changes);
                changes.iter().cloned().for_each(|change| state.recent.keep(change));
                // Sending fails if there are no watches. The update is sent under the lock, so that a subscription
                // has each change, or receives it later.
                let _ = self.updates.send(Ok(Arc::new(FeedUpdate { changes, revision })));
                revision
            }
            (Item::Progress(revision), Some(_)) => revision,
            (Item::Unavailable(error), _) => {
                let _ = self.updates.send(Err(error));
                self.revision.send_replace(Revision(0));
                return;
            }
            (Item::Changes { .. } | Item::Progress(_), None) => return,
        };
        if let Some(state) = &mut *state {
            state.revision = revision;
        }
        self.revision.send_replace(revision);
    }

    /// Begins a watch with all objects, or after a revision. `present` is a revision that the store has reached.
    /// Returns `None` if the feed lags behind, or does not have all changes after the revision.
    pub(super) async fn subscribe(&self, from: Option<Revision>, present: Revision) -> Option<Subscription> {
        if *self.revision.borrow() == Revision(0) {
            return None;
        }
        let mut revision = self.revision.subscribe();
        let reached = revision.wait_for(|complete| *complete >= present);
        // The sender exists as long as this feed, so only the time limit ends the wait.
        let _ = tokio::time::timeout(FEED_LAG_LIMIT, reached).await.ok()?;
        let state = lock(&self.state);
        let state = state.as_ref()?;
        let after = from.unwrap_or(state.revision);
        if *self.revision.borrow() == Revision(0) {
            return None;
        }
        let changes = state.recent.after(after)?.cloned().collect();
        let objects = if from.is_none() { state.table.objects().cloned().collect() } else { Vec::new() };
        let update = FeedUpdate { changes, revision: state.revision.max(after) };
        let progress = Progress(self.revision.subscribe());
        Some(Subscription { objects, update, updates: self.updates.subscribe(), progress })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_store::{Change, Entry, Reading};

    const KIND: Kind = Kind::Resource;

    fn keys() -> Keys {
        Keys::new("c")
    }

    fn entry(name: &str, create: i64, revision: i64) -> Entry {
        Entry {
            key: keys().spec(KIND, name),
            value: br#"{"metadata": {}}"#.as_slice().into(),
            create_revision: Revision(create),
            mod_revision: Revision(revision),
            lease: ha_store::LeaseId::NONE,
        }
    }

    fn synced(names: &[&str], revision: i64) -> Item {
        let entries = names.iter().map(|name| entry(name, 2, 2)).collect();
        Item::Synced(Reading { entries, revision: Revision(revision) })
    }

    fn changed(name: &str, create: i64, revision: i64) -> Item {
        let changes = vec![Change::Put(entry(name, create, revision))];
        Item::Changes { changes, revision: Revision(revision) }
    }

    /// Returns a subscription as text: names of the objects, names of the changes, and the revision.
    async fn subscribe(feed: &ObjectFeed, from: Option<i64>, present: i64) -> Option<String> {
        let subscription = feed.subscribe(from.map(Revision), Revision(present)).await?;
        let name = |stored: &Arc<StoredKeys>| stored.spec.key.rsplit('/').next().unwrap_or("").to_owned();
        let objects: Vec<String> = subscription.objects.iter().map(name).collect();
        let FeedUpdate { changes, revision } = subscription.update;
        let changes: Vec<&str> = changes.iter().map(|change| change.name.as_str()).collect();
        Some(format!("{} | {} | {revision}", objects.join(" "), changes.join(" ")))
    }

    #[tokio::test(start_paused = true)]
    async fn watch_begins_with_all_objects_or_resumes() {
        let feed = ObjectFeed::new(KIND);
        assert_eq!(subscribe(&feed, None, 1).await, None, "nothing was read yet");
        feed.apply(&keys(), synced(&["a"], 5));
        feed.apply(&keys(), changed("b", 6, 6));
        feed.apply(&keys(), changed("a", 2, 7));
        feed.apply(&keys(), Item::Progress(Revision(9)));
        assert_eq!(subscribe(&feed, None, 9).await.as_deref(), Some("a b |  | 9"));
        assert_eq!(subscribe(&feed, Some(5), 9).await.as_deref(), Some(" | b a | 9"));
        assert_eq!(subscribe(&feed, Some(6), 9).await.as_deref(), Some(" | a | 9"));
        assert_eq!(subscribe(&feed, Some(9), 9).await.as_deref(), Some(" |  | 9"));
        assert_eq!(subscribe(&feed, Some(4), 9).await, None, "older than the changes that were kept");
        assert_eq!(subscribe(&feed, None, 10).await, None, "the feed lags behind");
    }

    #[tokio::test(start_paused = true)]
    async fn updates_follow_a_subscription_without_gap() {
        let feed = ObjectFeed::new(KIND);
        feed.apply(&keys(), synced(&["a"], 5));
        let mut updates = feed.subscribe(None, Revision(5)).await.unwrap().updates;
        feed.apply(&keys(), changed("b", 6, 6));
        let update = updates.recv().await.unwrap().unwrap();
        assert_eq!((update.changes.len(), update.revision), (1, Revision(6)));
        feed.apply(&keys(), synced(&["a"], 8));
        assert_eq!(updates.recv().await.unwrap().err(), Some(StoreError::Compacted { oldest: Revision(8) }));
        assert_eq!(subscribe(&feed, Some(6), 8).await, None, "the changes up to this reading are unknown");
    }

    #[tokio::test(start_paused = true)]
    async fn changes_without_objects_advance_the_progress_and_wake_no_watch() {
        let feed = ObjectFeed::new(KIND);
        feed.apply(&keys(), synced(&["a"], 5));
        let Subscription { mut updates, progress, .. } = feed.subscribe(None, Revision(5)).await.unwrap();
        feed.apply(&keys(), Item::Progress(Revision(9)));
        assert!(updates.try_recv().is_err());
        assert_eq!(progress.reached(&updates), Some(Revision(9)));
        feed.apply(&keys(), changed("b", 10, 10));
        assert_eq!(progress.reached(&updates), None, "the change was not received yet");
        updates.recv().await.unwrap().unwrap();
        assert_eq!(progress.reached(&updates), Some(Revision(10)));
    }

    #[tokio::test(start_paused = true)]
    async fn outage_ends_watches() {
        let feed = ObjectFeed::new(KIND);
        feed.apply(&keys(), synced(&["a"], 5));
        let mut updates = feed.subscribe(None, Revision(5)).await.unwrap().updates;
        let error = StoreError::Unreachable("cut".to_owned());
        feed.apply(&keys(), Item::Unavailable(error.clone()));
        assert_eq!(updates.recv().await.unwrap().err(), Some(error));
        assert_eq!(subscribe(&feed, None, 5).await, None);
        feed.apply(&keys(), Item::Progress(Revision(6)));
        assert_eq!(subscribe(&feed, None, 6).await.as_deref(), Some("a |  | 6"));
    }
}
