//! The controller's own metrics: counters of events, and values that are read from the core at scrape time.

use crate::core::Controller;
use crate::core::metric_event::{FailoverPhase, MetricEvent};
use crate::core::notifications::deliveries::NotificationResult;
use crate::core::samples::{MetricsInput, Relocations, samples};
use ha_api_types::id::Revision;
use ha_api_types::metric::{Sample, controller, leader};
use ha_api_types::record::Proof;
use ha_api_types::time::Now;
use ha_runtime::metrics::Metrics;
use ha_store::Outcome;
use prometheus::{Gauge, HistogramVec, IntCounter, IntCounterVec};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

/// Upper bounds of the histogram of failover phases, in seconds.
const PHASE_BUCKETS_SECONDS: [f64; 11] = [0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 180.0, 600.0];

/// Metrics of etcd requests and of the controller's own loop.
#[derive(Clone, Debug)]
pub(super) struct ControllerMetrics {
    commits: IntCounterVec,
    errors: IntCounterVec,
    requests: IntCounterVec,
    watch_restarts: IntCounter,
    reachable: Gauge,
    queue: Gauge,
    newest_revision: Arc<AtomicI64>,
}

impl ControllerMetrics {
    pub(super) fn new(metrics: &Metrics) -> prometheus::Result<ControllerMetrics> {
        let errors = metrics.counters(controller::RECONCILE_ERRORS)?;
        for error in ["conflict", "lease_not_found", "refused", "unknown"] {
            errors.with_label_values(&[error]);
        }
        Ok(ControllerMetrics {
            commits: metrics.counters(controller::STORE_COMMITS)?,
            errors,
            requests: metrics.counters(controller::STORE_REQUESTS)?,
            watch_restarts: metrics.counter(controller::STORE_WATCH_RESTARTS)?,
            reachable: metrics.gauge(controller::STORE_REACHABLE)?,
            queue: metrics.gauge(controller::RECONCILE_QUEUE)?,
            newest_revision: Arc::default(),
        })
    }

    pub(super) fn count_commit(&self, outcome: &Outcome) {
        let (outcome, failed) = match outcome {
            Outcome::Applied(revision) => {
                self.observe_revision(*revision);
                ("applied", false)
            }
            Outcome::Conflict(_) => ("conflict", true),
            Outcome::LeaseNotFound => ("lease_not_found", true),
            Outcome::Refused(_) => ("refused", true),
            Outcome::Unknown(_) => ("unknown", true),
        };
        self.commits.with_label_values(&[outcome]).inc();
        if failed {
            self.errors.with_label_values(&[outcome]).inc();
        }
    }

    pub(super) fn count_request(&self, request: &str) {
        self.requests.with_label_values(&[request]).inc();
    }

    /// Records that the watch failed and starts again.
    pub(super) fn count_watch_failure(&self) {
        self.watch_restarts.inc();
        self.reachable.set(0.0);
    }

    /// Records that the watch works.
    pub(super) fn set_watch_working(&self, revision: Revision) {
        self.reachable.set(1.0);
        self.observe_revision(revision);
    }

    /// Sets the number of queued inputs.
    pub(super) fn set_queue_length(&self, count: usize) {
        self.queue.set(count as f64);
    }

    /// Returns the newest known revision.
    fn newest_revision(&self) -> Revision {
        Revision(self.newest_revision.load(Ordering::Relaxed))
    }

    fn observe_revision(&self, revision: Revision) {
        self.newest_revision.fetch_max(revision.0, Ordering::Relaxed);
    }
}

/// Metrics of the core's events.
#[derive(Clone, Debug)]
pub(super) struct CoreMetrics {
    transitions: IntCounterVec,
    failovers: IntCounter,
    phases: HistogramVec,
    fences: IntCounterVec,
    operations: IntCounterVec,
    notifications: IntCounterVec,
    relocations: Arc<Mutex<Relocations>>,
}

impl CoreMetrics {
    /// Registers these metrics, and those that are read from the core at scrape time.
    pub(super) fn new(
        metrics: &Metrics,
        core: &Arc<Mutex<Controller>>,
        store: &ControllerMetrics,
        now: impl Fn() -> Now + Send + Sync + 'static,
    ) -> prometheus::Result<CoreMetrics> {
        let core_metrics = CoreMetrics {
            transitions: metrics.counters(controller::LEADER_TRANSITIONS)?,
            failovers: metrics.counter(controller::FAILOVERS)?,
            phases: metrics.histograms(controller::FAILOVER_DURATION, &PHASE_BUCKETS_SECONDS)?,
            fences: metrics.counters(controller::FENCES)?,
            operations: metrics.counters(controller::OPERATIONS)?,
            notifications: metrics.counters(controller::NOTIFICATIONS)?,
            relocations: Arc::default(),
        };
        core_metrics.initialize_counters();
        let (core, store) = (Arc::clone(core), store.clone());
        let relocations = Arc::clone(&core_metrics.relocations);
        let own_metrics = [
            controller::LEADER,
            controller::UNREADABLE_KEYS,
            controller::STORE_REVISION,
            controller::STORE_REVISION_LAG,
        ];
        let last_samples = Mutex::new(Vec::new());
        metrics.register_scraped(own_metrics.into_iter().chain(leader::ALL.iter().copied()), move || {
            let mut last_samples = last_samples.lock().unwrap_or_else(PoisonError::into_inner);
            // While the core plans, its last state is shown: the threads that serve requests also run the election.
            let core = match core.try_lock() {
                Ok(core) => core,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return Vec::clone(&last_samples),
            };
            let mut relocations = relocations.lock().unwrap_or_else(PoisonError::into_inner);
            relocations.retain(|(name, _), _| core.cluster_view().resources.contains_key(name));
            last_samples.clone_from(&core_samples(&core, &now(), store.newest_revision(), &relocations));
            last_samples.clone()
        })?;
        Ok(core_metrics)
    }

