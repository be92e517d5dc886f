//! What the core asks of the store, each beside the loop, leadership on channels of its own.

use super::Inputs;
use super::metrics::ControllerMetrics;
use crate::core::{CommitId, Input};
use ha_api_types::keys::Keys;
use ha_store::etcd::EtcdStore;
use ha_store::{LeaseId, Outcome, Store, Transaction};
use std::time::Duration;

/// The ways to the store.
#[derive(Clone)]
pub(super) struct StoreLink {
    ordinary: EtcdStore,
    leadership: EtcdStore,
    leadership_keys: [String; 2],
    inputs: Inputs,
    metrics: ControllerMetrics,
}

/// Beyond this an answer is no longer waited for, whatever the client's own deadlines.
const PATIENCE: Duration = Duration::from_secs(10);

impl StoreLink {
    pub(super) fn new(
        ordinary: EtcdStore,
        leadership: EtcdStore,
        keys: &Keys,
        id: &str,
        inputs: Inputs,
        metrics: ControllerMetrics,
    ) -> StoreLink {
        let leadership_keys = [keys.leader(), keys.candidate(id)];
        StoreLink { ordinary, leadership, leadership_keys, inputs, metrics }
    }

    pub(super) fn commit(&self, id: CommitId, transaction: Transaction) {
        self.metrics.requested("commit");
        let leads = self.leadership_keys.iter().any(|key| transaction.writes_key(key));
        let store = if leads { self.leadership.clone() } else { self.ordinary.clone() };
        let (inputs, metrics) = (self.inputs.clone(), self.metrics.clone());
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
        let (store, inputs) = (self.leadership.clone(), self.inputs.clone());
        tokio::spawn(async move {
            let result = store.grant_lease(ttl_seconds).await;
            let _ = inputs.send(Input::LeaseGranted { result });
        });
    }

    pub(super) fn keep_alive(&self, lease: LeaseId) {
        self.metrics.requested("keep-alive");
        let (store, inputs) = (self.leadership.clone(), self.inputs.clone());
        tokio::spawn(async move {
            let result = store.keep_alive(lease).await;
            let _ = inputs.send(Input::LeaseKept { lease, result });
        });
    }

    pub(super) fn revoke(&self, lease: LeaseId) {
        self.metrics.requested("revoke");
        let store = self.leadership.clone();
        tokio::spawn(async move {
            if let Err(error) = store.revoke_lease(lease).await {
                tracing::debug!(%error, "a lease was not revoked; it ends by itself");
            }
        });
    }
}
