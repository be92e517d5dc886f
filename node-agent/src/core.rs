//! The node agent's pure core: it decides the actions of this node for its assignments, and the times at which it must
//! not act.
//!
//! The interface is `handle`, `poll_effect` and `deadline`. The core never awaits, reads a clock or draws a random
//! number. The shell and the simulator run the same core. The rules are those of FENCING.md; each file names the rules
//! that it implements.

#![warn(clippy::disallowed_types)]

mod arming;
pub mod command;
mod commits;
mod config;
mod disarm;
mod driver_events;
pub mod effect;
mod examining;
mod external_change;
mod hand_over;
mod heartbeat;
mod hold;
mod in_place;
pub mod input;
pub mod journal;
mod journaling;
mod leave;
mod measuring;
mod migration;
mod moving_away;
mod permit;
mod pets;
mod reception;
mod registration;
mod replacement;
mod reports;
mod role;
mod service;
mod session;
mod state;
mod steps;
mod stop_then_stay;
mod summary;
mod under_permit;
mod unreadable;
pub mod usage;
mod view;
mod watchdog_test;
mod workers;

pub use command::{Command, CommandId, CommandResult, DriverEvent, DriverFailure};
pub use config::{Config, Hardware};
pub use effect::{
    CommitId, Effect, Exit, HoldId, JournalWriteId, Lane, LeaseRequestId, Level, MeasureId, ReadId,
    WatchdogRequestId,
};
pub use input::{Input, LeaseKept, Shutdown, WatchdogNews};
pub use journal::{Journal, JournalEntry, LastWords, Proven, Reception, Trial};
pub use measuring::Measured;
pub use state::State;
pub use summary::{AgentState, Summary};
pub use usage::{Meter, Sample};

use crate::watchdog::Moment;
use arming::Watchdog;
use commits::Purpose;
use examining::Examining;
use ha_api_types::id::{NodeName, ResourceName, Revision};
use ha_api_types::keys::{Key, Keys};
use ha_api_types::kind::Kind;
use ha_api_types::record::NotStopped;
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::{Millis, Mono, Now};
use ha_api_types::timing::Timings;
use ha_store::Change;
use heartbeat::Lease;
use hold::Hold;
use journaling::Journaling;
use measuring::Measuring;
use service::{Presence, Service, Step};
use session::{Reading, Session};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use view::View;
use watchdog_test::WatchdogTest;

/// Interval at which both clocks are checked while a deadline runs, because a suspended machine wakes up late.
const CLOCK_CHECK_MS: Millis = 500;
/// Limit of rounds per follow-up. Every round makes progress, so this limit is never reached.
const MAX_ROUNDS: usize = 64;

/// Returns the etcd prefixes that the agent of `node` must see. Each prefix ends in `/`.
pub fn prefixes(keys: &Keys, node: &NodeName) -> Vec<String> {
    vec![
        keys.specs_of(Kind::Cluster),
        keys.specs_of(Kind::Node),
        keys.specs_of(Kind::Resource),
        keys.specs_of(Kind::Operation),
        keys.statuses_of(Kind::Cluster),
        keys.statuses_of(Kind::Operation),
        keys.assignments(),
        keys.fences(),
        keys.candidates(),
        keys.reports_of(node),
    ]
}

