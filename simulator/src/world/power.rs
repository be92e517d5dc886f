//! Power, boots and suspends of machines; start, end, pause and resume of processes.

use super::World;
use super::event::Event;
use super::invariants::Bound;
use super::process::{Client, Generation, Process};
use super::version::Version;
use crate::scenario::action::{PetBehavior, ProcessVerb};
use ha_api_types::etcd_access::agent_selectors;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::record::SleepProtection;
use ha_api_types::time::Millis;
use ha_controller::core::combined_controller::CombinedController;
use ha_controller::core::{Config as ControllerConfig, FullReadId, Input as ControllerInput};
use ha_node_agent::core::{
    AgentCore, Command, Config as AgentConfig, Hardware, Input as AgentInput, Shutdown,
};
use ha_node_agent::watchdog::core::{Core as WatchdogCore, Input as WatchdogInput};
use ha_node_agent::watchdog::protocol::Privileges;

/// Time from power-on until the daemons run, in milliseconds.
const BOOT_DURATION_MS: Millis = 5_000;
/// Time from a watchdog's reset until the daemons run, in milliseconds.
const RESET_DURATION_MS: Millis = 20_000;

impl World {
    /// Switches a machine on.
    pub(super) fn power_on(&mut self, node: &NodeName, boot_ms: Millis) {
        let Some(machine) = self.machines.get_mut(node) else { return };
        if machine.is_powered {
            return;
        }
        machine.boot += 1;
        machine.is_powered = true;
        let boot = machine.boot;
        self.queue.push(self.now + boot_ms, Event::Booted { node: node.to_owned(), boot });
    }

    /// Switches a machine on or cuts its power, as a step demands.
    pub(super) fn power(&mut self, node: &NodeName, on: bool) {
        if on {
            self.power_on(node, BOOT_DURATION_MS);
        } else {
            self.log(node, "machine", "power is cut");
            self.lose_everything(node);
        }
    }

    /// Ends all processes and services on a machine; its disk keeps its content.
    pub(super) fn lose_everything(&mut self, node: &NodeName) {
        let running_services: Vec<ResourceName> = self
            .machines
            .get(node)
            .map(|machine| machine.services.keys().filter(|name| machine.runs(name)).cloned().collect())
            .unwrap_or_default();
        for name in running_services {
            self.record_lost_service(node, &name);
        }
        self.agents.remove(node);
        self.controllers.remove(node);
        let now = self.now;
        if let Some(machine) = self.machines.get_mut(node) {
            machine.is_up = false;
            machine.is_powered = false;
            machine.shutdown_in_progress = None;
            machine.agent_restarts = false;
            machine.controller_restarts = false;
            machine.is_suspended = false;
            machine.clock.set_suspended(now, false);
            machine.services.clear();
            machine.commands.clear();
            machine.driver_requests.clear();
            machine.started_by_boot.clear();
            machine.watchdog.daemon = WatchdogCore::new(Privileges::default());
            machine.watchdog.has_exited = false;
            machine.watchdog.saved = None;
            machine.watchdog.is_open = false;
            machine.watchdog.fires_at = None;
            machine.watchdog.next_check_at = None;
            machine.watchdog.wake_at = None;
            machine.watchdog.waiting.clear();
            machine.watchdog.stops_for_ms = None;
            machine.watchdog.stopped = None;
            machine.bound = Bound::default();
            // A new boot number invalidates the events of a boot in progress.
            machine.boot += 1;
        }
        self.deferred_events.retain(|(suspended, _)| suspended != node);
    }

    /// Resets a machine by its watchdog, after which the machine boots again.
    pub(super) fn reset(&mut self, node: &NodeName) {
        self.log(node, "watchdog", "resets the machine");
        let is_active = self.machines.get(node).is_some_and(|machine| {
            machine.services.values().any(|present| present.definition.exclusive)
                || !machine.commands.is_empty()
        });
        // The watchdog is armed before a start. It stays armed until the agent has committed the stop of the last
        // active service.
        let guards_something = is_active
            || self.reports_active(node)
            || self.is_to_start(node)
            || self.has_armed_without_an_answer(node)
            || self.has_just_become_idle(node);
        // The restore removed the agent's reports, so the active services are unknown until the agent reports again.
        let store_was_restored = !self.store.get(&self.keys.restore_marker()).entries.is_empty();
        let is_watchdog_test =
            self.machines.get(node).is_some_and(|machine| machine.journal.active_trial.is_some());
        // Nothing can stop the countdown of a device that rejects renewals, or whose daemon does not run.
        let counts_down_in_any_case = self.machines.get(node).is_some_and(|machine| {
            machine.watchdog.pets != PetBehavior::Accept || machine.watchdog.has_exited
        });
        if !guards_something && !is_watchdog_test && !store_was_restored && !counts_down_in_any_case {
            self.record_violation(
                "no unnecessary resets",
                format!("{node} was reset although no service was active"),
            );
        }
        self.lose_everything(node);
        let now = self.now;
        if let Some(machine) = self.machines.get_mut(node) {
            machine.resets.push(now);
            machine.watchdog_expired = true;
        }
        self.power_on(node, RESET_DURATION_MS);
    }

