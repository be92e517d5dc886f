//! Tests of the commands that plan for node groups, on a whole cluster: the moves are executed, and the leader is killed while
//! they are.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use ha_e2e::plan::Plan;
use ha_e2e::scenario::{STEP_TIMEOUT, Scenario, WITNESS, witness_spec};
use ha_e2e::scratch;
use ha_e2e::wait::wait_until;
use serde_json::{Value, json};

/// Services in addition to the witness.
const OTHER_SERVICES: [&str; 5] = ["g1", "g2", "g3", "g4", "g5"];

/// Returns the number of services on each node that has any. Every service must run on exactly one node.
fn services_per_node(scenario: &Scenario) -> Result<BTreeMap<String, usize>> {
    let mut counts = BTreeMap::new();
    for service in OTHER_SERVICES.into_iter().chain([WITNESS]) {
        *counts.entry(scenario.wait_until_started(service)?).or_default() += 1;
    }
    Ok(counts)
}

/// Runs hactl, and powers the leader off during the first job set. The command may succeed, or fail with exit status 1.
/// Every service must run on exactly one node afterward. Returns the services on each node.
fn run_with_leader_failure(scenario: &mut Scenario, arguments: &[&str]) -> Result<BTreeMap<String, usize>> {
    let command = scenario.start_hactl_until(arguments, "job set 1 of ")?;
    let leader = scenario.cluster.leader()?;
    scenario.cluster.power_off(&leader)?;
    let (code, messages) = command.finish()?;
    assert!(matches!(code, Some(0 | 1)), "{arguments:?}: exit status {code:?}: {messages}");
    let counts = services_per_node(scenario)?;
    scenario.cluster.power_on(&leader)?;
    let api = scenario.cluster.api(&leader)?;
    wait_until("the controller to be ready again", STEP_TIMEOUT, || api.is_ready())?;
    Ok(counts)
}

/// Sets whether services may be placed on nodes.
fn set_schedulable(scenario: &Scenario, nodes: &[&str], is_schedulable: bool) -> Result<()> {
    for node in nodes {
        scenario.hactl(&["set", &format!("node/{node}"), &format!("unschedulable={}", !is_schedulable)])?;
    }
    Ok(())
}

#[test]
fn group_commands_continue_after_the_death_of_the_leader() -> Result<()> {
    let plan = Plan { nodes: 5, ..Plan::test(&scratch::directory("groups")?) };
    let mut scenario = Scenario::start_with(plan)?;
    for (node, group) in
        [("node1", "east"), ("node2", "east"), ("node3", "east"), ("node4", "west"), ("node5", "west")]
    {
        scenario.hactl(&["set", &format!("node/{node}"), &format!("nodeGroup={group}")])?;
    }
    set_schedulable(&scenario, &["node2", "node3", "node4", "node5"], false)?;
    for service in OTHER_SERVICES {
        let mut spec = witness_spec(service)?;
        spec["requests"] = json!({"cpu": "10m", "memory": "16Mi"});
        scenario.apply("resources", service, &spec)?;
    }
    wait_until("everything to run on node1", STEP_TIMEOUT, || {
        if scenario.wait_until_started(WITNESS).is_ok_and(|active_node| active_node != "node1") {
            // The witness may have started on another node. A failed move is retried.
            let _ = scenario.cluster.hactl(&["relocate", WITNESS, "node1"]);
        }
        services_per_node(&scenario).is_ok_and(|counts| counts == BTreeMap::from([("node1".to_owned(), 6)]))
    })?;
    set_schedulable(&scenario, &["node2", "node3", "node4", "node5"], true)?;

    // These commands change nothing.
    let placements: Value =
        serde_json::from_str(&scenario.hactl(&["allocate", "memory=16Mi,disk=0,vcpus=1", "-o", "json"])?)?;
    assert!(placements.to_string().contains("node2"), "{placements:#}");
    assert!(scenario.hactl(&["capacity", "memory=64Mi,disk=0,vcpus=1"])?.contains("east"));
    // The exit status is 1, because the balance can be improved.
    let check_output = scenario.cluster.hactl(&["group", "check"])?;
    assert_eq!(check_output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&check_output.stdout).contains("All groups are healthy."));
    scenario.hactl(&["group", "redistribute", "--apply"])?;
    assert_eq!(services_per_node(&scenario)?.get("node1"), Some(&6), "healthy groups stay as they are");

    // All services leave the node, inside its group. A second run completes the evacuation.
    set_schedulable(&scenario, &["node1"], false)?;
    run_with_leader_failure(&mut scenario, &["evacuate", "node1", "--apply"])?;
    scenario.hactl(&["evacuate", "node1", "--apply"])?;
    let counts = services_per_node(&scenario)?;
    assert!(counts.keys().all(|node| node == "node2" || node == "node3"), "{counts:?}");
    set_schedulable(&scenario, &["node1"], true)?;

    // Services move to the other group.
    run_with_leader_failure(&mut scenario, &["group", "balance", "--apply"])?;
    scenario.hactl(&["group", "balance", "--apply"])?;
    let count_in_west = |counts: &BTreeMap<String, usize>| -> usize {
        counts.iter().filter(|(node, _)| *node == "node4" || *node == "node5").map(|(_, count)| count).sum()
    };
    let counts = services_per_node(&scenario)?;
    assert!((1..6).contains(&count_in_west(&counts)), "{counts:?}");

    // One of the groups is emptied.
    run_with_leader_failure(&mut scenario, &["group", "compress", "--apply"])?;
    scenario.hactl(&["group", "compress", "--apply"])?;
    let counts = services_per_node(&scenario)?;
    assert!([0, 6].contains(&count_in_west(&counts)), "{counts:?}");

    // The services of one node leave it.
    let remaining_node = counts.into_keys().next().context("a node with services")?;
    set_schedulable(&scenario, &[&remaining_node], false)?;
    run_with_leader_failure(&mut scenario, &["balance", "--evac-mode", "--apply"])?;
    scenario.hactl(&["balance", "--evac-mode", "--apply"])?;
    let counts = services_per_node(&scenario)?;
    assert!(!counts.contains_key(&remaining_node), "{counts:?}");
    scenario.finish()
}