/// The agent's state machine.
///
/// Guarantees: the core asks no driver to start a service without a permit that was committed under every guard of
/// FENCING, section 6. It asks for no start before the action is in the journal on disk. It asks for no start of an
/// exclusive service at or after D − Ts.
///
/// Assumptions: the shell holds the state directory's file lock and passes clock readings in order. The shell answers
/// every effect that has an answer at most once.
///
/// ```
/// use ha_api_types::{id::Revision, keys::Keys, time::Now};
/// use ha_node_agent::core::{AgentCore, Config, Effect, Input, Journal, prefixes};
///
/// let keys = Keys::new("lab");
/// # let config = Config {
/// #     keys: keys.clone(),
/// #     node: "node1".into(),
/// #     instance: "instance-1".to_owned(),
/// #     machine_id: "machine-1".to_owned(),
/// #     product_id: None,
/// #     boot_id: "boot-1".into(),
/// #     is_virtual: false,
/// #     sleep_protection: None,
/// #     drivers: vec!["systemd".to_owned()],
/// #     hardware: ha_node_agent::core::Hardware::default(),
/// #     version: "1".to_owned(),
/// # };
/// let mut agent = AgentCore::new(config, Journal::default());
/// for prefix in prefixes(&keys, &"node1".into()) {
///     let synced = Input::Synced { prefix, entries: Vec::new(), revision: Revision(1) };
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
    journaling: Journaling,
    view: View,
    session: Session,
    watchdog: Watchdog,
    examining: Examining,
    watchdog_test: WatchdogTest,
    measuring: Measuring,
    lease: Lease,
    services: BTreeMap<ResourceName, Service>,
    commits: BTreeMap<CommitId, Purpose>,
    reads: BTreeMap<ReadId, Reading>,
    commands: BTreeMap<CommandId, ResourceName>,
    effects: VecDeque<Effect>,
    next: u64,
    /// D, proven by a heartbeat of this process.
    deadline: Option<Moment>,
    /// The timings that were committed last.
    in_force: Timings,
    /// `true` if a heartbeat with armed: true was sent, and neither it nor a later report is known to be applied.
    unseen_armed: bool,
    /// `true` if a heartbeat with a changed report was sent and its outcome is unknown.
    unseen_report: bool,
    /// State of the requests to hold, which controllers receive while heartbeats do not commit.
    hold: Hold,
    /// Time since which heartbeats do not commit; `None` while they commit.
    beat_failed_at: Option<Mono>,
    /// Cause of the last failure of each kind of write, as logged; none once such a write was applied.
    failed_writes: BTreeMap<String, String>,
    /// The highest etcd revision that this process has seen.
    highest: Revision,
    own_is_read: bool,
    read_retry_at: Option<Mono>,
    not_stopped: Vec<NotStopped>,
    shutdown: Option<Shutdown>,
    shutdown_at: Option<Mono>,
    restart_ready: bool,
    /// `true` once the agent has logged that it cannot exit without etcd.
    refusal_told: bool,
    /// `true` while a machine that shuts down waits for its services to move away.
    awaiting_moves: bool,
    /// `true` once a machine that shuts down has stopped waiting for its services to move away.
    moves_over: bool,
    /// The revision at which this node first reported its shutdown. Older operations do not concern this shutdown.
    shutting_since: Option<Revision>,
    leaving: Option<CommitId>,
    /// `true` if an input may have enabled another step.
    changed: bool,
    /// Services whose facts have changed since they were last advanced.
    stale: BTreeSet<ResourceName>,
    /// `true` if a change concerns every service.
    all_stale: bool,
    /// Clock reading of the newest input whose consequences are not computed yet; `None` if there is none.
    unsettled: Option<Now>,
    last: Mono,
}

impl AgentCore {
    /// Creates the core from the journal found in the state directory. The caller holds that directory's file lock.
    pub fn new(config: Config, mut journal: Journal) -> AgentCore {
        let examining = Examining::new(&config, &mut journal);
        let test_is_over = watchdog_test::settle(&config, &mut journal);
        let view = View::new(&config.keys, &config.node);
        let in_force = journal.timings.unwrap_or_default();
        let mut core = AgentCore {
            highest: journal.revision,
            config,
            journal,
            journaling: Journaling::default(),
            view,
            session: Session::Waiting,
            watchdog: Watchdog::default(),
            examining,
            watchdog_test: WatchdogTest::default(),
            measuring: Measuring::default(),
            lease: Lease::default(),
            services: BTreeMap::new(),
            commits: BTreeMap::new(),
            reads: BTreeMap::new(),
            commands: BTreeMap::new(),
            effects: VecDeque::new(),
            next: 1,
            deadline: None,
            in_force,
            unseen_armed: false,
            unseen_report: false,
            hold: Hold::default(),
            beat_failed_at: None,
            failed_writes: BTreeMap::new(),
            own_is_read: false,
            read_retry_at: None,
            not_stopped: Vec::new(),
            shutdown: None,
            shutdown_at: None,
            restart_ready: false,
            refusal_told: false,
            awaiting_moves: false,
            moves_over: false,
            shutting_since: None,
            leaving: None,
            changed: false,
            stale: BTreeSet::new(),
            all_stale: true,
            unsettled: None,
            last: Mono::default(),
        };
        // Services named by the journal may run here. They must be killed in time even if etcd is never reached.
        core.seed_services();
        core.know_tested();
        if test_is_over {
            core.journal_changed();
        }
        core
    }

