//! The orderly shutdown of a machine: the actions of its service manager and their deadlines.

use super::World;
use super::event::Event;
use super::process::Client;
use ha_api_types::id::NodeName;
use ha_api_types::record::ShutdownKind;
use ha_api_types::time::Millis;
use ha_controller::core::Input as ControllerInput;
use ha_node_agent::core::{Input as AgentInput, Shutdown};

/// Time that the service manager waits for the agent: `TimeoutStopSec` of its unit.
const SHUTDOWN_TIMEOUT_MS: Millis = 35 * 60_000;
/// Time from the end of the agent until all other processes have ended.
const POWER_OFF_DELAY_MS: Millis = 2_000;
/// Time from the end of one boot until the daemons of the next run.
const REBOOT_DURATION_MS: Millis = 15_000;
/// Time from the end of an agent until its next process runs (`RestartSec`, and the program's start).
const RESTART_DELAY_MS: Millis = 200;

impl World {
    /// Begins an orderly shutdown of a machine: the service manager stops the agent first, and all other actions wait
    /// for its end.
    pub(super) fn shut_down(&mut self, node: &NodeName, shutdown_kind: ShutdownKind) -> Result<(), String> {
        let Some(machine) = self.machines.get_mut(node).filter(|machine| machine.is_working()) else {
            return Err(format!("{node} is not up"));
        };
        if machine.shutdown_in_progress.is_some() {
            return Err(format!("{node} is already shutting down"));
        }
        machine.shutdown_in_progress = Some(shutdown_kind);
        machine.agent_restarts = false;
        let boot = machine.boot;
        self.log(
            node,
            "machine",
            if shutdown_kind == ShutdownKind::Reboot { "reboots" } else { "shuts down" },
        );
        match self.agents.get(node).map(|process| process.generation) {
            Some(generation) => {
                self.queue.push(self.now + SHUTDOWN_TIMEOUT_MS, Event::Down { node: node.to_owned(), boot });
                self.send_to_agent(node, generation, AgentInput::Shutdown(Shutdown::Machine(shutdown_kind)));
            }
            None => self.finish_agent_end(node),
        }
        Ok(())
    }

    /// Handles the end of an agent's process: a shutdown that waits for it continues, and a restart starts the next process.
    pub(super) fn finish_agent_end(&mut self, node: &NodeName) {
        let Some(machine) = self.machines.get_mut(node) else { return };
        let (boot, shutdown) = (machine.boot, machine.shutdown_in_progress);
        let is_restart = std::mem::take(&mut machine.agent_restarts);
        if shutdown.is_some() {
            if let Some(generation) = self.controllers.get(node).map(|process| process.generation) {
                self.send_to_controller(node, generation, ControllerInput::Shutdown);
            }
            self.queue.push(self.now + POWER_OFF_DELAY_MS, Event::Down { node: node.to_owned(), boot });
        } else if is_restart {
            let client = Client::Agent(node.to_owned());
            self.queue.push(self.now + RESTART_DELAY_MS, Event::StartProcess { client, boot });
        }
    }

    /// Restarts the agent once its process has ended, or starts it if it does not run.
    pub(super) fn restart_agent(&mut self, node: &NodeName) {
        let Some(boot) = self.machines.get(node).map(|machine| machine.boot) else { return };
        if self.agents.contains_key(node) {
            if let Some(machine) = self.machines.get_mut(node) {
                machine.agent_restarts = true;
            }
        } else {
            self.queue.push(self.now, Event::StartProcess { client: Client::Agent(node.to_owned()), boot });
        }
    }

    /// Restarts the controller once its process has ended, or starts it if it does not run.
    pub(super) fn restart_controller(&mut self, node: &NodeName) {
        let Some(machine) = self.machines.get_mut(node) else { return };
        if self.controllers.contains_key(node) {
            machine.controller_restarts = true;
        } else {
            let client = Client::Controller(node.to_owned());
            self.queue.push(self.now + RESTART_DELAY_MS, Event::StartProcess { client, boot: machine.boot });
        }
    }

    /// Handles the end of a controller's process, and starts the next one if a restart was requested.
    pub(super) fn end_controller(&mut self, node: &NodeName) {
        self.controllers.remove(node);
        let Some(machine) = self.machines.get_mut(node) else { return };
        if std::mem::take(&mut machine.controller_restarts) {
            let client = Client::Controller(node.to_owned());
            self.queue.push(self.now + RESTART_DELAY_MS, Event::StartProcess { client, boot: machine.boot });
        }
    }

    /// Completes a shutdown, or ends the service manager's wait for it.
    pub(super) fn power_down_after_leave(&mut self, node: &NodeName, boot: u64) {
        let Some(machine) = self.machines.get(node).filter(|machine| machine.boot == boot && machine.is_up)
        else {
            return;
        };
        let Some(shutdown_kind) = machine.shutdown_in_progress else { return };
        self.log(node, "machine", "is down");
        self.lose_everything(node);
        if shutdown_kind == ShutdownKind::Reboot {
            self.power_on(node, REBOOT_DURATION_MS);
        }
    }

    /// Replaces a machine with another machine with the same name. The new machine is switched on with an empty disk or a
    /// copy of the disk.
    pub(super) fn replace(&mut self, node: &NodeName, clone: bool) {
        let replacement = if clone { "a machine with a copy of the disk" } else { "another machine" };
        self.log(node, "machine", &format!("is switched off and replaced by {replacement}"));
        self.lose_everything(node);
        if let Some(machine) = self.machines.get_mut(node) {
            if clone {
                machine.disk_copy += 1;
            } else {
                machine.hardware_number += 1;
                machine.journal = ha_node_agent::core::Journal::default();
            }
        }
        self.power_on(node, REBOOT_DURATION_MS);
    }
}
