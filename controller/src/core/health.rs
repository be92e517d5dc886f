//! State of each node at one moment: whether it is alive, late or closed, its active services, and possible proofs.

use super::fencing::devices::{declared_devices, is_proving};
use super::plan_input::PlanInput;
use super::stored_view::status_of;
use super::world::ClusterView;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::kind::Kind;
use ha_api_types::reason::Reason;
use ha_api_types::record::{
    Action, Assignment, Fence, FenceState, HoldTerms, Mode, NodeReport, Proof, ShutdownKind, SleepProtection,
    WatchdogKind,
};
use ha_api_types::resource::{RequestedState, ServiceState};
use ha_api_types::time::{Millis, MonotonicTime};
use ha_store::election::CommitGaps;
use std::collections::{BTreeMap, BTreeSet};

/// Health of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// No epoch was ever opened for the node.
    Unregistered,
    /// The epoch is open; the first heartbeat has not arrived yet.
    Registering,
    /// The heartbeat is seen under the open epoch.
    Online,
    /// The epoch is open, and the heartbeat is late or has not arrived in time.
    Late,
    /// The heartbeat is seen, and the machine is shutting down: services are moved away or stopped, and no new services
    /// are scheduled.
    ShuttingDown(ShutdownKind),
    /// The agent is down for a restart; its services continue, unmonitored.
    Restarting,
    /// The node left cleanly; its epoch is not closed yet.
    Leaving(ShutdownKind),
    /// The epoch is closed, without a proof yet.
    Fencing,
    /// The epoch is closed, with a proof.
    Down(Proof),
}

/// State of one node.
#[derive(Clone, Debug)]
pub struct NodeHealth {
    /// State of the node's epoch and heartbeat.
    pub health: Health,
    /// `o`: time of the last observed heartbeat, on this process's clock.
    pub observed_at: MonotonicTime,
    /// `o`, restarted after a gap in this process's own commits. A declaration counts from this time.
    pub silent_since: MonotonicTime,
    /// `o + Th`: time from which the node is late without another heartbeat.
    pub late_at: MonotonicTime,
    /// Active services (FENCING, section 4): exclusive services that may run there under the current epoch.
    pub active: BTreeSet<ResourceName>,
    /// W in milliseconds if silence for W and an armed watchdog prove the node dead, otherwise the reason why not.
    pub missed_heartbeat_fencing_delay: Result<Millis, Reason>,
    /// `true` if the node asks other controllers for hold, but not this one, whose candidate key the node has not read.
    /// This process then draws no conclusion from the node's silence (FENCING, section 9).
    pub is_held_by_others: bool,
    /// `true` if a fence device can prove the node dead.
    pub has_device: bool,
    /// `Ok` if an exclusive service may get a permit there, otherwise the reason why not.
    pub fenceable: Result<(), Reason>,
}

impl NodeHealth {
    /// Returns `true` if the agent can receive orders, including starts, and will answer them.
    pub fn is_online(&self) -> bool {
        self.health == Health::Online
    }

    /// Returns `true` if the node's heartbeat is seen, so that the agent can stop a service or hand it over.
    pub fn is_reachable(&self) -> bool {
        match self.health {
            Health::Online | Health::ShuttingDown(_) => true,
            Health::Unregistered
            | Health::Registering
            | Health::Late
            | Health::Restarting
            | Health::Leaving(_)
            | Health::Fencing
            | Health::Down(_) => false,
        }
    }
}

/// All nodes by name.
pub type NodeTable = BTreeMap<NodeName, NodeHealth>;

/// Returns the state of all nodes that any key in etcd names.
pub fn node_table(input: &PlanInput<'_>) -> NodeTable {
    let cluster_view = input.cluster_view;
    let active = active_services(cluster_view);
    let names: BTreeSet<&NodeName> = cluster_view
        .fences
        .keys()
        .chain(cluster_view.nodes.keys())
        .chain(cluster_view.node_reports.keys())
        .collect();
    names
        .into_iter()
        .map(|name| {
            let active = active.get(name).cloned().unwrap_or_default();
            (name.clone(), node_health(input, name, active))
        })
        .collect()
}

