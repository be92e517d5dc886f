//! Tests of guarantees 1 and 2 when a node fails: its service runs on another node, and never on two.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ha_api_types::metric::{Exposer, Metric};
use ha_e2e::cluster::Cluster;
use ha_e2e::command::{output_of_input, run};
use ha_e2e::machine::Role;
use ha_e2e::scenario::{CEILING, Scenario, WITNESS};
use ha_e2e::wait::{holds_for, monotonic_ns, wait_until};
use reqwest::Method;
use serde_json::Value;

#[test]
fn a_killed_node_is_recovered() -> Result<()> {
    let mut scenario = Scenario::start("node-killed")?;
    let home = scenario.home(WITNESS)?;
    let (epoch, _) = scenario.fence(&home)?;
    scenario.cluster.power_off(&home)?;
    let away = scenario.elsewhere(WITNESS, &home)?;
    let (closed, state) = scenario.fence(&home)?;
    assert!(closed > epoch, "the epoch of the dead node was not closed: {closed}");
    assert_eq!(state, "Fenced");
    what_prometheus_reads(&scenario, &home, &away)?;

    // The node returns empty, with a new epoch, and the service stays where it is.
    scenario.cluster.power_on(&home)?;
    scenario.cluster.wait_for_nodes()?;
    assert!(scenario.fence(&home)?.0 >= closed);
    scenario.undisturbed(WITNESS, Duration::from_secs(5))?;
    assert_eq!(scenario.home(WITNESS)?, away);
    scenario.finish()
}

/// Checks the metrics after the failover: the leader exposes the failover and the objects, followers only their own state.
fn what_prometheus_reads(scenario: &Scenario, home: &str, away: &str) -> Result<()> {
    let cluster = &scenario.cluster;
    let leader = cluster.leader()?;
    let of_leader = [Exposer::Every, Exposer::Controller, Exposer::Leader];
    let running = format!("hactl_resource_node{{node=\"{away}\",resource=\"{WITNESS}\"}}");
    let fenced = format!("hactl_node_fence_state{{node=\"{home}\",state=\"Fenced\"}}");
    wait_until("the leader to show the failover", CEILING, || {
        controller_metrics(cluster, &leader).is_ok_and(|text| {
            number(&text, "hactl_failover_duration_seconds_count{phase=\"start\"}") == Some(1.0)
                && number(&text, &running) == Some(1.0)
        })
    })?;
    let text = controller_metrics(cluster, &leader)?;
    check_metrics(&text, &of_leader)?;
    for (series, expected) in [
        ("hactl_leader", 1.0),
        ("hactl_failovers_total", 1.0),
        ("hactl_fences_total{method=\"Silence\",result=\"Confirmed\"}", 1.0),
        ("hactl_failover_duration_seconds_count{phase=\"detect\"}", 1.0),
        (fenced.as_str(), 1.0),
    ] {
        assert_eq!(number(&text, series), Some(expected), "{series} in:\n{text}");
    }
    for controller in cluster.names(Role::Controller).iter().filter(|name| **name != leader) {
        let text = controller_metrics(cluster, controller)?;
        check_metrics(&text, &[Exposer::Every, Exposer::Controller])?;
        assert_eq!(number(&text, "hactl_leader"), Some(0.0), "{text}");
    }
    // The agent refreshes its gauges twice a second.
    wait_until("the agent to show the service and its armed watchdog", CEILING, || {
        agent_metrics(cluster, away).is_ok_and(|text| {
            ["hactl_agent_watchdog_armed", "hactl_agent_exclusive_services"]
                .iter()
                .all(|series| number(&text, series) == Some(1.0))
        })
    })?;
    check_metrics(&agent_metrics(cluster, away)?, &[Exposer::Every, Exposer::Agent])
}

fn controller_metrics(cluster: &Cluster, name: &str) -> Result<String> {
    match cluster.api(name)?.request(Method::GET, "/metrics", None)? {
        (status, Value::String(text)) if status.is_success() => Ok(text),
        (status, other) => bail!("/metrics of {name}: {status}: {other}"),
    }
}

/// Returns the metrics of a node's agent, requested from that node.
fn agent_metrics(cluster: &Cluster, node: &str) -> Result<String> {
    let agent = cluster.machine(node)?.program("ha-node-agent").context("no agent runs")?;
    let pid = agent.pid.to_string();
    let command = fs::read_to_string(format!("/proc/{pid}/cmdline"))?;
    let mut words = command.split('\0').skip_while(|word| *word != "--admin-listen").skip(1);
    let url = format!("http://{}/metrics", words.next().context("agent has no --admin-listen")?);
    run("nsenter", &["--target", &pid, "--net", "curl", "--silent", "--show-error", "--fail", &url])
}

