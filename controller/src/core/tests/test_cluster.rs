//! The test environment: controllers and scripted agents over the in-memory store, under a clock that the test
//! advances.

use super::agent::Agent;
use super::fence_writes::FencesBefore;
use crate::core::combined_controller::CombinedController;
use crate::core::metric_event::MetricEvent;
use crate::core::notifications::deliveries::DeliveryOutcome;
use crate::core::{Config, Effect, FencerAction, FencerOutcome, FencerRun, FullReadId, Input};
use ha_api_types::driver::{DriverSpec, SimulatedDriver};
use ha_api_types::event::Event;
use ha_api_types::id::{NodeName, ResourceName, Revision, Term};
use ha_api_types::keys::Keys;
use ha_api_types::kind::Kind;
use ha_api_types::node::NodeState;
use ha_api_types::notification::Notification;
use ha_api_types::object::{Object, Spec};
use ha_api_types::operation::{Operation, OperationAction, OperationSpec, OperationStatus};
use ha_api_types::record::{Assignment, Fence, HoldAnswer};
use ha_api_types::resource::{RequestedState, Resource, ResourceSpec, ResourceStatus, ServiceState};
use ha_api_types::time::{Millis, MonotonicTime, Now};
use ha_store::memory_state::MemoryState;
use ha_store::{Change, Entry, Guard, Outcome, StoreError, Transaction};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

pub(super) const STEP_MS: Millis = 100;

/// One controller and its connection to the store.
pub(super) struct TestController {
    pub(super) core: CombinedController,
    pub(super) is_running: bool,
    /// All commits of this controller, with their outcomes.
    pub(super) commits: Vec<(Option<Term>, Transaction, Outcome)>,
    pub(super) runs: Vec<FencerRun>,
    /// Runs of fence devices in progress.
    active_runs: Vec<FencerRun>,
    delivered_revision: Revision,
    pending_inputs: VecDeque<Input>,
    /// Reads that were requested while the store was unreachable.
    deferred_reads: Vec<FullReadId>,
    /// Answers to hold requests of agents.
    pub(super) hold_answers: Vec<HoldAnswer>,
    /// Changes how this controller reads entries, to simulate a version that cannot read every word.
    pub(super) read_entry: Option<EntryReader>,
}

/// Converts an entry to the form that another version would read.
pub(super) type EntryReader = Rc<dyn Fn(&Entry) -> Entry>;

impl TestController {
    fn reads(&self, entries: Vec<Entry>) -> Vec<Entry> {
        match &self.read_entry {
            Some(read_entry) => entries.iter().map(|entry| read_entry(entry)).collect(),
            None => entries,
        }
    }
}

pub(super) struct TestCluster {
    pub(super) state: MemoryState,
    pub(super) keys: Keys,
    pub(super) now: Now,
    pub(super) controllers: Vec<TestController>,
    pub(super) agents: BTreeMap<NodeName, Agent>,
    pub(super) events: Vec<Event>,
    /// Metric events of all controllers.
    pub(super) metric_events: Vec<MetricEvent>,
    /// Outcome of every delivery of a notification.
    pub(super) delivery_outcome: DeliveryOutcome,
    /// `true` if the next controller that delivers a notification dies before it receives the outcome.
    pub(super) dies_on_delivery: bool,
    /// Delivered notifications, with the name of the target.
    pub(super) delivered_notifications: Vec<(String, Notification)>,
    /// Outcome of fence devices; `None` while they are still running.
    pub(super) fencer_outcome: Option<FencerOutcome>,
    /// Actions that fence devices fail to carry out.
    pub(super) refused_actions: Vec<FencerAction>,
    /// Next commits of the leader whose outcome is lost; `true` if the commit is applied.
    pub(super) lost_commits: Vec<bool>,
    /// Keys whose next write is not applied, and whose outcome is lost. The last key is used first.
    pub(super) lost_commits_by_key: Vec<String>,
    /// `true` if the store is unreachable for all.
    pub(super) store_unreachable: bool,
    /// Keys of all objects that were ever created.
    created_keys: BTreeSet<String>,
}

