//! The simulated driver: commands take time, fail if the scenario requires it, and leave the same traces as real
//! drivers.

use super::World;
use super::event::Event;
use super::machine::{Doing, Present, Running};
use super::process::Generation;
use ha_api_types::driver::SimulatedDriver;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::Millis;
use ha_node_agent::core::{Command, CommandId, CommandResult, DriverFailure, Input};

/// Returns the simulated behavior of a service; services of other drivers have the default behavior.
pub(super) fn simulated_behavior(service: &ServiceDefinition) -> SimulatedDriver {
    let default = || SimulatedDriver { gated: service.driver.is_gated(), ..SimulatedDriver::default() };
    service.driver.simulated.clone().unwrap_or_else(default)
}

fn failure(class: FailureClass, reason: Reason, message: &str) -> CommandResult {
    CommandResult::Failed(DriverFailure { class, reason, message: message.to_owned() })
}

/// Returns the result of a command whose driver does not answer.
fn unanswered(command: &Command) -> CommandResult {
    let message = "driver does not answer";
    match command {
        Command::Probe => CommandResult::Observed(Observed::Unknown(message.to_owned())),
        Command::Start
        | Command::Stop { .. }
        | Command::Kill
        | Command::Receive
        | Command::Arrive { .. }
        | Command::Migrate { .. }
        | Command::ReplaceSecondary { .. }
        | Command::EndReplacement
        | Command::EndMigration
        | Command::CloseReception => failure(FailureClass::RetryHere, Reason::TimedOut, message),
    }
}

impl World {
    /// Starts a command of the driver.
    pub(super) fn begin_command(
        &mut self,
        node: &NodeName,
        generation: Generation,
        id: CommandId,
        command: Command,
        service: ServiceDefinition,
    ) {
        let simulated = simulated_behavior(&service);
        let seconds = |count: u32| u64::from(count) * 1000;
        let takes_ms: Millis = match &command {
            Command::Probe => 5,
            Command::Start if self.present(node, &service.name) == Some(Doing::Arrived) => 50,
            Command::Start => seconds(simulated.start_seconds).min(service.timeouts.start_ms()),
            Command::Stop { graceful_ms } => seconds(simulated.stop_seconds).min(*graceful_ms),
            Command::Kill => 20,
            Command::Receive | Command::Arrive { .. } => 50,
            Command::Migrate { .. } => seconds(simulated.migrate_seconds),
            Command::ReplaceSecondary { .. } => {
                seconds(simulated.replace_seconds).min(service.timeouts.replace_ms())
            }
            Command::EndReplacement | Command::EndMigration | Command::CloseReception => 10,
        };
        let (ordered, takes_ms) = self.order(node, &service, &command, takes_ms);
        let jitter_ms = self.random.between_ms(0, 10);
        let seen = self.seen_early(node, &service.name, &command);
        let Some(machine) = self.machines.get_mut(node) else { return };
        // A start command for a running service adopts the service.
        let starts = !ordered && matches!(command, Command::Start) && !machine.runs(&service.name);
        let starts = starts.then(|| service.name.clone());
        if !ordered
            && matches!(command, Command::Start)
            && machine.knows_drivers
            && !simulated.missing.iter().any(|missing| missing == node)
        {
            // The service may touch its data from its first instruction, so it counts as running from now.
            machine
                .services
                .insert(service.name.clone(), Present { definition: service.clone(), doing: Doing::Runs });
        }
        machine.commands.insert((generation, id), Running { command, service, seen });
        if let Some(name) = starts.filter(|name| self.is_exclusive(name)) {
            self.check_guarded_start(node, &name);
        }
        self.queue.push(
            self.now + takes_ms + jitter_ms,
            Event::CommandEnds { node: node.to_owned(), generation, id },
        );
        self.check_never_two();
    }

