//! The real core of the watchdog daemon with a simulated device. The device is as late and inexact as real devices may
//! be.

use super::World;
use super::event::Event;
use super::machine::PausedDaemon;
use super::process::Generation;
use super::recorded::Step;
use crate::scenario::Device;
use crate::scenario::action::PetBehavior;
use ha_api_types::id::NodeName;
use ha_node_agent::core::{Input, WatchdogEvent, WatchdogRequestId};
use ha_node_agent::watchdog::core::{Core as WatchdogCore, Effect, Input as DaemonInput};
use ha_node_agent::watchdog::protocol::{
    DeviceFacts, DeviceKind, Name, Notice, Outcome, Privileges, Refusal, Reply, Request,
};

/// Shortest timeout of a coarse device, in seconds.
const COARSE_TIMEOUT_SECONDS: u32 = 60;
/// `ENODEV`, the error of a device whose driver was unbound.
const NO_DEVICE_ERRNO: u32 = 19;
/// Longest time until an agent connects to a daemon that was started, in milliseconds.
const MAX_RECONNECT_MS: u64 = 500;

impl World {
    pub(super) fn connect_watchdog(&mut self, node: &NodeName, generation: Generation) {
        let Some(machine) = self.machines.get_mut(node) else { return };
        machine.watchdog.number = 0;
        machine.watchdog.waiting.clear();
        if machine.watchdog.has_exited {
            let message = "ha-watchdogd does not run".to_owned();
            let event = WatchdogEvent::Disconnected { message };
            return self.send_to_agent(node, generation, Input::Watchdog(event));
        }
        self.send_to_daemon(node, Some(generation), DaemonInput::Connected);
    }

    pub(super) fn deliver_watchdog_request(
        &mut self,
        node: &NodeName,
        boot: u64,
        generation: Generation,
        id: WatchdogRequestId,
        request: Request,
    ) {
        if !self.is_current(&super::process::Client::Agent(node.to_owned()), generation) {
            return;
        }
        let Some(machine) =
            self.machines.get_mut(node).filter(|machine| machine.boot == boot && machine.is_up)
        else {
            return;
        };
        machine.watchdog.number += 1;
        let number = machine.watchdog.number;
        machine.watchdog.waiting.insert(number, id);
        self.record_watchdog_request(node, &request);
        self.send_to_daemon(node, Some(generation), DaemonInput::Message { number, request });
    }

    /// Delivers an input to the daemon; a paused daemon's inputs wait.
    pub(super) fn send_to_daemon(
        &mut self,
        node: &NodeName,
        generation: Option<Generation>,
        input: DaemonInput,
    ) {
        let now = self.clock_of(node);
        let Some(machine) = self.machines.get_mut(node).filter(|machine| !machine.watchdog.has_exited) else {
            return;
        };
        if let Some(stopped) = &mut machine.watchdog.stopped {
            stopped.inbox.push((generation, input));
            return;
        }
        machine.watchdog.daemon.handle((&now).into(), input);
        self.run_watchdog_effects_for(node, generation);
    }

    /// Kills the daemon. The service manager keeps its record and the open device, whose countdown continues.
    pub(super) fn kill_watchdog_daemon(&mut self, node: &NodeName) {
        let Some(machine) = self.machines.get_mut(node) else { return };
        machine.watchdog.has_exited = true;
        machine.watchdog.daemon = WatchdogCore::new(Privileges::default());
        machine.watchdog.wake_at = None;
        machine.watchdog.stops_for_ms = None;
        machine.watchdog.stopped = None;
        self.log(node, "watchdog", "daemon was killed");
        if let Some(generation) = self.agents.get(node).map(|process| process.generation) {
            self.connect_watchdog(node, generation);
        }
    }

