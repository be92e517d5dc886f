//! `hactl simulate --from-dump`: the cluster of a support dump continues.

use crate::hactl::{command, run};
use ha_simulator::scenario::Scenario;
use ha_simulator::world::World;
use serde_json::{Value, json};
use std::path::Path;

/// Writes the dump of a simulated cluster of three nodes whose node1 has failed, in the middle of the failover.
fn dumped(folder: &Path) -> World {
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
    std::fs::write(folder.join("state.json"), state).expect("written");
    world
}

#[test]
fn a_dump_is_continued_and_explained() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let world = dumped(folder.path());
    let dump = folder.path().display().to_string();
    let ran = run(&mut command(&["simulate", "--from-dump", &dump, "--why", "web", "-o", "json"]));
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let summary: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(summary["services"]["web"]["running"], json!(["node2"]));
    let before = serde_json::to_value(world.why(&"web".into())).expect("JSON");
    assert_eq!((&summary["why"]["before"], &summary["why"]["after"]["node"]), (&before, &json!("node2")));

    let ran = run(&mut command(&["simulate", "--from-dump", &dump, "--why", "web"]));
    let (found, expected) = (&ran.stdout, "At the time of the dump:\nsim:web  Fence on node1");
    assert!(found.contains(expected) && found.contains("At the end:\nsim:web  Started on node2"), "{found}");

    let steps = folder.path().join("steps.yaml");
    let steps_are = |text: &str| {
        std::fs::write(&steps, text).expect("written");
        run(&mut command(&["simulate", "--from-dump", &dump, &steps.display().to_string()]))
    };
    let ran = steps_are(
        "steps: [{at: 60s, do: power node2 off}]\nexpect: {services: {web: {node: node3, running: true}}}\n",
    );
    assert_eq!(ran.status, 0, "node1 and node2 have failed: {}", ran.stdout);
    assert!(
        ran.stdout.ends_with("At the end:\n  NAME  STATE    RUNNING ON\n  web   Started  node3\n"),
        "{}",
        ran.stdout
    );
    steps_are("nodes: [{name: node1}]\n").fails(2, "nodes: is given by the dump: remove it");
    steps_are("steps: [{at: 1s, do: power node9 off}]\n").fails(2, "node9");
    run(&mut command(&["simulate", "--from-dump", &dump, "--why", "nothing"]))
        .fails(1, "resource \"nothing\" not found");
    run(&mut command(&["simulate", "--from-dump", "/nowhere"])).fails(2, "cannot read /nowhere/state.json");
    run(&mut command(&["simulate", "--why", "web"])).fails(2, "--from-dump");
}
