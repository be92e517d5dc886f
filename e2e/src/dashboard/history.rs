//! Events in a cluster that give every query an answer: failures, moves, errors and manual operations.

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::query::VariableValues;
use super::rig::Rig;
use crate::machine::Role;
use crate::scenario::{STEP_TIMEOUT, witness_spec};
use crate::wait::wait_until;

/// Resource of most events.
const WEB_SERVICE: &str = "web";
/// A simulated virtual machine, which can live-migrate.
const MACHINE_SERVICE: &str = "machine";

/// Causes the events. Returns the resource and its final node, as values for the dashboards' variables.
///
/// # Errors
/// Fails if an event does not take effect in time.
pub fn cause_events(rig: &mut Rig) -> Result<VariableValues> {
    declare_objects(rig)?;

    let active_node = rig.scenario.wait_until_started(WEB_SERVICE)?;
    let crashed =
        rig.scenario.checker.process(WEB_SERVICE, &active_node).context("the web service has no process")?;
    crashed.signal(Signal::SIGKILL)?;
    rig.wait_for_result(&format!("hactl_resource_restarts_total{{resource=\"{WEB_SERVICE}\"}} > 0"))?;

    move_live(rig)?;

    // The controller is kept stopped until another controller is the leader. After an immediate restart, it could
    // become the leader again.
    let leader = rig.scenario.cluster.leader()?;
    rig.scenario.cluster.machine(&leader)?.keep_stopped("ha-controller")?;
    wait_until("another controller to be leader", STEP_TIMEOUT, || {
        rig.scenario.cluster.leader().is_ok_and(|now| now != leader)
    })?;
    rig.scenario.cluster.machine(&leader)?.allow_restart("ha-controller")?;
    rig.wait_for_result("sum(hactl_leader) == 1")?;

    // Both eligible nodes are unavailable for a while.
    let other = if active_node == "node1" { "node2" } else { "node1" };
    hactl(rig, &["node", "maintenance", "enable", other, "--wait"])?;
    rig.wait_for_result(&format!("hactl_node_maintenance{{node=\"{other}\"}} == 1"))?;
    rig.scenario.cluster.power_off(&active_node)?;
    rig.wait_for_result(&format!("hactl_resource_unplaced{{resource=\"{WEB_SERVICE}\"}} == 1"))?;
    hactl(rig, &["node", "maintenance", "disable", other])?;
    let new_node = rig.scenario.wait_until_moved_from(WEB_SERVICE, &active_node)?;
    ensure!(new_node == other, "{WEB_SERVICE} runs on {new_node}");
    rig.wait_for_result(&format!("hactl_resource_running{{resource=\"{WEB_SERVICE}\"}} == 1"))?;
    Ok([("resource", WEB_SERVICE), ("node", other)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into())
}

/// Declares nodes with a capacity, and resources in every state.
fn declare_objects(rig: &Rig) -> Result<()> {
    let scenario = &rig.scenario;
    scenario.apply(
        "clusters",
        "default",
        &json!({"reservation": {"enabled": true, "intervalSeconds": 5}}),
    )?;
    for node in scenario.cluster.machine_names(Role::Node) {
        let capacity = json!({"cpu": "8", "memory": "32Gi", "disk": "200Gi"});
        scenario.apply("nodes", &node, &json!({"capacity": capacity}))?;
    }
    scenario.apply("groups", "front", &json!({"nodes": {"node1": 2, "node2": 1}, "restricted": true}))?;
    scenario.apply("groups", "nowhere", &json!({"nodes": {"node9": 1}, "restricted": true}))?;
    let requests = |cpu: &str, memory: &str| json!({"cpu": cpu, "memory": memory, "disk": "20Gi"});
    let mut web = witness_spec(WEB_SERVICE)?;
    (web["group"], web["requests"]) = (json!("front"), requests("1", "2Gi"));
    let machine =
        json!({"driver": {"simulated": {"type": "vm", "live": true}}, "requests": requests("2", "8Gi")});
    let mut mail = machine.clone();
    mail["requests"] = requests("1500m", "4Gi");
    let mut lost_witness = witness_spec("lost")?;
    lost_witness["group"] = json!("nowhere");
    let mut idle = witness_spec("idle")?;
    idle["state"] = json!("Stopped");
    let broken = json!({"driver": {"exec": {"command": ["/bin/false"]}}, "maxRestart": 0, "maxRelocate": 0});
    let resource_specs: [(&str, Value); 6] = [
        (WEB_SERVICE, web),
        (MACHINE_SERVICE, machine),
        ("mail", mail),
        ("lost", lost_witness),
        ("idle", idle),
        ("broken", broken),
    ];
    for (name, spec) in &resource_specs {
        scenario.apply("resources", name, spec)?;
    }
    scenario.wait_until_started(WEB_SERVICE)?;
    for (name, state) in
        [(MACHINE_SERVICE, "Started"), ("mail", "Started"), ("idle", "Stopped"), ("broken", "Error")]
    {
        wait_until(&format!("{name} to be {state}"), STEP_TIMEOUT, || scenario.state(name) == state)?;
        rig.wait_for_result(&format!("hactl_resource_state{{resource=\"{name}\",state=\"{state}\"}} == 1"))?;
    }
    rig.wait_for_result("hactl_resource_unplaced{resource=\"lost\"} == 1")?;
    rig.wait_for_result("hactl_failure_tolerance_nodes")
}

/// Live-migrates the machine to another node by command.
fn move_live(rig: &Rig) -> Result<()> {
    let scenario = &rig.scenario;
    let current_node = || {
        let object = scenario.object("resources", MACHINE_SERVICE).unwrap_or_default();
        object["status"]["node"].as_str().unwrap_or_default().to_owned()
    };
    let from = current_node();
    let to = scenario
        .cluster
        .machine_names(Role::Node)
        .into_iter()
        .find(|node| *node != from)
        .context("another node")?;
    hactl(rig, &["migrate", MACHINE_SERVICE, &to])?;
    wait_until(&format!("{MACHINE_SERVICE} to run on {to}"), STEP_TIMEOUT, || {
        current_node() == to && scenario.state(MACHINE_SERVICE) == "Started"
    })?;
    rig.wait_for_result("hactl_operations_total")
}

fn hactl(rig: &Rig, arguments: &[&str]) -> Result<()> {
    let output = rig.scenario.cluster.hactl(arguments)?;
    let output_text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "hactl {}: {output_text}", arguments.join(" "));
    Ok(())
}
