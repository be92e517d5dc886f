//! The agent's own metrics.

use super::observed::number_of;
use crate::core::Summary;
use ha_runtime::metrics::Metrics;
use prometheus::{IntCounter, IntCounterVec, IntGauge};

/// What the agent counts, and how it stands.
#[derive(Clone, Debug)]
pub(super) struct AgentMetrics {
    pub(super) heartbeats: IntCounter,
    pub(super) commits: IntCounter,
    pub(super) commands: IntCounterVec,
    pub(super) journal_writes: IntCounter,
    state: IntGauge,
    epoch: IntGauge,
    armed: IntGauge,
    deadline_ms: IntGauge,
    services: IntGauge,
    workers: IntGauge,
}

impl AgentMetrics {
    pub(super) fn new(metrics: &Metrics) -> prometheus::Result<AgentMetrics> {
        Ok(AgentMetrics {
            heartbeats: metrics.counter("hactl_agent_heartbeats_total", "Heartbeats begun.")?,
            commits: metrics.counter("hactl_agent_commits_total", "Commits begun, heartbeats left out.")?,
            commands: metrics.counters(
                "hactl_agent_commands_total",
                "Commands of drivers begun.",
                &["driver", "command"],
            )?,
            journal_writes: metrics.counter("hactl_agent_journal_writes_total", "Journals written.")?,
            state: metrics.gauge("hactl_agent_state", "0 waits for an epoch, 1 active, 2 lost its epoch.")?,
            epoch: metrics.gauge("hactl_agent_epoch", "The epoch that it acts under; 0 for none.")?,
            armed: metrics.gauge("hactl_agent_armed", "1 while armed is committed.")?,
            deadline_ms: metrics.gauge(
                "hactl_agent_deadline_milliseconds",
                "Time left to the deadline last proven, in milliseconds; -1 for none.",
            )?,
            services: metrics.gauge("hactl_agent_services", "Services that run, or may run, here.")?,
            workers: metrics.gauge("hactl_agent_workers", "Commands of drivers under way.")?,
        })
    }

    /// Shows how the agent stands.
    pub(super) fn show(&self, summary: &Summary) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.state.set(number_of(summary.state));
        self.epoch.set(i64::try_from(summary.epoch).unwrap_or(i64::MAX));
        self.armed.set(i64::from(summary.armed));
        self.deadline_ms.set(summary.left_ms.map_or(-1, |left| i64::try_from(left).unwrap_or(i64::MAX)));
        self.services.set(number(summary.running));
        self.workers.set(number(summary.workers));
    }
}
