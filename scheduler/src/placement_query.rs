//! The rules, partners, tags and amounts of a unit, collected once and then compared with each node.

use crate::rules::{NodeRule, ResourceRule};
use crate::score::{PriorityTier, priority_tier_in};
use crate::services::{NodeUse, Sums, add_to_sums, sums};
use crate::unit::PlacementUnit;
use crate::view::{NodeFacts, ServiceFacts, View};
use ha_api_types::cluster::SchedulerMode;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::placement::{GroupSpec, NodePriorities};
use ha_api_types::quantity::Amounts;
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::iter::Peekable;

/// A unit with the current rules and tags of its members.
#[derive(Debug)]
pub(crate) struct PlacementQuery<'a> {
    pub(crate) view: &'a View,
    pub(crate) unit: &'a PlacementUnit<'a>,
    /// Sum of the requests of all members.
    pub(crate) requests: Amounts,
    /// The members; the first is the service to be scheduled.
    pub(crate) members: Vec<Member<'a>>,
    pub(crate) current_node: Option<&'a NodeName>,
    /// Facts of `current_node` in the view.
    pub(crate) current_facts: Option<&'a NodeFacts>,
    /// Usage of each node by the members according to the view. The facts of the members in `unit` may differ from those in
    /// the view.
    unit_use: BTreeMap<&'a NodeName, UnitUse>,
    /// Indexes of the members that have node priorities, highest service priority first.
    members_with_priorities: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct Member<'a> {
    pub(crate) name: &'a ResourceName,
    pub(crate) facts: &'a ServiceFacts,
    /// The node-affinity rule of the service.
    pub(crate) node_rule: Option<&'a NodeRule>,
    /// The group that applies to the service; `None` if a node-affinity rule names the service, because that rule replaces
    /// the group.
    pub(crate) group: Option<(&'a str, &'a GroupSpec)>,
    /// Anti-affinity rules, with the partners outside the unit that use nodes.
    pub(crate) anti_affinity: Vec<AntiAffinityPartners<'a>>,
    /// Affinity rules, with the partners outside the unit that run.
    pub(crate) affinity: Vec<AffinityPartners<'a>>,
    /// Exclusion tags of the service, with the services outside the unit that have the same tag and use nodes.
    pub(crate) exclusion_tags: Vec<ExclusionTagUsers<'a>>,
}

/// An anti-affinity rule and its partners on each node.
#[derive(Debug)]
pub(crate) struct AntiAffinityPartners<'a> {
    pub(crate) rule: &'a ResourceRule,
    /// Partners that use each node, by node.
    pub(crate) by_node: BTreeMap<&'a NodeName, Vec<&'a ResourceName>>,
}

/// An affinity rule and its running partners.
#[derive(Debug)]
pub(crate) struct AffinityPartners<'a> {
    pub(crate) rule: &'a ResourceRule,
    /// Partners that use a node.
    pub(crate) running: Vec<(&'a ResourceName, &'a ServiceFacts)>,
}

/// An exclusion tag and the services that have it.
#[derive(Debug)]
pub(crate) struct ExclusionTagUsers<'a> {
    pub(crate) tag: &'a str,
    /// The first service with the tag on each node.
    pub(crate) by_node: BTreeMap<&'a NodeName, &'a ResourceName>,
}

