//! The cluster as the store has it now, typed, and as the scheduler sees it.

use super::ApiState;
use super::error::ApiError;
use crate::core::health::watchdog_counts;
use crate::core::placement::{declared, service_facts};
use crate::core::world::World;
use ha_api_types::meta::ConditionStatus;
use ha_api_types::node::{NodeState, NodeStatus};
use ha_api_types::quantity::Amounts;
use ha_api_types::reason::Reason;
use ha_api_types::record::Mode;
use ha_api_types::resource::{Resource, ResourceStatus};
use ha_api_types::time::Mono;
use ha_scheduler::{NodeFacts, RuleConflict, Rules, View};
use ha_store::Store;
use std::collections::BTreeSet;

/// Everything but events, read at one revision.
pub(crate) async fn world<S: Store>(state: &ApiState<S>) -> Result<World, ApiError> {
    let keys = state.keys();
    let selectors = [
        keys.specs(),
        keys.statuses(),
        keys.assignments(),
        keys.fences(),
        keys.heartbeats(),
        keys.reports(),
        keys.candidates(),
        keys.leader(),
    ];
    let reading = state.store().list_all(&selectors).await?;
    let mut world = World::new(keys.clone());
    // The moments at which things were seen are for the leader; this view lives for one request.
    world.replace(reading.entries, reading.revision, Mono(0));
    Ok(world)
}

/// The status of a resource, unless it is about an earlier object of that name.
pub(crate) fn status_of(world: &World, resource: &Resource) -> ResourceStatus {
    world
        .resource_statuses
        .get(&resource.metadata.name)
        .map(|status| status.value.clone())
        .filter(|status| status.uid.is_empty() || status.uid == resource.metadata.uid)
        .unwrap_or_default()
}

/// The scheduler's view, and the rules that conflict.
///
/// Unlike the leader's own, it takes the health of nodes from their statuses: any replica can make it.
pub(crate) fn view(world: &World) -> (View, Vec<RuleConflict>) {
    let names: BTreeSet<String> = world.nodes.keys().cloned().collect();
    let (rules, conflicts) = Rules::compile(&declared(world));
    let services = world
        .resources
        .iter()
        .map(|(name, resource)| {
            (name.clone(), service_facts(&resource.value, &status_of(world, &resource.value)))
        })
        .collect();
    let view = View {
        nodes: names.iter().filter_map(|name| Some((name.clone(), node_facts(world, name)?))).collect(),
        services,
        groups: world.groups.iter().map(|(name, group)| (name.clone(), group.value.spec.clone())).collect(),
        node_groups: world
            .node_groups
            .iter()
            .map(|(name, group)| (name.clone(), group.value.spec.allocation_policy))
            .collect(),
        rules,
        settings: world.settings().scheduler.clone(),
    };
    (view, conflicts)
}

fn node_facts(world: &World, name: &str) -> Option<NodeFacts> {
    let spec = &world.nodes.get(name)?.value.spec;
    let status = world.node_statuses.get(name).map(|status| &status.value);
    let report = world.node_reports.get(name).map(|report| &report.value);
    let reported = report.map(|report| report.capacity).unwrap_or_default();
    let declared = spec.capacity.unwrap_or_default();
    let fenceable = match report {
        None => Err(Reason::WatchdogMissing),
        Some(report) if report.mode == Mode::Disarmed => Err(Reason::Disarmed),
        Some(report) => watchdog_counts(world, report),
    };
    Some(NodeFacts {
        online: online(status),
        maintenance: spec.maintenance,
        schedulable: spec.schedulable,
        fenceable,
        drivers: report.map(|report| report.drivers.iter().cloned().collect()).unwrap_or_default(),
        storage_pools: spec.storage_pools.iter().cloned().collect(),
        capacity: Amounts {
            cpu: declared.cpu.or(reported.cpu),
            memory: declared.memory.or(reported.memory),
            disk: declared.disk.or(reported.disk),
        },
        reserved: spec.reserved.unwrap_or_default(),
        node_group: spec.node_group.clone(),
    })
}

fn online(status: Option<&NodeStatus>) -> Result<(), Reason> {
    let Some(status) = status else { return Err(Reason::NotSeenYet) };
    match status.state {
        NodeState::Online | NodeState::Maintenance => Ok(()),
        NodeState::Offline => Err(Reason::LeftCleanly),
        NodeState::Fence => Err(Reason::Fencing),
        NodeState::Gone => Err(Reason::NotFound),
        NodeState::Unknown => Err(why_not_ready(status)),
    }
}

fn why_not_ready(status: &NodeStatus) -> Reason {
    let ready = status.conditions.iter().find(|condition| condition.kind == "Ready");
    ready
        .filter(|ready| ready.status != ConditionStatus::True)
        .map_or(Reason::HeartbeatLate, |ready| ready.reason)
}
