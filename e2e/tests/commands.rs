//! Tests of hactl on a whole cluster: output, exit status and effects.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use ha_e2e::command::output_text;
use ha_e2e::machine::Role;
use ha_e2e::scenario::{STEP_TIMEOUT, Scenario, WITNESS, witness_spec};
use ha_e2e::wait::{check_holds_for, wait_until};
use serde_json::json;

/// Runs hactl, checks its exit status and returns its output.
fn hactl(scenario: &Scenario, arguments: &[&str], expected: i32) -> Result<String> {
    let output = scenario.cluster.hactl(arguments)?;
    let text = output_text(&output);
    assert_eq!(output.status.code(), Some(expected), "hactl {}: {text}", arguments.join(" "));
    Ok(text)
}

fn write(scenario: &Scenario, name: &str, text: &str) -> Result<PathBuf> {
    let path = scenario.cluster.directory().join(name);
    std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    Ok(path)
}

#[test]
fn hactl_shows_changes_and_explains_placement() -> Result<()> {
    let scenario = Scenario::start("hactl")?;
    let object = |name: &str, spec: &serde_json::Value| {
        json!({"apiVersion": "hactl.io/v1", "kind": "Resource", "metadata": {"name": name}, "spec": spec})
            .to_string()
    };

    // The object is created first and unchanged the second time.
    let valid_manifest = write(&scenario, "web.yaml", &object("web", &witness_spec("web")?))?;
    let valid_manifest = valid_manifest.to_str().context("path is not valid UTF-8")?;
    let diff = hactl(&scenario, &["diff", "-f", valid_manifest], 1)?;
    assert!(diff.contains("web"), "{diff}");
    let first = hactl(&scenario, &["apply", "-f", valid_manifest], 0)?;
    assert!(first.contains("created"), "{first}");
    let second = hactl(&scenario, &["apply", "-f", valid_manifest], 0)?;
    assert!(second.contains("unchanged") && !second.contains("created"), "{second}");
    hactl(&scenario, &["diff", "-f", valid_manifest], 0)?;
    scenario.wait_until_started("web")?;

    // For a typo, the error contains file, line, field and the nearest name. The object does not change.
    let invalid_manifest = "apiVersion: hactl.io/v1\nkind: Resource\nmetadata:\n  name: web\nspec:\n  driver:\n    exec:\n      command: [sleep, '9']\n  maxRestrat: 3\n";
    let path = write(&scenario, "typo.yaml", invalid_manifest)?;
    let before = scenario.object("resources", "web").context("web not found")?["spec"].take();
    let text = hactl(&scenario, &["apply", "-f", path.to_str().context("path is not valid UTF-8")?], 2)?;
    for part in ["typo.yaml", "9", "maxRestrat", "maxRestart"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    assert_eq!(scenario.object("resources", "web").context("web not found")?["spec"], before);

    // Status of a healthy cluster, lists, descriptions and events.
    wait_until("a healthy status", STEP_TIMEOUT, || {
        scenario.cluster.hactl(&["status"]).is_ok_and(|output| output.status.code() == Some(0))
    })?;
    let status = hactl(&scenario, &["status"], 0)?;
    for node in scenario.cluster.machine_names(Role::Node) {
        assert!(status.contains(&node), "{node} is missing: {status}");
    }
    let list = hactl(&scenario, &["get", "resources"], 0)?;
    assert!(list.contains("web") && list.contains(WITNESS), "{list}");
    let yaml = hactl(&scenario, &["get", "resource", "web", "-o", "yaml"], 0)?;
    assert!(yaml.contains("kind: Resource"), "{yaml}");
    assert!(hactl(&scenario, &["describe", "resource", "web"], 0)?.contains("Started"));
    hactl(&scenario, &["events"], 0)?;
    assert!(hactl(&scenario, &["get", "events"], 0)?.contains("LAST SEEN"));
    let state = hactl(&scenario, &["get", "resource", "web", "-o", "jsonpath={.status.state}"], 0)?;
    assert!(state.contains("Started"), "{state}");

    // Discovery, permissions, labels and patches.
    assert!(hactl(&scenario, &["api-resources", "-o", "name"], 0)?.contains("resources.hactl.io"));
    assert_eq!(hactl(&scenario, &["auth", "can-i", "create", "har"], 0)?, "yes\n");
    hactl(&scenario, &["auth", "can-i", "update", "har/web", "--subresource", "status"], 1)?;
    assert!(hactl(&scenario, &["cluster-info"], 0)?.contains("(leader)"));
    hactl(&scenario, &["label", "resource", "web", "tier=front"], 0)?;
    hactl(&scenario, &["label", "resource", "web", "tier=back"], 1)?;
    let patch = r#"[{"op":"test","path":"/metadata/labels/tier","value":"front"},{"op":"add","path":"/spec/comment","value":"x"}]"#;
    hactl(&scenario, &["patch", "resource", "web", "--type", "json", "-p", patch], 0)?;
    assert_eq!(scenario.object("resources", "web").context("web not found")?["spec"]["comment"], "x");

    // The log of a service, which its driver keeps on the node.
    let command = ["sh", "-c", "echo first; echo second; exec sleep 100000"];
    let talker = object("talker", &json!({"driver": {"exec": {"command": command}}}));
    let path = write(&scenario, "talker.yaml", &talker)?;
    hactl(&scenario, &["apply", "-f", path.to_str().context("path is not valid UTF-8")?], 0)?;
    wait_until("the log of talker", STEP_TIMEOUT, || {
        let logs = scenario.cluster.hactl(&["logs", "talker"]);
        logs.is_ok_and(|output| output.status.success() && output_text(&output) == "first\nsecond\n")
    })?;
    assert_eq!(hactl(&scenario, &["logs", "talker", "--tail", "1", "--since", "1h"], 0)?, "second\n");
    hactl(&scenario, &["delete", "resource", "talker", "--stop"], 0)?;

    // Stop, start, relocate.
    hactl(&scenario, &["stop", "web"], 0)?;
    scenario.wait_until_stopped("web")?;
    hactl(&scenario, &["start", "web"], 0)?;
    let active_node = scenario.wait_until_started("web")?;
    let other = scenario
        .cluster
        .machine_names(Role::Node)
        .into_iter()
        .find(|node| *node != active_node)
        .context("no other node found")?;
    hactl(&scenario, &["relocate", "web", &other], 0)?;
    assert_eq!(scenario.wait_until_moved_from("web", &active_node)?, other);

    // With `--stop`, a deletion stops the service. Without it, the service would keep running.
    let missing = hactl(&scenario, &["get", "resource", "nothing"], 1)?;
    assert!(missing.contains("nothing"), "{missing}");
    hactl(&scenario, &["delete", "resource", "web", "--stop"], 0)?;
    scenario.wait_until_stopped("web")?;
    scenario.finish()
}

#[test]
fn why_names_every_node_and_the_reason() -> Result<()> {
    let scenario = Scenario::start("why")?;
    scenario.apply("groups", "nowhere", &json!({"nodes": {"node9": 1}, "restricted": true}))?;
    let mut spec = witness_spec("lost")?;
    spec["group"] = json!("nowhere");
    scenario.apply("resources", "lost", &spec)?;
    check_holds_for("lost does not run", Duration::from_secs(3), || {
        scenario.checker.machines_running("lost").is_empty()
    })?;
    let output = scenario.cluster.hactl(&["why", "lost"])?;
    let text = output_text(&output);
    for node in scenario.cluster.machine_names(Role::Node) {
        assert!(text.lines().any(|line| line.contains(&node) && line.contains("nowhere")), "{node}: {text}");
    }

    // The suggested action works.
    scenario.apply("groups", "nowhere", &json!({"nodes": {"node2": 1}}))?;
    assert_eq!(scenario.wait_until_started("lost")?, "node2");
    scenario.finish()
}

/// Returns the explanation of a service without the fields that change every second.
fn without_changing_fields(explanation: &serde_json::Value) -> serde_json::Value {
    let mut steady = explanation.clone();
    for field in ["usage", "conditions", "balance"] {
        steady[field].take();
    }
    steady
}

#[test]
fn simulated_dump_completes_failover_like_cluster() -> Result<()> {
    let mut scenario = Scenario::start("replay")?;
    let active_node = scenario.wait_until_started(WITNESS)?;
    scenario.cluster.power_off(&active_node)?;
    wait_until("the failover begins", STEP_TIMEOUT, || scenario.state(WITNESS) == "Fence")?;
    let middle = scenario.cluster.directory().join("middle");
    let middle = middle.to_str().context("path is not valid UTF-8")?;
    hactl(&scenario, &["support", "dump", middle], 0)?;
    let new_node = scenario.wait_until_moved_from(WITNESS, &active_node)?;
    let explained = || -> Result<serde_json::Value> {
        Ok(serde_json::from_slice(&scenario.cluster.hactl(&["why", WITNESS, "-o", "json"])?.stdout)?)
    };
    // The leader stores the causes of waits at most once a second.
    wait_until("a steady cluster", STEP_TIMEOUT, || {
        explained().is_ok_and(|explanation| {
            explanation["state"] == "Started" && explanation["waitingFor"] == json!([])
        })
    })?;

    let replayed = |dump: &str| -> Result<serde_json::Value> {
        let output =
            scenario.cluster.hactl(&["simulate", "--from-dump", dump, "--why", WITNESS, "-o", "json"])?;
        assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    let ended = replayed(middle)?;
    assert_eq!(ended["services"][WITNESS]["running"], json!([new_node]), "{ended}");

    // A dump after the failover gives the same explanation as the cluster. The dump does not change later.
    let after = scenario.cluster.directory().join("after");
    let after = after.to_str().context("path is not valid UTF-8")?;
    hactl(&scenario, &["support", "dump", after], 0)?;
    let live = explained()?;
    let ended = replayed(after)?;
    assert_eq!(without_changing_fields(&ended["why"]["before"]), without_changing_fields(&live));
    assert_eq!(without_changing_fields(&ended["why"]["after"]), without_changing_fields(&live));
    scenario.finish()
}

#[test]
fn maintenance_empties_a_node_and_ends_on_command() -> Result<()> {
    let scenario = Scenario::start("maintenance")?;
    let active_node = scenario.wait_until_started(WITNESS)?;
    hactl(&scenario, &["node", "maintenance", "enable", &active_node, "--wait"], 0)?;
    let new_node = scenario.wait_until_moved_from(WITNESS, &active_node)?;
    assert_ne!(new_node, active_node);
    hactl(&scenario, &["node", "maintenance", "disable", &active_node], 0)?;

    // hactl also accepts kubectl's names for these commands.
    let active_node = scenario.wait_until_started(WITNESS)?;
    let text = hactl(&scenario, &["drain", &active_node, "--dry-run"], 0)?;
    assert!(text.contains(&format!("{WITNESS} would relocate {active_node}")), "{text}");
    hactl(&scenario, &["drain", &active_node], 0)?;
    scenario.wait_until_moved_from(WITNESS, &active_node)?;
    hactl(&scenario, &["uncordon", &active_node], 0)?;
    scenario.finish()
}

#[test]
fn watchdog_test_confirms_a_real_reset() -> Result<()> {
    let mut scenario = Scenario::start("test-watchdog")?;
    let active_node = scenario.wait_until_started(WITNESS)?;
    let tested = |scenario: &Scenario| {
        let node = scenario.object("nodes", &active_node).unwrap_or_default();
        node["status"]["watchdog"]["tested"] == true
    };
    let doctor = output_text(&scenario.cluster.hactl(&["doctor"])?);
    assert!(doctor.contains("watchdog not tested on: node1"), "{doctor}");

    // A reset needs both maintenance of the node and `--yes`.
    let text = hactl(&scenario, &["node", "test-watchdog", &active_node, "--yes"], 1)?;
    assert!(text.contains(&format!("hactl node maintenance enable {active_node} --wait")), "{text}");
    hactl(&scenario, &["node", "maintenance", "enable", &active_node, "--wait"], 0)?;
    scenario.wait_until_moved_from(WITNESS, &active_node)?;
    let text = hactl(&scenario, &["node", "test-watchdog", &active_node], 2)?;
    assert!(text.contains("--yes"), "{text}");
    assert!(scenario.cluster.machine(&active_node)?.is_on() && !tested(&scenario));

    // The device, which is outside the machine's process tree, fires. After the next boot, the agent reports the passed test.
    hactl(&scenario, &["node", "test-watchdog", &active_node, "--yes", "--no-wait"], 0)?;
    wait_until("the watchdog to reset the node", STEP_TIMEOUT, || {
        scenario.cluster.machine(&active_node).is_ok_and(|machine| !machine.is_on())
    })?;
    scenario.cluster.power_on(&active_node)?;
    scenario.cluster.wait_for_nodes()?;
    wait_until("the test result to be reported", STEP_TIMEOUT, || tested(&scenario))?;
    wait_until("the operation to succeed", STEP_TIMEOUT, || {
        scenario
            .cluster
            .hactl(&["get", "operations"])
            .is_ok_and(|output| output_text(&output).contains("Succeeded"))
    })?;
    let text = hactl(&scenario, &["node", "watchdog", &active_node], 0)?;
    assert!(text.contains("reset with a timeout"), "{text}");

    // With requireTested, only the tested node is eligible for exclusive services. `hactl why` gives the reason for the
    // other nodes.
    hactl(&scenario, &["set", "cluster/default", "fencing.requireTested=true"], 0)?;
    hactl(&scenario, &["node", "maintenance", "disable", &active_node], 0)?;
    scenario.create_witness("late")?;
    assert_eq!(scenario.wait_until_started("late")?, active_node);
    let explanation = hactl(&scenario, &["why", "late"], 0)?;
    assert!(explanation.contains("fencing.requireTested"), "{explanation}");
    scenario.finish()
}
