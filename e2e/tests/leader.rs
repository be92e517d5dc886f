//! Tests of the leader's death or freeze: services continue, and late writes of the old leader are rejected.

use std::time::Duration;

use anyhow::Result;
use ha_e2e::scenario::{STEP_TIMEOUT, Scenario, WITNESS};
use ha_e2e::wait::wait_until;
use nix::sys::signal::Signal;

#[test]
fn a_killed_leader_disturbs_no_service_and_its_successor_recovers_nodes() -> Result<()> {
    let mut scenario = Scenario::start("leader-killed")?;
    let old = scenario.cluster.leader()?;
    scenario.cluster.power_off(&old)?;
    wait_until("another leader", STEP_TIMEOUT, || {
        scenario.cluster.leader().is_ok_and(|leader| leader != old)
    })?;
    scenario.check_undisturbed(WITNESS, Duration::from_secs(3))?;

    // Leader and node fail at the same time.
    scenario.cluster.power_on(&old)?;
    let api = scenario.cluster.api(&old)?;
    wait_until("the controller to be ready again", STEP_TIMEOUT, || api.is_ready())?;
    let (leader, active_node) = (scenario.cluster.leader()?, scenario.wait_until_started(WITNESS)?);
    scenario.cluster.power_off(&leader)?;
    scenario.cluster.power_off(&active_node)?;
    scenario.wait_until_moved_from(WITNESS, &active_node)?;
    scenario.finish()
}

#[test]
fn a_frozen_leader_is_deposed_and_its_late_writes_are_refused() -> Result<()> {
    let mut scenario = Scenario::start("leader-frozen")?;
    let (old, active_node) = (scenario.cluster.leader()?, scenario.wait_until_started(WITNESS)?);
    // The node fails while the leader is stopped. When the leader continues, its view contains an assignment that its
    // successor has already changed.
    scenario.cluster.machine(&old)?.signal("ha-controller", Signal::SIGSTOP)?;
    scenario.cluster.power_off(&active_node)?;
    wait_until("another leader", STEP_TIMEOUT, || {
        scenario.cluster.leader().is_ok_and(|leader| leader != old)
    })?;
    let new_node = scenario.wait_until_moved_from(WITNESS, &active_node)?;
    let (leader, action, fence) = (
        scenario.cluster.leader()?,
        scenario.action_uid(WITNESS)?,
        scenario.epoch_and_fence_state(&active_node)?,
    );

    scenario.cluster.machine(&old)?.signal("ha-controller", Signal::SIGCONT)?;
    scenario.check_undisturbed(WITNESS, Duration::from_secs(8))?;
    assert_eq!(scenario.cluster.leader()?, leader, "the deposed leader took the lead from a healthy one");
    assert_eq!(scenario.action_uid(WITNESS)?, action);
    assert_eq!(scenario.epoch_and_fence_state(&active_node)?, fence);
    assert_eq!(scenario.wait_until_started(WITNESS)?, new_node);
    scenario.finish()
}
