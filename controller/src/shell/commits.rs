//! What a core asks of etcd, each beside the loop.

use super::Inputs;
use super::metrics::ControllerMetrics;
use crate::core::{CommitId, Input};
use ha_store::etcd::EtcdStore;
use ha_store::{LeaseId, Outcome, Store, Transaction};
use std::time::Duration;

/// The way to etcd, and back.
#[derive(Clone)]
pub(super) struct StoreLink {
    store: EtcdStore,
    inputs: Inputs,
    metrics: ControllerMetrics,
}

/// Beyond this an answer is no longer waited for, whatever the client's own deadlines.
const PATIENCE: Duration = Duration::from_secs(10);

impl StoreLink {
    pub(super) fn new(store: EtcdStore, inputs: Inputs, metrics: ControllerMetrics) -> StoreLink {
        StoreLink { store, inputs, metrics }
    }

    pub(super) fn commit(&self, id: CommitId, transaction: Transaction) {
        self.metrics.requested("commit");
        let (store, inputs, metrics) = (self.store.clone(), self.inputs.clone(), self.metrics.clone());
        tokio::spawn(async move {
            let outcome = tokio::time::timeout(PATIENCE, store.commit(transaction))
                .await
                .unwrap_or_else(|_| Outcome::Unknown("no answer in time".to_owned()));
            metrics.committed(&outcome);
            // Nobody listens any more once the loop has ended; so with all answers here.
            let _ = inputs.send(Input::Committed { id, outcome });
        });
    }

    pub(super) fn grant(&self, ttl_seconds: i64) {
        self.metrics.requested("grant");
        let (store, inputs) = (self.store.clone(), self.inputs.clone());
        tokio::spawn(async move {
            let result = store.grant_lease(ttl_seconds).await;
            let _ = inputs.send(Input::LeaseGranted { result });
        });
    }

    pub(super) fn keep_alive(&self, lease: LeaseId) {
        self.metrics.requested("keep-alive");
        let (store, inputs) = (self.store.clone(), self.inputs.clone());
        tokio::spawn(async move {
            let result = store.keep_alive(lease).await;
            let _ = inputs.send(Input::LeaseKept { lease, result });
        });
    }

    pub(super) fn revoke(&self, lease: LeaseId) {
        self.metrics.requested("revoke");
        let store = self.store.clone();
        tokio::spawn(async move {
            if let Err(error) = store.revoke_lease(lease).await {
                tracing::debug!(%error, "a lease was not revoked; it ends by itself");
            }
        });
    }
}
