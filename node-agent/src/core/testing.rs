//! A test environment around one core: etcd, the watchdog daemon with its device, drivers, the journal, and a simulated
//! leader.

mod adoption;
mod checks;
mod device;
mod etcd_writes;
mod guarded;
mod hand_overs;
mod heartbeats;
mod holding;
mod in_place;
mod leaving;
mod machine_findings;
mod migrations;
mod permits;
mod policies;
mod properties;
mod refusing;
mod registrations;
mod replacements;
mod restarts;
mod starting_points;
mod state;
mod stopping;
mod unreadable;
mod usage_measurement;
mod watchdog_tests;

use super::*;
use crate::watchdog::core as daemon;
use crate::watchdog::protocol;
use ha_api_types::driver::{DriverSpec, SimulatedDriver};
use ha_api_types::etcd_access::{AgentSelector, agent_selectors};
use ha_api_types::id::{ControllerId, NodeName, ReplacementUid, ResourceName};
use ha_api_types::keys::Keys;
use ha_api_types::record::{
    Action, Alive, Assignment, FailureClass, Fence, FenceState, HoldAnswer, HoldRequest, NodeReport,
    Observed, Phase, Replacement, ReplacementPhase, ServiceReport,
};
use ha_api_types::resource::{Resource, ResourceSpec};
use ha_store::memory_state::MemoryState;
use ha_store::{Change, Guard, LeaseId, Outcome, Transaction, selects};
use serde::de::DeserializeOwned;
use starting_points::config;
use std::collections::BTreeSet;

pub(super) const NODE: &str = "n1";

/// Returns the name of the agent's node.
pub(super) fn own_node() -> NodeName {
    NODE.into()
}

/// State of the network between agent and etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NetworkFault {
    Up,
    /// Requests do not reach etcd.
    Down,
    /// Requests reach etcd, but the answers are lost.
    AnswersLost,
}

#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fault that a test switches on")]
pub(super) struct ServiceCopy {
    pub(super) running: bool,
    pub(super) starts: u32,
    pub(super) fail_starts: u32,
    pub(super) fail_arrivals: u32,
    pub(super) stop_fails: bool,
    pub(super) kill_fails: bool,
    pub(super) probe_unknown: bool,
    /// `true` if a remnant is left that does not run.
    pub(super) remnant: bool,
}

#[expect(clippy::struct_excessive_bools, reason = "each is a fault that a test switches on")]
pub(super) struct World {
    pub(super) core: AgentCore,
    pub(super) config: Config,
    pub(super) keys: Keys,
    pub(super) now_ms: u64,
    pub(super) state: MemoryState,
    delivered_revision: Revision,
    pub(super) network: NetworkFault,
    /// Names of commands that do not end.
    pub(super) commands_to_hold: BTreeSet<&'static str>,
    pub(super) held_commands: Vec<(CommandId, Command, ServiceDefinition)>,
    /// `true` while heartbeats are delayed before they reach etcd.
    pub(super) hold_heartbeats: bool,
    held_heartbeats: Vec<(CommitId, Transaction)>,
    pub(super) copies: BTreeMap<String, ServiceCopy>,
    /// Usage that the test driver reports for each service: milli-cores and MiB of memory.
    pub(super) loads: BTreeMap<ResourceName, (u64, u64)>,
    pub(super) measuring_hangs: bool,
    /// Number of usage readings.
    pub(super) readings: usize,
    pub(super) executed: Vec<(String, Command)>,
    /// The replacements of secondaries that were ordered from drivers.
    replacements: Vec<ReplacementUid>,
    pub(super) commits: Vec<(Transaction, Outcome)>,
    pub(super) journal: Journal,
    pub(super) journal_fails: bool,
    pub(super) hold_journal: bool,
    pub(super) hold_cancels: bool,
    pub(super) held_journals: Vec<(JournalWriteId, Journal)>,
    pub(super) hold_reads: bool,
    pub(super) held_reads: Vec<(ReadId, Vec<String>)>,
    pub(super) daemon: daemon::Core,
    number: u64,
    pending_requests: BTreeMap<u64, WatchdogRequestId>,
    pub(super) daemon_up: bool,
    pub(super) refuse_arm: bool,
    /// Time at which the device resets the machine.
    pub(super) fires_at_ms: Option<u64>,
    device_timeout_ms: u64,
    pub(super) was_reset: bool,
    pub(super) events: Vec<ha_api_types::event::Event>,
    pub(super) logs: Vec<String>,
    pub(super) exit: Option<Exit>,
    /// The clock reading s of the last heartbeat that was applied and answered, milliseconds.
    pub(super) proven_ms: Option<u64>,
    heartbeat_start_times: BTreeMap<CommitId, u64>,
    actions: u64,
    /// `true` if the process has ended and handles no input.
    pub(super) dead: bool,
    inbox: VecDeque<Input>,
    busy: bool,
    /// The revision of `alive` that an observer saw last, and the time of that observation.
    observed: (Option<Revision>, u64),
    /// The requests to the daemon.
    pub(super) requests: Vec<protocol::Request>,
    /// The controllers' answers, by id. Other controllers do not answer.
    pub(super) controllers: BTreeMap<ControllerId, HoldAnswer>,
    /// `true` if the watchdog device refuses pets and cannot be opened.
    pub(super) pets_fail: bool,
    /// The hold requests to controllers: time, id, URL, request.
    pub(super) questions: Vec<(u64, HoldId, String, HoldRequest)>,
}

