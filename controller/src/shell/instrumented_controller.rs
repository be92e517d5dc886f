//! The planner with metrics of its durations. The loop drives it, and the metrics endpoint reads it.

use crate::core::{Controller, Effect, Input};
use ha_api_types::metric::controller;
use ha_api_types::time::{MonotonicTime, Now};
use ha_runtime::metrics::Metrics;
use ha_runtime::reconcile::Core;
use prometheus::{Gauge, Histogram};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Upper bounds of the histogram of a decision's duration, in seconds.
const DURATION_BUCKETS_SECONDS: [f64; 9] = [0.000_1, 0.000_5, 0.002, 0.01, 0.05, 0.2, 1.0, 5.0, 20.0];
/// Time for which the longest plan is shown.
const LONGEST_PLAN_RETENTION: Duration = Duration::from_secs(600);

pub(super) struct Durations {
    reconcile: Histogram,
    plan: Gauge,
    limit: Gauge,
    longest: Option<(Instant, Duration)>,
}

impl Durations {
    pub(super) fn new(metrics: &Metrics) -> prometheus::Result<Durations> {
        Ok(Durations {
            reconcile: metrics.histogram(controller::RECONCILE_DURATION, &DURATION_BUCKETS_SECONDS)?,
            plan: metrics.gauge(controller::PLAN_DURATION)?,
            limit: metrics.gauge(controller::PLAN_LIMIT)?,
            longest: None,
        })
    }

    fn record_plan(&mut self, start_time: Instant, duration: Duration) {
        let is_longest = self
            .longest
            .is_none_or(|(at, longest)| duration >= longest || start_time >= at + LONGEST_PLAN_RETENTION);
        if is_longest {
            self.longest = Some((start_time, duration));
            self.plan.set(duration.as_secs_f64());
        }
    }
}

/// A core that other tasks can read between two of its steps.
pub(super) struct InstrumentedController {
    core: Arc<Mutex<Controller>>,
    durations: Durations,
}

impl InstrumentedController {
    pub(super) fn new(
        core: Arc<Mutex<Controller>>,
        metrics: &Metrics,
    ) -> prometheus::Result<InstrumentedController> {
        Ok(InstrumentedController { core, durations: Durations::new(metrics)? })
    }

    fn core(&self) -> MutexGuard<'_, Controller> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Core for InstrumentedController {
    type Input = Input;
    type Effect = Effect;

    /// After a long plan, many heartbeats are waiting. They must all be processed before the next plan.
    const MAX_BATCH_SIZE: usize = 65_536;

    fn handle(&mut self, now: &Now, input: Input) {
        self.core().handle(now, input);
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        let core = Arc::clone(&self.core);
        let mut core = core.lock().unwrap_or_else(PoisonError::into_inner);
        let (start_time, plans_before) = (Instant::now(), core.plan_count());
        let effect = core.poll_effect();
        let duration = start_time.elapsed();
        self.durations.reconcile.observe(duration.as_secs_f64());
        if core.plan_count() != plans_before {
            self.durations.record_plan(start_time, duration);
            let timings = core.cluster_view().timings();
            let limit_ms = (timings.heartbeat_valid_ms / 2).min(timings.leader_lease_ms);
            self.durations.limit.set(limit_ms as f64 / 1000.0);
        }
        effect
    }

    fn deadline(&self) -> Option<(MonotonicTime, &'static str)> {
        self.core().deadline()
    }

    fn deadline_input() -> Input {
        Input::Tick
    }
}
