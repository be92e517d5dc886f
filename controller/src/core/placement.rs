//! The scheduler's view of the cluster, kept up to date while a plan is made.

use super::health::{Health, NodeTable};
use super::pause;
use super::plan_input::PlanInput;
use super::resource_requests::requests;
use super::usage;
use super::world::ClusterView;
use ha_api_types::cluster::ShutdownPolicy;
use ha_api_types::driver::DriverSpec;
use ha_api_types::id::NodeName;
use ha_api_types::node::{FenceDevice, Node};
use ha_api_types::reason::Reason;
use ha_api_types::record::Mode;
use ha_api_types::resource::{
    RequestedState, Resource, ResourceSpec, ResourceStatus, ServiceState, StorageMode, StorageSpec,
};
use ha_api_types::time::{Millis, MonotonicTime};
use ha_api_types::usage::Usage;
use ha_scheduler::{NodeFacts, RuleConflict, RuleInput, Rules, ServiceFacts, Services, View};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the scheduler's view of the cluster, and the conflicting rules.
pub fn view(input: &PlanInput<'_>, nodes: &NodeTable) -> (View, Vec<RuleConflict>) {
    let cluster_view = input.cluster_view;
    let (rules, conflicts) = Rules::compile(&RuleInput {
        nodes_may_join: nodes_incomplete_until(input).is_some_and(|until| input.now.monotonic_raw < until),
        known_short_of_nodes: rules_short_of_nodes(cluster_view),
        ..declarations(cluster_view)
    });
    let paused = pause::paused_services(input, &rules);
    let no_status = ResourceStatus::default();
    let services = cluster_view
        .resources
        .iter()
        .map(|(name, resource)| {
            let status = cluster_view.resource_statuses.get(name).map_or(&no_status, |status| &status.value);
            let mut facts = service_facts(cluster_view, &resource.value, status);
            facts.paused = paused.contains(name);
            if let Some(pending_nodes) = input.pending_uses.get(name) {
                facts.movable &= facts.used_nodes == *pending_nodes;
                // A write that frees a node counts only once the leader has read it, because another write may be
                // committed first.
                if !pending_nodes.is_empty() {
                    facts.used_nodes.clone_from(pending_nodes);
                }
            }
            (name.clone(), facts)
        })
        .collect();
    let unverified = cluster_view.unverified_resources();
    let facts = |name: &NodeName| {
        let mut facts = node_facts(cluster_view, nodes, name)?;
        if unverified.contains_key(name) && facts.fenceable.is_ok() {
            facts.fenceable = Err(Reason::NodeUnverified);
        }
        Some((name.clone(), facts))
    };
    let view =
        assemble_view(cluster_view, cluster_view.nodes.keys().filter_map(facts).collect(), services, rules);
    (view, conflicts)
}

/// Assembles the view from nodes, services and rules, with the declarations of users.
pub(super) fn assemble_view(
    cluster_view: &ClusterView,
    mut nodes: BTreeMap<NodeName, NodeFacts>,
    services: Services,
    rules: Rules,
) -> View {
    usage::add_outside_usage(cluster_view, &mut nodes, &services);
    View {
        nodes,
        services,
        groups: cluster_view
            .groups
            .iter()
            .map(|(name, group)| (name.clone(), group.value.spec.clone()))
            .collect(),
        node_groups: cluster_view
            .node_groups
            .iter()
            .map(|(name, group)| (name.clone(), group.value.spec.allocation_policy))
            .collect(),
        rules,
        settings: cluster_view.settings().scheduler.clone(),
        reservation: cluster_view.settings().reservation.clone(),
    }
}

/// Returns the declarations of users, for the check of the rules.
pub fn declarations(cluster_view: &ClusterView) -> RuleInput {
    RuleInput {
        rules: cluster_view
            .rules
            .iter()
            .map(|(name, rule)| (name.clone(), rule.value.spec.clone()))
            .collect(),
        groups: cluster_view
            .groups
            .iter()
            .map(|(name, group)| (name.clone(), group.value.spec.clone()))
            .collect(),
        group_of: cluster_view
            .resources
            .iter()
            .filter_map(|(name, resource)| Some((name.clone(), resource.value.spec.group.clone()?)))
            .collect(),
        nodes: cluster_view.nodes.keys().cloned().collect(),
        nodes_may_join: false,
        known_short_of_nodes: BTreeSet::new(),
    }
}

