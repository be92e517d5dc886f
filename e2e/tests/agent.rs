//! Tests of failures on one node: crashes of a service, of the agent and of the watchdog daemon.

use std::time::Duration;

use anyhow::{Context, Result};
use ha_e2e::scenario::{STEP_TIMEOUT, Scenario, WITNESS};
use ha_e2e::wait::{monotonic_ns, wait_until};
use nix::sys::signal::Signal;

#[test]
fn a_crashed_service_is_restarted_in_place() -> Result<()> {
    let scenario = Scenario::start("service-crash")?;
    let active_node = scenario.wait_until_started(WITNESS)?;
    let action = scenario.action_uid(WITNESS)?;
    let process =
        scenario.checker.process(WITNESS, &active_node).context("process of the witness not found")?;
    process.signal(Signal::SIGKILL)?;
    wait_until("another process of the witness", STEP_TIMEOUT, || {
        scenario
            .checker
            .process(WITNESS, &active_node)
            .is_some_and(|other| other != process && other.is_alive())
    })?;
    assert_eq!(scenario.wait_until_started(WITNESS)?, active_node, "the service moved after a crash");
    assert_eq!(scenario.action_uid(WITNESS)?, action, "a restart in place received another assignment");
    scenario.finish()
}

#[test]
fn next_agent_adopts_services_of_killed_agent() -> Result<()> {
    let scenario = Scenario::start("agent-killed")?;
    let active_node = scenario.wait_until_started(WITNESS)?;
    let process =
        scenario.checker.process(WITNESS, &active_node).context("process of the witness not found")?;
    let machine = scenario.cluster.machine(&active_node)?;
    let first = machine.program("ha-node-agent").context("agent does not run")?;
    for _ in 0..2 {
        machine.kill("ha-node-agent")?;
        wait_until("the agent to be started again", STEP_TIMEOUT, || {
            machine.program("ha-node-agent").is_some_and(|agent| agent != first)
        })?;
        // The time is longer than Th of the fast profile, after which the leader would close the node's epoch.
        scenario.check_undisturbed(WITNESS, Duration::from_secs(9))?;
        assert_eq!(
            scenario.checker.process(WITNESS, &active_node),
            Some(process),
            "the service was restarted"
        );
        assert!(machine.is_on(), "the node was reset because its agent died");
    }

    // The new agent must also supervise the service that it adopted.
    process.signal(Signal::SIGKILL)?;
    wait_until("the adopted service to be restarted after a crash", STEP_TIMEOUT, || {
        scenario
            .checker
            .process(WITNESS, &active_node)
            .is_some_and(|other| other != process && other.is_alive())
    })?;
    scenario.finish()
}

#[test]
fn fifty_deaths_of_an_agent_disturb_no_service() -> Result<()> {
    let scenario = Scenario::start("agent-killed-often")?;
    let active_node = scenario.wait_until_started(WITNESS)?;
    let process =
        scenario.checker.process(WITNESS, &active_node).context("process of the witness not found")?;
    let action = scenario.action_uid(WITNESS)?;
    let fence = scenario.epoch_and_fence_state(&active_node)?;
    let machine = scenario.cluster.machine(&active_node)?;
    for death in 1..=50 {
        let before = scenario.cluster.agent_instance(&active_node)?;
        machine.kill("ha-node-agent")?;
        wait_until(&format!("a heartbeat of the next agent, after death {death}"), STEP_TIMEOUT, || {
            scenario.cluster.agent_instance(&active_node).is_ok_and(|now| now != before)
        })?;
        assert!(machine.is_on(), "the node was reset after death {death} of its agent");
        assert_eq!(
            scenario.checker.process(WITNESS, &active_node),
            Some(process),
            "the service, after death {death}"
        );
    }
    assert_eq!(scenario.action_uid(WITNESS)?, action, "the service was given another assignment");
    assert_eq!(scenario.epoch_and_fence_state(&active_node)?, fence, "the node was declared dead");
    scenario.finish()
}

#[test]
fn a_node_whose_agent_stays_dead_is_reset_and_recovered() -> Result<()> {
    let mut scenario = Scenario::start("agent-dead")?;
    let active_node = scenario.wait_until_started(WITNESS)?;
    let before = monotonic_ns();
    scenario.cluster.machine(&active_node)?.keep_stopped("ha-node-agent")?;
    wait_until("the watchdog to reset the node", STEP_TIMEOUT, || {
        scenario.cluster.machine(&active_node).is_ok_and(|machine| !machine.is_on())
    })?;
    let new_node = scenario.wait_until_moved_from(WITNESS, &active_node)?;
    let timeline = scenario.checker.timeline();
    assert!(
        timeline.ended_on(WITNESS, &active_node, before) < timeline.started_on(WITNESS, &new_node, before)
    );
    scenario.cluster.power_on(&active_node)?;
    scenario.cluster.wait_for_nodes()?;
    scenario.check_undisturbed(WITNESS, Duration::from_secs(3))?;
    scenario.finish()
}

#[test]
fn a_killed_watchdog_daemon_is_replaced_or_the_node_is_reset() -> Result<()> {
    let scenario = Scenario::start("watchdogd-killed")?;
    let active_node = scenario.wait_until_started(WITNESS)?;
    let before = monotonic_ns();
    scenario.cluster.machine(&active_node)?.keep_stopped("ha-watchdogd")?;
    // No process still pets the simulated watchdog. Like a real device, it outlives the daemon and resets the node.
    wait_until("the watchdog to reset the node", STEP_TIMEOUT, || {
        scenario.cluster.machine(&active_node).is_ok_and(|machine| !machine.is_on())
    })?;
    let new_node = scenario.wait_until_moved_from(WITNESS, &active_node)?;
    let timeline = scenario.checker.timeline();
    assert!(
        timeline.ended_on(WITNESS, &active_node, before) < timeline.started_on(WITNESS, &new_node, before)
    );
    scenario.finish()
}
