//! Time since this process saw heartbeats and candidates change. The time is only displayed, and no decision depends on
//! it.

use futures::StreamExt;
use ha_api_types::id::Revision;
use ha_api_types::keys::Keys;
use ha_api_types::time::Millis;
use ha_store::reflector::{Item, Options, reflector};
use ha_store::{Change, Entry, Store};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
struct KeyObservation {
    revision: Revision,
    /// Time of the last change; `None` if the key has not changed since this process began to watch.
    changed: Option<Instant>,
}

/// Times of changes of keys, on this process's clock.
#[derive(Debug)]
pub(crate) struct Observer {
    observations: Mutex<BTreeMap<String, KeyObservation>>,
    since: Mutex<Option<Instant>>,
}

impl Observer {
    pub(crate) fn new() -> Observer {
        Observer { observations: Mutex::new(BTreeMap::new()), since: Mutex::new(None) }
    }

    /// Returns the time since a key changed; `None` if no change was seen.
    pub(crate) fn unchanged_ms(&self, key: &str) -> Option<Millis> {
        let changed = lock(&self.observations).get(key)?.changed?;
        Some(milliseconds(changed.elapsed()))
    }

    /// Returns the time since a controller refreshed its keys; `None` if no refresh was seen. Versions without
    /// `refresh/<id>` put the candidate key every Ki.
    pub(crate) fn controller_unchanged_ms(&self, keys: &Keys, id: &str) -> Option<Millis> {
        [keys.candidate(id), keys.refresh(id)].iter().filter_map(|key| self.unchanged_ms(key)).min()
    }

    /// Returns for how long this observer has been watching; `None` if it is not watching.
    pub(crate) fn watching_ms(&self) -> Option<Millis> {
        lock(&self.since).map(|since| milliseconds(since.elapsed()))
    }

    /// Watches until dropped.
    pub(crate) async fn run<S: Store + Clone>(&self, store: S, keys: &Keys) {
        let selectors = vec![keys.heartbeats(), keys.candidates(), keys.refreshes()];
        let (_refresher, mut items) = reflector(store, selectors, Options::default());
        while let Some(item) = items.next().await {
            match item {
                Item::Synced(reading) => {
                    lock(&self.since).get_or_insert_with(Instant::now);
                    let mut observations = lock(&self.observations);
                    observations.retain(|key, _| reading.entries.iter().any(|entry| entry.key == *key));
                    for entry in &reading.entries {
                        record_entry(&mut observations, entry, false);
                    }
                }
                Item::Changes { changes, revision: _ } => {
                    let mut observations = lock(&self.observations);
                    for change in &changes {
                        match change {
                            Change::Put(entry) => record_entry(&mut observations, entry, true),
                            Change::Delete { key, revision: _ } => {
                                observations.remove(key);
                            }
                        }
                    }
                }
                Item::Progress(_) | Item::Unavailable(_) => {}
            }
        }
    }
}

/// Records an entry. A key that is listed for the first time may be old; a key whose revision differs from the
/// recorded one has changed.
fn record_entry(observations: &mut BTreeMap<String, KeyObservation>, entry: &Entry, is_live: bool) {
    let observation = observations.get(&entry.key).copied();
    let changed = match observation {
        Some(observation) if observation.revision == entry.mod_revision => observation.changed,
        Some(_) => Some(Instant::now()),
        None => is_live.then(Instant::now),
    };
    observations.insert(entry.key.clone(), KeyObservation { revision: entry.mod_revision, changed });
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn milliseconds(length: Duration) -> Millis {
    Millis::try_from(length.as_millis()).unwrap_or(Millis::MAX)
}