    /// Cancels a command, without undoing its effects.
    pub(super) fn cancel_command(&mut self, node: &NodeName, generation: Generation, id: CommandId) {
        let known =
            self.machines.get_mut(node).and_then(|machine| machine.commands.remove(&(generation, id)));
        if known.is_some() {
            self.tell_agent(node, generation, Input::Ended { id, result: CommandResult::Cancelled });
        }
    }

    /// Completes a command and reports its result to the agent.
    pub(super) fn end_command(&mut self, node: &NodeName, generation: Generation, id: CommandId) {
        let Some(running) =
            self.machines.get_mut(node).and_then(|machine| machine.commands.remove(&(generation, id)))
        else {
            return;
        };
        let result = self.result_of(node, &running);
        self.check_never_two();
        self.tell_agent(node, generation, Input::Ended { id, result });
    }

    fn result_of(&mut self, node: &NodeName, running: &Running) -> CommandResult {
        if self.machines.get(node).is_some_and(|machine| !machine.knows_drivers) {
            return CommandResult::without_driver(&running.command, None);
        }
        let simulated = simulated_behavior(&running.service);
        let name = &running.service.name;
        if self.machines.get(node).is_some_and(|machine| machine.drivers_hang) {
            return unanswered(&running.command);
        }
        let here = simulated.fail_on.is_empty() || simulated.fail_on.iter().any(|listed| listed == node);
        match &running.command {
            Command::Probe => {
                CommandResult::Observed(running.seen.clone().unwrap_or_else(|| self.observed(node, name)))
            }
            Command::Start => {
                if simulated.missing.iter().any(|missing| missing == node) {
                    return failure(
                        FailureClass::NeverHere,
                        Reason::NotInstalled,
                        "service is not installed on this node",
                    );
                }
                if simulated.bad_configuration {
                    self.remove(node, name);
                    let class = FailureClass::ConfigurationWrong;
                    return failure(class, Reason::BadConfiguration, "simulated configuration error");
                }
                if u64::from(simulated.start_seconds) * 1000 > running.service.timeouts.start_ms() {
                    self.remove(node, name);
                    return failure(
                        FailureClass::RetryHere,
                        Reason::TimedOut,
                        "service did not start in time",
                    );
                }
                let failed = self.start_failures.entry(name.clone()).or_default();
                if here && *failed < simulated.start_failures {
                    *failed += 1;
                    self.remove(node, name);
                    return failure(
                        FailureClass::RetryHere,
                        Reason::StartFailed,
                        "simulated failure of the start",
                    );
                }
                *failed = 0;
                let present = Present { definition: running.service.clone(), doing: Doing::Runs };
                if let Some(machine) = self.machines.get_mut(node) {
                    machine.services.insert(name.clone(), present);
                }
                self.came_up(node, name);
                CommandResult::Done
            }
            Command::Stop { .. } | Command::Kill => {
                if simulated.stop_fails && here {
                    return failure(
                        FailureClass::RetryHere,
                        Reason::StopFailed,
                        "simulated failure of the stop",
                    );
                }
                self.remove(node, name);
                CommandResult::Done
            }
            Command::Receive => {
                if simulated.missing.iter().any(|missing| missing == node) {
                    return failure(
                        FailureClass::NeverHere,
                        Reason::NotInstalled,
                        "service is not installed on this node",
                    );
                }
                let present = Present { definition: running.service.clone(), doing: Doing::Receives };
                if let Some(machine) = self.machines.get_mut(node) {
                    machine.services.entry(name.clone()).or_insert(present);
                }
                CommandResult::Done
            }
            // A simulated service has arrived as soon as the source is done.
            Command::Arrive { .. } | Command::EndReplacement => CommandResult::Done,
            Command::EndMigration => {
                if let Some(machine) = self.machines.get_mut(node) {
                    machine.commands.retain(|_, other| {
                        !matches!(other.command, Command::Migrate { .. }) || other.service.name != *name
                    });
                }
                CommandResult::Done
            }
            Command::CloseReception if simulated.gated => {
                if self.present(node, name) != Some(Doing::Runs) {
                    self.remove(node, name);
                }
                CommandResult::Done
            }
            Command::CloseReception => failure(
                FailureClass::NeverHere,
                Reason::MoveFailed,
                "simulated: an incoming migration cannot be rejected",
            ),
            Command::Migrate { target } => self.migrate(node, target, name, &simulated, here),
            Command::ReplaceSecondary { node: new, .. } => {
                self.replace_secondary(node, new, running, &simulated, here)
            }
        }
    }

