//! Tests that each invariant can fail: a test tampers with a healthy cluster and expects the violation.

use super::super::World;
use super::super::event::{Event, Sender};
use super::super::link::{Purpose, Request};
use super::super::machine::{Activity, ServiceCopy};
use super::super::process::Client;
use crate::scenario::Scenario;
use crate::scenario::action::{PetBehavior, ProcessVerb};
use ha_api_types::id::{Epoch, NodeName, Term};
use ha_api_types::kind::Kind;
use ha_api_types::record::{Action, Assignment, Fence, FenceState, Phase, Proof, ServiceReport};
use ha_api_types::resource::{ResourceStatus, ServiceState};
use ha_store::{Guard, Transaction};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::Path;

/// Returns a world with two services, kept apart by a strict rule and bound to the first two of three nodes.
fn healthy_world() -> World {
    let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "hactl.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let service = |node: &str| json!({"driver": {"simulated": {"type": "vm"}}, "group": node, "requests": {"memory": "3Gi"}});
    let nodes: Vec<Value> =
        (1..=3).map(|n| json!({"name": format!("node{n}"), "capacity": {"memory": "4Gi"}})).collect();
    let scenario = json!({
        "duration": "1h",
        "nodes": nodes,
        "objects": [
            object("Group", "first", json!({"nodes": {"node1": 1}})),
            object("Group", "second", json!({"nodes": {"node2": 1}})),
            object("Resource", "a", service("first")),
            object("Resource", "b", service("second")),
            object("AffinityRule", "apart", json!({"resourceAffinity": {"resources": ["a", "b"], "affinity": "Negative", "strict": true}})),
        ],
    });
    let scenario = Scenario::parse("a test", &scenario.to_string(), Path::new(".")).expect("a scenario");
    let mut world = World::new(scenario).expect("a world");
    advance_until(&mut world, 60_000);
    assert_eq!(world.running_nodes_by_service().get("a"), Some(&vec!["node1".into()]));
    assert_eq!(world.running_nodes_by_service().get("b"), Some(&vec!["node2".into()]));
    world
}

fn advance_until(world: &mut World, end_ms: u64) {
    while world.advance(end_ms) {}
    assert_eq!(world.violations(), [], "all is well before");
}

fn stored_record<T: DeserializeOwned>(world: &World, key: &str) -> T {
    world.read_record(key).expect("the key exists and is readable")
}

/// Overwrites a key. The transaction guards no other key.
fn overwrite(world: &mut World, key: &str, value: &impl serde::Serialize) {
    let revision = world.store.get(key).entries[0].mod_revision;
    let revision_before = world.store.revision();
    let value = serde_json::to_vec(value).expect("serializable");
    let outcome = world.store.commit(&Transaction::new().put(key, Guard::Unchanged(revision), value));
    assert!(outcome.applied().is_some());
    world.handle_commit(revision_before + 1);
    world.check_bounds();
}

fn assert_violated(world: &World, invariant: &str) {
    let violated: Vec<&str> = world.violations().iter().map(|violation| violation.invariant).collect();
    assert!(violated.contains(&invariant), "{invariant:?} was not seen, but {violated:?}");
    assert!(!world.has_passed());
}

fn leader_term(world: &World) -> (NodeName, Term) {
    let leader = world.leader().expect("a leader");
    (leader, Term::created_at(world.store.get(&world.keys.leader()).entries[0].create_revision))
}

#[test]
fn second_copy_is_a_violation() {
    let mut world = healthy_world();
    let definition = world.machines["node1"].services["a"].definition.clone();
    let copy = ServiceCopy { definition, activity: Activity::Runs };
    world.machines.get_mut("node3").expect("node3").services.insert("a".into(), copy);
    world.check_at_most_one_copy();
    assert_violated(&world, "never two");
}

#[test]
fn running_after_release_is_a_violation() {
    let mut world = healthy_world();
    let key = world.keys.fence(&"node1".into());
    let fence: Fence = stored_record(&world, &key);
    let proof = Some(Proof::Silence { waited_ms: 13_200 });
    overwrite(&mut world, &key, &Fence { epoch: fence.epoch + 1, state: FenceState::Fenced, proof, ..fence });
    assert_violated(&world, "no service runs after the release");
}

