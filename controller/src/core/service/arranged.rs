//! Services that look for a place at the same time: where all of them find one, if choosing for one after the other leaves
//! somebody over.
//!
//! A plan is made as usual first, since that nearly always does. What the reservation check promises is kept that way: it
//! looks at all at once, too.

use super::policy::with_companions;
use super::{Draft, Planner, Service};
use ha_api_types::reason::Reason;
use ha_api_types::resource::RequestedState;
use ha_scheduler::{Placement, Verdict};
use std::collections::{BTreeMap, BTreeSet};

/// Places for services that look for one.
#[derive(Clone, Debug, Default)]
pub struct Arranged {
    /// By service.
    nodes: BTreeMap<String, String>,
    /// Those that would find none if each chose for itself.
    left_over: BTreeSet<String>,
}

impl Planner<'_> {
    /// Other places for those that looked for one in this plan, so that somebody finds one whom it leaves over; `None`: it
    /// leaves nobody over, or there are no such places.
    ///
    /// Somebody must have found one: where nobody does there is nothing to choose.
    pub fn arrange(&self) -> Option<Arranged> {
        let left_over: BTreeSet<String> =
            self.looked.iter().filter(|(_, found)| !**found).map(|(name, _)| name.clone()).collect();
        if left_over.is_empty() || left_over.len() == self.looked.len() {
            return None;
        }
        let looking = self.looked.keys().cloned().collect();
        let nodes = ha_scheduler::arrange(&self.view, &looking);
        let left_over: BTreeSet<String> =
            left_over.into_iter().filter(|name| nodes.contains_key(name)).collect();
        (!left_over.is_empty()).then_some(Arranged { nodes, left_over })
    }
}

/// Where a service that looks for a place starts, and, if that is for the sake of others, the words for it.
pub(super) fn settled(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    draft: &Draft,
    placement: Placement,
) -> (Placement, Option<String>) {
    let placement = with_companions(planner, service, draft, placement);
    // A stopped one gets another home, and uses nothing there.
    if service.wanted() != RequestedState::Started {
        return (placement, None);
    }
    let (placement, words) = match planner.arranged.nodes.get(service.name) {
        Some(node) if matches!(placement.verdicts.get(node), Some(Verdict::Allowed(_))) => {
            let words = words(planner, service, placement.node.as_deref(), node);
            (Placement { node: Some(node.clone()), reason: Reason::Placed, ..placement }, words)
        }
        Some(_) | None => (placement, None),
    };
    planner.looked.insert(service.name.to_owned(), placement.node.is_some());
    (placement, words)
}

fn words(planner: &Planner<'_>, service: &Service<'_>, alone: Option<&str>, node: &str) -> Option<String> {
    let alone = alone.filter(|alone| *alone != node)?;
    let others = planner.arranged.left_over.iter().filter(|name| name.as_str() != service.name);
    let others: Vec<&str> = others.map(String::as_str).collect();
    if others.is_empty() {
        return None;
    }
    Some(format!(
        "on {alone}, where it would go by itself, it would leave no place for {}",
        others.join(", ")
    ))
}
