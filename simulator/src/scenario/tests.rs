//! Tests of invalid files: the parser reports all errors together, each with its line, its path and the accepted values.

use super::Scenario;
use serde_json::json;
use std::path::Path;

const NODES_SECTION: &str = "nodes: [{name: node1}, {name: node2}]\n";
const WEB_OBJECT: &str = "objects:\n  - {apiVersion: hactl.io/v1, kind: Resource, metadata: {name: web}, spec: {driver: {simulated: {}}}}\n";

/// Asserts that a file is refused with one message that contains `expected_parts`. The file has two nodes and a
/// resource in its first three lines, then `sections`.
fn assert_problem(sections: &str, line: u32, expected_parts: &[&str]) {
    let text = format!("{NODES_SECTION}{WEB_OBJECT}{sections}");
    assert_problem_in(&text, line, expected_parts);
}

fn assert_problem_in(text: &str, line: u32, expected_parts: &[&str]) {
    let error = Scenario::parse("file.yaml", text, Path::new(".")).expect_err(text);
    let line_prefix = format!("file.yaml:{line}: ");
    let is_reported = error.lines().any(|message| {
        message.starts_with(&line_prefix) && expected_parts.iter().all(|part| message.contains(part))
    });
    assert!(is_reported, "no line {line} with {expected_parts:?} in\n{error}\nof\n{text}");
}

#[test]
fn small_scenario_file_is_parsed() {
    let text = format!(
        "{NODES_SECTION}{WEB_OBJECT}steps:\n  - {{at: 5, do: [power node1 off, \"set web state=Stopped comment=5\"]}}\n  - {{when: service sim:web is started}}\n"
    );
    let scenario = Scenario::parse("file.yaml", &text, Path::new(".")).expect("a good file");
    assert_eq!(scenario.steps.len(), 2);
    assert_eq!(scenario.objects.len(), 2, "the Cluster object is added");
}

#[test]
fn unknown_scenario_keys_suggest_nearest_key() {
    assert_problem("step: []\n", 4, &["unknown field \"step\"", "steps"]);
    assert_problem("expect:\n  servces: {}\n", 5, &["expect.servces", "\"services\""]);
    assert_problem("expect:\n  services: {web: {sate: Started}}\n", 5, &["sate", "\"state\""]);
    assert_problem("steps:\n  - {att: 5s}\n", 5, &["steps[0].att", "\"at\""]);
    assert_problem("place:\n  web:\n    nod: node1\n", 6, &["nod", "\"node\""]);
    assert_problem("store: {at: [node1]}\n", 4, &["store.at"]);
    assert_problem("timing: {profil: Fast}\n", 4, &["timing.profil", "profile"]);
    assert_problem_in("nodes:\n  - {name: a}\n  - {name: b, powr: on}\n", 3, &["nodes[1].powr", "\"power\""]);
    assert_problem_in("nodes:\n  - {name: a, capacity: {cpus: 2}}\n", 2, &["cpus", "\"cpu\""]);
}

#[test]
fn invalid_values_list_accepted_values() {
    assert_problem("seed: -1\n", 4, &["seed", "an integer"]);
    assert_problem("duration: soon\n", 4, &["duration", "37s"]);
    assert_problem("settle: [1]\n", 4, &["settle", "a duration"]);
    assert_problem("steps: 5\n", 4, &["steps", "must be a list"]);
    assert_problem("expect: {maxMoves: many}\n", 4, &["expect.maxMoves"]);
    assert_problem("expect: {services: {web: {state: Sleeping}}}\n", 4, &["Sleeping", "Started"]);
    assert_problem("timing: {profile: Rapid}\n", 4, &["timing.profile"]);
    assert_problem_in("nodes:\n  - {name: a, power: maybe}\n", 2, &["nodes[0].power", "on"]);
    assert_problem_in(
        "nodes:\n  - {name: a, capacity: {memory: lots}}\n",
        2,
        &["nodes[0].capacity.memory", "4Gi"],
    );
    assert_problem_in("nodes:\n  - {name: Node_1}\n", 2, &["nodes[0].name"]);
    assert_problem_in("nodes:\n  - {name: leader}\n", 2, &["leader"]);
    assert_problem_in("nodes:\n  - {name: a}\n  - {name: a}\n", 3, &["twice"]);
    assert_problem_in("nodes:\n  - {power: on}\n", 2, &["needs a name"]);
    assert_problem_in("seed: 1\n", 1, &["at least one node"]);
    assert_problem_in("nodes: [{name: a}]\nseed: 1\nseed: 2\n", 3, &["duplicate"]);
    assert_problem_in("a: [\n", 1, &[""]);
    assert_problem_in("nodes: [{name: a}]\n---\nseed: 1\n", 1, &["one YAML document"]);
}

