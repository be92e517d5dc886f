//! Tests of `hactl balance --apply` on a whole cluster: services move in job sets, and an interrupt ends the command between two
//! job sets.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use ha_e2e::scenario::{STEP_TIMEOUT, Scenario, WITNESS, witness_spec};
use ha_e2e::wait::wait_until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// Services in addition to the witness.
const OTHER_SERVICES: [&str; 5] = ["w1", "w2", "w3", "w4", "w5"];

/// Returns the number of services on each node. Every service must run on exactly one node.
fn services_per_node(scenario: &Scenario) -> Result<Vec<usize>> {
    let mut counts: BTreeMap<String, usize> =
        ["node1", "node2", "node3"].map(|node| (node.to_owned(), 0)).into();
    for service in OTHER_SERVICES.into_iter().chain([WITNESS]) {
        *counts.entry(scenario.wait_until_started(service)?).or_default() += 1;
    }
    Ok(counts.into_values().collect())
}

#[test]
fn services_are_moved_job_set_by_job_set() -> Result<()> {
    let scenario = Scenario::start("balance")?;
    for node in ["node2", "node3"] {
        scenario.hactl(&["set", &format!("node/{node}"), "unschedulable=true"])?;
    }
    for service in OTHER_SERVICES {
        let mut spec = witness_spec(service)?;
        spec["requests"] = json!({"cpu": "10m"});
        scenario.apply("resources", service, &spec)?;
    }
    wait_until("everything to run on node1", STEP_TIMEOUT, || {
        if scenario.wait_until_started(WITNESS).is_ok_and(|active_node| active_node != "node1") {
            // The witness may have started on another node. A failed move is retried.
            let _ = scenario.cluster.hactl(&["relocate", WITNESS, "node1"]);
        }
        services_per_node(&scenario).is_ok_and(|counts| counts == [6, 0, 0])
    })?;
    for node in ["node2", "node3"] {
        scenario.hactl(&["set", &format!("node/{node}"), "unschedulable=false"])?;
    }

    let plan = scenario.hactl(&["balance", "-C"])?;
    assert!(plan.contains("hactl relocate "), "{plan}");
    assert_eq!(services_per_node(&scenario)?, [6, 0, 0], "a plan changes nothing");
    let applied: Value = serde_json::from_str(&scenario.hactl(&["balance", "--apply", "-o", "json"])?)?;
    let jobs = applied["applied"].as_array().context("jobs")?;
    assert!(jobs.len() == 4 && jobs.iter().all(|job| job["phase"] == "Succeeded"), "{applied:#}");
    assert_eq!(services_per_node(&scenario)?, [2, 2, 2]);

    // Two services have to leave a node, and the interrupt arrives during the first move.
    scenario.hactl(&["set", "node/node3", "unschedulable=true"])?;
    let command = scenario.start_hactl_until(&["balance", "--evac-mode", "--apply"], "job set 1 of 2: ")?;
    kill(Pid::from_raw(i32::try_from(command.id())?), Signal::SIGINT)?;
    let (code, messages) = command.finish()?;
    assert_eq!(code, Some(1), "{messages}");
    assert!(messages.contains("interrupted after job set 1 of 2\n  1 of 2 moves done, 1 left"), "{messages}");
    assert_eq!(services_per_node(&scenario)?.get(2), Some(&1));

    // A second run completes the evacuation.
    scenario.hactl(&["balance", "--evac-mode", "--apply"])?;
    assert_eq!(services_per_node(&scenario)?.get(2), Some(&0));
    scenario.finish()
}
