//! Automatic rebalancing by moves of running services: its timing, and the services that may be moved.
//!
//! Rebalancing acts only while no other action is in progress. A source node must have been above the mean load for
//! `holdSeconds` without any other action, and a target node must have been below it for that time. A fluctuating load
//! therefore causes no moves. After each move the time restarts, so that the next decision includes the effect of the
//! move.
//!
//! With `reservation.enabled`, a node that has had too many services for as long also live-migrates one service at a
//! time to another node. The two kinds of moves do not undo each other. A move for the load gives no node too many
//! services. A move for the number of services keeps the imbalance within its threshold.

use super::{Planner, Service, ServiceUpdate, moves, operation};
use crate::core::health::Health;
use crate::core::placement::nodes_incomplete_until;
use crate::core::plan::{RebalanceState, Subject};
use crate::core::plan_input::ImbalanceKind;
use ha_api_types::cluster::SchedulerMode;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::reason::Reason;
use ha_api_types::resource::ServiceState;
use ha_api_types::time::Millis;
use ha_scheduler::rebalance::overload::{ServiceCounts, relieve_crowded_node};
use ha_scheduler::rebalance::{Loads, Move, best_move};
use ha_scheduler::{Placement, ServiceFacts, Verdict};
use std::collections::{BTreeMap, BTreeSet};

/// Running time in milliseconds after which the load of a service counts as measured, or as not measurable.
const MEASURED_AFTER_MS: Millis = 60_000;

#[derive(Clone, Debug)]
pub(super) struct PlannedRebalance {
    planned: Move,
    cause: Cause,
}

/// Reason for a move.
#[derive(Clone, Debug)]
enum Cause {
    /// The load of the nodes is imbalanced (`scheduler.autoRebalance`): above this threshold.
    Load { threshold: f64 },
    /// The node has too many services (`reservation.overUtilization`); contains the message.
    Services(String),
}

/// Plans the moves that begin now: the moves that balance the load or, if no such move begins, a move off a node with
/// too many services.
pub(super) fn plan(
    planner: &mut Planner<'_>,
    operations: &BTreeMap<ResourceName, operation::ServiceRequest<'_>>,
) {
    let by_load = planner.view.settings.auto_rebalance.enabled;
    let by_services = planner.view.reservation.enabled;
    if !(by_load || by_services) {
        return;
    }
    if !is_cluster_stable(planner) {
        for (kind, enabled) in [(ImbalanceKind::Load, by_load), (ImbalanceKind::Services, by_services)] {
            let state = state_during_actions(planner, kind);
            planner.plan.rebalance.extend(enabled.then_some((kind, state)));
        }
        return;
    }
    let services: BTreeSet<&ResourceName> = planner
        .input
        .cluster_view
        .resources
        .keys()
        .filter(|name| !operations.contains_key(*name) && is_movable(planner, name))
        .collect();
    if by_load {
        let state = plan_load_moves(planner, services.clone());
        planner.plan.rebalance.insert(ImbalanceKind::Load, state);
    }
    if by_services {
        let state = plan_service_count_move(planner, &services);
        planner.plan.rebalance.insert(ImbalanceKind::Services, state);
    }
}

/// Returns the state while another action is in progress: Moving until the moves of the last plan have ended.
fn state_during_actions(planner: &Planner<'_>, kind: ImbalanceKind) -> RebalanceState {
    let input = planner.input;
    let is_migrating = || {
        let mut statuses = input.cluster_view.resource_statuses.values();
        statuses.any(|stored| stored.value.state == ServiceState::Migrate)
    };
    let is_written = || input.busy.iter().any(|subject| matches!(subject, Subject::Service(_)));
    let was_moving = input.rebalance.get(&kind) == Some(&RebalanceState::Moving);
    if was_moving && (is_migrating() || is_written()) {
        RebalanceState::Moving
    } else {
        RebalanceState::Waiting
    }
}

/// Returns the state if no node that has been imbalanced for long enough has a move: other nodes may have one later.
fn state_without_move(held_nodes: usize, imbalanced_nodes: usize) -> RebalanceState {
    if held_nodes < imbalanced_nodes { RebalanceState::Holding } else { RebalanceState::NoMove }
}