/// Time in milliseconds to wait for further nodes after one has appeared. The nodes of a new cluster register one at a
/// time, and rules must hold from the first node on.
const NODES_INCOMPLETE_MS: Millis = 30_000;

/// Returns the time, on this process's clock, until which the set of nodes counts as incomplete: `NODES_INCOMPLETE_MS`
/// after the newest node appeared. Nodes that a user has edited do not count.
pub fn nodes_incomplete_until(input: &PlanInput<'_>) -> Option<MonotonicTime> {
    let nodes = input.cluster_view.nodes.values();
    nodes
        .filter(|node| node.create_revision == node.mod_revision)
        .map(|node| node.first_seen_at + NODES_INCOMPLETE_MS)
        .max()
}

/// Returns the rules whose status reports too few nodes. The status outlives a change of leader.
fn rules_short_of_nodes(cluster_view: &ClusterView) -> BTreeSet<String> {
    cluster_view
        .rule_statuses
        .iter()
        .filter(|(_, status)| {
            status
                .value
                .conditions
                .iter()
                .any(|condition| condition.kind == "Ready" && condition.reason == Reason::RuleConflict)
        })
        .map(|(name, _)| name.clone())
        .collect()
}

/// Returns `Ok` if a node is Online, otherwise the reason why it is not.
pub fn check_online(health: &Health) -> Result<(), Reason> {
    match health {
        Health::Online => Ok(()),
        Health::Unregistered => Err(Reason::Pending),
        Health::Registering => Err(Reason::Registering),
        Health::Late => Err(Reason::HeartbeatMissed),
        Health::ShuttingDown(_) => Err(Reason::ShuttingDown),
        Health::Restarting => Err(Reason::Frozen),
        Health::Leaving(_) => Err(Reason::ShutdownComplete),
        Health::Fencing => Err(Reason::Fencing),
        Health::Down(proof) => Err(proof.reason()),
    }
}

fn node_facts(cluster_view: &ClusterView, nodes: &NodeTable, name: &NodeName) -> Option<NodeFacts> {
    let spec = &cluster_view.nodes.get(name)?.value.spec;
    let node = nodes.get(name)?;
    let report = cluster_view.node_reports.get(name).map(|report| &report.value);
    Some(NodeFacts {
        online: check_online(&node.health),
        maintenance: is_being_vacated(cluster_view, nodes, name),
        schedulable: spec.is_schedulable(),
        fenceable: node.fenceable,
        // The agent reports Disarmed until it has armed again.
        disarmed: report.is_some_and(|report| report.mode == Mode::Disarmed),
        watchdog_failed: report.is_some_and(|report| report.watchdog_failed),
        drivers: report.map(|report| report.drivers.iter().cloned().collect()).unwrap_or_default(),
        policy: report.and_then(|report| cluster_view.policy_id(report.policy.as_ref()?)),
        storage_pools: spec.storage_pools.iter().cloned().collect(),
        capacity: spec.capacity(report),
        reserved: spec.reserved.unwrap_or_default(),
        node_group: spec.node_group.clone(),
    })
}

/// Returns `true` if services leave a node: it is in maintenance, or it shuts down under the policy Migrate.
fn is_being_vacated(cluster_view: &ClusterView, nodes: &NodeTable, name: &NodeName) -> bool {
    let shuts_down = nodes.get(name).is_some_and(|node| match node.health {
        Health::ShuttingDown(_) => true,
        Health::Unregistered
        | Health::Registering
        | Health::Online
        | Health::Late
        | Health::Restarting
        | Health::Leaving(_)
        | Health::Fencing
        | Health::Down(_) => false,
    });
    let in_maintenance = cluster_view.nodes.get(name).is_some_and(|node| node.value.spec.maintenance);
    in_maintenance || (shuts_down && cluster_view.shutdown_policy(name) == ShutdownPolicy::Migrate)
}

/// R8.18: returns `true` if a live migration may begin to a target with or without a fence device. With an ungated
/// driver the target needs a device, because its silence is not proof about the arriving service. `allowUngated` of the
/// resource accepts that risk.
pub fn may_move_live(driver: &DriverSpec, spec: &ResourceSpec, has_device: bool) -> bool {
    driver.waits_for_resume_permit() || !spec.exclusive || spec.allow_ungated || has_device
}

/// Returns `true` if a fence device can confirm the node off.
pub fn has_fence_device(node: &Node) -> bool {
    node.spec.fencing.devices.iter().any(FenceDevice::confirms_power_off)
}

