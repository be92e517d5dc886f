//! Watches of etcd, converted to inputs of the cores.

use super::Inputs;
use super::metrics::ControllerMetrics;
use crate::core::candidacy::Candidacy;
use crate::core::{Config, Input, RefreshId};
use futures::StreamExt;
use ha_api_types::keys::Keys;
use ha_runtime::http::admin::Checks;
use ha_store::etcd::EtcdStore;
use ha_store::reflector::{Item, Options, Refresher, WatchLog, reflector};
use ha_store::{Entry, Followed, Verdict};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Requests complete reads.
#[derive(Clone, Debug)]
pub(super) struct Refreshing {
    refresher: Refresher,
    asked: Arc<Mutex<BTreeMap<u64, RefreshId>>>,
}

impl Refreshing {
    /// Requests a complete read that begins after this call. The read is delivered in order with the changes, so it
    /// never reverts them.
    pub(super) fn request(&self, id: RefreshId) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.insert(self.refresher.request(), id);
    }

    /// Returns the newest request that the last read answers; 0 if none.
    fn answered(&self) -> RefreshId {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = asked.split_off(&(self.refresher.answered() + 1));
        std::mem::replace(&mut *asked, waiting).into_values().max().unwrap_or(0)
    }
}

/// Watches the election's keys as long as its loop runs.
pub(super) fn spawn_election(store: EtcdStore, config: &Config, inputs: Inputs) -> Refreshing {
    let selectors = Candidacy::keys(config).to_vec();
    let (refresher, mut items) = reflector(store, selectors, Options::default());
    let refreshing = Refreshing { refresher, asked: Arc::default() };
    let answers = refreshing.clone();
    tokio::spawn(async move {
        while let Some(item) = items.next().await {
            let input = match item {
                Item::Synced(reading) => Input::Synced {
                    entries: reading.entries,
                    revision: reading.revision,
                    answers: answers.answered(),
                },
                Item::Changes { changes, revision } => Input::Changed { changes, revision },
                Item::Progress(revision) => Input::Progress(revision),
                // The other watch reports that.
                Item::Unavailable(_) => continue,
            };
            if inputs.send(input).is_err() {
                return;
            }
        }
    });
    refreshing
}

/// The store and the keys to watch.
pub(super) struct Watched {
    pub(super) store: EtcdStore,
    pub(super) followed: Followed,
    pub(super) keys: Keys,
}

impl Watched {
    /// Follows the data of a complete read, if this process may (FENCING, R1.31).
    fn follow(&self, entries: &[Entry]) -> Result<(), String> {
        let key = self.keys.incarnation();
        let found = entries.iter().find(|entry| entry.key == key);
        let found = found.and_then(|entry| serde_json::from_slice(&entry.value).ok());
        match self.followed.judge(found.as_ref()) {
            Verdict::Follows(_) | Verdict::Begins(_) => Ok(()),
            Verdict::Refused(why) => Err(why),
        }
    }
}

/// Watches as long as the loop runs. Data that this process must not follow is not passed to the core.
pub(super) fn spawn(
    watched: Watched,
    inputs: Inputs,
    ready: Checks,
    metrics: ControllerMetrics,
) -> Refreshing {
    let prefixes = vec![watched.keys.root().to_owned()];
    let (refresher, mut items) = reflector(watched.store.clone(), prefixes, Options::default());
    let refreshing = Refreshing { refresher, asked: Arc::default() };
    let answers = refreshing.clone();
    tokio::spawn(async move {
        let mut log = WatchLog::default();
        while let Some(item) = items.next().await {
            log.note(&item);
            let sent = match item {
                Item::Synced(reading) => match watched.follow(&reading.entries) {
                    Ok(()) => {
                        ready.set("store", Ok(()));
                        metrics.watched(reading.revision);
                        inputs.send(Input::Synced {
                            entries: reading.entries,
                            revision: reading.revision,
                            answers: answers.answered(),
                        })
                    }
                    Err(why) => {
                        tracing::error!(why, "rejected the data in etcd");
                        ready.set("store", Err(why));
                        Ok(())
                    }
                },
                Item::Changes { changes, revision } => {
                    metrics.watched(revision);
                    inputs.send(Input::Changed { changes, revision })
                }
                Item::Progress(revision) => {
                    ready.set("store", Ok(()));
                    metrics.watched(revision);
                    inputs.send(Input::Progress(revision))
                }
                Item::Unavailable(error) => {
                    metrics.watch_failed();
                    ready.set("store", Err(error.to_string()));
                    Ok(())
                }
            };
            if sent.is_err() {
                return;
            }
        }
    });
    refreshing
}
