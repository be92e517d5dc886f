//! The core as the loop drives it, with its state shown in metrics, `/readyz` and the service manager's status line.

use super::metrics::AgentMetrics;
use crate::core::{AgentCore, Effect, Input};
use ha_api_types::time::{Mono, Now};
use ha_runtime::reconcile::Core;
use std::time::Duration;

/// Interval at which the core's state is shown, milliseconds.
const LOOK_EVERY_MS: u64 = 500;

/// Interval at which an exiting agent asks the service manager for more time, milliseconds.
const EXTEND_EVERY_MS: u64 = 10_000;
/// Additional time per request to the service manager.
const EXTEND_BY: Duration = Duration::from_secs(60);

/// The core, and the state that was last shown.
pub(super) struct ObservedCore {
    core: AgentCore,
    metrics: AgentMetrics,
    look_at: Mono,
    extend_at: Mono,
    shown: String,
}

impl ObservedCore {
    pub(super) fn new(core: AgentCore, metrics: AgentMetrics) -> ObservedCore {
        ObservedCore {
            core,
            metrics,
            look_at: Mono::default(),
            extend_at: Mono::default(),
            shown: String::new(),
        }
    }

    fn show(&mut self, now: &Now) {
        let summary = self.core.summary(now);
        self.metrics.show(&summary);
        if summary.ending && now.raw >= self.extend_at {
            self.extend_at = now.raw + EXTEND_EVERY_MS;
            ha_runtime::notify::extend_timeout(EXTEND_BY);
        }
        let armed = if summary.armed { "armed" } else { "not armed" };
        let text = format!("{}; watchdog {armed}; {} services may run", summary.doing, summary.running);
        if text != self.shown {
            ha_runtime::notify::status(&text);
            self.shown = text;
            for (name, waits) in self.core.waiting(now) {
                tracing::debug!(name, waits, "action in progress");
            }
        }
    }
}

impl Core for ObservedCore {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: &Now, input: Input) {
        self.core.handle(now, input);
        if now.raw >= self.look_at {
            self.look_at = now.raw + LOOK_EVERY_MS;
            self.show(now);
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.core.poll_effect()
    }

    fn deadline(&self) -> Option<(Mono, &'static str)> {
        self.core.deadline()
    }

    fn due() -> Input {
        Input::Tick
    }
}
