//! Joint placement of services that are scheduled at the same time, for the case that separate placements leave a
//! service without a node.
//!
//! The plan is first made with separate placements, because those are nearly always sufficient. Joint placement keeps
//! the result of the N+1 check valid, because that check also places all services together.

use super::policy::with_companions;
use super::{Draft, Planner, Service};
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::reason::Reason;
use ha_api_types::resource::RequestedState;
use ha_scheduler::{Placement, Verdict};
use std::collections::{BTreeMap, BTreeSet};

/// Joint placement of services.
#[derive(Clone, Debug, Default)]
pub struct Arranged {
    /// Assigned nodes by service.
    nodes: BTreeMap<ResourceName, NodeName>,
    /// Services that have no eligible node with separate placements.
    left_over: BTreeSet<ResourceName>,
}

impl Planner<'_> {
    /// Returns a joint placement with nodes for services that this plan left without one. `None` if the plan left no
    /// service without a node, or if a joint placement does not help.
    ///
    /// At least one service must have found a node: otherwise there is no choice to change.
    pub fn arrange(&self) -> Option<Arranged> {
        let left_over: BTreeSet<ResourceName> =
            self.looked.iter().filter(|(_, found)| !**found).map(|(name, _)| name.clone()).collect();
        if left_over.is_empty() || left_over.len() == self.looked.len() {
            return None;
        }
        let looking = self.looked.keys().cloned().collect();
        let nodes = ha_scheduler::arrange(&self.view, &looking);
        let left_over: BTreeSet<ResourceName> =
            left_over.into_iter().filter(|name| nodes.contains_key(name)).collect();
        (!left_over.is_empty()).then_some(Arranged { nodes, left_over })
    }
}

/// Returns the node of a service that is being scheduled, and an explanation if the choice helps other services.
pub(super) fn settled(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    draft: &Draft,
    placement: Placement,
) -> (Placement, Option<String>) {
    let placement = with_companions(planner, service, draft, placement);
    // A stopped service gets another assigned node, and uses no capacity there.
    if service.wanted() != RequestedState::Started {
        return (placement, None);
    }
    let (placement, words) = match planner.arranged.nodes.get(service.name) {
        Some(node) if matches!(placement.verdicts.get(node), Some(Verdict::Allowed(_))) => {
            let words = words(planner, service, placement.node.as_ref(), node);
            (Placement { node: Some(node.clone()), reason: Reason::Scheduled, ..placement }, words)
        }
        Some(_) | None => (placement, None),
    };
    planner.looked.insert(service.name.to_owned(), placement.node.is_some());
    (placement, words)
}

fn words(
    planner: &Planner<'_>,
    service: &Service<'_>,
    alone: Option<&NodeName>,
    node: &NodeName,
) -> Option<String> {
    let alone = alone.filter(|alone| *alone != node)?;
    let others = planner.arranged.left_over.iter().filter(|name| name.as_str() != service.name);
    let others: Vec<&str> = others.map(ResourceName::as_str).collect();
    if others.is_empty() {
        return None;
    }
    Some(format!(
        "{alone} scores better for this service alone, but would leave no eligible node for {}",
        others.join(", ")
    ))
}
