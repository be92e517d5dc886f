//! The status of the cluster: the leader, the conditions that it waits for, recent fencing, and the N+1 check.

use super::{put_condition, write};
use crate::core::health::{Health, NodeTable};
use crate::core::plan::{Plan, Waiting, cluster_event};
use crate::core::plan_input::PlanInput;
use crate::core::reservation::{headline, message_of};
use crate::core::service;
use ha_api_types::cluster::{CLUSTER_NAME, ClusterStatus, Disarmed, RecentFence};
use ha_api_types::event::{Event, EventType};
use ha_api_types::kind::Kind;
use ha_api_types::meta::{Condition, ConditionStatus, rename_conditions, set_condition};
use ha_api_types::reason::Reason;
use ha_api_types::record::{FenceState, Mode, Proof};
use ha_api_types::time::Millis;

/// Type of the condition that publishes the N+1 check.
pub(in crate::core) const FAILOVER_CAPACITY: &str = "FailoverCapacityAvailable";
/// Maximum number of sentences in `waitingFor`; the rest is stated as a number.
const MAX_WAITING: usize = 32;
/// Maximum number of entries in `recentFences`.
const MAX_FENCES: usize = 20;
/// Minimum interval between writes of `waitingFor`, in milliseconds, because it changes often.
const WAITING_WRITE_INTERVAL_MS: Millis = 1_000;

pub(super) fn plan(input: &PlanInput<'_>, nodes: &NodeTable, plan: &mut Plan) {
    let stored_status = input.cluster_view.cluster_status.as_ref();
    let disarm = disarm(input, nodes, plan);
    let status = status(input, disarm, plan);
    if let Some(stored_status) = stored_status {
        let only_waiting =
            ClusterStatus { waiting_for: stored_status.value.waiting_for.clone(), ..status.clone() };
        let next_write_at = stored_status.first_seen_at + WAITING_WRITE_INTERVAL_MS;
        if only_waiting == stored_status.value
            && status != stored_status.value
            && input.now.monotonic_raw < next_write_at
        {
            plan.wake_at(input, next_write_at, "the list of waiting actions has changed");
            return;
        }
    }
    let events = reservation_events(input, &status);
    write(input, plan, Kind::Cluster, CLUSTER_NAME, stored_status, &status, events);
}

fn status(input: &PlanInput<'_>, disarm: Option<Disarmed>, plan: &Plan) -> ClusterStatus {
    let cluster_view = input.cluster_view;
    let mut status =
        cluster_view.cluster_status.as_ref().map(|status| status.value.clone()).unwrap_or_default();
    let generation = cluster_view.cluster.as_ref().map_or(0, |cluster| cluster.value.metadata.generation);
    status.observed_generation = generation;
    status.leader = Some(input.config.id.clone());
    status.term = Some(input.term);
    status.protocol = cluster_view.common_protocol();
    status.active = cluster_view.cluster.as_ref().map(|cluster| cluster.value.spec.clone());
    status.disarm = disarm;
    arming(input, disarm).clone_into(&mut status.arming);
    status.waiting_for = waiting_for(plan);
    fences(input, &mut status);
    let conditions = &mut status.conditions;
    rename_conditions(conditions);
    let message = Reason::Accepted.sentence();
    put_condition(input, conditions, "Ready", true, Reason::Accepted, message, generation);
    reservation(input, conditions, generation);
    status
}

fn waiting_for(plan: &Plan) -> Vec<String> {
    let mut sentences: Vec<String> = plan.waiting.iter().map(Waiting::sentence).collect();
    sentences.sort();
    sentences.dedup();
    let omitted = sentences.len().saturating_sub(MAX_WAITING);
    sentences.truncate(MAX_WAITING);
    if omitted > 0 {
        sentences.push(format!("and {omitted} more"));
    }
    sentences
}

/// Returns the requested mode once agents may disarm: no service is in Fence, Recovery, Migrate or Relocate, and the
/// others are frozen. The mode then stays until the cluster is armed.
fn disarm(input: &PlanInput<'_>, nodes: &NodeTable, plan: &mut Plan) -> Option<Disarmed> {
    let cluster_view = input.cluster_view;
    let disarm_mode = cluster_view.settings().disarmed?;
    if cluster_view.cluster_status.as_ref().is_some_and(|status| status.value.disarm == Some(disarm_mode)) {
        return Some(disarm_mode);
    }
    let fenced = nodes
        .iter()
        .filter(|(_, node)| node.health == Health::Fencing && !node.active.is_empty())
        .map(|(name, _)| format!("node {name} (Fence)"));
    let delaying = cluster_view.resources.keys().filter_map(|name| {
        let state =
            cluster_view.resource_statuses.get(name).map(|status| status.value.state).unwrap_or_default();
        let assigned = cluster_view.assignments.contains_key(name);
        service::delays_disarm(state, assigned, disarm_mode).then(|| format!("{name} ({state:?})"))
    });
    let blockers: Vec<String> = fenced.chain(delaying).collect();
    if blockers.is_empty() {
        return Some(disarm_mode);
    }
    let message = format!("Disarming waits for {}", blockers.join(", "));
    plan.add_wait(Kind::Cluster, CLUSTER_NAME, Reason::Disarmed, message);
    None
}

