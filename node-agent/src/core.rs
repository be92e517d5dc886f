//! The node agent's pure core: it decides which actions this node takes for its assignments, and when the node must not
//! act.
//!
//! The interface is `handle`, `poll_effect` and `deadline`. The core never awaits, reads a clock or draws a random
//! number. The shell and the simulator run the same core. The rules are those of docs/fencing.md (FENCING); each file
//! names the rules that it implements.

#![warn(clippy::disallowed_types)]

mod arming;
pub mod command;
mod commits;
mod config;
mod disarm;
mod driver_events;
pub mod effect;
mod external_change;
mod hand_over;
mod heartbeat;
mod hold;
mod in_place;
pub mod input;
pub mod journal;
mod journal_writes;
mod machine_findings;
mod migration;
mod moving_away;
mod permit;
mod pets;
mod policy;
mod reception;
mod registration;
mod replacement;
mod reports;
mod role;
mod self_fence;
mod service;
mod service_machine;
mod session;
mod shutdown;
mod start;
mod state;
mod summary;
mod unreadable;
pub mod usage;
mod usage_measurement;
mod view;
mod watchdog_test;
mod workers;

pub use command::{Command, CommandId, CommandResult, DriverEvent, DriverFailure};
pub use config::{Config, Hardware};
pub use effect::{
    CommitId, CommitUrgency, Effect, Exit, HoldId, JournalWriteId, LeaseRequestId, Level, ReadId,
    UsageReadId, WatchdogRequestId,
};
pub use input::{Input, LeaseKept, Shutdown, WatchdogEvent};
pub use journal::{Journal, JournalEntry, Reception, ShutdownRecord, TestedWatchdog, WatchdogTrial};
pub use state::State;
pub use summary::{AgentState, Summary};
pub use usage::{Meter, Sample};
pub use usage_measurement::UsageReadings;

use crate::watchdog::DualClockTime;
use arming::Watchdog;
use commits::CommitPurpose;
use ha_api_types::id::{ResourceName, Revision};
use ha_api_types::keys::Key;
use ha_api_types::kind::Kind;
use ha_api_types::record::NotStopped;
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::{Millis, MonotonicTime, Now};
use ha_api_types::timing::Timings;
use ha_store::Change;
use heartbeat::Lease;
use hold::Hold;
use journal_writes::JournalWrites;
use machine_findings::MachineFindings;
use service::{Presence, Service, Step};
use session::{PendingRead, Session};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use usage_measurement::UsageMeasurement;
use view::View;
use watchdog_test::WatchdogTest;

/// Interval at which both clocks are checked while a deadline runs, because a suspended machine wakes up late.
const CLOCK_CHECK_MS: Millis = 500;
/// Maximum number of rounds after an input. Every round makes progress, so this limit is never reached.
const MAX_ROUNDS: usize = 64;

