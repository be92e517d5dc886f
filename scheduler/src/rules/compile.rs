//! The check of all rules as a set (docs/placement.md, Conflicting rules).

use super::node_rules::{self, join_names};
use super::spread::can_use_distinct_nodes;
use super::{ResourceRule, RuleConflict, RuleInput, Rules, contradictions};
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::names::without_type;
use ha_api_types::placement::Affinity;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn compile(declared: &RuleInput) -> (Rules, Vec<RuleConflict>) {
    let mut rules = Rules::default();
    let mut conflicts = Vec::new();
    node_rules::add_node_rules(&mut rules, &declared.rules, &mut conflicts);
    let mut anti_affinity_rules = Vec::new();
    let mut affinity_rules = Vec::new();
    for (name, spec) in declared.rules.iter().filter(|(_, spec)| !spec.disabled) {
        let Some(rule) = &spec.resource_affinity else { continue };
        let partners = ResourceRule {
            name: name.clone(),
            resources: rule.resources.iter().map(|name| without_type(name).into()).collect(),
            strict: rule.strict,
        };
        if partners.resources.len() < 2 {
            conflicts.push(RuleConflict {
                rule: name.clone(),
                message: "a resource rule needs at least two different resources".to_owned(),
                other_rules: BTreeSet::new(),
                resources: partners.resources,
                short_of_nodes: false,
            });
            continue;
        }
        match rule.affinity {
            Affinity::Positive => affinity_rules.push(partners),
            Affinity::Negative => anti_affinity_rules.push(partners),
        }
    }
    contradictions::remove_contradictions(&mut affinity_rules, &mut anti_affinity_rules, &mut conflicts);
    let node_numbers: BTreeMap<&NodeName, usize> =
        declared.nodes.iter().enumerate().map(|(number, node)| (node, number)).collect();
    let mut check = RuleCheck { declared, node_numbers, rules };
    for partners in affinity_rules {
        match check.merge_with_overlapping(&partners) {
            Ok(merged) => check.rules.affinity = merged,
            Err(conflict) => conflicts.push(conflict),
        }
    }
    for partners in anti_affinity_rules {
        match check.spread_conflict(&partners) {
            Some(conflict) => conflicts.push(conflict),
            None => check.rules.anti_affinity.push(partners),
        }
    }
    conflicts.sort();
    (check.rules, conflicts)
}

struct RuleCheck<'a> {
    declared: &'a RuleInput,
    node_numbers: BTreeMap<&'a NodeName, usize>,
    rules: Rules,
}

