//! The rules, partners, tags and amounts of a unit, collected once and then compared with each node.

use crate::rules::{NodeRule, Partners};
use crate::score::{Class, class_in};
use crate::services::{NodeUse, Sums, add, sums};
use crate::unit::Unit;
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
pub(crate) struct Asked<'a> {
    pub(crate) view: &'a View,
    pub(crate) unit: &'a Unit<'a>,
    /// Sum of the requests of all members.
    pub(crate) requests: Amounts,
    /// The members; the first is the service to be scheduled.
    pub(crate) members: Vec<Member<'a>>,
    /// The node on which the unit is.
    pub(crate) place: Option<&'a NodeName>,
    /// The facts of that node in the view.
    pub(crate) current: Option<&'a NodeFacts>,
    /// Usage of each node by the members according to the view. The facts of the members in `unit` may differ from those in
    /// the view.
    own: BTreeMap<&'a NodeName, Own>,
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
    pub(crate) apart: Vec<Apart<'a>>,
    /// Affinity rules, with the partners outside the unit that run.
    pub(crate) together: Vec<Beside<'a>>,
    /// Exclusion tags of the service, with the services outside the unit that have the same tag and use nodes.
    pub(crate) tags: Vec<Clash<'a>>,
}

/// An anti-affinity rule and its partners on each node.
#[derive(Debug)]
pub(crate) struct Apart<'a> {
    pub(crate) rule: &'a Partners,
    /// Partners that use each node, by node.
    pub(crate) on: BTreeMap<&'a NodeName, Vec<&'a ResourceName>>,
}

/// An affinity rule and its running partners.
#[derive(Debug)]
pub(crate) struct Beside<'a> {
    pub(crate) rule: &'a Partners,
    /// Partners that use a node.
    pub(crate) running: Vec<(&'a ResourceName, &'a ServiceFacts)>,
}

/// An exclusion tag and the services that have it.
#[derive(Debug)]
pub(crate) struct Clash<'a> {
    pub(crate) tag: &'a str,
    /// The first service with the tag on each node.
    pub(crate) on: BTreeMap<&'a NodeName, &'a ResourceName>,
}

impl<'a> Asked<'a> {
    pub(crate) fn of(view: &'a View, unit: &'a Unit<'a>) -> Asked<'a> {
        let members = unit.members.iter().map(|(name, facts)| Member::of(view, unit, name, facts));
        let members: Vec<Member<'_>> = members.collect();
        let mut members_with_priorities: Vec<usize> =
            (0..members.len()).filter(|at| members[*at].priorities().is_some()).collect();
        members_with_priorities.sort_by_key(|at| (Reverse(members[*at].facts.priority), members[*at].name));
        let mut own: BTreeMap<&NodeName, Own> = BTreeMap::new();
        for facts in unit.members.iter().filter_map(|(name, _)| view.services.get(*name)) {
            let (requested, load) = (sums(&facts.requests), sums(&facts.load(view.settings.mode)));
            for node in &facts.uses {
                let own = own.entry(node).or_default();
                own.count += 1;
                add(&mut own.requested, &requested);
                add(&mut own.load, &load);
            }
        }
        let place = unit.node();
        let current = place.and_then(|node| view.nodes.get(node));
        Asked { view, unit, requests: unit.requests(), members, place, current, own, members_with_priorities }
    }

    /// Returns `true` if several members have node priorities.
    pub(crate) fn has_choosy_partners(&self) -> bool {
        self.members_with_priorities.len() > 1
    }

    /// Returns the priority tiers of a node for the members that have priorities, highest service priority first.
    pub(crate) fn classes(&self, node: &NodeName) -> impl Iterator<Item = Reverse<Class>> {
        self.members_with_priorities
            .iter()
            .map(move |at| Reverse(class_in(self.members[*at].priorities(), node)))
    }

    /// Returns every node with the usage by services outside the unit, in the order of names.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = Candidate<'_>> {
        // All three iterators are ordered by node name, so that merging them replaces a lookup per node.
        let mut uses = self.view.services.nodes().peekable();
        let mut own = self.own.iter().peekable();
        self.view.nodes.iter().map(move |(name, node)| {
            let all = next_at(&mut uses, name, |(used, _)| *used).map(|(_, used)| used);
            let own = next_at(&mut own, name, |(used, _)| **used).map(|(_, own)| own);
            Candidate { name, node, others: Others { all, own } }
        })
    }

