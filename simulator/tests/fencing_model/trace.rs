//! Translation of a simulated cluster's recording into events of the model.

use crate::store::{NODES, NodeId, Work};
use crate::stored_values::{StoredValues, parse};
use crate::write::{Change, Proof, Write};
use ha_api_types::id::{ActionUid, NodeName, ResourceName};
use ha_api_types::keys::{Key as StoredKey, Keys};
use ha_api_types::record::{
    Action as AssignmentAction, Assignment, Fence, FenceState, Leader, Mode, NodeReport, Phase,
    Proof as RecordProof, ServiceReport,
};
use ha_api_types::time::Millis;
use ha_simulator::scenario::Scenario;
use ha_simulator::world::World;
use ha_simulator::world::recorded::{Recorded, Step};
use ha_store::{Guard, Transaction, Write as StoreWrite};
use std::collections::BTreeSet;
use std::path::Path;

/// A visible step of the cluster. The replay inserts the model's other steps where they fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// etcd applied this write. The replay does not compare its guards.
    Write(Write),
    /// The watchdog device was opened.
    Arm(NodeId),
    /// The watchdog device was closed.
    Release(NodeId),
    /// The agent reported to the daemon that the node is empty.
    PetWithoutDeadline(NodeId),
    /// The device was petted.
    Pet(NodeId),
    /// The agent sent a deadline to the daemon.
    Deadline {
        /// Node of the daemon.
        node: NodeId,
        /// Time left to the deadline, in milliseconds.
        left_ms: Millis,
    },
    /// The service started, or was prepared to be received.
    Begin(NodeId),
    /// The service, or the preparation to receive it, ended completely.
    End(NodeId),
    /// The service arrived on the other node, and no longer runs on this one.
    CutOver(NodeId),
    /// The source of a migration sent a read of its target's report and fence.
    CheckTarget(NodeId),
    /// The driver began to migrate the service away from this node.
    BeginDriver(NodeId),
    /// The machine lost its power.
    PowerLost {
        /// The machine.
        node: NodeId,
        /// `true` if the machine's own watchdog caused the loss.
        by_watchdog: bool,
    },
    /// The first agent of a boot started.
    Boot(NodeId),
    /// An agent's process ended.
    AgentEnds(NodeId),
    /// An agent's process started.
    AgentStarts(NodeId),
    /// Another candidate became the leader.
    Leads,
    /// The process of a candidate that is not the leader started again.
    Restarts,
    /// The agent asked all candidates to hold its node.
    Ask(NodeId),
    /// A candidate granted a node's question.
    Grant {
        /// Node that asked.
        node: NodeId,
        /// `true` if the candidate is the leader.
        leads: bool,
    },
}

/// A visible step with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timed {
    /// Virtual time in milliseconds.
    pub(crate) at: Millis,
    pub(crate) event: Event,
}

/// The recording of one service on two nodes.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    /// Steps since the first assignment of the service.
    pub(crate) steps: Vec<Timed>,
    /// Timings of the cluster.
    pub(crate) timings: ha_api_types::timing::Timings,
    /// W of the nodes, in milliseconds.
    pub(crate) fencing_delay_ms: Millis,
    /// Number of controller candidates.
    pub(crate) candidates: usize,
}

/// Runs a scenario, and translates the recording of this service.
pub(crate) fn trace_of_scenario(name: &str, service: &str) -> Trace {
    let path = Path::new("scenarios").join(format!("{name}.yaml"));
    let text = std::fs::read_to_string(&path).expect("a scenario");
    let scenario =
        Scenario::parse(name, &text, path.parent().expect("a directory")).expect("a valid scenario");
    let candidates = scenario.nodes.iter().filter(|machine| machine.has_controller).count();
    let timings = ha_api_types::timing::Timings::from(&scenario.timing);
    let mut world = World::new(scenario).expect("a valid world");
    world.record_steps();
    let leader = world.leader().unwrap_or_default();
    world.run();
    let mut translator = Translator::new(world.keys().clone(), service, leader);
    translator.find_nodes(world.recorded_steps());
    for recorded in world.recorded_steps() {
        translator.translate(recorded);
    }
    Trace { steps: translator.events, timings, fencing_delay_ms: translator.fencing_delay_ms, candidates }
}

