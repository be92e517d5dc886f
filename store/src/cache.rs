//! The watch cache: one writer, fed by a reflector, and any number of readers, each with a snapshot and later updates.

use crate::recent::Recent;
use crate::reflector::Item;
use crate::store::{Change, Reading, StoreError, selects};
use crate::transaction::Entry;
use ha_api_types::id::Revision;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use tokio::sync::{broadcast, watch};

/// Number of recent changes that are kept for readers that resume.
const MAX_RECENT_CHANGES: usize = 10_000;
/// Number of updates by which a subscriber may lag behind before it must subscribe again.
const SUBSCRIBER_UPDATES: usize = 4096;

/// Changes, complete up to a revision. An empty update reports progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Changes in order of their revisions.
    pub changes: Vec<Change>,
    /// Revision up to which the update is complete.
    pub revision: Revision,
}

/// Receiver of the updates after a subscription. An error means that the cache no longer follows the store without
/// gaps. The subscriber must then read again.
pub type Updates = broadcast::Receiver<Result<Arc<Update>, StoreError>>;

/// Reader of the cache. Clones are cheap.
///
/// Guarantees: a reading is the content of the store at the reading's revision. Caveats: the store may have changed
/// since. A caller that needs newer content waits for a revision ([`Reader::wait_for`]).
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
    /// Selectors of keys whose changes are not kept for readers that resume.
    without_history: Vec<String>,
    updates: broadcast::Sender<Result<Arc<Update>, StoreError>>,
    /// Revision up to which the cache is complete; 0 if it does not follow the store.
    revision: watch::Sender<Revision>,
}

struct CachedState {
    entries: BTreeMap<String, Entry>,
    revision: Revision,
    recent: Recent<Change>,
}

/// Creates an empty cache. Changes of keys under the selectors `without_history` are not kept for readers that resume,
/// so that keys that change often do not displace the others.
pub fn cache(without_history: Vec<String>) -> (Reader, Writer) {
    let (updates, _) = broadcast::channel(SUBSCRIBER_UPDATES);
    let (revision, _) = watch::channel(Revision::default());
    let recent = Recent::new(MAX_RECENT_CHANGES, Change::revision);
    let view = RwLock::new(CachedState { entries: BTreeMap::new(), revision: Revision(0), recent });
    let shared = Arc::new(Shared { view, without_history, updates, revision });
    (Reader { shared: shared.clone() }, Writer { shared })
}

impl Writer {
    /// Applies an item of the reflector.
    pub fn apply(&self, item: &Item) {
        let mut view = self.shared.view.write().unwrap_or_else(PoisonError::into_inner);
        let (changes, revision) = match item {
            Item::Synced(reading) => {
                let changes = view.differences(&reading.entries, reading.revision);
                // The watch lost changes, or the store was restored to an earlier revision.
                let has_gap = reading.revision < view.revision
                    || changes.iter().any(|change| change.revision() <= view.revision);
                if has_gap {
                    let _ = self.shared.updates.send(Err(StoreError::Compacted { oldest: reading.revision }));
                }
                if has_gap || view.revision == Revision(0) {
                    view.recent.restart(reading.revision);
                }
                (changes, reading.revision)
            }
            Item::Changes { changes, revision } => (changes.clone(), *revision),
            Item::Progress(revision) => (Vec::new(), *revision),
            Item::Unavailable(error) => {
                let _ = self.shared.updates.send(Err(error.clone()));
                self.shared.revision.send_replace(Revision(0));
                return;
            }
        };
        for change in &changes {
            let is_kept = !self.shared.without_history.iter().any(|selector| selects(selector, change.key()));
            view.apply(change, is_kept);
        }
        view.revision = revision;
        // Sending fails if there are no subscribers. The update is sent under the lock, so that a subscriber receives
        // each change either in its snapshot or as a later update.
        let _ = self.shared.updates.send(Ok(Arc::new(Update { changes, revision })));
        self.shared.revision.send_replace(revision);
    }
}

impl CachedState {
    /// Returns the changes from this view to a complete read.
    fn differences(&self, entries: &[Entry], revision: Revision) -> Vec<Change> {
        let new_entries: BTreeMap<&str, &Entry> =
            entries.iter().map(|entry| (entry.key.as_str(), entry)).collect();
        let deleted_keys = self.entries.keys().filter(|key| !new_entries.contains_key(key.as_str()));
        let mut changes: Vec<Change> =
            deleted_keys.map(|key| Change::Delete { key: key.clone(), revision }).collect();
        let is_known = |entry: &Entry| self.entries.get(&entry.key) == Some(entry);
        changes.extend(entries.iter().filter(|entry| !is_known(entry)).cloned().map(Change::Put));
        changes.sort_by_key(Change::revision);
        changes
    }

