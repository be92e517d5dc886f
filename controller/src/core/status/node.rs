//! Computes the status of each node from its fence record, reports and health, and removes the status of deleted nodes.

use super::{put_condition, remove, write};
use crate::core::fencing::probes;
use crate::core::health::{Health, NodeHealth, NodeTable};
use crate::core::placement::check_online;
use crate::core::plan::{Plan, node_event};
use crate::core::plan_input::PlanInput;
use crate::core::resource_requests::requests;
use crate::core::usage;
use ha_api_types::event::{Event, EventType};
use ha_api_types::id::NodeName;
use ha_api_types::kind::Kind;
use ha_api_types::meta::rename_conditions;
use ha_api_types::node::{NodeState, NodeStatus, WatchdogStatus};
use ha_api_types::quantity::{Amounts, Quantity};
use ha_api_types::reason::{Reason, capitalized};
use ha_api_types::record::{Action, FenceState, Mode, NodeReport, Proof, SleepProtection, WatchdogKind};
use ha_api_types::time::{DecimalSeconds, Millis, Timestamp};
use std::collections::BTreeMap;

/// Minimum interval between writes of `lastHeartbeatTime`, in seconds. It is not written for each heartbeat.
const HEARTBEAT_WRITE_SECONDS: i64 = 60;
/// Time for which the status of a deleted node is kept, in milliseconds.
const GONE_RETENTION_MS: Millis = 3_600_000;

pub(super) fn plan(input: &PlanInput<'_>, nodes: &NodeTable, plan: &mut Plan) {
    let cluster_view = input.cluster_view;
    let loads = assigned_requests(input);
    for (name, node) in nodes {
        let stored_status = cluster_view.node_statuses.get(name);
        if !cluster_view.nodes.contains_key(name) && stored_status.is_none() && !registers_deleted(plan, name)
        {
            continue;
        }
        let status = status(input, name, node, &loads, plan);
        let mut events =
            not_ready_event(input, name, stored_status.map(|stored_status| &stored_status.value), &status);
        events.extend(maintenance_event(
            input,
            name,
            stored_status.map(|stored_status| stored_status.value.state),
            status.state,
        ));
        write(input, plan, Kind::Node, name, stored_status, &status, events);
    }
    for (name, stored_status) in &cluster_view.node_statuses {
        if cluster_view.nodes.contains_key(name) {
            continue;
        }
        let is_gone = stored_status.value.state == NodeState::Gone;
        if !is_gone || registers_deleted(plan, name) {
            continue;
        }
        let removed_at = stored_status.first_seen_at + GONE_RETENTION_MS;
        plan.wake_at(input, removed_at, "the status of a deleted node is removed");
        if input.now.monotonic_raw >= removed_at {
            plan.actions.retain(|action| {
                action.subject != crate::core::plan::Subject::Status(Kind::Node, name.to_string())
            });
            remove(input, plan, Kind::Node, name, stored_status);
        }
    }
}

/// Returns `true` if the machine of a deleted node requests an epoch. The status shows this until an operator acts.
fn registers_deleted(plan: &Plan, name: &str) -> bool {
    plan.waits_of(Kind::Node, name).any(|waiting| waiting.reason == Reason::NotFound)
}

/// Returns the event for a node that becomes not ready for a reason that has no other event: its agent was stopped for
/// a restart and has not started again, another machine registers under its name, or its object was deleted.
fn not_ready_event(
    input: &PlanInput<'_>,
    name: &NodeName,
    stored_status: Option<&NodeStatus>,
    status: &NodeStatus,
) -> Vec<Event> {
    let ready =
        |status: &NodeStatus| status.conditions.iter().find(|condition| condition.kind == "Ready").cloned();
    let Some(condition) = ready(status) else { return Vec::new() };
    let before = stored_status.and_then(ready).map(|condition| condition.reason);
    let has_no_other_event =
        matches!(condition.reason, Reason::AgentDown | Reason::DuplicateNode | Reason::NotFound);
    if !has_no_other_event || before == Some(condition.reason) {
        return Vec::new();
    }
    vec![node_event(input, name, EventType::Warning, condition.reason, condition.message)]
}