/// Time of the last observed heartbeat, and the time until which it counts.
struct HeartbeatTimes {
    observed: MonotonicTime,
    silent_since: MonotonicTime,
    late_at: MonotonicTime,
    /// The node was late before the last gap in this process's commits, after which `silent_since` begins again. No
    /// heartbeat has arrived since, so it remains late.
    was_late: bool,
}

fn heartbeat_times(
    cluster_view: &ClusterView,
    commits: &CommitGaps,
    name: &NodeName,
    now: MonotonicTime,
) -> HeartbeatTimes {
    let valid_ms = cluster_view.heartbeat_valid_ms(name);
    let observed = cluster_view.observations.get(name).map_or(now, |observation| observation.since);
    let pause = commits.last_pause(observed, valid_ms / 2);
    let silent_since = pause.map_or(observed, |(_, end)| end);
    let was_late = pause.is_some_and(|(begin, _)| begin >= observed + valid_ms);
    HeartbeatTimes { observed, silent_since, late_at: silent_since + valid_ms, was_late }
}

/// Returns the time at which the first of these nodes becomes late without another heartbeat.
pub fn first_late_at(
    cluster_view: &ClusterView,
    commits: &CommitGaps,
    names: &[NodeName],
    now: MonotonicTime,
) -> Option<MonotonicTime> {
    names.iter().map(|name| heartbeat_times(cluster_view, commits, name, now).late_at).min()
}

fn node_health(input: &PlanInput<'_>, name: &NodeName, active: BTreeSet<ResourceName>) -> NodeHealth {
    let cluster_view = input.cluster_view;
    let fence = cluster_view.fences.get(name).map(|fence| &fence.value);
    let report = cluster_view.node_reports.get(name).map(|report| &report.value);
    let HeartbeatTimes { observed, silent_since, late_at, was_late } =
        heartbeat_times(cluster_view, input.commit_gaps, name, input.now.monotonic_raw);
    let spec = cluster_view.nodes.get(name).map(|node| &node.value.spec.fencing);
    let has_device = declared_devices(input, name).iter().any(|device| is_proving(input, name, device));
    let trust_watchdog_on_virtual_machine =
        spec.is_some_and(|fencing| fencing.trust_watchdog_on_virtual_machine);
    NodeHealth {
        health: health(input, name, fence, report, was_late || input.now.monotonic_raw >= late_at),
        observed_at: observed,
        silent_since,
        late_at,
        active,
        missed_heartbeat_fencing_delay: missed_heartbeat_fencing_delay(
            input,
            name,
            trust_watchdog_on_virtual_machine,
        ),
        is_held_by_others: hold_terms(fence, report)
            .is_some_and(|terms| !terms.includes_candidate(input.candidate_key.joined)),
        has_device,
        fenceable: match report {
            Some(_) if cluster_view.is_node_report_unreadable(name) => Err(Reason::Unreadable),
            None => Err(Reason::WatchdogMissing),
            Some(report) => check_watchdog(cluster_view, report),
        },
    }
}

