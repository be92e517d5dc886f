//! The connection of the model to the code: W, and the guards of the transactions that the cores commit in simulated clusters.

use crate::bounds::{Bounds, Device};
use crate::stored_values::{StoredValues, parse};
use crate::write::{Change, Key, Proof, Write};
use ha_api_types::id::{ActionUid, NodeName, ResourceName};
use ha_api_types::keys::{Key as StoredKey, Keys};
use ha_api_types::record::{
    Action as AssignmentAction, Assignment, Fence, FenceState, Mode, NodeReport, Phase, Proof as RecordProof,
    ServiceReport,
};
use ha_api_types::timing::{Timings, WatchdogBounds, fencing_delay_ms};
use ha_simulator::scenario::Scenario;
use ha_simulator::world::World;
use ha_simulator::world::recorded::Step;
use ha_store::{Guard, Transaction, Write as StoreWrite};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Length of one tick of the model, in milliseconds.
const TICK_MS: u64 = 1_000;

/// Without errors of clocks and devices, the W of the code must equal the right side of the model's inequality. The
/// model's W is the smallest integer above this value.
#[test]
fn model_w_equals_code_w() {
    for device in [Device::Sliding, Device::Fixed, Device::NotRetained] {
        for (valid, timeout) in [(2, 1), (3, 2), (6, 5), (20, 15), (4, 2)] {
            let bounds = Bounds { heartbeat_valid: valid, margin: 1, timeout, device };
            let ms = |ticks: i8| u64::try_from(ticks).expect("a time to come") * TICK_MS;
            let timings = Timings {
                heartbeat_valid_ms: ms(valid),
                watchdog_timeout_ms: ms(timeout),
                clock_rate_error_ppm: 0,
                watchdog_rate_error_ppm: 0,
                watchdog_lateness_ms: 0,
                io_drain_ms: 0,
                ..Timings::default()
            };
            let (sliding, descriptor_retained) = match device {
                Device::Sliding => (true, true),
                Device::Fixed => (false, true),
                Device::NotRetained => (false, false),
            };
            let watchdog = WatchdogBounds { timeout_ms: ms(timeout), sliding, descriptor_retained };
            assert_eq!(ms(bounds.fencing_delay() - 1), fencing_delay_ms(&timings, &watchdog), "{bounds:?}");
        }
    }
}

/// Scenarios in which the cores commit every write of the model.
const SCENARIOS: [&str; 11] = [
    "fencing/node-is-cut-off",
    "fencing/a-fence-device-is-proof",
    "fencing/an-idle-node-is-not-fenced",
    "fencing/a-returning-node-starts-empty",
    "fencing/a-node-that-reboots-quickly-is-not-declared-dead",
    "agent/agent-is-killed-and-restarted",
    "moves/migrate-live",
    "moves/an-agent-restarts-while-its-driver-migrates",
    "moves/relocate",
    "shutdown/failover-returns-late",
    "services/states-as-requested",
];