/// Emits an event when maintenance of an online node begins or ends.
fn maintenance_event(
    input: &PlanInput<'_>,
    name: &NodeName,
    before: Option<NodeState>,
    state: NodeState,
) -> Option<Event> {
    let message = match (before, state) {
        (Some(NodeState::Online), NodeState::Maintenance) => {
            "Node entered maintenance; its services are being moved away"
        }
        (Some(NodeState::Maintenance), NodeState::Online) => "Node left maintenance",
        (_, _) => return None,
    };
    Some(node_event(input, name, EventType::Normal, Reason::Maintenance, message))
}

/// Returns the number of services and their requests, by the node that they are assigned to.
fn assigned_requests(input: &PlanInput<'_>) -> BTreeMap<NodeName, (u32, Amounts)> {
    let mut loads: BTreeMap<NodeName, (u32, Amounts)> = BTreeMap::new();
    for (name, assignment) in &input.cluster_view.assignments {
        let runs = match assignment.value.action {
            Action::Start | Action::Restart | Action::Migrate { .. } => true,
            Action::Stop { .. } | Action::DoNothing => false,
        };
        let requests = input
            .cluster_view
            .resources
            .get(name)
            .map(|report| requests(input.cluster_view, &report.value))
            .unwrap_or_default();
        let (count, total) = loads.entry(assignment.value.node.clone()).or_default();
        if runs {
            *count += 1;
            total.cpu = add(total.cpu, requests.cpu);
            total.memory = add(total.memory, requests.memory);
            total.disk = add(total.disk, requests.disk);
        }
    }
    loads
}

fn add(left: Option<Quantity>, right: Option<Quantity>) -> Option<Quantity> {
    match (left, right) {
        (None, None) => None,
        (left, right) => Some(Quantity::from_milli(
            left.unwrap_or_default().milli().saturating_add(right.unwrap_or_default().milli()),
        )),
    }
}

fn status(
    input: &PlanInput<'_>,
    name: &NodeName,
    node: &NodeHealth,
    loads: &BTreeMap<NodeName, (u32, Amounts)>,
    plan: &Plan,
) -> NodeStatus {
    let cluster_view = input.cluster_view;
    let spec = cluster_view.nodes.get(name);
    let generation = spec.map_or(0, |spec| spec.value.metadata.generation);
    let mut status =
        cluster_view.node_statuses.get(name).map(|status| status.value.clone()).unwrap_or_default();
    status.observed_generation = generation;
    let maintenance = spec.is_some_and(|spec| spec.value.spec.maintenance);
    status.state = if spec.is_none() { NodeState::Gone } else { state(node, maintenance) };
    if let Some(fence) = cluster_view.fences.get(name) {
        status.epoch = fence.value.epoch;
        fence.value.state.name().clone_into(&mut status.fence);
        if let Some(proof) = &fence.value.proof {
            status.last_fencing_reason = Some(proof.reason());
        }
        status.boot_id.clone_from(&fence.value.boot_id);
        status.machine_id.clone_from(&fence.value.machine_id);
    }
    if let Some(report) = cluster_view.node_reports.get(name) {
        copy_report(&mut status, &report.value);
        let count_threads = spec.is_some_and(|spec| spec.value.spec.count_threads);
        status.capacity = report.value.capacity_counting(count_threads);
    }
    if let Some(doctor) = cluster_view.doctor_reports.get(name) {
        status.checks.clone_from(&doctor.value.checks);
        status.last_termination.clone_from(&doctor.value.last_end);
        if let Some(watchdog) = &mut status.watchdog {
            watchdog.observation = doctor.value.watchdog.as_ref().map(Into::into);
        }
    }
    status.usage =
        usage::node_usage(cluster_view, name).map(|report| report.node).filter(|usage| !usage.is_empty());
    agent_state(node).clone_into(&mut status.agent);
    arming(input, name).clone_into(&mut status.arming);
    update_last_heartbeat_time(input, name, node, &mut status);
    let (services, allocated) = loads.get(name).copied().unwrap_or_default();
    status.services = services;
    status.allocated = allocated;
    conditions(input, name, node, &mut status, plan, generation);
    status
}

