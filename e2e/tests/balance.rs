//! Tests of `hactl balance --apply` on a whole cluster: services move in job sets, and an interrupt ends the command between two
//! job sets.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use ha_e2e::scenario::{STEP_TIMEOUT, Scenario, WITNESS, witness_spec};
use ha_e2e::wait::wait_until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// Services in addition to the witness.
const OTHER_SERVICES: [&str; 5] = ["w1", "w2", "w3", "w4", "w5"];

/// Runs hactl; the command must succeed.
fn hactl(scenario: &Scenario, arguments: &[&str]) -> Result<String> {
    let output = scenario.cluster.hactl_within(STEP_TIMEOUT, arguments)?;
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "hactl {}: {text}", arguments.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

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
        hactl(&scenario, &["set", &format!("node/{node}"), "schedulable=false"])?;
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
        hactl(&scenario, &["set", &format!("node/{node}"), "schedulable=true"])?;
    }

    let plan = hactl(&scenario, &["balance", "-C"])?;
    assert!(plan.contains("hactl relocate "), "{plan}");
    assert_eq!(services_per_node(&scenario)?, [6, 0, 0], "a plan changes nothing");
    let applied: Value = serde_json::from_str(&hactl(&scenario, &["balance", "--apply", "-o", "json"])?)?;
    let jobs = applied["applied"].as_array().context("jobs")?;
    assert!(jobs.len() == 4 && jobs.iter().all(|job| job["phase"] == "Succeeded"), "{applied:#}");
    assert_eq!(services_per_node(&scenario)?, [2, 2, 2]);

    // Two services have to leave a node, and the interrupt arrives during the first move.
    hactl(&scenario, &["set", "node/node3", "schedulable=false"])?;
    let mut child = Command::new(scenario.cluster.directory().join("hactl"))
        .args(["balance", "--evac-mode", "--apply"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stderr = BufReader::new(child.stderr.take().context("a pipe")?);
    let mut said = String::new();
    while !said.contains("job set 1 of 2: ") {
        assert!(stderr.read_line(&mut said)? > 0, "hactl exited too early: {said}");
    }
    kill(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGINT)?;
    stderr.read_to_string(&mut said)?;
    assert_eq!(child.wait()?.code(), Some(1), "{said}");
    assert!(said.contains("interrupted after job set 1 of 2\n  1 of 2 moves done, 1 left"), "{said}");
    assert_eq!(services_per_node(&scenario)?.get(2), Some(&1));

    // A second run completes the evacuation.
    hactl(&scenario, &["balance", "--evac-mode", "--apply"])?;
    assert_eq!(services_per_node(&scenario)?.get(2), Some(&0));
    scenario.finish()
}