    pub(super) fn on_booted(&mut self, node: &NodeName, boot: u64) {
        let Some(machine) =
            self.machines.get_mut(node).filter(|machine| machine.boot == boot && !machine.is_up)
        else {
            return;
        };
        machine.is_up = true;
        machine.watchdog_expired = false;
        machine.journal_at_boot = machine.journal.clone();
        let has_controller = machine.has_controller;
        self.log(node, "machine", "is up");
        self.start_at_boot(node);
        let delay_ms = self.random.draw_between_ms(10, 500);
        self.queue
            .push(self.now + delay_ms, Event::StartProcess { client: Client::Agent(node.to_owned()), boot });
        if has_controller {
            let delay_ms = self.random.draw_between_ms(10, 500);
            self.queue.push(
                self.now + delay_ms,
                Event::StartProcess { client: Client::Controller(node.to_owned()), boot },
            );
        }
    }

    pub(super) fn start_process(&mut self, client: &Client, boot: u64) {
        let node = client.node();
        let Some(machine) = self.machines.get(node).filter(|machine| machine.boot == boot && machine.is_up)
        else {
            return;
        };
        let generation = self.generation_count + 1;
        match client {
            Client::Agent(node) => {
                if self.agents.contains_key(node) {
                    return;
                }
                let config = AgentConfig {
                    keys: self.keys.clone(),
                    node: node.clone(),
                    instance: format!("agent-{generation}").into(),
                    machine_id: machine.machine_id(node),
                    product_id: Some(machine.product_id(node)),
                    boot_id: machine.boot_id(node),
                    is_virtual: machine.is_virtual,
                    sleep_protection: machine.sleep,
                    drivers: machine.drivers.clone(),
                    policy: machine.policy.clone(),
                    hardware: Hardware { capacity: machine.capacity, threads: None },
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                };
                let core = AgentCore::new(config, machine.journal.clone());
                self.generation_count = generation;
                let selectors = agent_selectors(&self.keys, node);
                self.agents.insert(node.clone(), Process::new(core, generation, selectors));
                self.log(node, "agent", "starts");
                self.connect_watchdog(node, generation);
            }
            Client::Controller(node) => {
                if self.controllers.contains_key(node) {
                    return;
                }
                let config = ControllerConfig {
                    cluster: super::CLUSTER.to_owned(),
                    id: node.as_str().into(),
                    url: super::machine::controller_url(node),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    instance: format!("controller-{generation}").into(),
                    machine: machine.machine_id(node),
                    is_only_process: true,
                };
                self.generation_count = generation;
                let selectors = vec![self.keys.root().to_owned()];
                let mut core = CombinedController::new(config);
                core.set_plans_slowly(machine.plan_ms > 0);
                let process = Process::new(core, generation, selectors);
                self.controllers.insert(node.clone(), process);
                self.log(node, "controller", "starts");
            }
        }
        self.start_sync(client, generation, FullReadId::default());
        // The core may have effects before its first event.
        self.send_first_tick(client, generation);
        self.queue.push(self.now + super::RELIST_INTERVAL_MS, Event::Relist(client.clone(), generation));
    }

    fn send_first_tick(&mut self, client: &Client, generation: Generation) {
        match client {
            Client::Agent(node) => self.send_to_agent(node, generation, AgentInput::Tick),
            Client::Controller(node) => self.send_to_controller(node, generation, ControllerInput::Tick),
        }
    }

    /// Ends an agent's process; its services continue.
    pub(super) fn end_agent(&mut self, node: &NodeName) {
        self.agents.remove(node);
        if let Some(machine) = self.machines.get_mut(node) {
            // A migration in progress continues without the agent, until the next agent process ends it.
            machine.commands.retain(|_, running| matches!(running.command, Command::Migrate { .. }));
            machine.watchdog.waiting.clear();
        }
        self.send_to_daemon(node, None, WatchdogInput::Disconnected);
        self.finish_agent_end(node);
    }

    /// Applies an operation to an agent's process.
    pub(super) fn agent_process(&mut self, node: &NodeName, verb: ProcessVerb) {
        let client = Client::Agent(node.to_owned());
        let Some(boot) = self.machines.get(node).map(|machine| machine.boot) else { return };
        match verb {
            // A start during the end of a process happens after that end.
            ProcessVerb::Start if self.agents.get(node).is_some_and(|process| process.is_ending) => {
                self.restart_agent(node);
            }
            ProcessVerb::Upgrade { writes_new_values } => {
                self.set_version(&client, Version::Next { writes_new_values });
                self.agent_process(node, ProcessVerb::Restart);
            }
            ProcessVerb::Downgrade => {
                self.set_version(&client, Version::This);
                self.agent_process(node, ProcessVerb::Restart);
            }
            ProcessVerb::Start => self.queue.push(self.now, Event::StartProcess { client, boot }),
            ProcessVerb::Kill => {
                self.log(node, "agent", "is killed");
                self.end_agent(node);
            }
            ProcessVerb::Stop | ProcessVerb::Restart => {
                if let Some(process) = self.agents.get_mut(node) {
                    process.is_ending = true;
                    let generation = process.generation;
                    self.send_to_agent(node, generation, AgentInput::Shutdown(Shutdown::Restart));
                }
                if verb == ProcessVerb::Restart {
                    self.restart_agent(node);
                }
            }
            ProcessVerb::Hang => {
                if let Some(process) = self.agents.get_mut(node) {
                    process.is_hung = true;
                }
                self.log(node, "agent", "hangs");
            }
            ProcessVerb::Resume => {
                self.log(node, "agent", "goes on");
                let inbox = self.agents.get_mut(node).map(|process| {
                    process.is_hung = false;
                    (process.generation, std::mem::take(&mut process.inbox))
                });
                if let Some((generation, inbox)) = inbox {
                    for input in inbox {
                        self.send_to_agent(node, generation, input);
                    }
                    self.send_to_agent(node, generation, AgentInput::Tick);
                }
            }
        }
    }