/// Updates the time of the last heartbeat: at most once a minute while the node is reachable, and with the exact time
/// once the node is unreachable.
fn update_last_heartbeat_time(
    input: &PlanInput<'_>,
    name: &NodeName,
    node: &NodeHealth,
    status: &mut NodeStatus,
) {
    let stored_seconds = status.last_heartbeat_time.as_ref().and_then(Timestamp::unix_seconds);
    if node.is_reachable() {
        let now = input.now.timestamp();
        let age_seconds = stored_seconds.zip(now.unix_seconds()).map(|(stored, now)| now - stored);
        if age_seconds.is_none_or(|seconds| !(0..HEARTBEAT_WRITE_SECONDS).contains(&seconds)) {
            status.last_heartbeat_time = Some(now);
        }
        return;
    }
    let Some(observed) = input.cluster_view.observations.get(name).filter(|observed| observed.has_changed)
    else {
        return;
    };
    let age_ms = input.now.monotonic_raw.since(observed.since);
    let exact = Timestamp::from_unix_ms(input.now.wall_unix_ms - i128::from(age_ms));
    // The two clocks are not read at the same moment, so a difference of one second is ignored.
    let is_newer = stored_seconds.zip(exact.unix_seconds()).is_none_or(|(stored, exact)| exact > stored + 1);
    if is_newer {
        status.last_heartbeat_time = Some(exact);
    }
}

fn state(node: &NodeHealth, maintenance: bool) -> NodeState {
    match &node.health {
        Health::Online | Health::ShuttingDown(_) if maintenance => NodeState::Maintenance,
        Health::Online | Health::ShuttingDown(_) => NodeState::Online,
        Health::Leaving(_) | Health::Down(Proof::CleanLeave { .. }) => NodeState::Offline,
        Health::Fencing if !node.active.is_empty() => NodeState::Fence,
        Health::Fencing
        | Health::Unregistered
        | Health::Registering
        | Health::Late
        | Health::Restarting
        | Health::Down(
            Proof::Silence { .. }
            | Proof::Device { .. }
            | Proof::NewBoot { .. }
            | Proof::Operator { .. }
            | Proof::Reregistered
            | Proof::NothingActive,
        ) => NodeState::Unknown,
    }
}

fn agent_state(node: &NodeHealth) -> &'static str {
    match node.health {
        Health::Unregistered | Health::Registering => "WaitForLock",
        Health::Online | Health::ShuttingDown(_) | Health::Restarting => "Active",
        Health::Late | Health::Leaving(_) | Health::Fencing | Health::Down(_) => "LostLock",
    }
}

