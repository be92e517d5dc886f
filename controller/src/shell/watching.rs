//! The whole cluster's keys as inputs of the core.

use super::Inputs;
use super::metrics::ControllerMetrics;
use crate::core::candidacy::Candidacy;
use crate::core::{Config, Input, RefreshId};
use futures::StreamExt;
use ha_api_types::keys::Keys;
use ha_runtime::http::admin::Checks;
use ha_store::etcd::EtcdStore;
use ha_store::reflector::{Item, Options, Refresher, reflector};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Asks for readings of everything.
#[derive(Clone, Debug)]
pub(super) struct Refreshing {
    refresher: Refresher,
    asked: Arc<Mutex<BTreeMap<u64, RefreshId>>>,
}

impl Refreshing {
    /// Reads everything, beginning after this call. The reading comes in order with the changes, so that it never takes
    /// back what they told.
    pub(super) fn request(&self, id: RefreshId) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.insert(self.refresher.request(), id);
    }

    /// The newest request that is answered by the reading just taken; 0: none.
    fn answered(&self) -> RefreshId {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = asked.split_off(&(self.refresher.answered() + 1));
        std::mem::replace(&mut *asked, waiting).into_values().max().unwrap_or(0)
    }
}

/// Watches the election's keys for as long as its loop runs.
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
                // The other watch says so.
                Item::Unavailable(_) => continue,
            };
            if inputs.send(input).is_err() {
                return;
            }
        }
    });
    refreshing
}

/// Watches for as long as the loop runs.
pub(super) fn spawn(
    store: EtcdStore,
    keys: &Keys,
    inputs: Inputs,
    ready: Checks,
    metrics: ControllerMetrics,
) -> Refreshing {
    let (refresher, mut items) = reflector(store, vec![keys.root().to_owned()], Options::default());
    let refreshing = Refreshing { refresher, asked: Arc::default() };
    let answers = refreshing.clone();
    tokio::spawn(async move {
        while let Some(item) = items.next().await {
            let sent = match item {
                Item::Synced(reading) => {
                    ready.set("store", Ok(()));
                    metrics.watched(reading.revision);
                    inputs.send(Input::Synced {
                        entries: reading.entries,
                        revision: reading.revision,
                        answers: answers.answered(),
                    })
                }
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
                    tracing::warn!(%error, "the store cannot be watched; trying on");
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
