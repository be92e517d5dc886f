//! Tests of outages of the whole etcd cluster with onEtcdLoss Hold, with and without all controllers (FENCING, section 9).

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ha_api_types::cluster::OnEtcdLoss;
use ha_e2e::machine::Role;
use ha_e2e::scenario::{Scenario, WITNESS};
use ha_e2e::wait::{check_holds_for, monotonic_ns};
use serde_json::json;

/// Length of an outage. It is longer than W, which is 15 s with these timings.
const OUTAGE_DURATION: Duration = Duration::from_secs(30);

/// Starts three services on a cluster with onEtcdLoss Hold. The timings are those of the fast profile with more time before D −
/// Ts, which a busy host needs. Also returns the services' nodes.
fn start_with_hold(name: &str) -> Result<(Scenario, Vec<(&'static str, String)>)> {
    let scenario = Scenario::start(name)?;
    scenario.set_on_etcd_loss(
        OnEtcdLoss::Hold,
        &json!({"heartbeatLifetimeSeconds": 12, "selfFenceMarginSeconds": 4}),
    )?;
    scenario.create_witness("second")?;
    scenario.create_witness("third")?;
    let services_on_nodes =
        [WITNESS, "second", "third"].map(|service| Ok((service, scenario.wait_until_started(service)?)));
    let services_on_nodes = services_on_nodes.into_iter().collect::<Result<_>>()?;
    Ok((scenario, services_on_nodes))
}

fn check_no_node_was_reset(scenario: &Scenario) -> Result<()> {
    for node in scenario.cluster.machine_names(Role::Node) {
        ensure!(scenario.cluster.machine(&node)?.is_on(), "{node} was reset during the etcd outage");
    }
    Ok(())
}

#[test]
fn hold_keeps_services_on_connected_nodes() -> Result<()> {
    let (scenario, services_on_nodes) = start_with_hold("hold-long-outage")?;
    let isolated_node = services_on_nodes[0].1.clone();
    let (on_isolated_node, on_other_nodes): (Vec<_>, Vec<_>) =
        services_on_nodes.iter().partition(|(_, active_node)| *active_node == isolated_node);
    ensure!(!on_other_nodes.is_empty(), "all services run on {isolated_node}");
    let process =
        |(service, active_node): &(&'static str, String)| scenario.checker.process(service, active_node);
    let processes_before: Vec<_> = services_on_nodes.iter().map(process).collect();
    let begin = monotonic_ns();
    scenario.with_etcd_outage(OUTAGE_DURATION, || {
        check_holds_for("every service keeps its process", OUTAGE_DURATION, || {
            services_on_nodes.iter().map(process).eq(processes_before.iter().copied())
                && services_on_nodes.iter().all(|(service, active_node)| {
                    scenario.checker.machines_running(service).into_iter().eq([active_node.clone()])
                })
        })?;
        scenario.cluster.cut(&isolated_node)?;
        on_isolated_node.iter().try_for_each(|(service, _)| scenario.wait_until_stopped(service))?;
        check_holds_for("services on the other nodes keep running", Duration::from_secs(5), || {
            on_other_nodes.iter().all(|(service, active_node)| {
                scenario.checker.machines_running(service).into_iter().eq([active_node.clone()])
            })
        })
    })?;
    scenario.cluster.heal(&isolated_node)?;
    for (service, active_node) in &services_on_nodes {
        let now = scenario.wait_until_started(service)?;
        ensure!(
            now == *active_node || *active_node == isolated_node,
            "{service} moved from {active_node} to {now}"
        );
    }
    let timeline = scenario.checker.timeline();
    for (service, active_node) in on_other_nodes {
        let ended = timeline.ended_on(service, active_node, begin);
        ensure!(
            ended.is_none(),
            "{service} ended on {active_node} at {ended:?} ns, after etcd was stopped at {begin} ns"
        );
    }
    for (service, active_node) in on_isolated_node {
        timeline
            .ended_on(service, active_node, begin)
            .with_context(|| format!("no end of {service} was recorded"))?;
    }
    check_no_node_was_reset(&scenario)?;
    scenario.finish()
}

#[test]
fn a_missing_controller_prevents_hold() -> Result<()> {
    let (mut scenario, services_on_nodes) = start_with_hold("hold-missing-controller")?;
    let leader = scenario.cluster.leader()?;
    let follower = scenario.cluster.machine_names(Role::Controller).into_iter().find(|name| *name != leader);
    scenario.cluster.power_off(&follower.context("no controller follows the leader")?)?;
    scenario.with_etcd_outage(OUTAGE_DURATION, || {
        services_on_nodes.iter().try_for_each(|(service, _)| scenario.wait_until_stopped(service))
    })?;
    for (service, active_node) in &services_on_nodes {
        ensure!(
            scenario.wait_until_started(service)? == *active_node,
            "{service} does not run again on {active_node}"
        );
    }
    check_no_node_was_reset(&scenario)?;
    scenario.finish()
}
