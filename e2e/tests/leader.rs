//! Tests of the leader's death or freeze: services continue, and late writes of the old leader are rejected.

use std::time::Duration;

use anyhow::Result;
use ha_e2e::scenario::{CEILING, Scenario, WITNESS};
use ha_e2e::wait::wait_until;
use nix::sys::signal::Signal;

#[test]
fn a_killed_leader_disturbs_nobody_and_the_next_one_recovers_nodes() -> Result<()> {
    let mut scenario = Scenario::start("leader-killed")?;
    let old = scenario.cluster.leader()?;
    scenario.cluster.power_off(&old)?;
    wait_until("another leader", CEILING, || scenario.cluster.leader().is_ok_and(|leader| leader != old))?;
    scenario.undisturbed(WITNESS, Duration::from_secs(3))?;

    // Leader and node fail at the same time.
    scenario.cluster.power_on(&old)?;
    let api = scenario.cluster.api(&old)?;
    wait_until("the controller to be ready again", CEILING, || api.is_ready())?;
    let (leader, home) = (scenario.cluster.leader()?, scenario.home(WITNESS)?);
    scenario.cluster.power_off(&leader)?;
    scenario.cluster.power_off(&home)?;
    scenario.elsewhere(WITNESS, &home)?;
    scenario.finish()
}

#[test]
fn a_frozen_leader_is_deposed_and_its_late_writes_are_refused() -> Result<()> {
    let mut scenario = Scenario::start("leader-frozen")?;
    let (old, home) = (scenario.cluster.leader()?, scenario.home(WITNESS)?);
    // The node fails while the leader is stopped. When the leader continues, its view contains an assignment that its
    // successor has already changed.
    scenario.cluster.machine(&old)?.signal("ha-controller", Signal::SIGSTOP)?;
    scenario.cluster.power_off(&home)?;
    wait_until("another leader", CEILING, || scenario.cluster.leader().is_ok_and(|leader| leader != old))?;
    let away = scenario.elsewhere(WITNESS, &home)?;
    let (leader, action, fence) =
        (scenario.cluster.leader()?, scenario.action(WITNESS)?, scenario.fence(&home)?);

    scenario.cluster.machine(&old)?.signal("ha-controller", Signal::SIGCONT)?;
    scenario.undisturbed(WITNESS, Duration::from_secs(8))?;
    assert_eq!(scenario.cluster.leader()?, leader, "the deposed leader took the lead from a healthy one");
    assert_eq!(scenario.action(WITNESS)?, action);
    assert_eq!(scenario.fence(&home)?, fence);
    assert_eq!(scenario.home(WITNESS)?, away);
    scenario.finish()
}
