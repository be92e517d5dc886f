//! Node-affinity rules, of which at most one may name a resource.

use super::{NodeRule, RuleConflict, Rules};
use ha_api_types::id::ResourceName;
use ha_api_types::names::without_type;
use ha_api_types::placement::AffinityRuleSpec;
use std::collections::{BTreeMap, BTreeSet};

/// Adds the node-affinity rules. Two rules that name the same resource contradict each other, and neither has precedence,
/// so neither is applied.
pub(super) fn add_node_rules(
    rules: &mut Rules,
    declared: &BTreeMap<String, AffinityRuleSpec>,
    conflicts: &mut Vec<RuleConflict>,
) {
    let enabled: Vec<(&String, _)> = declared
        .iter()
        .filter(|(_, spec)| !spec.disabled)
        .filter_map(|(name, spec)| Some((name, spec.node_affinity.as_ref()?)))
        .collect();
    let mut owners: BTreeMap<ResourceName, BTreeSet<&String>> = BTreeMap::new();
    for (name, rule) in &enabled {
        for resource in &rule.resources {
            owners.entry(without_type(resource).into()).or_default().insert(name);
        }
    }
    for (name, rule) in enabled {
        let resources: BTreeSet<ResourceName> =
            rule.resources.iter().map(|resource| without_type(resource).into()).collect();
        let shared: BTreeSet<ResourceName> = resources
            .iter()
            .filter(|resource| owners.get(*resource).is_some_and(|names| names.len() > 1))
            .cloned()
            .collect();
        if shared.is_empty() {
            for resource in resources {
                let applied = NodeRule { name: name.clone(), nodes: rule.nodes.clone(), strict: rule.strict };
                rules.nodes.insert(resource, applied);
            }
            continue;
        }
        let other_rules: BTreeSet<String> = shared
            .iter()
            .filter_map(|resource| owners.get(resource))
            .flatten()
            .filter(|other| **other != name)
            .map(|other| (*other).clone())
            .collect();
        let first = shared.first().cloned().unwrap_or_default();
        let suffix =
            if shared.len() > 1 { format!(" (and {} more)", shared.len() - 1) } else { String::new() };
        let message = format!(
            "Resource {first}{suffix} is in several node-affinity rules ({name} and {}), none of which is applied",
            join_names(&other_rules)
        );
        let rule = name.clone();
        conflicts.push(RuleConflict { rule, message, other_rules, resources: shared, short_of_nodes: false });
    }
}

/// Joins names for a message.
pub(super) fn join_names<N: AsRef<str>>(names: &BTreeSet<N>) -> String {
    names.iter().map(N::as_ref).collect::<Vec<_>>().join(", ")
}