#[test]
fn running_after_deadline_is_a_violation() {
    let mut world = healthy_world();
    world.agent_process(&"node1".into(), ProcessVerb::Hang);
    let end_ms = world.now + 60_000;
    // The device never fires, and the daemon, which would reset the machine itself, does not run.
    world.kill_watchdog_daemon(&"node1".into());
    while world.violations().is_empty() && world.advance(end_ms) {
        world.machines.get_mut("node1").expect("node1").watchdog.fires_at = None;
    }
    assert_violated(&world, "no service runs after the deadline");
    // Th + Tw' + δw of the default profile, plus the rate error: 6 + 6.1 + 1 s.
    let proven_at = world.elapsed_ms(world.machines["node1"].bound.heartbeat_sent_at);
    let after_ms = world.violations()[0].at - proven_at;
    assert!((13_106..13_700).contains(&after_ms), "{after_ms}");
}

#[test]
fn unguarded_start_is_a_violation() {
    let mut world = healthy_world();
    world.check_guarded_start(&"node1".into(), &"a".into());
    assert_eq!(world.violations(), [], "the watchdog has a deadline");
    world.check_guarded_start(&"node3".into(), &"a".into());
    assert_violated(&world, "no service starts unguarded");
}

#[test]
fn write_of_deposed_leader_is_a_violation() {
    let mut world = healthy_world();
    let (leader, term) = leader_term(&world);
    let key = world.keys.tombstone(&"ghost".into());
    let send_write = |world: &mut World, term: Option<Term>, value: &str| {
        let guard = world
            .store
            .get(&key)
            .entries
            .first()
            .map_or(Guard::Absent, |entry| Guard::Unchanged(entry.mod_revision));
        let transaction = Transaction::new().put(key.clone(), guard, value.as_bytes().to_vec());
        let sender =
            Sender { client: Client::Controller(leader.clone()), generation: 0, sent: world.now, term };
        let event = Event::Arrive {
            sender,
            token: 0,
            purpose: Purpose::ControllerCommit(ha_controller::core::CommitId(0)),
            request: Request::Commit(transaction),
        };
        world.queue.push(world.now, event);
        let now = world.now;
        while world.advance(now) {}
    };
    send_write(&mut world, Some(term), "{}");
    assert_eq!(world.violations(), [], "the leader itself may write");
    send_write(&mut world, Some(term - 1), "{ }");
    assert_violated(&world, "no write of a deposed leader");
}

#[test]
fn overwritten_acknowledged_write_is_a_violation() {
    let mut world = healthy_world();
    let key = world.keys.spec(Kind::Resource, "a");
    let mut object: Value = stored_record(&world, &key);
    object["metadata"]["finalizers"] = json!([]);
    overwrite(&mut world, &key, &object);
    assert_eq!(world.violations(), [], "the spec is unchanged");
    object["spec"]["maxRestart"] = json!(7);
    overwrite(&mut world, &key, &object);
    assert_violated(&world, "no acknowledged write is lost");
}

#[test]
fn vanished_object_is_a_violation() {
    let mut world = healthy_world();
    let key = world.keys.spec(Kind::Resource, "b");
    let revision = world.store.get(&key).entries[0].mod_revision;
    let revision_before = world.store.revision();
    world.store.commit(&Transaction::new().delete(key, Guard::Unchanged(revision)));
    world.handle_commit(revision_before + 1);
    assert_violated(&world, "no acknowledged write is lost");
}

#[test]
fn decreasing_epoch_is_a_violation() {
    let mut world = healthy_world();
    let key = world.keys.fence(&"node1".into());
    let fence: Fence = stored_record(&world, &key);
    overwrite(&mut world, &key, &Fence { epoch: fence.epoch - 1, ..fence });
    assert_violated(&world, "epochs never go back");
}

#[test]
fn move_breaking_strict_rule_is_a_violation() {
    let mut world = healthy_world();
    let key = world.keys.status(Kind::Resource, "a");
    let status: ResourceStatus = stored_record(&world, &key);
    let status_on =
        |state: ServiceState, node: &str| ResourceStatus { state, node: Some(node.into()), ..status.clone() };
    overwrite(&mut world, &key, &status_on(ServiceState::Migrate, "node1"));
    overwrite(&mut world, &key, &status_on(ServiceState::Started, "node2"));
    assert_violated(&world, "strict rules hold after a move");
}

#[test]
fn placement_without_capacity_is_a_violation() {
    let mut world = healthy_world();
    let key = world.keys.assignment(&"a".into());
    let assignment: Assignment = stored_record(&world, &key);
    overwrite(
        &mut world,
        &key,
        &Assignment { action: Action::Start, node: "node3".into(), ..assignment.clone() },
    );
    assert_eq!(world.violations(), [], "a free node has capacity");
    overwrite(&mut world, &key, &Assignment { action: Action::Start, node: "node2".into(), ..assignment });
    assert_violated(&world, "capacity is never exceeded");
}