    fn migrate(
        &mut self,
        node: &NodeName,
        target: &NodeName,
        name: &ResourceName,
        simulated: &SimulatedDriver,
        here: bool,
    ) -> CommandResult {
        let failed = self.migrate_failures.entry(name.to_owned()).or_default();
        if here && *failed < simulated.migrate_failures {
            *failed += 1;
            return failure(
                FailureClass::RetryHere,
                Reason::MoveFailed,
                "simulated failure of the migration",
            );
        }
        *failed = 0;
        // An ungated service arrives whenever the target is up, also in a later boot than the one that was to receive it.
        let ready = !simulated.gated || self.present(target, name) == Some(Doing::Receives);
        if !self.migrates_between(node, target) || !ready || self.present(node, name) != Some(Doing::Runs) {
            return failure(FailureClass::RetryHere, Reason::MoveFailed, "target node is unreachable");
        }
        let Some(mut present) = self.machines.get_mut(node).and_then(|machine| machine.services.remove(name))
        else {
            return failure(FailureClass::RetryHere, Reason::MoveFailed, "service does not run on this node");
        };
        present.doing = if simulated.gated { Doing::Arrived } else { Doing::Runs };
        if let Some(machine) = self.machines.get_mut(target) {
            machine.services.insert(name.to_owned(), present);
        }
        if !simulated.gated {
            self.came_up(target, name);
        }
        CommandResult::Done
    }

    /// Ends a copy to a new secondary. The copy succeeds only on the source, and only if the target is up.
    fn replace_secondary(
        &mut self,
        node: &NodeName,
        new: &NodeName,
        running: &Running,
        simulated: &SimulatedDriver,
        here: bool,
    ) -> CommandResult {
        let failed = self.replace_failures.entry(running.service.name.clone()).or_default();
        if here && *failed < simulated.replace_failures {
            *failed += 1;
            return failure(
                FailureClass::RetryHere,
                Reason::ReplaceFailed,
                "simulated failure of the replacement",
            );
        }
        *failed = 0;
        if u64::from(simulated.replace_seconds) * 1000 > running.service.timeouts.replace_ms() {
            return failure(
                FailureClass::RetryHere,
                Reason::TimedOut,
                "replacement was not complete in time",
            );
        }
        if !self.migrates_between(node, new) {
            let text = "new secondary is unreachable";
            return failure(FailureClass::RetryHere, Reason::ReplaceFailed, text);
        }
        CommandResult::Done
    }

    /// Returns the observation of a service by a driver that detects every change immediately.
    pub(super) fn observed(&self, node: &NodeName, name: &ResourceName) -> Observed {
        match self.present(node, name) {
            // Arrived counts as running, like a paused guest: only the resume is missing.
            Some(Doing::Runs | Doing::Arrived) => Observed::Running,
            Some(Doing::Receives) | None => Observed::NotRunning,
        }
    }

    /// Returns the state of a service on a machine; `None` if the service is not there.
    pub(super) fn present(&self, node: &NodeName, name: &ResourceName) -> Option<Doing> {
        let machine = self.machines.get(node)?;
        machine.services.get(name).map(|present| present.doing)
    }

    pub(super) fn remove(&mut self, node: &NodeName, name: &ResourceName) {
        let Some(machine) = self.machines.get_mut(node) else { return };
        let ran = machine.runs(name);
        machine.services.remove(name);
        if ran {
            self.lost_service(node, name);
        }
    }
}
