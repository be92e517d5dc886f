//! `hactl simulate --from-dump`: the cluster of a support dump continues.

use crate::hactl::{command, run};
use ha_simulator::scenario::Scenario;
use ha_simulator::world::World;
use serde_json::{Value, json};
use std::path::Path;

/// Writes the dump of a simulated cluster of three nodes whose node1 has failed, during the failover.
fn write_dump(directory: &Path) -> World {
    let text = "
duration: 40s
nodes: [{name: node1}, {name: node2}, {name: node3}]
objects:
  - {apiVersion: hactl.io/v1, kind: Group, metadata: {name: first}, spec: {nodes: {node1: 2, node2: 1}}}
  - {apiVersion: hactl.io/v1, kind: Resource, metadata: {name: web}, spec: {driver: {simulated: {}}, group: first}}
steps: [{at: 30s, do: power node1 off}]
";
    let scenario = Scenario::parse("cluster", text, Path::new(".")).expect("a scenario");
    let mut world = World::new(scenario).expect("a world");
    world.run();
    let state = serde_json::to_string(&world.dump()).expect("JSON");
    std::fs::write(directory.join("state.json"), state).expect("written");
    world
}

#[test]
fn simulation_continues_and_explains_a_dump() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let world = write_dump(directory.path());
    let dump = directory.path().display().to_string();
    let result = run(&mut command(&["simulate", "--from-dump", &dump, "--why", "web", "-o", "json"]));
    assert_eq!(result.status, 0, "{}", result.stderr);
    let summary: Value = serde_json::from_str(&result.stdout).expect("JSON");
    assert_eq!(summary["services"]["web"]["running"], json!(["node2"]));
    let before = serde_json::to_value(world.explain(&"web".into())).expect("JSON");
    assert_eq!((&summary["why"]["before"], &summary["why"]["after"]["node"]), (&before, &json!("node2")));

    let result = run(&mut command(&["simulate", "--from-dump", &dump, "--why", "web"]));
    let (output, expected) = (&result.stdout, "At the time of the dump:\nsim:web  Fence on node1");
    assert!(
        output.contains(expected) && output.contains("At the end:\nsim:web  Started on node2"),
        "{output}"
    );

    let steps = directory.path().join("steps.yaml");
    let simulate_steps = |text: &str| {
        std::fs::write(&steps, text).expect("written");
        run(&mut command(&["simulate", "--from-dump", &dump, &steps.display().to_string()]))
    };
    let result = simulate_steps(
        "steps: [{at: 60s, do: power node2 off}]\nexpect: {services: {web: {node: node3, running: true}}}\n",
    );
    assert_eq!(result.status, 0, "node1 and node2 have failed: {}", result.stdout);
    assert!(
        result.stdout.ends_with("At the end:\n  NAME  STATE    RUNNING ON\n  web   Started  node3\n"),
        "{}",
        result.stdout
    );
    simulate_steps("nodes: [{name: node1}]\n").expect_stderr(2, "nodes: is given by the dump: remove it");
    simulate_steps("steps: [{at: 1s, do: power node9 off}]\n").expect_stderr(2, "node9");
    run(&mut command(&["simulate", "--from-dump", &dump, "--why", "nothing"]))
        .expect_stderr(1, "resource \"nothing\" not found");
    run(&mut command(&["simulate", "--from-dump", "/nowhere"]))
        .expect_stderr(2, "cannot read /nowhere/state.json");
    run(&mut command(&["simulate", "--why", "web"])).expect_stderr(2, "--from-dump");
}