    /// Initializes counters of rare events with zero. Otherwise the first event would only create the series, and
    /// `rate()` would miss it.
    fn initialize_counters(&self) {
        for transition in ["became", "lost"] {
            self.transitions.with_label_values(&[transition]);
        }
        for phase in FailoverPhase::ALL {
            self.phases.with_label_values(&[phase.name()]);
        }
        for target in ["webhook", "smtp"] {
            for result in NotificationResult::ALL {
                self.notifications.with_label_values(&[target, &format!("{result:?}")]);
            }
        }
        for method in Proof::NAMES {
            self.fences.with_label_values(&[method, "Confirmed"]);
        }
    }

    pub(super) fn count(&self, metric_event: &MetricEvent) {
        match metric_event {
            MetricEvent::Leadership { gained } => {
                let transition = if *gained { "became" } else { "lost" };
                self.transitions.with_label_values(&[transition]).inc();
                // The next leader also counts from zero.
                self.relocations.lock().unwrap_or_else(PoisonError::into_inner).clear();
            }
            MetricEvent::Relocation { resource, reason } => {
                let mut relocations = self.relocations.lock().unwrap_or_else(PoisonError::into_inner);
                *relocations.entry((resource.clone(), *reason)).or_default() += 1;
            }
            MetricEvent::Failover => self.failovers.inc(),
            MetricEvent::Phase { phase, duration_ms } => {
                self.phases.with_label_values(&[phase.name()]).observe(*duration_ms as f64 / 1000.0);
            }
            MetricEvent::Fence { method, confirmed } => {
                let result = if *confirmed { "Confirmed" } else { "Failed" };
                self.fences.with_label_values(&[method, result]).inc();
            }
            MetricEvent::Notification { target, result } => {
                self.notifications.with_label_values(&[*target, &format!("{result:?}")]).inc();
            }
            MetricEvent::Operation { action, driver, phase } => {
                let (action, result) = (format!("{action:?}"), format!("{phase:?}"));
                self.operations.with_label_values(&[action.as_str(), driver, result.as_str()]).inc();
            }
        }
    }
}

/// Returns the metrics of the core. A follower exports none about objects, because its view may be old.
fn core_samples(
    core: &Controller,
    now: &Now,
    newest_revision: Revision,
    relocations: &Relocations,
) -> Vec<Sample> {
    let cluster_view = core.cluster_view();
    let is_leader = core.term().is_some();
    let newest_revision = newest_revision.max(cluster_view.revision);
    let mut read = vec![
        controller::LEADER.sample([], if is_leader { 1.0 } else { 0.0 }),
        controller::UNREADABLE_KEYS.sample([], cluster_view.unreadable.len() as f64),
        controller::STORE_REVISION.sample([], newest_revision.0 as f64),
        controller::STORE_REVISION_LAG.sample([], (newest_revision - cluster_view.revision) as f64),
    ];
    if is_leader {
        let waiting = core.wait_conditions().len();
        let reservation = core.reservation();
        let rebalance = core.rebalance();
        read.extend(samples(&MetricsInput {
            cluster_view,
            now,
            waiting,
            reservation,
            rebalance,
            relocations,
        }));
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Config;
    use ha_api_types::metric::{Exposer, Metric};

    fn registered() -> (Metrics, CoreMetrics) {
        let metrics = Metrics::new("test", "0", 0).unwrap();
        let store = ControllerMetrics::new(&metrics).unwrap();
        let core = Arc::new(Mutex::new(Controller::new(Config::default())));
        let core_metrics = CoreMetrics::new(&metrics, &core, &store, Now::default).unwrap();
        (metrics, core_metrics)
    }

    #[test]
    fn a_follower_exports_no_metrics_about_objects() {
        let (metrics, core_metrics) = registered();
        core_metrics.count(&MetricEvent::Fence { method: "Silence", confirmed: true });
        core_metrics.count(&MetricEvent::Phase { phase: FailoverPhase::Fence, duration_ms: 1_500 });
        let text = metrics.encode().unwrap();
        for line in [
            "hactl_leader 0",
            "hactl_reconcile_errors_total{error=\"unknown\"} 0",
            "hactl_fences_total{method=\"Silence\",result=\"Confirmed\"} 1",
            "hactl_fences_total{method=\"Device\",result=\"Confirmed\"} 0",
            "hactl_failover_duration_seconds_sum{phase=\"fence\"} 1.5",
        ] {
            assert!(text.lines().any(|text_line| text_line == line), "{line} is missing in:\n{text}");
        }
        for metric in leader::ALL {
            assert!(!text.contains(metric.name), "{} is in:\n{text}", metric.name);
        }
    }

    #[test]
    fn exactly_the_declared_metrics_are_registered() {
        let (metrics, _) = registered();
        crate::api::ApiMetrics::new(&metrics).unwrap();
        super::super::instrumented_controller::Durations::new(&metrics).unwrap();
        ha_runtime::certificate::Certificates::default().register(&metrics).unwrap();
        let is_of_controller = |metric: &&'static Metric| match metric.exposer {
            Exposer::Every | Exposer::Controller | Exposer::Leader => true,
            Exposer::Agent | Exposer::Sync => false,
        };
        let declared = Metric::all().filter(is_of_controller).map(|metric| metric.name);
        let declared: std::collections::BTreeSet<&str> = declared.collect();
        assert_eq!(metrics.registered(), declared);
    }
}