#[test]
fn invalid_actions_and_conditions_show_their_syntax() {
    assert_problem("steps:\n  - do: powr node1 off\n", 5, &["powr", "\"power\""]);
    assert_problem(
        "steps:\n  - do:\n      - power node1 off\n      - power node1 away\n",
        7,
        &["away", "on or off"],
    );
    assert_problem("steps:\n  - do: power node1\n", 5, &["power N on|off"]);
    assert_problem("steps:\n  - do: agent node1 sleep\n", 5, &["sleep", "hang"]);
    assert_problem("steps:\n  - do: store outage long\n", 5, &["37s"]);
    assert_problem("steps:\n  - do: store quorum\n", 5, &["store outage DURATION"]);
    assert_problem("steps:\n  - do: clock node1 rate fast\n", 5, &["0.5 to 2"]);
    assert_problem("steps:\n  - do: set web stat=Stopped\n", 5, &["stat", "state"]);
    assert_problem("steps:\n  - do: set web state=Asleep\n", 5, &["Asleep"]);
    assert_problem("steps:\n  - do: load web cpus=2\n", 5, &["cpus", "\"cpu\""]);
    assert_problem("steps:\n  - do: disarm now\n", 5, &["freeze or ignore"]);
    assert_problem("steps:\n  - do: {aply: {}}\n", 5, &["aply", "apply"]);
    assert_problem("steps:\n  - do: {}\n", 5, &["{apply: OBJECT}", "{write: {KEY: VALUE}}"]);
    assert_problem("steps:\n  - check: web is up\n", 5, &["not a valid condition", "service R running"]);
    assert_problem("steps:\n  - when: service web is Going\n", 5, &["Going", "Started"]);
    assert_problem("steps:\n  - when: node node1 is Up\n", 5, &["Up", "Online"]);
    assert_problem("steps:\n  - when: cluster is Armored\n", 5, &["Armored", "Armed"]);
    assert_problem("steps:\n  - {at: 5s, after: 5s}\n", 5, &["only one of at, after and when"]);
    assert_problem("steps:\n  - {within: 5s}\n", 5, &["requires `when`"]);
    assert_problem("steps:\n  - {at: 50s}\n  - {at: 20s}\n", 6, &["before the time of the previous step"]);
}