    /// Lets the service manager start the daemon again, with the device and the record that it has kept.
    pub(super) fn start_watchdog_daemon(&mut self, node: &NodeName) {
        let now = self.clock_of(node);
        let Some(machine) = self.machines.get(node).filter(|machine| machine.watchdog.has_exited) else {
            return;
        };
        // Properties of the inherited device as the daemon reads them again: a kernel device counts as fixed.
        let facts = self.device_facts(node).map(|facts| DeviceFacts {
            timeout_seconds: machine.watchdog.timeout_seconds,
            sliding: false,
            ..facts
        });
        let Some(machine) = self.machines.get_mut(node) else { return };
        machine.watchdog.has_exited = false;
        if let Some(facts) = facts.ok().filter(|_| machine.watchdog.is_open) {
            let saved = machine.watchdog.saved;
            machine.watchdog.daemon.resume((&now).into(), facts, saved);
        }
        self.log(node, "watchdog", "daemon starts");
        self.run_watchdog_effects(node);
        if let Some(generation) = self.agents.get(node).map(|process| process.generation) {
            let delay_ms = self.random.draw_between_ms(1, MAX_RECONNECT_MS);
            let event = Event::WatchdogConnects { node: node.to_owned(), generation };
            self.queue.push(self.now + delay_ms, event);
        }
    }

    /// Sets whether the device accepts pets.
    pub(super) fn set_pets(&mut self, node: &NodeName, pets: PetBehavior) {
        let Some(machine) = self.machines.get_mut(node) else { return };
        machine.watchdog.pets = pets;
        match pets {
            PetBehavior::Fail | PetBehavior::Reopen => machine.watchdog.fires_at = None,
            PetBehavior::Accept | PetBehavior::FailCounting => {}
        }
        let text = match pets {
            PetBehavior::Accept => "device accepts renewals",
            PetBehavior::Fail => "device rejects renewals, and its countdown has stopped",
            PetBehavior::FailCounting => "device rejects renewals",
            PetBehavior::Reopen => "device is available again once it is opened",
        };
        self.log(node, "watchdog", text);
    }

    /// Returns the device's properties, or the reason why it cannot be opened.
    fn device_facts(&self, node: &NodeName) -> Result<DeviceFacts, Refusal> {
        let missing = Refusal::NoDevice { errno: 2, location: Name::new(b"/dev/watchdog0") };
        let Some(machine) = self.machines.get(node) else { return Err(missing) };
        let (kind, sliding) = match machine.device {
            Device::Sliding => (DeviceKind::Kernel, true),
            Device::Fixed | Device::Coarse => (DeviceKind::Kernel, false),
            Device::Simulated => (DeviceKind::Simulated, true),
            Device::Missing => return Err(missing),
            Device::Busy => {
                return Err(Refusal::DeviceBusy { pid: 1, name: Name::new(b"systemd") });
            }
        };
        Ok(DeviceFacts {
            kind,
            identity: Name::new(b"simulated"),
            location: Name::new(b"/dev/watchdog0"),
            timeout_seconds: 0,
            smallest_timeout_seconds: 1,
            largest_timeout_seconds: 600,
            sliding,
            descriptor_retained: true,
            nowayout: false,
        })
    }

    /// Opens the device, which starts its countdown.
    fn open_device(&mut self, node: &NodeName, timeout_seconds: u32) -> Result<DeviceFacts, Refusal> {
        let facts = self.device_facts(node)?;
        let Some(machine) = self.machines.get_mut(node) else { return Ok(facts) };
        match machine.watchdog.pets {
            PetBehavior::Accept => {}
            PetBehavior::Reopen => machine.watchdog.pets = PetBehavior::Accept,
            PetBehavior::Fail | PetBehavior::FailCounting => {
                return Err(Refusal::NoDevice { errno: NO_DEVICE_ERRNO, location: facts.location });
            }
        }
        let timeout_seconds = match machine.device {
            Device::Coarse => timeout_seconds.max(COARSE_TIMEOUT_SECONDS),
            Device::Sliding | Device::Fixed | Device::Simulated | Device::Missing | Device::Busy => {
                timeout_seconds
            }
        };
        machine.watchdog.timeout_seconds = timeout_seconds;
        machine.watchdog.is_open = true;
        self.start_device(node, timeout_seconds);
        Ok(DeviceFacts { timeout_seconds, ..facts })
    }

