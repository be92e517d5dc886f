//! Start of the core's effects, in order. Effects that take time answer through the inputs.

use super::InputSender;
use super::commits::EtcdRequests;
use super::hold_requests::HoldRequests;
use super::metrics::CoreMetrics;
use super::watching::RefreshRequests;
use crate::core::notifications::deliveries::{Delivery, DeliveryOutcome};
use crate::core::{Effect, Input};
use crate::fencer::Fencer;
use crate::notifier;
use crate::policy::Limits;
use ha_store::event_writer::EventWriter;

pub(super) struct Effects {
    pub(super) store: EtcdRequests,
    pub(super) refresher: RefreshRequests,
    pub(super) fencer: Fencer,
    pub(super) limits: Limits,
    pub(super) events: EventWriter,
    pub(super) hold_requests: HoldRequests,
    pub(super) metrics: CoreMetrics,
    pub(super) inputs: InputSender,
    pub(super) election: InputSender,
}

impl Effects {
    /// Starts an effect and returns immediately.
    pub(super) fn begin(&mut self, effect: Effect) {
        match effect {
            Effect::Commit { id, transaction } => self.store.commit(id, transaction),
            Effect::Refresh { id } => self.refresher.request(id),
            Effect::RunFencer(run) => {
                let (fencer, inputs) = (self.fencer.clone(), self.inputs.clone());
                tokio::spawn(async move {
                    tracing::info!(node = %run.node, device = %run.device.name, action = ?run.action, "running fence device");
                    let outcome = fencer.run(&run).await;
                    tracing::info!(node = %run.node, device = %run.device.name, ?outcome, "fence device finished");
                    // After the end of the loop, no receiver exists and the send fails.
                    let _ = inputs.send(Input::FencerDone { id: run.id, outcome });
                });
            }
            Effect::Event { name, event } => {
                ha_runtime::logging::event(&event);
                self.events.write(name, event);
            }
            Effect::Deliver(delivery) => {
                let (limits, inputs) = (self.limits.clone(), self.inputs.clone());
                tokio::spawn(async move {
                    let outcome = notifier::deliver(&limits, &delivery).await;
                    log_delivery(&delivery, &outcome);
                    // After the end of the loop, no receiver exists and the send fails.
                    let _ = inputs.send(Input::Delivered { id: delivery.id, outcome });
                });
            }
            Effect::AnswerHold { id, answer } => self.hold_requests.answer(id, answer),
            Effect::Count(metric_event) => self.metrics.count(&metric_event),
            Effect::UpdateElection(election_inputs) => {
                // After the end of the election, no receiver exists and the send fails.
                let _ = self.election.send(Input::ElectionInputs(election_inputs));
            }
            // Only the election has these effects.
            Effect::GrantLease { .. }
            | Effect::KeepAlive { .. }
            | Effect::Revoke { .. }
            | Effect::ReportElection(_)
            | Effect::Ended => {}
        }
    }
}

fn log_delivery(delivery: &Delivery, outcome: &DeliveryOutcome) {
    let (notification, target) = (&delivery.notification.id, delivery.target.name());
    let summary = &delivery.notification.summary;
    match outcome {
        DeliveryOutcome::Delivered(answer) => {
            tracing::info!(%notification, %target, said = answer, summary, "delivered a notification");
        }
        DeliveryOutcome::Failed(cause) => {
            tracing::warn!(%notification, %target, why = cause, summary, "cannot deliver a notification");
        }
        DeliveryOutcome::Refused(cause) => {
            tracing::warn!(%notification, %target, why = cause, summary, "cannot deliver a notification, not retrying");
        }
    }
}
