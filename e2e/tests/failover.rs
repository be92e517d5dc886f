//! Tests of guarantees 1 and 2 when a node fails: its service runs on another node, and never on two nodes.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ha_api_types::metric::{Exposer, Metric};
use ha_e2e::cluster::Cluster;
use ha_e2e::command::{output_with_input, run};
use ha_e2e::machine::Role;
use ha_e2e::scenario::{STEP_TIMEOUT, Scenario, WITNESS};
use ha_e2e::wait::{check_holds_for, monotonic_ns, wait_until};
use reqwest::Method;
use serde_json::Value;

#[test]
fn a_killed_node_is_recovered() -> Result<()> {
    let mut scenario = Scenario::start("node-killed")?;
    let active_node = scenario.wait_until_started(WITNESS)?;
    let (epoch, _) = scenario.epoch_and_fence_state(&active_node)?;
    scenario.cluster.power_off(&active_node)?;
    let new_node = scenario.wait_until_moved_from(WITNESS, &active_node)?;
    let (closed, state) = scenario.epoch_and_fence_state(&active_node)?;
    assert!(closed > epoch, "the epoch of the dead node was not closed: {closed}");
    assert_eq!(state, "Fenced");
    check_prometheus_metrics(&scenario, &active_node, &new_node)?;

    // The node returns empty, with a new epoch, and the service stays where it is.
    scenario.cluster.power_on(&active_node)?;
    scenario.cluster.wait_for_nodes()?;
    assert!(scenario.epoch_and_fence_state(&active_node)?.0 >= closed);
    scenario.check_undisturbed(WITNESS, Duration::from_secs(5))?;
    assert_eq!(scenario.wait_until_started(WITNESS)?, new_node);
    scenario.finish()
}