fn health(
    input: &PlanInput<'_>,
    name: &NodeName,
    fence: Option<&Fence>,
    report: Option<&NodeReport>,
    is_late: bool,
) -> Health {
    let Some(fence) = fence else { return Health::Unregistered };
    match fence.state {
        FenceState::Fencing => Health::Fencing,
        FenceState::Fenced | FenceState::Closed => match &fence.proof {
            Some(proof) => Health::Down(proof.clone()),
            // The record was closed, but no epoch was ever opened.
            None => Health::Unregistered,
        },
        FenceState::Open => {
            let mode = report.map_or(Mode::Registering, |report| report.mode);
            let has_heartbeat = input.cluster_view.is_heartbeat_unreadable(name)
                || input.cluster_view.alive.get(name).is_some_and(|alive| alive.value.epoch == fence.epoch);
            if input.cluster_view.is_node_report_unreadable(name) {
                // Until the report can be read, the leader sends no orders to this node and draws no conclusion from
                // its report.
                return Health::Late;
            }
            match mode {
                Mode::Restart => Health::Restarting,
                Mode::Left(shutdown_kind) => Health::Leaving(shutdown_kind),
                Mode::Registering => {
                    if is_late {
                        Health::Late
                    } else {
                        Health::Registering
                    }
                }
                Mode::Active | Mode::Maintenance | Mode::Disarmed | Mode::Shutdown(_)
                    if is_late || !has_heartbeat =>
                {
                    Health::Late
                }
                Mode::Active | Mode::Maintenance | Mode::Disarmed => Health::Online,
                Mode::Shutdown(shutdown_kind) => Health::ShuttingDown(shutdown_kind),
            }
        }
    }
}

/// Returns `Ok` if a node's watchdog works, is of a kind that the cluster accepts, and is tested if the cluster
/// requires a test.
pub fn check_watchdog(cluster_view: &ClusterView, report: &NodeReport) -> Result<(), Reason> {
    check_watchdog_except(cluster_view, report, None)
}

/// Behaves like [`check_watchdog`], but ignores the problem `ignored`.
fn check_watchdog_except(
    cluster_view: &ClusterView,
    report: &NodeReport,
    ignored: Option<Reason>,
) -> Result<(), Reason> {
    let fencing =
        cluster_view.cluster.as_ref().map(|cluster| cluster.value.spec.fencing.clone()).unwrap_or_default();
    let watchdog = &report.watchdog;
    match watchdog.kind {
        WatchdogKind::Kernel => {}
        WatchdogKind::Simulated if fencing.allow_simulated_watchdog => {}
        WatchdogKind::Simulated => return Err(Reason::WatchdogSimulated),
        WatchdogKind::None => return Err(watchdog.reason.unwrap_or(Reason::WatchdogMissing)),
    }
    if report.watchdog_failed {
        return Err(Reason::WatchdogFailed);
    }
    if !watchdog.problem.is_empty() {
        let problem = watchdog.reason.unwrap_or(Reason::WatchdogFailed);
        if ignored != Some(problem) {
            return Err(problem);
        }
    }
    if fencing.require_tested && !watchdog.tested {
        return Err(Reason::WatchdogUntested);
    }
    Ok(())
}

/// Returns the terms under which the node asks controllers for hold: the terms in its report or, after a close, the
/// terms that were stored with the close.
pub(super) fn hold_terms(fence: Option<&Fence>, report: Option<&NodeReport>) -> Option<HoldTerms> {
    match fence {
        Some(fence) if fence.state != FenceState::Open => fence.hold,
        Some(_) | None => report?.hold_terms(),
    }
}

/// Returns W in milliseconds if proof (a) is possible: silence for W proves the node dead.
///
/// The proof depends on the node's own report, which the close guards: armed, with a watchdog that is accepted. A
/// virtual machine can be paused with its clock. No waiting time covers that, so the operator must allow it.
fn missed_heartbeat_fencing_delay(
    input: &PlanInput<'_>,
    name: &NodeName,
    trust_watchdog_on_virtual_machine: bool,
) -> Result<Millis, Reason> {
    let cluster_view = input.cluster_view;
    let Some(report) = cluster_view.node_reports.get(name) else { return Err(Reason::FencingUnavailable) };
    if let Some(fence) = cluster_view.fences.get(name)
        && fence.value.state != FenceState::Open
        && (report.mod_revision > fence.mod_revision || report.value.mode == Mode::Registering)
    {
        // The report was overwritten after the close; the fence keeps the waiting time that followed from it.
        return fence.value.armed_fencing_delay_ms.ok_or(Reason::FencingUnavailable);
    }
    if cluster_view.is_node_report_unreadable(name) {
        return Err(Reason::Unreadable);
    }
    if !report.value.armed {
        return Err(Reason::FencingUnavailable);
    }
    // A watchdog daemon that has died does not pet, so an armed watchdog resets the node even earlier.
    check_watchdog_except(cluster_view, &report.value, Some(Reason::WatchdogMissing))?;
    if report.value.is_virtual && !trust_watchdog_on_virtual_machine {
        return Err(Reason::FencingUnavailable);
    }
    // A machine that sleeps is paused with its watchdog (FENCING R5.32, R5.34). An agent that does not report sleep
    // protection counts as protected.
    if report.value.sleep_protection == Some(SleepProtection::None) && !trust_watchdog_on_virtual_machine {
        return Err(Reason::SleepUnprotected);
    }
    Ok(report.value.fencing_delay_ms())
}