/// Interprets recorded steps, based on the previous values of the keys.
struct Translator {
    keys: Keys,
    service: ResourceName,
    nodes: Vec<NodeName>,
    leader: NodeName,
    values: StoredValues,
    phases: BTreeSet<(String, ActionUid, String)>,
    nodes_off: BTreeSet<String>,
    has_begun: bool,
    fencing_delay_ms: Millis,
    events: Vec<Timed>,
}

impl Translator {
    fn new(keys: Keys, service: &str, leader: NodeName) -> Translator {
        Translator {
            keys,
            service: service.into(),
            nodes: Vec::new(),
            leader,
            values: StoredValues::default(),
            phases: BTreeSet::new(),
            nodes_off: BTreeSet::new(),
            has_begun: false,
            fencing_delay_ms: 0,
            events: Vec::new(),
        }
    }

    /// Finds the nodes that the assignments of the service name, in the order of the recording.
    fn find_nodes(&mut self, recorded: &[Recorded]) {
        let key = self.keys.assignment(&self.service);
        for step_record in recorded {
            let Step::Committed(transaction) = &step_record.step else { continue };
            let Some(StoreWrite::Put { value, .. }) = transaction.writes().get(&key) else { continue };
            let assignment: Assignment = parse(value).expect("an assignment");
            let mut node_names = vec![assignment.node];
            if let AssignmentAction::Migrate { target, .. } = assignment.action {
                node_names.push(target);
            }
            for node in node_names {
                if !self.nodes.contains(&node) {
                    self.nodes.push(node);
                }
            }
        }
        assert!(self.nodes.len() <= NODES, "{} was on more nodes than the model has", self.service);
    }

    fn node(&self, name: &str) -> Option<NodeId> {
        self.nodes
            .iter()
            .position(|node_name| node_name == name)
            .and_then(|index| NodeId::try_from(index).ok())
    }

    fn translate(&mut self, recorded: &Recorded) {
        let events = match &recorded.step {
            Step::Committed(transaction) => {
                let events = self.committed(transaction);
                self.values.apply(transaction);
                events
            }
            Step::PowerLost { .. }
            | Step::AgentStarts
            | Step::AgentEnds
            | Step::ControllerStarts
            | Step::DaemonEnds
            | Step::DeviceOpens
            | Step::DeviceCloses
            | Step::Pets
            | Step::Deadline { .. }
            | Step::Stays
            | Step::ServiceStarts(_)
            | Step::ServiceReceives(_)
            | Step::ServiceEnds(_)
            | Step::ServiceArrives { .. }
            | Step::Reads(_)
            | Step::MigrationBegins(_)
            | Step::RequestsHold
            | Step::Grants { .. } => self.machine_step(&recorded.step, &recorded.node).into_iter().collect(),
        };
        if self.has_begun {
            self.events.extend(events.into_iter().map(|event| Timed { at: recorded.at, event }));
        } else {
            // The model begins with this assignment.
            self.has_begun = self.values.contains(&self.keys.assignment(&self.service));
        }
    }

    fn machine_step(&mut self, step: &Step, name: &str) -> Option<Event> {
        let is_own_service = |service: &ResourceName| *service == self.service;
        if let (Step::ControllerStarts, false) = (step, self.leader == name) {
            return Some(Event::Restarts);
        }
        if let Step::Grants { node } = step {
            return Some(Event::Grant { node: self.node(node)?, leads: self.leader == name });
        }
        let node = self.node(name)?;
        Some(match step {
            Step::PowerLost { by_watchdog } => {
                self.nodes_off.insert(name.to_owned());
                Event::PowerLost { node, by_watchdog: *by_watchdog }
            }
            Step::AgentStarts if self.nodes_off.remove(name) => Event::Boot(node),
            Step::AgentStarts => Event::AgentStarts(node),
            Step::AgentEnds => Event::AgentEnds(node),
            Step::DeviceOpens => Event::Arm(node),
            Step::DeviceCloses => Event::Release(node),
            Step::Pets => Event::Pet(node),
            Step::Deadline { left_ms } => Event::Deadline { node, left_ms: *left_ms },
            Step::Stays => Event::PetWithoutDeadline(node),
            Step::ServiceStarts(service) | Step::ServiceReceives(service) if is_own_service(service) => {
                Event::Begin(node)
            }
            Step::ServiceEnds(service) if is_own_service(service) => Event::End(node),
            Step::ServiceArrives { service, from } if is_own_service(service) => {
                Event::CutOver(self.node(from)?)
            }
            Step::RequestsHold => Event::Ask(node),
            Step::Reads(keys) if self.checks_a_target(name, keys) => Event::CheckTarget(node),
            Step::MigrationBegins(service) if is_own_service(service) => Event::BeginDriver(node),
            // The device's countdown continues, because the service manager keeps its descriptor.
            Step::DaemonEnds
            | Step::ControllerStarts
            | Step::Grants { .. }
            | Step::Committed(_)
            | Step::Reads(_)
            | Step::MigrationBegins(_)
            | Step::ServiceStarts(_)
            | Step::ServiceReceives(_)
            | Step::ServiceEnds(_)
            | Step::ServiceArrives { .. } => return None,
        })
    }