impl World {
    /// Creates a node that has never registered.
    pub(super) fn new() -> World {
        let config = config("i1", "boot-1");
        let mut world = World {
            core: AgentCore::new(config.clone(), Journal::default()),
            keys: config.keys.clone(),
            config,
            now_ms: 1_000_000,
            state: MemoryState::default(),
            delivered_revision: Revision(1),
            network: NetworkFault::Up,
            commands_to_hold: BTreeSet::new(),
            held_commands: Vec::new(),
            hold_heartbeats: false,
            held_heartbeats: Vec::new(),
            copies: BTreeMap::new(),
            loads: BTreeMap::new(),
            measuring_hangs: false,
            readings: 0,
            executed: Vec::new(),
            replacements: Vec::new(),
            commits: Vec::new(),
            journal: Journal::default(),
            journal_fails: false,
            hold_journal: false,
            hold_cancels: false,
            held_journals: Vec::new(),
            hold_reads: false,
            held_reads: Vec::new(),
            daemon: daemon::Core::new(protocol::Privileges::default()),
            number: 0,
            pending_requests: BTreeMap::new(),
            daemon_up: true,
            refuse_arm: false,
            fires_at_ms: None,
            device_timeout_ms: 0,
            was_reset: false,
            events: Vec::new(),
            logs: Vec::new(),
            exit: None,
            proven_ms: None,
            heartbeat_start_times: BTreeMap::new(),
            actions: 0,
            dead: false,
            inbox: VecDeque::new(),
            busy: false,
            observed: (None, 1_000_000),
            requests: Vec::new(),
            pets_fail: false,
            controllers: BTreeMap::new(),
            questions: Vec::new(),
        };
        world.boot_core();
        world
    }

    pub(super) fn now(&self) -> Now {
        Now {
            monotonic_raw: MonotonicTime(self.now_ms),
            boottime: MonotonicTime(self.now_ms + 5_000),
            wall_unix_ms: i128::from(self.now_ms),
        }
    }

    fn moment(&self) -> DualClockTime {
        DualClockTime::from(&self.now())
    }

    /// Starts the process: it reads etcd and connects to the daemon.
    pub(super) fn boot_core(&mut self) {
        if self.daemon_up {
            self.daemon_input(daemon::Input::Connected);
        }
        self.sync();
    }

    pub(super) fn sync(&mut self) {
        for selector in AgentSelector::ALL {
            let reading = self.state.list(&selector.key_or_prefix(&self.keys, &own_node()));
            self.input(Input::Synced { selector, entries: reading.entries, revision: reading.revision });
        }
    }

    pub(super) fn input(&mut self, input: Input) {
        self.inbox.push_back(input);
        if std::mem::replace(&mut self.busy, true) {
            return;
        }
        let mut handled = 0;
        while let Some(input) = self.inbox.pop_front() {
            if self.dead {
                continue;
            }
            handled += 1;
            assert!(
                handled < 5_000,
                "the core emits effects endlessly: {input:?} {:#?}",
                &self.logs[self.logs.len().saturating_sub(20)..]
            );
            let now = self.now();
            self.core.handle(&now, input);
            while let Some(effect) = self.core.poll_effect() {
                self.effect(effect);
            }
            self.check_fenced_after_silence();
        }
        self.busy = false;
    }

    /// Delivers the pending changes of the watches.
    pub(super) fn deliver(&mut self) {
        if self.network != NetworkFault::Up {
            return;
        }
        let revision = self.state.revision();
        if revision == self.delivered_revision {
            return;
        }
        let mut changes = Vec::new();
        for (_, changes_at_revision) in
            self.state.changes_since(self.keys.root(), self.delivered_revision + 1).expect("not compacted")
        {
            changes.extend(changes_at_revision.into_iter().filter(|change| {
                let key = match change {
                    Change::Put(entry) => &entry.key,
                    Change::Delete { key, .. } => key,
                };
                agent_selectors(&self.keys, &own_node()).iter().any(|selector| selects(selector, key))
            }));
        }
        self.delivered_revision = revision;
        self.input(Input::Changed { changes, revision });
    }

    fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::Commit { id, transaction, urgency } => {
                self.check_transaction(&transaction);
                if self.hold_heartbeats && matches!(urgency, CommitUrgency::Heartbeat { .. }) {
                    self.held_heartbeats.push((id, transaction));
                    return;
                }
                let reaches = self.network != NetworkFault::Down;
                let outcome = if reaches {
                    self.state.commit(&transaction)
                } else {
                    Outcome::Unknown("down".to_owned())
                };
                self.commits.push((transaction, outcome.clone()));
                let answer = match self.network {
                    NetworkFault::Up => outcome,
                    NetworkFault::Down | NetworkFault::AnswersLost => {
                        Outcome::Unknown("no answer".to_owned())
                    }
                };
                if let CommitUrgency::Heartbeat { .. } = urgency
                    && answer.applied().is_some()
                {
                    self.proven_ms = Some(self.now_ms);
                }
                self.input(Input::Committed { id, outcome: answer });
            }
            Effect::Read { id, keys } if self.hold_reads => self.held_reads.push((id, keys)),
            Effect::Read { id, keys } => {
                let result = if self.network == NetworkFault::Up {
                    let entries = keys.iter().flat_map(|key| self.state.get(key).entries).collect();
                    Ok((entries, self.state.revision()))
                } else {
                    Err("no answer".to_owned())
                };
                self.input(Input::Read { id, result });
            }
            Effect::GrantLease { id, ttl_seconds } => {
                let result = if self.network == NetworkFault::Up {
                    Ok(self.state.grant_lease(MonotonicTime(self.now_ms), ttl_seconds))
                } else {
                    Err("no answer".to_owned())
                };
                self.input(Input::LeaseGranted { id, result });
            }
            Effect::KeepAlive(lease) => {
                let keep_alive_result = if self.network == NetworkFault::Up {
                    match self.state.keep_alive(MonotonicTime(self.now_ms), lease) {
                        Ok(_) => LeaseKept::Kept,
                        Err(_) => LeaseKept::Gone,
                    }
                } else {
                    LeaseKept::Unknown("no answer".to_owned())
                };
                self.input(Input::LeaseKept { lease, kept: keep_alive_result });
            }
            Effect::WriteJournal { id, journal } if self.hold_journal => {
                self.held_journals.push((id, *journal));
            }
            Effect::WriteJournal { id, journal } => {
                let result = if self.journal_fails {
                    Err("no space left on device".to_owned())
                } else {
                    self.journal = *journal;
                    Ok(())
                };
                self.input(Input::JournalWritten { id, result });
            }
            Effect::Run { id, command, service } => {
                self.check_command(&command, &service);
                if matches!(command, Command::ReplaceSecondary { .. }) {
                    self.replacements
                        .extend(self.service_report(&service.name).replacement.map(|begun| begun.uid));
                }
                self.executed.push((service.name.to_string(), command.clone()));
                if self.commands_to_hold.contains(command.name()) {
                    self.held_commands.push((id, command, *service));
                } else {
                    self.finish(id, &command, &service);
                }
            }
            Effect::Refuse { id, result } => self.input(Input::Ended { id, result }),
            // A driver may take any time to end a canceled command.
            Effect::Cancel(_) if self.hold_cancels => {}
            Effect::Cancel(id) => {
                if let Some(index) = self.held_commands.iter().position(|(held, _, _)| *held == id) {
                    self.held_commands.remove(index);
                    self.input(Input::Ended { id, result: CommandResult::Canceled });
                }
            }
            Effect::Watchdog { id, request } => {
                if !self.daemon_up {
                    return;
                }
                self.requests.push(request);
                self.number += 1;
                self.pending_requests.insert(self.number, id);
                if self.refuse_arm && matches!(request, protocol::Request::Arm(_)) {
                    // The daemon counts the number as used.
                    let status = self.daemon.status();
                    self.pending_requests.clear();
                    self.daemon_input(daemon::Input::Message {
                        number: self.number,
                        request: protocol::Request::Query,
                    });
                    let event = WatchdogEvent::Answered {
                        id,
                        refusal: Some(protocol::Refusal::DeviceFailed { errno: 5 }),
                        status,
                    };
                    return self.input(Input::Watchdog(event));
                }
                self.daemon_input(daemon::Input::Message { number: self.number, request });
            }
            Effect::RequestHold { id, candidate, url, request, .. } => {
                self.questions.push((self.now_ms, id, url, request));
                if let Some(answer) = self.controllers.get(&candidate).cloned() {
                    // A grant counts as an observation.
                    self.observed.1 = self.now_ms;
                    self.input(Input::HoldAnswered { id, candidate, answer: Ok(answer) });
                }
            }
            Effect::ReadUsage { id, services } => self.measure(id, &services),
            Effect::Event(event) => self.events.push(event),
            Effect::Log { message, .. } => self.logs.push(format!("{} {message}", self.now_ms)),
            Effect::Exit(exit) => self.exit = Some(exit),
        }
    }

    /// Ends a command with the result that its copy gives.
    pub(super) fn finish(&mut self, id: CommandId, command: &Command, service: &ServiceDefinition) {
        // A definition with another identity refers to another copy.
        let identity = service.driver.simulated.as_ref().map(|simulated| simulated.identity.clone());
        let item =
            identity.filter(|identity| !identity.is_empty()).unwrap_or_else(|| service.name.to_string());
        let copy = self.copies.entry(item).or_default();
        let failure = |message: &str| {
            CommandResult::Failed(DriverFailure {
                class: FailureClass::RetryHere,
                reason: ha_api_types::reason::Reason::StartFailed,
                message: message.to_owned(),
            })
        };
        let result = match command {
            Command::Probe if copy.probe_unknown => {
                CommandResult::Observed(Observed::Unknown("cannot tell".to_owned()))
            }
            Command::Probe if copy.remnant => {
                CommandResult::Observed(Observed::Remnant("it has not arrived".to_owned()))
            }
            Command::Probe if copy.running => CommandResult::Observed(Observed::Running),
            Command::Probe => CommandResult::Observed(Observed::NotRunning),
            Command::Start if copy.fail_starts > 0 => {
                copy.fail_starts -= 1;
                failure("exit status 1")
            }
            Command::Start => {
                copy.starts += u32::from(!copy.running);
                copy.running = true;
                CommandResult::Done
            }
            Command::Stop { .. } if copy.stop_fails => failure("it does not end"),
            Command::Kill if copy.kill_fails => failure("it does not die"),
            Command::CloseReception if !service.driver.waits_for_resume_permit() => {
                CommandResult::Failed(DriverFailure {
                    class: FailureClass::NeverHere,
                    reason: ha_api_types::reason::Reason::MoveFailed,
                    message: "it cannot be refused".to_owned(),
                })
            }
            Command::Receive
            | Command::ReplaceSecondary { .. }
            | Command::EndReplacement
            | Command::EndMigration
            | Command::CloseReception => CommandResult::Done,
            Command::Arrive { .. } if copy.fail_arrivals > 0 => {
                copy.fail_arrivals -= 1;
                failure("migrate_from: exit status 1")
            }
            Command::Arrive { .. } => {
                copy.running = true;
                CommandResult::Done
            }
            Command::Stop { .. } | Command::Kill | Command::Migrate { .. } => {
                copy.running = false;
                copy.remnant = false;
                CommandResult::Done
            }
        };
        self.input(Input::Ended { id, result });
    }

    pub(super) fn finish_held_commands(&mut self) {
        for (id, command, service) in std::mem::take(&mut self.held_commands) {
            self.finish(id, &command, &service);
        }
    }

    /// Delivers the delayed heartbeats.
    pub(super) fn deliver_heartbeats(&mut self) {
        self.hold_heartbeats = false;
        for (id, transaction) in std::mem::take(&mut self.held_heartbeats) {
            let outcome = self.state.commit(&transaction);
            self.commits.push((transaction, outcome.clone()));
            self.input(Input::Committed { id, outcome });
        }
    }

    /// Advances the clock, and handles all events that become due.
    pub(super) fn advance(&mut self, ms: u64) {
        let end_ms = self.now_ms + ms;
        for _ in 0..100_000 {
            self.state.expire(MonotonicTime(self.now_ms));
            self.deliver();
            self.check_fenced_after_silence();
            let due = if self.dead { None } else { self.core.deadline() };
            let core = due.map(|(at, _)| at.0.max(self.now_ms));
            let daemon = if self.daemon_up {
                self.daemon.deadline().map(|(ns, _)| ns.div_ceil(1_000_000))
            } else {
                None
            };
            let lease = self.state.next_expiry().map(|at| at.0);
            let next = [core, daemon, lease].into_iter().flatten().min().unwrap_or(end_ms).max(self.now_ms);
            if next >= end_ms && self.now_ms >= end_ms {
                return;
            }
            self.now_ms = next.min(end_ms);
            if self.fires_at_ms.is_some_and(|at| self.now_ms >= at) {
                self.was_reset = true;
            }
            if daemon.is_some_and(|at| at <= self.now_ms) {
                self.daemon_input(daemon::Input::Tick);
            }
            if core.is_some_and(|at| at <= self.now_ms) {
                self.input(Input::Tick);
            }
            if self.now_ms >= end_ms && core.is_none_or(|at| at < end_ms) {
                self.deliver();
                return;
            }
        }
        panic!("the core never rests: {:?}", self.core.deadline());
    }
}
