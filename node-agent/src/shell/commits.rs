//! Requests of the core to etcd, each outside the loop. Heartbeats have separate channels.

use super::Inputs;
use crate::core::{CommitId, CommitUrgency, Input, LeaseKept, LeaseRequestId, ReadId};
use futures::future::join_all;
use ha_api_types::id::Revision;
use ha_store::etcd::EtcdStore;
use ha_store::{LeaseId, Outcome, Store, StoreError, Transaction};
use std::time::Duration;

/// The connections to etcd.
#[derive(Clone)]
pub(super) struct EtcdRequests {
    ordinary: EtcdStore,
    heartbeats: EtcdStore,
    inputs: Inputs,
}

/// Time after which an answer is no longer awaited, independent of the client's own deadlines.
const ORDINARY_COMMIT_TIMEOUT: Duration = Duration::from_secs(10);

impl EtcdRequests {
    pub(super) fn new(ordinary: EtcdStore, heartbeats: EtcdStore, inputs: Inputs) -> EtcdRequests {
        EtcdRequests { ordinary, heartbeats, inputs }
    }

    pub(super) fn commit(&self, id: CommitId, transaction: Transaction, urgency: CommitUrgency) {
        let (store, limit) = match urgency {
            CommitUrgency::Heartbeat { timeout_ms } => {
                // An attempt slower than Ki is repeated on a second and a third member. A late answer is still valid,
                // because the deadline counts from before the first attempt.
                self.heartbeats.set_attempt_timeout_ms(timeout_ms);
                (self.heartbeats.clone(), Duration::from_millis(timeout_ms.saturating_mul(3)))
            }
            CommitUrgency::Ordinary => (self.ordinary.clone(), ORDINARY_COMMIT_TIMEOUT),
        };
        let inputs = self.inputs.clone();
        tokio::spawn(async move {
            let outcome = tokio::time::timeout(limit, store.commit(transaction))
                .await
                .unwrap_or_else(|_| Outcome::Unknown("no response in time".to_owned()));
            // Sending fails only once the loop has ended. This also applies to every answer below.
            let _ = inputs.send(Input::Committed { id, outcome });
        });
    }

    pub(super) fn read(&self, id: ReadId, keys: Vec<String>) {
        let (store, inputs) = (self.ordinary.clone(), self.inputs.clone());
        tokio::spawn(async move {
            let readings = join_all(keys.iter().map(|key| store.get(key))).await;
            let result = readings
                .into_iter()
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| error.to_string())
                .map(|readings| {
                    let lowest = readings.iter().map(|reading| reading.revision).min().unwrap_or(Revision(0));
                    (readings.into_iter().flat_map(|reading| reading.entries).collect(), lowest)
                });
            let _ = inputs.send(Input::Read { id, result });
        });
    }

    pub(super) fn grant(&self, id: LeaseRequestId, ttl_seconds: i64) {
        let (store, inputs) = (self.heartbeats.clone(), self.inputs.clone());
        tokio::spawn(async move {
            let result = store.grant_lease(ttl_seconds).await.map_err(|error| error.to_string());
            let _ = inputs.send(Input::LeaseGranted { id, result });
        });
    }

    pub(super) fn keep_alive(&self, lease: LeaseId) {
        let (store, inputs) = (self.ordinary.clone(), self.inputs.clone());
        tokio::spawn(async move {
            let result = match store.keep_alive(lease).await {
                Ok(_) => LeaseKept::Kept,
                Err(StoreError::LeaseNotFound) => LeaseKept::Gone,
                Err(error) => LeaseKept::Unknown(error.to_string()),
            };
            let _ = inputs.send(Input::LeaseKept { lease, kept: result });
        });
    }
}
