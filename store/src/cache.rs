//! The watch cache: one writer, fed by a reflector, and any number of readers, each with a snapshot and later updates.

use crate::reflector::{Item, Options, Refresher, reflector};
use crate::store::{Change, Store, StoreError, selects};
use crate::transaction::Entry;
use futures::StreamExt as _;
use ha_api_types::id::Revision;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;

/// Number of recent changes that are kept for readers that resume.
const MAX_RECENT_CHANGES: usize = 10_000;
/// Number of updates by which a subscriber may lag behind before it must start again from a snapshot.
const SUBSCRIBER_UPDATES: usize = 4096;

/// Changes, complete up to a revision. An empty update reports progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Changes in order of their revisions.
    pub changes: Vec<Change>,
    /// Revision up to which the update is complete.
    pub revision: Revision,
}

/// Content of the store at a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Entries, sorted by key.
    pub entries: Vec<Arc<Entry>>,
    /// Revision at which the content is complete.
    pub revision: Revision,
}

/// Reader of the cache. Clones are cheap.
///
/// Guarantees: a snapshot is the content of the store at the snapshot's revision. Caveats: the store may have changed
/// since. A caller that needs newer content requests a refresh ([`Refresher::request`]) and waits for a revision
/// ([`Reader::wait_for`]).
#[derive(Clone)]
pub struct Reader {
    shared: Arc<Shared>,
}

/// Writer of the cache; there is only one.
pub struct Writer {
    shared: Arc<Shared>,
}

struct Shared {
    view: RwLock<CachedState>,
    updates: broadcast::Sender<Arc<Update>>,
    /// Revision up to which the cache is complete; 0 until the first read.
    revision: watch::Sender<Revision>,
}

#[derive(Default)]
struct CachedState {
    entries: BTreeMap<String, Arc<Entry>>,
    revision: Revision,
    /// Recent changes, all later than `discarded_until`, the revision of the newest discarded change.
    recent: VecDeque<Change>,
    discarded_until: Revision,
    unavailable: Option<StoreError>,
}

/// Creates an empty cache.
pub fn cache() -> (Reader, Writer) {
    let (updates, _) = broadcast::channel(SUBSCRIBER_UPDATES);
    let (revision, _) = watch::channel(Revision::default());
    let shared = Arc::new(Shared { view: RwLock::new(CachedState::default()), updates, revision });
    (Reader { shared: shared.clone() }, Writer { shared })
}

/// Creates a cache of the keys under the selectors. A task keeps it up to date until the returned handle is aborted.
pub fn spawn_cache<S: Store + Clone>(
    store: S,
    selectors: Vec<String>,
) -> (Reader, Refresher, JoinHandle<()>) {
    let (reader, mut writer) = cache();
    let (refresher, mut items) = reflector(store, selectors, Options::default());
    let task = tokio::spawn(async move {
        while let Some(item) = items.next().await {
            writer.apply(item);
        }
    });
    (reader, refresher, task)
}

impl Writer {
    /// Applies an item of the reflector.
    pub fn apply(&mut self, item: Item) {
        let mut view = self.shared.view.write().unwrap_or_else(PoisonError::into_inner);
        let (changes, revision) = match item {
            Item::Synced(reading) => {
                let changes = view.replace(&reading.entries, reading.revision);
                (changes, reading.revision)
            }
            Item::Changes { changes, revision } => (changes, revision),
            Item::Progress(revision) => (Vec::new(), revision),
            Item::Unavailable(error) => {
                view.unavailable = Some(error);
                return;
            }
        };
        for change in &changes {
            view.apply(change.clone());
        }
        view.revision = revision;
        view.unavailable = None;
        // Sending fails if there are no subscribers. The update is sent under the lock, so that a subscriber receives
        // each change either in its snapshot or as a later update.
        let _ = self.shared.updates.send(Arc::new(Update { changes, revision }));
        self.shared.revision.send_replace(revision);
    }
}