impl TestCluster {
    pub(super) fn new(controllers: usize, nodes: &[&str]) -> TestCluster {
        let mut cluster = TestCluster {
            state: MemoryState::default(),
            keys: Keys::new("lab"),
            now: Now {
                monotonic_raw: MonotonicTime(1_000_000),
                boottime: MonotonicTime(1_000_000),
                wall_unix_ms: 1_700_000_000_000,
            },
            controllers: Vec::new(),
            agents: nodes.iter().map(|name| ((*name).into(), Agent::new(name))).collect(),
            events: Vec::new(),
            metric_events: Vec::new(),
            delivery_outcome: DeliveryOutcome::Delivered("204".to_owned()),
            dies_on_delivery: false,
            delivered_notifications: Vec::new(),
            fencer_outcome: None,
            refused_actions: Vec::new(),
            lost_commits: Vec::new(),
            lost_commits_by_key: Vec::new(),
            store_unreachable: false,
            created_keys: BTreeSet::new(),
        };
        for number in 0..controllers {
            cluster.add_controller(&format!("c{number}"), "1");
        }
        cluster
    }

    pub(super) fn add_controller(&mut self, id: &str, instance: &str) {
        let core = CombinedController::new(Config {
            cluster: "lab".to_owned(),
            id: id.into(),
            url: format!("https://{id}:7443"),
            version: "1".to_owned(),
            instance: format!("{id}-{instance}").into(),
            machine: format!("machine-of-{id}").into(),
            is_only_process: true,
        });
        let controller = TestController {
            core,
            is_running: true,
            commits: Vec::new(),
            runs: Vec::new(),
            active_runs: Vec::new(),
            delivered_revision: Revision(0),
            pending_inputs: VecDeque::new(),
            deferred_reads: Vec::new(),
            hold_answers: Vec::new(),
            read_entry: None,
        };
        self.controllers.push(controller);
    }

    /// Advances the time.
    pub(super) fn run(&mut self, ms: Millis) {
        for _ in 0..ms / STEP_MS {
            self.step();
        }
    }

    /// Advances the time until a condition holds; fails after `within`.
    pub(super) fn run_until(
        &mut self,
        within: Millis,
        description: &str,
        holds: impl Fn(&TestCluster) -> bool,
    ) {
        let start = self.now.monotonic_raw;
        while !holds(self) {
            assert!(
                self.now.monotonic_raw.since(start) < within,
                "not within {within} ms: {description}\n{}",
                self.show()
            );
            self.step();
        }
    }

    pub(super) fn step(&mut self) {
        self.now.monotonic_raw = self.now.monotonic_raw + STEP_MS;
        self.now.boottime = self.now.boottime + STEP_MS;
        self.now.wall_unix_ms += i128::from(STEP_MS);
        if !self.store_unreachable {
            self.state.expire(self.now.monotonic_raw);
            for agent in self.agents.values_mut() {
                agent.step(&mut self.state, &self.keys, self.now.monotonic_raw);
            }
        }
        for controller in 0..self.controllers.len() {
            self.run_member(controller);
        }
        self.check();
    }

    /// Checks that no service runs on two nodes.
    pub(super) fn check(&self) {
        let mut runs: BTreeMap<&ResourceName, Vec<&NodeName>> = BTreeMap::new();
        for (node, agent) in &self.agents {
            for name in &agent.running {
                runs.entry(name).or_default().push(node);
            }
        }
        for (name, nodes) in runs {
            assert!(nodes.len() < 2, "{name} runs on {nodes:?}\n{}", self.show());
        }
    }

    fn run_member(&mut self, index: usize) {
        if !self.controllers[index].is_running {
            return;
        }
        self.answer_readings(index);
        for _ in 0..200 {
            let controller = &mut self.controllers[index];
            let due =
                controller.core.deadline().is_some_and(|(deadline, _)| deadline <= self.now.monotonic_raw);
            if due {
                controller.core.handle(&self.now, Input::Tick);
            }
            let delivered_revision = controller.delivered_revision;
            if !self.store_unreachable
                && delivered_revision > Revision(0)
                && delivered_revision < self.state.revision()
                && let Ok(changes) = self.state.changes_since(self.keys.root(), delivered_revision + 1)
            {
                let seen_as = |change| match (change, &controller.read_entry) {
                    (Change::Put(entry), Some(read_entry)) => Change::Put(read_entry(&entry)),
                    (change, _) => change,
                };
                let changes = changes.into_iter().flat_map(|(_, changes)| changes).map(seen_as).collect();
                controller.delivered_revision = self.state.revision();
                controller
                    .core
                    .handle(&self.now, Input::Changed { changes, revision: controller.delivered_revision });
            }
            while let Some(input) = self.controllers[index].pending_inputs.pop_front() {
                self.controllers[index].core.handle(&self.now, input);
            }
            self.answer_runs(index);
            let mut idle = true;
            while let Some(effect) = self.controllers[index].core.poll_effect() {
                idle = false;
                self.effect(index, effect);
            }
            let controller = &self.controllers[index];
            let answered = self.fencer_outcome.is_none() || controller.active_runs.is_empty();
            let has_seen = self.store_unreachable || controller.delivered_revision == self.state.revision();
            if idle && answered && controller.pending_inputs.is_empty() && has_seen {
                let next = controller.core.deadline();
                assert!(
                    next.is_none_or(|(index, _)| index > self.now.monotonic_raw),
                    "the core repeats its deadline {next:?}"
                );
                return;
            }
        }
        panic!("the controller does not come to rest\n{}", self.show());
    }

