//! Time since this process saw heartbeats and candidates change, and the addresses of the candidates. The time is only
//! displayed, and no decision depends on it.

use super::lock;
use axum::http::Uri;
use futures::StreamExt;
use ha_api_types::id::{ControllerId, Revision};
use ha_api_types::keys::{Key, Keys};
use ha_api_types::record::Candidate;
use ha_api_types::time::{Millis, MonotonicTime};
use ha_runtime::clock::Clock;
use ha_store::reflector::{Item, Options, reflector};
use ha_store::{Change, Entry, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

#[derive(Clone, Copy, Debug)]
struct KeyObservation {
    revision: Revision,
    /// Time of the last change; `None` if the key has not changed since this process began to watch.
    changed: Option<MonotonicTime>,
}

/// Times of changes of keys, on this process's clock.
pub(crate) struct Observer {
    clock: Arc<dyn Clock>,
    observations: Mutex<BTreeMap<String, KeyObservation>>,
    since: Mutex<Option<MonotonicTime>>,
    /// Origin of each controller's API, by the candidate key.
    origins: Mutex<BTreeMap<String, String>>,
}

impl Observer {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Observer {
        Observer {
            clock,
            observations: Mutex::new(BTreeMap::new()),
            since: Mutex::new(None),
            origins: Mutex::new(BTreeMap::new()),
        }
    }

    /// Returns the origins of all controllers whose API uses TLS, such as `https://c1:7443`.
    pub(crate) fn controller_origins(&self) -> BTreeSet<String> {
        lock(&self.origins).values().cloned().collect()
    }

    /// Returns an observer that has seen controllers with these origins.
    #[cfg(test)]
    pub(crate) fn of_origins(origins: &[&str]) -> Observer {
        let observer = Observer::new(Arc::new(ha_runtime::clock::SystemClock::default()));
        *lock(&observer.origins) =
            origins.iter().map(|origin| ((*origin).to_owned(), (*origin).to_owned())).collect();
        observer
    }

    /// Returns the time since a key changed; `None` if no change was seen.
    pub(crate) fn unchanged_ms(&self, key: &str) -> Option<Millis> {
        let changed = lock(&self.observations).get(key)?.changed?;
        Some(self.now().since(changed))
    }

    fn now(&self) -> MonotonicTime {
        self.clock.now().monotonic_raw
    }

    /// Returns the time since a controller refreshed its keys; `None` if no refresh was seen. Versions without
    /// `refresh/<id>` put the candidate key every Ki.
    pub(crate) fn controller_unchanged_ms(&self, keys: &Keys, id: &ControllerId) -> Option<Millis> {
        [keys.candidate(id), keys.refresh(id)].iter().filter_map(|key| self.unchanged_ms(key)).min()
    }

    /// Returns for how long this observer has been watching; `None` if it is not watching.
    pub(crate) fn watching_ms(&self) -> Option<Millis> {
        lock(&self.since).map(|since| self.now().since(since))
    }

    /// Watches until dropped.
    pub(crate) async fn run<S: Store + Clone>(&self, store: S, keys: &Keys) {
        let selectors = vec![keys.heartbeats(), keys.candidates(), keys.refreshes()];
        let (_refresher, mut items) = reflector(store, selectors, Options::without_comparison());
        while let Some(item) = items.next().await {
            let now = self.now();
            match item {
                Item::Synced(reading) => {
                    lock(&self.since).get_or_insert(now);
                    let mut observations = lock(&self.observations);
                    observations.retain(|key, _| reading.entries.iter().any(|entry| entry.key == *key));
                    lock(&self.origins).clear();
                    for entry in &reading.entries {
                        record_entry(&mut observations, entry, now, None);
                        self.record_origin(keys, entry);
                    }
                }
                Item::Changes { changes, revision: _ } => {
                    let mut observations = lock(&self.observations);
                    for change in &changes {
                        match change {
                            Change::Put(entry) => {
                                record_entry(&mut observations, entry, now, Some(now));
                                self.record_origin(keys, entry);
                            }
                            Change::Delete { key, revision: _ } => {
                                observations.remove(key);
                                lock(&self.origins).remove(key);
                            }
                        }
                    }
                }
                Item::Progress(_) | Item::Unavailable(_) => {}
            }
        }
    }

    fn record_origin(&self, keys: &Keys, entry: &Entry) {
        let Some(Key::Candidate(_)) = keys.parse(&entry.key) else { return };
        let candidate: Option<Candidate> = serde_json::from_slice(&entry.value).ok();
        let origin = candidate.and_then(|candidate| origin_of(&candidate.url));
        let mut origins = lock(&self.origins);
        match origin {
            Some(origin) => origins.insert(entry.key.clone(), origin),
            None => origins.remove(&entry.key),
        };
    }
}

/// Returns the origin of a URL as browsers send it; `None` for a URL without TLS.
fn origin_of(url: &str) -> Option<String> {
    let url: Uri = url.parse().ok()?;
    let (scheme, authority) = (url.scheme_str()?, url.authority()?.as_str());
    // The text becomes part of a header, in which other characters have a meaning.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    (scheme == "https" && authority.chars().all(is_plain)).then(|| {
        let authority = authority.strip_suffix(":443").unwrap_or(authority);
        format!("https://{}", authority.to_ascii_lowercase())
    })
}

/// Records an entry. A key that is listed for the first time may be old; a key whose revision differs from the
/// recorded one has changed. `first` is the time of the change of a key that was not recorded before.
fn record_entry(
    observations: &mut BTreeMap<String, KeyObservation>,
    entry: &Entry,
    now: MonotonicTime,
    first: Option<MonotonicTime>,
) {
    let observation = observations.get(&entry.key).copied();
    let changed = match observation {
        Some(observation) if observation.revision == entry.mod_revision => observation.changed,
        Some(_) => Some(now),
        None => first,
    };
    observations.insert(entry.key.clone(), KeyObservation { revision: entry.mod_revision, changed });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_with_tls_have_an_origin() {
        let check = |url: &str, expected: Option<&str>| {
            assert_eq!(origin_of(url).as_deref(), expected, "{url}");
        };
        check("https://C1.example:7443", Some("https://c1.example:7443"));
        check("https://[2001:db8::1]:7443/", Some("https://[2001:db8::1]:7443"));
        check("https://c1:443", Some("https://c1"));
        check("http://127.0.0.1:7443", None);
        check("https://a;b:7443", None);
        check("https://user@c1:7443", None);
        check("c1:7443", None);
        check("", None);
    }
}
