//! Test of a rolling upgrade, one machine at a time, in both orders. A node fails in the middle.
//!
//! `dev/upgrade REVISION` runs this test with a build of that revision as the older build. Without it, this build is
//! used for both.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ha_api_types::timing::{Profile, StoreTimes, Timings, WatchdogBounds, failover_bound_ms};
use ha_e2e::machine::Role;
use ha_e2e::plan::Plan;
use ha_e2e::scenario::{STEP_TIMEOUT, Scenario, WITNESS};
use ha_e2e::scratch;
use ha_e2e::upgrade::{old_binaries, upgrade};
use ha_e2e::wait::wait_until;

/// Time that a busy host and the start of the service may add to the limit of a failover.
const TOLERANCE: Duration = Duration::from_secs(20);

#[test]
fn upgrading_controllers_first_survives_node_failure() -> Result<()> {
    check_rolling_upgrade("upgrade-controllers", [Role::Controller, Role::Node])
}

#[test]
fn upgrading_agents_first_survives_node_failure() -> Result<()> {
    check_rolling_upgrade("upgrade-agents", [Role::Node, Role::Controller])
}

fn check_rolling_upgrade(name: &str, order: [Role; 2]) -> Result<()> {
    let plan = Plan { old_binaries: Some(old_binaries()?), ..Plan::test(&scratch::directory(name)?) };
    let mut scenario = Scenario::start_with(plan)?;
    let active_node = scenario.wait_until_started(WITNESS)?;
    let first = scenario.cluster.machine_names(order[0]);
    // At the failure, at least one machine is upgraded. The node that fails and the third machine still run the older build.
    let (first_group, second_group): (Vec<String>, Vec<String>) =
        first.into_iter().partition(|machine| *machine != active_node && !machine.ends_with('3'));
    ensure!(!first_group.is_empty(), "no machine is upgraded before the node fails");
    for machine in &first_group {
        upgrade_and_wait(&scenario, machine)?;
    }
    scenario.cluster.power_off(&active_node)?;
    let failed_at = Instant::now();
    let next = scenario.wait_until_moved_from(WITNESS, &active_node)?;
    let duration = failed_at.elapsed();
    ensure!(duration <= failover_limit() + TOLERANCE, "recovered on {next} after {duration:?}");
    scenario.cluster.power_on(&active_node)?;
    wait_until_online(&scenario, &active_node)?;
    for machine in second_group.iter().chain(&scenario.cluster.machine_names(order[1])) {
        upgrade_and_wait(&scenario, machine)?;
    }
    // Repeat the failure in the upgraded cluster.
    let active_node = scenario.wait_until_started(WITNESS)?;
    scenario.cluster.power_off(&active_node)?;
    scenario.wait_until_moved_from(WITNESS, &active_node)?;
    scenario.finish()
}

/// Upgrades one machine and waits until it is ready or online again.
fn upgrade_and_wait(scenario: &Scenario, machine: &str) -> Result<()> {
    upgrade(&scenario.cluster, machine)?;
    if scenario.cluster.machine(machine)?.role == Role::Node {
        return wait_until_online(scenario, machine);
    }
    let api = scenario.cluster.api(machine)?;
    wait_until(&format!("{machine} to be ready"), STEP_TIMEOUT, || api.is_ready())
}

fn wait_until_online(scenario: &Scenario, node: &str) -> Result<()> {
    wait_until(&format!("{node} to be online"), STEP_TIMEOUT, || {
        scenario.object("nodes", node).is_some_and(|object| object["status"]["state"] == "Online")
    })
}

/// Returns the limit of a failover with the fast profile, including the election of a new leader.
fn failover_limit() -> Duration {
    let timings = Timings::of_profile(Profile::Fast);
    let watchdog =
        WatchdogBounds { timeout_ms: timings.watchdog_timeout_ms, sliding: true, descriptor_retained: true };
    Duration::from_millis(failover_bound_ms(&timings, &watchdog, &StoreTimes::default(), true))
}
