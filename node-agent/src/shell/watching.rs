//! The watched part of the store as inputs of the core.

use super::Inputs;
use crate::core::Input;
use futures::StreamExt;
use ha_runtime::http::admin::Checks;
use ha_store::etcd::EtcdStore;
use ha_store::reflector::{Item, Options, reflector};

/// Watches these prefixes for as long as the loop runs.
pub(super) fn spawn(store: EtcdStore, prefixes: Vec<String>, inputs: Inputs, ready: Checks) {
    tokio::spawn(async move {
        let (_refresher, mut items) = reflector(store, prefixes.clone(), Options::default());
        while let Some(item) = items.next().await {
            let sent = match item {
                Item::Synced(reading) => {
                    ready.set("store", Ok(()));
                    prefixes.iter().all(|prefix| {
                        let entries =
                            reading.entries.iter().filter(|entry| entry.key.starts_with(prefix.as_str()));
                        inputs
                            .send(Input::Synced {
                                prefix: prefix.clone(),
                                entries: entries.cloned().collect(),
                                revision: reading.revision,
                            })
                            .is_ok()
                    })
                }
                Item::Changes { changes, revision } => {
                    inputs.send(Input::Changed { changes, revision }).is_ok()
                }
                Item::Progress(revision) => {
                    ready.set("store", Ok(()));
                    inputs.send(Input::Progress(revision)).is_ok()
                }
                Item::Unavailable(error) => {
                    tracing::warn!(%error, "the store cannot be watched; trying on");
                    ready.set("store", Err(error.to_string()));
                    true
                }
            };
            if !sent {
                return;
            }
        }
    });
}
