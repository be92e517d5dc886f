//! Tests of etcd members that fail, are stopped or isolated, and of outages of the whole etcd cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use ha_api_types::cluster::OnEtcdLoss;
use ha_e2e::machine::Role;
use ha_e2e::network::PacketFilter;
use ha_e2e::plan::Plan;
use ha_e2e::scenario::{STEP_TIMEOUT, Scenario, WITNESS};
use ha_e2e::scratch;
use ha_e2e::wait::{monotonic_ns, wait_until};
use nix::sys::signal::Signal;
use serde_json::json;

#[test]
fn a_killed_member_disturbs_no_service() -> Result<()> {
    // etcd may need two rounds of a second each for an election on a slow host. With the fast profile, services stop after little
    // more than that. With the conservative profile, they stop after 8 s.
    let mut plan = Plan::test(&scratch::directory("member-killed")?);
    "Conservative".clone_into(&mut plan.profile);
    let mut scenario = Scenario::start_with(plan)?;
    let leader = scenario.cluster.etcd_leader()?;
    let follower = scenario.cluster.machine_names(Role::Etcd).into_iter().find(|name| *name != leader);
    let follower = follower.context("no etcd follower found")?;
    scenario.cluster.power_off(&follower)?;
    scenario.check_undisturbed(WITNESS, Duration::from_secs(20))?;
    scenario.cluster.power_on(&follower)?;
    wait_until("all etcd members to be healthy", STEP_TIMEOUT, || scenario.cluster.etcdctl().is_healthy())?;

    // A failure of the etcd leader must have no effect either: etcd elects another leader before a heartbeat expires.
    let leader = scenario.cluster.etcd_leader()?;
    scenario.cluster.power_off(&leader)?;
    scenario.check_undisturbed(WITNESS, Duration::from_secs(20))?;
    scenario.finish()
}

#[test]
fn a_lease_kept_alive_by_a_deposed_store_leader_proves_nothing() -> Result<()> {
    // FENCING 3: an etcd leader that was paused and then isolated from its peers continues to answer keep-alives. A node that
    // reaches only that member must not consider its heartbeat valid.
    let scenario = Scenario::start("stale-store-leader")?;
    let active_node = scenario.wait_until_started(WITNESS)?;
    let before = monotonic_ns();
    let stale = scenario.cluster.etcd_leader()?;
    let member = scenario.cluster.machine(&stale)?;
    member.signal("etcd", Signal::SIGSTOP)?;
    wait_until("another etcd leader", STEP_TIMEOUT, || {
        scenario.cluster.etcd_leader_among_others(&stale).is_ok_and(|leader| leader != stale)
    })?;
    scenario.cluster.isolate_member(&stale)?;
    for other in scenario.cluster.machine_names(Role::Etcd).into_iter().filter(|name| *name != stale) {
        let address = scenario.cluster.machine(&other)?.address;
        scenario.cluster.drop_packets(&active_node, PacketFilter::To(address))?;
    }
    member.signal("etcd", Signal::SIGCONT)?;

    let new_node = scenario.wait_until_moved_from(WITNESS, &active_node)?;
    let timeline = scenario.checker.timeline();
    let ended =
        timeline.ended_on(WITNESS, &active_node, before).context("no end of the witness was recorded")?;
    let started = timeline
        .started_on(WITNESS, &new_node, before)
        .context("no start of the witness on another node was recorded")?;
    assert!(
        ended < started,
        "the service ended on {active_node} at {ended} ns, after its start on {new_node} at {started} ns"
    );

    scenario.cluster.heal(&stale)?;
    scenario.cluster.heal(&active_node)?;
    scenario.cluster.wait_for_nodes()?;
    scenario.check_undisturbed(WITNESS, Duration::from_secs(3))?;
    scenario.finish()
}

#[test]
fn frozen_etcd_leader_disturbs_no_connected_node() -> Result<()> {
    let scenario = Scenario::start("isolated-store-leader")?;
    let stale = scenario.cluster.etcd_leader()?;
    let member = scenario.cluster.machine(&stale)?;
    member.signal("etcd", Signal::SIGSTOP)?;
    scenario.cluster.isolate_member(&stale)?;
    wait_until("another etcd leader", STEP_TIMEOUT, || {
        scenario.cluster.etcd_leader_among_others(&stale).is_ok_and(|leader| leader != stale)
    })?;
    member.signal("etcd", Signal::SIGCONT)?;
    scenario.check_undisturbed(WITNESS, Duration::from_secs(10))?;
    scenario.cluster.heal(&stale)?;
    scenario.finish()
}

#[test]
fn short_etcd_outage_disturbs_no_service() -> Result<()> {
    // With the conservative profile, no service is stopped for Th - 2 Ki - Ts = 8 s. etcd may need several seconds of
    // that for an election.
    let mut plan = Plan::test(&scratch::directory("store-short-outage")?);
    "Conservative".clone_into(&mut plan.profile);
    let scenario = Scenario::start_with(plan)?;
    let active_node = scenario.wait_until_started(WITNESS)?;
    let (process, action) = (scenario.checker.process(WITNESS, &active_node), scenario.action_uid(WITNESS)?);
    scenario.with_etcd_outage(Duration::from_secs(5), || Ok(()))?;
    scenario.check_undisturbed(WITNESS, Duration::from_secs(20))?;
    assert_eq!(scenario.checker.process(WITNESS, &active_node), process);
    assert_eq!(scenario.action_uid(WITNESS)?, action);
    scenario.finish()
}

#[test]
fn long_etcd_outage_stops_services_without_resets() -> Result<()> {
    let scenario = Scenario::start("store-long-outage")?;
    scenario.set_on_etcd_loss(OnEtcdLoss::Stop, &json!({}))?;
    scenario.create_witness("second")?;
    scenario.create_witness("third")?;
    let services = [WITNESS, "second", "third"];
    let active_nodes = services.map(|service| scenario.wait_until_started(service));
    let before = monotonic_ns();
    scenario.with_etcd_outage(Duration::from_secs(20), || {
        services.iter().try_for_each(|service| scenario.wait_until_stopped(service))
    })?;
    for (service, active_node) in services.iter().zip(active_nodes) {
        let active_node = active_node?;
        assert!(scenario.checker.timeline().ended_on(service, &active_node, before).is_some());
        scenario.wait_until_started(service)?;
    }
    for node in scenario.cluster.machine_names(Role::Node) {
        assert!(scenario.cluster.machine(&node)?.is_on(), "{node} was reset during the etcd outage");
    }
    scenario.finish()
}

#[test]
fn services_run_again_after_a_restart_of_all_machines() -> Result<()> {
    let mut scenario = Scenario::start("restart-of-everything")?;
    scenario.create_witness("second")?;
    scenario.wait_until_started("second")?;
    let machines: Vec<String> = [Role::Node, Role::Controller, Role::Etcd]
        .into_iter()
        .flat_map(|role| scenario.cluster.machine_names(role))
        .collect();
    for machine in &machines {
        scenario.cluster.power_off(machine)?;
    }
    for service in [WITNESS, "second"] {
        assert_eq!(scenario.checker.machines_running(service), BTreeSet::new());
    }
    for machine in machines.iter().rev() {
        scenario.cluster.power_on(machine)?;
    }
    for service in [WITNESS, "second"] {
        scenario.wait_until_started(service)?;
    }
    scenario.finish()
}