/// Returns the progress of a node's agent with disarming or arming; empty for a node without an open epoch.
fn arming(input: &PlanInput<'_>, name: &str) -> &'static str {
    let cluster_view = input.cluster_view;
    let open = cluster_view.fences.get(name).is_some_and(|fence| fence.value.state == FenceState::Open);
    let Some(report) = cluster_view.node_reports.get(name).filter(|_| open) else { return "" };
    match (cluster_view.settings().disarmed.is_some(), report.value.mode == Mode::Disarmed) {
        (true, true) => "Disarmed",
        (true, false) => "Disarming",
        (false, true) => "Arming",
        (false, false) => "Armed",
    }
}

fn copy_report(status: &mut NodeStatus, report: &NodeReport) {
    report.mode.name().clone_into(&mut status.mode);
    status.version.clone_from(&report.version);
    status.drivers.clone_from(&report.drivers);
    status.policy.clone_from(&report.policy);
    status.fencing_delay_seconds = Some(DecimalSeconds(report.fencing_delay_ms()));
    status.timing = Some(report.timings.into());
    status.sleep_protection =
        report.sleep_protection.map_or_else(String::new, |protection| protection.name().to_owned());
    let watchdog = &report.watchdog;
    status.watchdog = Some(WatchdogStatus {
        kind: watchdog.kind.name().to_owned(),
        identity: watchdog.identity.clone(),
        device: watchdog.device.clone(),
        timeout_seconds: DecimalSeconds(watchdog.timeout_ms),
        armed: report.armed,
        failed: report.watchdog_failed,
        sliding: watchdog.sliding,
        descriptor_retained: watchdog.descriptor_retained,
        tested: watchdog.tested,
        last_test: watchdog.last_test.as_ref().map(Into::into),
        observation: None,
    });
}

/// Message of the condition Fenceable for a simulated watchdog, which is `Err` in [`NodeHealth::fenceable`] unless the
/// Cluster allows it.
const SIMULATED_IS_ALLOWED: &str =
    "Simulated watchdog is allowed by the Cluster, for sandboxes and tests only";

fn conditions(
    input: &PlanInput<'_>,
    name: &NodeName,
    node: &NodeHealth,
    status: &mut NodeStatus,
    plan: &Plan,
    generation: i64,
) {
    let wait = plan.waits_of(Kind::Node, name).next();
    let (reason, message) = match (check_online(&node.health), wait) {
        (Ok(()), None) if status.state == NodeState::Maintenance => {
            (Reason::Maintenance, Reason::Maintenance.sentence().to_owned())
        }
        (Ok(()), None) => (Reason::NodeReady, Reason::NodeReady.sentence().to_owned()),
        (_, Some(waiting)) => (waiting.reason, waiting.message.clone()),
        (Err(reason), None) => (reason, reason.sentence().to_owned()),
    };
    let list = &mut status.conditions;
    rename_conditions(list);
    put_condition(input, list, "Ready", node.is_online(), reason, message, generation);
    list.retain(|condition| condition.kind != "FenceDevicesHealthy" || !has_no_devices(input, name));
    if let Some((holds, reason, message)) = probes::devices_condition(input, name) {
        put_condition(input, list, "FenceDevicesHealthy", holds, reason, message, generation);
    }
    let report = input.cluster_view.node_reports.get(name).map(|report| &report.value);
    let kind = report.map(|report| report.watchdog.kind).unwrap_or_default();
    let problem = report.map(|report| report.watchdog.problem.clone()).unwrap_or_default();
    let (holds, reason, message) = match node.fenceable {
        Ok(()) if kind == WatchdogKind::Simulated => {
            (true, Reason::WatchdogSimulated, SIMULATED_IS_ALLOWED.to_owned())
        }
        Ok(()) if report.is_some_and(|report| report.armed) => {
            (true, Reason::WatchdogArmed, Reason::WatchdogArmed.sentence().to_owned())
        }
        Ok(()) => (true, Reason::WatchdogIdle, Reason::WatchdogIdle.sentence().to_owned()),
        Err(reason) if problem.is_empty() => (false, reason, reason.sentence().to_owned()),
        Err(reason) => (false, reason, capitalized(&problem)),
    };
    put_condition(input, list, "Fenceable", holds, reason, message, generation);
    let sleeps = report.is_some_and(|report| report.sleep_protection == Some(SleepProtection::None));
    if sleeps {
        let reason = Reason::SleepUnprotected;
        put_condition(input, list, "Awake", false, reason, reason.sentence().to_owned(), generation);
    } else {
        list.retain(|condition| condition.kind != "Awake");
    }
}

fn has_no_devices(input: &PlanInput<'_>, name: &str) -> bool {
    input.cluster_view.nodes.get(name).is_none_or(|node| node.value.spec.fencing.devices.is_empty())
}
