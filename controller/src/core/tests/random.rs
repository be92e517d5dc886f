//! Properties that must always hold: random faults over real cores, and random inputs into one core.

use super::test_cluster::TestCluster;
use crate::core::combined_controller::CombinedController;
use crate::core::{CommitId, Config, Effect, FencerOutcome, Input, RunId};
use ha_api_types::id::{Epoch, Revision};
use ha_api_types::kind::Kind;
use ha_api_types::node::NodeSpec;
use ha_api_types::operation::{OperationAction, OperationSpec};
use ha_api_types::record::{FailureClass, Fence};
use ha_api_types::resource::{RequestedState, Resource, ServiceState};
use ha_api_types::time::{MonotonicTime, Now};
use ha_store::{Change, Entry, Outcome, StoreError};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Fault {
    Die(usize),
    Boot(usize),
    Cut(usize),
    Join(usize),
    Want(usize, RequestedState),
    Move(usize, usize, bool),
    Clear(usize),
    FailStart(usize, usize, bool),
    FailMigrate(usize, bool),
    FailStop(usize, usize, bool),
    Mute(usize, bool),
    Delete(usize),
    Maintain(usize, bool),
    Restart(usize),
    LoseJournal(usize),
    Lose(bool),
    StopController(usize),
    StartController(usize),
    Wait(u64),
}

const NODES: [&str; 3] = ["node1", "node2", "node3"];
const SERVICES: [&str; 3] = ["a", "b", "c"];

fn fault() -> impl Strategy<Value = Fault> {
    let node = 0..NODES.len();
    let service = 0..SERVICES.len();
    let state = prop_oneof![
        4 => Just(RequestedState::Started),
        1 => Just(RequestedState::Stopped),
        1 => Just(RequestedState::Disabled),
        1 => Just(RequestedState::Ignored),
    ];
    prop_oneof![
        1 => node.clone().prop_map(Fault::Die),
        2 => node.clone().prop_map(Fault::Boot),
        1 => node.clone().prop_map(Fault::Cut),
        2 => node.clone().prop_map(Fault::Join),
        2 => (service.clone(), state).prop_map(|(service, state)| Fault::Want(service, state)),
        3 => (service.clone(), node.clone(), any::<bool>()).prop_map(|(s, n, live)| Fault::Move(s, n, live)),
        1 => service.clone().prop_map(Fault::Clear),
        1 => (node.clone(), service.clone(), any::<bool>())
            .prop_map(|(n, s, fails)| Fault::FailStart(n, s, fails)),
        1 => (node.clone(), service.clone(), any::<bool>())
            .prop_map(|(n, s, fails)| Fault::FailStop(n, s, fails)),
        1 => (node.clone(), any::<bool>()).prop_map(|(n, mute)| Fault::Mute(n, mute)),
        1 => service.clone().prop_map(Fault::Delete),
        1 => (node.clone(), any::<bool>()).prop_map(|(n, on)| Fault::Maintain(n, on)),
        1 => service.prop_map(Fault::Restart),
        1 => node.clone().prop_map(Fault::LoseJournal),
        1 => (node, any::<bool>()).prop_map(|(n, fails)| Fault::FailMigrate(n, fails)),
        2 => any::<bool>().prop_map(Fault::Lose),
        1 => (0..2_usize).prop_map(Fault::StopController),
        2 => (0..2_usize).prop_map(Fault::StartController),
        8 => (1..80_u64).prop_map(|steps| Fault::Wait(steps * 100)),
    ]
}

