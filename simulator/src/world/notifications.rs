//! Simulated targets of notifications, which accept and record every notification that reaches them.

use super::World;
use super::event::Event;
use super::process::Generation;
use ha_api_types::id::NodeName;
use ha_api_types::notification::NotificationItem;
use ha_api_types::time::Millis;
use ha_controller::core::Input;
use ha_controller::core::notifications::deliveries::{Delivery, DeliveryOutcome};

/// Time that a delivery takes, in milliseconds.
const DELIVERY_MS: Millis = 50;

impl World {
    pub(super) fn begin_delivery(&mut self, node: &NodeName, generation: Generation, delivery: Delivery) {
        let event = Event::Delivery { node: node.to_owned(), generation, delivery: Box::new(delivery) };
        self.queue.push(self.now + DELIVERY_MS, event);
    }

    /// Ends a delivery. Targets are outside the cluster, so an isolated node cannot reach them.
    pub(super) fn end_delivery(&mut self, node: &NodeName, generation: Generation, delivery: &Delivery) {
        let reaches = self.machines.get(node).is_some_and(|machine| machine.network);
        let outcome = if reaches {
            let notification = &delivery.notification;
            self.log(node, "notification", &format!("{} ({})", notification.summary, notification.id));
            let name = |item: &NotificationItem| item.object.name.clone();
            let names: Vec<String> = notification.items.iter().map(name).collect();
            self.notified.push(format!("{:?} {}", notification.kind, names.join(",")));
            DeliveryOutcome::Delivered("taken".to_owned())
        } else {
            DeliveryOutcome::Failed("no route to the target".to_owned())
        };
        self.send_to_controller(node, generation, Input::Delivered { id: delivery.id, outcome });
    }

    /// Returns the received notifications in order, with repetitions: kind and names.
    pub(crate) fn received_notifications(&self) -> &[String] {
        &self.notified
    }
}