    /// Applies one input to the state. The resulting effects are returned by [`AgentCore::poll_effect`].
    pub fn handle(&mut self, now: &Now, input: Input) {
        let is_due = |core: &AgentCore| core.deadline().is_some_and(|(at, _)| now.raw >= at);
        if let Input::Changed { changes, revision: _ } = &input
            && self.view.only_refreshes_candidates(changes)
            && !is_due(self)
        {
            // A controller rewrites its candidate key at its restart, or every Ki if it is from before `refresh/<id>`.
            // While nothing is due, that has no consequence.
            self.last = now.raw;
            self.view.changed(changes);
            return;
        }
        let follows = !matches!(input, Input::Measured { .. }) || is_due(self);
        self.last = now.raw;
        if matches!(self.session, Session::Ended) {
            return;
        }
        match input {
            Input::Synced { prefix, entries, revision } => {
                self.view.synced(&prefix, &entries, revision);
                self.all_stale = true;
            }
            Input::Changed { changes, revision: _ } => {
                for change in &changes {
                    self.outdate(change);
                }
                self.view.changed(&changes);
            }
            Input::Progress(_) | Input::Tick => {}
            Input::Read { id, result } => {
                self.read_answer(now, id, result);
                self.all_stale = true;
            }
            Input::Committed { id, outcome } => self.committed(now, id, &outcome),
            Input::LeaseGranted { id, result } => self.lease_granted(now, id, result),
            Input::LeaseKept { lease, kept } => self.lease_kept(now, lease, &kept),
            Input::HoldAnswered { id, candidate, answer } => {
                self.hold_answered(now, id, &candidate, answer);
            }
            Input::JournalWritten { id, result } => self.journal_written(now, id, result),
            Input::Ended { id, result } => self.ended(now, id, result),
            Input::Driver(event) => self.driver_event(now, event),
            Input::Watchdog(news) => self.watchdog_news(now, news),
            Input::Examined(facts) => self.examined(facts),
            Input::Measured { id, measured } => {
                if !self.measured(now, id, measured) && !follows {
                    return;
                }
            }
            Input::Facts { drivers, hardware } => {
                self.config.drivers = drivers;
                self.config.hardware = hardware;
            }
            Input::Sleep(protection) => self.config.sleep_protection = Some(protection),
            Input::Follows { incarnation, begins } => self.follow(incarnation, begins),
            Input::Shutdown(shutdown) => {
                self.shut_down(now, shutdown);
                self.all_stale = true;
            }
        }
        // The follow-up waits until the shell asks for the next effect, so that a burst of inputs is followed up once.
        self.unsettled = Some(now.clone());
    }