impl RuleCheck<'_> {
    /// Returns `true` if the number of nodes is known well enough to reject a rule.
    fn knows_node_count(&self, rule: &str) -> bool {
        !self.declared.nodes.is_empty()
            && (!self.declared.nodes_may_join || self.declared.known_short_of_nodes.contains(rule))
    }

    /// Returns the nodes that a resource may use: by its strict node-affinity rule, or else by its restricted group.
    fn allowed_nodes(&self, resource: &ResourceName) -> BTreeSet<usize> {
        let permitted_nodes = match self.rules.nodes.get(resource) {
            Some(rule) => rule.strict.then_some(&rule.nodes),
            None => self
                .declared
                .group_of
                .get(resource)
                .and_then(|group| self.declared.groups.get(group))
                .filter(|group| group.restricted)
                .map(|group| &group.nodes),
        };
        self.node_numbers
            .iter()
            .filter(|(node, _)| {
                permitted_nodes.is_none_or(|permitted_nodes| permitted_nodes.0.contains_key(**node))
            })
            .map(|(_, number)| *number)
            .collect()
    }

    fn common_allowed_nodes(&self, resources: &BTreeSet<ResourceName>) -> BTreeSet<usize> {
        let mut sets = resources.iter().map(|resource| self.allowed_nodes(resource));
        let first = sets.next().unwrap_or_default();
        sets.fold(first, |all, next| all.intersection(&next).copied().collect())
    }

    /// Returns the Positive sets after a rule is added. Overlapping strict sets form one set, because affinity is
    /// transitive.
    fn merge_with_overlapping(&self, new: &ResourceRule) -> Result<Vec<ResourceRule>, RuleConflict> {
        let mut sets = self.rules.affinity.clone();
        if !new.strict {
            sets.push(new.clone());
            return Ok(sets);
        }
        let mut merged = new.clone();
        let mut merged_rules = BTreeSet::new();
        while let Some(index) = sets.iter().position(|overlapping| {
            overlapping.strict && !overlapping.resources.is_disjoint(&merged.resources)
        }) {
            let overlapping = sets.remove(index);
            merged.name = format!("{}, {}", overlapping.name, merged.name);
            merged.resources.extend(overlapping.resources);
            merged_rules.insert(overlapping.name);
        }
        let conflict = |message: String, other_rules: BTreeSet<String>, short_of_nodes: bool| RuleConflict {
            rule: new.name.clone(),
            message,
            other_rules,
            resources: merged.resources.clone(),
            short_of_nodes,
        };
        let joined_text = if merged_rules.is_empty() {
            String::new()
        } else {
            format!(" (joined with rule {})", join_names(&merged_rules))
        };
        let node_rules: BTreeMap<&String, _> = merged
            .resources
            .iter()
            .filter_map(|resource| self.rules.nodes.get(resource))
            .map(|rule| (&rule.name, rule))
            .collect();
        let names: BTreeSet<String> = node_rules.keys().map(|name| (*name).clone()).collect();
        if names.len() > 1 {
            let message = format!(
                "Services of the rule{joined_text} have strict affinity, but are in several node-affinity rules: {}",
                join_names(&names)
            );
            return Err(conflict(message, &names | &merged_rules, false));
        }
        let has_several =
            |priorities: &BTreeMap<NodeName, i64>| priorities.values().collect::<BTreeSet<_>>().len() > 1;
        if let Some(rule) = node_rules.values().find(|rule| has_several(&rule.nodes.0)) {
            let message = format!(
                "Services of the rule{joined_text} have strict affinity, but node-affinity rule {} has several priorities",
                rule.name
            );
            return Err(conflict(message, &names | &merged_rules, false));
        }
        if self.knows_node_count(&new.name) && self.common_allowed_nodes(&merged.resources).is_empty() {
            let message = format!(
                "Services of the rule{joined_text} have strict affinity, but no node is eligible for all of them"
            );
            return Err(conflict(message, &names | &merged_rules, true));
        }
        sets.push(merged);
        Ok(sets)
    }

    /// Returns the unit of a resource: its strict Positive set, or the resource alone.
    fn unit_of(&self, resource: &ResourceName) -> BTreeSet<ResourceName> {
        let mut unit = self.rules.strict_affinity_partners(resource);
        unit.insert(resource.clone());
        unit
    }

    /// Returns the conflict of a strict Negative rule whose services cannot all be on different nodes.
    fn spread_conflict(&self, rule: &ResourceRule) -> Option<RuleConflict> {
        if !rule.strict || !self.knows_node_count(&rule.name) {
            return None;
        }
        let units: Vec<BTreeSet<ResourceName>> =
            rule.resources.iter().map(|resource| self.unit_of(resource)).collect();
        let allowed: Vec<BTreeSet<usize>> =
            units.iter().map(|unit| self.common_allowed_nodes(unit)).collect();
        if !can_use_distinct_nodes(&allowed.iter().collect::<Vec<_>>()) {
            let usable: BTreeSet<usize> = allowed.iter().flatten().copied().collect();
            let usable: BTreeSet<NodeName> = self
                .node_numbers
                .iter()
                .filter(|(_, number)| usable.contains(number))
                .map(|(node, _)| (*node).clone())
                .collect();
            let message = format!(
                "The {} services of the rule cannot all run on different nodes (eligible nodes: {})",
                units.len(),
                if usable.is_empty() { "none".to_owned() } else { join_names(&usable) }
            );
            return Some(RuleConflict {
                rule: rule.name.clone(),
                message,
                other_rules: BTreeSet::new(),
                resources: rule.resources.clone(),
                short_of_nodes: true,
            });
        }
        None
    }
}
