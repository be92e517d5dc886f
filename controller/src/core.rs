//! The controller's pure core. It observes the cluster, and the leader decides the actions on nodes and services.
//!
//! The core never awaits, reads no clock and draws no random number. Inputs enter through [`Controller::handle`], and
//! effects leave through [`Controller::poll_effect`].

#![warn(clippy::disallowed_types)]

pub mod candidacy;
pub mod candidates;
pub mod combined_controller;
pub mod commands;
pub mod definition_change;
pub mod explain;
pub mod fencing;
pub mod health;
pub mod incarnation;
mod interface;
pub mod metric_event;
pub mod notifications;
pub mod order;
pub mod placement;
pub mod plan;
pub mod plan_input;
pub mod reconcile;
pub mod reservation;
pub mod resource_requests;
pub mod restored;
pub mod samples;
pub mod service;
pub mod stored_view;
pub mod usage;
pub mod world;

mod hold;
mod leadership;
mod operations;
mod pause;
mod state;
mod status;
#[cfg(test)]
mod tests;
mod unverified;
mod writes;

pub use interface::{
    CommitId, Config, Effect, FencerAction, FencerOutcome, FencerRun, FullReadId, HoldId, Input, RunId,
};

use candidacy::{ElectionInputs, ElectionState};
use fencing::devices::DeviceWork;
use fencing::probes::DeviceProbes;
use ha_api_types::event::{Event, EventType};
use ha_api_types::id::{NodeName, Term};
use ha_api_types::keys::Keys;
use ha_api_types::reason::Reason;
use ha_api_types::record::Proof;
use ha_api_types::time::{Millis, MonotonicTime, Now};
use ha_store::Outcome;
use ha_store::election::{CandidateKey, Leadership, ReadTracker};
use metric_event::MetricEvent;
use notifications::deliveries::{Deliveries, NotificationResult};
use plan::{OnApplied, RebalanceState, Waiting};
use plan_input::{Imbalance, ImbalanceKind, PlanInput};
use reservation::FailoverCapacityCheck;
use std::collections::{BTreeMap, VecDeque};
use world::{ClusterView, PlanRelevance};
use writes::Writes;

/// Interval, in milliseconds, at which the leader plans even without a change.
const PLAN_INTERVAL_MS: Millis = 30_000;

/// Purpose of a run of a fence device.
#[derive(Clone, Debug)]
enum DeviceRun {
    /// Fence this node, or restore its power or its access.
    Switch(NodeName, FencerAction),
    /// Check whether this node's device answers: node, device.
    Probe(NodeName, String),
}

/// The controller: a follower that observes, or the leader that also decides.
///
/// Guarantees: every write of a decision has the guard `Created(leader)` of this process's own term. At most one write
/// per key is outstanding. All state that must outlive this process is stored in etcd. Assumptions: inputs arrive in
/// the order in which they happened; `now` never goes back.
///
/// ```
/// use ha_api_types::id::Revision;
/// use ha_api_types::time::Now;
/// use ha_controller::core::{Config, Controller, Effect, Input};
///
/// let config = Config { cluster: "lab".to_owned(), id: "c1".into(), ..Config::default() };
/// let mut controller = Controller::new(config);
/// let Some(Effect::Refresh { id }) = controller.poll_effect() else { panic!("no read of all keys") };
/// // The shell reads etcd, which is empty here, and passes the answer.
/// let synced = Input::Synced { entries: Vec::new(), revision: Revision(1), answers: id };
/// controller.handle(&Now::default(), synced);
/// assert_eq!((controller.term(), controller.plan_count()), (None, 0), "a follower only observes");
/// ```
#[derive(Debug)]
pub struct Controller {
    config: Config,
    now: Now,
    cluster_view: ClusterView,
    /// State of the election, as the election's core last reported it.
    election_state: ElectionState,
    /// Inputs of the election, as last sent to it.
    sent_election_inputs: Option<ElectionInputs>,
    read_tracker: ReadTracker,
    writes: Writes,
    devices: BTreeMap<NodeName, DeviceWork>,
    probes: DeviceProbes,
    runs: BTreeMap<RunId, DeviceRun>,
    effects: VecDeque<Effect>,
    next_commit: u64,
    next_run: u64,
    next_uid: u64,
    next_event: u64,
    is_dirty: bool,
    planned_at: MonotonicTime,
    wake: Option<(MonotonicTime, &'static str)>,
    /// Nodes whose heartbeats were in time at the last plan. `late_at` is the time at which the first of them becomes
    /// late, as last computed.
    timely_nodes: Vec<NodeName>,
    late_at: Option<MonotonicTime>,
    /// `true` if the last plan contained no action and no wait.
    is_idle: bool,
    /// Time since which each node has been overloaded or underloaded. A new leader starts with an empty map.
    imbalances: BTreeMap<(ImbalanceKind, NodeName), Imbalance>,
    /// State of automatic rebalancing at the last plan.
    rebalance: BTreeMap<ImbalanceKind, RebalanceState>,
    waiting: Vec<Waiting>,
    reservation: FailoverCapacityCheck,
    deliveries: Deliveries,
    refused: Option<String>,
    reported_term: Option<Term>,
    /// `true` if another process refreshes this controller's keys, as last reported.
    is_duplicate: bool,
    plans: u64,
}

impl Controller {
    /// Creates a controller without any observation. Its first effect is a read.
    pub fn new(config: Config) -> Controller {
        let keys = Keys::new(&config.cluster);
        Controller {
            config,
            now: Now::default(),
            cluster_view: ClusterView::with_metric_events(keys),
            election_state: ElectionState::default(),
            sent_election_inputs: None,
            read_tracker: ReadTracker::default(),
            writes: Writes::default(),
            devices: BTreeMap::new(),
            probes: DeviceProbes::new(),
            runs: BTreeMap::new(),
            effects: VecDeque::new(),
            next_commit: 1,
            next_run: 1,
            next_uid: 1,
            next_event: 1,
            is_dirty: false,
            planned_at: MonotonicTime::default(),
            wake: None,
            timely_nodes: Vec::new(),
            late_at: None,
            is_idle: false,
            imbalances: BTreeMap::new(),
            rebalance: BTreeMap::new(),
            waiting: Vec::new(),
            reservation: FailoverCapacityCheck::default(),
            deliveries: Deliveries::default(),
            refused: None,
            reported_term: None,
            is_duplicate: false,
            plans: 0,
        }
    }