fn inflict(cluster: &mut TestCluster, fault: &Fault, number: usize) {
    match fault {
        Fault::Die(node) => cluster.agent(NODES[*node]).power_off(),
        Fault::Boot(node) => {
            if !cluster.agents[NODES[*node]].is_powered_on {
                cluster.agent(NODES[*node]).boot_again();
            }
        }
        Fault::Cut(node) => cluster.agent(NODES[*node]).isolated = true,
        Fault::Join(node) => cluster.agent(NODES[*node]).isolated = false,
        Fault::Want(service, state) => {
            if exists(cluster, SERVICES[*service]) {
                cluster.set_requested_state(SERVICES[*service], *state);
            } else {
                cluster.create_resource(SERVICES[*service]);
            }
        }
        Fault::FailStop(node, service, fails) => {
            let faults = &mut cluster.agent(NODES[*node]).faults.fails_stop;
            if *fails {
                faults.insert((SERVICES[*service]).into());
            } else {
                faults.remove(SERVICES[*service]);
            }
        }
        Fault::Mute(node, mute) => cluster.agent(NODES[*node]).faults.ignores_probes = *mute,
        Fault::Delete(service) => {
            if exists(cluster, SERVICES[*service]) {
                cluster.delete(SERVICES[*service]);
            }
        }
        Fault::Maintain(node, on) => {
            cluster.edit::<NodeSpec>(NODES[*node], |node| node.spec.maintenance = *on);
        }
        Fault::Restart(service) => {
            let spec = OperationSpec {
                action: OperationAction::Restart,
                resource: Some(SERVICES[*service].to_owned()),
                ..OperationSpec::default()
            };
            cluster.create_operation(&format!("restart-{number}"), spec);
        }
        Fault::LoseJournal(node) => {
            if cluster.agents[NODES[*node]].is_powered_on && !cluster.agents[NODES[*node]].isolated {
                cluster.agent(NODES[*node]).lose_journal();
            }
        }
        Fault::Move(service, node, live) => {
            let action = if *live { OperationAction::Migrate } else { OperationAction::Relocate };
            let spec = OperationSpec {
                action,
                resource: Some(SERVICES[*service].to_owned()),
                node: Some(NODES[*node].into()),
                ..OperationSpec::default()
            };
            cluster.create_operation(&format!("move-{number}"), spec);
        }
        Fault::Clear(service) => {
            let spec = OperationSpec {
                action: OperationAction::ClearError,
                resource: Some(SERVICES[*service].to_owned()),
                ..OperationSpec::default()
            };
            cluster.create_operation(&format!("clear-{number}"), spec);
        }
        Fault::FailStart(node, service, fails) => {
            let faults = &mut cluster.agent(NODES[*node]).faults.fails_start;
            if *fails {
                faults.insert((SERVICES[*service]).into(), FailureClass::RetryHere);
            } else {
                faults.remove(SERVICES[*service]);
            }
        }
        Fault::FailMigrate(node, fails) => cluster.agent(NODES[*node]).faults.fails_migrate = *fails,
        Fault::Lose(applied) => cluster.lost_commits.push(*applied),
        Fault::StopController(index) => cluster.controllers[*index].is_running = false,
        Fault::StartController(index) => cluster.controllers[*index].is_running = true,
        Fault::Wait(ms) => cluster.run(*ms),
    }
}

fn exists(cluster: &TestCluster, name: &str) -> bool {
    let key = cluster.keys.spec(Kind::Resource, name);
    cluster.read::<Resource>(&key).is_some_and(|resource| resource.metadata.deletion_timestamp.is_none())
}

