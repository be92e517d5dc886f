//! The agent's own metrics.

use crate::core::{AgentState, Summary};
use ha_api_types::metric::agent;
use ha_api_types::time::Millis;
use ha_runtime::metrics::Metrics;
use prometheus::{Gauge, GaugeVec, IntCounter, IntCounterVec};

/// The agent's counters and gauges.
#[derive(Clone, Debug)]
pub(super) struct AgentMetrics {
    pub(super) heartbeats: IntCounter,
    pub(super) commits: IntCounter,
    pub(super) commands: IntCounterVec,
    pub(super) journal_writes: IntCounter,
    state: GaugeVec,
    epoch: Gauge,
    lease_remaining: GaugeVec,
    watchdog_armed: Gauge,
    watchdog_timeout: GaugeVec,
    watchdog_margin: GaugeVec,
    services: Gauge,
    exclusive_services: Gauge,
    workers: Gauge,
    queue: Gauge,
}

impl AgentMetrics {
    pub(super) fn new(metrics: &Metrics) -> prometheus::Result<AgentMetrics> {
        Ok(AgentMetrics {
            heartbeats: metrics.counter(agent::HEARTBEATS)?,
            commits: metrics.counter(agent::COMMITS)?,
            commands: metrics.counters(agent::COMMANDS)?,
            journal_writes: metrics.counter(agent::JOURNAL_WRITES)?,
            state: metrics.gauges(agent::STATE)?,
            epoch: metrics.gauge(agent::EPOCH)?,
            lease_remaining: metrics.gauges(agent::LEASE_REMAINING)?,
            watchdog_armed: metrics.gauge(agent::WATCHDOG_ARMED)?,
            watchdog_timeout: metrics.gauges(agent::WATCHDOG_TIMEOUT)?,
            watchdog_margin: metrics.gauges(agent::WATCHDOG_MARGIN)?,
            services: metrics.gauge(agent::SERVICES)?,
            exclusive_services: metrics.gauge(agent::EXCLUSIVE_SERVICES)?,
            workers: metrics.gauge(agent::WORKERS)?,
            queue: metrics.gauge(agent::WORKER_QUEUE)?,
        })
    }

    pub(super) fn set_gauges(&self, summary: &Summary) {
        for state in [AgentState::WaitForLock, AgentState::Active, AgentState::LostLock] {
            let is_current = if state == summary.state { 1.0 } else { 0.0 };
            self.state.with_label_values(&[state.name()]).set(is_current);
        }
        self.epoch.set(summary.epoch.0 as f64);
        set_seconds(&self.lease_remaining, summary.lease_remaining_ms);
        self.watchdog_armed.set(if summary.armed { 1.0 } else { 0.0 });
        set_seconds(&self.watchdog_timeout, summary.watchdog_timeout_ms);
        set_seconds(&self.watchdog_margin, summary.watchdog_margin_ms.map(Millis::from));
        self.services.set(summary.running as f64);
        self.exclusive_services.set(summary.exclusive as f64);
        self.workers.set(summary.workers as f64);
        self.queue.set(summary.queued as f64);
    }
}

/// Sets a gauge without labels, or removes it if there is no value.
fn set_seconds(gauge: &GaugeVec, ms: Option<Millis>) {
    const NO_LABELS: [&str; 0] = [];
    match ms {
        Some(ms) => gauge.with_label_values(&NO_LABELS).set(ms as f64 / 1000.0),
        None => gauge.reset(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::id::Epoch;
    use ha_api_types::metric::{Exposer, Metric};
    use std::collections::BTreeSet;

    fn summary() -> Summary {
        Summary {
            state: AgentState::Active,
            epoch: Epoch(3),
            lease_remaining_ms: Some(4_500),
            armed: true,
            running: 2,
            exclusive: 1,
            workers: 1,
            queued: 4,
            watchdog_timeout_ms: Some(10_000),
            watchdog_margin_ms: None,
            ending: false,
            activity: String::new(),
        }
    }

    #[test]
    fn metrics_without_value_are_omitted() {
        let metrics = Metrics::new("test", "0", 0).unwrap();
        let agent = AgentMetrics::new(&metrics).unwrap();
        agent.set_gauges(&summary());
        let text = metrics.encode().unwrap();
        for line in [
            "hactl_agent_state{state=\"Active\"} 1",
            "hactl_agent_state{state=\"LostLock\"} 0",
            "hactl_agent_lease_remaining_seconds 4.5",
            "hactl_agent_watchdog_timeout_seconds 10",
            "hactl_agent_exclusive_services 1",
            "hactl_agent_worker_queue_length 4",
        ] {
            assert!(text.lines().any(|metric_line| metric_line == line), "{line} is missing in:\n{text}");
        }
        assert!(!text.contains("margin"), "{text}");
        agent.set_gauges(&Summary { lease_remaining_ms: None, watchdog_margin_ms: Some(250), ..summary() });
        let text = metrics.encode().unwrap();
        assert!(text.contains("hactl_agent_watchdog_margin_seconds 0.25"), "{text}");
        assert!(!text.contains("lease_remaining"), "{text}");
    }

    #[test]
    fn exactly_the_declared_agent_metrics_are_registered() {
        let metrics = Metrics::new("test", "0", 0).unwrap();
        AgentMetrics::new(&metrics).unwrap();
        ha_runtime::certificate::Certificates::default().register(&metrics).unwrap();
        let is_of_agent = |metric: &&'static Metric| match metric.exposer {
            Exposer::Every | Exposer::Agent => true,
            Exposer::Controller | Exposer::Leader | Exposer::Sync => false,
        };
        let declared: BTreeSet<&str> = Metric::all().filter(is_of_agent).map(|metric| metric.name).collect();
        assert_eq!(metrics.registered(), declared);
    }
}
