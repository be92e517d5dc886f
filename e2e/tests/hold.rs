//! Tests of outages of the whole etcd cluster with onEtcdLoss Hold, with and without all controllers (FENCING, section 9).

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ha_api_types::cluster::OnEtcdLoss;
use ha_e2e::machine::Role;
use ha_e2e::scenario::{Scenario, WITNESS};
use ha_e2e::wait::{holds_for, monotonic_ns};
use serde_json::json;

/// Length of an outage. It is longer than W, which is 15 s with these timings.
const OUTAGE: Duration = Duration::from_secs(30);

/// Starts three services on a cluster with onEtcdLoss Hold. The timings are those of the fast profile with more time before D −
/// Ts, which a busy host needs. Also returns the services' nodes.
fn held(name: &str) -> Result<(Scenario, Vec<(&'static str, String)>)> {
    let scenario = Scenario::start(name)?;
    scenario.on_etcd_loss(OnEtcdLoss::Hold, &json!({"heartbeatValidSeconds": 12, "stopMarginSeconds": 4}))?;
    scenario.create_witness("second")?;
    scenario.create_witness("third")?;
    let homes = [WITNESS, "second", "third"].map(|service| Ok((service, scenario.home(service)?)));
    let homes = homes.into_iter().collect::<Result<_>>()?;
    Ok((scenario, homes))
}

fn nobody_was_reset(scenario: &Scenario) -> Result<()> {
    for node in scenario.cluster.names(Role::Node) {
        ensure!(scenario.cluster.machine(&node)?.is_on(), "{node} was reset during the etcd outage");
    }
    Ok(())
}

#[test]
fn nothing_stops_in_a_long_outage_but_on_a_node_that_is_cut_off_from_the_controllers_too() -> Result<()> {
    let (scenario, homes) = held("hold-long-outage")?;
    let lost = homes[0].1.clone();
    let (gone, kept): (Vec<_>, Vec<_>) = homes.iter().partition(|(_, home)| *home == lost);
    ensure!(!kept.is_empty(), "all services run on {lost}");
    let process = |(service, home): &(&'static str, String)| scenario.checker.process(service, home);
    let before: Vec<_> = homes.iter().map(process).collect();
    let begin = monotonic_ns();
    scenario.store_outage(OUTAGE, || {
        holds_for("every service keeps its process", OUTAGE, || {
            homes.iter().map(process).eq(before.iter().copied())
                && homes
                    .iter()
                    .all(|(service, home)| scenario.checker.places(service).into_iter().eq([home.clone()]))
        })?;
        scenario.cluster.cut(&lost)?;
        gone.iter().try_for_each(|(service, _)| scenario.gone(service))?;
        holds_for("services on the other nodes keep running", Duration::from_secs(5), || {
            kept.iter().all(|(service, home)| scenario.checker.places(service).into_iter().eq([home.clone()]))
        })
    })?;
    scenario.cluster.heal(&lost)?;
    for (service, home) in &homes {
        let now = scenario.home(service)?;
        ensure!(now == *home || *home == lost, "{service} moved from {home} to {now}");
    }
    let timeline = scenario.checker.timeline();
    for (service, home) in kept {
        let ended = timeline.ended_on(service, home, begin);
        ensure!(
            ended.is_none(),
            "{service} ended on {home} at {ended:?} ns, after the store went at {begin} ns"
        );
    }
    for (service, home) in gone {
        timeline
            .ended_on(service, home, begin)
            .with_context(|| format!("no end of {service} was recorded"))?;
    }
    nobody_was_reset(&scenario)?;
    scenario.finish()
}

#[test]
fn a_controller_that_is_gone_for_good_holds_nobody() -> Result<()> {
    let (mut scenario, homes) = held("hold-missing-controller")?;
    let leader = scenario.cluster.leader()?;
    let follower = scenario.cluster.names(Role::Controller).into_iter().find(|name| *name != leader);
    scenario.cluster.power_off(&follower.context("no third controller found")?)?;
    scenario.store_outage(OUTAGE, || homes.iter().try_for_each(|(service, _)| scenario.gone(service)))?;
    for (service, home) in &homes {
        ensure!(scenario.home(service)? == *home, "{service} does not run again on {home}");
    }
    nobody_was_reset(&scenario)?;
    scenario.finish()
}
