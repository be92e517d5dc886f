//! A dumped cluster continues in the simulator: both reach the same end state.

use ha_api_types::id::ResourceName;
use ha_api_types::resource::ServiceState;
use ha_api_types::time::Timestamp;
use ha_simulator::dump::Dump;
use ha_simulator::scenario::Scenario;
use ha_simulator::world::World;
use std::path::Path;

const CLUSTER_SCENARIO: &str = "
nodes:
  - {name: node1, capacity: {memory: 8Gi}}
  - {name: node2, capacity: {memory: 8Gi}}
  - {name: node3, capacity: {memory: 8Gi}}
objects:
  - {apiVersion: hactl.io/v1, kind: Group, metadata: {name: first}, spec: {nodes: {node1: 2, node2: 1}}}
  - {apiVersion: hactl.io/v1, kind: Resource, metadata: {name: web}, spec: {driver: {simulated: {type: vm}}, group: first, requests: {memory: 2Gi}}}
  - {apiVersion: hactl.io/v1, kind: Resource, metadata: {name: db}, spec: {driver: {simulated: {type: vm}}, dependsOn: [web], requests: {memory: 7Gi}}}
  - {apiVersion: hactl.io/v1, kind: Resource, metadata: {name: idle}, spec: {driver: {simulated: {type: ct}}, state: Stopped}}
";

/// Runs the cluster with a failure of node1 after 30 seconds, until this number of seconds after the failure.
fn world_after_failure(seconds: u64) -> World {
    let text = format!(
        "duration: {}s\nsettle: 1h\n{CLUSTER_SCENARIO}steps:\n  - at: 30s\n    do: power node1 off\n",
        30 + seconds
    );
    let scenario = Scenario::parse("cluster", &text, Path::new(".")).expect("a scenario");
    let mut world = World::new(scenario).expect("a world");
    world.run();
    world
}

fn dump(world: &World) -> Dump {
    let text = serde_json::to_string(&world.dump()).expect("JSON");
    Dump::read(&text).expect("a dump")
}

fn continue_dump(dump: &Dump, steps: &str) -> World {
    let mut world = World::of_dump(dump, "steps", steps, Path::new(".")).expect("a world");
    world.run();
    assert_eq!(world.summary()["violations"], serde_json::json!([]), "{}", world.timeline().join("\n"));
    world
}

/// Returns the node and the running state of each service.
fn services_summary(world: &World) -> serde_json::Value {
    world.summary()["services"].clone()
}

#[test]
fn simulated_dump_ends_like_the_cluster() {
    let expected = services_summary(&world_after_failure(120));
    // A failure counts from the second missed heartbeat on.
    for seconds in (4..20).chain([30, 60]) {
        let world_continued = continue_dump(&dump(&world_after_failure(seconds)), "");
        let continued_services = services_summary(&world_continued);
        assert_eq!(
            continued_services,
            expected,
            "{seconds} s after the failure:\n{}",
            world_continued.timeline().join("\n")
        );
    }
}

/// Controllers on separate machines also keep their candidate keys. Only a controller whose key the node has read may
/// declare that node dead while the node can hold.
#[test]
fn controllers_that_run_elsewhere_are_simulated_on_the_nodes() {
    let mut state = world_after_failure(12).dump();
    for stored in &mut state.keys {
        for key_prefix in ["candidate/", "refresh/"] {
            let Some(node) = stored.key.strip_prefix(key_prefix).map(str::to_owned) else { continue };
            stored.key = format!("{key_prefix}controller-of-{node}");
            if key_prefix == "candidate/" {
                for field in ["id", "url", "machine"] {
                    stored.value[field] = serde_json::json!(format!("{field}-of-{node}"));
                }
            }
        }
    }
    let dump = Dump::read(&serde_json::to_string(&state).expect("JSON")).expect("a dump");
    let continued_world = continue_dump(&dump, "");
    assert_eq!(
        services_summary(&continued_world),
        services_summary(&world_after_failure(120)),
        "{}",
        continued_world.timeline().join("\n")
    );
}

#[test]
fn dump_yields_the_same_explanations() {
    for seconds in [0, 5, 12, 60] {
        let world = world_after_failure(seconds);
        let dump = dump(&world);
        for name in ["web", "db", "idle"] {
            let name = ResourceName::from(name);
            let (expected, actual) =
                (world.explain(&name).expect("live"), dump.explain(&name).expect("dumped"));
            assert_eq!(actual, expected, "{name}, {seconds} s after the failure");
        }
        assert!(dump.explain(&"nothing".into()).is_none());
    }
}

/// Objects that the script creates have times of the dumped cluster, as do the writes of agents and of the leader.
#[test]
fn replay_begins_at_dump_time() {
    let mut state = world_after_failure(60).dump();
    state.at = Timestamp("2030-06-01T12:00:00Z".to_owned());
    let dump = Dump::read(&serde_json::to_string(&state).expect("JSON")).expect("a dump");
    let replayed = continue_dump(&dump, "steps: [{at: 30s, do: restart web}]").dump();
    let operation = replayed.keys.iter().find(|stored| stored.key.starts_with("spec/operation/"));
    let created = &operation.expect("an operation").value["metadata"]["creationTimestamp"];
    assert_eq!(created, "2030-06-01T12:00:30Z");
}

#[test]
fn dump_of_idle_cluster_supports_added_steps() {
    let scenario = format!("duration: 30s\nsettle: 1h\n{CLUSTER_SCENARIO}");
    let mut idle = World::new(Scenario::parse("cluster", &scenario, Path::new(".")).unwrap()).unwrap();
    idle.run();
    let dump = dump(&idle);
    let continued_calm = continue_dump(&dump, "");
    assert_eq!(services_summary(&continued_calm), services_summary(&idle));
    assert_eq!(continued_calm.explain(&"web".into()).unwrap().state, ServiceState::Started);

    let steps = "
steps:
  - at: 10s
    do: power node1 off
expect:
  services: {web: {state: Started, node: node3, running: true}}
  fenced: [node1]
";
    let failed = continue_dump(&dump, steps);
    assert!(failed.has_passed(), "{}", failed.timeline().join("\n"));
}

#[test]
fn dump_steps_cannot_redefine_dumped_sections() {
    let error =
        World::of_dump(&dump(&world_after_failure(0)), "steps", "nodes: [{name: other}]", Path::new("."));
    let error = error.expect_err("refused");
    assert_eq!(error, "steps:1: nodes: is given by the dump: remove it");
}

#[test]
fn file_other_than_dump_is_refused() {
    for (text, expected) in [
        ("", "EOF while parsing"),
        ("{}", "contains no node"),
        (r#"{"keys": [{"key": "later/x", "value": 1}]}"#, "later/x: this version does not know the key"),
    ] {
        let error = Dump::read(text).expect_err("refused");
        assert!(error.starts_with(expected), "{error}");
    }
}