/// Returns `Disarmed` once every reachable agent has acknowledged, and `Arming` until every agent has armed again.
fn arming(input: &PlanInput<'_>, disarm: Option<Disarmed>) -> &'static str {
    let cluster_view = input.cluster_view;
    let open = cluster_view.node_reports.iter().filter(|(node, _)| {
        cluster_view.fences.get(*node).is_some_and(|fence| fence.value.state == FenceState::Open)
            && cluster_view.alive.contains_key(*node)
    });
    let open: Vec<Mode> = open.map(|(_, report)| report.value.mode).collect();
    let unarmed = |mode: &Mode| match mode {
        Mode::Disarmed | Mode::Restart | Mode::Left(_) => true,
        Mode::Registering | Mode::Active | Mode::Maintenance | Mode::Shutdown(_) => false,
    };
    if cluster_view.settings().disarmed.is_some() {
        return if disarm.is_some() && open.iter().all(unarmed) { "Disarmed" } else { "Disarming" };
    }
    if open.contains(&Mode::Disarmed) { "Arming" } else { "Armed" }
}

fn fences(input: &PlanInput<'_>, status: &mut ClusterStatus) {
    for (node, fence) in &input.cluster_view.fences {
        let (FenceState::Fenced, Some(proof)) = (fence.value.state, &fence.value.proof) else { continue };
        if matches!(proof, Proof::CleanLeave { .. }) {
            continue;
        }
        let recent = RecentFence {
            node: node.clone(),
            epoch: fence.value.epoch,
            at: fence.value.at.clone(),
            reason: proof.reason(),
            message: proof.sentence(),
            proof: proof.name().to_owned(),
        };
        let previous_fences = status.recent_fences.iter_mut().find(|previous_fences| {
            previous_fences.node == recent.node && previous_fences.epoch == recent.epoch
        });
        match previous_fences {
            Some(previous_fences) if previous_fences.reason == recent.reason => {}
            Some(previous_fences) => *previous_fences = recent,
            None => status.recent_fences.push(recent),
        }
    }
    let omitted = status.recent_fences.len().saturating_sub(MAX_FENCES);
    status.recent_fences.drain(..omitted);
}

/// Sets the condition that publishes the N+1 check. The result of a previous leader stays until this leader has one.
fn reservation(input: &PlanInput<'_>, conditions: &mut Vec<Condition>, generation: i64) {
    let Some(finding) = input.reservation else { return };
    let status = match finding.has_capacity {
        Some(true) => ConditionStatus::True,
        Some(false) => ConditionStatus::False,
        None => ConditionStatus::Unknown,
    };
    let condition = Condition {
        kind: FAILOVER_CAPACITY.to_owned(),
        status,
        reason: finding.reason,
        message: message_of(finding),
        last_transition_time: None,
        observed_generation: generation,
    };
    set_condition(conditions, condition, &input.now.timestamp());
}

/// Returns the events for a new status: the N+1 check fails, fails for different nodes, or no longer fails.
fn reservation_events(input: &PlanInput<'_>, status: &ClusterStatus) -> Vec<Event> {
    let find = |conditions: &[Condition]| {
        conditions.iter().find(|condition| condition.kind == FAILOVER_CAPACITY).cloned()
    };
    let before = input.cluster_view.cluster_status.as_ref().and_then(|status| {
        let mut conditions = status.value.conditions.clone();
        rename_conditions(&mut conditions);
        find(&conditions)
    });
    let Some(now) = find(&status.conditions) else { return Vec::new() };
    let changed = match &before {
        Some(before) => before.reason != now.reason || headline(&before.message) != headline(&now.message),
        None => now.reason != Reason::FailoverCapacityAvailable,
    };
    if !changed {
        return Vec::new();
    }
    let event_type =
        if now.reason == Reason::FailoverCapacityAvailable { EventType::Normal } else { EventType::Warning };
    vec![cluster_event(input, event_type, now.reason, now.message)]
}
