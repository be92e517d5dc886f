//! Joint placement of services that are scheduled at the same time. It is used if separate placements leave a service
//! without a node.
//!
//! The plan is first made with separate placements, because those are nearly always sufficient. Joint placement keeps
//! the result of the N+1 check valid, because that check also places all services together.

use super::policy::place_with_companions;
use super::{Planner, Service, ServiceUpdate};
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::reason::Reason;
use ha_api_types::resource::RequestedState;
use ha_scheduler::{Placement, Verdict};
use std::collections::{BTreeMap, BTreeSet};

/// Joint placement of services.
#[derive(Clone, Debug, Default)]
pub struct JointPlacement {
    /// Assigned nodes by service.
    nodes: BTreeMap<ResourceName, NodeName>,
    /// Services that have no eligible node with separate placements.
    unplaced: BTreeSet<ResourceName>,
}

impl Planner<'_> {
    /// Returns a joint placement with nodes for services that this plan left without one. `None` if the plan left no
    /// service without a node, or if a joint placement does not help.
    ///
    /// A joint placement can help only if separate placements found a node for at least one service.
    pub fn find_joint_placement(&self) -> Option<JointPlacement> {
        let unplaced: BTreeSet<ResourceName> =
            self.scheduled.iter().filter(|(_, has_node)| !**has_node).map(|(name, _)| name.clone()).collect();
        if unplaced.is_empty() || unplaced.len() == self.scheduled.len() {
            return None;
        }
        let services = self.scheduled.keys().cloned().collect();
        let nodes = ha_scheduler::place_jointly(&self.view, &services);
        let unplaced: BTreeSet<ResourceName> =
            unplaced.into_iter().filter(|name| nodes.contains_key(name)).collect();
        (!unplaced.is_empty()).then_some(JointPlacement { nodes, unplaced })
    }
}

/// Returns the node of a service that is being scheduled, and an explanation if the choice helps other services.
pub(super) fn resolve_placement(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &ServiceUpdate,
    placement: Placement,
) -> (Placement, Option<String>) {
    let placement = place_with_companions(planner, service, update, placement);
    // A stopped service is assigned to the node, but uses no capacity there.
    if service.requested_state() != RequestedState::Started {
        return (placement, None);
    }
    let (placement, explanation) = match planner.joint_placement.nodes.get(service.name) {
        Some(node) if matches!(placement.verdicts.get(node), Some(Verdict::Allowed(_))) => {
            let explanation = explain_choice(planner, service, placement.node.as_ref(), node);
            (Placement { node: Some(node.clone()), reason: Reason::Scheduled, ..placement }, explanation)
        }
        Some(_) | None => (placement, None),
    };
    planner.scheduled.insert(service.name.to_owned(), placement.node.is_some());
    (placement, explanation)
}

fn explain_choice(
    planner: &Planner<'_>,
    service: &Service<'_>,
    alone: Option<&NodeName>,
    node: &NodeName,
) -> Option<String> {
    let alone = alone.filter(|alone| *alone != node)?;
    let other_services = planner.joint_placement.unplaced.iter().filter(|name| name.as_str() != service.name);
    let other_services: Vec<&str> = other_services.map(ResourceName::as_str).collect();
    if other_services.is_empty() {
        return None;
    }
    Some(format!(
        "{alone} scores better for this service alone, but would leave no eligible node for {}",
        other_services.join(", ")
    ))
}
