//! The controller's own metrics.

use ha_api_types::record::Revision;
use ha_runtime::metrics::Metrics;
use ha_store::Outcome;
use prometheus::{IntCounter, IntCounterVec, IntGauge};

/// What the controller counts.
#[derive(Clone, Debug)]
pub(super) struct ControllerMetrics {
    commits: IntCounterVec,
    requests: IntCounterVec,
    watch_failures: IntCounter,
    revision: IntGauge,
}

impl ControllerMetrics {
    pub(super) fn new(metrics: &Metrics) -> prometheus::Result<ControllerMetrics> {
        Ok(ControllerMetrics {
            commits: metrics.counters(
                "hactl_store_commits_total",
                "Transactions of the controller's core, by what became of them.",
                &["outcome"],
            )?,
            requests: metrics.counters(
                "hactl_store_requests_total",
                "Requests of the controller's core to the store, by kind.",
                &["request"],
            )?,
            watch_failures: metrics.counter("hactl_store_watch_failures_total", "Watches that broke off.")?,
            revision: metrics
                .gauge("hactl_store_revision", "The store's revision up to which the view is complete.")?,
        })
    }

    pub(super) fn committed(&self, outcome: &Outcome) {
        let outcome = match outcome {
            Outcome::Applied(_) => "applied",
            Outcome::Conflict(_) => "conflict",
            Outcome::LeaseNotFound => "lease_not_found",
            Outcome::Refused(_) => "refused",
            Outcome::Unknown(_) => "unknown",
        };
        self.commits.with_label_values(&[outcome]).inc();
    }

    pub(super) fn requested(&self, request: &str) {
        self.requests.with_label_values(&[request]).inc();
    }

    pub(super) fn watch_failed(&self) {
        self.watch_failures.inc();
    }

    pub(super) fn revision(&self, revision: Revision) {
        self.revision.set(revision);
    }
}