    /// Pets the device and sets its timeout. Returns the timeout read back, or the error number.
    fn pet_device(&mut self, node: &NodeName, timeout_seconds: u32) -> Result<u32, u32> {
        let Some(machine) = self.machines.get_mut(node) else { return Err(NO_DEVICE_ERRNO) };
        match machine.watchdog.pets {
            PetBehavior::Accept => {}
            PetBehavior::Fail | PetBehavior::FailCounting | PetBehavior::Reopen => {
                return Err(NO_DEVICE_ERRNO);
            }
        }
        machine.watchdog.timeout_seconds = timeout_seconds;
        self.start_device(node, timeout_seconds);
        self.record_step(node, || Step::Pets);
        Ok(timeout_seconds)
    }

    /// Resumes a paused daemon: it makes the pet that it had decided on, and handles the inputs that waited.
    pub(super) fn resume_watchdog(&mut self, node: &NodeName, boot: u64) {
        let now = self.clock_of(node);
        let Some(machine) =
            self.machines.get_mut(node).filter(|machine| machine.boot == boot && machine.is_up)
        else {
            return;
        };
        let Some(stopped) = machine.watchdog.stopped.take() else { return };
        let petted = self.pet_device(node, stopped.seconds);
        if let Some(machine) = self.machines.get_mut(node) {
            machine.watchdog.daemon.handle((&now).into(), DaemonInput::Petted(petted));
        }
        self.run_watchdog_effects(node);
        for (generation, input) in stopped.inbox {
            self.send_to_daemon(node, generation, input);
        }
        self.send_to_daemon(node, self.agents.get(node).map(|process| process.generation), DaemonInput::Tick);
    }

    pub(super) fn watchdog_wake(&mut self, node: &NodeName, boot: u64, at: u64) {
        let now = self.clock_of(node);
        let Some(machine) = self
            .machines
            .get_mut(node)
            .filter(|machine| machine.boot == boot && machine.is_up && machine.watchdog.wake_at == Some(at))
        else {
            return;
        };
        machine.watchdog.wake_at = None;
        if machine.watchdog.stopped.is_some() {
            return;
        }
        machine.watchdog.daemon.handle((&now).into(), DaemonInput::Tick);
        self.run_watchdog_effects(node);
    }

    fn run_watchdog_effects(&mut self, node: &NodeName) {
        let generation = self.agents.get(node).map(|process| process.generation);
        self.run_watchdog_effects_for(node, generation);
    }

    fn run_watchdog_effects_for(&mut self, node: &NodeName, generation: Option<Generation>) {
        while let Some(effect) =
            self.machines.get_mut(node).and_then(|machine| machine.watchdog.daemon.poll_effect())
        {
            let now = self.clock_of(node);
            match effect {
                Effect::Open { timeout_seconds } => {
                    let opened = self.open_device(node, timeout_seconds);
                    let start_ms = self.is_to_start(node).then_some(self.now);
                    if let Some(machine) = self.machines.get_mut(node) {
                        machine.watchdog.opened_to_start_at = start_ms;
                        machine.watchdog.daemon.handle((&now).into(), DaemonInput::Opened(opened));
                    }
                }
                Effect::Pet { timeout_seconds } => {
                    let current_seconds =
                        self.machines.get(node).map_or(1, |machine| machine.watchdog.timeout_seconds);
                    let seconds = timeout_seconds.unwrap_or(current_seconds);
                    let pause = self.machines.get_mut(node).and_then(|machine| {
                        let duration_ms = machine.watchdog.stops_for_ms.take()?;
                        machine.watchdog.stopped = Some(PausedDaemon { seconds, inbox: Vec::new() });
                        Some((duration_ms, machine.boot))
                    });
                    if let Some((duration_ms, boot)) = pause {
                        self.log(node, "watchdog", "daemon is paused before a renewal");
                        let event = Event::WatchdogResumes { node: node.to_owned(), boot };
                        self.queue.push(self.now + duration_ms, event);
                        continue;
                    }
                    let petted = self.pet_device(node, seconds);
                    if let Some(machine) = self.machines.get_mut(node) {
                        machine.watchdog.daemon.handle((&now).into(), DaemonInput::Petted(petted));
                    }
                }
                Effect::Close => {
                    if let Some(machine) = self.machines.get_mut(node) {
                        // A device that no longer exists cannot be closed cleanly.
                        let closed = match machine.watchdog.pets {
                            PetBehavior::Accept | PetBehavior::FailCounting => Ok(()),
                            PetBehavior::Fail | PetBehavior::Reopen => Err(NO_DEVICE_ERRNO),
                        };
                        machine.watchdog.fires_at = None;
                        machine.watchdog.is_open = false;
                        machine.watchdog.daemon.handle((&now).into(), DaemonInput::Closed(closed));
                    }
                }
                Effect::Save(saved) => {
                    if let Some(machine) = self.machines.get_mut(node) {
                        machine.watchdog.saved = Some(saved);
                    }
                }
                Effect::Disconnect => {}
                Effect::Reset => self.reset(node),
                Effect::Reply(reply) => {
                    let id = self
                        .machines
                        .get_mut(node)
                        .and_then(|machine| machine.watchdog.waiting.remove(&reply.answers));
                    if let Some(generation) = generation {
                        let event = Event::FromWatchdog {
                            node: node.to_owned(),
                            generation,
                            id,
                            reply: Box::new(reply),
                        };
                        self.queue.push(self.now + 1, event);
                    }
                }
            }
        }
        self.schedule_watchdog(node);
    }

