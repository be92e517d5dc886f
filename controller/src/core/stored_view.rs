//! The scheduler's view of the cluster from stored state alone, for answers that every controller can give.

use super::health::check_watchdog;
use super::placement::{assemble_view, declarations, service_facts};
use super::world::ClusterView;
use ha_api_types::id::NodeName;
use ha_api_types::meta::ConditionStatus;
use ha_api_types::node::{NodeState, NodeStatus};
use ha_api_types::reason::Reason;
use ha_api_types::record::Mode;
use ha_api_types::resource::{Resource, ResourceStatus};
use ha_scheduler::{NodeFacts, RuleConflict, Rules, View};

/// Returns the status of a resource, unless it belongs to an earlier object of that name.
pub fn status_of(cluster_view: &ClusterView, resource: &Resource) -> ResourceStatus {
    cluster_view
        .resource_statuses
        .get(resource.metadata.name.as_str())
        .map(|status| status.value.clone())
        .filter(|status| status.uid.is_empty() || status.uid == resource.metadata.uid)
        .unwrap_or_default()
}

/// Returns the scheduler's view, and the conflicting rules.
///
/// Unlike the leader's own view, this view takes the health of nodes from their statuses, so every controller can
/// compute it.
pub fn view(cluster_view: &ClusterView) -> (View, Vec<RuleConflict>) {
    let (rules, conflicts) = Rules::compile(&declarations(cluster_view));
    let services = cluster_view
        .resources
        .iter()
        .map(|(name, resource)| {
            (
                name.clone(),
                service_facts(cluster_view, &resource.value, &status_of(cluster_view, &resource.value)),
            )
        })
        .collect();
    let facts = |name: &NodeName| Some((name.clone(), node_facts(cluster_view, name)?));
    let view =
        assemble_view(cluster_view, cluster_view.nodes.keys().filter_map(facts).collect(), services, rules);
    (view, conflicts)
}

fn node_facts(cluster_view: &ClusterView, name: &str) -> Option<NodeFacts> {
    let spec = &cluster_view.nodes.get(name)?.value.spec;
    let status = cluster_view.node_statuses.get(name).map(|status| &status.value);
    let report = cluster_view.node_reports.get(name).map(|report| &report.value);
    let fenceable = match report {
        None => Err(Reason::WatchdogMissing),
        Some(report) => check_watchdog(cluster_view, report),
    };
    Some(NodeFacts {
        online: check_online(status),
        maintenance: spec.maintenance,
        schedulable: spec.is_schedulable(),
        fenceable,
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

fn check_online(status: Option<&NodeStatus>) -> Result<(), Reason> {
    let Some(status) = status else { return Err(Reason::Pending) };
    match status.state {
        NodeState::Online | NodeState::Maintenance => Ok(()),
        NodeState::Offline => Err(Reason::ShutdownComplete),
        NodeState::Fence => Err(Reason::Fencing),
        NodeState::Gone => Err(Reason::NotFound),
        NodeState::Unknown => Err(why_not_ready(status)),
    }
}

fn why_not_ready(status: &NodeStatus) -> Reason {
    let ready = status.conditions.iter().find(|condition| condition.kind == "Ready");
    ready
        .filter(|ready| ready.status != ConditionStatus::True)
        .map_or(Reason::HeartbeatMissed, |ready| ready.reason)
}
