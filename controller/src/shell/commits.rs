//! Requests of a core to etcd, each in a separate task.

use super::InputSender;
use super::metrics::ControllerMetrics;
use crate::core::{CommitId, Input};
use ha_store::etcd::EtcdStore;
use ha_store::{LeaseId, Outcome, Store, Transaction};
use std::time::Duration;

/// Connection of a core to etcd, and the channel for answers.
#[derive(Clone)]
pub(super) struct EtcdRequests {
    store: EtcdStore,
    inputs: InputSender,
    metrics: ControllerMetrics,
}

/// Maximum wait for an answer, regardless of the client's own deadlines.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(10);

impl EtcdRequests {
    pub(super) fn new(store: EtcdStore, inputs: InputSender, metrics: ControllerMetrics) -> EtcdRequests {
        EtcdRequests { store, inputs, metrics }
    }

    pub(super) fn commit(&self, id: CommitId, transaction: Transaction) {
        self.metrics.count_request("commit");
        let (store, inputs, metrics) = (self.store.clone(), self.inputs.clone(), self.metrics.clone());
        tokio::spawn(async move {
            let outcome = tokio::time::timeout(COMMIT_TIMEOUT, store.commit(transaction))
                .await
                .unwrap_or_else(|_| Outcome::Unknown("no response in time".to_owned()));
            metrics.count_commit(&outcome);
            // After the end of the loop, no receiver exists and the send fails. This is also true for all other answers
            // in this file.
            let _ = inputs.send(Input::Committed { id, outcome });
        });
    }

    pub(super) fn grant(&self, ttl_seconds: i64) {
        self.metrics.count_request("grant");
        let (store, inputs) = (self.store.clone(), self.inputs.clone());
        tokio::spawn(async move {
            let result = store.grant_lease(ttl_seconds).await;
            let _ = inputs.send(Input::LeaseGranted { result });
        });
    }

    pub(super) fn keep_alive(&self, lease: LeaseId) {
        self.metrics.count_request("keep-alive");
        let (store, inputs) = (self.store.clone(), self.inputs.clone());
        tokio::spawn(async move {
            let result = store.keep_alive(lease).await;
            let _ = inputs.send(Input::LeaseKept { lease, result });
        });
    }

    pub(super) fn revoke(&self, lease: LeaseId) {
        self.metrics.count_request("revoke");
        let store = self.store.clone();
        tokio::spawn(async move {
            if let Err(error) = store.revoke_lease(lease).await {
                tracing::debug!(%error, "cannot revoke a lease, waiting for its expiry");
            }
        });
    }
}