impl<'a> PlacementQuery<'a> {
    pub(crate) fn of(view: &'a View, unit: &'a PlacementUnit<'a>) -> PlacementQuery<'a> {
        let members = unit.members.iter().map(|(name, facts)| Member::of(view, unit, name, facts));
        let members: Vec<Member<'_>> = members.collect();
        let mut members_with_priorities: Vec<usize> =
            (0..members.len()).filter(|index| members[*index].priorities().is_some()).collect();
        members_with_priorities
            .sort_by_key(|index| (Reverse(members[*index].facts.priority), members[*index].name));
        let mut unit_use: BTreeMap<&NodeName, UnitUse> = BTreeMap::new();
        for facts in unit.members.iter().filter_map(|(name, _)| view.services.get(*name)) {
            let (requested, load) = (sums(&facts.requests), sums(&facts.load(view.settings.mode)));
            for node in &facts.used_nodes {
                let use_of_node = unit_use.entry(node).or_default();
                use_of_node.count += 1;
                add_to_sums(&mut use_of_node.requested, &requested);
                add_to_sums(&mut use_of_node.load, &load);
            }
        }
        let current_node = unit.node();
        let current_facts = current_node.and_then(|node| view.nodes.get(node));
        PlacementQuery {
            view,
            unit,
            requests: unit.requests(),
            members,
            current_node,
            current_facts,
            unit_use,
            members_with_priorities,
        }
    }

    /// Returns `true` if several members have node priorities.
    pub(crate) fn has_several_priority_lists(&self) -> bool {
        self.members_with_priorities.len() > 1
    }

    /// Returns the priority tiers of a node for the members that have priorities, highest service priority first.
    pub(crate) fn priority_tiers(&self, node: &NodeName) -> impl Iterator<Item = Reverse<PriorityTier>> {
        self.members_with_priorities
            .iter()
            .map(move |index| Reverse(priority_tier_in(self.members[*index].priorities(), node)))
    }

    /// Returns every node with the usage by services outside the unit, in the order of names.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = Candidate<'_>> {
        // All three iterators are ordered by node name, so that merging them replaces a lookup per node.
        let mut node_uses = self.view.services.nodes().peekable();
        let mut unit_use = self.unit_use.iter().peekable();
        self.view.nodes.iter().map(move |(name, node)| {
            let all = next_named(&mut node_uses, name, |(used, _)| *used).map(|(_, used)| used);
            let unit_usage =
                next_named(&mut unit_use, name, |(used, _)| **used).map(|(_, unit_usage)| unit_usage);
            Candidate { name, node, outside_use: OutsideUse { all, unit: unit_usage } }
        })
    }

    /// Returns one node with the usage by services outside the unit.
    pub(crate) fn candidate(&self, node: &NodeName) -> Option<Candidate<'_>> {
        let (name, node) = self.view.nodes.get_key_value(node)?;
        Some(Candidate { name, node, outside_use: self.outside_use(name) })
    }

    /// Returns the usage of a node by services outside the unit.
    pub(crate) fn outside_use(&self, node: &NodeName) -> OutsideUse<'_> {
        OutsideUse { all: self.view.services.node_use(node), unit: self.unit_use.get(node) }
    }
}

/// Returns the next item if it has this name, and skips all items with smaller names.
fn next_named<I: Iterator>(
    items: &mut Peekable<I>,
    name: &NodeName,
    name_of: impl Fn(&I::Item) -> &NodeName,
) -> Option<I::Item> {
    loop {
        match name_of(items.peek()?).cmp(name) {
            Ordering::Less => drop(items.next()),
            Ordering::Equal => return items.next(),
            Ordering::Greater => return None,
        }
    }
}

/// A node that is considered for a unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) name: &'a NodeName,
    pub(crate) node: &'a NodeFacts,
    /// Usage of the node by services outside the unit.
    pub(crate) outside_use: OutsideUse<'a>,
}

/// Usage of a node by services outside the unit: the usage by all services minus that by the unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutsideUse<'a> {
    all: Option<&'a NodeUse>,
    unit: Option<&'a UnitUse>,
}

/// Usage of a node by the members of the unit.
#[derive(Clone, Copy, Debug, Default)]
struct UnitUse {
    count: usize,
    requested: Sums,
    load: Sums,
}

