//! The overview of current resource usage of nodes and services.

use super::placement::used_nodes;
use super::resource_requests::requests;
use super::stored_view::status_of;
use super::usage;
use super::world::ClusterView;
use ha_api_types::view::{NodeUsage, ResourceUsage, UsageOverview};

/// Returns the measured usage together with the capacity of nodes and the requests of services. Every controller can
/// compute it.
pub fn overview(cluster_view: &ClusterView) -> UsageOverview {
    let nodes = cluster_view.nodes.keys().map(|name| {
        let status = cluster_view.node_statuses.get(name).map(|status| &status.value);
        NodeUsage {
            name: name.clone(),
            usage: usage::node_usage(cluster_view, name)
                .map(|report| report.node)
                .filter(|usage| !usage.is_empty()),
            capacity: status.map(|status| status.capacity).unwrap_or_default(),
            allocated: status.map(|status| status.allocated).unwrap_or_default(),
        }
    });
    let resources = cluster_view.resources.iter().filter_map(|(name, resource)| {
        let resource = &resource.value;
        let status = status_of(cluster_view, resource);
        let node = status.node.clone().filter(|node| used_nodes(&status).contains(node))?;
        Some(ResourceUsage {
            name: name.clone(),
            type_name: resource.spec.driver.type_name(),
            node,
            usage: usage::service_usage(cluster_view, resource, &status).copied(),
            requests: requests(cluster_view, resource),
        })
    });
    UsageOverview { nodes: nodes.collect(), resources: resources.collect() }
}