/// The agent's state machine.
///
/// Guarantees: the core orders a start only under a permit that was committed with every guard of FENCING, section 6.
/// It orders a start only after the action is in the journal on disk. It does not order the start of an exclusive
/// service at or after D − Ts.
///
/// Assumptions: the shell holds the state directory's file lock and passes clock readings in order. The shell answers
/// every effect that has an answer at most once.
///
/// ```
/// use ha_api_types::{id::Revision, keys::Keys, time::Now};
/// use ha_node_agent::core::{AgentCore, Config, Effect, Input, Journal};
/// use ha_api_types::etcd_access::AgentSelector;
///
/// let keys = Keys::new("lab");
/// # let config = Config {
/// #     keys: keys.clone(),
/// #     node: "node1".into(),
/// #     instance: "instance-1".into(),
/// #     machine_id: "machine-1".into(),
/// #     product_id: None,
/// #     boot_id: "boot-1".into(),
/// #     is_virtual: false,
/// #     sleep_protection: None,
/// #     drivers: vec!["systemd".to_owned()],
/// #     policy: None,
/// #     hardware: ha_node_agent::core::Hardware::default(),
/// #     version: "1".to_owned(),
/// # };
/// let mut agent = AgentCore::new(config, Journal::default());
/// for selector in AgentSelector::ALL {
///     let synced = Input::Synced { selector, entries: Vec::new(), revision: Revision(1) };
///     agent.handle(&Now::default(), synced);
/// }
/// // With a complete view, the agent reads the keys of its node again before it registers.
/// let fence = keys.fence(&"node1".into());
/// let mut effects = std::iter::from_fn(|| agent.poll_effect());
/// assert!(effects.any(|effect| matches!(effect, Effect::Read { keys, .. } if keys.contains(&fence))));
/// ```
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each named")]
pub struct AgentCore {
    config: Config,
    journal: Journal,
    journal_writes: JournalWrites,
    view: View,
    session: Session,
    watchdog: Watchdog,
    machine_findings: MachineFindings,
    watchdog_test: WatchdogTest,
    usage_measurement: UsageMeasurement,
    lease: Lease,
    /// Boxed, because [`AgentCore::with_service`] takes a service out of the map and puts it back.
    services: BTreeMap<ResourceName, Box<Service>>,
    commits: BTreeMap<CommitId, CommitPurpose>,
    reads: BTreeMap<ReadId, PendingRead>,
    commands: BTreeMap<CommandId, ResourceName>,
    effects: VecDeque<Effect>,
    next_number: u64,
    /// D, proven by a heartbeat of this process.
    deadline: Option<DualClockTime>,
    /// The timings that were committed last.
    active_timings: Timings,
    /// `true` if a heartbeat with armed: true was sent, and neither that heartbeat nor a later report is known to be
    /// applied.
    unconfirmed_armed: bool,
    /// `true` if a heartbeat with a changed report was sent and its outcome is unknown.
    unconfirmed_report: bool,
    /// State of the requests to hold, which controllers receive while heartbeats do not commit.
    hold: Hold,
    /// Time since which heartbeats do not commit; `None` while they commit.
    heartbeats_failing_since: Option<MonotonicTime>,
    /// Cause of the last failure of each kind of write, as logged; removed once such a write was applied.
    failed_writes: BTreeMap<String, String>,
    /// The highest etcd revision that this process has seen.
    highest_revision: Revision,
    has_read_own_keys: bool,
    read_retry_at: Option<MonotonicTime>,
    not_stopped: Vec<NotStopped>,
    shutdown: Option<Shutdown>,
    shutdown_at: Option<MonotonicTime>,
    is_restart_ready: bool,
    /// `true` once the agent has logged that it cannot exit without etcd.
    has_logged_exit_delay: bool,
    /// `true` while a machine that shuts down waits for its services to move away.
    is_awaiting_moves: bool,
    /// `true` once a machine that shuts down has stopped waiting for its services to move away.
    has_stopped_awaiting_moves: bool,
    /// The revision at which this node first reported its shutdown. Older operations do not apply to this shutdown.
    shutdown_revision: Option<Revision>,
    leave_commit: Option<CommitId>,
    /// `true` if an input may have enabled another step.
    changed: bool,
    /// Services whose facts have changed since they were last advanced.
    dirty_services: BTreeSet<ResourceName>,
    /// `true` if a change concerns every service.
    are_all_dirty: bool,
    /// Clock reading of the newest input whose consequences are not computed yet; `None` if there is none.
    pending_follow_up: Option<Now>,
    last_input_at: MonotonicTime,
}

