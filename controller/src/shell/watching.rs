//! Watches of etcd, converted to inputs of the cores.

use super::InputSender;
use super::metrics::ControllerMetrics;
use crate::core::candidacy::Candidacy;
use crate::core::{Config, FullReadId, Input};
use futures::StreamExt;
use ha_api_types::keys::Keys;
use ha_runtime::http::admin::HealthChecks;
use ha_store::cache::Writer;
use ha_store::etcd::EtcdStore;
use ha_store::reflector::{Item, Options, Refresher, WatchLog, reflector};
use ha_store::{Entry, FollowedData, StoreError, Verdict};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Requests complete reads.
#[derive(Clone, Debug)]
pub(super) struct RefreshRequests {
    refresher: Refresher,
    pending: Arc<Mutex<BTreeMap<u64, FullReadId>>>,
}

impl RefreshRequests {
    /// Requests a complete read that begins after this call. The read is delivered in order with the changes, so it
    /// never reverts them.
    pub(super) fn request(&self, id: FullReadId) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.insert(self.refresher.request(), id);
    }

    /// Returns the newest request that the last read answers; the default if none.
    fn newest_answered(&self) -> FullReadId {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = pending.split_off(&(self.refresher.answered() + 1));
        std::mem::replace(&mut *pending, waiting).into_values().max().unwrap_or_default()
    }
}

/// Watches the election's keys as long as its loop runs.
pub(super) fn spawn_election(store: EtcdStore, config: &Config, inputs: InputSender) -> RefreshRequests {
    let selectors = Candidacy::keys(config).to_vec();
    let (refresher, mut items) = reflector(store, selectors, Options::default());
    let requests = RefreshRequests { refresher, pending: Arc::default() };
    let answers = requests.clone();
    tokio::spawn(async move {
        while let Some(item) = items.next().await {
            let input = match item {
                Item::Synced(reading) => Input::Synced {
                    entries: reading.entries,
                    revision: reading.revision,
                    answers: answers.newest_answered(),
                },
                Item::Changes { changes, revision } => Input::Changed { changes, revision },
                Item::Progress(revision) => Input::Progress(revision),
                // The watch of the other keys reports that etcd is unreachable.
                Item::Unavailable(_) => continue,
            };
            if inputs.send(input).is_err() {
                return;
            }
        }
    });
    requests
}

/// The store and the keys to watch.
pub(super) struct WatchTarget {
    pub(super) store: EtcdStore,
    pub(super) followed: FollowedData,
    pub(super) keys: Keys,
    /// The cache from which the API reads. It gets the same items as the core.
    pub(super) cache: Writer,
}

impl WatchTarget {
    /// Follows the data of a complete read, if this process may (FENCING, R1.31).
    fn follow(&self, entries: &[Entry]) -> Result<(), String> {
        let key = self.keys.incarnation();
        let incarnation = entries.iter().find(|entry| entry.key == key);
        let incarnation = incarnation.and_then(|entry| serde_json::from_slice(&entry.value).ok());
        match self.followed.judge(incarnation.as_ref()) {
            Verdict::Follows(_) | Verdict::AllowedByOperator(_) => Ok(()),
            Verdict::Refused(cause) => Err(cause),
        }
    }
}

/// Watches as long as the loop runs. Data that this process must not follow is not passed to the core.
pub(super) fn spawn(
    watched: WatchTarget,
    inputs: InputSender,
    ready: HealthChecks,
    metrics: ControllerMetrics,
) -> RefreshRequests {
    let prefixes = vec![watched.keys.root().to_owned()];
    let (refresher, mut items) = reflector(watched.store.clone(), prefixes, Options::default());
    let requests = RefreshRequests { refresher, pending: Arc::default() };
    let answers = requests.clone();
    tokio::spawn(async move {
        let mut log = WatchLog::default();
        let mut followed = Ok(());
        while let Some(item) = items.next().await {
            log.log_transition(&item);
            if let Item::Synced(reading) = &item {
                followed = watched.follow(&reading.entries);
            }
            match &followed {
                Ok(()) => watched.cache.apply(&item),
                Err(cause) => watched.cache.apply(&Item::Unavailable(StoreError::Refused(cause.clone()))),
            }
            let sent = match item {
                Item::Synced(reading) => match &followed {
                    Ok(()) => {
                        ready.set("store", Ok(()));
                        metrics.set_watch_working(reading.revision);
                        inputs.send(Input::Synced {
                            entries: reading.entries,
                            revision: reading.revision,
                            answers: answers.newest_answered(),
                        })
                    }
                    Err(cause) => {
                        tracing::error!(why = cause, "rejected the data in etcd");
                        ready.set("store", Err(cause.clone()));
                        Ok(())
                    }
                },
                Item::Changes { changes, revision } => {
                    metrics.set_watch_working(revision);
                    inputs.send(Input::Changed { changes, revision })
                }
                Item::Progress(revision) => {
                    ready.set("store", Ok(()));
                    metrics.set_watch_working(revision);
                    inputs.send(Input::Progress(revision))
                }
                Item::Unavailable(error) => {
                    metrics.count_watch_failure();
                    ready.set("store", Err(error.to_string()));
                    Ok(())
                }
            };
            if sent.is_err() {
                return;
            }
        }
    });
    requests
}