/// Checks the metrics after the failover: the leader exposes the failover and the objects, followers only their own state.
fn check_prometheus_metrics(scenario: &Scenario, active_node: &str, new_node: &str) -> Result<()> {
    let cluster = &scenario.cluster;
    let leader = cluster.leader()?;
    let of_leader = [Exposer::Every, Exposer::Controller, Exposer::Leader];
    let running = format!("hactl_resource_node{{node=\"{new_node}\",resource=\"{WITNESS}\"}}");
    let fenced = format!("hactl_node_fence_state{{node=\"{active_node}\",state=\"Fenced\"}}");
    wait_until("the leader to show the failover", STEP_TIMEOUT, || {
        controller_metrics(cluster, &leader).is_ok_and(|text| {
            series_value(&text, "hactl_failover_duration_seconds_count{phase=\"start\"}") == Some(1.0)
                && series_value(&text, &running) == Some(1.0)
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
        assert_eq!(series_value(&text, series), Some(expected), "{series} in:\n{text}");
    }
    for controller in cluster.machine_names(Role::Controller).iter().filter(|name| **name != leader) {
        let text = controller_metrics(cluster, controller)?;
        check_metrics(&text, &[Exposer::Every, Exposer::Controller])?;
        assert_eq!(series_value(&text, "hactl_leader"), Some(0.0), "{text}");
    }
    // The agent refreshes its gauges twice a second.
    wait_until("the agent to show the service and its armed watchdog", STEP_TIMEOUT, || {
        agent_metrics(cluster, new_node).is_ok_and(|text| {
            ["hactl_agent_watchdog_armed", "hactl_agent_exclusive_services"]
                .iter()
                .all(|series| series_value(&text, series) == Some(1.0))
        })
    })?;
    check_metrics(&agent_metrics(cluster, new_node)?, &[Exposer::Every, Exposer::Agent])
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
    let output = output_with_input("promtool", &["check", "metrics"], text.as_bytes())
        .context("cannot start promtool: run ./dev/setup --test to install it")?;
    let words =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success() && words.trim().is_empty(), "promtool check metrics: {words}\n{text}");
    let declared: BTreeSet<&str> =
        Metric::all().filter(|metric| exposers.contains(&metric.exposer)).map(|metric| metric.name).collect();
    let shown = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let other: Vec<&str> = shown.filter(|name| !declared.contains(name)).collect();
    ensure!(other.is_empty(), "not declared for {exposers:?}: {other:?}");
    Ok(())
}

/// Returns the value of a series, given in Prometheus' notation `name{label="value"}` with the labels in alphabetical
/// order.
fn series_value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn isolated_node_stops_service_before_failover() -> Result<()> {
    let scenario = Scenario::start("node-cut")?;
    let active_node = scenario.wait_until_started(WITNESS)?;
    let before = monotonic_ns();
    scenario.cluster.cut(&active_node)?;
    let new_node = scenario.wait_until_moved_from(WITNESS, &active_node)?;
    let timeline = scenario.checker.timeline();
    let ended =
        timeline.ended_on(WITNESS, &active_node, before).expect("an end of the service on the isolated node");
    let started =
        timeline.started_on(WITNESS, &new_node, before).expect("a start of the service on another node");
    assert!(
        ended < started,
        "the service ended on {active_node} at {ended} ns, after its start on {new_node} at {started} ns"
    );

    // All services on the node were stopped in time, so no reset was necessary. After its return, the node still has the same
    // boot.
    assert!(
        scenario.cluster.machine(&active_node)?.is_on(),
        "{active_node} was reset although nothing was left on it"
    );
    scenario.cluster.heal(&active_node)?;
    scenario.cluster.wait_for_nodes()?;
    scenario.check_undisturbed(WITNESS, Duration::from_secs(5))?;
    scenario.finish()
}

#[test]
fn a_node_whose_agent_is_frozen_is_reset() -> Result<()> {
    // The frozen agent cannot stop the service. Only the watchdog can, and it must do so before the service starts elsewhere.
    let mut scenario = Scenario::start("agent-frozen")?;
    let active_node = scenario.wait_until_started(WITNESS)?;
    let before = monotonic_ns();
    scenario.cluster.machine(&active_node)?.signal("ha-node-agent", nix::sys::signal::Signal::SIGSTOP)?;
    wait_until("the watchdog to reset the node", STEP_TIMEOUT, || {
        scenario.cluster.machine(&active_node).is_ok_and(|machine| !machine.is_on())
    })?;
    wait_until("the addresses of the node to be removed", STEP_TIMEOUT, || {
        scenario.cluster.addresses(&active_node).is_ok_and(|addresses| addresses.is_empty())
    })?;
    let new_node = scenario.wait_until_moved_from(WITNESS, &active_node)?;
    let timeline = scenario.checker.timeline();
    let ended =
        timeline.ended_on(WITNESS, &active_node, before).expect("an end of the service on the reset node");
    let started =
        timeline.started_on(WITNESS, &new_node, before).expect("a start of the service on another node");
    assert!(
        ended < started,
        "the service ended on {active_node} at {ended} ns, after its start on {new_node} at {started} ns"
    );
    scenario.cluster.power_on(&active_node)?;
    scenario.cluster.wait_for_nodes()?;
    scenario.finish()
}

#[test]
fn an_idle_node_is_never_reset() -> Result<()> {
    let scenario = Scenario::start("idle-node")?;
    let active_node = scenario.wait_until_started(WITNESS)?;
    let idle = scenario.cluster.machine_names(Role::Node).into_iter().find(|node| *node != active_node);
    let idle = idle.expect("a node without the witness");
    scenario.cluster.machine(&idle)?.keep_stopped("ha-node-agent")?;
    // The time is longer than the watchdog timeout and all deadlines of the fast profile.
    check_holds_for("the idle node stays on", Duration::from_secs(12), || {
        scenario.cluster.machine(&idle).is_ok_and(ha_e2e::machine::Machine::is_on)
    })?;
    scenario.check_undisturbed(WITNESS, Duration::from_secs(1))?;
    scenario.finish()
}