impl AgentCore {
    /// Creates the core from the journal found in the state directory. The caller holds that directory's file lock.
    pub fn new(config: Config, mut journal: Journal) -> AgentCore {
        let machine_findings = MachineFindings::new(&config, &mut journal);
        let watchdog_test_ended = watchdog_test::evaluate_begun_test(&config, &mut journal);
        let view = View::new(&config.keys, &config.node);
        let active_timings = journal.timings.unwrap_or_default();
        let mut core = AgentCore {
            highest_revision: journal.revision,
            config,
            journal,
            journal_writes: JournalWrites::default(),
            view,
            session: Session::Waiting,
            watchdog: Watchdog::default(),
            machine_findings,
            watchdog_test: WatchdogTest::default(),
            usage_measurement: UsageMeasurement::default(),
            lease: Lease::default(),
            services: BTreeMap::new(),
            commits: BTreeMap::new(),
            reads: BTreeMap::new(),
            commands: BTreeMap::new(),
            effects: VecDeque::new(),
            next_number: 1,
            deadline: None,
            active_timings,
            unconfirmed_armed: false,
            unconfirmed_report: false,
            hold: Hold::default(),
            heartbeats_failing_since: None,
            failed_writes: BTreeMap::new(),
            has_read_own_keys: false,
            read_retry_at: None,
            not_stopped: Vec::new(),
            shutdown: None,
            shutdown_at: None,
            is_restart_ready: false,
            has_logged_exit_delay: false,
            is_awaiting_moves: false,
            has_stopped_awaiting_moves: false,
            shutdown_revision: None,
            leave_commit: None,
            changed: false,
            dirty_services: BTreeSet::new(),
            are_all_dirty: true,
            pending_follow_up: None,
            last_input_at: MonotonicTime::default(),
        };
        // Services named by the journal may run here. They must be killed in time even if etcd is never reached.
        core.seed_services();
        core.load_watchdog_test_results();
        if watchdog_test_ended {
            core.mark_journal_changed();
        }
        core
    }

    /// Applies one input to the state. The resulting effects are returned by [`AgentCore::poll_effect`].
    pub fn handle(&mut self, now: &Now, input: Input) {
        let is_due = |core: &AgentCore| core.deadline().is_some_and(|(at, _)| now.monotonic_raw >= at);
        if let Input::Changed { changes, revision: _ } = &input
            && self.view.only_refreshes_candidates(changes)
            && !is_due(self)
        {
            // A controller rewrites its candidate key at its restart; a version without `refresh/<id>` rewrites it
            // every Ki. While no step is due, a rewritten key has no consequence.
            self.last_input_at = now.monotonic_raw;
            self.view.on_changed(changes);
            return;
        }
        let follows = !matches!(input, Input::UsageReadings { .. }) || is_due(self);
        self.last_input_at = now.monotonic_raw;
        if matches!(self.session, Session::Ended) {
            return;
        }
        match input {
            Input::Synced { selector, entries, revision } => {
                self.view.on_synced(selector, &entries, revision);
                self.are_all_dirty = true;
            }
            Input::Changed { changes, revision: _ } => {
                for change in &changes {
                    self.mark_dirty(change);
                }
                self.view.on_changed(&changes);
            }
            Input::Progress(_) | Input::Tick => {}
            Input::Read { id, result } => {
                self.on_read_answered(now, id, result);
                self.are_all_dirty = true;
            }
            Input::Committed { id, outcome } => self.on_committed(now, id, &outcome),
            Input::LeaseGranted { id, result } => self.on_lease_granted(now, id, result),
            Input::LeaseKept { lease, kept } => self.on_lease_kept(now, lease, &kept),
            Input::HoldAnswered { id, candidate, answer } => {
                self.on_hold_answered(now, id, &candidate, answer);
            }
            Input::JournalWritten { id, result } => self.on_journal_written(now, id, result),
            Input::Ended { id, result } => self.on_ended(now, id, result),
            Input::Driver(event) => self.on_driver_event(now, event),
            Input::Watchdog(event) => self.handle_watchdog_event(now, event),
            Input::Examined(facts) => self.store_machine_facts(facts),
            Input::UsageReadings { id, measured } => {
                if !self.record_measurement(now, id, measured) && !follows {
                    return;
                }
            }
            Input::Facts { drivers, hardware } => {
                self.config.drivers = drivers;
                self.config.hardware = hardware;
            }
            Input::Sleep(protection) => self.config.sleep_protection = Some(protection),
            Input::FollowsIncarnation { incarnation, ordered_by_operator } => {
                self.follow_incarnation(incarnation, ordered_by_operator);
            }
            Input::Shutdown(shutdown) => {
                self.shut_down(now, shutdown);
                self.are_all_dirty = true;
            }
        }
        // The follow-up waits until the shell polls the next effect, so a burst of inputs causes only one follow-up.
        self.pending_follow_up = Some(now.clone());
    }