    /// Returns `true` if this node hands over, and the keys are the service's report and the fence of another node.
    fn checks_a_target(&self, reader: &str, keys: &[String]) -> bool {
        let report: Option<ServiceReport> =
            self.values.get(&self.keys.service_report(&reader.into(), &self.service));
        if report.is_none_or(|report| report.phase != Phase::HandingOver) {
            return false;
        }
        let is_read =
            |node: &NodeName| *keys == [self.keys.service_report(node, &self.service), self.keys.fence(node)];
        self.nodes.iter().any(|node| node != reader && is_read(node))
    }

    /// Returns the writes of the model that a transaction makes. Writes of fences come before the writes that depend on
    /// them.
    fn committed(&mut self, transaction: &Transaction) -> Vec<Event> {
        let mut fences = Vec::new();
        let mut other_events = Vec::new();
        for (key, write) in transaction.writes() {
            let StoreWrite::Put { value, .. } = write else { continue };
            match self.keys.clone().parse(key) {
                Some(StoredKey::Alive(name)) => {
                    if let Some(node) = self.node(&name) {
                        other_events.extend(self.heartbeat(transaction, key, &name, node));
                    }
                }
                Some(StoredKey::NodeReport(name)) => other_events.extend(self.node_report(value, &name)),
                Some(StoredKey::ServiceReport(name, service)) if service == self.service => {
                    other_events.extend(self.service_report(value, &name));
                }
                Some(StoredKey::Fence(name)) => {
                    if let Some(node) = self.node(&name) {
                        fences.extend(self.fence(key, value, node));
                    }
                }
                Some(StoredKey::Assignment(service)) if service == self.service => {
                    other_events.extend(self.assignment(key, value));
                }
                Some(StoredKey::Leader) => {
                    let id = parse::<Leader>(value).map(|leader| leader.id).unwrap_or_default();
                    if *id != *self.leader {
                        self.leader = id.as_str().into();
                        other_events.push(Event::Leads);
                    }
                }
                Some(_) | None => {}
            }
        }
        fences.into_iter().map(Event::Write).chain(other_events).collect()
    }

    fn heartbeat(&self, transaction: &Transaction, key: &str, name: &str, node: NodeId) -> Vec<Event> {
        let report_key = self.keys.node_report(&name.into());
        let before: Option<NodeReport> = self.values.get(&report_key);
        let after: Option<NodeReport> = match transaction.writes().get(&report_key) {
            Some(StoreWrite::Put { value, .. }) => parse(value),
            Some(StoreWrite::Delete) | None => before.clone(),
        };
        let was_armed = before.as_ref().is_some_and(|report| report.armed);
        let is_armed = after.as_ref().is_some_and(|report| report.armed);
        let generation =
            |report: &Option<NodeReport>| report.as_ref().map(|node_report| node_report.candidate_generation);
        let change = match (was_armed, is_armed) {
            _ if transaction.guards().get(key) == Some(&Guard::Absent) => Change::Create,
            (false, true) => Change::Arm,
            (true, false) => Change::Disarm,
            (false, false) | (true, true) => Change::Keep,
        };
        let mut events = vec![Event::Write(Write::Heartbeat(node, change))];
        if change != Change::Create && before.is_some() && generation(&before) != generation(&after) {
            events.push(Event::Write(Write::Heartbeat(node, Change::Name)));
        }
        events
    }