    /// Applies an input. [`Controller::poll_effect`] makes the decisions, so several inputs that arrive together cause
    /// only one decision.
    pub fn handle(&mut self, now: &Now, input: Input) {
        self.now = now.clone();
        match input {
            Input::Synced { entries, revision, answers } => {
                self.cluster_view.replace(entries, revision, now.monotonic_raw);
                self.count_observed_events();
                self.read_tracker.complete(answers);
                self.is_dirty = true;
                self.update_election();
            }
            Input::Changed { changes, revision } => {
                match self.cluster_view.apply(changes, revision, now.monotonic_raw) {
                    PlanRelevance::Relevant => {
                        self.is_dirty = true;
                        self.update_election();
                    }
                    PlanRelevance::Irrelevant | PlanRelevance::Heartbeat => {}
                }
                self.count_observed_events();
            }
            Input::Progress(revision) => {
                self.cluster_view.revision = self.cluster_view.revision.max(revision);
            }
            Input::Committed { id, outcome } => self.handle_committed(id, &outcome),
            Input::ElectionState(election_state) => {
                if election_state.yields > self.election_state.yields {
                    let message = format!(
                        "Controller {} yielded leadership to a controller that joined earlier",
                        self.config.id
                    );
                    self.emit_cluster_event(EventType::Normal, Reason::YieldedLeadership, message);
                }
                self.election_state = *election_state;
                self.update_election();
            }
            Input::FencerDone { id, outcome } => self.handle_fencer_done(id, outcome),
            Input::HoldRequested { id, node, request } => {
                let answer = self.answer_hold(&node, &request);
                self.effects.push_back(Effect::AnswerHold { id, answer });
            }
            Input::Delivered { id, outcome } => self.handle_delivered(id, outcome),
            // Except for the tick, only the election uses these inputs.
            Input::Tick
            | Input::LeaseGranted { .. }
            | Input::LeaseKept { .. }
            | Input::ElectionInputs(_)
            | Input::Shutdown => {}
        }
        let due = self.wake.is_some_and(|(at, _)| now.monotonic_raw >= at)
            || now.monotonic_raw >= self.planned_at + PLAN_INTERVAL_MS;
        if self.writes.release_finished(&self.cluster_view, &self.read_tracker, now.monotonic_raw)
            || due
            || self.check_for_late_nodes()
        {
            self.is_dirty = true;
        }
    }

