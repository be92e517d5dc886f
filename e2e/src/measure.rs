//! Measurements of the benchmark: operations and faults, and the time from cause to effect.

use anyhow::{Context, Result};
use ha_api_types::record::NodeReport;
use serde_json::json;

use crate::etcd::{Change, Watch};
use crate::machine::Role;
use crate::power::PowerSupply;
use crate::scenario::{STEP_TIMEOUT, Scenario, WITNESS, witness_spec};
use crate::wait::{monotonic_ns, wait_for, wait_until};

/// A kind of time, measured several times.
#[derive(Debug, Clone)]
pub struct Series {
    /// Start and end of the measured time.
    pub name: String,
    /// Limit that the timing settings imply, in milliseconds; `None` if they imply no limit.
    pub allowed_ms: Option<f64>,
    /// Measured times, in milliseconds.
    pub times_ms: Vec<f64>,
}

impl Series {
    fn new(name: &str, allowed_ms: Option<f64>) -> Self {
        Self { name: name.to_owned(), allowed_ms, times_ms: Vec::new() }
    }

    fn add(&mut self, from_ns: u64, to_ns: u64) {
        // The milliseconds of a run are small enough for an exact f64.
        self.times_ms.push((to_ns as f64 - from_ns as f64) / 1e6);
    }

    /// Returns minimum, median and maximum; `None` without a measurement.
    pub fn summary(&self) -> Option<(f64, f64, f64)> {
        let mut sorted = self.times_ms.clone();
        sorted.sort_by(f64::total_cmp);
        let (first, last) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some((first, median, last))
    }
}

/// Measures the time from a new resource's request to the service's first line.
///
/// # Errors
/// Fails if a service does not start or stop in time.
pub fn apply_to_running(scenario: &Scenario, rounds: usize) -> Result<Vec<Series>> {
    let mut series = Series::new("apply → running", None);
    for round in 0..rounds {
        let name = format!("apply-{round}");
        let begin_ns = monotonic_ns();
        scenario.create_witness(&name)?;
        let witness = scenario.witness(&name);
        let line = wait_for("the first sign of life", STEP_TIMEOUT, || witness.first_line_after(begin_ns))?;
        series.add(begin_ns, line.at_ns);
        scenario.apply("resources", &name, &json!({"state": "Stopped"}))?;
        scenario.wait_until_stopped(&name)?;
    }
    Ok(vec![series])
}

/// Measures the time from the death of a service's process to the first line of the next process.
///
/// # Errors
/// Fails if the service does not start again in time.
pub fn crash_to_running(scenario: &Scenario, rounds: usize) -> Result<Vec<Series>> {
    let name = "crash";
    let mut spec = witness_spec(name)?;
    // The service counts as stable before each crash, so no crash counts as a failed start.
    spec["timeouts"] = json!({"stableSeconds": 0.5});
    scenario.apply("resources", name, &spec)?;
    let mut series = Series::new("crash → running again", None);
    for _ in 0..rounds {
        let active_node = scenario.wait_until_started(name)?;
        let process =
            scenario.checker.process(name, &active_node).context("process of the service not found")?;
        let begin = monotonic_ns();
        wait_until("the service to be stable", STEP_TIMEOUT, || monotonic_ns() > begin + 1_000_000_000)?;
        let begin_ns = monotonic_ns();
        process.signal(nix::sys::signal::Signal::SIGKILL)?;
        let witness = scenario.witness(name);
        // The old process may write its last line after the kill, so look for a line of another process.
        let old = witness.lines()?.last().map(|line| line.pid);
        let line = wait_for("the next sign of life", STEP_TIMEOUT, || {
            witness.lines().ok()?.into_iter().find(|line| line.at_ns > begin_ns && Some(line.pid) != old)
        })?;
        series.add(begin_ns, line.at_ns);
    }
    scenario.apply("resources", name, &json!({"state": "Stopped"}))?;
    Ok(vec![series])
}

/// A way to lose a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeLoss {
    /// All processes of the node are killed.
    Power,
    /// The node's network link goes down.
    Network,
    /// All processes of the node and of the leader are killed.
    PowerAndLeader,
    /// The node's network link goes down, and a fence device confirms that the node is off.
    NetworkWithFenceDevice,
}

impl NodeLoss {
    fn name(self) -> &'static str {
        match self {
            NodeLoss::Power => "node killed",
            NodeLoss::Network => "node isolated",
            NodeLoss::PowerAndLeader => "node and leader killed",
            NodeLoss::NetworkWithFenceDevice => "node isolated, device confirms",
        }
    }

    /// Returns the limit from the last heartbeat to the permit, by the settings that the lost node reported.
    fn allowed_ms(self, report: &NodeReport) -> f64 {
        let allowed = match self {
            NodeLoss::Power | NodeLoss::Network => report.fencing_delay_ms(),
            NodeLoss::PowerAndLeader => report.fencing_delay_ms() + report.timings.leader_lease_ms,
            NodeLoss::NetworkWithFenceDevice => report.timings.heartbeat_valid_ms,
        };
        allowed as f64
    }
}

