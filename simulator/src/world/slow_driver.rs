//! Slow drivers, whose server executes orders later, even after the agent's death; and services that start at boot.
//!
//! Such a driver is correct: while an order is outstanding, a probe returns Unknown, and a kill ends only after the
//! earlier orders. Its probes take a long time, however, and may return the state at their beginning.

use super::World;
use super::driver::simulated_behavior;
use super::event::Event;
use super::machine::{Activity, DriverRequest, ServiceCopy};
use ha_api_types::id::{BootId, NodeName, ResourceName};
use ha_api_types::kind::Kind;
use ha_api_types::record::Observed;
use ha_api_types::resource::{RequestedState, Resource, ServiceDefinition};
use ha_api_types::time::Millis;
use ha_node_agent::core::Command;
use std::collections::BTreeSet;

impl World {
    /// Gives an order to the server of a slow driver. Returns `true` if the server has the order, and the time that the
    /// command then takes, in milliseconds.
    pub(super) fn queue_slow_request(
        &mut self,
        node: &NodeName,
        service: &ServiceDefinition,
        command: &Command,
        duration_ms: Millis,
    ) -> (bool, Millis) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(node) else { return (false, duration_ms) };
        let Some(slow_ms) =
            machine.driver_delays_ms.get(&service.name).copied().filter(|slow_ms| *slow_ms > 0)
        else {
            return (false, duration_ms);
        };
        match command {
            Command::Start | Command::Stop { .. } | Command::Kill => {}
            Command::Probe => return (false, duration_ms + slow_ms),
            Command::Receive
            | Command::Arrive { .. }
            | Command::Migrate { .. }
            | Command::EndMigration
            | Command::CloseReception
            | Command::ReplaceSecondary { .. }
            | Command::EndReplacement => return (false, duration_ms),
        }
        let earlier_requests =
            machine.driver_requests.values().filter(|request| request.service.name == service.name);
        let due = earlier_requests.map(|request| request.due).max().unwrap_or(now).max(now) + slow_ms;
        self.token_count += 1;
        let request = DriverRequest { service: service.clone(), command: command.clone(), due };
        machine.driver_requests.insert(self.token_count, request);
        let event =
            Event::DriverRequestDue { node: node.to_owned(), boot: machine.boot, request: self.token_count };
        // A stop is visible only after the time that it takes.
        let event_ms = if matches!(command, Command::Start) { due } else { due + duration_ms };
        self.queue.push(event_ms, event);
        (true, due - now + duration_ms)
    }

    /// Returns the result of a slow driver's probe if it is fixed at the probe's beginning.
    pub(super) fn early_observation(
        &mut self,
        node: &NodeName,
        name: &ResourceName,
        command: &Command,
    ) -> Option<Observed> {
        if !matches!(command, Command::Probe) {
            return None;
        }
        let machine = self.machines.get(node)?;
        machine.driver_delays_ms.get(name).filter(|slow_ms| **slow_ms > 0)?;
        if machine.driver_requests.values().any(|request| request.service.name == *name) {
            return Some(Observed::Unknown("a request to the driver has not been executed yet".to_owned()));
        }
        let is_early = self.random.draw_chance(0.5);
        is_early.then(|| self.observe_service(node, name))
    }

    /// Executes an order of a slow driver.
    pub(super) fn execute_driver_request(&mut self, node: &NodeName, boot: u64, request: u64) {
        let Some(machine) =
            self.machines.get_mut(node).filter(|machine| machine.boot == boot && machine.is_up)
        else {
            return;
        };
        let Some(DriverRequest { service, command, .. }) = machine.driver_requests.remove(&request) else {
            return;
        };
        let name = service.name.clone();
        let behavior = simulated_behavior(&service);
        if matches!(command, Command::Start) {
            if behavior.missing.iter().any(|missing| missing == node) {
                return;
            }
            let runs = machine.runs(&name);
            machine
                .services
                .insert(name.clone(), ServiceCopy { definition: service, activity: Activity::Runs });
            self.log(node, "driver", &format!("executes the request to start {name}"));
            if !runs && self.is_exclusive(&name) {
                self.check_guarded_start(node, &name);
            }
        } else if !behavior.stop_fails {
            self.remove_service(node, &name);
        }
        self.check_at_most_one_copy();
    }

    /// Sets whether a service starts when a machine boots.
    pub(super) fn autostart(&mut self, node: &NodeName, name: &ResourceName, on: bool) -> Result<(), String> {
        let resource: Option<Resource> = self.read_object(Kind::Resource, name);
        let Some(machine) = self.machines.get_mut(node) else { return Ok(()) };
        if on {
            let resource = resource.ok_or_else(|| format!("resource {name} not found"))?;
            machine.autostart.insert(name.to_owned(), ServiceDefinition::of(&resource));
        } else {
            machine.autostart.remove(name);
        }
        Ok(())
    }

    /// Starts the services that are set to start when a machine boots.
    pub(super) fn start_at_boot(&mut self, node: &NodeName) {
        let Some(machine) = self.machines.get_mut(node) else { return };
        let mut started = Vec::new();
        for (name, definition) in &machine.autostart {
            if !simulated_behavior(definition).missing.iter().any(|missing| missing == node) {
                let present = ServiceCopy { definition: definition.clone(), activity: Activity::Runs };
                machine.services.insert(name.clone(), present);
                machine.started_by_boot.insert(name.clone());
                started.push(name.clone());
            }
        }
        for name in started {
            self.log(node, "machine", &format!("starts {name} at boot"));
        }
    }

    /// Handles the opening of the epoch of a machine's boot. The agent has stopped every service that the boot started,
    /// except services of Ignored and deleted resources, which no agent changes.
    pub(super) fn on_boot_admitted(&mut self, node: &NodeName, boot_id: &BootId) {
        let is_ignored = |name: &ResourceName| {
            self.read_object::<Resource>(Kind::Resource, name)
                .is_none_or(|resource| resource.spec.state == RequestedState::Ignored)
        };
        let Some(machine) = self.machines.get(node).filter(|machine| machine.boot_id(node) == *boot_id)
        else {
            return;
        };
        let still_ignored: BTreeSet<ResourceName> =
            machine.started_by_boot.iter().filter(|name| is_ignored(name)).cloned().collect();
        if let Some(machine) = self.machines.get_mut(node) {
            machine.started_by_boot = still_ignored;
        }
        self.check_at_most_one_copy();
    }
}
