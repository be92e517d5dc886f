//! Start and end of a term, and the handling of notifications within it.

use super::counted::Counted;
use super::notifications::deliveries::{DeliveryId, DeliveryOutcome};
use super::plan::Plan;
use super::reservation::Reservation;
use super::{Controller, Effect};
use ha_api_types::cluster::CLUSTER_NAME;
use ha_api_types::event::{Event, EventType};
use ha_api_types::kind::Kind;
use ha_api_types::reason::Reason;

impl Controller {
    /// Reports a change of leadership, and resets the state of the previous term.
    pub(super) fn note_leadership(&mut self) {
        let term = self.term();
        if self.led == term {
            return;
        }
        let (reason, event_type, what) = match term {
            Some(_) => (Reason::BecameLeader, EventType::Normal, "became leader"),
            None => (Reason::LostLeadership, EventType::Warning, "lost leadership"),
        };
        self.led = term;
        self.count(Counted::Leadership { gained: term.is_some() });
        self.dirty = true;
        self.uneven.clear();
        self.writes.depose();
        self.waiting.clear();
        self.reservation = Reservation::default();
        self.deliveries = self.deliveries.of_next_term();
        let message = format!("Controller {} {what}", self.config.id);
        self.tell_of_cluster(event_type, reason, message);
    }

    pub(super) fn begin_deliveries(&mut self, plan: &mut Plan) {
        let wanted = std::mem::take(&mut plan.deliveries);
        let begun = self.deliveries.begin(plan.unreported, wanted, self.now.raw);
        self.effects.extend(begun.into_iter().map(Effect::Deliver));
    }

    pub(super) fn delivered(&mut self, id: DeliveryId, outcome: DeliveryOutcome) {
        let Some(ended) = self.deliveries.end(id, outcome, self.now.raw) else { return };
        self.dirty = true;
        self.count(Counted::Notification { target: ended.target, result: ended.result });
        if let Some(message) = ended.given_up {
            self.tell_of_cluster(EventType::Warning, Reason::NotificationFailed, message);
        }
    }

    pub(super) fn tell_of_cluster(&mut self, event_type: EventType, reason: Reason, message: String) {
        let cluster = self.world.cluster.as_ref();
        let event = Event {
            kind: Kind::Cluster,
            name: CLUSTER_NAME.to_owned(),
            uid: cluster.map(|known| known.value.metadata.uid.clone()).unwrap_or_default(),
            event_type,
            reason,
            message,
            source: format!("controller/{}", self.config.id),
            node: None,
            action_uid: None,
            operation: None,
            epoch: None,
            at: self.now.moment(),
        };
        self.tell(event);
    }
}
