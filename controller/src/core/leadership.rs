//! Start and end of a term, and the handling of notifications within it.

use super::metric_event::MetricEvent;
use super::notifications::deliveries::{DeliveryId, DeliveryOutcome};
use super::plan::Plan;
use super::reservation::FailoverCapacityCheck;
use super::{Controller, Effect};
use ha_api_types::cluster::CLUSTER_NAME;
use ha_api_types::event::{Event, EventType};
use ha_api_types::kind::Kind;
use ha_api_types::reason::Reason;

impl Controller {
    /// Reports a change of leadership, and resets the state of the previous term.
    pub(super) fn report_leadership(&mut self) {
        let term = self.term();
        if self.reported_term == term {
            return;
        }
        let (reason, event_type, message) = match term {
            Some(_) => (Reason::BecameLeader, EventType::Normal, "became leader"),
            None => (Reason::LostLeadership, EventType::Warning, "lost leadership"),
        };
        self.reported_term = term;
        self.count(MetricEvent::Leadership { gained: term.is_some() });
        self.is_dirty = true;
        self.imbalances.clear();
        self.rebalance.clear();
        self.writes.end_leadership();
        self.waiting.clear();
        self.reservation = FailoverCapacityCheck::default();
        self.deliveries = self.deliveries.for_next_term();
        let message = format!("Controller {} {message}", self.config.id);
        self.emit_cluster_event(event_type, reason, message);
    }

    pub(super) fn begin_deliveries(&mut self, plan: &mut Plan) {
        let planned_deliveries = std::mem::take(&mut plan.deliveries);
        let started = self.deliveries.begin(plan.unreported, planned_deliveries, self.now.monotonic_raw);
        self.effects.extend(started.into_iter().map(Effect::Deliver));
    }

    pub(super) fn handle_delivered(&mut self, id: DeliveryId, outcome: DeliveryOutcome) {
        let Some(ended) = self.deliveries.record_end(id, outcome, self.now.monotonic_raw) else { return };
        self.is_dirty = true;
        self.count(MetricEvent::Notification { target: ended.target, result: ended.result });
        if let Some(message) = ended.discard_message {
            self.emit_cluster_event(EventType::Warning, Reason::NotificationFailed, message);
        }
    }

    pub(super) fn emit_cluster_event(&mut self, event_type: EventType, reason: Reason, message: String) {
        let cluster = self.cluster_view.cluster.as_ref();
        let event = Event {
            kind: Kind::Cluster,
            name: CLUSTER_NAME.to_owned(),
            uid: cluster.map(|stored| stored.value.metadata.uid.clone()).unwrap_or_default(),
            event_type,
            reason,
            message,
            source: format!("controller/{}", self.config.id),
            node: None,
            action_uid: None,
            operation: None,
            epoch: None,
            at: self.now.precise_timestamp(),
        };
        self.emit_event(event);
    }
}
