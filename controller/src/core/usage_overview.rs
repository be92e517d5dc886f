//! The overview of current resource usage of nodes and services.

use super::asked::requests;
use super::placement::uses;
use super::stored_view::status_of;
use super::usage;
use super::world::World;
use ha_api_types::view::{NodeUsage, ResourceUsage, UsageOverview};

/// Returns the measured usage together with the capacity of nodes and the requests of services. Every controller can
/// compute it.
pub fn overview(world: &World) -> UsageOverview {
    let nodes = world.nodes.keys().map(|name| {
        let status = world.node_statuses.get(name).map(|status| &status.value);
        NodeUsage {
            name: name.clone(),
            usage: usage::of_node(world, name).map(|report| report.node).filter(|usage| !usage.is_empty()),
            capacity: status.map(|status| status.capacity).unwrap_or_default(),
            allocated: status.map(|status| status.allocated).unwrap_or_default(),
        }
    });
    let resources = world.resources.iter().filter_map(|(name, resource)| {
        let resource = &resource.value;
        let status = status_of(world, resource);
        let node = status.node.clone().filter(|node| uses(&status).contains(node))?;
        Some(ResourceUsage {
            name: name.clone(),
            type_name: resource.spec.driver.type_name(),
            node,
            usage: usage::of_service(world, resource, &status).copied(),
            requests: requests(world, resource),
        })
    });
    UsageOverview { nodes: nodes.collect(), resources: resources.collect() }
}
