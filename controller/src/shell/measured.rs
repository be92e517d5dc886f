//! The core as the loop drives it and as whoever reads metrics looks at it, with how long it takes to decide.

use crate::core::{Controller, Effect, Input};
use ha_api_types::metric::controller;
use ha_api_types::time::{Mono, Now};
use ha_runtime::metrics::Metrics;
use ha_runtime::reconcile::Core;
use prometheus::Histogram;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Upper bounds of the time that a decision takes, seconds.
const BUCKETS: [f64; 9] = [0.000_1, 0.000_5, 0.002, 0.01, 0.05, 0.2, 1.0, 5.0, 20.0];

/// A core that others may look at between two of its steps.
pub(super) struct Measured {
    core: Arc<Mutex<Controller>>,
    reconcile: Histogram,
}

/// How long decisions take.
pub(super) fn reconcile_duration(metrics: &Metrics) -> prometheus::Result<Histogram> {
    metrics.histogram(controller::RECONCILE_DURATION, &BUCKETS)
}

impl Measured {
    /// Drives this core.
    pub(super) fn new(core: Arc<Mutex<Controller>>, metrics: &Metrics) -> prometheus::Result<Measured> {
        Ok(Measured { core, reconcile: reconcile_duration(metrics)? })
    }

    fn core(&self) -> MutexGuard<'_, Controller> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Core for Measured {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: &Now, input: Input) {
        self.core().handle(now, input);
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        let mut core = self.core();
        let begun = Instant::now();
        let effect = core.poll_effect();
        self.reconcile.observe(begun.elapsed().as_secs_f64());
        effect
    }

    fn deadline(&self) -> Option<(Mono, &'static str)> {
        self.core().deadline()
    }

    fn due() -> Input {
        Input::Tick
    }
}