    fn schedule_watchdog(&mut self, node: &NodeName) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(node) else { return };
        let Some((raw_ns, _)) = machine.watchdog.daemon.deadline() else { return };
        let raw = ha_api_types::time::MonotonicTime(raw_ns.div_ceil(1_000_000));
        let at = machine.clock.time_of_raw(now, raw).max(now + 1);
        if machine.watchdog.wake_at.is_some_and(|wake_ms| wake_ms <= at) {
            return;
        }
        machine.watchdog.wake_at = Some(at);
        let boot = machine.boot;
        self.queue.push(at, Event::WatchdogWake { node: node.to_owned(), boot, at });
    }

    /// Starts the device's countdown; the device fires at its timeout or later, by up to 2 % plus δw.
    fn start_device(&mut self, node: &NodeName, seconds: u32) {
        let timeout_ms = u64::from(seconds) * 1000;
        let late_ms = self.random.draw_between_ms(0, timeout_ms / 50 + self.watchdog_lateness_ms);
        let fires_at_ms = self.now + timeout_ms + late_ms;
        let Some(machine) = self.machines.get_mut(node) else { return };
        machine.watchdog.fires_at = Some(fires_at_ms);
        if machine.watchdog.next_check_at.is_none_or(|next_check_ms| fires_at_ms < next_check_ms) {
            self.schedule_device_check(node, fires_at_ms);
        }
    }

    /// Schedules a check of the device. At most one check is scheduled, regardless of the number of pets.
    pub(super) fn schedule_device_check(&mut self, node: &NodeName, at: u64) {
        let Some(machine) = self.machines.get_mut(node) else { return };
        machine.watchdog.next_check_at = Some(at);
        let boot = machine.boot;
        self.queue.push(at, Event::DeviceCheckDue { node: node.to_owned(), boot, at });
    }

    pub(super) fn check_device(&mut self, node: &NodeName, boot: u64, at: u64) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(node).filter(|machine| {
            machine.boot == boot && machine.is_up && machine.watchdog.next_check_at == Some(at)
        }) else {
            return;
        };
        machine.watchdog.next_check_at = None;
        match machine.watchdog.fires_at {
            Some(fires_at) if fires_at <= now => self.reset(node),
            Some(fires_at) => self.schedule_device_check(node, fires_at),
            None => {}
        }
    }

    pub(super) fn deliver_watchdog_reply(
        &mut self,
        node: &NodeName,
        generation: Generation,
        id: Option<WatchdogRequestId>,
        reply: &Reply,
    ) {
        let status = reply.status;
        let event = match (id, reply.outcome) {
            (_, Outcome::Notice(Notice::Welcome)) => {
                WatchdogEvent::Connected { status, device: "simulated".to_owned() }
            }
            (_, Outcome::Notice(notice)) => WatchdogEvent::Notice { notice, status },
            (Some(id), Outcome::Done) => WatchdogEvent::Answered { id, refusal: None, status },
            (Some(id), Outcome::Refused(refusal)) => {
                WatchdogEvent::Answered { id, refusal: Some(refusal), status }
            }
            (None, Outcome::Done | Outcome::Refused(_)) => return,
        };
        self.send_to_agent(node, generation, Input::Watchdog(event));
    }
}
