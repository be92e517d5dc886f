//! A campaign: a cluster with services, a schedule of faults, and the recovery at the end.

use super::injector::{self, InjectedFault};
use super::kind::FaultKind;
use super::report::Report;
use super::schedule::{self, ClusterSize, Fault};
use super::write_recorder::WriteRecorder;
use crate::cluster::Cluster;
use crate::machine::Role;
use crate::plan::Plan;
use crate::scenario::{Scenario, witness_spec};
use crate::wait::{monotonic_ns, wait_until};
use anyhow::{Context, Result};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Number of services, which run during the whole campaign.
const SERVICE_COUNT: usize = 4;
/// Time between two checks for due actions.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Boot time of a reset machine, in nanoseconds. It is long enough that the services sometimes fail over.
const BOOT_DURATION_NS: u64 = 3_000_000_000;
/// Longest time for the whole recovery. The longest wait in the product is the deadline of a freeze.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(300);
/// Quota of etcd's database, in bytes; small enough to fill within seconds.
const STORE_QUOTA_BYTES: u64 = 32 << 20;
/// Size of a journal's disk, in kilobytes; small enough to fill immediately.
const DISK_KILOBYTES: u32 = 4096;

/// Parameters of a campaign.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Seed of the schedule of faults.
    pub seed: u64,
    /// Number of scheduled faults.
    pub faults: u32,
    /// Time over which the faults are spread, in milliseconds.
    pub duration_ms: u64,
}

/// Returns the name of the service with this index: `service-1` for index 0.
pub fn service_name(index: usize) -> String {
    format!("service-{}", index + 1)
}

/// Runs a campaign in its own cluster, with its data in `directory`. Calls `print` with a line for each fault.
///
/// # Errors
/// Fails if a service ran twice at the same time, an acknowledged write was lost, or a part did not recover.
pub fn run(directory: &Path, settings: Settings, print: &mut dyn FnMut(&str)) -> Result<Report> {
    let plan = Plan {
        profile: "Fast".to_owned(),
        store_bytes: Some(STORE_QUOTA_BYTES),
        disk_kilobytes: Some(DISK_KILOBYTES),
        ..Plan::test(directory)
    };
    let cluster = Cluster::start(plan)?;
    let checker = cluster.checker(&["ha-witness"]);
    let scenario = Scenario { cluster, checker };
    // Fencing is not rate-limited, because the faults make nodes fail often.
    scenario.apply(
        "clusters",
        "default",
        &json!({"timing": {"profile": "Fast"}, "fencing": {"allowSimulatedWatchdog": true, "maxFencing": "100%"}}),
    )?;
    for index in 0..SERVICE_COUNT {
        let mut spec = witness_spec(&service_name(index))?;
        // The faults make services fail often. Other tests cover the limits of restarts and relocations.
        spec["maxRestart"] = json!(100);
        spec["maxRelocate"] = json!(100);
        scenario.apply("resources", &service_name(index), &spec)?;
    }
    for index in 0..SERVICE_COUNT {
        scenario.wait_until_started(&service_name(index))?;
    }
    let write_recorder = WriteRecorder::open(&scenario.cluster)?;
    let mut campaign =
        Campaign { scenario, active_faults: Vec::new(), reset_nodes: Vec::new(), report: Report::default() };
    let start_ns = monotonic_ns();
    let size = ClusterSize {
        nodes: campaign.scenario.cluster.machine_names(Role::Node).len(),
        controllers: campaign.scenario.cluster.machine_names(Role::Controller).len(),
        members: campaign.scenario.cluster.machine_names(Role::Etcd).len(),
        services: SERVICE_COUNT,
    };
    for fault in schedule::draw_schedule(settings.seed, size, settings.faults, settings.duration_ms) {
        campaign.advance_until(start_ns + fault.at_ms * 1_000_000, start_ns)?;
        campaign.inject(fault, start_ns, print)?;
    }
    campaign.advance_until(u64::MAX, start_ns)?;
    print("all faults have ended; waiting for the cluster to recover");
    let ended_ns = monotonic_ns();
    campaign.wait_for_recovery()?;
    let Campaign { scenario, mut report, .. } = campaign;
    report.recovery_ms = (monotonic_ns() - ended_ns) / 1_000_000;
    let recorded_writes = write_recorder.close()?;
    recorded_writes
        .check(|name| scenario.object("resources", name))
        .context("an acknowledged write was lost")?;
    report.acknowledged = recorded_writes.acknowledged;
    report.failed = recorded_writes.failed;
    let timeline = scenario.checker.timeline();
    for index in 0..SERVICE_COUNT {
        report.add_longest_interruption(
            &service_name(index),
            timeline.changes(&service_name(index)),
            start_ns,
        );
    }
    scenario.finish()?;
    Ok(report)
}

struct Campaign {
    scenario: Scenario,
    /// Faults in effect, each with the name of its target.
    active_faults: Vec<InjectedFault>,
    /// Nodes that were reset, each with the time of its next start. Real hardware restarts after a watchdog reset.
    reset_nodes: Vec<(String, u64)>,
    report: Report,
}