    /// Interprets a node report without a heartbeat: the node registers or leaves.
    fn node_report(&mut self, value: &[u8], name: &str) -> Option<Event> {
        let node = self.node(name)?;
        let report: NodeReport = parse(value)?;
        self.fencing_delay_ms = report.fencing_delay_ms();
        match report.mode {
            Mode::Registering => Some(Event::Write(Write::Register(node))),
            Mode::Left(_) => Some(Event::Write(Write::CleanShutdown(node))),
            Mode::Active | Mode::Maintenance | Mode::Shutdown(_) | Mode::Restart | Mode::Disarmed => None,
        }
    }

    fn service_report(&mut self, value: &[u8], name: &str) -> Option<Event> {
        let node = self.node(name)?;
        let report: ServiceReport = parse(value)?;
        let uid = report.action_uid.clone()?;
        let phase_key = |phase: Phase| (name.to_owned(), uid.clone(), format!("{phase:?}"));
        let is_migration = [Phase::Receiving, Phase::HandingOver]
            .into_iter()
            .any(|phase| self.phases.contains(&phase_key(phase)));
        let is_first = self.phases.insert(phase_key(report.phase));
        let write = match report.phase {
            // The model has no permit to resume. A service that has arrived runs immediately.
            Phase::Starting if is_migration => return None,
            Phase::Starting | Phase::Receiving if is_first => Write::Permit(node),
            Phase::HandingOver if is_first => Write::HandOver(node),
            Phase::Stopped | Phase::Failed | Phase::HandedOver => Write::Stopped { node, current: true },
            // In the model, a service that a node starts runs from the commit of its permit.
            Phase::Running | Phase::MoveFailed if is_migration && is_first => {
                Write::Running { node, current: true }
            }
            Phase::Running
            | Phase::MoveFailed
            | Phase::Starting
            | Phase::Receiving
            | Phase::HandingOver
            | Phase::ProbedRunning
            | Phase::ProbedStopped
            | Phase::ProbedUnknown
            | Phase::Stopping
            | Phase::StopFailed => return None,
        };
        Some(Event::Write(write))
    }

    fn fence(&self, key: &str, value: &[u8], node: NodeId) -> Vec<Write> {
        let fence: Fence = parse(value).expect("a fence");
        // The recording does not contain the initial state of a run: all epochs are open.
        let before = self.values.get::<Fence>(key).map_or(FenceState::Open, |before| before.state);
        let proof = match &fence.proof {
            Some(RecordProof::Silence { .. }) => Some(Proof::Silence),
            Some(RecordProof::Device { .. }) => Some(Proof::Device),
            Some(RecordProof::NewBoot { .. } | RecordProof::Reregistered) => Some(Proof::Registration),
            Some(RecordProof::CleanLeave { .. }) => Some(Proof::CleanShutdown),
            Some(RecordProof::NothingActive) => Some(Proof::Inactive),
            Some(RecordProof::Operator { .. }) | None => None,
        };
        let close = Write::Close { node, on_missed_heartbeats: true };
        let release = proof.map(|proof| Write::Release(node, proof));
        match (before, fence.state) {
            (FenceState::Open, FenceState::Fencing) => vec![close],
            // Close and release in one transaction.
            (FenceState::Open, FenceState::Fenced | FenceState::Closed) => {
                [Some(close), release].into_iter().flatten().collect()
            }
            (FenceState::Fencing, FenceState::Fenced | FenceState::Closed) => release.into_iter().collect(),
            (FenceState::Fenced | FenceState::Closed, FenceState::Open) => vec![Write::Open(node)],
            (_, _) => Vec::new(),
        }
    }

    fn assignment(&self, key: &str, value: &[u8]) -> Option<Event> {
        let assignment: Assignment = parse(value)?;
        let before: Option<Assignment> = self.values.get(key);
        if before.is_some_and(|before| before.action_uid == assignment.action_uid) {
            return None;
        }
        let node = self.node(&assignment.node)?;
        let work = match assignment.action {
            AssignmentAction::Start | AssignmentAction::Restart => Work::Run(node),
            AssignmentAction::Stop { .. } | AssignmentAction::DoNothing => Work::Halt(node),
            AssignmentAction::Migrate { .. } => Work::Move { from: node },
        };
        Some(Event::Write(Write::Assign { work, fences: 0, answers: 0 }))
    }
}
