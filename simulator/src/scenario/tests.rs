//! Tests of invalid files: the parser reports all errors together, each with its line, its path and the accepted values.

use super::Scenario;
use serde_json::json;
use std::path::Path;

const NODES: &str = "nodes: [{name: node1}, {name: node2}]\n";
const WEB: &str = "objects:\n  - {apiVersion: hactl.io/v1, kind: Resource, metadata: {name: web}, spec: {driver: {simulated: {}}}}\n";

/// Asserts that a file is refused with one message that contains `parts`. The file has two nodes and a resource in its
/// first three lines, then `rest`.
fn check(rest: &str, line: u32, parts: &[&str]) {
    let text = format!("{NODES}{WEB}{rest}");
    check_whole(&text, line, parts);
}

fn check_whole(text: &str, line: u32, parts: &[&str]) {
    let error = Scenario::parse("file.yaml", text, Path::new(".")).expect_err(text);
    let place = format!("file.yaml:{line}: ");
    let found =
        error.lines().any(|one| one.starts_with(&place) && parts.iter().all(|part| one.contains(part)));
    assert!(found, "no line {line} with {parts:?} in\n{error}\nof\n{text}");
}

#[test]
fn a_small_file_is_read() {
    let text = format!(
        "{NODES}{WEB}steps:\n  - {{at: 5, do: [power node1 off, \"set web state=Stopped comment=5\"]}}\n  - {{when: service sim:web is started}}\n"
    );
    let scenario = Scenario::parse("file.yaml", &text, Path::new(".")).expect("a good file");
    assert_eq!(scenario.steps.len(), 2);
    assert_eq!(scenario.objects.len(), 2, "the Cluster object is added");
}

#[test]
fn unknown_keys_name_the_nearest() {
    check("step: []\n", 4, &["unknown field \"step\"", "steps"]);
    check("expect:\n  servces: {}\n", 5, &["expect.servces", "\"services\""]);
    check("expect:\n  services: {web: {sate: Started}}\n", 5, &["sate", "\"state\""]);
    check("steps:\n  - {att: 5s}\n", 5, &["steps[0].att", "\"at\""]);
    check("place:\n  web:\n    nod: node1\n", 6, &["nod", "\"node\""]);
    check("store: {at: [node1]}\n", 4, &["store.at"]);
    check("timing: {profil: Fast}\n", 4, &["timing.profil", "profile"]);
    check_whole("nodes:\n  - {name: a}\n  - {name: b, powr: on}\n", 3, &["nodes[1].powr", "\"power\""]);
    check_whole("nodes:\n  - {name: a, capacity: {cpus: 2}}\n", 2, &["cpus", "\"cpu\""]);
}

#[test]
fn wrong_values_say_what_is_accepted() {
    check("seed: -1\n", 4, &["seed", "an integer"]);
    check("duration: soon\n", 4, &["duration", "37s"]);
    check("settle: [1]\n", 4, &["settle", "a duration"]);
    check("steps: 5\n", 4, &["steps", "must be a list"]);
    check("expect: {maxMoves: many}\n", 4, &["expect.maxMoves"]);
    check("expect: {services: {web: {state: Sleeping}}}\n", 4, &["Sleeping", "Started"]);
    check("timing: {profile: Rapid}\n", 4, &["timing.profile"]);
    check_whole("nodes:\n  - {name: a, power: maybe}\n", 2, &["nodes[0].power", "on"]);
    check_whole("nodes:\n  - {name: a, capacity: {memory: lots}}\n", 2, &["nodes[0].capacity.memory", "4Gi"]);
    check_whole("nodes:\n  - {name: Node_1}\n", 2, &["nodes[0].name"]);
    check_whole("nodes:\n  - {name: leader}\n", 2, &["leader"]);
    check_whole("nodes:\n  - {name: a}\n  - {name: a}\n", 3, &["twice"]);
    check_whole("nodes:\n  - {power: on}\n", 2, &["needs a name"]);
    check_whole("seed: 1\n", 1, &["at least one node"]);
    check_whole("nodes: [{name: a}]\nseed: 1\nseed: 2\n", 3, &["duplicate"]);
    check_whole("a: [\n", 1, &[""]);
    check_whole("nodes: [{name: a}]\n---\nseed: 1\n", 1, &["one YAML document"]);
}

#[test]
fn actions_and_conditions_say_how_they_are_written() {
    check("steps:\n  - do: powr node1 off\n", 5, &["powr", "\"power\""]);
    check("steps:\n  - do:\n      - power node1 off\n      - power node1 away\n", 7, &["away", "on or off"]);
    check("steps:\n  - do: power node1\n", 5, &["power N on|off"]);
    check("steps:\n  - do: agent node1 sleep\n", 5, &["sleep", "hang"]);
    check("steps:\n  - do: store outage long\n", 5, &["37s"]);
    check("steps:\n  - do: store quorum\n", 5, &["store outage DURATION"]);
    check("steps:\n  - do: clock node1 rate fast\n", 5, &["0.5 to 2"]);
    check("steps:\n  - do: set web stat=Stopped\n", 5, &["stat", "state"]);
    check("steps:\n  - do: set web state=Asleep\n", 5, &["Asleep"]);
    check("steps:\n  - do: load web cpus=2\n", 5, &["cpus", "\"cpu\""]);
    check("steps:\n  - do: disarm now\n", 5, &["freeze or ignore"]);
    check("steps:\n  - do: {aply: {}}\n", 5, &["aply", "apply"]);
    check("steps:\n  - do: {}\n", 5, &["{apply: OBJECT}"]);
    check("steps:\n  - check: web is up\n", 5, &["not a valid condition", "service R running"]);
    check("steps:\n  - when: service web is Going\n", 5, &["Going", "Started"]);
    check("steps:\n  - when: node node1 is Up\n", 5, &["Up", "Online"]);
    check("steps:\n  - when: cluster is Armored\n", 5, &["Armored", "Armed"]);
    check("steps:\n  - {at: 5s, after: 5s}\n", 5, &["only one of at, after and when"]);
    check("steps:\n  - {within: 5s}\n", 5, &["requires `when`"]);
    check("steps:\n  - {at: 50s}\n  - {at: 20s}\n", 6, &["before the time of the previous step"]);
}

