//! The watched keys of etcd, as inputs of the core.

use super::Inputs;
use crate::core::Input;
use futures::StreamExt;
use ha_api_types::etcd_access::{AgentSelector, agent_selectors};
use ha_api_types::id::NodeName;
use ha_api_types::keys::Keys;
use ha_runtime::http::admin::HealthChecks;
use ha_store::etcd::EtcdStore;
use ha_store::reflector::{Item, Options, WatchLog, reflector};
use ha_store::{FollowedData, Store, StoreError, Verdict, selects};

/// Watches the keys of the agent for as long as the loop runs. Data that this node must not follow is not passed to the
/// core (FENCING, R1.30 to R1.32).
pub(super) fn spawn(
    store: EtcdStore,
    followed: FollowedData,
    keys: Keys,
    node: NodeName,
    inputs: Inputs,
    ready: HealthChecks,
) {
    tokio::spawn(async move {
        let (_refresher, mut items) =
            reflector(store.clone(), agent_selectors(&keys, &node), Options::default());
        let mut log = WatchLog::default();
        while let Some(item) = items.next().await {
            log.log_transition(&item);
            let sent = match item {
                Item::Synced(reading) => match follow(&store, &followed, &inputs).await {
                    Ok(()) => {
                        ready.set("store", Ok(()));
                        AgentSelector::ALL.into_iter().all(|selector| {
                            let key_or_prefix = selector.key_or_prefix(&keys, &node);
                            let entries =
                                reading.entries.iter().filter(|entry| selects(&key_or_prefix, &entry.key));
                            inputs
                                .send(Input::Synced {
                                    selector,
                                    entries: entries.cloned().collect(),
                                    revision: reading.revision,
                                })
                                .is_ok()
                        })
                    }
                    Err(cause) => {
                        tracing::error!(why = cause, "rejected the data in etcd");
                        ready.set("store", Err(cause));
                        true
                    }
                },
                Item::Changes { changes, revision } => {
                    followed.refused().is_some() || inputs.send(Input::Changed { changes, revision }).is_ok()
                }
                Item::Progress(revision) => {
                    if followed.refused().is_none() {
                        ready.set("store", Ok(()));
                    }
                    inputs.send(Input::Progress(revision)).is_ok()
                }
                Item::Unavailable(error) => {
                    ready.set("store", Err(error.to_string()));
                    // An operator may have ordered this node to follow the refused data.
                    if followed.refused().is_some() {
                        let _ = follow(&store, &followed, &inputs).await;
                    }
                    true
                }
            };
            if !sent {
                return;
            }
        }
    });
}

/// Reads the incarnation of etcd's data, and follows it if this node may.
///
/// # Errors
/// Returns the reason if this node may not follow the data, or if it could not read the incarnation.
async fn follow(store: &EtcdStore, followed: &FollowedData, inputs: &Inputs) -> Result<(), String> {
    let reading = match store.get(&followed.key()).await {
        Ok(reading) => reading,
        // etcd permissions of a release without incarnations do not allow this read. The node then follows the data as
        // that release did.
        Err(StoreError::Refused(cause)) if followed.refused().is_none() => {
            tracing::warn!(
                why = cause,
                key = followed.key(),
                "cannot read the incarnation of etcd: grant the etcd user of this node read access to this key"
            );
            return Ok(());
        }
        Err(error) => return Err(error.to_string()),
    };
    let record = reading.entries.first().and_then(|entry| serde_json::from_slice(&entry.value).ok());
    let (incarnation, ordered_by_operator) = match followed.judge(record.as_ref()) {
        Verdict::Follows(None) => return Ok(()),
        Verdict::Follows(Some(incarnation)) => (incarnation, false),
        Verdict::AllowedByOperator(incarnation) => (incarnation, true),
        Verdict::Refused(cause) => return Err(cause),
    };
    // Sending fails only once the loop has ended.
    let _ = inputs.send(Input::FollowsIncarnation { incarnation, ordered_by_operator });
    Ok(())
}
