//! The cluster as the scheduler sees it, kept up to date while a plan is made.

use super::health::{Health, NodeTable};
use super::situation::Situation;
use super::world::World;
use ha_api_types::quantity::Amounts;
use ha_api_types::reason::Reason;
use ha_api_types::record::Mode;
use ha_api_types::resource::{Resource, ResourceStatus, ServiceState, StorageMode};
use ha_scheduler::{NodeFacts, RuleConflict, Rules, ServiceFacts, View};
use std::collections::{BTreeMap, BTreeSet};

/// The scheduler's view of a situation, and the rules that conflict.
pub fn view(situation: &Situation<'_>, nodes: &NodeTable) -> (View, Vec<RuleConflict>) {
    let world = situation.world;
    let declared: BTreeMap<_, _> =
        world.rules.iter().map(|(name, rule)| (name.clone(), rule.value.spec.clone())).collect();
    let names: BTreeSet<String> = world.nodes.keys().cloned().collect();
    let (rules, conflicts) = Rules::compile(&declared, &names);
    let services = world
        .resources
        .iter()
        .map(|(name, resource)| {
            let status =
                world.resource_statuses.get(name).map(|status| status.value.clone()).unwrap_or_default();
            let mut facts = service_facts(&resource.value, &status);
            if let Some(uses) = situation.placing.get(name) {
                facts.uses.clone_from(uses);
            }
            (name.clone(), facts)
        })
        .collect();
    let view = View {
        nodes: world
            .nodes
            .keys()
            .filter_map(|name| Some((name.clone(), node_facts(world, nodes, name)?)))
            .collect(),
        services,
        groups: world.groups.iter().map(|(name, group)| (name.clone(), group.value.spec.clone())).collect(),
        node_groups: world
            .node_groups
            .iter()
            .map(|(name, group)| (name.clone(), group.value.spec.allocation_policy))
            .collect(),
        rules,
        settings: world.settings().scheduler,
    };
    (view, conflicts)
}

/// Why a node is not Online, in a word.
pub fn not_online(health: &Health) -> Result<(), Reason> {
    match health {
        Health::Online => Ok(()),
        Health::Unregistered => Err(Reason::NotSeenYet),
        Health::Registering => Err(Reason::Registering),
        Health::Late => Err(Reason::HeartbeatLate),
        Health::Restarting => Err(Reason::Frozen),
        Health::Leaving(_) => Err(Reason::LeftCleanly),
        Health::Fencing => Err(Reason::Fencing),
        Health::Down(proof) => Err(proof.reason()),
    }
}

fn node_facts(world: &World, nodes: &NodeTable, name: &str) -> Option<NodeFacts> {
    let spec = &world.nodes.get(name)?.value.spec;
    let node = nodes.get(name)?;
    let report = world.node_reports.get(name).map(|report| &report.value);
    let reported = report.map(|report| report.capacity).unwrap_or_default();
    let declared = spec.capacity.unwrap_or_default();
    // An agent that has not armed again after a disarm counts as one without a watchdog.
    let disarmed = report.is_some_and(|report| report.mode == Mode::Disarmed);
    Some(NodeFacts {
        online: not_online(&node.health),
        maintenance: spec.maintenance,
        schedulable: spec.schedulable,
        fenceable: if disarmed { Err(Reason::Disarmed) } else { node.fenceable },
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

/// A service as the scheduler sees it.
pub fn service_facts(resource: &Resource, status: &ResourceStatus) -> ServiceFacts {
    let spec = &resource.spec;
    let storage = spec.storage.as_ref();
    let known_nodes = || status.node.iter().cloned().collect::<BTreeSet<String>>();
    ServiceFacts {
        node: status.node.clone(),
        uses: uses(status),
        driver: spec.driver.kind(),
        group: spec.group.clone(),
        failback: spec.failback,
        requests: spec.requests,
        storage_pool: storage.map(|storage| storage.pool.clone()).filter(|pool| !pool.is_empty()),
        storage_nodes: storage.and_then(|storage| match storage.mode {
            StorageMode::Shared => None,
            StorageMode::Replicated => {
                Some(known_nodes().into_iter().chain(storage.secondary.clone()).collect::<BTreeSet<_>>())
            }
            // Where its data is becomes known when it is first placed.
            StorageMode::Local => status.node.is_some().then(known_nodes),
        }),
        exclusive: spec.exclusive,
        failed_nodes: status.failed_nodes.iter().cloned().collect(),
        never_nodes: status.never_nodes.iter().cloned().collect(),
        maintenance_node: status.maintenance_node.clone(),
        tags: spec.tags.iter().cloned().collect(),
        priority: spec.priority,
    }
}

/// The nodes that a service uses: where it is and where it is moving. Confirmed-stopped, disabled, ignored and error
/// services use none, but one that could not be stopped counts as running (SEMANTICS, section 2).
pub fn uses(status: &ResourceStatus) -> BTreeSet<String> {
    match status.state {
        ServiceState::Error if status.stop_confirmed == Some(false) => status.node.iter().cloned().collect(),
        ServiceState::Starting
        | ServiceState::Started
        | ServiceState::RequestStop
        | ServiceState::Stopping
        | ServiceState::Migrate
        | ServiceState::Relocate
        | ServiceState::Freeze
        | ServiceState::Fence
        | ServiceState::Deleting => status.node.iter().chain(&status.target).cloned().collect(),
        ServiceState::Queued
        | ServiceState::RequestStart
        | ServiceState::Stopped
        | ServiceState::Recovery
        | ServiceState::Error
        | ServiceState::Disabled
        | ServiceState::Ignored => BTreeSet::new(),
    }
}
