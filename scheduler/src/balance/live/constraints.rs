//! Constraints from rules, groups, storage and states: the eligible nodes of services, and the services that move together.

use super::ANTI_AFFINITY_TAG_PREFIX;
use crate::balance::live_constraints::LiveConstraints;
use crate::balance::model::Instance;
use crate::reservation::eligibility::blocking_reason;
use crate::rules::ResourceRule;
use crate::score::priority_tier_of;
use crate::sets::join;
use crate::view::{ServiceFacts, View};
use ha_api_types::id::{NodeName, ResourceName};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the constraints of every service, by its position.
pub(super) fn live_constraints(
    view: &View,
    names: &BTreeMap<&ResourceName, usize>,
    positions: &BTreeMap<&NodeName, usize>,
) -> BTreeMap<usize, LiveConstraints> {
    let mut live_constraints: BTreeMap<usize, LiveConstraints> = BTreeMap::new();
    for (name, position) in names {
        let Some(facts) = view.services.get(*name) else { continue };
        let eligible = positions.iter().filter(|(node, _)| is_eligible(view, name, facts, node));
        let (less_preferred, nodes): (Vec<_>, Vec<_>) =
            eligible.partition(|(node, _)| is_less_preferred(view, name, facts, node));
        live_constraints.insert(
            *position,
            LiveConstraints {
                nodes: nodes.into_iter().map(|(_, position)| *position).collect(),
                less_preferred: less_preferred.into_iter().map(|(_, position)| *position).collect(),
                immovable_reason: immovable_reason(view, facts),
                unit: None,
                affinity_set: None,
                can_live_migrate: facts.moves_live,
                can_copy_disk: facts.replaces_secondary && !facts.used_nodes.is_empty(),
            },
        );
    }
    add_affinity(view, names, &mut live_constraints);
    live_constraints
}

/// Returns `true` if a node is eligible for a service without regard to other services.
fn is_eligible(view: &View, name: &ResourceName, facts: &ServiceFacts, node_name: &NodeName) -> bool {
    let Some(node) = view.nodes.get(node_name) else { return false };
    blocking_reason(view, name, facts, node_name, node).is_none()
        && !facts.incompatible_nodes.contains(node_name)
        && !facts.failed_nodes.contains(node_name)
}

/// Returns `true` if a service prefers its current node to this one, so that the service would move back.
fn is_less_preferred(view: &View, name: &ResourceName, facts: &ServiceFacts, node_name: &NodeName) -> bool {
    let tier = |node: &NodeName| priority_tier_of(view, name, facts, node);
    facts.node.as_ref().is_some_and(|current_node| tier(node_name) < tier(current_node))
}

/// Returns the nodes, by position, that are eligible for a new service without rules, which needs this pool if any.
pub fn nodes_for_new_service(view: &View, pool: Option<&str>) -> BTreeSet<usize> {
    let facts = ServiceFacts {
        driver: Some("exec".to_owned()),
        exclusive: true,
        storage_pool: pool.map(str::to_owned),
        ..ServiceFacts::default()
    };
    let is_open = |(name, node): (&NodeName, _)| {
        blocking_reason(view, &ResourceName::default(), &facts, name, node).is_none()
    };
    (0..).zip(view.nodes.iter()).filter(|(_, node)| is_open(*node)).map(|(position, _)| position).collect()
}

/// Returns, for each exclusion tag among these tags of a new service, the corresponding tag of the balancing model.
pub fn model_exclusion_tags(view: &View, tags: &[String]) -> Vec<String> {
    to_model_tags(view, tags).collect()
}

/// Returns the reason why a service is not moved; `None` if it may be moved.
fn immovable_reason(view: &View, facts: &ServiceFacts) -> Option<&'static str> {
    let is_online = |node: &NodeName| view.nodes.get(node).is_some_and(|node| node.online.is_ok());
    if !facts.node.as_ref().is_some_and(is_online) {
        return Some("node of the service is not online");
    }
    if facts.used_nodes.is_empty() {
        return match (facts.stopped, facts.is_desired) {
            (true, _) => None,
            (false, true) => Some("service should run but does not"),
            (false, false) => Some("service is disabled, ignored or in Error"),
        };
    }
    if !facts.movable || facts.used_nodes.len() != 1 {
        return Some("service does not run, or an action is in progress");
    }
    facts.maintenance_node.is_some().then_some("service returns when the maintenance of its node has ended")
}

/// Makes services with affinity move as one: for strict rules all that run, for preferred rules those that are on one node.
fn add_affinity(
    view: &View,
    names: &BTreeMap<&ResourceName, usize>,
    live_constraints: &mut BTreeMap<usize, LiveConstraints>,
) {
    let mut units: Vec<BTreeSet<usize>> = Vec::new();
    for (number, partners) in view.rules.affinity_rules().enumerate() {
        let mut by_node: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for (name, facts) in running(view, partners) {
            if let (Some(position), Some(node)) = (names.get(name), facts.current_or_target_node()) {
                by_node.entry(node).or_default().insert(*position);
            }
        }
        let is_split = partners.strict && by_node.len() > 1;
        for members in by_node.into_values() {
            for member in &members {
                let Some(constraints) = live_constraints.get_mut(member).filter(|_| partners.strict) else {
                    continue;
                };
                constraints.affinity_set = Some(number);
                if is_split {
                    constraints
                        .immovable_reason
                        .get_or_insert("services with strict affinity are on other nodes");
                }
            }
            if members.len() > 1 && !is_split {
                join(&mut units, members);
            }
        }
    }
    for (number, members) in units.iter().enumerate() {
        for member in members {
            if let Some(constraints) = live_constraints.get_mut(member) {
                constraints.unit = Some(number);
                // A plan would replace their secondaries one at a time. In between, the unit could not survive a failure of
                // its node as a whole.
                constraints.can_copy_disk = false;
            }
        }
    }
}

/// Returns the services of a rule that use a node.
fn running<'a>(
    view: &'a View,
    partners: &'a ResourceRule,
) -> impl Iterator<Item = (&'a ResourceName, &'a ServiceFacts)> {
    let services = partners.resources.iter().filter_map(|name| view.services.get_key_value(name));
    services.filter(|(_, facts)| !facts.used_nodes.is_empty())
}

/// Gives services with anti-affinity or the same exclusion tag a common tag.
pub(super) fn add_exclusion_tags(
    view: &View,
    names: &BTreeMap<&ResourceName, usize>,
    instances: &mut [Instance],
) {
    for partners in view.rules.anti_affinity_rules() {
        let tag = format!("{ANTI_AFFINITY_TAG_PREFIX}:rule:{}", partners.name);
        for (name, _) in running(view, partners) {
            if let Some(position) = names.get(name) {
                instances[*position].tags.push(tag.clone());
            }
        }
    }
    for (name, position) in names {
        let Some(facts) = view.services.get(*name).filter(|facts| !facts.used_nodes.is_empty()) else {
            continue;
        };
        instances[*position].tags.extend(to_model_tags(view, &facts.tags));
    }
}

/// Returns the tags of the model for those of these tags that are exclusion tags.
fn to_model_tags<'a>(
    view: &'a View,
    tags: impl IntoIterator<Item = &'a String>,
) -> impl Iterator<Item = String> {
    view.exclusion_tags(tags).map(|tag| format!("{ANTI_AFFINITY_TAG_PREFIX}:tag:{tag}"))
}