impl CachedState {
    /// Returns the changes from this view to a complete read.
    fn replace(&mut self, entries: &[Entry], revision: Revision) -> Vec<Change> {
        if revision < self.revision || self.revision == Revision(0) {
            // After the first read, or after a restore of the store to an earlier state, the recent changes do not lead
            // to this reading.
            self.recent.clear();
            self.discarded_until = revision;
        }
        let new_entries: BTreeMap<&str, &Entry> =
            entries.iter().map(|entry| (entry.key.as_str(), entry)).collect();
        let deleted_keys = self.entries.keys().filter(|key| !new_entries.contains_key(key.as_str()));
        let mut changes: Vec<Change> =
            deleted_keys.map(|key| Change::Delete { key: key.clone(), revision }).collect();
        let is_known = |entry: &Entry| self.entries.get(&entry.key).is_some_and(|cached| **cached == *entry);
        changes.extend(entries.iter().filter(|entry| !is_known(entry)).cloned().map(Change::Put));
        changes.sort_by_key(Change::revision);
        changes
    }

    fn apply(&mut self, change: Change) {
        match &change {
            Change::Put(entry) => {
                self.entries.insert(entry.key.clone(), Arc::new(entry.clone()));
            }
            Change::Delete { key, .. } => {
                self.entries.remove(key);
            }
        }
        if change.revision() > self.discarded_until {
            self.recent.push_back(change);
        }
        while self.recent.len() > MAX_RECENT_CHANGES {
            if let Some(oldest) = self.recent.pop_front() {
                self.discarded_until = oldest.revision();
            }
        }
    }

    fn snapshot(&self, selector: &str) -> Snapshot {
        let entries = self
            .entries
            .range(selector.to_owned()..)
            .take_while(|(key, _)| key.starts_with(selector))
            .filter(|(key, _)| selects(selector, key))
            .map(|(_, entry)| entry.clone())
            .collect();
        Snapshot { entries, revision: self.revision }
    }
}