    /// Applies an operation to a controller's process.
    pub(super) fn controller_process(&mut self, node: &NodeName, verb: ProcessVerb) {
        let client = Client::Controller(node.to_owned());
        let Some(boot) = self.machines.get(node).map(|machine| machine.boot) else { return };
        match verb {
            ProcessVerb::Start if self.controllers.get(node).is_some_and(|process| process.is_ending) => {
                self.restart_controller(node);
            }
            ProcessVerb::Upgrade { writes_new_values } => {
                self.set_version(&client, Version::Next { writes_new_values });
                self.controller_process(node, ProcessVerb::Restart);
            }
            ProcessVerb::Downgrade => {
                self.set_version(&client, Version::This);
                self.controller_process(node, ProcessVerb::Restart);
            }
            ProcessVerb::Start => self.queue.push(self.now, Event::StartProcess { client, boot }),
            ProcessVerb::Kill => {
                self.log(node, "controller", "is killed");
                self.end_controller(node);
            }
            ProcessVerb::Stop | ProcessVerb::Restart => {
                if let Some(process) = self.controllers.get_mut(node) {
                    process.is_ending = true;
                    let generation = process.generation;
                    self.send_to_controller(node, generation, ControllerInput::Shutdown);
                }
                if verb == ProcessVerb::Restart {
                    self.restart_controller(node);
                }
            }
            ProcessVerb::Hang => {
                if let Some(process) = self.controllers.get_mut(node) {
                    process.is_hung = true;
                }
                self.log(node, "controller", "hangs");
            }
            ProcessVerb::Resume => {
                self.log(node, "controller", "goes on");
                let inbox = self.controllers.get_mut(node).map(|process| {
                    process.is_hung = false;
                    (process.generation, std::mem::take(&mut process.inbox))
                });
                if let Some((generation, inbox)) = inbox {
                    for input in inbox {
                        self.send_to_controller(node, generation, input);
                    }
                    self.send_to_controller(node, generation, ControllerInput::Tick);
                }
            }
        }
    }

    /// Suspends a whole machine.
    pub(super) fn suspend(&mut self, node: &NodeName, duration_ms: Millis) {
        let now = self.now;
        match self.machines.get(node).and_then(|machine| machine.sleep) {
            Some(SleepProtection::NotNeeded | SleepProtection::Masked | SleepProtection::Inhibitor) => {
                self.log(node, "machine", "stays awake in spite of a request to sleep");
                return;
            }
            Some(SleepProtection::None) | None => {}
        }
        if let Some(machine) = self.machines.get_mut(node).filter(|machine| machine.is_working()) {
            machine.is_suspended = true;
            machine.clock.set_suspended(now, true);
            // The device's timer also stops during the suspend.
            machine.watchdog.fires_at = machine.watchdog.fires_at.map(|at| at + duration_ms);
            machine.bound.heartbeat_sent_at += duration_ms;
            self.log(node, "machine", "is suspended");
            self.queue.push(now + duration_ms, Event::Awake { node: node.to_owned() });
        }
    }

    /// Changes a machine's sleep protection, which the agent checks every few seconds.
    pub(super) fn set_sleep(&mut self, node: &NodeName, protection: SleepProtection) {
        if let Some(machine) = self.machines.get_mut(node) {
            machine.sleep = Some(protection);
        }
        self.log(node, "machine", &format!("is kept awake by {}", protection.name()));
        if let Some(generation) = self.agents.get(node).map(|process| process.generation) {
            self.send_to_agent(node, generation, AgentInput::Sleep(protection));
        }
    }

    pub(super) fn on_awake(&mut self, node: &NodeName) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(node).filter(|machine| machine.is_suspended) else {
            return;
        };
        machine.is_suspended = false;
        machine.clock.set_suspended(now, false);
        let fires_at = machine.watchdog.fires_at;
        self.log(node, "machine", "wakes");
        let deferred = std::mem::take(&mut self.deferred_events);
        for (suspended, event) in deferred {
            if suspended == *node {
                self.queue.push(now, event);
            } else {
                self.deferred_events.push((suspended, event));
            }
        }
        if let Some(check_ms) = fires_at {
            self.schedule_device_check(node, check_ms);
        }
    }
}
