//! Affinity rules: which are in force, and what they say about one service.

mod compile;
mod node_rules;
mod opposites;
mod spread;
#[cfg(test)]
mod tests;

pub(crate) use spread::can_all_differ;

use ha_api_types::placement::{AffinityRuleSpec, GroupSpec, NodePriorities};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What users have declared, as far as the set of rules is judged by it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Declared {
    /// Rules by name.
    pub rules: BTreeMap<String, AffinityRuleSpec>,
    /// Groups by name.
    pub groups: BTreeMap<String, GroupSpec>,
    /// The group that a resource names.
    pub group_of: BTreeMap<String, String>,
    /// The nodes that there are.
    pub nodes: BTreeSet<String>,
    /// Nodes may still be on their way, as when a cluster is set up: that there are too few of them speaks against no rule
    /// yet, but for [`Declared::judged`] ones.
    pub settling: bool,
    /// Rules that were found short of nodes before, while nodes were not settling.
    pub judged: BTreeSet<String>,
}

/// The rules in force, ready to ask.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rules {
    nodes: BTreeMap<String, NodeRule>,
    apart: Vec<Partners>,
    together: Vec<Partners>,
}

/// A node-affinity rule, as it applies to one service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeRule {
    /// The rule's name.
    pub name: String,
    /// The nodes with priorities.
    pub nodes: NodePriorities,
    /// These nodes only.
    pub strict: bool,
}

/// Services that a rule keeps together or apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
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
    /// In a sentence; it names every rule that has a part in it.
    pub message: String,
    /// The other rules that have a part in it.
    pub with: BTreeSet<String>,
    /// The resources that it is about.
    pub resources: BTreeSet<String>,
    /// More nodes would end it.
    pub short_of_nodes: bool,
}

impl Rules {
    /// The rules in force out of all that are declared, and the conflicts of the others.
    ///
    /// Strict Positive rules that share a service are merged, transitively; such a set counts as one unit, whose allowed
    /// nodes are those that all its members may use. In conflict, and not applied:
    ///
    /// - every node-affinity rule that names a resource which another one names too;
    /// - a resource rule with fewer than two resources;
    /// - a strict Positive rule that would make a set with several node-affinity rules, or with one of several
    ///   priorities, or without a node that all may use;
    /// - every strict rule that has a part in keeping two services together, merged, and apart as well;
    /// - a strict Negative rule that cannot be spread over the nodes its members may use.
    ///
    /// Of other rules that exclude each other, node rules stand before Positive and these before Negative ones, and among
    /// equals the first by name stands: the later one is the one that is not applied.
    ///
    /// Guarantees: each Negative set is judged exactly, by matching. Sets that overlap are not judged together (finding out
    /// is as hard as colouring a graph): all are applied, and who finds no place because of them says so. Capacity is not
    /// looked at, nor which nodes are online.
    pub fn compile(declared: &Declared) -> (Rules, Vec<RuleConflict>) {
        compile::compile(declared)
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

    /// All sets that are kept apart.
    pub fn all_apart(&self) -> impl Iterator<Item = &Partners> {
        self.apart.iter()
    }

    /// All sets that stay together.
    pub fn all_together(&self) -> impl Iterator<Item = &Partners> {
        self.together.iter()
    }

    /// The strict sets that are kept apart.
    pub fn apart_sets(&self) -> impl Iterator<Item = &Partners> {
        self.apart.iter().filter(|partners| partners.strict)
    }

    /// The strict sets that stay together; they do not overlap.
    pub fn together_sets(&self) -> impl Iterator<Item = &Partners> {
        self.together.iter().filter(|partners| partners.strict)
    }
}