    /// Answers the reads that waited for the store.
    fn answer_readings(&mut self, index: usize) {
        if self.store_unreachable {
            return;
        }
        for id in std::mem::take(&mut self.controllers[index].deferred_reads) {
            let reading = self.state.list(self.keys.root());
            let controller = &mut self.controllers[index];
            controller.delivered_revision = controller.delivered_revision.max(reading.revision);
            let (entries, revision) = (controller.reads(reading.entries), reading.revision);
            controller.pending_inputs.push_back(Input::Synced { entries, revision, answers: id });
        }
    }

    /// Ends the runs of fence devices in progress.
    fn answer_runs(&mut self, index: usize) {
        let Some(outcome) = &self.fencer_outcome else { return };
        let controller = &mut self.controllers[index];
        for run in std::mem::take(&mut controller.active_runs) {
            let outcome = if self.refused_actions.contains(&run.action) {
                FencerOutcome::Failed("no route".to_owned())
            } else {
                outcome.clone()
            };
            controller.core.handle(&self.now, Input::FencerDone { id: run.id, outcome });
        }
    }

    fn effect(&mut self, index: usize, effect: Effect) {
        let is_lost = matches!(&effect, Effect::Commit { transaction, .. }
            if transaction.guards().contains_key(&self.keys.leader())
                && !transaction.writes_key(&self.keys.leader()))
        .then(|| self.lost_commits.pop())
        .flatten();
        let is_lost = is_lost.or_else(|| {
            let key = self.lost_commits_by_key.last().filter(
                |key| matches!(&effect, Effect::Commit { transaction, .. } if transaction.writes_key(key)),
            );
            key.is_some().then(|| self.lost_commits_by_key.pop()).flatten().map(|_| false)
        });
        let store_unreachable = self.store_unreachable;
        let controller = &mut self.controllers[index];
        let answer = match effect {
            Effect::Commit { id, .. } if store_unreachable => {
                Some(Input::Committed { id, outcome: Outcome::Unknown("the store is away".to_owned()) })
            }
            Effect::Refresh { id } if store_unreachable => {
                controller.deferred_reads.push(id);
                None
            }
            Effect::GrantLease { .. } if store_unreachable => {
                Some(Input::LeaseGranted { result: Err(StoreError::Unreachable("away".to_owned())) })
            }
            Effect::KeepAlive { lease } if store_unreachable => {
                Some(Input::LeaseKept { lease, result: Err(StoreError::Unreachable("away".to_owned())) })
            }
            Effect::Commit { id, transaction } => {
                let nodes = self.agents.keys();
                let fences_before = FencesBefore::read(nodes, &self.state, &self.keys, &transaction);
                let outcome = match is_lost {
                    Some(applied) => {
                        if applied {
                            self.state.commit(&transaction);
                        }
                        Outcome::Unknown("lost".to_owned())
                    }
                    None => self.state.commit(&transaction),
                };
                if matches!(outcome, Outcome::Applied(_)) {
                    fences_before.check(&self.state, &self.keys, &transaction, &self.now.timestamp());
                }
                controller.commits.push((controller.core.term(), transaction, outcome.clone()));
                Some(Input::Committed { id, outcome })
            }
            Effect::Refresh { id } => {
                let reading = self.state.list(self.keys.root());
                controller.delivered_revision = controller.delivered_revision.max(reading.revision);
                let entries = controller.reads(reading.entries);
                Some(Input::Synced { entries, revision: reading.revision, answers: id })
            }
            Effect::GrantLease { ttl_seconds } => Some(Input::LeaseGranted {
                result: Ok(self.state.grant_lease(self.now.monotonic_raw, ttl_seconds)),
            }),
            Effect::KeepAlive { lease } => {
                Some(Input::LeaseKept { lease, result: self.state.keep_alive(self.now.monotonic_raw, lease) })
            }
            Effect::Revoke { lease } => {
                let _ = self.state.revoke_lease(lease);
                None
            }
            Effect::RunFencer(run) => {
                controller.runs.push(run.clone());
                controller.active_runs.push(run);
                None
            }
            Effect::Event { event, .. } => {
                self.events.push(event);
                None
            }
            Effect::Deliver(delivery) => {
                let outcome = self.delivery_outcome.clone();
                let (id, target) = (delivery.id, delivery.target.name());
                if matches!(outcome, DeliveryOutcome::Delivered(_)) {
                    self.delivered_notifications.push((target, delivery.notification));
                }
                if std::mem::take(&mut self.dies_on_delivery) {
                    controller.is_running = false;
                    return;
                }
                Some(Input::Delivered { id, outcome })
            }
            Effect::AnswerHold { answer, .. } => {
                controller.hold_answers.push(answer);
                None
            }
            Effect::Count(event) => {
                self.metric_events.push(event);
                None
            }
            Effect::ReportElection(_) | Effect::UpdateElection(_) => {
                unreachable!("these effects stay within the controller")
            }
            Effect::Ended => {
                controller.is_running = false;
                None
            }
        };
        controller.pending_inputs.extend(answer);
    }