#[test]
fn capacity_of_stopped_service_is_free() {
    let is_exceeded = |state: ServiceState, phase: Phase| {
        let mut world = healthy_world();
        let key = world.keys.status(Kind::Resource, "b");
        let status: ResourceStatus = stored_record(&world, &key);
        overwrite(&mut world, &key, &ResourceStatus { state, ..status });
        let key = world.keys.service_report(&"node2".into(), &"b".into());
        let report: ServiceReport = stored_record(&world, &key);
        overwrite(&mut world, &key, &ServiceReport { phase, ..report });
        let key = world.keys.assignment(&"a".into());
        let assignment: Assignment = stored_record(&world, &key);
        let start_on_node2 = Assignment { action: Action::Start, node: "node2".into(), ..assignment };
        overwrite(&mut world, &key, &start_on_node2);
        world.violations().iter().any(|violation| violation.invariant == "capacity is never exceeded")
    };
    assert!(is_exceeded(ServiceState::Stopping, Phase::Stopping));
    let in_any_order = "the leader's writes are committed in any order";
    assert!(!is_exceeded(ServiceState::Stopping, Phase::Stopped), "{in_any_order}");
    assert!(is_exceeded(ServiceState::Freeze, Phase::Running));
    assert!(!is_exceeded(ServiceState::Freeze, Phase::Stopped), "the service was stopped before the disarm");
}

#[test]
fn a_frozen_service_counts_until_its_node_returns() {
    for (service_epoch, state, is_exceeded) in [
        (Epoch(2), FenceState::Open, true),
        (Epoch(1), FenceState::Open, false),
        (Epoch(1), FenceState::Fenced, true),
    ] {
        let mut world = healthy_world();
        let key = world.keys.status(Kind::Resource, "b");
        let status: ResourceStatus = stored_record(&world, &key);
        let frozen = ResourceStatus { state: ServiceState::Freeze, epoch: Some(service_epoch), ..status };
        overwrite(&mut world, &key, &frozen);
        let key = world.keys.fence(&"node2".into());
        let fence: Fence = stored_record(&world, &key);
        overwrite(&mut world, &key, &Fence { epoch: Epoch(2), state, ..fence });
        let key = world.keys.assignment(&"a".into());
        let assignment: Assignment = stored_record(&world, &key);
        let start_on_node2 = Assignment { action: Action::Start, node: "node2".into(), ..assignment };
        overwrite(&mut world, &key, &start_on_node2);
        let exceeded =
            world.violations().iter().any(|violation| violation.invariant == "capacity is never exceeded");
        assert_eq!(exceeded, is_exceeded, "{service_epoch:?} {state:?}: {:?}", world.violations());
    }
}

#[test]
fn needless_reset_is_a_violation() {
    let mut world = healthy_world();
    world.reset(&"node3".into());
    assert_violated(&world, "no unnecessary resets");
}

#[test]
fn reset_by_a_device_that_rejects_renewals_is_no_violation() {
    let mut world = healthy_world();
    world.set_pets(&"node3".into(), PetBehavior::FailCounting);
    world.reset(&"node3".into());
    assert_eq!(world.violations(), []);
}

#[test]
fn unreadable_record_is_a_violation() {
    let mut world = healthy_world();
    let key = world.keys.fence(&"node1".into());
    overwrite(&mut world, &key, &"not a fence");
    assert_violated(&world, "readable records");
}

#[test]
fn missing_progress_is_a_violation() {
    let mut world = healthy_world();
    world.check_progress();
    assert_eq!(world.violations(), [], "all services are in their desired state");
    world.agent_process(&"node3".into(), ProcessVerb::Kill);
    let now = world.now;
    while world.advance(now + 60_000) {}
    world.check_progress();
    assert_violated(&world, "progress");
}

#[test]
fn a_run_does_not_end_without_a_leader() {
    let run = |requires_progress: bool| {
        let scenario = json!({
            "duration": "3m", "settle": "20s", "nodes": [{"name": "node1", "controller": true}],
            "steps": [{"at": "30s", "do": "controller node1 kill"}],
            "expect": {"progress": requires_progress},
        });
        let scenario = Scenario::parse("a test", &scenario.to_string(), Path::new(".")).expect("a scenario");
        let mut world = World::new(scenario).expect("a world");
        world.run();
        (world.simulated_ms(), world.violations().len())
    };
    let (without_progress_ms, _) = run(false);
    assert!(without_progress_ms < 120_000, "{without_progress_ms}");
    let (simulated_ms, violations) = run(true);
    assert!(
        simulated_ms >= 180_000 && violations > 0,
        "the controller may be replaced until the end: {simulated_ms}"
    );
}
