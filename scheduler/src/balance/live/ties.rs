//! Constraints from rules, groups, storage and states: the eligible nodes of services, and the services that move together.

use super::APART;
use crate::balance::binding::Binding;
use crate::balance::model::Instance;
use crate::reservation::classes::against;
use crate::rules::Partners;
use crate::score::class_of;
use crate::sets::join;
use crate::view::{ServiceFacts, View};
use ha_api_types::id::{NodeName, ResourceName};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the constraints of every service, by its position.
pub(super) fn bindings(
    view: &View,
    names: &BTreeMap<&ResourceName, usize>,
    positions: &BTreeMap<&NodeName, usize>,
) -> BTreeMap<usize, Binding> {
    let mut bindings: BTreeMap<usize, Binding> = BTreeMap::new();
    for (name, position) in names {
        let Some(facts) = view.services.get(*name) else { continue };
        let eligible = positions.iter().filter(|(node, _)| may_come(view, name, facts, node));
        let (less_preferred, nodes): (Vec<_>, Vec<_>) =
            eligible.partition(|(node, _)| is_less_preferred(view, name, facts, node));
        bindings.insert(
            *position,
            Binding {
                nodes: nodes.into_iter().map(|(_, position)| *position).collect(),
                less_preferred: less_preferred.into_iter().map(|(_, position)| *position).collect(),
                stays: stays(view, facts),
                unit: None,
                crew: None,
                live: facts.moves_live,
                copies: facts.replaces_secondary && !facts.uses.is_empty(),
            },
        );
    }
    keep_together(view, names, &mut bindings);
    bindings
}

/// Returns `true` if a node is eligible for a service without regard to other services.
fn may_come(view: &View, name: &ResourceName, facts: &ServiceFacts, node_name: &NodeName) -> bool {
    let Some(node) = view.nodes.get(node_name) else { return false };
    against(view, name, facts, node_name, node).is_none()
        && !facts.incompatible_nodes.contains(node_name)
        && !facts.failed_nodes.contains(node_name)
}

/// Returns `true` if a service prefers its current node to this one, so that the service would move back.
fn is_less_preferred(view: &View, name: &ResourceName, facts: &ServiceFacts, node_name: &NodeName) -> bool {
    let class = |node: &NodeName| class_of(view, name, facts, node);
    facts.node.as_ref().is_some_and(|here| class(node_name) < class(here))
}

/// Returns the nodes, by position, that are eligible for a new service without rules, which needs this pool if any.
pub fn open_to(view: &View, pool: Option<&str>) -> BTreeSet<usize> {
    let facts = ServiceFacts {
        driver: Some("exec".to_owned()),
        exclusive: true,
        storage_pool: pool.map(str::to_owned),
        ..ServiceFacts::default()
    };
    let open =
        |(name, node): (&NodeName, _)| against(view, &ResourceName::default(), &facts, name, node).is_none();
    (0..).zip(view.nodes.iter()).filter(|(_, node)| open(*node)).map(|(position, _)| position).collect()
}

/// Returns the tags that keep a new service with these tags apart from others on a live cluster.
pub fn apart_tags(view: &View, tags: &[String]) -> Vec<String> {
    by_tags(view, tags).collect()
}

/// Returns the reason why a service is not moved; `None` if it may be moved.
fn stays(view: &View, facts: &ServiceFacts) -> Option<&'static str> {
    let online = |node: &NodeName| view.nodes.get(node).is_some_and(|node| node.online.is_ok());
    if !facts.node.as_ref().is_some_and(online) {
        return Some("node of the service is not online");
    }
    if facts.uses.is_empty() {
        return match (facts.stopped, facts.wanted) {
            (true, _) => None,
            (false, true) => Some("service should run but does not"),
            (false, false) => Some("service is disabled, ignored or in Error"),
        };
    }
    if !facts.movable || facts.uses.len() != 1 {
        return Some("service does not run, or an action is in progress");
    }
    facts.maintenance_node.is_some().then_some("service returns when the maintenance of its node has ended")
}

/// Makes services with affinity move as one: for strict rules all that run, for preferred rules those that are on one node.
fn keep_together(
    view: &View,
    names: &BTreeMap<&ResourceName, usize>,
    bindings: &mut BTreeMap<usize, Binding>,
) {
    let mut units: Vec<BTreeSet<usize>> = Vec::new();
    for (number, partners) in view.rules.all_together().enumerate() {
        let mut by_node: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for (name, facts) in running(view, partners) {
            if let (Some(position), Some(node)) = (names.get(name), facts.heading()) {
                by_node.entry(node).or_default().insert(*position);
            }
        }
        let is_split = partners.strict && by_node.len() > 1;
        for members in by_node.into_values() {
            for member in &members {
                let Some(binding) = bindings.get_mut(member).filter(|_| partners.strict) else { continue };
                binding.crew = Some(number);
                if is_split {
                    binding.stays.get_or_insert("services with strict affinity are on other nodes");
                }
            }
            if members.len() > 1 && !is_split {
                join(&mut units, members);
            }
        }
    }
    for (number, members) in units.iter().enumerate() {
        for member in members {
            if let Some(binding) = bindings.get_mut(member) {
                binding.unit = Some(number);
                // A plan would replace their secondaries one at a time. In between, the unit could not survive a failure of
                // its node as a whole.
                binding.copies = false;
            }
        }
    }
}

/// Returns the services of a rule that use a node.
fn running<'a>(
    view: &'a View,
    partners: &'a Partners,
) -> impl Iterator<Item = (&'a ResourceName, &'a ServiceFacts)> {
    let services = partners.resources.iter().filter_map(|name| view.services.get_key_value(name));
    services.filter(|(_, facts)| !facts.uses.is_empty())
}

/// Gives services with anti-affinity or the same exclusion tag a common tag.
pub(super) fn keep_apart(view: &View, names: &BTreeMap<&ResourceName, usize>, instances: &mut [Instance]) {
    for partners in view.rules.all_apart() {
        let tag = format!("{APART}:rule:{}", partners.name);
        for (name, _) in running(view, partners) {
            if let Some(position) = names.get(name) {
                instances[*position].tags.push(tag.clone());
            }
        }
    }
    for (name, position) in names {
        let Some(facts) = view.services.get(*name).filter(|facts| !facts.uses.is_empty()) else { continue };
        instances[*position].tags.extend(by_tags(view, &facts.tags));
    }
}

/// Returns the tags of the model for those of these tags that are exclusion tags.
fn by_tags<'a>(view: &'a View, tags: impl IntoIterator<Item = &'a String>) -> impl Iterator<Item = String> {
    view.exclusion_tags(tags).map(|tag| format!("{APART}:tag:{tag}"))
}