    /// Returns the next effect. After one or several inputs, call this function until it returns `None`.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        if self.effects.is_empty() {
            self.advance();
        }
        self.effects.pop_front()
    }

    /// Returns the time on `now.monotonic_raw` at which to send [`Input::Tick`], and the reason.
    pub fn deadline(&self) -> Option<(MonotonicTime, &'static str)> {
        let planner = self.planning_leadership().is_some().then(|| {
            let must_plan = (self.planned_at + PLAN_INTERVAL_MS, "everything is checked again");
            let pause = self.writes.deadline().map(|at| (at, "a pause after a refused write ends"));
            let late_deadline = self.late_at.map(|at| (at, "a heartbeat is due"));
            let check = self.reservation.deadline().map(|at| (at, "the failover capacity check continues"));
            [Some(must_plan), self.wake, late_deadline, pause, check].into_iter().flatten().min()
        });
        planner.flatten()
    }

    /// Returns the settings of this process, with the controller's id.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the term of this leader; `None` if this controller is not leader. A deposed leader returns its term
    /// until it has read that it was deposed.
    pub fn term(&self) -> Option<Term> {
        self.election_state.leadership.as_ref().map(Leadership::term)
    }

    /// Returns the view of the cluster, for metrics and the API.
    pub fn cluster_view(&self) -> &ClusterView {
        &self.cluster_view
    }

    /// Returns the conditions that the leader waits for.
    pub fn wait_conditions(&self) -> &[Waiting] {
        &self.waiting
    }

    /// Returns the result of the failover capacity check while this controller is leader.
    pub fn reservation(&self) -> Option<&reservation::Finding> {
        self.reservation.finding()
    }

    /// Returns the state of automatic rebalancing at the last plan, by the property that it balances. Contains only
    /// enabled properties.
    pub fn rebalance(&self) -> &BTreeMap<ImbalanceKind, RebalanceState> {
        &self.rebalance
    }

    /// Returns etcd's error for the last refused write; `None` after a write was applied.
    pub fn last_refusal(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Returns the number of plans that this process has made.
    pub fn plan_count(&self) -> u64 {
        self.plans
    }

    /// Sends changed inputs to the election.
    fn update_election(&mut self) {
        let election_inputs = ElectionInputs::of(&self.cluster_view, self.yields_until());
        if self.sent_election_inputs.as_ref() != Some(&election_inputs) {
            self.sent_election_inputs = Some(election_inputs.clone());
            self.effects.push_back(Effect::UpdateElection(election_inputs));
        }
    }

    fn handle_committed(&mut self, id: CommitId, outcome: &Outcome) {
        if !self.writes.contains(id) {
            return;
        }
        let answered = self.writes.handle_answer(
            id,
            outcome,
            &self.cluster_view,
            &mut self.read_tracker,
            self.now.monotonic_raw,
        );
        match (outcome, answered.refused) {
            (Outcome::Applied(_), _) => self.refused = None,
            (_, Some(refused)) => self.refused = Some(refused),
            (_, None) => {}
        }
        for (on_applied, sent, revision) in answered.applied {
            match on_applied {
                OnApplied::DeviceIntent(node) => {
                    self.devices.entry(node).or_default().record_intent(sent, revision);
                }
                OnApplied::DeviceIntentKept(node) => {
                    self.devices.entry(node).or_default().update_intent_revision(revision);
                }
                OnApplied::DeviceIntentCleared(node) => self.devices.entry(node).or_default().clear_intent(),
                OnApplied::NotificationsDropped(targets) => {
                    let result = NotificationResult::Dropped;
                    for target in targets {
                        self.count(MetricEvent::Notification { target, result });
                    }
                }
                OnApplied::None | OnApplied::ClosesOnSilence(_) | OnApplied::Uses(_) => {}
            }
        }
        for event in answered.events {
            self.emit_event(event);
        }
    }

    fn handle_fencer_done(&mut self, id: RunId, outcome: FencerOutcome) {
        let Some(run) = self.runs.remove(&id) else { return };
        let now = self.now.monotonic_raw;
        self.is_dirty = true;
        let node = match run {
            DeviceRun::Switch(node, action) => {
                let failed = matches!(outcome, FencerOutcome::Failed(_));
                if failed && action == FencerAction::Off {
                    let method = Proof::Device { name: String::new() }.name();
                    self.count(MetricEvent::Fence { method, confirmed: false });
                }
                node
            }
            DeviceRun::Probe(node, device) => {
                self.probes.entry((node, device)).or_default().record_end(id, outcome, now);
                return;
            }
        };
        self.devices.entry(node).or_default().record_end(id, outcome, now);
    }

    fn count(&mut self, metric_event: MetricEvent) {
        self.effects.push_back(Effect::Count(metric_event));
    }

    /// Counts events that the view has observed. Only the leader counts them.
    fn count_observed_events(&mut self) {
        let metric_events = self.cluster_view.take_metric_events();
        if self.term().is_some() {
            self.effects.extend(metric_events.into_iter().map(Effect::Count));
        }
    }

    fn emit_event(&mut self, event: Event) {
        let name = format!("{}-{}", self.config.instance, self.next_event);
        self.next_event += 1;
        self.effects.push_back(Effect::Event { name, event });
    }

    /// Advances as far as possible without another input.
    fn advance(&mut self) {
        self.report_leadership();
        self.report_duplicate();
        self.plan();
        if self.planning_leadership().is_some()
            && self.reservation.advance(self.now.monotonic_raw, &self.config.cluster)
        {
            self.is_dirty = true;
            self.plan();
        }
        if let Some(id) = self.read_tracker.begin() {
            self.effects.push_back(Effect::Refresh { id });
        }
    }

    /// Returns `true` if a node that was in time may have missed its heartbeats. If the last plan was idle, later
    /// heartbeats only postpone the next check.
    fn check_for_late_nodes(&mut self) -> bool {
        let now = self.now.monotonic_raw;
        if self.late_at.is_none_or(|at| now < at) {
            return false;
        }
        let late_at =
            health::first_late_at(&self.cluster_view, &self.election_state.commits, &self.timely_nodes, now);
        if self.is_idle && late_at.is_some_and(|at| now < at) {
            self.late_at = late_at;
            return false;
        }
        true
    }

    /// Returns leadership and membership if this process may plan. It must be leader, have the revision of its
    /// candidacy, and have a view with all writes of earlier leaders. Only an input changes this; time alone does not.
    fn planning_leadership(&self) -> Option<(&Leadership, CandidateKey)> {
        let leadership = self.election_state.leadership.as_ref()?;
        let candidate_key = self.election_state.candidate_key?;
        let may_plan =
            self.cluster_view.revision >= leadership.term().revision() && !self.election_state.is_ending;
        may_plan.then_some((leadership, candidate_key))
    }

    /// Makes a plan and sends it, if allowed and if an input has changed the view.
    fn plan(&mut self) {
        if !self.is_dirty {
            return;
        }
        let Some((leadership, candidate_key)) = self.planning_leadership() else { return };
        let leadership = leadership.clone();
        self.plans += 1;
        self.is_dirty = false;
        self.planned_at = self.now.monotonic_raw;
        self.deliveries.remove_recorded(&self.cluster_view);
        let busy = self.writes.subjects_in_flight();
        let pending_uses = self.writes.pending_uses();
        let possibly_closed = self.writes.possibly_closed();
        let mut plan = reconcile::reconcile(&PlanInput {
            cluster_view: &self.cluster_view,
            now: &self.now,
            term: leadership.term(),
            config: &self.config,
            candidate_key,
            commit_gaps: &self.election_state.commits,
            devices: &self.devices,
            probes: &self.probes,
            imbalances: &self.imbalances,
            rebalance: &self.rebalance,
            possibly_closed: &possibly_closed,
            pending_uses: &pending_uses,
            busy: &busy,
            reservation: self.reservation.finding(),
            deliveries: &self.deliveries,
            next_uid: self.next_uid,
        });
        self.next_uid += plan.uids;
        self.wake = plan.wake;
        self.imbalances = std::mem::take(&mut plan.imbalances)
            .into_iter()
            .map(|(node, above)| {
                let ongoing = self.imbalances.get(&node).filter(|imbalance| imbalance.is_above == above);
                let since = ongoing.map_or(self.now.monotonic_raw, |imbalance| imbalance.since);
                (node, Imbalance { is_above: above, since })
            })
            .collect();
        self.rebalance = std::mem::take(&mut plan.rebalance);
        self.timely_nodes = std::mem::take(&mut plan.timely_nodes);
        self.late_at = health::first_late_at(
            &self.cluster_view,
            &self.election_state.commits,
            &self.timely_nodes,
            self.now.monotonic_raw,
        );
        self.is_idle = plan.is_idle();
        if let Some(view) = plan.view.take() {
            self.reservation.update_view(view, self.now.monotonic_raw);
        }
        let mut next = self.next_commit;
        let sent = self.writes.send(&mut plan, &leadership, self.now.monotonic_raw, || {
            next += 1;
            CommitId(next - 1)
        });
        self.next_commit = next;
        self.effects.extend(sent.into_iter().map(|(id, transaction)| Effect::Commit { id, transaction }));
        for mut run in std::mem::take(&mut plan.runs) {
            run.id = RunId(self.next_run);
            self.next_run += 1;
            match run.action {
                FencerAction::Off | FencerAction::On => {
                    self.devices.entry(run.node.clone()).or_default().start(
                        run.id,
                        run.action,
                        &run.device.name,
                    );
                    self.runs.insert(run.id, DeviceRun::Switch(run.node.clone(), run.action));
                }
                FencerAction::Monitor => {
                    let key = (run.node.clone(), run.device.name.clone());
                    self.runs.insert(run.id, DeviceRun::Probe(key.0.clone(), key.1.clone()));
                    self.probes.entry(key).or_default().begin(&run.device, run.id);
                }
            }
            self.effects.push_back(Effect::RunFencer(run));
        }
        self.begin_deliveries(&mut plan);
        self.waiting = plan.waiting;
        if plan.is_held_by_others
            && candidates::is_older_controller_present(
                &self.cluster_view,
                self.now.monotonic_raw,
                candidate_key.joined,
            )
        {
            self.request_yield_to_older();
        }
    }
}
