//! The main loop: takes the next event, delivers it, and handles its effects.

use super::World;
use super::event::Event;
use super::hold::HoldQuestion;
use super::link::{Purpose, Request};
use super::process::{Client, Core, Generation, Process};
use super::recorded::Step;
use ha_api_types::id::NodeName;
use ha_api_types::time::{Now, Timestamp};
use ha_controller::core as controller;
use ha_node_agent::core as agent;

impl World {
    /// Handles the next event; returns `false` if no event remains until `limit_ms`.
    pub(super) fn advance(&mut self, limit_ms: u64) -> bool {
        match self.queue.next_time() {
            Some(event_ms) if event_ms <= limit_ms => {}
            Some(_) | None => {
                self.now = limit_ms;
                return false;
            }
        }
        if let Some((event_ms, event)) = self.queue.pop() {
            self.now = self.now.max(event_ms);
            if let Some(node) = self.suspended_machine_of(&event) {
                self.deferred_events.push((node, event));
            } else {
                self.handle_event(event);
                self.record_machine_changes();
                self.check_bounds();
                self.update_store_leader();
                self.check_when_condition();
            }
        }
        true
    }

    /// Returns the machine that must be awake to handle an event, if that machine is suspended.
    fn suspended_machine_of(&self, event: &Event) -> Option<NodeName> {
        let node = match event {
            Event::Wake(client, ..)
            | Event::Watch(client, _)
            | Event::Relist(client, _)
            | Event::SyncAgain(client, ..)
            | Event::Answer { client, .. }
            | Event::Timeout { client, .. }
            | Event::StartProcess { client, .. } => client.node(),
            Event::JournalOnDisk { node, .. }
            | Event::CommandEnds { node, .. }
            | Event::ByHand { node, .. }
            | Event::ToWatchdog { node, .. }
            | Event::FromWatchdog { node, .. }
            | Event::WatchdogWake { node, .. }
            | Event::WatchdogConnects { node, .. }
            | Event::WatchdogResumes { node, .. }
            | Event::PlanMade { node, .. }
            | Event::DeviceCheckDue { node, .. }
            | Event::DriverRequestDue { node, .. }
            | Event::Delivery { node, .. }
            | Event::FencerDone { node, .. } => node,
            Event::HoldAsked { question, .. } => &question.candidate,
            Event::HoldAnswered { question, .. } => &question.node,
            Event::Arrive { .. }
            | Event::LeasesExpire
            | Event::Booted { .. }
            | Event::Down { .. }
            | Event::Awake { .. }
            | Event::Compact(_)
            | Event::StoreAvailable
            | Event::Step => return None,
        };
        self.machines.get(node).filter(|machine| machine.is_suspended).map(|_| node.to_owned())
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Wake(client, generation, at) => self.wake(&client, generation, at),
            Event::Arrive { sender, token, purpose, request } => {
                self.deliver_request(sender, token, purpose, request);
            }
            Event::Answer { client, generation, token, purpose, answer } => {
                self.deliver_answer(&client, generation, token, purpose, Some(answer));
            }
            Event::Timeout { client, generation, token, purpose } => {
                self.handle_timeout(&client, generation, token, &purpose);
                self.deliver_answer(&client, generation, token, purpose, None);
            }
            Event::Watch(client, generation) => self.deliver_changes(&client, generation),
            Event::Relist(client, generation) => {
                if self.is_current(&client, generation) {
                    self.start_sync(&client, generation, controller::FullReadId::default());
                    self.queue.push(self.now + super::RELIST_INTERVAL_MS, Event::Relist(client, generation));
                }
            }
            Event::SyncAgain(client, generation, answers) => {
                if self.is_current(&client, generation) {
                    self.start_sync(&client, generation, answers);
                }
            }
            Event::LeasesExpire => {
                let revision_before = self.store.revision();
                if self.is_store_available() {
                    self.store.expire(ha_api_types::time::MonotonicTime(self.now));
                }
                if self.store.revision() != revision_before {
                    self.handle_commit(revision_before + 1);
                }
                if self.store.next_expiry().is_some_and(|at| at.0 > self.now) {
                    self.schedule_expiry();
                }
            }
            Event::JournalOnDisk { node, generation, id, journal } => {
                if !self.is_current(&Client::Agent(node.clone()), generation) {
                    return;
                }
                let Some(machine) = self.machines.get_mut(&node) else { return };
                let result = if machine.is_disk_full {
                    Err("no space left on device".to_owned())
                } else {
                    machine.journal = *journal;
                    Ok(())
                };
                self.send_to_agent(&node, generation, agent::Input::JournalWritten { id, result });
            }
            Event::CommandEnds { node, generation, id } => self.end_command(&node, generation, id),
            Event::ByHand { node, generation, event } => self.deliver_notice(&node, generation, event),
            Event::ToWatchdog { node, boot, generation, id, request } => {
                self.deliver_watchdog_request(&node, boot, generation, id, *request);
            }
            Event::FromWatchdog { node, generation, id, reply } => {
                self.deliver_watchdog_reply(&node, generation, id, &reply);
            }
            Event::WatchdogWake { node, boot, at } => self.watchdog_wake(&node, boot, at),
            Event::WatchdogConnects { node, generation } => {
                if self.is_current(&Client::Agent(node.clone()), generation) {
                    self.connect_watchdog(&node, generation);
                }
            }
            Event::WatchdogResumes { node, boot } => self.resume_watchdog(&node, boot),
            Event::PlanMade { node, generation } => self.on_plan_made(&node, generation),
            Event::DeviceCheckDue { node, boot, at } => self.check_device(&node, boot, at),
            Event::DriverRequestDue { node, boot, request } => {
                self.execute_driver_request(&node, boot, request);
            }
            Event::Booted { node, boot } => self.on_booted(&node, boot),
            Event::Awake { node } => self.on_awake(&node),
            Event::FencerDone { node, generation, run } => self.end_fencer(&node, generation, &run),
            Event::Delivery { node, generation, delivery } => {
                self.end_delivery(&node, generation, &delivery);
            }
            Event::HoldAsked { question, request } => self.deliver_hold_question(question, *request),
            Event::HoldAnswered { question, answer } => self.deliver_hold_answer(question, answer),
            Event::Down { node, boot } => self.power_down_after_leave(&node, boot),
            Event::StartProcess { client, boot } => self.start_process(&client, boot),
            Event::StoreAvailable => self.resume_store(),
            Event::Compact(revision) => {
                self.store.compact(revision);
                self.queue.push(self.now + super::COMPACT_INTERVAL_MS, Event::Compact(self.store.revision()));
            }
            Event::Step => self.run_due_steps(),
        }
    }

    pub(super) fn is_current(&self, client: &Client, generation: Generation) -> bool {
        match client {
            Client::Agent(node) => {
                self.agents.get(node).is_some_and(|process| process.generation == generation)
            }
            Client::Controller(node) => {
                self.controllers.get(node).is_some_and(|process| process.generation == generation)
            }
        }
    }

    fn wake(&mut self, client: &Client, generation: Generation, at: u64) {
        let now = self.clock_of(client.node());
        // A process that another event woke in the meantime has a newer wake scheduled.
        let due = match client {
            Client::Agent(node) => {
                self.agents.get_mut(node).and_then(|process| process.take_wake(generation, at, &now))
            }
            Client::Controller(node) => {
                self.controllers.get_mut(node).and_then(|process| process.take_wake(generation, at, &now))
            }
        };
        match (due, client) {
            (None, _) => {}
            (Some(false), _) => self.schedule_wake(client),
            (Some(true), Client::Agent(node)) => self.send_to_agent(node, generation, agent::Input::Tick),
            (Some(true), Client::Controller(node)) => {
                self.send_to_controller(node, generation, controller::Input::Tick);
            }
        }
    }

    /// Returns the wall-clock time of all machines, in milliseconds since 1970.
    pub fn wall_unix_ms(&self) -> i128 {
        self.machines.values().next().map_or(0, |machine| machine.clock.read(self.now).wall_unix_ms)
    }

    /// Returns the wall-clock time as a timestamp.
    pub(super) fn timestamp(&self) -> Timestamp {
        Timestamp::from_unix_ms(self.wall_unix_ms())
    }

    /// Returns the clock readings of a process on this machine.
    pub(super) fn clock_of(&self, node: &NodeName) -> Now {
        self.machines.get(node).map_or_else(Now::default, |machine| machine.clock.read(self.now))
    }

    fn schedule_wake(&mut self, client: &Client) {
        let clock = self.machines.get(client.node()).map(|machine| machine.clock.clone());
        let Some(clock) = clock else { return };
        let now = self.now;
        let next = match client {
            Client::Agent(node) => {
                self.agents.get_mut(node).and_then(|process| next_wake(process, &clock, now))
            }
            Client::Controller(node) => {
                self.controllers.get_mut(node).and_then(|process| next_wake(process, &clock, now))
            }
        };
        if let Some((at, generation)) = next {
            self.queue.push(at, Event::Wake(client.clone(), generation, at));
        }
    }

    /// Delivers an input to an agent.
    pub(super) fn send_to_agent(&mut self, node: &NodeName, generation: Generation, input: agent::Input) {
        let now = self.clock_of(node);
        let Some(process) = self.agents.get_mut(node).filter(|process| process.generation == generation)
        else {
            return;
        };
        if process.is_hung {
            process.inbox.push(input);
            return;
        }
        process.core.handle(&now, input);
        while let Some(effect) = self
            .agents
            .get_mut(node)
            .filter(|process| process.generation == generation)
            .and_then(|process| process.core.poll_effect())
        {
            self.run_agent_effect(node, generation, effect);
        }
        self.schedule_wake(&Client::Agent(node.to_owned()));
    }

    fn run_agent_effect(&mut self, node: &NodeName, generation: Generation, effect: agent::Effect) {
        let client = Client::Agent(node.to_owned());
        match effect {
            agent::Effect::Commit { id, transaction, urgency } => {
                let timeout_ms = match urgency {
                    agent::CommitUrgency::Heartbeat { timeout_ms } => Some(timeout_ms),
                    agent::CommitUrgency::Ordinary => None,
                };
                self.send_request(
                    &client,
                    generation,
                    Purpose::AgentCommit(id),
                    Request::Commit(transaction),
                    timeout_ms,
                );
            }
            agent::Effect::Read { id, keys } => {
                self.record_step(node, || Step::Reads(keys.clone()));
                self.send_request(&client, generation, Purpose::AgentRead(id), Request::Read(keys), None);
            }
            agent::Effect::GrantLease { id, ttl_seconds } => {
                self.send_request(
                    &client,
                    generation,
                    Purpose::AgentLease(id),
                    Request::Grant(ttl_seconds),
                    None,
                );
            }
            agent::Effect::KeepAlive(lease) => {
                self.send_request(&client, generation, Purpose::Keep(lease), Request::Keep(lease), None);
            }
            agent::Effect::WriteJournal { id, journal } => {
                let event = Event::JournalOnDisk { node: node.to_owned(), generation, id, journal };
                self.queue.push(self.now + 1, event);
            }
            agent::Effect::Run { id, command, service } => {
                self.log(node, "driver", &format!("{} {}", command.name(), service.name));
                if matches!(command, agent::Command::Migrate { .. }) {
                    self.record_step(node, || Step::MigrationBegins(service.name.clone()));
                }
                self.begin_command(node, generation, id, command, *service);
            }
            agent::Effect::Refuse { id, result } => {
                self.send_to_agent(node, generation, agent::Input::Ended { id, result });
            }
            agent::Effect::Cancel(id) => self.cancel_command(node, generation, id),
            agent::Effect::Watchdog { id, request } => {
                let Some(boot) = self.machines.get(node).map(|machine| machine.boot) else { return };
                let event = Event::ToWatchdog {
                    node: node.to_owned(),
                    boot,
                    generation,
                    id,
                    request: Box::new(request),
                };
                self.queue.push(self.now + 1, event);
            }
            agent::Effect::RequestHold { id, candidate, request, timeout_ms, .. } => {
                let asked_at = self.now;
                let question = HoldQuestion {
                    node: node.to_owned(),
                    generation,
                    id,
                    candidate: candidate.as_str().into(),
                    asked_at,
                };
                self.send_hold_question(question, request, timeout_ms);
            }
            agent::Effect::ReadUsage { id, services } => self.measure(node, id, &services),
            agent::Effect::Event(event) => {
                self.record_event(&format!("agent-{node}"), &event);
                self.log(node, "agent", &format!("{} {}: {}", event.kind, event.name, event.message));
            }
            agent::Effect::Log { level, message } => {
                if level < agent::Level::Debug {
                    self.log(node, "agent", &message);
                }
            }
            agent::Effect::Exit(exit) => {
                self.log(node, "agent", &format!("ends: {exit:?}"));
                self.end_agent(node);
            }
        }
    }

    /// Delivers an input to a controller.
    pub(super) fn send_to_controller(
        &mut self,
        node: &NodeName,
        generation: Generation,
        input: controller::Input,
    ) {
        let now = self.clock_of(node);
        let Some(process) = self.controllers.get_mut(node).filter(|process| process.generation == generation)
        else {
            return;
        };
        if process.is_hung {
            process.inbox.push(input);
            return;
        }
        process.core.handle(&now, input);
        while let Some(effect) = self
            .controllers
            .get_mut(node)
            .filter(|process| process.generation == generation)
            .and_then(|process| process.core.poll_effect())
        {
            self.run_controller_effect(node, generation, effect);
        }
        self.schedule_plan(node, generation);
        self.schedule_wake(&Client::Controller(node.to_owned()));
    }

    /// Schedules the end of a plan that takes time.
    fn schedule_plan(&mut self, node: &NodeName, generation: Generation) {
        let plan_ms = self.machines.get(node).map_or(0, |machine| machine.plan_ms);
        if let Some(process) = self.controllers.get_mut(node)
            && process.core.is_planning()
            && !process.is_plan_scheduled
        {
            process.is_plan_scheduled = true;
            self.queue.push(self.now + plan_ms, Event::PlanMade { node: node.to_owned(), generation });
        }
    }

    fn on_plan_made(&mut self, node: &NodeName, generation: Generation) {
        let now = self.clock_of(node);
        if let Some(process) =
            self.controllers.get_mut(node).filter(|process| process.generation == generation)
        {
            process.is_plan_scheduled = false;
            process.core.finish_plan(&now);
            self.send_to_controller(node, generation, controller::Input::Tick);
        }
    }

    fn run_controller_effect(&mut self, node: &NodeName, generation: Generation, effect: controller::Effect) {
        let client = Client::Controller(node.to_owned());
        match effect {
            controller::Effect::Commit { id, transaction } => {
                self.send_request(
                    &client,
                    generation,
                    Purpose::ControllerCommit(id),
                    Request::Commit(transaction),
                    None,
                );
            }
            controller::Effect::Refresh { id } => self.start_sync(&client, generation, id),
            controller::Effect::GrantLease { ttl_seconds } => {
                self.send_request(
                    &client,
                    generation,
                    Purpose::ControllerLease,
                    Request::Grant(ttl_seconds),
                    None,
                );
            }
            controller::Effect::KeepAlive { lease } => {
                self.send_request(&client, generation, Purpose::Keep(lease), Request::Keep(lease), None);
            }
            controller::Effect::Revoke { lease } => {
                self.send_request(&client, generation, Purpose::Revoke, Request::Revoke(lease), None);
            }
            controller::Effect::RunFencer(run) => self.begin_fencer(node, generation, run),
            controller::Effect::Event { event, .. } => {
                self.record_event(&format!("controller-{node}"), &event);
                self.log(node, "controller", &format!("{} {}: {}", event.kind, event.name, event.message));
            }
            controller::Effect::Deliver(delivery) => self.begin_delivery(node, generation, delivery),
            controller::Effect::AnswerHold { id, answer } => self.send_hold_answer(id, answer),
            // `CombinedController` handles `ReportElection` and `UpdateElection`. Counters have no effect in the
            // simulation.
            controller::Effect::Count(_)
            | controller::Effect::ReportElection(_)
            | controller::Effect::UpdateElection(_) => {}
            controller::Effect::Ended => {
                self.log(node, "controller", "ends");
                self.end_controller(node);
            }
        }
    }
}

fn next_wake<C: Core>(
    process: &mut Process<C>,
    clock: &crate::clock::Clock,
    now: u64,
) -> Option<(u64, Generation)> {
    let (raw, _) = process.core.deadline()?;
    let at = clock.time_of_raw(now, raw).max(now + 1);
    if process.wake_at.is_some_and(|wake_ms| wake_ms <= at) {
        return None;
    }
    process.wake_at = Some(at);
    Some((at, process.generation))
}