/// Measures the times from a lost node's last heartbeat to the start permit on another node, and to the service's first line
/// there.
///
/// # Errors
/// Fails if the service does not run on another node in time.
pub fn loss_to_running(scenario: &mut Scenario, loss: NodeLoss, rounds: usize) -> Result<Vec<Series>> {
    let supply =
        if loss == NodeLoss::NetworkWithFenceDevice { Some(add_fence_devices(scenario)?) } else { None };
    let mut series = Vec::new();
    for _ in 0..rounds {
        let active_node = scenario.wait_until_started(WITNESS)?;
        let report = scenario.cluster.node_report(&active_node)?;
        let allowed = Some(loss.allowed_ms(&report));
        if series.is_empty() {
            series.push(Series::new(&format!("{}: last heartbeat → permit elsewhere", loss.name()), allowed));
            series
                .push(Series::new(&format!("{}: last heartbeat → running elsewhere", loss.name()), allowed));
        }
        let watch = scenario.cluster.etcdctl().watch(scenario.cluster.keys().root())?;
        let alive = scenario.cluster.keys().alive(&active_node.as_str().into());
        let mut seen_changes: Vec<Change> = Vec::new();
        wait_until("a heartbeat to be watched", STEP_TIMEOUT, || {
            receive_change(&watch, &mut seen_changes, |change| change.key == alive)
        })?;
        let begin_ns = monotonic_ns();
        let leader = cause_loss(scenario, loss, &active_node)?;
        let new_node = scenario.wait_until_moved_from(WITNESS, &active_node)?;
        let line = wait_for("a line of the witness on its new node", STEP_TIMEOUT, || {
            scenario
                .witness(WITNESS)
                .lines()
                .ok()?
                .into_iter()
                .find(|line| line.at_ns > begin_ns && line.node == new_node)
        })?;
        let report_key = scenario.cluster.keys().service_report(&new_node.as_str().into(), &WITNESS.into());
        let is_permit = |change: &Change| {
            change.key == report_key
                && change.received_ns > begin_ns
                && change.entry.as_ref().is_some_and(|entry| entry.value["phase"] == "Starting")
        };
        wait_until("the permit to be watched", STEP_TIMEOUT, || {
            receive_change(&watch, &mut seen_changes, is_permit)
        })?;
        let permit =
            seen_changes.iter().find(|change| is_permit(change)).context("no permit was observed")?;
        // A deletion of the key is not a heartbeat.
        let last = seen_changes.iter().rfind(|change| {
            change.key == alive && change.entry.is_some() && change.received_ns < permit.received_ns
        });
        let last = last.context("no heartbeat before the permit was observed")?.received_ns;
        series[0].add(last, permit.received_ns);
        series[1].add(last, line.at_ns);
        restore(scenario, loss, &active_node, leader.as_deref())?;
    }
    drop(supply);
    Ok(series)
}

/// Takes the node down. Returns the controller that was taken down with it.
fn cause_loss(scenario: &mut Scenario, loss: NodeLoss, active_node: &str) -> Result<Option<String>> {
    match loss {
        NodeLoss::Power => scenario.cluster.power_off(active_node).map(|()| None),
        NodeLoss::Network | NodeLoss::NetworkWithFenceDevice => {
            scenario.cluster.cut(active_node).map(|()| None)
        }
        NodeLoss::PowerAndLeader => {
            let leader = scenario.cluster.leader()?;
            scenario.cluster.power_off(&leader)?;
            scenario.cluster.power_off(active_node)?;
            Ok(Some(leader))
        }
    }
}

fn restore(scenario: &mut Scenario, loss: NodeLoss, active_node: &str, leader: Option<&str>) -> Result<()> {
    if matches!(loss, NodeLoss::Network | NodeLoss::NetworkWithFenceDevice) {
        scenario.cluster.heal(active_node)?;
    }
    for machine in [Some(active_node), leader].into_iter().flatten() {
        if !scenario.cluster.machine(machine)?.is_on() {
            scenario.cluster.power_on(machine)?;
        }
    }
    if let Some(leader) = leader {
        let api = scenario.cluster.api(leader)?;
        wait_until("the controller to be ready again", STEP_TIMEOUT, || api.is_ready())?;
    }
    scenario.cluster.wait_for_nodes()
}

/// Collects the changes that the watch has reported. Returns `true` if any change so far matches.
fn receive_change(watch: &Watch, seen_changes: &mut Vec<Change>, matches: impl Fn(&Change) -> bool) -> bool {
    seen_changes.extend(watch.changes.try_iter());
    seen_changes.iter().any(matches)
}

/// Gives every node a working fence device.
///
/// # Errors
/// Fails if the power supply cannot be started, or if the API refuses a node.
pub fn add_fence_devices(scenario: &Scenario) -> Result<PowerSupply> {
    let socket = scenario.cluster.volatile_directory().join("power.sock");
    let supply = PowerSupply::start(scenario.cluster.directory(), &socket)?;
    for node in scenario.cluster.machine_names(Role::Node) {
        let device = json!({"name": "power", "kind": "Power", "action": "Off", "timeoutSeconds": 20,
            "parts": [{"agent": "fence_sandbox", "attributes": {"socket": socket, "plug": node}}]});
        scenario.apply(
            "nodes",
            &node,
            &json!({"fencing": {"trustWatchdogOnVirtualMachine": true, "devices": [device]}}),
        )?;
    }
    Ok(supply)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(times_ms: &[f64], expected: Option<(f64, f64, f64)>) {
        let series = Series { times_ms: times_ms.to_vec(), ..Series::new("x", None) };
        assert_eq!(series.summary(), expected, "{times_ms:?}");
    }

    #[test]
    fn measurement_summary_is_min_median_max() {
        check(&[], None);
        check(&[3.0], Some((3.0, 3.0, 3.0)));
        check(&[3.0, 1.0, 2.0], Some((1.0, 2.0, 3.0)));
        check(&[4.0, 1.0, 2.0, 3.0], Some((1.0, 2.5, 4.0)));
    }
}