#[test]
fn names_must_exist() {
    check("steps:\n  - do: power node3 off\n", 5, &["node3", "node1"]);
    check("steps:\n  - do: crash wep\n", 5, &["wep", "\"web\""]);
    check("steps:\n  - do: add new\n", 5, &["new", "under `later`"]);
    check("steps:\n  - when: service wep running\n", 5, &["wep", "\"web\""]);
    check("steps:\n  - check: not service web on node9\n", 5, &["node9"]);
    check("place: {wep: {node: node1}}\n", 4, &["wep", "\"web\""]);
    check("place: {web: {node: node9}}\n", 4, &["node9"]);
    check("place: {web: {node: node1, state: Migrate}}\n", 4, &["needs a target"]);
    check("place: {web: {node: node1, target: node2}}\n", 4, &["only a service in state Migrate"]);
    check(
        "steps:\n  - check: service web says Runing\n",
        5,
        &["\"Runing\" is not a valid reason", "\"Running\""],
    );
    check(
        "steps:\n  - check: cluster says Runing\n",
        5,
        &["\"Runing\" is not a valid reason", "\"Running\""],
    );
    check("steps:\n  - check: service wep says Running\n", 5, &["wep"]);
    check("steps:\n  - check: why web says Allowed on node9\n", 5, &["node9"]);
    check("steps:\n  - check: event about web\n", 5, &["event REASON about NAME"]);
    check("store: {on: [node1, node9]}\n", 4, &["store.on[1]", "node9"]);
    check("expect: {fenced: [node9]}\n", 4, &["expect.fenced[0]", "node9"]);
    check("expect: {onOneOf: {wep: [node1]}}\n", 4, &["wep"]);
    check("expect: {together: [[web, wep]]}\n", 4, &["expect.together[0][1]"]);
}

#[test]
fn earlier_names_of_fields_are_read() {
    let objects = "objects:\n  - {kind: Cluster, metadata: {name: default}, spec: {fencing: {onStoreLoss: Stop, allowStandIn: true}}}\n  \
        - {kind: Node, metadata: {name: a}, spec: {fencing: {allowUnfenced: true}}}\n  \
        - {kind: Resource, metadata: {name: web}, spec: {driver: {simulated: {}}, after: [db]}}\n";
    let text =
        format!("nodes: [{{name: a, watchdog: standIn}}]\n{objects}steps:\n  - do: set web after=[files]\n");
    let scenario = Scenario::parse("file.yaml", &text, Path::new(".")).expect("an earlier scenario");
    let spec = |at: usize| &scenario.objects[at]["spec"];
    assert_eq!(spec(0)["fencing"], json!({"onEtcdLoss": "Stop", "allowSimulatedWatchdog": true}));
    assert_eq!(spec(1)["fencing"], json!({"trustWatchdogOnVirtualMachine": true}));
    assert_eq!(spec(2)["dependsOn"], json!(["db"]));
    check_whole(
        &text.replace("after: [db]", "after: [db], dependsOn: [db]"),
        5,
        &["also given as spec.dependsOn"],
    );
}

#[test]
fn objects_are_checked_as_an_apply_checks_them() {
    check(
        "later:\n  - {apiVersion: hactl.io/v1, kind: Resorce, metadata: {name: a}}\n",
        5,
        &["Resorce", "\"Resource\""],
    );
    check(
        "later:\n  - apiVersion: hactl.io/v1\n    kind: Resource\n    metadata: {name: a}\n    spec:\n      drivr: {}\n",
        9,
        &["later[0].spec.drivr", "driver"],
    );
    check("later:\n  - {apiVersion: hactl.io/v1, kind: Group, metadata: {}}\n", 5, &["metadata.name"]);
    check("later:\n  - {file: nowhere.yaml}\n", 5, &["nowhere.yaml", "cannot read"]);
    check("later:\n  - {file: a.yaml, also: b}\n", 5, &["also"]);
    check(
        "steps:\n  - do: {apply: {apiVersion: hactl.io/v1, kind: Group, metadata: {name: g}, spec: {node: []}}}\n",
        5,
        &["steps[0].do.apply.spec.node"],
    );
}

#[test]
fn all_problems_are_told_at_once() {
    let text = "nodes: [{name: a}]\nsed: 1\nsteps:\n  - do: powr a off\n  - check: nothing\n";
    let error = Scenario::parse("file.yaml", text, Path::new(".")).expect_err("three problems");
    assert_eq!(error.lines().count(), 3, "{error}");
}