/// Plans moves that reduce the imbalance of the load. Returns the resulting state.
fn plan_load_moves(planner: &mut Planner<'_>, mut services: BTreeSet<&ResourceName>) -> RebalanceState {
    let settings = planner.view.settings.auto_rebalance.clone();
    let loads = Loads::of(&planner.view);
    if loads.imbalance() <= settings.threshold {
        return RebalanceState::Balanced;
    }
    let sides: BTreeMap<NodeName, bool> =
        loads.nodes_by_side().map(|(node, above)| (node.to_owned(), above)).collect();
    let node_count = sides.len();
    let imbalanced = imbalanced_long_enough(
        planner,
        ImbalanceKind::Load,
        sides,
        "load imbalance has lasted for holdSeconds",
    );
    if imbalanced.is_empty() {
        return RebalanceState::Holding;
    }
    let mut state = state_without_move(imbalanced.len(), node_count);
    let mut view = planner.view.clone();
    for _ in 0..settings.max_moves {
        // A move for the load gives no node more services than its limit.
        let counts = view.reservation.enabled.then(|| ServiceCounts::of(&view));
        let is_suitable = |from: &NodeName, to: &NodeName| {
            imbalanced.get(from) == Some(&true)
                && imbalanced.get(to) == Some(&false)
                && !counts.as_ref().is_some_and(|counts| counts.is_full(to))
        };
        let Some(planned) = best_move(&view, &services, is_suitable) else { break };
        for name in planned.companions.iter().chain([&planned.service]) {
            services.remove(name);
            if let Some(mut facts) = view.services.get_mut(name) {
                facts.node = Some(planned.to.clone());
                facts.used_nodes = BTreeSet::from([planned.to.clone()]);
            }
        }
        let cause = Cause::Load { threshold: settings.threshold };
        planner.rebalances.insert(planned.service.clone(), PlannedRebalance { planned, cause });
        state = RebalanceState::Moving;
        if Loads::of(&view).imbalance() <= settings.threshold {
            break;
        }
    }
    state
}

/// Plans one move off a node that has had too many services for long enough, unless a move for the load is planned.
/// Returns the resulting state.
fn plan_service_count_move(planner: &mut Planner<'_>, services: &BTreeSet<&ResourceName>) -> RebalanceState {
    let counts = ServiceCounts::of(&planner.view);
    let sides: BTreeMap<NodeName, bool> = counts
        .nodes_by_side()
        .filter(|(_, is_above)| *is_above)
        .map(|(node, above)| (node.to_owned(), above))
        .collect();
    if sides.is_empty() {
        return RebalanceState::Balanced;
    }
    let node_count = sides.len();
    let imbalanced = imbalanced_long_enough(
        planner,
        ImbalanceKind::Services,
        sides,
        "a node has had too many services for holdSeconds",
    );
    if imbalanced.is_empty() {
        return RebalanceState::Holding;
    }
    if !planner.rebalances.is_empty() {
        return RebalanceState::Waiting;
    }
    let Some(planned) = relieve_crowded_node(&planner.view, services, |node| imbalanced.contains_key(node))
    else {
        return state_without_move(imbalanced.len(), node_count);
    };
    let limit_text = ServiceCounts::of(&planner.view).describe(&planned.from).unwrap_or_default();
    let rebalance = PlannedRebalance { cause: Cause::Services(limit_text), planned };
    planner.rebalances.insert(rebalance.planned.service.clone(), rebalance);
    RebalanceState::Moving
}

/// Records the sides of nodes, and returns the nodes that have been on their side for `holdSeconds`.
fn imbalanced_long_enough(
    planner: &mut Planner<'_>,
    measure: ImbalanceKind,
    sides: BTreeMap<NodeName, bool>,
    wake_reason: &'static str,
) -> BTreeMap<NodeName, bool> {
    let input = planner.input;
    let hold_ms = u64::from(planner.view.settings.auto_rebalance.hold_seconds) * 1000;
    let now = input.now.monotonic_raw;
    let mut imbalanced: BTreeMap<NodeName, bool> = BTreeMap::new();
    for (node, is_above) in sides {
        let key = (measure, node.clone());
        let imbalance_start = input.imbalances.get(&key).filter(|imbalance| imbalance.is_above == is_above);
        let due = imbalance_start.map_or(now, |imbalance| imbalance.since) + hold_ms;
        planner.plan.imbalances.insert(key, is_above);
        if now >= due {
            imbalanced.insert(node, is_above);
        } else {
            planner.plan.wake_at(&input, due, wake_reason);
        }
    }
    imbalanced
}