/// Returns the number of cases: `HACTL_RANDOM_CASES`, 40 by default.
fn cases() -> u32 {
    std::env::var("HACTL_RANDOM_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(40)
}

/// Checks that epochs never decrease, over the whole history of the store.
fn epochs_rise(cluster: &TestCluster) {
    let mut epochs: BTreeMap<String, Epoch> = BTreeMap::new();
    for (_, changes) in cluster.state.changes_since(cluster.keys.root(), Revision(1)).unwrap() {
        for change in changes {
            if let Change::Put(entry) = change
                && entry.key.contains("/fence/")
            {
                let fence: Fence = serde_json::from_slice(&entry.value).unwrap();
                let highest_epoch = epochs.entry(entry.key).or_default();
                assert!(fence.epoch >= *highest_epoch, "an epoch went back");
                *highest_epoch = fence.epoch;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, max_shrink_iters: 200, ..ProptestConfig::default() })]

    /// A service never runs twice (checked at every step), epochs rise, and every leader's write has the leader's
    /// guard. After the faults end, every requested service runs exactly once.
    #[test]
    fn random_failures_end_with_exactly_one_copy(faults in proptest::collection::vec(fault(), 1..40)) {
        let mut cluster = TestCluster::new(2, &NODES);
        cluster.wait_until_nodes_online();
        for name in SERVICES {
            cluster.create_resource(name);
        }
        for (number, fault) in faults.iter().enumerate() {
            inflict(&mut cluster, fault, number);
            cluster.run(100);
        }
        for controller in &mut cluster.controllers {
            controller.is_running = true;
        }
        cluster.lost_commits.clear();
        for node in NODES {
            let agent = cluster.agent(node);
            agent.faults = super::agent::Faults::default();
            if agent.is_powered_on {
                agent.isolated = false;
            } else {
                agent.boot_again();
            }
        }
        for node in NODES {
            cluster.edit::<NodeSpec>(node, |node| node.spec.maintenance = false);
        }
        cluster.run(30_000);
        for (number, name) in SERVICES.iter().enumerate() {
            if !exists(&cluster, name) {
                cluster.create_resource(name);
            }
            if cluster.is_in_state(name, ServiceState::Error) {
                inflict(&mut cluster, &Fault::Clear(number), 1000 + number);
            }
            cluster.set_requested_state(name, RequestedState::Started);
        }
        cluster.run_until(60_000, "everything runs", |cluster| {
            SERVICES.iter().all(|name| cluster.is_in_state(name, ServiceState::Started) && cluster.running_nodes(name).len() == 1)
        });
        epochs_rise(&cluster);
        for controller in &cluster.controllers {
            for (term, transaction, _) in &controller.commits {
                let id = &controller.core.config().id;
                let is_own_key = [cluster.keys.candidate(id), cluster.keys.refresh(id), cluster.keys.leader()]
                    .iter()
                    .any(|key| transaction.writes_key(key));
                let signed = transaction.guards().get(&cluster.keys.leader())
                    == term.map(|term| ha_store::Guard::Created(term.revision())).as_ref();
                prop_assert!(is_own_key || signed, "{transaction:?}");
            }
        }
    }
}

fn entry() -> impl Strategy<Value = Entry> {
    let keys = ha_api_types::keys::Keys::new("lab");
    let kinds = ha_api_types::kind::Kind::ALL;
    let node = (0..3_usize).prop_map(|node| NODES[node]);
    let service = (0..3_usize).prop_map(|service| SERVICES[service]);
    let key =
        (0..13_u8, node, service, 0..kinds.len()).prop_map(move |(which, node, service, kind)| match which {
            0 => keys.fence(&node.into()),
            1 => keys.alive(&node.into()),
            2 => keys.node_report(&node.into()),
            3 => keys.service_report(&node.into(), &service.into()),
            4 => keys.assignment(&service.into()),
            5 => keys.tombstone(&service.into()),
            6 => keys.leader(),
            7 => keys.candidate(&"c0".into()),
            8 | 9 => keys.spec(kinds[kind], if kind % 2 == 0 { service } else { node }),
            10 => keys.spec(ha_api_types::kind::Kind::Cluster, "default"),
            11 => keys.refresh(&"c0".into()),
            _ => keys.status(kinds[kind], service),
        });
    let value = prop_oneof![
        Just("{}".to_owned()),
        Just("garbage".to_owned()),
        Just(r#"{"epoch":3,"state":"Open","bootId":"b","machineId":"m"}"#.to_owned()),
        Just(r#"{"epoch":3,"state":"Fencing","device":{"name":"d","durationMs":5,"term":3}}"#.to_owned()),
        Just(r#"{"epoch":9,"mode":{"kind":"Registering"},"bootId":"b","machineId":"m"}"#.to_owned()),
        Just(r#"{"epoch":3,"mode":{"kind":"Active"},"armed":true}"#.to_owned()),
        Just(r#"{"uid":"u","epoch":3,"phase":"ProbedRunning","exclusive":true}"#.to_owned()),
        Just(r#"{"apiVersion":"hactl.io/v1","kind":"X","metadata":{"name":"a","uid":"u","generation":1},"spec":{}}"#.to_owned()),
        Just(r#"{"apiVersion":"hactl.io/v1","kind":"X","metadata":{"name":"a","deletionTimestamp":"now"},"spec":{"driver":{"simulated":{}},"resource":"a","action":"ConfirmFenced","node":"node1"}}"#.to_owned()),
        Just(r#"{"node":"node1","epoch":3,"actionUid":"1-1","action":{"kind":"Migrate","target":"node2","targetEpoch":3,"targetBootId":"b"}}"#.to_owned()),
        Just(r#"{"state":"Migrate","node":"node1","uid":"u"}"#.to_owned()),
        Just(r#"{"id":"c0","instance":"c0-1"}"#.to_owned()),
    ];
    (key, value, 1..200_i64, 0..3_i64).prop_map(|(key, value, revision, lease)| Entry {
        key,
        value: value.into_bytes().into(),
        create_revision: Revision(revision / 2 + 1),
        mod_revision: Revision(revision),
        lease: ha_store::LeaseId(lease),
    })
}

fn revision() -> impl Strategy<Value = Revision> {
    (1..300_i64).prop_map(Revision)
}

fn input() -> impl Strategy<Value = Input> {
    let outcome = prop_oneof![
        revision().prop_map(Outcome::Applied),
        revision().prop_map(Outcome::Conflict),
        Just(Outcome::LeaseNotFound),
        Just(Outcome::Refused("no".to_owned())),
        Just(Outcome::Unknown("?".to_owned())),
    ];
    let change = prop_oneof![
        3 => entry().prop_map(Change::Put),
        1 => entry().prop_map(|entry| Change::Delete { key: entry.key, revision: entry.mod_revision }),
    ];
    prop_oneof![
        3 => (proptest::collection::vec(entry(), 0..12), revision(), 0..9_u64)
            .prop_map(|(entries, revision, answers)| Input::Synced { entries, revision, answers: crate::core::FullReadId(answers) }),
        4 => (proptest::collection::vec(change, 0..6), revision())
            .prop_map(|(changes, revision)| Input::Changed { changes, revision }),
        1 => revision().prop_map(Input::Progress),
        4 => (1..30_u64, outcome).prop_map(|(id, outcome)| Input::Committed { id: CommitId(id), outcome }),
        2 => prop_oneof![Just(Ok(1_i64)), Just(Err(StoreError::LeaseNotFound))]
            .prop_map(|result| Input::LeaseGranted { result: result.map(ha_store::LeaseId) }),
        1 => prop_oneof![Just(Ok(5_i64)), Just(Err(StoreError::LeaseNotFound))]
            .prop_map(|result| Input::LeaseKept { lease: ha_store::LeaseId(1), result }),
        1 => (1..4_u64).prop_map(|id| Input::FencerDone { id: RunId(id), outcome: FencerOutcome::Confirmed }),
        2 => Just(Input::Tick),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// No sequence of inputs makes the core panic, emit effects endlessly, or write without the leader's guard or a
    /// guard of the written key.
    #[test]
    fn random_inputs_never_panic_the_core(inputs in proptest::collection::vec((input(), 0..5_000_u64), 1..60)) {
        let mut core = CombinedController::new(Config {
            cluster: "lab".to_owned(), id: "c0".into(), instance: "c0-1".into(), ..Config::default()
        });
        let keys = ha_api_types::keys::Keys::new("lab");
        let mut now = Now { monotonic_raw: MonotonicTime(1_000), boottime: MonotonicTime(1_000), wall_unix_ms: 0 };
        for (input, pause) in inputs {
            now.monotonic_raw = now.monotonic_raw + pause;
            now.wall_unix_ms += i128::from(pause);
            core.handle(&now, input);
            let mut effects = 0;
            while let Some(effect) = core.poll_effect() {
                effects += 1;
                prop_assert!(effects < 1_000);
                if let Effect::Commit { transaction, .. } = effect {
                    prop_assert!(transaction.fits());
                    let own_keys = [keys.candidate(&"c0".into()), keys.refresh(&"c0".into()), keys.leader()]
                        .iter()
                        .any(|key| transaction.writes_key(key));
                    prop_assert!(own_keys || transaction.guards().contains_key(&keys.leader()));
                }
            }
            let _ = core.deadline();
        }
    }
}