    fn apply(&mut self, change: &Change, is_kept: bool) {
        match change {
            Change::Put(entry) => {
                self.entries.insert(entry.key.clone(), entry.clone());
            }
            Change::Delete { key, .. } => {
                self.entries.remove(key);
            }
        }
        if is_kept {
            self.recent.keep(change.clone());
        }
    }
}

impl Reader {
    fn view(&self) -> RwLockReadGuard<'_, CachedState> {
        self.shared.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the revision up to which the cache is complete; 0 if the cache does not follow the store: before the
    /// first read, and while the store cannot be watched.
    pub fn revision(&self) -> Revision {
        *self.shared.revision.borrow()
    }

    /// Returns all entries under the selectors, sorted by key.
    pub fn read(&self, selectors: &[String]) -> Reading {
        let view = self.view();
        let mut entries: Vec<Entry> =
            selectors.iter().flat_map(|selector| under(&view.entries, selector)).cloned().collect();
        if selectors.len() > 1 {
            entries.sort_unstable_by(|one, other| one.key.cmp(&other.key));
            entries.dedup_by(|one, other| one.key == other.key);
        }
        Reading { entries, revision: view.revision }
    }

    /// Waits until the cache is complete up to a revision.
    pub async fn wait_for(&self, revision: Revision) {
        // The sender exists as long as this reader, so the wait cannot fail.
        let _ = self.shared.revision.subscribe().wait_for(|complete| *complete >= revision).await;
    }

    /// Returns the changes under the selectors after a revision, and a receiver of all later updates, without gaps or
    /// duplicates. If the subscriber lags too far behind, the channel returns `Lagged`, and the subscriber must
    /// subscribe again.
    ///
    /// Errors: [`StoreError::Compacted`] if changes after that revision are not kept, or if the cache does not follow
    /// the store.
    pub fn subscribe(
        &self,
        selectors: &[String],
        revision: Revision,
    ) -> Result<(Update, Updates), StoreError> {
        let view = self.view();
        let history_overlaps = |kept: &String| {
            selectors.iter().any(|selector| kept.starts_with(selector) || selector.starts_with(kept))
        };
        let has_history = !self.shared.without_history.iter().any(history_overlaps);
        let is_current = revision >= view.revision;
        let is_usable = self.revision() > Revision(0) && (has_history || is_current);
        let Some(changes) = view.recent.after(revision).filter(|_| is_usable) else {
            return Err(StoreError::Compacted { oldest: view.recent.discarded_until() + 1 });
        };
        let update = Update { changes: selected(changes, selectors, revision), revision: view.revision };
        Ok((update, self.shared.updates.subscribe()))
    }
}

/// Returns the entries under a selector.
fn under<'a>(
    entries: &'a BTreeMap<String, Entry>,
    selector: &'a str,
) -> impl Iterator<Item = &'a Entry> + use<'a> {
    entries
        .range::<str, _>((std::ops::Bound::Included(selector), std::ops::Bound::Unbounded))
        .take_while(move |(key, _)| key.starts_with(selector))
        .filter(move |(key, _)| selects(selector, key))
        .map(|(_, entry)| entry)
}

