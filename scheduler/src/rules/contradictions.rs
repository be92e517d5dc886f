//! Strict rules that contradict each other, because they keep the same two services together and apart. None of these
//! rules is applied.

use super::node_rules::listed;
use super::{ResourceRule, RuleConflict};
use ha_api_types::id::ResourceName;
use std::collections::{BTreeMap, BTreeSet};

/// Overlapping strict Positive rules as one set, because affinity is transitive.
struct Merged {
    rules: BTreeSet<String>,
    resources: BTreeSet<ResourceName>,
}

/// Removes from both lists the rules that contradict each other; merged Positive rules are removed together. The nodes
/// are not considered, so that the result does not depend on the order of the rules.
pub(super) fn remove(
    together: &mut Vec<ResourceRule>,
    apart: &mut Vec<ResourceRule>,
    conflicts: &mut Vec<RuleConflict>,
) {
    let sets = merged(together);
    let mut found: BTreeMap<String, RuleConflict> = BTreeMap::new();
    for rule in apart.iter().filter(|rule| rule.strict) {
        for set in &sets {
            let both: BTreeSet<ResourceName> = set.resources.intersection(&rule.resources).cloned().collect();
            let [first, second, ..] = both.iter().collect::<Vec<_>>()[..] else { continue };
            let message = format!(
                "Resources {first} and {second} have affinity by rule {} and anti-affinity by rule {}, none of which \
                 is applied",
                listed(&set.rules),
                rule.name
            );
            let mut all = set.rules.clone();
            all.insert(rule.name.clone());
            for name in &all {
                let conflict = found.entry(name.clone()).or_insert_with(|| RuleConflict {
                    rule: name.clone(),
                    message: message.clone(),
                    with: BTreeSet::new(),
                    resources: BTreeSet::new(),
                    short_of_nodes: false,
                });
                conflict.with.extend(all.iter().filter(|other| *other != name).cloned());
                conflict.resources.extend(both.iter().cloned());
            }
        }
    }
    together.retain(|rule| !found.contains_key(&rule.name));
    apart.retain(|rule| !found.contains_key(&rule.name));
    conflicts.extend(found.into_values());
}

fn merged(together: &[ResourceRule]) -> Vec<Merged> {
    let mut sets: Vec<Merged> = Vec::new();
    for rule in together.iter().filter(|rule| rule.strict) {
        let mut one =
            Merged { rules: BTreeSet::from([rule.name.clone()]), resources: rule.resources.clone() };
        // Known sets are disjoint, so one pass over them is enough.
        let (joined, rest): (Vec<Merged>, Vec<Merged>) =
            sets.into_iter().partition(|set| !set.resources.is_disjoint(&one.resources));
        for set in joined {
            one.rules.extend(set.rules);
            one.resources.extend(set.resources);
        }
        sets = rest;
        sets.push(one);
    }
    sets
}