/// Checks that promtool accepts the text without a warning, and that every metric is declared for one of these
/// exposers.
fn check_metrics(text: &str, exposers: &[Exposer]) -> Result<()> {
    let said = output_of_input("promtool", &["check", "metrics"], text.as_bytes())
        .context("cannot start promtool: run ./dev/setup --test to install it")?;
    let words = format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    ensure!(said.status.success() && words.trim().is_empty(), "promtool check metrics: {words}\n{text}");
    let declared: BTreeSet<&str> =
        Metric::all().filter(|metric| exposers.contains(&metric.exposer)).map(|metric| metric.name).collect();
    let shown = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let other: Vec<&str> = shown.filter(|name| !declared.contains(name)).collect();
    ensure!(other.is_empty(), "not declared for {exposers:?}: {other:?}");
    Ok(())
}

/// Returns the value of a series, given in Prometheus' notation `name{label="value"}` with the labels in alphabetical
/// order.
fn number(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn a_cut_off_node_stops_before_its_service_starts_elsewhere() -> Result<()> {
    let scenario = Scenario::start("node-cut")?;
    let home = scenario.home(WITNESS)?;
    let before = monotonic_ns();
    scenario.cluster.cut(&home)?;
    let away = scenario.elsewhere(WITNESS, &home)?;
    let timeline = scenario.checker.timeline();
    let ended =
        timeline.ended_on(WITNESS, &home, before).expect("an end of the service on the isolated node");
    let started =
        timeline.started_on(WITNESS, &away, before).expect("a start of the service on another node");
    assert!(
        ended < started,
        "the service ended on {home} at {ended} ns, after its start on {away} at {started} ns"
    );

    // All services on the node were stopped in time, so no reset was necessary. After its return, the node still has the same
    // boot.
    assert!(scenario.cluster.machine(&home)?.is_on(), "{home} was reset although nothing was left on it");
    scenario.cluster.heal(&home)?;
    scenario.cluster.wait_for_nodes()?;
    scenario.undisturbed(WITNESS, Duration::from_secs(5))?;
    scenario.finish()
}

#[test]
fn a_node_whose_agent_is_frozen_is_reset() -> Result<()> {
    // The frozen agent cannot stop the service. Only the watchdog can, and it must do so before the service starts elsewhere.
    let mut scenario = Scenario::start("agent-frozen")?;
    let home = scenario.home(WITNESS)?;
    let before = monotonic_ns();
    scenario.cluster.machine(&home)?.signal("ha-node-agent", nix::sys::signal::Signal::SIGSTOP)?;
    wait_until("the watchdog to reset the node", CEILING, || {
        scenario.cluster.machine(&home).is_ok_and(|machine| !machine.is_on())
    })?;
    wait_until("the addresses of the node to be removed", CEILING, || {
        scenario.cluster.addresses(&home).is_ok_and(|left| left.is_empty())
    })?;
    let away = scenario.elsewhere(WITNESS, &home)?;
    let timeline = scenario.checker.timeline();
    let ended = timeline.ended_on(WITNESS, &home, before).expect("an end of the service on the reset node");
    let started =
        timeline.started_on(WITNESS, &away, before).expect("a start of the service on another node");
    assert!(
        ended < started,
        "the service ended on {home} at {ended} ns, after its start on {away} at {started} ns"
    );
    scenario.cluster.power_on(&home)?;
    scenario.cluster.wait_for_nodes()?;
    scenario.finish()
}

#[test]
fn an_idle_node_is_never_reset() -> Result<()> {
    let scenario = Scenario::start("idle-node")?;
    let home = scenario.home(WITNESS)?;
    let idle = scenario.cluster.names(Role::Node).into_iter().find(|node| *node != home);
    let idle = idle.expect("a node without the witness");
    scenario.cluster.machine(&idle)?.hold("ha-node-agent")?;
    // Longer than the watchdog timeout and all deadlines of the fast profile.
    holds_for("the idle node stays on", Duration::from_secs(12), || {
        scenario.cluster.machine(&idle).is_ok_and(ha_e2e::machine::Machine::is_on)
    })?;
    scenario.undisturbed(WITNESS, Duration::from_secs(1))?;
    scenario.finish()
}
