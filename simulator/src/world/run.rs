//! The main loop: takes the next event, delivers it, and handles its effects.

use super::World;
use super::event::Event;
use super::hold::Question;
use super::link::{Ask, Request};
use super::process::{Core, Generation, Process, Who};
use super::recorded::Step;
use ha_api_types::id::NodeName;
use ha_api_types::time::{Now, Timestamp};
use ha_controller::core as controller;
use ha_node_agent::core as agent;

impl World {
    /// Handles the next event; returns `false` if no event remains before `until`.
    pub(super) fn advance(&mut self, until: u64) -> bool {
        match self.queue.next_at() {
            Some(at) if at <= until => {}
            Some(_) | None => {
                self.now = until;
                return false;
            }
        }
        if let Some((at, event)) = self.queue.pop() {
            self.now = self.now.max(at);
            if let Some(node) = self.suspended_machine_of(&event) {
                self.deferred.push((node, event));
            } else {
                self.happen(event);
                self.note_changes();
                self.check_bounds();
                self.look_at_store();
                self.look_at_condition();
            }
        }
        true
    }

    /// Returns the machine that must be awake to handle an event, if that machine is suspended.
    fn suspended_machine_of(&self, event: &Event) -> Option<NodeName> {
        let node = match event {
            Event::Wake(who, ..)
            | Event::Watch(who, _)
            | Event::Relist(who, _)
            | Event::SyncAgain(who, ..)
            | Event::Answer { who, .. }
            | Event::Timeout { who, .. }
            | Event::StartProcess { who, .. } => who.node(),
            Event::JournalOnDisk { node, .. }
            | Event::CommandEnds { node, .. }
            | Event::ByHand { node, .. }
            | Event::ToWatchdog { node, .. }
            | Event::FromWatchdog { node, .. }
            | Event::WatchdogWake { node, .. }
            | Event::WatchdogConnects { node, .. }
            | Event::WatchdogGoesOn { node, .. }
            | Event::PlanMade { node, .. }
            | Event::DeviceDue { node, .. }
            | Event::OrderDue { node, .. }
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
            | Event::StoreBack
            | Event::Step => return None,
        };
        self.machines.get(node).filter(|machine| machine.suspended).map(|_| node.to_owned())
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Wake(who, generation, at) => self.wake(&who, generation, at),
            Event::Arrive { sender, token, ask, request } => self.arrive(sender, token, ask, request),
            Event::Answer { who, generation, token, ask, answer } => {
                self.answered(&who, generation, token, ask, Some(answer));
            }
            Event::Timeout { who, generation, token, ask } => {
                self.timed_out(&who, generation, token, &ask);
                self.answered(&who, generation, token, ask, None);
            }
            Event::Watch(who, generation) => self.watch(&who, generation),
            Event::Relist(who, generation) => {
                if self.is_current(&who, generation) {
                    self.sync(&who, generation, 0);
                    self.queue.push(self.now + super::RELIST_MS, Event::Relist(who, generation));
                }
            }
            Event::SyncAgain(who, generation, answers) => {
                if self.is_current(&who, generation) {
                    self.sync(&who, generation, answers);
                }
            }
            Event::LeasesExpire => {
                let before = self.store.revision();
                if self.store_works() {
                    self.store.expire(ha_api_types::time::Mono(self.now));
                }
                if self.store.revision() != before {
                    self.committed(before + 1);
                }
                if self.store.next_expiry().is_some_and(|at| at.0 > self.now) {
                    self.schedule_expiry();
                }
            }
            Event::JournalOnDisk { node, generation, id, journal } => {
                if !self.is_current(&Who::Agent(node.clone()), generation) {
                    return;
                }
                let Some(machine) = self.machines.get_mut(&node) else { return };
                let result = if machine.disk_full {
                    Err("no space left on device".to_owned())
                } else {
                    machine.journal = *journal;
                    Ok(())
                };
                self.tell_agent(&node, generation, agent::Input::JournalWritten { id, result });
            }
            Event::CommandEnds { node, generation, id } => self.end_command(&node, generation, id),
            Event::ByHand { node, generation, event } => self.notice_by_hand(&node, generation, event),
            Event::ToWatchdog { node, boot, generation, id, request } => {
                self.tell_watchdog(&node, boot, generation, id, *request);
            }
            Event::FromWatchdog { node, generation, id, reply } => {
                self.hear_watchdog(&node, generation, id, &reply);
            }
            Event::WatchdogWake { node, boot, at } => self.watchdog_wake(&node, boot, at),
            Event::WatchdogConnects { node, generation } => {
                if self.is_current(&Who::Agent(node.clone()), generation) {
                    self.connect_watchdog(&node, generation);
                }
            }
            Event::WatchdogGoesOn { node, boot } => self.watchdog_goes_on(&node, boot),
            Event::PlanMade { node, generation } => self.plan_made(&node, generation),
            Event::DeviceDue { node, boot, at } => self.device_due(&node, boot, at),
            Event::OrderDue { node, boot, order } => self.order_due(&node, boot, order),
            Event::Booted { node, boot } => self.booted(&node, boot),
            Event::Awake { node } => self.awake(&node),
            Event::FencerDone { node, generation, run } => self.end_fencer(&node, generation, &run),
            Event::Delivery { node, generation, delivery } => {
                self.end_delivery(&node, generation, &delivery);
            }
            Event::HoldAsked { question, request } => self.hold_asked(question, *request),
            Event::HoldAnswered { question, answer } => self.hold_answered(question, answer),
            Event::Down { node, boot } => self.down(&node, boot),
            Event::StartProcess { who, boot } => self.start_process(&who, boot),
            Event::StoreBack => self.store_back(),
            Event::Compact(revision) => {
                self.store.compact(revision);
                self.queue.push(self.now + super::COMPACT_MS, Event::Compact(self.store.revision()));
            }
            Event::Step => self.steps(),
        }
    }

    pub(super) fn is_current(&self, who: &Who, generation: Generation) -> bool {
        match who {
            Who::Agent(node) => self.agents.get(node).is_some_and(|process| process.generation == generation),
            Who::Controller(node) => {
                self.controllers.get(node).is_some_and(|process| process.generation == generation)
            }
        }
    }

    fn wake(&mut self, who: &Who, generation: Generation, at: u64) {
        let now = self.clock_of(who.node());
        // A process that another event woke meanwhile has a newer wake scheduled.
        let due = match who {
            Who::Agent(node) => {
                self.agents.get_mut(node).and_then(|process| process.woken(generation, at, &now))
            }
            Who::Controller(node) => {
                self.controllers.get_mut(node).and_then(|process| process.woken(generation, at, &now))
            }
        };
        match (due, who) {
            (None, _) => {}
            (Some(false), _) => self.schedule_wake(who),
            (Some(true), Who::Agent(node)) => self.tell_agent(node, generation, agent::Input::Tick),
            (Some(true), Who::Controller(node)) => {
                self.tell_controller(node, generation, controller::Input::Tick);
            }
        }
    }

    /// Returns the wall-clock time, in milliseconds since 1970. All machines show the same.
    pub(super) fn wall_unix_ms(&self) -> i128 {
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

    fn schedule_wake(&mut self, who: &Who) {
        let clock = self.machines.get(who.node()).map(|machine| machine.clock.clone());
        let Some(clock) = clock else { return };
        let now = self.now;
        let next = match who {
            Who::Agent(node) => self.agents.get_mut(node).and_then(|process| next_wake(process, &clock, now)),
            Who::Controller(node) => {
                self.controllers.get_mut(node).and_then(|process| next_wake(process, &clock, now))
            }
        };
        if let Some((at, generation)) = next {
            self.queue.push(at, Event::Wake(who.clone(), generation, at));
        }
    }

    /// Delivers an input to an agent.
    pub(super) fn tell_agent(&mut self, node: &NodeName, generation: Generation, input: agent::Input) {
        let now = self.clock_of(node);
        let Some(process) = self.agents.get_mut(node).filter(|process| process.generation == generation)
        else {
            return;
        };
        if process.hung {
            process.inbox.push(input);
            return;
        }
        process.core.handle(&now, input);
        while let Some(effect) = self
            .agents
            .get_mut(node)
            .filter(|p| p.generation == generation)
            .and_then(|p| p.core.poll_effect())
        {
            self.agent_effect(node, generation, effect);
        }
        self.schedule_wake(&Who::Agent(node.to_owned()));
    }

    fn agent_effect(&mut self, node: &NodeName, generation: Generation, effect: agent::Effect) {
        let who = Who::Agent(node.to_owned());
        match effect {
            agent::Effect::Commit { id, transaction, urgency } => {
                let timeout_ms = match urgency {
                    agent::CommitUrgency::Heartbeat { timeout_ms } => Some(timeout_ms),
                    agent::CommitUrgency::Ordinary => None,
                };
                self.ask(&who, generation, Ask::AgentCommit(id), Request::Commit(transaction), timeout_ms);
            }
            agent::Effect::Read { id, keys } => {
                self.note_step(node, || Step::Reads(keys.clone()));
                self.ask(&who, generation, Ask::AgentRead(id), Request::Read(keys), None);
            }
            agent::Effect::GrantLease { id, ttl_seconds } => {
                self.ask(&who, generation, Ask::AgentLease(id), Request::Grant(ttl_seconds), None);
            }
            agent::Effect::KeepAlive(lease) => {
                self.ask(&who, generation, Ask::Keep(lease), Request::Keep(lease), None);
            }
            agent::Effect::WriteJournal { id, journal } => {
                let event = Event::JournalOnDisk { node: node.to_owned(), generation, id, journal };
                self.queue.push(self.now + 1, event);
            }
            agent::Effect::Run { id, command, service } => {
                self.log(node, "driver", &format!("{} {}", command.name(), service.name));
                if matches!(command, agent::Command::Migrate { .. }) {
                    self.note_step(node, || Step::MigrationBegins(service.name.clone()));
                }
                self.begin_command(node, generation, id, command, *service);
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
            agent::Effect::AskHold { id, candidate, request, timeout_ms, .. } => {
                let asked_at = self.now;
                let question =
                    Question { node: node.to_owned(), generation, id, candidate: candidate.into(), asked_at };
                self.ask_hold(question, request, timeout_ms);
            }
            agent::Effect::Measure { id, services } => self.measure(node, id, &services),
            agent::Effect::Event(event) => {
                self.note_event(&event);
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
    pub(super) fn tell_controller(
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
        if process.hung {
            process.inbox.push(input);
            return;
        }
        process.core.handle(&now, input);
        while let Some(effect) = self
            .controllers
            .get_mut(node)
            .filter(|p| p.generation == generation)
            .and_then(|p| p.core.poll_effect())
        {
            self.controller_effect(node, generation, effect);
        }
        self.schedule_plan(node, generation);
        self.schedule_wake(&Who::Controller(node.to_owned()));
    }

    /// Schedules the end of a plan that takes time.
    fn schedule_plan(&mut self, node: &NodeName, generation: Generation) {
        let plan_ms = self.machines.get(node).map_or(0, |machine| machine.plan_ms);
        if let Some(process) = self.controllers.get_mut(node)
            && process.core.is_planning()
            && !process.plans
        {
            process.plans = true;
            self.queue.push(self.now + plan_ms, Event::PlanMade { node: node.to_owned(), generation });
        }
    }

    fn plan_made(&mut self, node: &NodeName, generation: Generation) {
        let now = self.clock_of(node);
        if let Some(process) =
            self.controllers.get_mut(node).filter(|process| process.generation == generation)
        {
            process.plans = false;
            process.core.finish_plan(&now);
            self.tell_controller(node, generation, controller::Input::Tick);
        }
    }

    fn controller_effect(&mut self, node: &NodeName, generation: Generation, effect: controller::Effect) {
        let who = Who::Controller(node.to_owned());
        match effect {
            controller::Effect::Commit { id, transaction } => {
                self.ask(&who, generation, Ask::ControllerCommit(id), Request::Commit(transaction), None);
            }
            controller::Effect::Refresh { id } => self.sync(&who, generation, id),
            controller::Effect::GrantLease { ttl_seconds } => {
                self.ask(&who, generation, Ask::ControllerLease, Request::Grant(ttl_seconds), None);
            }
            controller::Effect::KeepAlive { lease } => {
                self.ask(&who, generation, Ask::Keep(lease), Request::Keep(lease), None);
            }
            controller::Effect::Revoke { lease } => {
                self.ask(&who, generation, Ask::Revoke, Request::Revoke(lease), None);
            }
            controller::Effect::RunFencer(run) => self.begin_fencer(node, generation, run),
            controller::Effect::Event { event, .. } => {
                self.note_event(&event);
                self.log(node, "controller", &format!("{} {}: {}", event.kind, event.name, event.message));
            }
            controller::Effect::Deliver(delivery) => self.begin_delivery(node, generation, delivery),
            controller::Effect::AnswerHold { id, answer } => self.answer_hold(id, answer),
            // `Replica` handles `Tell` and `Order`; counters have no effect in the simulation.
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
    let at = clock.when(now, raw).max(now + 1);
    if process.wake_at.is_some_and(|known| known <= at) {
        return None;
    }
    process.wake_at = Some(at);
    Some((at, process.generation))
}
