//! Tests that a saved simulation repeats exactly, and that time can be set back.

use super::*;
use std::path::Path;

const CLUSTER: &str = "
nodes: [{name: node1}, {name: node2}, {name: node3}, {name: node4, power: off}]
objects:
  - {kind: Resource, metadata: {name: web}, spec: {driver: {simulated: {}}}}
  - {kind: Resource, metadata: {name: mail}, spec: {driver: {simulated: {}}}}
store: {on: [node1, node2, node3]}
";

fn simulation(text: &str) -> Simulation {
    Simulation::new(
        Beginning::Scenario,
        "cluster.yaml",
        text,
        PathBuf::from("."),
        &Timestamp("2026-11-27T16:20:17Z".to_owned()),
    )
    .unwrap()
}

fn node_of(simulation: &Simulation, service: &str) -> String {
    simulation.world().summary()["services"][service]["node"].as_str().unwrap_or_default().to_owned()
}

/// Runs the saved scenario, and compares it with the simulation.
fn check_replay(simulation: &Simulation) {
    let text = simulation.scenario().unwrap();
    let mut world = World::new(Scenario::parse("saved.yaml", &text, Path::new(".")).unwrap()).unwrap();
    world.run();
    assert!(world.has_passed(), "{:?}", world.summary()["expect"]);
    let difference = world
        .timeline()
        .iter()
        .zip(simulation.world().timeline())
        .find(|(step, repeated_step)| step != repeated_step);
    assert_eq!(difference, None);
    assert_eq!(world.timeline().len(), simulation.world().timeline().len());
    assert_eq!(world.store().revision(), simulation.world().store().revision());
}

/// Returns a change of an object as the API writes it.
fn change(simulation: &Simulation, key: &str, pointer: &str, value: Value) -> Transaction {
    let keys = Keys::new("default");
    let entry = simulation.world().store().get(&format!("{}{key}", keys.root())).entries.remove(0);
    let mut object: Value = serde_json::from_slice(&entry.value).unwrap();
    *object.pointer_mut(pointer).unwrap() = value;
    object["metadata"]["generation"] = json!(object["metadata"]["generation"].as_i64().unwrap() + 1);
    Transaction::new().put(
        entry.key,
        ha_store::Guard::Unchanged(entry.mod_revision),
        object.to_string().into_bytes(),
    )
}

#[test]
fn replay_of_a_saved_simulation_has_the_same_timeline() {
    let mut simulation = simulation(CLUSTER);
    simulation.run_until(20_000, || true);
    let node = node_of(&simulation, "web");
    simulation.play(&json!(format!("network {node} off"))).unwrap();
    simulation.run_until(25_137, || true);
    simulation.play(&json!("power node4 on")).unwrap();
    simulation.run_until(90_000, || true);
    assert_ne!(node_of(&simulation, "web"), node);
    let stop = change(
        &simulation,
        "spec/resource/mail",
        "/spec",
        json!({"driver": {"simulated": {}}, "state": "Stopped"}),
    );
    let repeated = stop.clone();
    assert!(simulation.commit(&Keys::new("default"), stop).applied().is_some());
    // The guard no longer holds, so the same transaction leaves no step.
    let steps = simulation.steps().len();
    assert!(matches!(simulation.commit(&Keys::new("default"), repeated), Outcome::Conflict(_)));
    assert_eq!(simulation.steps().len(), steps);
    simulation.play(&json!(format!("network {node} on"))).unwrap();
    simulation.run_until(200_000, || true);
    check_replay(&simulation);
}

#[test]
fn actions_replace_the_steps_that_remain() {
    let text =
        format!("{CLUSTER}steps: [{{at: 10s, do: power node1 off}}, {{at: 40s, do: power node2 off}}]\n");
    let mut simulation = simulation(&text);
    simulation.run_until(20_000, || true);
    simulation.play(&json!("power node1 on")).unwrap();
    simulation.run_until(120_000, || true);
    assert_eq!(simulation.steps().len(), 2);
    assert!(simulation.world().machine_states().iter().filter(|machine| machine.is_up).count() == 3);
    check_replay(&simulation);
}

#[test]
fn an_earlier_time_can_be_visited_and_continued() {
    let mut simulation = simulation(CLUSTER);
    simulation.run_until(10_000, || true);
    simulation.play(&json!("power node1 off")).unwrap();
    simulation.run_until(100_000, || true);
    let timeline = simulation.world().timeline().to_vec();
    simulation.go_to(5_000).unwrap();
    assert_eq!((simulation.elapsed_ms(), simulation.executed_steps()), (5_000, 0));
    simulation.go_to(100_000).unwrap();
    assert_eq!(simulation.world().timeline(), timeline);
    simulation.go_to(5_000).unwrap();
    simulation.play(&json!("power node2 off")).unwrap();
    simulation.run_until(100_000, || true);
    assert_eq!(simulation.steps().len(), 1);
    check_replay(&simulation);
}

#[test]
fn invalid_actions_change_nothing() {
    let mut simulation = simulation(CLUSTER);
    for (action, expected) in [
        (json!("power node9 off"), "node9"),
        (json!("explode node1"), "explode"),
        (json!({"apply": {}}), "kind"),
    ] {
        let message = simulation.play(&action).unwrap_err();
        assert!(message.contains(expected), "{message}");
    }
    assert!(simulation.steps().is_empty() && simulation.elapsed_ms() == 0);
}
