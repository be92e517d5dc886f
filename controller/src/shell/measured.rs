//! The core with what Prometheus wants to know of it.

use crate::core::{Controller, Effect, Input};
use ha_api_types::reason::Reason;
use ha_api_types::time::{Millis, Mono, Now};
use ha_runtime::metrics::Metrics;
use ha_runtime::reconcile::Core;
use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
use std::collections::BTreeSet;
use std::time::Instant;

/// States are looked at again no more often than this, milliseconds.
const LOOK_EVERY_MS: Millis = 1_000;
/// Upper bounds of the time that a decision takes, seconds.
const BUCKETS: [f64; 9] = [0.000_1, 0.000_5, 0.002, 0.01, 0.05, 0.2, 1.0, 5.0, 20.0];

/// A core whose states, decisions and outcomes are counted.
pub(super) struct Measured {
    core: Controller,
    leader: IntGauge,
    waiting: IntGauge,
    tolerance: IntGauge,
    node_state: States,
    resource_state: States,
    failovers: IntCounter,
    fences: IntCounterVec,
    reconcile: Histogram,
    looked_at: Option<Mono>,
    now: Now,
}

/// Gauges by name and state: 1 for the state that something is in. What is gone has none.
struct States {
    gauges: IntGaugeVec,
    known: BTreeSet<(String, String)>,
}

impl States {
    fn set(&mut self, current: BTreeSet<(String, String)>) {
        for (name, state) in self.known.difference(&current) {
            // It was set before, so it exists.
            let _ = self.gauges.remove_label_values(&[name, state]);
        }
        for (name, state) in &current {
            self.gauges.with_label_values(&[name.as_str(), state.as_str()]).set(1);
        }
        self.known = current;
    }
}

impl Measured {
    /// Registers the metrics of a core.
    pub(super) fn new(core: Controller, metrics: &Metrics) -> prometheus::Result<Measured> {
        let states = |name: &str, help: &str, label: &str| -> prometheus::Result<States> {
            Ok(States { gauges: metrics.gauges(name, help, &[label, "state"])?, known: BTreeSet::new() })
        };
        Ok(Measured {
            core,
            leader: metrics.gauge("hactl_leader", "1 while this controller leads.")?,
            waiting: metrics.gauge("hactl_waiting", "What the leader waits for, counted.")?,
            tolerance: metrics.gauge(
                "hactl_failure_tolerance",
                "How many nodes may fail with a place for every service, as far as is checked: 1 or 0; -1 where it is not known.",
            )?,
            node_state: states("hactl_node_state", "1 for the state that a node is in.", "node")?,
            resource_state: states(
                "hactl_resource_state",
                "1 for the state that a resource is in.",
                "resource",
            )?,
            failovers: metrics.counter(
                "hactl_failovers_total",
                "Services that this controller, leading, started elsewhere after their node failed.",
            )?,
            fences: metrics.counters(
                "hactl_fences_total",
                "Nodes that this controller, leading, declared dead or found proven dead, by reason.",
                &["reason"],
            )?,
            reconcile: metrics.histogram(
                "hactl_reconcile_seconds",
                "How long the core took to decide what to do.",
                &BUCKETS,
            )?,
            looked_at: None,
            now: Now::default(),
        })
    }

    fn count(&self, effect: &Effect) {
        let Effect::Event { event, .. } = effect else { return };
        if event.reason == Reason::Recovered {
            self.failovers.inc();
        }
        let fences =
            [Reason::DeclaredDead, Reason::Fenced, Reason::FenceDeviceConfirmed, Reason::ConfirmedByOperator];
        if fences.contains(&event.reason) {
            self.fences.with_label_values(&[event.reason.as_str()]).inc();
        }
    }

    fn look(&mut self) {
        self.leader.set(i64::from(self.core.term().is_some()));
        self.waiting.set(i64::try_from(self.core.waiting().len()).unwrap_or(i64::MAX));
        let holds = self.core.reservation().and_then(|finding| finding.holds);
        self.tolerance.set(holds.map_or(-1, i64::from));
        let now = self.now.raw;
        if self.looked_at.is_some_and(|at| now.since(at) < LOOK_EVERY_MS) {
            return;
        }
        self.looked_at = Some(now);
        let world = self.core.world();
        let nodes = world.node_statuses.iter();
        let nodes = nodes.map(|(name, status)| (name.clone(), format!("{:?}", status.value.state))).collect();
        let services = world.resource_statuses.iter();
        let services =
            services.map(|(name, status)| (name.clone(), format!("{:?}", status.value.state))).collect();
        self.node_state.set(nodes);
        self.resource_state.set(services);
    }
}

impl Core for Measured {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: &Now, input: Input) {
        self.now = now.clone();
        self.core.handle(now, input);
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        let begun = Instant::now();
        let effect = self.core.poll_effect();
        match &effect {
            Some(effect) => self.count(effect),
            None => self.look(),
        }
        self.reconcile.observe(begun.elapsed().as_secs_f64());
        effect
    }

    fn deadline(&self) -> Option<(Mono, &'static str)> {
        self.core.deadline()
    }

    fn due() -> Input {
        Input::Tick
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Config;

    #[test]
    fn a_state_that_is_left_is_not_shown_any_more() {
        let metrics = Metrics::new("test", "0", 0).unwrap();
        let mut measured = Measured::new(Controller::new(Config::default()), &metrics).unwrap();
        let one = |state: &str| BTreeSet::from([("web".to_owned(), state.to_owned())]);
        measured.resource_state.set(one("Starting"));
        measured.resource_state.set(one("Started"));
        let text = metrics.encode().unwrap();
        assert!(text.contains("hactl_resource_state{resource=\"web\",state=\"Started\"} 1"), "{text}");
        assert!(!text.contains("Starting"), "{text}");
        assert!(text.contains("hactl_leader 0"), "{text}");
    }
}