fn active_services(cluster_view: &ClusterView) -> BTreeMap<NodeName, BTreeSet<ResourceName>> {
    let mut active: BTreeMap<NodeName, BTreeSet<ResourceName>> = BTreeMap::new();
    // A deleted resource is no longer managed. A resource with an unreadable spec is still managed, and so is an Ignored
    // resource until its state is Ignored: until then, an agent may still act on it and guards it (R7.18, R7.19).
    let managed = |name: &ResourceName| match cluster_view.resources.get(name) {
        Some(resource) => {
            resource.value.spec.state != RequestedState::Ignored
                || status_of(cluster_view, &resource.value).state != ServiceState::Ignored
        }
        None => cluster_view.unreadable.contains_key(&cluster_view.keys.spec(Kind::Resource, name)),
    };
    for (name, reports) in &cluster_view.service_reports {
        for (node, report) in reports {
            let may_still_run = cluster_view.is_report_current(name, node, report);
            if may_still_run && report.value.exclusive && report.value.phase.may_run() && managed(name) {
                active.entry(node.clone()).or_default().insert(name.clone());
            }
        }
    }
    // R8.17: the node was ordered to stop a copy that may have arrived there in a live migration. Until the node
    // answers, the service may run there, regardless of its earlier reports.
    for (name, assignment) in &cluster_view.assignments {
        let Assignment { node, epoch, action_uid, action, definition, .. } = &assignment.value;
        let is_stop_ordered = matches!(action, Action::Stop { .. })
            && definition.exclusive
            && definition.driver.can_migrate()
            && !definition.driver.waits_for_resume_permit();
        let has_answered = || {
            cluster_view.service_report(name, node).is_some_and(|report| {
                report.value.action_uid.as_ref() == Some(action_uid) && report.value.epoch == *epoch
            })
        };
        if is_stop_ordered
            && cluster_view.unreleased_epoch(node) == Some(*epoch)
            && !has_answered()
            && managed(name)
        {
            active.entry(node.clone()).or_default().insert(name.clone());
        }
    }
    for (name, status) in &cluster_view.resource_statuses {
        let status = &status.value;
        let unconfirmed = match status.state {
            ServiceState::Error => status.stop_confirmed != Some(true),
            ServiceState::RequestStop | ServiceState::Stopping => status.stop_confirmed == Some(false),
            ServiceState::Queued
            | ServiceState::RequestStart
            | ServiceState::Starting
            | ServiceState::Started
            | ServiceState::Stopped
            | ServiceState::Migrate
            | ServiceState::Relocate
            | ServiceState::Fence
            | ServiceState::Recovery
            | ServiceState::Freeze
            | ServiceState::Disabled
            | ServiceState::Ignored
            | ServiceState::Deleting => false,
        };
        let exclusive =
            cluster_view.resources.get(name).is_some_and(|resource| resource.value.spec.exclusive);
        if let (true, true, Some(node), Some(epoch)) = (unconfirmed, exclusive, &status.node, status.epoch)
            && cluster_view.may_run_under_epoch(node, epoch)
            && managed(name)
        {
            active.entry(node.clone()).or_default().insert(name.clone());
        }
    }
    active
}