/// Returns a note about a live migration of this service to this node (R8.18); `None` if no note is necessary.
pub fn ungated_note(spec: &ResourceSpec, target: &NodeName, has_device: bool) -> Option<String> {
    let driver = &spec.driver;
    if !driver.can_migrate() || driver.waits_for_resume_permit() || !spec.exclusive || has_device {
        return None;
    }
    Some(if spec.allow_ungated {
        format!(
            "live without a fence device (allowUngated): if node {target} fails during the migration, an operator \
             may have to confirm that the node is powered off"
        )
    } else {
        not_live_message(target)
    })
}

/// Returns the message that explains why a service that can live-migrate relocates to this node.
pub fn not_live_message(target: &NodeName) -> String {
    format!(
        "not live: the driver starts the migrated service immediately, and node {target} has no fence device (set \
         allowUngated to permit live migration)"
    )
}

/// Returns a service in the form that the scheduler uses.
pub fn service_facts(
    cluster_view: &ClusterView,
    resource: &Resource,
    status: &ResourceStatus,
) -> ServiceFacts {
    let spec = &resource.spec;
    let storage = spec.storage.as_ref();
    let known_nodes = || status.node.iter().cloned().collect::<BTreeSet<NodeName>>();
    ServiceFacts {
        node: status.node.clone(),
        used_nodes: used_nodes(status),
        driver: spec.driver.capability(),
        forbidding_policies: cluster_view.forbidding_policies(&spec.driver),
        group: spec.group.clone(),
        failback: spec.failback,
        requests: requests(cluster_view, resource),
        moves_live: spec.driver.can_migrate()
            && may_move_live(
                &spec.driver,
                spec,
                cluster_view.nodes.values().all(|node| has_fence_device(&node.value)),
            ),
        replaces_secondary: spec.exclusive && spec.driver.can_replace_secondary(),
        measured: usage::service_usage(cluster_view, resource, status)
            .map(Usage::amounts)
            .unwrap_or_default(),
        storage_pool: storage.map(|storage| storage.pool.clone()).filter(|pool| !pool.is_empty()),
        storage_nodes: storage.and_then(|storage| match storage.mode {
            StorageMode::Shared => None,
            StorageMode::Replicated => Some(replicas(resource, status)),
            // The node with the data becomes known at the first placement.
            StorageMode::Local => status.node.is_some().then(known_nodes),
        }),
        exclusive: spec.exclusive,
        failed_nodes: status.failed_nodes.iter().cloned().collect(),
        incompatible_nodes: status.incompatible_nodes.iter().cloned().collect(),
        maintenance_node: status.maintenance_node.clone(),
        tags: spec.tags.iter().cloned().collect(),
        priority: spec.priority,
        is_desired: spec.state == RequestedState::Started
            && resource.metadata.deletion_timestamp.is_none()
            && status.state != ServiceState::Error,
        stopped: spec.state == RequestedState::Stopped
            && resource.metadata.deletion_timestamp.is_none()
            && status.state != ServiceState::Error,
        movable: status.state == ServiceState::Started && status.replacement.is_none(),
        // The pause depends on the current time, so `view` sets it.
        paused: false,
        // The start order belongs to the plan, so `Planner::new` sets it.
        waits_for_others: false,
    }
}

/// Returns the nodes with the data of a replicated service: its node and its secondary.
///
/// After a failover, the old secondary is the node of the service, and the old node has the other copy. After a
/// replacement, another node has it. That holds until the declared secondary changes. All code that needs the
/// secondary calls this function, or reads its result from [`ResourceStatus::secondary`].
pub(super) fn replicas(resource: &Resource, status: &ResourceStatus) -> BTreeSet<NodeName> {
    let storage = resource.spec.storage.as_ref().filter(|storage| storage.mode == StorageMode::Replicated);
    let Some(StorageSpec { secondary: Some(declared), .. }) = storage else {
        return storage.iter().flat_map(|_| &status.node).cloned().collect();
    };
    let reported_nodes: BTreeSet<NodeName> = status.replicas.iter().cloned().collect();
    let is_as_declared = match &status.declared_secondary {
        Some(then) => then == declared,
        // An earlier version wrote this status. That version could not replace secondaries.
        None => reported_nodes.contains(declared),
    };
    if is_as_declared
        && !reported_nodes.is_empty()
        && status.node.iter().all(|node| reported_nodes.contains(node))
    {
        return reported_nodes;
    }
    status.node.iter().chain([declared]).cloned().collect()
}

