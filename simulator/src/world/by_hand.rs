//! Changes of services without HA: crashes, and starts, stops and moves by hand.

use super::World;
use super::event::Event;
use super::machine::{Activity, ServiceCopy};
use super::process::Generation;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::kind::Kind;
use ha_api_types::resource::{Resource, ServiceDefinition};
use ha_node_agent::core::{DriverEvent, Input};

impl World {
    /// Ends a service on every node where it runs. Agents detect a crash immediately.
    fn end_service(&mut self, name: &ResourceName, message: &str, stopped_externally: bool) -> Vec<NodeName> {
        let ended_services: Vec<(NodeName, ServiceCopy)> = self
            .machines
            .iter_mut()
            .filter(|(_, machine)| machine.is_working())
            .filter_map(|(node, machine)| {
                let runs = machine.services.get(name).is_some_and(|copy| copy.activity == Activity::Runs);
                let copy = if runs { machine.services.remove(name) } else { None };
                copy.map(|copy| (node.clone(), copy))
            })
            .collect();
        for (node, copy) in &ended_services {
            let event = DriverEvent::Exited {
                name: name.to_owned(),
                uid: copy.definition.uid.clone(),
                message: message.to_owned(),
                stopped_externally,
            };
            self.record_lost_service(node, name);
            if stopped_externally {
                self.schedule_notice(node, event);
            } else if let Some(generation) = self.agents.get(node).map(|process| process.generation) {
                self.send_to_agent(node, generation, Input::Driver(event));
            }
        }
        ended_services.into_iter().map(|(node, _)| node).collect()
    }

    /// Ends a running service as a crash does.
    pub(super) fn crash(&mut self, name: &ResourceName) {
        self.end_service(name, "exit status 1", false);
    }

    /// Stops a service with its own tool.
    pub(super) fn stop_by_hand(&mut self, name: &ResourceName) -> Result<(), String> {
        if self.end_service(name, "stopped by hand", true).is_empty() {
            return Err(format!("{name} does not run"));
        }
        Ok(())
    }

    /// Starts a service with its own tool; a service that already runs keeps running.
    pub(super) fn start_by_hand(&mut self, name: &ResourceName, node: &NodeName) -> Result<(), String> {
        let stored =
            self.spec_of(Kind::Resource, name).ok_or_else(|| format!("resource {name} not found"))?;
        let resource: Resource = serde_json::from_value(stored).map_err(|error| error.to_string())?;
        let definition = ServiceDefinition::of(&resource);
        let Some(machine) = self.machines.get_mut(node).filter(|machine| machine.accepts_starts()) else {
            return Err(format!("{node} is not up, or is shutting down"));
        };
        let uid = definition.uid.clone();
        machine.services.insert(name.to_owned(), ServiceCopy { definition, activity: Activity::Runs });
        self.record_started(node, name);
        self.check_at_most_one_copy();
        self.schedule_notice(node, DriverEvent::Appeared { name: name.to_owned(), uid });
        Ok(())
    }

    /// Delays the agent's discovery of a change by hand. The agent thus first receives the earlier commands of the
    /// user.
    fn schedule_notice(&mut self, node: &NodeName, event: DriverEvent) {
        let Some(generation) = self.agents.get(node).map(|process| process.generation) else { return };
        let delay_ms = self.random.draw_between_ms(500, 1_500);
        self.queue.push(self.now + delay_ms, Event::ByHand { node: node.to_owned(), generation, event });
    }

    /// Reports a change by hand to an agent, if the change has not been undone.
    pub(super) fn deliver_notice(&mut self, node: &NodeName, generation: Generation, event: DriverEvent) {
        let runs = |name: &ResourceName| self.machines.get(node).is_some_and(|machine| machine.runs(name));
        let is_current = match &event {
            DriverEvent::Appeared { name, .. } => runs(name),
            DriverEvent::Exited { name, .. } => !runs(name),
            DriverEvent::Progress { .. } | DriverEvent::RequestedAmounts { .. } => true,
        };
        if is_current {
            self.send_to_agent(node, generation, Input::Driver(event));
        }
    }

    /// Stops a service and starts it on another node, without HA.
    pub(super) fn move_by_hand(&mut self, name: &ResourceName, node: &NodeName) -> Result<(), String> {
        if !self.machines.get(node).is_some_and(super::machine::Machine::accepts_starts) {
            return Err(format!("{node} is not up, or is shutting down"));
        }
        self.stop_by_hand(name)?;
        self.start_by_hand(name, node)
    }
}