impl OutsideUse<'_> {
    /// Returns the number of services outside the unit that use the node.
    pub(crate) fn count(self) -> usize {
        self.all.map_or(0, NodeUse::count) - self.unit.map_or(0, |unit| unit.count)
    }

    /// Returns the sum of the services' requests of one kind of amount, in thousandths.
    pub(crate) fn requested(self, kind: usize) -> i128 {
        let node_use = self.all.map_or(0, |node_use| node_use.requested()[kind]);
        node_use.wrapping_sub(self.unit.map_or(0, |unit| unit.requested[kind]))
    }

    /// Returns the sum of the services' load in a scheduler mode, for one kind of amount, in thousandths.
    pub(crate) fn load(self, mode: SchedulerMode, kind: usize) -> i128 {
        let node_use = self.all.map_or(0, |node_use| node_use.load(mode)[kind]);
        node_use.wrapping_sub(self.unit.map_or(0, |unit| unit.load[kind]))
    }
}

impl<'a> Member<'a> {
    fn of(
        view: &'a View,
        unit: &PlacementUnit<'a>,
        name: &'a ResourceName,
        facts: &'a ServiceFacts,
    ) -> Member<'a> {
        let (node_rule, group) = node_rule_or_group(view, name, facts);
        let others = |rule: &'a ResourceRule| {
            rule.resources
                .iter()
                .filter(move |other| *other != name && !unit.contains(other))
                .filter_map(|other| view.services.get_key_value(other))
        };
        let anti_affinity = view.rules.anti_affinity_rules_of(name).map(|rule| {
            let mut by_node: BTreeMap<&NodeName, Vec<&ResourceName>> = BTreeMap::new();
            for (other, facts) in others(rule) {
                for node in &facts.used_nodes {
                    by_node.entry(node).or_default().push(other);
                }
            }
            AntiAffinityPartners { rule, by_node }
        });
        let affinity = view.rules.affinity_rules_of(name).map(|rule| {
            let running = others(rule).filter(|(_, facts)| !facts.used_nodes.is_empty()).collect();
            AffinityPartners { rule, running }
        });
        let exclusion_tags = view.exclusion_tags(&facts.tags).map(|tag| {
            let mut by_node = BTreeMap::new();
            let others = view.services.with_tag(tag).filter(|other| *other != name && !unit.contains(other));
            for (other, facts) in others.filter_map(|other| Some((other, view.services.get(other)?))) {
                for node in &facts.used_nodes {
                    by_node.entry(node).or_insert(other);
                }
            }
            ExclusionTagUsers { tag, by_node }
        });
        Member {
            name,
            facts,
            node_rule,
            group,
            anti_affinity: anti_affinity.collect(),
            affinity: affinity.collect(),
            exclusion_tags: exclusion_tags.collect(),
        }
    }

    /// Returns the node priorities of the service; `None` if neither a rule nor a group lists nodes for the service.
    pub(crate) fn priorities(&self) -> Option<&'a NodePriorities> {
        priorities(self.node_rule, self.group)
    }
}

/// The node-affinity rule of a service, or else its group.
type NodeRuleOrGroup<'a> = (Option<&'a NodeRule>, Option<(&'a str, &'a GroupSpec)>);

fn node_rule_or_group<'a>(view: &'a View, name: &ResourceName, facts: &ServiceFacts) -> NodeRuleOrGroup<'a> {
    let rule = view.rules.node_rule(name);
    let named = facts.group.as_ref().filter(|_| rule.is_none());
    let group = named.and_then(|group| view.groups.get_key_value(group));
    (rule, group.map(|(name, spec)| (name.as_str(), spec)))
}

fn priorities<'a>(
    rule: Option<&'a NodeRule>,
    group: Option<(&'a str, &'a GroupSpec)>,
) -> Option<&'a NodePriorities> {
    rule.map(|rule| &rule.nodes).or(group.map(|(_, group)| &group.nodes))
}

/// Returns the node priorities of a service; `None` if neither a rule nor a group lists nodes for the service.
pub(crate) fn priorities_of<'a>(
    view: &'a View,
    name: &ResourceName,
    facts: &ServiceFacts,
) -> Option<&'a NodePriorities> {
    let (rule, group) = node_rule_or_group(view, name, facts);
    priorities(rule, group)
}