    pub(super) fn read<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let entry = self.state.get(key).entries.into_iter().next()?;
        Some(serde_json::from_slice(&entry.value).unwrap())
    }

    /// Replaces the process of a controller with a process that reads each entry with this reader.
    pub(super) fn replace_controller(
        &mut self,
        index: usize,
        instance: &str,
        read_entry: Option<EntryReader>,
    ) {
        let id = format!("c{index}");
        self.add_controller(&id, instance);
        let mut controller = self.controllers.pop().expect("just added");
        controller.read_entry = read_entry;
        self.controllers[index] = controller;
    }

    fn guard(&self, key: &str) -> Guard {
        let entry = self.state.get(key).entries.into_iter().next();
        entry.map_or(Guard::Absent, |entry| Guard::Unchanged(entry.mod_revision))
    }

    /// Writes a record as the leader does.
    pub(super) fn put(&mut self, key: &str, record: &impl serde::Serialize) {
        let value = serde_json::to_vec(record).unwrap();
        let transaction = Transaction::new().put(key.to_owned(), self.guard(key), value);
        assert!(self.state.commit(&transaction).applied().is_some());
    }

    /// Writes an object as the API does.
    pub(super) fn apply<S: Spec>(&mut self, mut object: Object<S>) {
        let key = self.keys.spec(S::KIND, object.name());
        if let Some(stored_object) = self.read::<Object<S>>(&key) {
            object.metadata.uid = stored_object.metadata.uid;
            object.metadata.generation = stored_object.metadata.generation + 1;
        } else {
            if object.metadata.uid.is_empty() {
                // An object that is created again under its name gets another uid.
                let is_new = self.created_keys.insert(key.clone());
                let suffix = if is_new { String::new() } else { format!("-{}", self.state.revision()) };
                object.metadata.uid = format!("uid-{}{suffix}", object.name()).into();
            }
            object.metadata.generation = 1;
        }
        if S::KIND == Kind::Resource {
            object.metadata.finalizers = vec!["hactl.io/managed".to_owned()];
        }
        let transaction =
            Transaction::new().put(key.clone(), self.guard(&key), serde_json::to_vec(&object).unwrap());
        assert!(self.state.commit(&transaction).applied().is_some());
    }

    /// Changes an object's spec as the API does.
    pub(super) fn edit<S: Spec>(&mut self, name: &str, change: impl FnOnce(&mut Object<S>)) {
        let mut object: Object<S> =
            self.read(&self.keys.spec(S::KIND, name)).unwrap_or_else(|| Object::new(name, S::default()));
        change(&mut object);
        self.apply(object);
    }

    /// Starts a resource with `exclusive: false`; returns its node.
    pub(super) fn start_non_exclusive(&mut self, name: &str) -> NodeName {
        self.create_resource(name);
        self.edit::<ResourceSpec>(name, |resource| resource.spec.exclusive = false);
        self.run_until(20_000, "started", |cluster| cluster.is_in_state(name, ServiceState::Started));
        self.status(name).node.unwrap()
    }

    pub(super) fn create_resource(&mut self, name: &str) {
        let driver = DriverSpec { simulated: Some(SimulatedDriver::default()), ..DriverSpec::default() };
        self.apply(Resource::new(name, ResourceSpec { driver, ..ResourceSpec::default() }));
    }

    pub(super) fn set_requested_state(&mut self, name: &str, state: RequestedState) {
        self.edit::<ResourceSpec>(name, |resource| resource.spec.state = state);
    }

    pub(super) fn delete(&mut self, name: &str) {
        self.edit::<ResourceSpec>(name, |resource| {
            resource.metadata.deletion_timestamp = Some(ha_api_types::time::Timestamp("now".to_owned()));
        });
    }

    pub(super) fn create_operation(&mut self, name: &str, spec: OperationSpec) {
        self.apply(Operation::new(name, spec));
    }

    /// Requests an operation on a node with the epoch and boot that the operator sees. Its name is the action in lower
    /// case.
    pub(super) fn operate_node(&mut self, action: OperationAction, node: &str) {
        let fence = self.fence(node);
        let spec = OperationSpec {
            action,
            node: Some(node.into()),
            epoch: Some(fence.epoch),
            boot_id: Some(fence.boot_id),
            ..OperationSpec::default()
        };
        self.create_operation(&format!("{action:?}").to_lowercase(), spec);
    }

    pub(super) fn operation(&self, name: &str) -> OperationStatus {
        self.read(&self.keys.status(Kind::Operation, name)).unwrap_or_default()
    }

    pub(super) fn status(&self, name: &str) -> ResourceStatus {
        self.read(&self.keys.status(Kind::Resource, name)).unwrap_or_default()
    }

    pub(super) fn node(&self, name: &str) -> ha_api_types::node::NodeStatus {
        self.read(&self.keys.status(Kind::Node, name)).unwrap_or_default()
    }

    pub(super) fn fence(&self, name: &str) -> Fence {
        self.read(&self.keys.fence(&name.into())).unwrap_or_default()
    }

    pub(super) fn assignment(&self, name: &str) -> Option<Assignment> {
        self.read(&self.keys.assignment(&name.into()))
    }

    pub(super) fn agent(&mut self, name: &str) -> &mut Agent {
        self.agents.get_mut(name).unwrap()
    }

    /// Returns the nodes where a service really runs.
    pub(super) fn running_nodes(&self, name: &str) -> Vec<NodeName> {
        self.agents
            .iter()
            .filter(|(_, agent)| agent.running.contains(name))
            .map(|(node, _)| node.clone())
            .collect()
    }

    pub(super) fn is_in_state(&self, name: &str, state: ServiceState) -> bool {
        self.status(name).state == state
    }

    pub(super) fn node_is(&self, name: &str, state: NodeState) -> bool {
        self.node(name).state == state
    }

    /// Advances the time until all nodes are online and all services run.
    pub(super) fn wait_until_nodes_online(&mut self) {
        let nodes: Vec<NodeName> = self.agents.keys().cloned().collect();
        self.run_until(20_000, "all nodes online", |cluster| {
            nodes.iter().all(|node| cluster.node_is(node, NodeState::Online))
        });
    }

    pub(super) fn start(&mut self, name: &str) {
        self.create_resource(name);
        self.run_until(20_000, "started", |cluster| {
            cluster.is_in_state(name, ServiceState::Started) && cluster.status(name).running
        });
    }

    /// Returns the complete state, for messages of failed tests.
    pub(super) fn show(&self) -> String {
        let mut lines = vec![format!("at {:?}", self.now.monotonic_raw)];
        for entry in self.state.list(self.keys.root()).entries {
            let key = entry.key.strip_prefix(self.keys.root()).unwrap_or(&entry.key);
            let value: String = String::from_utf8_lossy(&entry.value).chars().take(400).collect();
            lines.push(format!("{key} @{} {value}", entry.mod_revision));
        }
        for event in self.events.iter().rev().take(20) {
            lines.push(format!("event {} {} {}: {}", event.kind, event.name, event.reason, event.message));
        }
        for waiting in self.controllers.iter().flat_map(|controller| controller.core.wait_conditions()) {
            lines.push(format!("waits {}", waiting.sentence()));
        }
        lines.join("\n")
    }
}
