//! Simulated targets of notifications: they take what reaches them, and keep it.

use super::World;
use super::event::Event;
use super::process::Generation;
use ha_api_types::notification::NotificationItem;
use ha_api_types::time::Millis;
use ha_controller::core::Input;
use ha_controller::core::notifications::deliveries::{Delivery, DeliveryOutcome};

/// How long it takes to deliver one, milliseconds.
const DELIVERY_MS: Millis = 50;

impl World {
    pub(super) fn begin_delivery(&mut self, node: &str, generation: Generation, delivery: Delivery) {
        let event = Event::Delivery { node: node.to_owned(), generation, delivery: Box::new(delivery) };
        self.queue.push(self.now + DELIVERY_MS, event);
    }

    /// Targets lie outside: who is cut off does not reach them.
    pub(super) fn end_delivery(&mut self, node: &str, generation: Generation, delivery: &Delivery) {
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
        self.tell_controller(node, generation, Input::Delivered { id: delivery.id, outcome });
    }

    /// What targets got, in order: the kind and the names, as often as it came.
    pub(crate) fn notified(&self) -> &[String] {
        &self.notified
    }
}