/// Each transaction of the code must guard every key that the model's corresponding write guards. Of the other keys of
/// the model, the transaction may guard only those of [`optional_guards`].
#[test]
fn model_guards_equal_code_guards() {
    let mut counts_by_write: BTreeMap<&str, usize> = BTreeMap::new();
    let mut differences = BTreeSet::new();
    for name in SCENARIOS {
        let path = Path::new("scenarios").join(format!("{name}.yaml"));
        let text = std::fs::read_to_string(&path).expect("a scenario");
        let directory = path.parent().expect("a directory");
        let scenario = Scenario::parse(name, &text, directory).expect("a valid scenario");
        let mut world = World::new(scenario).expect("a valid world");
        world.record_steps();
        world.run();
        let mut reader = Reader::new(world.keys().clone());
        for recorded in world.recorded_steps() {
            let Step::Committed(transaction) = &recorded.step else { continue };
            for intended in reader.read(transaction) {
                *counts_by_write.entry(write_name(intended.write)).or_default() += 1;
                if let Some(difference) = reader.difference(transaction, &intended) {
                    differences.insert(difference);
                }
            }
            reader.values.apply(transaction);
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
    let missing: Vec<&str> =
        WRITE_NAMES.into_iter().filter(|write_name| !counts_by_write.contains_key(write_name)).collect();
    assert!(missing.is_empty(), "no scenario commits {missing:?}: {counts_by_write:?}");
}

/// Every write of the model that the scenarios must contain.
const WRITE_NAMES: [&str; 16] = [
    "heartbeat",
    "heartbeat that arms",
    "heartbeat that creates",
    "permit",
    "stopped",
    "running",
    "hand-over",
    "register",
    "leave",
    "close on silence",
    "close for a registration or a leave",
    "release by silence",
    "release by a device",
    "release of an idle node",
    "open",
    "assign",
];

fn write_name(write: Write) -> &'static str {
    match write {
        Write::Heartbeat(_, Change::Keep | Change::Name) => "heartbeat",
        Write::Heartbeat(_, Change::Arm | Change::Disarm) => "heartbeat that arms",
        Write::Heartbeat(_, Change::Create) => "heartbeat that creates",
        Write::Permit(_) => "permit",
        Write::Stopped { .. } => "stopped",
        Write::Running { .. } => "running",
        Write::HandOver(_) => "hand-over",
        Write::Register(_) => "register",
        Write::CleanShutdown(_) => "leave",
        Write::Close { on_missed_heartbeats: true, .. } => "close on silence",
        Write::Close { on_missed_heartbeats: false, .. } => "close for a registration or a leave",
        Write::Release(_, Proof::Silence) => "release by silence",
        Write::Release(_, Proof::Device) => "release by a device",
        Write::Release(_, Proof::Registration | Proof::CleanShutdown) => {
            "release by a registration or a leave"
        }
        Write::Release(_, Proof::Inactive) => "release of an idle node",
        Write::Open(_) => "open",
        Write::Assign { .. } => "assign",
    }
}

/// Returns the keys that the code guards beyond the model. The model is weaker for these keys, so its results hold for
/// the code.
fn optional_guards(write: Write) -> u16 {
    let keys: &[Key] = match write {
        // Every close and release guards the node's report; a close also guards the observed heartbeat and the
        // observer's candidate.
        Write::Close { .. } => &[Key::Alive(0), Key::Candidate],
        // The assignment may be based on a report that the service does not run here.
        Write::Assign { .. } => &[Key::ServiceReport(0), Key::ServiceReport(1), Key::Fence(0), Key::Fence(1)],
        // A clean leave deletes `alive` at its revision; a registration creates `alive` under Absent; a heartbeat after
        // the deadline guards its revision.
        Write::CleanShutdown(_) | Write::Heartbeat(..) => &[Key::Alive(0)],
        // A start permit also guards the node's own report.
        Write::Release(..) | Write::Permit(_) | Write::HandOver(_) => &[Key::NodeReport(0)],
        Write::Stopped { .. } | Write::Running { .. } | Write::Register(_) | Write::Open(_) => &[],
    };
    keys.iter().fold(0, |set, key| set | key.bit())
}

/// A transaction as a write of the model: `node` is the model's node 0, and `peer` its node 1.
struct IntendedWrite {
    write: Write,
    node: NodeName,
    peer: Option<NodeName>,
    resource: Option<ResourceName>,
}

impl IntendedWrite {
    fn new(write: Write, node: &str) -> IntendedWrite {
        IntendedWrite { write, node: node.into(), peer: None, resource: None }
    }
}

/// Interprets transactions, based on the previous values of the keys.
struct Reader {
    keys: Keys,
    values: StoredValues,
    permitted_phases: BTreeSet<(ActionUid, String)>,
}

impl Reader {
    fn new(keys: Keys) -> Reader {
        Reader { keys, values: StoredValues::default(), permitted_phases: BTreeSet::new() }
    }

    /// Returns the writes of the model that a transaction makes; a leader may combine several.
    fn read(&mut self, transaction: &Transaction) -> Vec<IntendedWrite> {
        let mut intended_writes = Vec::new();
        for (key, write) in transaction.writes() {
            let StoreWrite::Put { value, .. } = write else { continue };
            let intended = match self.keys.clone().parse(key) {
                Some(StoredKey::Alive(node)) => Some(self.heartbeat(transaction, key, &node)),
                Some(StoredKey::NodeReport(node)) => node_report(value, &node),
                Some(StoredKey::ServiceReport(node, resource)) => {
                    self.service_report(value, &node, &resource)
                }
                Some(StoredKey::Fence(node)) => self.fence(key, value, &node),
                Some(StoredKey::Assignment(resource)) => self.assignment(key, value, &resource),
                Some(_) | None => None,
            };
            intended_writes.extend(intended);
        }
        intended_writes
    }

    fn heartbeat(&self, transaction: &Transaction, key: &str, node: &str) -> IntendedWrite {
        let report_key = self.keys.node_report(&node.into());
        let reports_armed = |report: Option<NodeReport>| report.is_some_and(|report| report.armed);
        let change = match transaction.writes().get(&report_key) {
            _ if transaction.guards().get(key) == Some(&Guard::Absent) => Change::Create,
            Some(StoreWrite::Put { value, .. })
                if reports_armed(parse(value)) != reports_armed(self.values.get(&report_key)) =>
            {
                Change::Arm
            }
            Some(_) | None => Change::Keep,
        };
        IntendedWrite::new(Write::Heartbeat(0, change), node)
    }

    fn service_report(&mut self, value: &[u8], node: &str, resource: &ResourceName) -> Option<IntendedWrite> {
        let report: ServiceReport = parse(value)?;
        let uid = report.action_uid.clone()?;
        let is_first = self.permitted_phases.insert((uid, format!("{:?}", report.phase)));
        let write = match report.phase {
            Phase::Starting | Phase::Receiving if is_first => Write::Permit(0),
            Phase::HandingOver if is_first => Write::HandOver(0),
            Phase::Stopped | Phase::Failed | Phase::HandedOver => Write::Stopped { node: 0, current: true },
            Phase::Running | Phase::MoveFailed => Write::Running { node: 0, current: true },
            Phase::Starting
            | Phase::Receiving
            | Phase::HandingOver
            | Phase::ProbedRunning
            | Phase::ProbedStopped
            | Phase::ProbedUnknown
            | Phase::Stopping
            | Phase::StopFailed => return None,
        };
        let assignment: Option<Assignment> = self.values.get(&self.keys.assignment(resource));
        let peer = assignment.and_then(|assignment| match assignment.action {
            AssignmentAction::Migrate { target, .. } if write == Write::HandOver(0) => Some(target),
            AssignmentAction::Migrate { .. }
            | AssignmentAction::Start
            | AssignmentAction::Restart
            | AssignmentAction::Stop { .. }
            | AssignmentAction::DoNothing => None,
        });
        Some(IntendedWrite { peer, resource: Some(resource.clone()), ..IntendedWrite::new(write, node) })
    }

    fn fence(&self, key: &str, value: &[u8], node: &str) -> Option<IntendedWrite> {
        let fence: Fence = parse(value)?;
        let before: Option<Fence> = self.values.get(key);
        let proof = match &fence.proof {
            Some(RecordProof::Silence { .. }) => Some(Proof::Silence),
            Some(RecordProof::Device { .. }) => Some(Proof::Device),
            Some(RecordProof::NewBoot { .. } | RecordProof::Reregistered) => Some(Proof::Registration),
            Some(RecordProof::CleanLeave { .. }) => Some(Proof::CleanShutdown),
            Some(RecordProof::NothingActive) => Some(Proof::Inactive),
            Some(RecordProof::Operator { .. }) | None => None,
        };
        // The recording does not contain the initial state of a run: all epochs are open.
        let before = before.map_or(FenceState::Open, |before| before.state);
        let write = match (before, fence.state) {
            (FenceState::Open, FenceState::Fencing) => Write::Close { node: 0, on_missed_heartbeats: true },
            // Close and release in one transaction: both writes of the model with their guards.
            (FenceState::Open, FenceState::Fenced | FenceState::Closed) => {
                Write::Close { node: 0, on_missed_heartbeats: false }
            }
            (FenceState::Fencing, FenceState::Fenced | FenceState::Closed) => Write::Release(0, proof?),
            (FenceState::Fenced | FenceState::Closed, FenceState::Open) => Write::Open(0),
            (_, _) => return None,
        };
        Some(IntendedWrite::new(write, node))
    }

    /// Interprets an assignment. Its basis follows from the service's previous node: FENCING R6.14, R6.16.
    fn assignment(&self, key: &str, value: &[u8], resource: &ResourceName) -> Option<IntendedWrite> {
        let assignment: Assignment = parse(value)?;
        let before: Option<Assignment> = self.values.get(key);
        let node = assignment.node.as_str();
        let source = before.as_ref().filter(|before| before.node != node);
        let mut intended =
            IntendedWrite { resource: Some(resource.clone()), ..IntendedWrite::new(Write::Open(0), node) };
        let mut fences = 1;
        let mut answers = 0;
        if let Some(source) = source {
            intended.peer = Some(source.node.clone());
            fences |= 2;
            let fence: Option<Fence> = self.values.get(&self.keys.fence(&source.node));
            let source_is_registered =
                fence.is_some_and(|fence| fence.state == FenceState::Open && fence.epoch == source.epoch);
            answers |= if source_is_registered { 2 } else { 0 };
        }
        intended.write = Write::Assign { work: crate::store::Work::Run(0), fences, answers };
        Some(intended)
    }

    /// Returns the difference between the guards of a transaction and those of the model; `None` if the guards match.
    fn difference(&self, transaction: &Transaction, intended: &IntendedWrite) -> Option<String> {
        let expected = intended.write.guards(None);
        let actual = self.guards(transaction, intended);
        let missing = expected & !actual;
        // A key at a given revision was not deleted and created again.
        let implied_guards = if (expected | optional_guards(intended.write)) & Key::Alive(0).bit() != 0 {
            Key::Created(0).bit()
        } else {
            0
        };
        let extra = actual & !expected & !optional_guards(intended.write) & !implied_guards;
        let listed = |set: u16| {
            let keys = [0, 1].into_iter().flat_map(|node| {
                [
                    Key::Fence(node),
                    Key::NodeReport(node),
                    Key::Created(node),
                    Key::Alive(node),
                    Key::ServiceReport(node),
                ]
            });
            let keys = keys.chain([Key::Leader, Key::Assignment, Key::Candidate]);
            keys.filter(|key| set & key.bit() != 0).collect::<Vec<Key>>()
        };
        (missing != 0 || extra != 0).then(|| {
            format!(
                "{}: the code does not guard {:?}, and guards {:?} besides",
                write_name(intended.write),
                listed(missing),
                listed(extra)
            )
        })
    }

    /// Returns the guards of a transaction as keys of the model, for the nodes and the resource of its meaning.
    fn guards(&self, transaction: &Transaction, intended: &IntendedWrite) -> u16 {
        let node_index = |node: &str| {
            if node == intended.node {
                Some(0)
            } else if intended.peer.as_deref() == Some(node) {
                Some(1)
            } else {
                None
            }
        };
        let mut guard_bits = 0;
        for (key, guard) in transaction.guards() {
            let keys: Vec<Key> = match self.keys.parse(key) {
                Some(StoredKey::Leader) => vec![Key::Leader],
                Some(StoredKey::Assignment(name))
                    if intended.resource.as_ref().is_none_or(|service| *service == name) =>
                {
                    vec![Key::Assignment]
                }
                Some(StoredKey::Fence(node)) => node_index(&node).map(Key::Fence).into_iter().collect(),
                Some(StoredKey::NodeReport(node)) => {
                    node_index(&node).map(Key::NodeReport).into_iter().collect()
                }
                // A key at a given revision was not deleted and created again.
                Some(StoredKey::Alive(node)) => match (guard, node_index(&node)) {
                    (Guard::Created(_), Some(node)) => vec![Key::Created(node)],
                    (Guard::Unchanged(_), Some(node)) => vec![Key::Created(node), Key::Alive(node)],
                    (Guard::Absent, Some(node)) => vec![Key::Alive(node)],
                    (_, None) => Vec::new(),
                },
                Some(StoredKey::ServiceReport(node, name)) if intended.resource.as_ref() == Some(&name) => {
                    node_index(&node).map(Key::ServiceReport).into_iter().collect()
                }
                Some(StoredKey::Candidate(_)) => vec![Key::Candidate],
                Some(_) | None => Vec::new(),
            };
            guard_bits = keys.iter().fold(guard_bits, |guard_bits, key| guard_bits | key.bit());
        }
        guard_bits
    }
}

/// Interprets a node report without a heartbeat: the node registers or leaves.
fn node_report(value: &[u8], node: &str) -> Option<IntendedWrite> {
    let report: NodeReport = parse(value)?;
    match report.mode {
        Mode::Registering => Some(IntendedWrite::new(Write::Register(0), node)),
        Mode::Left(_) => Some(IntendedWrite::new(Write::CleanShutdown(0), node)),
        Mode::Active | Mode::Maintenance | Mode::Shutdown(_) | Mode::Restart | Mode::Disarmed => None,
    }
}
