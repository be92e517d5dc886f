//! Strict rules that contradict each other, because they keep the same two services together and apart. None of these
//! rules is applied.

use super::node_rules::join_names;
use super::{ResourceRule, RuleConflict};
use ha_api_types::id::ResourceName;
use std::collections::{BTreeMap, BTreeSet};

/// Overlapping strict Positive rules as one set, because affinity is transitive.
struct MergedRules {
    rules: BTreeSet<String>,
    resources: BTreeSet<ResourceName>,
}

/// Removes from both lists the rules that contradict each other; merged Positive rules are removed together. The nodes
/// are not considered, so that the result does not depend on the order of the rules.
pub(super) fn remove_contradictions(
    affinity_rules: &mut Vec<ResourceRule>,
    anti_affinity_rules: &mut Vec<ResourceRule>,
    conflicts: &mut Vec<RuleConflict>,
) {
    let sets = merge_overlapping(affinity_rules);
    let mut conflicts_by_rule: BTreeMap<String, RuleConflict> = BTreeMap::new();
    for rule in anti_affinity_rules.iter().filter(|rule| rule.strict) {
        for set in &sets {
            let shared_resources: BTreeSet<ResourceName> =
                set.resources.intersection(&rule.resources).cloned().collect();
            let [first, second, ..] = shared_resources.iter().collect::<Vec<_>>()[..] else { continue };
            let message = format!(
                "Resources {first} and {second} have affinity by rule {} and anti-affinity by rule {}, none of which \
                 is applied",
                join_names(&set.rules),
                rule.name
            );
            let mut all = set.rules.clone();
            all.insert(rule.name.clone());
            for name in &all {
                let conflict = conflicts_by_rule.entry(name.clone()).or_insert_with(|| RuleConflict {
                    rule: name.clone(),
                    message: message.clone(),
                    other_rules: BTreeSet::new(),
                    resources: BTreeSet::new(),
                    short_of_nodes: false,
                });
                conflict.other_rules.extend(all.iter().filter(|other| *other != name).cloned());
                conflict.resources.extend(shared_resources.iter().cloned());
            }
        }
    }
    affinity_rules.retain(|rule| !conflicts_by_rule.contains_key(&rule.name));
    anti_affinity_rules.retain(|rule| !conflicts_by_rule.contains_key(&rule.name));
    conflicts.extend(conflicts_by_rule.into_values());
}

fn merge_overlapping(affinity_rules: &[ResourceRule]) -> Vec<MergedRules> {
    let mut sets: Vec<MergedRules> = Vec::new();
    for rule in affinity_rules.iter().filter(|rule| rule.strict) {
        let mut merged =
            MergedRules { rules: BTreeSet::from([rule.name.clone()]), resources: rule.resources.clone() };
        // Known sets are disjoint, so one pass over them is enough.
        let (joined, rest): (Vec<MergedRules>, Vec<MergedRules>) =
            sets.into_iter().partition(|set| !set.resources.is_disjoint(&merged.resources));
        for set in joined {
            merged.rules.extend(set.rules);
            merged.resources.extend(set.resources);
        }
        sets = rest;
        sets.push(merged);
    }
    sets
}