/// Returns `true` if no other action is in progress: no node joins or leaves, no service starts or moves, and no
/// write is pending. In mode Dynamic, services that have just started must also have been measured.
fn is_cluster_stable(planner: &Planner<'_>) -> bool {
    let input = planner.input;
    let writes = input.busy.iter().any(|subject| matches!(subject, Subject::Service(_)));
    let nodes_incomplete =
        nodes_incomplete_until(&input).is_some_and(|until| input.now.monotonic_raw < until);
    let nodes_stable = planner.nodes.values().all(|node| match node.health {
        Health::Unregistered | Health::Online | Health::Down(_) => true,
        Health::Registering
        | Health::Late
        | Health::ShuttingDown(_)
        | Health::Restarting
        | Health::Leaving(_)
        | Health::Fencing => false,
    });
    let disarmed = input.cluster_view.settings().disarmed.is_some();
    !writes
        && !nodes_incomplete
        && nodes_stable
        && !disarmed
        && planner.view.services.iter().all(|(name, facts)| is_service_stable(planner, name, facts))
}

fn is_service_stable(planner: &Planner<'_>, name: &ResourceName, facts: &ServiceFacts) -> bool {
    let Some(status) = planner.input.cluster_view.resource_statuses.get(name) else { return true };
    match status.value.state {
        ServiceState::Started => {
            let is_measured = match planner.view.settings.mode {
                SchedulerMode::Basic | SchedulerMode::Static => true,
                SchedulerMode::Dynamic => facts.measured.cpu.is_some() && facts.measured.memory.is_some(),
            };
            is_measured || planner.input.now.monotonic_raw >= status.first_seen_at + MEASURED_AFTER_MS
        }
        // A service in these states may wait for a long time, and uses no node.
        ServiceState::Queued
        | ServiceState::RequestStart
        | ServiceState::Recovery
        | ServiceState::Stopped
        | ServiceState::Error
        | ServiceState::Disabled
        | ServiceState::Ignored => true,
        ServiceState::Starting
        | ServiceState::RequestStop
        | ServiceState::Stopping
        | ServiceState::Migrate
        | ServiceState::Relocate
        | ServiceState::Freeze
        | ServiceState::Fence
        | ServiceState::Deleting => false,
    }
}

/// Returns `true` if the service can be moved now under its last assignment, and is not in a pause after a failed
/// move.
fn is_movable(planner: &Planner<'_>, name: &ResourceName) -> bool {
    let cluster_view = planner.input.cluster_view;
    let Some(status) = cluster_view.resource_statuses.get(name) else { return false };
    let Some(assignment) = cluster_view.assignments.get(name) else { return false };
    let paused = planner.view.services.get(name).is_some_and(|facts| facts.paused);
    status.value.running && assignment.value.definition.driver.can_migrate() && !paused
}

/// Begins the planned move of a service if the target is still eligible. Returns `true` if the move has begun.
pub(super) fn begin_planned_move(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    placement: &Placement,
) -> bool {
    let Some(PlannedRebalance { planned, cause }) = planner.rebalances.remove(service.name) else {
        return false;
    };
    if !matches!(placement.verdicts.get(&planned.to), Some(Verdict::Allowed(_))) {
        return false;
    }
    if !moves::begin(planner, service, update, &planned.to, true, Reason::Rebalanced) {
        return false;
    }
    update.status.operation = None;
    let message = match cause {
        Cause::Load { threshold } => {
            let (before, after) = (planned.before, planned.after);
            let companions = if planned.companions.is_empty() {
                String::new()
            } else {
                format!(", together with {}", planned.companions.join(", "))
            };
            let imbalance = format!("imbalance from {before:.2} to {after:.2}, threshold {threshold}");
            format!("{}{companions}: {imbalance}", update.message)
        }
        Cause::Services(limit_text) => format!("{}; {limit_text}", update.message),
    };
    if let Some((_, _, event_message)) = update.events.last_mut() {
        event_message.clone_from(&message);
    }
    update.message = message;
    true
}