    /// Returns the next effect. Call it until it returns `None`, after one input or after several.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        if let Some(now) = self.unsettled.take() {
            self.settle(&now);
        }
        self.effects.pop_front()
    }

    /// Returns when to call [`AgentCore::handle`] with [`Input::Tick`], on `CLOCK_MONOTONIC_RAW`, and why. Ask once no
    /// effect is left.
    pub fn deadline(&self) -> Option<(Mono, &'static str)> {
        if matches!(self.session, Session::Ended) {
            return None;
        }
        let clock = self.deadline_moment().map(|_| (self.last + CLOCK_CHECK_MS, "both clocks are checked"));
        let requesting = match &self.session {
            Session::Requesting(requesting) => requesting.retry_at,
            Session::Waiting | Session::Clearing | Session::Registered(_) | Session::Ended => None,
        };
        let restart = self.shutdown_at.map(|at| at + leave::RESTART_PATIENCE_MS);
        let moves = if self.awaits_moves() { self.moves_until() } else { None };
        let services = self
            .services
            .values()
            .flat_map(|service| {
                [service.not_before, service.write_not_before, service.peek_at, service.replacing.due()]
            })
            .flatten()
            .filter(|at| *at > self.last)
            .min();
        let named = [
            clock,
            self.heartbeat_due().map(|at| (at, "a heartbeat or the lease is due")),
            self.hold_due().map(|at| (at, "controllers are asked to hold fencing")),
            self.margin_due(self.last)
                .map(|at| (at, "the self-fence margin begins: exclusive services are killed")),
            self.watchdog.due(self.last).map(|at| (at, "the watchdog daemon is asked again")),
            self.journal_due().map(|at| (at, "the journal is written again")),
            requesting.map(|at| (at, "the registration is tried again")),
            self.read_retry_at.map(|at| (at, "etcd is read again")),
            restart.map(|at| (at, "the time to wait for commands is over")),
            moves.map(|at| (at, "the time for services to move away is over")),
            self.watchdog_test.due().map(|at| (at, "the watchdog should have reset this machine")),
            services.map(|at| (at, "a service is waiting")),
        ];
        named.into_iter().flatten().filter(|(at, _)| *at > self.last).min()
    }

    /// Advances every part of the agent until nothing more can be done without waiting.
    fn settle(&mut self, now: &Now) {
        if let Some(text) = self.view.refused_timings.take() {
            self.log(
                Level::Error,
                format!("cannot use the timings of the cluster, keeping the active ones: {text}"),
            );
        }
        for _ in 0..MAX_ROUNDS {
            self.changed = false;
            self.look_at_moves();
            self.stop_then_stay_step(now);
            self.session_step(now);
            self.reread_services(now);
            self.clear_unreadable_reports();
            for name in self.names_to_look_at() {
                self.with_service(&name, |core, service| {
                    core.tell_not_stopped(now, service);
                    core.replacement_step(now, service);
                    core.advance(now, service);
                    core.write_report(now, service);
                });
            }
            self.services.retain(|_, service| !service.forgotten);
            self.dispatch(now);
            self.leave_step(now);
            self.lease_step(now);
            self.heartbeat_step(now);
            self.hold_step(now);
            self.watchdog_test_step(now);
            self.watchdog_step(now);
            self.examining_step(now);
            self.measuring_step(now);
            self.journaling_step(now);
            if !self.changed || matches!(self.session, Session::Ended) {
                break;
            }
        }
    }

    /// Returns the services whose facts changed and the services with work in progress. Adds an entry for each new
    /// service.
    fn names_to_look_at(&mut self) -> BTreeSet<ResourceName> {
        let mut names = std::mem::take(&mut self.stale);
        if std::mem::take(&mut self.all_stale) {
            self.seed_services();
            names.extend(self.services.keys().cloned());
        }
        for name in &names {
            self.seed_service(name);
            self.refresh_definition(name);
        }
        let busy = self.services.iter().filter(|(_, service)| !service.is_quiet());
        names.extend(busy.map(|(name, _)| name.clone()));
        names
    }

    /// Marks the services that a change concerns.
    fn outdate(&mut self, change: &Change) {
        let key = match change {
            Change::Put(entry) => &entry.key,
            Change::Delete { key, .. } => key,
        };
        match self.config.keys.parse(key) {
            Some(Key::Spec(Kind::Resource, name)) => drop(self.stale.insert(name.into())),
            Some(Key::Assignment(name) | Key::ServiceReport(_, name)) => drop(self.stale.insert(name)),
            // The cluster's status matters while the cluster is being disarmed; operations matter while the node shuts
            // down.
            Some(Key::Status(..)) => self.all_stale |= self.is_to_be_disarmed(),
            Some(Key::Spec(Kind::Operation, _)) => self.all_stale |= self.is_leaving(),
            Some(
                Key::Spec(Kind::Cluster | Kind::Node | Kind::Group | Kind::AffinityRule | Kind::NodeGroup, _)
                | Key::Tombstone(_)
                | Key::Fence(_)
                | Key::Restored
                | Key::Incarnation
                | Key::Leader
                | Key::Alive(_)
                | Key::NodeReport(_)
                | Key::Event(..),
            )
            | None => self.all_stale = true,
            // Only the node's report depends on candidates. Reports of the doctor and of usage, the leader's
            // notification records, and logs that users read do not concern services.
            Some(
                Key::Candidate(_)
                | Key::Refresh(_)
                | Key::DoctorReport(_)
                | Key::UsageReport(_)
                | Key::Notified
                | Key::LogRequest(..)
                | Key::LogAnswer(..),
            ) => {}
        }
    }

    fn next_id(&mut self) -> u64 {
        let id = self.next;
        self.next += 1;
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
        self.services.insert(name, service);
        self.changed = true;
    }

    /// Updates the definition of a service that has no copy here. A running service keeps the definition of its start.
    fn refresh_definition(&mut self, name: &ResourceName) {
        let Some(service) = self.services.get_mut(name) else { return };
        if service.step != Step::Rest || service.task.is_some() {
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
            service.begun = None;
            service.desired = None;
            service.restarts = 0;
            self.changed = true;
        } else if service.presence == Presence::Stopped {
            if !newest.is_same_thing(&service.definition) {
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