/// Returns the nodes that a service uses: its node and the target of its move. Confirmed-stopped, disabled, ignored and
/// error services use none, nor does a stopped service that is frozen because the cluster is disarmed. A service that
/// could not be stopped counts as running (FENCING, R7.17). A service that is being probed counts on its last known
/// node.
pub fn used_nodes(status: &ResourceStatus) -> BTreeSet<NodeName> {
    match status.state {
        ServiceState::Error if status.stop_confirmed == Some(false) => status.node.iter().cloned().collect(),
        ServiceState::Freeze if !status.running && status.copies.is_empty() => BTreeSet::new(),
        ServiceState::Queued
        | ServiceState::Starting
        | ServiceState::Started
        | ServiceState::RequestStop
        | ServiceState::Stopping
        | ServiceState::Migrate
        | ServiceState::Relocate
        | ServiceState::Freeze
        | ServiceState::Fence
        | ServiceState::Deleting => status.node.iter().chain(&status.target).cloned().collect(),
        ServiceState::RequestStart
        | ServiceState::Stopped
        | ServiceState::Recovery
        | ServiceState::Error
        | ServiceState::Disabled
        | ServiceState::Ignored => BTreeSet::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::resource::ServiceCopy;

    #[test]
    fn frozen_service_occupies_its_node_if_running() {
        let check = |running: bool, copies: usize, expected: &[&str]| {
            let copies = vec![ServiceCopy::default(); copies];
            let (state, node) = (ServiceState::Freeze, Some("node1".into()));
            let status = ResourceStatus { state, node, running, copies, ..ResourceStatus::default() };
            assert_eq!(used_nodes(&status).iter().map(NodeName::as_str).collect::<Vec<_>>(), expected);
        };
        check(true, 1, &["node1"]);
        // A controller of an earlier version reported the service, without copies.
        check(true, 0, &["node1"]);
        // The start was authorized, and the agent has not reported yet.
        check(false, 1, &["node1"]);
        check(false, 0, &[]);
    }

    /// Checks the nodes with the data. `declared` is the spec's secondary. The status has the node, the replicas, and
    /// the secondary that was declared then.
    fn check(
        declared: &str,
        node: Option<&str>,
        replica_nodes: &[&str],
        declared_then: Option<&str>,
        expected: &[&str],
    ) {
        let mut resource = Resource::default();
        resource.spec.storage = Some(StorageSpec {
            mode: StorageMode::Replicated,
            secondary: Some(declared.into()),
            ..StorageSpec::default()
        });
        let status = ResourceStatus {
            node: node.map(Into::into),
            replicas: replica_nodes.iter().map(|node| (*node).into()).collect(),
            declared_secondary: declared_then.map(Into::into),
            ..ResourceStatus::default()
        };
        let nodes: Vec<NodeName> = replicas(&resource, &status).into_iter().collect();
        assert_eq!(nodes, expected, "{declared} {node:?} {replica_nodes:?} {declared_then:?}");
    }

    #[test]
    fn a_replacement_lasts_until_another_secondary_is_declared() {
        // Initially, and after a failover to the secondary.
        check("n2", None, &[], None, &["n2"]);
        check("n2", Some("n1"), &["n2"], Some("n2"), &["n1", "n2"]);
        check("n2", Some("n2"), &["n1", "n2"], Some("n2"), &["n1", "n2"]);
        // After a replacement, and after a later failover.
        check("n2", Some("n1"), &["n1", "n3"], Some("n2"), &["n1", "n3"]);
        check("n2", Some("n3"), &["n1", "n3"], Some("n2"), &["n1", "n3"]);
        // Another secondary is declared: the current one, or a new one.
        check("n3", Some("n1"), &["n1", "n3"], Some("n2"), &["n1", "n3"]);
        check("n4", Some("n1"), &["n1", "n3"], Some("n2"), &["n1", "n4"]);
        // The service was found running on a node without known data.
        check("n2", Some("n5"), &["n1", "n3"], Some("n2"), &["n2", "n5"]);
        // A status of an earlier version.
        check("n2", Some("n2"), &["n1", "n2"], None, &["n1", "n2"]);
        check("n3", Some("n2"), &["n1", "n2"], None, &["n2", "n3"]);
    }
}
