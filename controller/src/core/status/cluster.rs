//! The status of the cluster: the leader, the conditions that it waits for, recent fencing, and the N+1 check.

use super::{condition, write};
use crate::core::health::{Health, NodeTable};
use crate::core::plan::{Plan, Waiting, cluster_event};
use crate::core::reservation::{headline, message_of};
use crate::core::service;
use crate::core::situation::Situation;
use ha_api_types::cluster::{CLUSTER_NAME, ClusterStatus, Disarmed, RecentFence};
use ha_api_types::event::{Event, EventType};
use ha_api_types::kind::Kind;
use ha_api_types::meta::{Condition, ConditionStatus, rename_conditions, set_condition};
use ha_api_types::reason::Reason;
use ha_api_types::record::{FenceState, Mode, Proof};
use ha_api_types::time::Millis;

/// Type of the condition that publishes the N+1 check.
pub(in crate::core) const FAILOVER_CAPACITY: &str = "FailoverCapacityAvailable";
/// Maximum number of sentences in `waitingFor`; further ones are only counted.
const MOST_WAITING: usize = 32;
/// Maximum number of entries in `recentFences`.
const MOST_FENCES: usize = 20;
/// Minimum interval between writes of `waitingFor`, in milliseconds, because it changes often.
const PAUSE_MS: Millis = 1_000;

pub(super) fn plan(situation: &Situation<'_>, nodes: &NodeTable, plan: &mut Plan) {
    let known = situation.world.cluster_status.as_ref();
    let disarm = disarm(situation, nodes, plan);
    let status = status(situation, disarm, plan);
    if let Some(known) = known {
        let only_waiting = ClusterStatus { waiting_for: known.value.waiting_for.clone(), ..status.clone() };
        let rests_until = known.seen + PAUSE_MS;
        if only_waiting == known.value && status != known.value && situation.now.raw < rests_until {
            plan.wake(situation, rests_until, "the list of waiting actions has changed");
            return;
        }
    }
    let events = reservation_events(situation, &status);
    write(situation, plan, Kind::Cluster, CLUSTER_NAME, known, &status, events);
}

fn status(situation: &Situation<'_>, disarm: Option<Disarmed>, plan: &Plan) -> ClusterStatus {
    let world = situation.world;
    let mut status = world.cluster_status.as_ref().map(|known| known.value.clone()).unwrap_or_default();
    let generation = world.cluster.as_ref().map_or(0, |cluster| cluster.value.metadata.generation);
    status.observed_generation = generation;
    status.leader = Some(situation.config.id.clone());
    status.term = Some(situation.term);
    status.protocol = world.common_protocol();
    status.active = world.cluster.as_ref().map(|cluster| cluster.value.spec.clone());
    status.disarm = disarm;
    arming(situation, disarm).clone_into(&mut status.arming);
    status.waiting_for = waiting_for(plan);
    fences(situation, &mut status);
    let conditions = &mut status.conditions;
    rename_conditions(conditions);
    let message = Reason::Accepted.sentence();
    condition(situation, conditions, "Ready", true, Reason::Accepted, message, generation);
    reservation(situation, conditions, generation);
    status
}

fn waiting_for(plan: &Plan) -> Vec<String> {
    let mut sentences: Vec<String> = plan.waiting.iter().map(Waiting::sentence).collect();
    sentences.sort();
    sentences.dedup();
    let more = sentences.len().saturating_sub(MOST_WAITING);
    sentences.truncate(MOST_WAITING);
    if more > 0 {
        sentences.push(format!("and {more} more"));
    }
    sentences
}

/// Returns the requested mode once agents may disarm: no service is in Fence, Recovery, Migrate or Relocate, and the
/// others are frozen. The answer then holds until the cluster is armed.
fn disarm(situation: &Situation<'_>, nodes: &NodeTable, plan: &mut Plan) -> Option<Disarmed> {
    let world = situation.world;
    let wanted = world.settings().disarmed?;
    if world.cluster_status.as_ref().is_some_and(|known| known.value.disarm == Some(wanted)) {
        return Some(wanted);
    }
    let fenced = nodes
        .iter()
        .filter(|(_, node)| node.health == Health::Fencing && !node.active.is_empty())
        .map(|(name, _)| format!("node {name} (Fence)"));
    let held = world.resources.keys().filter_map(|name| {
        let state = world.resource_statuses.get(name).map(|status| status.value.state).unwrap_or_default();
        let assigned = world.assignments.contains_key(name);
        service::holds_up_disarm(state, assigned, wanted).then(|| format!("{name} ({state:?})"))
    });
    let blockers: Vec<String> = fenced.chain(held).collect();
    if blockers.is_empty() {
        return Some(wanted);
    }
    let message = format!("Disarming waits for {}", blockers.join(", "));
    plan.wait(Kind::Cluster, CLUSTER_NAME, Reason::Disarmed, message);
    None
}

/// Returns `Disarmed` once every reachable agent has acknowledged, and `Arming` until every agent has armed again.
fn arming(situation: &Situation<'_>, disarm: Option<Disarmed>) -> &'static str {
    let world = situation.world;
    let open = world.node_reports.iter().filter(|(node, _)| {
        world.fences.get(*node).is_some_and(|fence| fence.value.state == FenceState::Open)
            && world.alive.contains_key(*node)
    });
    let open: Vec<Mode> = open.map(|(_, report)| report.value.mode).collect();
    let unarmed = |mode: &Mode| match mode {
        Mode::Disarmed | Mode::Restart | Mode::Left(_) => true,
        Mode::Registering | Mode::Active | Mode::Maintenance | Mode::Shutdown(_) => false,
    };
    if world.settings().disarmed.is_some() {
        return if disarm.is_some() && open.iter().all(unarmed) { "Disarmed" } else { "Disarming" };
    }
    if open.contains(&Mode::Disarmed) { "Arming" } else { "Armed" }
}

fn fences(situation: &Situation<'_>, status: &mut ClusterStatus) {
    for (node, fence) in &situation.world.fences {
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
        let known = status
            .recent_fences
            .iter_mut()
            .find(|known| known.node == recent.node && known.epoch == recent.epoch);
        match known {
            Some(known) if known.reason == recent.reason => {}
            Some(known) => *known = recent,
            None => status.recent_fences.push(recent),
        }
    }
    let more = status.recent_fences.len().saturating_sub(MOST_FENCES);
    status.recent_fences.drain(..more);
}

/// Sets the condition that publishes the N+1 check. The result of a previous leader stays until this leader has one.
fn reservation(situation: &Situation<'_>, conditions: &mut Vec<Condition>, generation: i64) {
    let Some(finding) = situation.reservation else { return };
    let status = match finding.holds {
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
    set_condition(conditions, condition, &situation.now.timestamp());
}

/// Returns the events for a new status: the N+1 check fails, fails for other nodes than before, or no longer fails.
fn reservation_events(situation: &Situation<'_>, status: &ClusterStatus) -> Vec<Event> {
    let find = |conditions: &[Condition]| {
        conditions.iter().find(|condition| condition.kind == FAILOVER_CAPACITY).cloned()
    };
    let before = situation.world.cluster_status.as_ref().and_then(|known| {
        let mut conditions = known.value.conditions.clone();
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
    vec![cluster_event(situation, event_type, now.reason, now.message)]
}