    /// Returns the next effect. After one or several inputs, call this function until it returns `None`.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        if let Some(now) = self.pending_follow_up.take() {
            self.advance_until_stable(&now);
        }
        self.effects.pop_front()
    }

    /// Returns when to call [`AgentCore::handle`] with [`Input::Tick`], on `CLOCK_MONOTONIC_RAW`, and why. The caller
    /// must first take all effects.
    pub fn deadline(&self) -> Option<(MonotonicTime, &'static str)> {
        if matches!(self.session, Session::Ended) {
            return None;
        }
        let clock =
            self.deadline_moment().map(|_| (self.last_input_at + CLOCK_CHECK_MS, "both clocks are checked"));
        let requesting = match &self.session {
            Session::Requesting(requesting) => requesting.retry_at,
            Session::Waiting | Session::Clearing | Session::Registered(_) | Session::Ended => None,
        };
        let restart = self.shutdown_at.map(|at| at + shutdown::RESTART_MAX_WAIT_MS);
        let moves = if self.awaits_moves() { self.moves_deadline() } else { None };
        let services = self
            .services
            .values()
            .flat_map(|service| {
                [
                    service.not_before,
                    service.write_not_before,
                    service.peer_check_at,
                    service.replacing.due_at(),
                ]
            })
            .flatten()
            .filter(|at| *at > self.last_input_at)
            .min();
        let deadlines = [
            clock,
            self.heartbeat_due_at().map(|at| (at, "a heartbeat or the lease is due")),
            self.hold_due_at().map(|at| (at, "the agent asks the controllers for the etcd-outage hold")),
            self.margin_begins_at(self.last_input_at)
                .map(|at| (at, "the self-fence margin begins: exclusive services are killed")),
            self.watchdog
                .due_at(self.last_input_at)
                .map(|at| (at, "a request to the watchdog daemon is repeated")),
            self.journal_due_at().map(|at| (at, "the journal is written again")),
            requesting.map(|at| (at, "the registration is tried again")),
            self.read_retry_at.map(|at| (at, "etcd is read again")),
            restart.map(|at| (at, "the time limit for commands has passed")),
            moves.map(|at| (at, "the time limit for services to move away has passed")),
            self.watchdog_test.due_at().map(|at| (at, "the watchdog should have reset this machine")),
            services.map(|at| (at, "a service is waiting")),
        ];
        deadlines.into_iter().flatten().filter(|(at, _)| *at > self.last_input_at).min()
    }

    /// Advances every part of the agent as far as possible without waiting.
    fn advance_until_stable(&mut self, now: &Now) {
        if let Some(text) = self.view.refused_timings.take() {
            self.log(
                Level::Error,
                format!("cannot use the timing settings of the cluster, keeping the active settings: {text}"),
            );
        }
        for _ in 0..MAX_ROUNDS {
            self.changed = false;
            self.update_awaiting_moves();
            self.advance_self_fence(now);
            self.advance_session(now);
            self.reread_services(now);
            self.clear_unreadable_reports();
            for name in self.take_dirty_services() {
                self.with_service(&name, |core, service| {
                    core.report_not_stopped_services(now, service);
                    core.advance_replacement(now, service);
                    core.advance(now, service);
                    core.write_report(now, service);
                });
            }
            self.services.retain(|_, service| !service.is_unmanaged);
            self.dispatch(now);
            self.advance_shutdown(now);
            self.advance_lease(now);
            self.advance_heartbeat(now);
            self.advance_hold(now);
            self.advance_watchdog_test(now);
            self.advance_watchdog(now);
            self.advance_machine_findings(now);
            self.advance_usage_measurement(now);
            self.advance_journal_writes(now);
            if !self.changed || matches!(self.session, Session::Ended) {
                break;
            }
        }
    }

    /// Returns the services whose facts changed and the services with work in progress. Adds an entry for each new
    /// service.
    fn take_dirty_services(&mut self) -> BTreeSet<ResourceName> {
        let mut names = std::mem::take(&mut self.dirty_services);
        if std::mem::take(&mut self.are_all_dirty) {
            self.seed_services();
            names.extend(self.services.keys().cloned());
        }
        for name in &names {
            self.seed_service(name);
            self.refresh_definition(name);
        }
        let busy = self.services.iter().filter(|(_, service)| !service.is_idle_until_change());
        names.extend(busy.map(|(name, _)| name.clone()));
        names
    }

    /// Marks the services that a change concerns.
    fn mark_dirty(&mut self, change: &Change) {
        let key = match change {
            Change::Put(entry) => &entry.key,
            Change::Delete { key, .. } => key,
        };
        match self.config.keys.parse(key) {
            Some(Key::Spec(Kind::Resource, name)) => drop(self.dirty_services.insert(name.into())),
            Some(Key::Assignment(name) | Key::ServiceReport(_, name)) => {
                self.dirty_services.insert(name);
            }
            // The cluster's status matters while the cluster is being disarmed; operations matter while the node shuts
            // down.
            Some(Key::Status(..)) => self.are_all_dirty |= self.is_to_be_disarmed(),
            Some(Key::Spec(Kind::Operation, _)) => self.are_all_dirty |= self.is_leaving(),
            Some(
                Key::Spec(Kind::Cluster | Kind::Node | Kind::Group | Kind::AffinityRule | Kind::NodeGroup, _)
                | Key::Tombstone(_)
                | Key::Fence(_)
                | Key::RestoreMarker
                | Key::Incarnation
                | Key::Leader
                | Key::Alive(_)
                | Key::NodeReport(_)
                | Key::Event(..),
            )
            | None => self.are_all_dirty = true,
            // Only the node's report depends on candidates. Reports of the doctor and of usage, the leader's
            // notification records, and logs that users read do not concern services.
            Some(
                Key::Candidate(_)
                | Key::Refresh(_)
                | Key::DoctorReport(_)
                | Key::UsageReport(_)
                | Key::NotificationRecord
                | Key::Backup
                | Key::Spec(Kind::GitSync, _)
                | Key::LogRequest(..)
                | Key::JoinToken(..)
                | Key::IssuedCertificate(..)
                | Key::LogAnswer(..),
            ) => {}
        }
    }

    fn next_id(&mut self) -> u64 {
        let id = self.next_number;
        self.next_number += 1;
        id
    }

    fn log(&mut self, level: Level, message: String) {
        self.effects.push_back(Effect::Log { level, message });
    }

    fn service_names(&self) -> Vec<ResourceName> {
        self.services.keys().cloned().collect()
    }

    /// Runs a closure on a service that is temporarily removed from the map, so that the closure can use the rest of
    /// the core.
    fn with_service(&mut self, name: &ResourceName, act: impl FnOnce(&mut AgentCore, &mut Service)) {
        if let Some(mut service) = self.services.remove(name) {
            act(self, &mut service);
            self.services.insert(name.clone(), service);
        }
    }

    fn add_service(&mut self, definition: ServiceDefinition) {
        let name = definition.name.clone();
        let mut service = Service::new(definition);
        if let Some(report) = self.view.reports.value(&name) {
            service.restarts = report.restarts;
        }
        self.services.insert(name, Box::new(service));
        self.changed = true;
    }

    /// Updates the definition of a service that has no copy here. A running service keeps the definition of its start.
    fn refresh_definition(&mut self, name: &ResourceName) {
        let Some(service) = self.services.get_mut(name) else { return };
        if service.step != Step::Idle || service.running_command.is_some() {
            return;
        }
        let assigned = self.view.assignments.value(name).map(|assignment| &assignment.definition);
        let newest = match assigned.filter(|definition| definition.name == *name) {
            Some(definition) => definition.clone(),
            None => match self.view.resources.value(name) {
                Some(resource) => ServiceDefinition::of(resource),
                None => return,
            },
        };
        if newest.uid != service.definition.uid {
            // Another resource has the name now, and its state is unknown.
            service.definition = newest;
            service.presence = Presence::Unprobed;
            service.permit = None;
            service.begun_action = None;
            service.desired_report = None;
            service.restarts = 0;
            self.changed = true;
        } else if service.presence == Presence::Stopped {
            if !newest.has_same_identity(&service.definition) {
                // The definition now identifies another service, whose state is unknown.
                service.presence = Presence::Unprobed;
                self.changed = true;
            }
            service.definition = newest;
        }
    }
}

#[cfg(test)]
mod testing;
