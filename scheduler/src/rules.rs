//! Affinity rules: the active rules, and their effect on one service.

mod compile;
mod contradictions;
mod node_rules;
mod spread;
#[cfg(test)]
mod tests;

pub(crate) use spread::can_use_distinct_nodes;

use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::placement::{AffinityRuleSpec, GroupSpec, NodePriorities};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The declared objects that decide which rules are active.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleInput {
    /// Declared rules by name.
    pub rules: BTreeMap<String, AffinityRuleSpec>,
    /// Groups by name.
    pub groups: BTreeMap<String, GroupSpec>,
    /// Group of each resource that names one, by resource name.
    pub group_of: BTreeMap<ResourceName, String>,
    /// Names of the existing nodes.
    pub nodes: BTreeSet<NodeName>,
    /// `true` while nodes may still be joining, such as during the setup of a cluster. While it is `true`, only the
    /// rules in [`RuleInput::known_short_of_nodes`] are rejected for a shortage of nodes.
    pub nodes_may_join: bool,
    /// Rules that were found to have too few nodes earlier, when `nodes_may_join` was `false`.
    pub known_short_of_nodes: BTreeSet<String>,
}

/// The active rules, indexed for queries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rules {
    nodes: BTreeMap<ResourceName, NodeRule>,
    #[serde(rename = "apart")]
    anti_affinity: Vec<ResourceRule>,
    #[serde(rename = "together")]
    affinity: Vec<ResourceRule>,
}

/// A node-affinity rule that applies to one service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeRule {
    /// Name of the rule, for messages.
    pub name: String,
    /// The nodes with their priorities.
    pub nodes: NodePriorities,
    /// `true` if the service may run on these nodes only.
    pub strict: bool,
}

/// Services that a rule keeps together (affinity) or apart (anti-affinity).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceRule {
    /// Name of the rule; after a merge, the names of all merged rules.
    pub name: String,
    /// Names of the services.
    pub resources: BTreeSet<ResourceName>,
    /// `true` if the rule is required, `false` if it is preferred.
    pub strict: bool,
}

/// The reason why a rule is not applied.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleConflict {
    /// Name of the rule that is not applied.
    pub rule: String,
    /// A sentence that names every rule of the conflict.
    pub message: String,
    /// Names of the other rules that cause the conflict.
    pub other_rules: BTreeSet<String>,
    /// The resources of the conflict.
    pub resources: BTreeSet<ResourceName>,
    /// `true` if more nodes would resolve the conflict.
    pub short_of_nodes: bool,
}

impl Rules {
    /// Returns the active rules among the declared rules, and the conflicts of the other rules.
    ///
    /// Strict Positive rules that share a service are merged, transitively. A merged set counts as one unit, and may
    /// use only the nodes that all its members may use. These rules are in conflict and not applied:
    ///
    /// - every node-affinity rule that names a resource of another node-affinity rule;
    /// - a resource rule with fewer than two resources;
    /// - a strict Positive rule whose merged set would have several node-affinity rules, or one with several
    ///   priorities, or no common node;
    /// - every strict rule of a merged set that keeps two services together, if another strict rule keeps them apart,
    ///   and that other rule;
    /// - a strict Negative rule whose services cannot be spread over the nodes that they may use.
    ///
    /// For all other conflicts, node rules precede Positive rules, and these precede Negative rules. Among rules of the
    /// same kind, the first by name is applied, and the later one is not.
    ///
    /// Guarantees: each Negative set is checked exactly, by matching. Overlapping sets are not checked together,
    /// because that is as hard as graph coloring. All of them are applied, and a service without an eligible node
    /// reports them. Neither capacity nor the state of nodes is considered.
    pub fn compile(declared: &RuleInput) -> (Rules, Vec<RuleConflict>) {
        compile::compile(declared)
    }

    /// Returns the node-affinity rule of a service.
    pub fn node_rule(&self, resource: &ResourceName) -> Option<&NodeRule> {
        self.nodes.get(resource)
    }

    /// Returns the anti-affinity sets of a service.
    pub fn anti_affinity_rules_of<'a>(
        &'a self,
        resource: &'a ResourceName,
    ) -> impl Iterator<Item = &'a ResourceRule> {
        self.anti_affinity.iter().filter(move |partners| partners.resources.contains(resource))
    }

    /// Returns the affinity sets of a service.
    pub fn affinity_rules_of<'a>(
        &'a self,
        resource: &'a ResourceName,
    ) -> impl Iterator<Item = &'a ResourceRule> {
        self.affinity.iter().filter(move |partners| partners.resources.contains(resource))
    }

    /// Returns the services that must be on the same node as `resource` (strict Positive), without `resource` itself.
    pub fn strict_affinity_partners(&self, resource: &ResourceName) -> BTreeSet<ResourceName> {
        self.affinity_rules_of(resource)
            .filter(|partners| partners.strict)
            .flat_map(|partners| partners.resources.iter())
            .filter(|name| *name != resource)
            .cloned()
            .collect()
    }

    /// Returns all anti-affinity sets.
    pub fn anti_affinity_rules(&self) -> impl Iterator<Item = &ResourceRule> {
        self.anti_affinity.iter()
    }

    /// Returns all affinity sets.
    pub fn affinity_rules(&self) -> impl Iterator<Item = &ResourceRule> {
        self.affinity.iter()
    }

    /// Returns the strict anti-affinity sets: no two services of a set may use one node.
    pub fn strict_anti_affinity_rules(&self) -> impl Iterator<Item = &ResourceRule> {
        self.anti_affinity.iter().filter(|partners| partners.strict)
    }

    /// Returns the strict affinity sets, which do not overlap.
    pub fn strict_affinity_rules(&self) -> impl Iterator<Item = &ResourceRule> {
        self.affinity.iter().filter(|partners| partners.strict)
    }
}
