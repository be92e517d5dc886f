//! Affinity rules: which are in force, which conflict, and what they say about one service.

use ha_api_types::placement::{Affinity, AffinityRuleSpec, NodePriorities};
use std::collections::{BTreeMap, BTreeSet};

/// The rules in force, ready to ask.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    nodes: BTreeMap<String, NodeRule>,
    apart: Vec<Partners>,
    together: Vec<Partners>,
}

/// A node-affinity rule, as it applies to one service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRule {
    /// The rule's name.
    pub name: String,
    /// The nodes with priorities.
    pub nodes: NodePriorities,
    /// These nodes only.
    pub strict: bool,
}

/// Services that a rule keeps together or apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partners {
    /// The rule's name.
    pub name: String,
    /// The services.
    pub resources: BTreeSet<String>,
    /// Required; otherwise preferred.
    pub strict: bool,
}

/// Why a rule is not applied.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleConflict {
    /// The rule.
    pub rule: String,
    /// In a sentence.
    pub message: String,
}

impl Rules {
    /// The rules in force out of all that are declared, and the conflicts of the others.
    ///
    /// Strict Positive rules that share a service are merged, transitively. In conflict: a resource in two node-affinity
    /// rules; fewer than two resources in a resource rule; a strict Negative set that names a pair which strict Positive
    /// rules keep together; a strict Negative set larger than the nodes that may take it, by matching.
    pub fn compile(
        declared: &BTreeMap<String, AffinityRuleSpec>,
        nodes: &BTreeSet<String>,
    ) -> (Rules, Vec<RuleConflict>) {
        let mut rules = Rules::default();
        let mut conflicts = Vec::new();
        rules.add_node_rules(declared, &mut conflicts);
        let mut apart = Vec::new();
        for (name, spec) in declared.iter().filter(|(_, spec)| !spec.disabled) {
            let Some(rule) = &spec.resource_affinity else { continue };
            let partners = Partners {
                name: name.clone(),
                resources: rule.resources.iter().map(|name| bare_name(name)).collect(),
                strict: rule.strict,
            };
            if partners.resources.len() < 2 {
                conflicts.push(RuleConflict {
                    rule: name.clone(),
                    message: "a resource rule needs at least two different resources".to_owned(),
                });
                continue;
            }
            match rule.affinity {
                Affinity::Positive => rules.add_together(partners),
                Affinity::Negative => apart.push(partners),
            }
        }
        for partners in apart {
            match rules.conflict_of_apart(&partners, nodes) {
                Some(message) => conflicts.push(RuleConflict { rule: partners.name, message }),
                None => rules.apart.push(partners),
            }
        }
        conflicts.sort();
        (rules, conflicts)
    }

    fn add_node_rules(
        &mut self,
        declared: &BTreeMap<String, AffinityRuleSpec>,
        conflicts: &mut Vec<RuleConflict>,
    ) {
        let mut owners: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for (name, spec) in declared.iter().filter(|(_, spec)| !spec.disabled) {
            for resource in spec.node_affinity.iter().flat_map(|rule| &rule.resources) {
                owners.entry(bare_name(resource)).or_default().push(name);
            }
        }
        let mut refused = BTreeMap::new();
        for (resource, names) in owners.iter().filter(|(_, names)| names.len() > 1) {
            for name in names {
                refused.entry((*name).to_owned()).or_insert_with(|| {
                    format!(
                        "resource {resource} is in more than one node-affinity rule: {}",
                        names.join(", ")
                    )
                });
            }
        }
        for (name, spec) in declared.iter().filter(|(_, spec)| !spec.disabled) {
            let Some(rule) = &spec.node_affinity else { continue };
            if refused.contains_key(name) {
                continue;
            }
            for resource in &rule.resources {
                let applied = NodeRule { name: name.clone(), nodes: rule.nodes.clone(), strict: rule.strict };
                self.nodes.insert(bare_name(resource), applied);
            }
        }
        conflicts.extend(refused.into_iter().map(|(rule, message)| RuleConflict { rule, message }));
    }

    fn add_together(&mut self, mut new: Partners) {
        if new.strict {
            // Overlapping strict sets mean one set: whoever is with a is with everybody that a is with.
            while let Some(at) = self
                .together
                .iter()
                .position(|known| known.strict && !known.resources.is_disjoint(&new.resources))
            {
                let known = self.together.swap_remove(at);
                new.name = format!("{}, {}", known.name, new.name);
                new.resources.extend(known.resources);
            }
        }
        self.together.push(new);
    }

    fn conflict_of_apart(&self, apart: &Partners, nodes: &BTreeSet<String>) -> Option<String> {
        if !apart.strict {
            return None;
        }
        for together in self.together.iter().filter(|together| together.strict) {
            let both: Vec<&String> = together.resources.intersection(&apart.resources).collect();
            if let [first, second, ..] = both.as_slice() {
                return Some(format!(
                    "{first} and {second} must stay together by rule {} and apart by this one",
                    together.name
                ));
            }
        }
        let allowed: Vec<Vec<&String>> = apart
            .resources
            .iter()
            .map(|resource| {
                let rule = self.nodes.get(resource).filter(|rule| rule.strict);
                nodes.iter().filter(|node| rule.is_none_or(|rule| rule.nodes.0.contains_key(*node))).collect()
            })
            .collect();
        // Without nodes nothing is known about them yet, which is no conflict of the rule.
        (!nodes.is_empty() && !can_spread(&allowed)).then(|| {
            format!(
                "its {} resources cannot all be on different nodes among those that they may use",
                apart.resources.len()
            )
        })
    }

