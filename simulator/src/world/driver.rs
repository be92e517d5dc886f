//! The simulated driver: commands take time, fail if the scenario requires it, and leave the same traces as real
//! drivers.

use super::World;
use super::event::Event;
use super::machine::{Activity, Running, ServiceCopy};
use super::process::Generation;
use ha_api_types::driver::SimulatedDriver;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::Millis;
use ha_node_agent::core::{Command, CommandId, CommandResult, DriverFailure, Input};

/// Returns the simulated behavior of a service; a service of another driver has the default behavior.
pub(super) fn simulated_behavior(service: &ServiceDefinition) -> SimulatedDriver {
    let default =
        || SimulatedDriver { gated: service.driver.waits_for_resume_permit(), ..SimulatedDriver::default() };
    service.driver.simulated.clone().unwrap_or_else(default)
}

fn failed_result(class: FailureClass, reason: Reason, message: &str) -> CommandResult {
    CommandResult::Failed(DriverFailure { class, reason, message: message.to_owned() })
}

/// Returns the result of a command if the driver does not answer.
fn no_answer_result(command: &Command) -> CommandResult {
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
        | Command::CloseReception => failed_result(FailureClass::RetryHere, Reason::TimedOut, message),
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
        let duration_ms: Millis = match &command {
            Command::Probe => 5,
            Command::Start if self.service_activity(node, &service.name) == Some(Activity::Arrived) => 50,
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
        let (is_delayed, duration_ms) = self.queue_slow_request(node, &service, &command, duration_ms);
        let jitter_ms = self.random.draw_between_ms(0, 10);
        let early_observation = self.early_observation(node, &service.name, &command);
        let Some(machine) = self.machines.get_mut(node) else { return };
        // A start command for a running service adopts the service.
        let started_name = !is_delayed && matches!(command, Command::Start) && !machine.runs(&service.name);
        let started_name = started_name.then(|| service.name.clone());
        if !is_delayed
            && matches!(command, Command::Start)
            && machine.has_drivers
            && !simulated.missing.iter().any(|missing| missing == node)
        {
            // The service may touch its data from its first instruction, so it counts as running from now.
            machine.services.insert(
                service.name.clone(),
                ServiceCopy { definition: service.clone(), activity: Activity::Runs },
            );
        }
        machine.commands.insert((generation, id), Running { command, service, early_observation });
        if let Some(name) = started_name.filter(|name| self.is_exclusive(name)) {
            self.check_guarded_start(node, &name);
        }
        self.queue.push(
            self.now + duration_ms + jitter_ms,
            Event::CommandEnds { node: node.to_owned(), generation, id },
        );
        self.check_at_most_one_copy();
    }

    /// Cancels a command, without undoing its effects.
    pub(super) fn cancel_command(&mut self, node: &NodeName, generation: Generation, id: CommandId) {
        let canceled_command =
            self.machines.get_mut(node).and_then(|machine| machine.commands.remove(&(generation, id)));
        if canceled_command.is_some() {
            self.send_to_agent(node, generation, Input::Ended { id, result: CommandResult::Canceled });
        }
    }

    /// Completes a command and reports its result to the agent.
    pub(super) fn end_command(&mut self, node: &NodeName, generation: Generation, id: CommandId) {
        let Some(running) =
            self.machines.get_mut(node).and_then(|machine| machine.commands.remove(&(generation, id)))
        else {
            return;
        };
        let result = self.command_result(node, &running);
        self.check_at_most_one_copy();
        self.send_to_agent(node, generation, Input::Ended { id, result });
    }

    fn command_result(&mut self, node: &NodeName, running: &Running) -> CommandResult {
        if self.machines.get(node).is_some_and(|machine| !machine.has_drivers) {
            return CommandResult::without_driver(&running.command, None);
        }
        let simulated = simulated_behavior(&running.service);
        let name = &running.service.name;
        if self.machines.get(node).is_some_and(|machine| machine.drivers_hang) {
            return no_answer_result(&running.command);
        }
        let may_fail_here =
            simulated.fail_on.is_empty() || simulated.fail_on.iter().any(|listed| listed == node);
        match &running.command {
            Command::Probe => CommandResult::Observed(
                running.early_observation.clone().unwrap_or_else(|| self.observe_service(node, name)),
            ),
            Command::Start => {
                if simulated.missing.iter().any(|missing| missing == node) {
                    return failed_result(
                        FailureClass::NeverHere,
                        Reason::NotInstalled,
                        "service is not installed on this node",
                    );
                }
                if simulated.bad_configuration {
                    self.remove_service(node, name);
                    let class = FailureClass::ConfigurationWrong;
                    return failed_result(class, Reason::BadConfiguration, "simulated configuration error");
                }
                if u64::from(simulated.start_seconds) * 1000 > running.service.timeouts.start_ms() {
                    self.remove_service(node, name);
                    return failed_result(
                        FailureClass::RetryHere,
                        Reason::TimedOut,
                        "service did not start in time",
                    );
                }
                let failure_count = self.start_failures.entry(name.clone()).or_default();
                if may_fail_here && *failure_count < simulated.start_failures {
                    *failure_count += 1;
                    self.remove_service(node, name);
                    return failed_result(
                        FailureClass::RetryHere,
                        Reason::StartFailed,
                        "simulated failure of the start",
                    );
                }
                *failure_count = 0;
                let present = ServiceCopy { definition: running.service.clone(), activity: Activity::Runs };
                if let Some(machine) = self.machines.get_mut(node) {
                    machine.services.insert(name.clone(), present);
                }
                self.record_started(node, name);
                CommandResult::Done
            }
            Command::Stop { .. } | Command::Kill => {
                if simulated.stop_fails && may_fail_here {
                    return failed_result(
                        FailureClass::RetryHere,
                        Reason::StopFailed,
                        "simulated failure of the stop",
                    );
                }
                self.remove_service(node, name);
                CommandResult::Done
            }
            Command::Receive => {
                if simulated.missing.iter().any(|missing| missing == node) {
                    return failed_result(
                        FailureClass::NeverHere,
                        Reason::NotInstalled,
                        "service is not installed on this node",
                    );
                }
                let present =
                    ServiceCopy { definition: running.service.clone(), activity: Activity::Receives };
                if let Some(machine) = self.machines.get_mut(node) {
                    machine.services.entry(name.clone()).or_insert(present);
                }
                CommandResult::Done
            }
            // A simulated service has arrived as soon as the command of the source has ended.
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
                if self.service_activity(node, name) != Some(Activity::Runs) {
                    self.remove_service(node, name);
                }
                CommandResult::Done
            }
            Command::CloseReception => failed_result(
                FailureClass::NeverHere,
                Reason::MoveFailed,
                "simulated: an incoming migration cannot be rejected",
            ),
            Command::Migrate { target } => self.migrate(node, target, name, &simulated, may_fail_here),
            Command::ReplaceSecondary { node: new_secondary, .. } => {
                self.replace_secondary(node, new_secondary, running, &simulated, may_fail_here)
            }
        }
    }

    fn migrate(
        &mut self,
        node: &NodeName,
        target: &NodeName,
        name: &ResourceName,
        simulated: &SimulatedDriver,
        may_fail_here: bool,
    ) -> CommandResult {
        let failure_count = self.migrate_failures.entry(name.to_owned()).or_default();
        if may_fail_here && *failure_count < simulated.migrate_failures {
            *failure_count += 1;
            return failed_result(
                FailureClass::RetryHere,
                Reason::MoveFailed,
                "simulated failure of the migration",
            );
        }
        *failure_count = 0;
        // An ungated service arrives whenever the target is up, even in a later boot than the boot that prepared to
        // receive it.
        let target_ready =
            !simulated.gated || self.service_activity(target, name) == Some(Activity::Receives);
        if !self.can_migrate_between(node, target)
            || !target_ready
            || self.service_activity(node, name) != Some(Activity::Runs)
        {
            return failed_result(FailureClass::RetryHere, Reason::MoveFailed, "target node is unreachable");
        }
        let Some(mut present) = self.machines.get_mut(node).and_then(|machine| machine.services.remove(name))
        else {
            return failed_result(
                FailureClass::RetryHere,
                Reason::MoveFailed,
                "service does not run on this node",
            );
        };
        present.activity = if simulated.gated { Activity::Arrived } else { Activity::Runs };
        if let Some(machine) = self.machines.get_mut(target) {
            machine.services.insert(name.to_owned(), present);
        }
        if !simulated.gated {
            self.record_started(target, name);
        }
        CommandResult::Done
    }

    /// Ends a copy to a new secondary. The copy succeeds only on the source, and only if the target is up.
    fn replace_secondary(
        &mut self,
        node: &NodeName,
        new_secondary: &NodeName,
        running: &Running,
        simulated: &SimulatedDriver,
        may_fail_here: bool,
    ) -> CommandResult {
        let failure_count = self.replace_failures.entry(running.service.name.clone()).or_default();
        if may_fail_here && *failure_count < simulated.replace_failures {
            *failure_count += 1;
            return failed_result(
                FailureClass::RetryHere,
                Reason::ReplaceFailed,
                "simulated failure of the replacement",
            );
        }
        *failure_count = 0;
        if u64::from(simulated.replace_seconds) * 1000 > running.service.timeouts.replace_ms() {
            return failed_result(
                FailureClass::RetryHere,
                Reason::TimedOut,
                "replacement did not complete in time",
            );
        }
        if !self.can_migrate_between(node, new_secondary) {
            let text = "new secondary is unreachable";
            return failed_result(FailureClass::RetryHere, Reason::ReplaceFailed, text);
        }
        CommandResult::Done
    }

    /// Returns the observation of a service by a driver that detects every change immediately.
    pub(super) fn observe_service(&self, node: &NodeName, name: &ResourceName) -> Observed {
        match self.service_activity(node, name) {
            // Arrived counts as running, like a paused guest: only the resume is missing.
            Some(Activity::Runs | Activity::Arrived) => Observed::Running,
            Some(Activity::Receives) | None => Observed::NotRunning,
        }
    }

    /// Returns the state of a service on a machine; `None` if the machine does not contain the service.
    pub(super) fn service_activity(&self, node: &NodeName, name: &ResourceName) -> Option<Activity> {
        let machine = self.machines.get(node)?;
        machine.services.get(name).map(|present| present.activity)
    }

    pub(super) fn remove_service(&mut self, node: &NodeName, name: &ResourceName) {
        let Some(machine) = self.machines.get_mut(node) else { return };
        let was_running = machine.runs(name);
        machine.services.remove(name);
        if was_running {
            self.record_lost_service(node, name);
        }
    }
}