    /// Returns one node with the usage by services outside the unit.
    pub(crate) fn candidate(&self, node: &NodeName) -> Option<Candidate<'_>> {
        let (name, node) = self.view.nodes.get_key_value(node)?;
        Some(Candidate { name, node, others: self.others(name) })
    }

    /// Returns the usage of a node by services outside the unit.
    pub(crate) fn others(&self, node: &NodeName) -> Others<'_> {
        Others { all: self.view.services.on(node), own: self.own.get(node) }
    }
}

/// Returns the next item if it has this name, and skips all items with smaller names.
fn next_at<I: Iterator>(
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
    pub(crate) others: Others<'a>,
}

/// Usage of a node by services outside the unit: the usage by all services minus that by the unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Others<'a> {
    all: Option<&'a NodeUse>,
    own: Option<&'a Own>,
}

/// Usage of a node by the members of the unit.
#[derive(Clone, Copy, Debug, Default)]
struct Own {
    count: usize,
    requested: Sums,
    load: Sums,
}

impl Others<'_> {
    /// Returns the number of services outside the unit that use the node.
    pub(crate) fn count(self) -> usize {
        self.all.map_or(0, NodeUse::count) - self.own.map_or(0, |own| own.count)
    }

    /// Returns the sum of the services' requests of one kind of amount, in thousandths.
    pub(crate) fn requested(self, kind: usize) -> i128 {
        let all = self.all.map_or(0, |all| all.requested()[kind]);
        all.wrapping_sub(self.own.map_or(0, |own| own.requested[kind]))
    }

    /// Returns the sum of the services' load in a scheduler mode, for one kind of amount, in thousandths.
    pub(crate) fn load(self, mode: SchedulerMode, kind: usize) -> i128 {
        let all = self.all.map_or(0, |all| all.load(mode)[kind]);
        all.wrapping_sub(self.own.map_or(0, |own| own.load[kind]))
    }
}

impl<'a> Member<'a> {
    fn of(view: &'a View, unit: &Unit<'a>, name: &'a ResourceName, facts: &'a ServiceFacts) -> Member<'a> {
        let (node_rule, group) = placed_by(view, name, facts);
        let others = |rule: &'a Partners| {
            rule.resources
                .iter()
                .filter(move |other| *other != name && !unit.contains(other))
                .filter_map(|other| view.services.get_key_value(other))
        };
        let apart = view.rules.apart_from(name).map(|rule| {
            let mut on: BTreeMap<&NodeName, Vec<&ResourceName>> = BTreeMap::new();
            for (other, facts) in others(rule) {
                for node in &facts.uses {
                    on.entry(node).or_default().push(other);
                }
            }
            Apart { rule, on }
        });
        let together = view.rules.together_with(name).map(|rule| {
            let running = others(rule).filter(|(_, facts)| !facts.uses.is_empty()).collect();
            Beside { rule, running }
        });
        let tags = view.exclusion_tags(&facts.tags).map(|tag| {
            let mut on = BTreeMap::new();
            let others = view.services.tagged(tag).filter(|other| *other != name && !unit.contains(other));
            for (other, facts) in others.filter_map(|other| Some((other, view.services.get(other)?))) {
                for node in &facts.uses {
                    on.entry(node).or_insert(other);
                }
            }
            Clash { tag, on }
        });
        Member {
            name,
            facts,
            node_rule,
            group,
            apart: apart.collect(),
            together: together.collect(),
            tags: tags.collect(),
        }
    }

    /// Returns the node priorities of the service; `None` if neither a rule nor a group lists nodes for the service.
    pub(crate) fn priorities(&self) -> Option<&'a NodePriorities> {
        priorities(self.node_rule, self.group)
    }
}

/// The node-affinity rule of a service, or else its group.
type PlacedBy<'a> = (Option<&'a NodeRule>, Option<(&'a str, &'a GroupSpec)>);

fn placed_by<'a>(view: &'a View, name: &ResourceName, facts: &ServiceFacts) -> PlacedBy<'a> {
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
    let (rule, group) = placed_by(view, name, facts);
    priorities(rule, group)
}