impl Campaign {
    /// Waits until `until_ns`, or until no fault is in effect if `until_ns` is the maximum. In the meantime, undoes due
    /// faults and boots nodes that were reset.
    fn advance_until(&mut self, until_ns: u64, start_ns: u64) -> Result<()> {
        loop {
            let now = monotonic_ns();
            let due = |injected: &InjectedFault| {
                injected.fault.until_ms.is_some_and(|until_ms| start_ns + until_ms * 1_000_000 <= now)
            };
            while let Some(index) = self.active_faults.iter().position(due) {
                let injected = self.active_faults.remove(index);
                injector::undo(&mut self.scenario, &injected).with_context(|| {
                    format!("undoing {} at {}", injected.fault.kind.title(), injected.target)
                })?;
            }
            self.boot_reset_nodes(now)?;
            if now >= until_ns || (until_ns == u64::MAX && self.active_faults.is_empty()) {
                return Ok(());
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn inject(&mut self, fault: Fault, start_ns: u64, print: &mut dyn FnMut(&str)) -> Result<()> {
        let seconds = (monotonic_ns() - start_ns) as f64 / 1e9;
        let title = fault.kind.title();
        match injector::inject(&mut self.scenario, fault) {
            Ok(injected) => {
                let lasts = fault.until_ms.map(|until_ms| until_ms.saturating_sub(fault.at_ms) as f64 / 1e3);
                let lasts = lasts.map_or_else(String::new, |lasts| format!(", for {lasts:.1} s"));
                print(&format!("{seconds:8.1} s  {title}: {}{lasts}", injected.target));
                *self.report.injected.entry(fault.kind).or_default() += 1;
                if fault.until_ms.is_some() {
                    self.active_faults.push(injected);
                }
            }
            // The target is already down, or etcd, which the fault needs, does not respond.
            Err(error) => {
                print(&format!("{seconds:8.1} s  {title}: not possible now: {error:#}"));
                self.report.impossible += 1;
                self.clean_up_after(fault)?;
            }
        }
        Ok(())
    }

    /// Undoes a fault that was injected only in part.
    fn clean_up_after(&mut self, fault: Fault) -> Result<()> {
        if fault.kind == FaultKind::StoreLeaderIsolated {
            for member in self.scenario.cluster.machine_names(Role::Etcd) {
                if !self.active_faults.iter().any(|injected| injected.target == member) {
                    self.scenario.cluster.heal(&member)?;
                }
            }
        }
        if fault.kind == FaultKind::StoreFull {
            // The fault is due immediately, so the next check undoes it.
            let fault = Fault { until_ms: Some(fault.at_ms), ..fault };
            self.active_faults.push(InjectedFault { fault, target: "store".to_owned() });
        }
        Ok(())
    }

    fn boot_reset_nodes(&mut self, now: u64) -> Result<()> {
        for node in self.scenario.cluster.machine_names(Role::Node) {
            let cut = self
                .active_faults
                .iter()
                .any(|injected| injected.fault.kind == FaultKind::PowerCut && injected.target == node);
            let already_counted = self.reset_nodes.iter().any(|(reset_node, _)| *reset_node == node);
            if !cut && !already_counted && !self.scenario.cluster.machine(&node)?.is_on() {
                self.report.resets += 1;
                self.reset_nodes.push((node, now + BOOT_DURATION_NS));
            }
        }
        while let Some(index) = self.reset_nodes.iter().position(|(_, at_ns)| *at_ns <= now) {
            let (node, _) = self.reset_nodes.remove(index);
            // This call removes the parts of the node outside its process tree.
            self.scenario.cluster.power_off(&node)?;
            self.scenario.cluster.power_on(&node)?;
        }
        Ok(())
    }

    fn wait_for_recovery(&mut self) -> Result<()> {
        wait_until("every node that was reset to be on", RECOVERY_TIMEOUT, || {
            self.boot_reset_nodes(monotonic_ns()).is_ok() && self.reset_nodes.is_empty()
        })?;
        let scenario = &self.scenario;
        wait_until("all etcd members to be healthy", RECOVERY_TIMEOUT, || {
            scenario.cluster.etcdctl().is_healthy()
        })?;
        for controller in scenario.cluster.machine_names(Role::Controller) {
            let api = scenario.cluster.api(&controller)?;
            wait_until(&format!("{controller} to be ready"), RECOVERY_TIMEOUT, || api.is_ready())?;
        }
        for node in scenario.cluster.machine_names(Role::Node) {
            let mut last_state = String::new();
            wait_until(&format!("{node} to be online"), RECOVERY_TIMEOUT, || {
                last_state =
                    scenario.object("nodes", &node).unwrap_or_default()["status"]["state"].to_string();
                last_state == "\"Online\""
            })
            .with_context(|| format!("{node} is {last_state}"))?;
        }
        for index in 0..SERVICE_COUNT {
            let active_node = scenario.wait_until_started(&service_name(index))?;
            anyhow::ensure!(
                scenario.checker.machines_running(&service_name(index)) == BTreeSet::from([active_node])
            );
        }
        Ok(())
    }
}