#[test]
fn scenario_names_must_exist() {
    assert_problem("steps:\n  - do: power node3 off\n", 5, &["node3", "node1"]);
    assert_problem("steps:\n  - do: crash wep\n", 5, &["wep", "\"web\""]);
    assert_problem("steps:\n  - do: add new\n", 5, &["new", "under `later`"]);
    assert_problem("steps:\n  - when: service wep running\n", 5, &["wep", "\"web\""]);
    assert_problem("steps:\n  - check: not service web on node9\n", 5, &["node9"]);
    assert_problem("place: {wep: {node: node1}}\n", 4, &["wep", "\"web\""]);
    assert_problem("place: {web: {node: node9}}\n", 4, &["node9"]);
    assert_problem("place: {web: {node: node1, state: Migrate}}\n", 4, &["needs a target"]);
    assert_problem("place: {web: {node: node1, target: node2}}\n", 4, &["only a service in state Migrate"]);
    assert_problem(
        "steps:\n  - check: service web says Runing\n",
        5,
        &["\"Runing\" is not a valid reason", "\"Running\""],
    );
    assert_problem(
        "steps:\n  - check: cluster says Runing\n",
        5,
        &["\"Runing\" is not a valid reason", "\"Running\""],
    );
    assert_problem("steps:\n  - check: service wep says Running\n", 5, &["wep"]);
    assert_problem("steps:\n  - check: why web says Allowed on node9\n", 5, &["node9"]);
    assert_problem("steps:\n  - check: event about web\n", 5, &["event REASON about NAME"]);
    assert_problem("store: {on: [node1, node9]}\n", 4, &["store.on[1]", "node9"]);
    assert_problem("expect: {fenced: [node9]}\n", 4, &["expect.fenced[0]", "node9"]);
    assert_problem("expect: {onOneOf: {wep: [node1]}}\n", 4, &["wep"]);
    assert_problem("expect: {together: [[web, wep]]}\n", 4, &["expect.together[0][1]"]);
}

#[test]
fn former_field_names_are_accepted() {
    let objects = "objects:\n  - {kind: Cluster, metadata: {name: default}, spec: {fencing: {onStoreLoss: Stop, allowStandIn: true}}}\n  \
        - {kind: Node, metadata: {name: a}, spec: {fencing: {allowUnfenced: true}}}\n  \
        - {kind: Resource, metadata: {name: web}, spec: {driver: {simulated: {}}, after: [db]}}\n";
    let text =
        format!("nodes: [{{name: a, watchdog: standIn}}]\n{objects}steps:\n  - do: set web after=[files]\n");
    let scenario = Scenario::parse("file.yaml", &text, Path::new(".")).expect("an earlier scenario");
    let spec = |index: usize| &scenario.objects[index]["spec"];
    assert_eq!(spec(0)["fencing"], json!({"onEtcdLoss": "Stop", "allowSimulatedWatchdog": true}));
    assert_eq!(spec(1)["fencing"], json!({"trustWatchdogOnVirtualMachine": true}));
    assert_eq!(spec(2)["dependsOn"], json!(["db"]));
    assert_problem_in(
        &text.replace("after: [db]", "after: [db], dependsOn: [db]"),
        5,
        &["also given as spec.dependsOn"],
    );
}

#[test]
fn scenario_objects_are_validated_like_apply() {
    assert_problem(
        "later:\n  - {apiVersion: hactl.io/v1, kind: Resorce, metadata: {name: a}}\n",
        5,
        &["Resorce", "\"Resource\""],
    );
    assert_problem(
        "later:\n  - apiVersion: hactl.io/v1\n    kind: Resource\n    metadata: {name: a}\n    spec:\n      drivr: {}\n",
        9,
        &["later[0].spec.drivr", "driver"],
    );
    assert_problem(
        "later:\n  - {apiVersion: hactl.io/v1, kind: Group, metadata: {}}\n",
        5,
        &["metadata.name"],
    );
    assert_problem("later:\n  - {file: nowhere.yaml}\n", 5, &["nowhere.yaml", "cannot read"]);
    assert_problem("later:\n  - {file: a.yaml, also: b}\n", 5, &["also"]);
    assert_problem(
        "steps:\n  - do: {apply: {apiVersion: hactl.io/v1, kind: Group, metadata: {name: g}, spec: {node: []}}}\n",
        5,
        &["steps[0].do.apply.spec.node"],
    );
}

#[test]
fn all_scenario_problems_are_reported_together() {
    let text = "nodes: [{name: a}]\nsed: 1\nsteps:\n  - do: powr a off\n  - check: nothing\n";
    let error = Scenario::parse("file.yaml", text, Path::new(".")).expect_err("three problems");
    assert_eq!(error.lines().count(), 3, "{error}");
}
