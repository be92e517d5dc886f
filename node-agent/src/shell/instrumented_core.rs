//! The core as the loop drives it, with its state shown in metrics, `/readyz` and the service manager's status line.

use super::metrics::AgentMetrics;
use crate::core::{AgentCore, Effect, Input};
use futures::FutureExt;
use ha_api_types::time::{MonotonicTime, Now};
use ha_runtime::http::admin::ReadState;
use ha_runtime::reconcile::Core;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Interval at which the core's state is published, in milliseconds.
const PUBLISH_INTERVAL_MS: u64 = 500;

/// Interval at which an exiting agent asks the service manager for more time, in milliseconds.
const EXTEND_INTERVAL_MS: u64 = 10_000;
/// Additional time per request to the service manager.
const EXTEND_BY: Duration = Duration::from_secs(60);

/// The core, and the state that was last shown.
pub(super) struct InstrumentedCore {
    core: AgentCore,
    metrics: AgentMetrics,
    publish_at: MonotonicTime,
    extend_at: MonotonicTime,
    published_state: String,
    state_requests: mpsc::UnboundedReceiver<StateReply>,
}

/// Receives the core's state once.
pub(super) type StateReply = oneshot::Sender<Value>;

/// Returns a function that requests the state from the core. The core answers at its next input, within a heartbeat
/// interval.
pub(super) fn reader(state_requester: mpsc::UnboundedSender<StateReply>) -> ReadState {
    Arc::new(move || {
        let (reply, answer) = oneshot::channel();
        let sent = state_requester.send(reply);
        async move {
            sent.ok()?;
            answer.await.ok()
        }
        .boxed()
    })
}

impl InstrumentedCore {
    pub(super) fn new(
        core: AgentCore,
        metrics: AgentMetrics,
        state_requests: mpsc::UnboundedReceiver<StateReply>,
    ) -> InstrumentedCore {
        InstrumentedCore {
            core,
            metrics,
            publish_at: MonotonicTime::default(),
            extend_at: MonotonicTime::default(),
            published_state: String::new(),
            state_requests,
        }
    }

    fn publish_status(&mut self, now: &Now) {
        let summary = self.core.summary(now);
        self.metrics.set_gauges(&summary);
        if summary.ending && now.monotonic_raw >= self.extend_at {
            self.extend_at = now.monotonic_raw + EXTEND_INTERVAL_MS;
            ha_runtime::notify::extend_timeout(EXTEND_BY);
        }
        let armed = if summary.armed { "armed" } else { "not armed" };
        // The script that runs before the removal of the package reads this count.
        let running = ha_api_types::names::count_with_noun(summary.running, "service");
        let text = format!("{}; watchdog {armed}; {running} may run", summary.activity);
        if text != self.published_state {
            ha_runtime::notify::status(&text);
            self.published_state = text;
            for (name, wait_text) in self.core.wait_messages(now) {
                tracing::debug!(name = name.as_str(), waits = wait_text, "action in progress");
            }
        }
    }
}

impl Core for InstrumentedCore {
    type Input = Input;
    type Effect = Effect;

    fn handle(&mut self, now: &Now, input: Input) {
        self.core.handle(now, input);
        while let Ok(reply) = self.state_requests.try_recv() {
            // A requester that no longer waits needs no answer. The serialization of the project's types cannot fail.
            let _ = reply.send(serde_json::to_value(self.core.state(now)).unwrap_or_default());
        }
        if now.monotonic_raw >= self.publish_at {
            self.publish_at = now.monotonic_raw + PUBLISH_INTERVAL_MS;
            self.publish_status(now);
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.core.poll_effect()
    }

    fn deadline(&self) -> Option<(MonotonicTime, &'static str)> {
        self.core.deadline()
    }

    fn deadline_input() -> Input {
        Input::Tick
    }
}