    /// The node-affinity rule of a service.
    pub fn node_rule(&self, resource: &str) -> Option<&NodeRule> {
        self.nodes.get(resource)
    }

    /// Sets that keep a service apart from others.
    pub fn apart_from<'a>(&'a self, resource: &'a str) -> impl Iterator<Item = &'a Partners> {
        self.apart.iter().filter(move |partners| partners.resources.contains(resource))
    }

    /// Sets that keep a service together with others.
    pub fn together_with<'a>(&'a self, resource: &'a str) -> impl Iterator<Item = &'a Partners> {
        self.together.iter().filter(move |partners| partners.resources.contains(resource))
    }

    /// Services that must move along with one (strict Positive), without it.
    pub fn companions(&self, resource: &str) -> BTreeSet<String> {
        self.together_with(resource)
            .filter(|partners| partners.strict)
            .flat_map(|partners| partners.resources.iter())
            .filter(|name| name.as_str() != resource)
            .cloned()
            .collect()
    }
}

/// The name without its type: `100` of `vm:100`.
pub fn bare_name(name: &str) -> String {
    name.rsplit_once(':').map_or(name, |(_, bare)| bare).to_owned()
}

/// Whether each left side can have a node of its own: bipartite matching by augmenting paths.
fn can_spread(allowed: &[Vec<&String>]) -> bool {
    fn augment<'a>(
        at: usize,
        allowed: &[Vec<&'a String>],
        seen: &mut BTreeSet<&'a String>,
        taken: &mut BTreeMap<&'a String, usize>,
    ) -> bool {
        for node in &allowed[at] {
            if !seen.insert(node) {
                continue;
            }
            let free = match taken.get(node).copied() {
                None => true,
                Some(other) => augment(other, allowed, seen, taken),
            };
            if free {
                taken.insert(node, at);
                return true;
            }
        }
        false
    }
    let mut taken = BTreeMap::new();
    (0..allowed.len()).all(|at| augment(at, allowed, &mut BTreeSet::new(), &mut taken))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::placement::{NodeAffinity, ResourceAffinity};

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    fn on(resources: &[&str], nodes: &[&str]) -> AffinityRuleSpec {
        let nodes = NodePriorities(nodes.iter().map(|node| ((*node).to_owned(), 0)).collect());
        let rule = NodeAffinity { resources: names(resources), nodes, strict: true };
        AffinityRuleSpec { node_affinity: Some(rule), ..AffinityRuleSpec::default() }
    }

    fn with(affinity: Affinity, resources: &[&str]) -> AffinityRuleSpec {
        let rule = ResourceAffinity { resources: names(resources), affinity, strict: true };
        AffinityRuleSpec { resource_affinity: Some(rule), ..AffinityRuleSpec::default() }
    }

    fn check(declared: &[(&str, AffinityRuleSpec)], conflicting: &[&str]) {
        let declared = declared.iter().map(|(name, spec)| ((*name).to_owned(), spec.clone())).collect();
        let nodes = ["node1", "node2", "node3"].iter().map(|node| (*node).to_owned()).collect();
        let (_, conflicts) = Rules::compile(&declared, &nodes);
        let found: Vec<&str> = conflicts.iter().map(|conflict| conflict.rule.as_str()).collect();
        assert_eq!(found, conflicting, "{conflicts:?}");
    }

    #[test]
    fn rules_that_contradict_each_other_are_not_applied() {
        let (positive, negative) = (Affinity::Positive, Affinity::Negative);
        check(&[("a", with(negative, &["1", "2", "3"]))], &[]);
        check(&[("a", with(negative, &["1", "2", "3", "4"]))], &["a"]);
        check(&[("a", with(positive, &["1"]))], &["a"]);
        check(&[("a", with(positive, &["1", "vm:1"]))], &["a"]);
        check(&[("a", on(&["1"], &["node1"])), ("b", on(&["1"], &["node2"]))], &["a", "b"]);
        check(
            &[
                ("a", with(positive, &["1", "2"])),
                ("b", with(positive, &["2", "3"])),
                ("c", with(negative, &["1", "3"])),
            ],
            &["c"],
        );
    }

    #[test]
    fn spreading_is_decided_by_matching_not_by_counting() {
        // Three services and three nodes, but two of them share the only node that either may use.
        check(
            &[("a", on(&["1", "2"], &["node1"])), ("b", with(Affinity::Negative, &["1", "2", "3"]))],
            &["b"],
        );
        check(
            &[
                ("a", on(&["1"], &["node1"])),
                ("b", on(&["2"], &["node1", "node2"])),
                ("c", with(Affinity::Negative, &["1", "2", "3"])),
            ],
            &[],
        );
    }

    #[test]
    fn overlapping_positive_rules_are_one_set() {
        let declared = [("a", &["1", "2"]), ("b", &["3", "4"]), ("c", &["2", "3"])]
            .into_iter()
            .map(|(name, resources)| (name.to_owned(), with(Affinity::Positive, resources)))
            .collect();
        let (rules, _) = Rules::compile(&declared, &BTreeSet::new());
        assert_eq!(rules.companions("1").into_iter().collect::<Vec<_>>(), names(&["2", "3", "4"]));
    }
}