impl Reader {
    fn view(&self) -> RwLockReadGuard<'_, CachedState> {
        self.shared.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` after the first read.
    pub fn is_synced(&self) -> bool {
        self.revision() > Revision(0)
    }

    /// Returns the revision up to which the cache is complete; 0 before the first read.
    pub fn revision(&self) -> Revision {
        *self.shared.revision.borrow()
    }

    /// Returns the error if the store currently cannot be read.
    pub fn unavailable(&self) -> Option<StoreError> {
        self.view().unavailable.clone()
    }

    /// Returns the entry of a key.
    pub fn get(&self, key: &str) -> Option<Arc<Entry>> {
        self.view().entries.get(key).cloned()
    }

    /// Returns all entries under a selector, sorted by key.
    pub fn snapshot(&self, selector: &str) -> Snapshot {
        self.view().snapshot(selector)
    }

    /// Waits until the cache is complete up to a revision.
    pub async fn wait_for(&self, revision: Revision) {
        // The sender exists as long as this reader, so the wait cannot fail.
        let _ = self.shared.revision.subscribe().wait_for(|complete| *complete >= revision).await;
    }

    /// Returns a snapshot and a receiver of all later updates, without gaps or duplicates. If the subscriber lags too
    /// far behind, the channel returns `Lagged`, and the subscriber must subscribe again.
    pub fn subscribe(&self, selector: &str) -> (Snapshot, broadcast::Receiver<Arc<Update>>) {
        let view = self.view();
        let updates = self.shared.updates.subscribe();
        (view.snapshot(selector), updates)
    }

    /// Returns the changes under a selector after a revision, and a receiver of all later updates.
    ///
    /// Errors: [`StoreError::Compacted`] if changes after that revision are no longer kept; the caller must list
    /// again.
    pub fn subscribe_after(
        &self,
        selector: &str,
        revision: Revision,
    ) -> Result<(Update, broadcast::Receiver<Arc<Update>>), StoreError> {
        let view = self.view();
        if revision < view.discarded_until {
            return Err(StoreError::Compacted { oldest: view.discarded_until + 1 });
        }
        let updates = self.shared.updates.subscribe();
        let later = |change: &&Change| change.revision() > revision && selects(selector, change.key());
        let changes = view.recent.iter().filter(later).cloned().collect();
        Ok((Update { changes, revision: view.revision }, updates))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Reading;

    fn put(key: &str, mod_revision: Revision) -> Entry {
        Entry {
            key: key.to_owned(),
            value: [].into(),
            create_revision: Revision(2),
            mod_revision,
            lease: crate::LeaseId::NONE,
        }
    }

    fn synced(entries: Vec<Entry>, revision: Revision) -> Item {
        Item::Synced(Reading { entries, revision })
    }

    fn changed(changes: Vec<Change>, revision: Revision) -> Item {
        Item::Changes { changes, revision }
    }

    fn deleted(key: &str, revision: Revision) -> Change {
        Change::Delete { key: key.to_owned(), revision }
    }

    fn keys(snapshot: &Snapshot) -> Vec<&str> {
        snapshot.entries.iter().map(|entry| entry.key.as_str()).collect()
    }

    #[test]
    fn a_snapshot_and_later_changes_are_complete() {
        let (reader, mut writer) = cache();
        assert!(!reader.is_synced());
        writer.apply(synced(vec![put("a/1", Revision(3)), put("b/1", Revision(4))], Revision(5)));
        let (snapshot, mut updates) = reader.subscribe("a/");
        assert_eq!((keys(&snapshot), snapshot.revision), (vec!["a/1"], Revision(5)));
        writer.apply(changed(
            vec![Change::Put(put("a/2", Revision(6))), deleted("a/1", Revision(6))],
            Revision(6),
        ));
        writer.apply(Item::Progress(Revision(9)));
        assert_eq!(updates.try_recv().map(|update| update.changes.len()), Ok(2));
        assert_eq!(updates.try_recv().map(|update| update.revision), Ok(Revision(9)));
        assert_eq!(keys(&reader.snapshot("a/")), vec!["a/2"]);
        assert_eq!(reader.snapshot("").revision, Revision(9));
        assert_eq!(reader.get("a/1"), None);
    }

    #[test]
    fn new_listing_is_sent_as_changes() {
        let (reader, mut writer) = cache();
        writer.apply(synced(
            vec![put("a", Revision(3)), put("b", Revision(4)), put("c", Revision(4))],
            Revision(5),
        ));
        let (_, mut updates) = reader.subscribe("");
        writer.apply(synced(
            vec![put("a", Revision(7)), put("c", Revision(4)), put("d", Revision(6))],
            Revision(8),
        ));
        let update = updates.try_recv().expect("an update");
        let expected = vec![
            Change::Put(put("d", Revision(6))),
            Change::Put(put("a", Revision(7))),
            deleted("b", Revision(8)),
        ];
        assert_eq!((&update.changes, update.revision), (&expected, Revision(8)));
        assert_eq!(keys(&reader.snapshot("")), vec!["a", "c", "d"]);
    }

    #[test]
    fn reader_resumes_while_changes_are_retained() {
        let (reader, mut writer) = cache();
        writer.apply(synced(vec![put("a", Revision(3))], Revision(5)));
        writer.apply(changed(vec![Change::Put(put("b", Revision(6)))], Revision(6)));
        writer.apply(changed(vec![Change::Put(put("c", Revision(7)))], Revision(7)));
        let since = |revision| {
            let (update, _) = reader.subscribe_after("", revision)?;
            Ok(update.changes.iter().map(|change| change.key().to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(since(Revision(6)), Ok(vec!["c".to_owned()]));
        assert_eq!(since(Revision(5)), Ok(vec!["b".to_owned(), "c".to_owned()]));
        assert_eq!(since(Revision(7)), Ok(vec![]));
        assert_eq!(since(Revision(4)), Err(StoreError::Compacted { oldest: Revision(6) }));
    }

    #[test]
    fn cache_reports_an_outage_until_it_ends() {
        let (reader, mut writer) = cache();
        writer.apply(synced(vec![], Revision(5)));
        let error = StoreError::Unreachable("cut".to_owned());
        writer.apply(Item::Unavailable(error.clone()));
        assert_eq!(reader.unavailable(), Some(error));
        writer.apply(Item::Progress(Revision(5)));
        assert_eq!(reader.unavailable(), None);
    }
}