/// Returns the changes under the selectors after a revision.
pub(crate) fn selected<'a>(
    changes: impl Iterator<Item = &'a Change>,
    selectors: &[String],
    after: Revision,
) -> Vec<Change> {
    let is_selected = |change: &&Change| {
        change.revision() > after && selectors.iter().any(|selector| selects(selector, change.key()))
    };
    changes.filter(is_selected).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, mod_revision: i64) -> Entry {
        Entry {
            key: key.to_owned(),
            value: [].into(),
            create_revision: Revision(2),
            mod_revision: Revision(mod_revision),
            lease: crate::LeaseId::NONE,
        }
    }

    fn synced(entries: Vec<Entry>, revision: i64) -> Item {
        Item::Synced(Reading { entries, revision: Revision(revision) })
    }

    fn changed(changes: Vec<Change>, revision: i64) -> Item {
        Item::Changes { changes, revision: Revision(revision) }
    }

    fn deleted(key: &str, revision: i64) -> Change {
        Change::Delete { key: key.to_owned(), revision: Revision(revision) }
    }

    fn selectors(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn keys(reader: &Reader, texts: &[&str]) -> String {
        let reading = reader.read(&selectors(texts));
        reading.entries.into_iter().map(|entry| entry.key).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn readings_and_later_changes_are_complete() {
        let (reader, writer) = cache(Vec::new());
        assert_eq!(reader.revision(), Revision(0));
        assert!(reader.subscribe(&selectors(&["a/"]), Revision(0)).is_err(), "nothing was read yet");
        writer.apply(&synced(vec![put("a/1", 3), put("b/1", 4), put("c", 4)], 5));
        assert_eq!((keys(&reader, &["a/"]), reader.revision()), ("a/1".to_owned(), Revision(5)));
        assert_eq!(keys(&reader, &["c", "a/", "", "b/1"]), "a/1 b/1 c");
        let (update, mut updates) = reader.subscribe(&selectors(&["a/"]), Revision(5)).unwrap();
        assert_eq!(update, Update { changes: Vec::new(), revision: Revision(5) });
        writer.apply(&changed(vec![Change::Put(put("a/2", 6)), deleted("a/1", 6)], 6));
        writer.apply(&Item::Progress(Revision(9)));
        assert_eq!(updates.try_recv().unwrap().map(|update| update.changes.len()), Ok(2));
        assert_eq!(updates.try_recv().unwrap().map(|update| update.revision), Ok(Revision(9)));
        assert_eq!(keys(&reader, &["a/"]), "a/2");
        assert_eq!(reader.read(&selectors(&[""])).revision, Revision(9));
    }

    #[test]
    fn new_listing_is_sent_as_changes() {
        let (reader, writer) = cache(Vec::new());
        writer.apply(&synced(vec![put("a", 3), put("b", 4), put("c", 4)], 5));
        let (_, mut updates) = reader.subscribe(&selectors(&[""]), Revision(5)).unwrap();
        writer.apply(&synced(vec![put("a", 7), put("c", 4), put("d", 6)], 8));
        let update = updates.try_recv().unwrap().unwrap();
        let expected = vec![Change::Put(put("d", 6)), Change::Put(put("a", 7)), deleted("b", 8)];
        assert_eq!((&update.changes, update.revision), (&expected, Revision(8)));
        assert_eq!(keys(&reader, &[""]), "a c d");
    }

    #[test]
    fn reader_resumes_while_changes_are_retained() {
        let (reader, writer) = cache(selectors(&["alive/"]));
        writer.apply(&synced(vec![put("a", 3)], 5));
        writer.apply(&changed(vec![Change::Put(put("b", 6)), Change::Put(put("alive/n", 6))], 6));
        writer.apply(&changed(vec![Change::Put(put("c", 7))], 7));
        let since = |selector: &str, revision| {
            let (update, _) = reader.subscribe(&selectors(&[selector]), Revision(revision)).ok()?;
            let keys: Vec<String> = update.changes.iter().map(|change| change.key().to_owned()).collect();
            Some(keys.join(" "))
        };
        assert_eq!(since("b", 5).as_deref(), Some("b"));
        assert_eq!(since("c", 5).as_deref(), Some("c"));
        assert_eq!(since("c", 7).as_deref(), Some(""));
        assert_eq!(since("a", 4), None, "before the first read");
        assert_eq!(since("alive/", 5), None, "no history");
        assert_eq!(since("", 5), None, "no history of a part");
        assert_eq!(since("alive/n", 7).as_deref(), Some(""));
    }

    #[test]
    fn outage_ends_subscriptions_and_readings_until_the_next_item() {
        let (reader, writer) = cache(Vec::new());
        writer.apply(&synced(vec![], 5));
        let (_, mut updates) = reader.subscribe(&selectors(&[""]), Revision(5)).unwrap();
        let error = StoreError::Unreachable("cut".to_owned());
        writer.apply(&Item::Unavailable(error.clone()));
        assert_eq!(updates.try_recv().unwrap(), Err(error));
        assert_eq!(reader.revision(), Revision(0));
        assert!(reader.subscribe(&selectors(&[""]), Revision(5)).is_err());
        writer.apply(&Item::Progress(Revision(5)));
        assert_eq!(reader.revision(), Revision(5));
    }

    #[test]
    fn changes_that_the_watch_lost_end_subscriptions() {
        let (reader, writer) = cache(Vec::new());
        writer.apply(&synced(vec![put("a", 3)], 5));
        writer.apply(&Item::Progress(Revision(8)));
        let (_, mut updates) = reader.subscribe(&selectors(&[""]), Revision(8)).unwrap();
        writer.apply(&synced(vec![put("a", 3), put("lost", 7)], 9));
        assert_eq!(updates.try_recv().unwrap(), Err(StoreError::Compacted { oldest: Revision(9) }));
        assert_eq!(keys(&reader, &[""]), "a lost");
    }

    #[test]
    fn restored_store_ends_subscriptions_and_history() {
        let (reader, writer) = cache(Vec::new());
        writer.apply(&synced(vec![put("a", 3), put("b", 9)], 9));
        let (_, mut updates) = reader.subscribe(&selectors(&[""]), Revision(9)).unwrap();
        writer.apply(&synced(vec![put("a", 3)], 5));
        assert_eq!(updates.try_recv().unwrap(), Err(StoreError::Compacted { oldest: Revision(5) }));
        assert_eq!((keys(&reader, &[""]), reader.revision()), ("a".to_owned(), Revision(5)));
        assert!(reader.subscribe(&selectors(&[""]), Revision(4)).is_err());
    }
}
