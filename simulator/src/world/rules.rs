//! Placement rules as users wrote them, evaluated without the scheduler, for the invariants and the progress check.

use super::World;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::kind::Kind;
use ha_api_types::names::without_type;
use ha_api_types::node::Node;
use ha_api_types::placement::{Affinity, AffinityRule, Group, RuleStatus};
use ha_api_types::quantity::{Amounts, Quantity};
use ha_api_types::reason::Reason;
use ha_api_types::resource::Resource;
use serde::de::DeserializeOwned;

/// An amount: its name, its accessor, and the maximum ratio of the requests to a node's capacity.
type Limit = (&'static str, fn(&Amounts) -> Option<Quantity>, i128);

/// Default limits: no overcommitment of memory and disk, and four times the cores.
const LIMITS: [Limit; 3] = [
    ("memory", |amounts| amounts.memory, 1),
    ("disk", |amounts| amounts.disk, 1),
    ("cpu", |amounts| amounts.cpu, 4),
];

impl World {
    /// Returns a stored object; `None` if it does not exist or cannot be read.
    pub(crate) fn read_object<T: DeserializeOwned>(&self, kind: Kind, name: &str) -> Option<T> {
        serde_json::from_value(self.spec_of(kind, name)?).ok()
    }

    /// Returns the stored objects of a kind.
    fn all_of_kind<T: DeserializeOwned>(&self, kind: Kind) -> Vec<T> {
        self.names_of(kind).iter().filter_map(|name| self.read_object(kind, name)).collect()
    }

    /// Returns the active rules: neither disabled nor in conflict with another rule, according to the leader.
    pub(crate) fn active_rules(&self) -> Vec<AffinityRule> {
        let is_conflicting = |rule: &AffinityRule| {
            let status: Option<RuleStatus> = self.status_of(Kind::AffinityRule, &rule.metadata.name);
            status.is_some_and(|status| {
                status.conditions.iter().any(|condition| condition.reason == Reason::RuleConflict)
            })
        };
        let rules: Vec<AffinityRule> = self.all_of_kind(Kind::AffinityRule);
        rules.into_iter().filter(|rule| !rule.spec.disabled && !is_conflicting(rule)).collect()
    }

    /// Returns the reasons that keep a service off a node regardless of other services: strict node rules, and a
    /// restricted group.
    pub(crate) fn node_rule_violations(
        &self,
        rules: &[AffinityRule],
        name: &ResourceName,
        node: &NodeName,
    ) -> Vec<String> {
        let affinity_spec = |rule: &AffinityRule| {
            let affinity_spec = rule.spec.node_affinity.clone()?;
            affinity_spec.resources.iter().any(|member| without_type(member) == name).then_some(affinity_spec)
        };
        let rule_violations = rules.iter().filter_map(|rule| {
            let affinity_spec = affinity_spec(rule)
                .filter(|affinity_spec| affinity_spec.strict && !affinity_spec.nodes.0.contains_key(node))?;
            let nodes: Vec<&str> = affinity_spec.nodes.0.keys().map(NodeName::as_str).collect();
            let rule_name = &rule.metadata.name;
            Some(format!("{name} is on {node}, and rule {rule_name} allows {}", nodes.join(", ")))
        });
        // A rule with `nodeAffinity` replaces the group.
        let group = if rules.iter().any(|rule| affinity_spec(rule).is_some()) {
            None
        } else {
            self.read_object::<Resource>(Kind::Resource, name).and_then(|resource| resource.spec.group)
        };
        let group_violation =
            group.and_then(|group| self.read_object::<Group>(Kind::Group, &group)).and_then(|group| {
                (group.spec.restricted && !group.spec.nodes.0.contains_key(node)).then(|| {
                    format!("{name} is on {node}, outside its restricted group {}", group.metadata.name)
                })
            });
        rule_violations.chain(group_violation).collect()
    }

    /// Returns the services that strict Negative rules keep apart from a service, each with the name of the rule.
    pub(crate) fn separation_rules<'a>(
        rules: &'a [AffinityRule],
        name: &'a ResourceName,
    ) -> impl Iterator<Item = (&'a str, ResourceName)> {
        rules.iter().flat_map(move |rule| {
            let affinity_spec = rule.spec.resource_affinity.as_ref();
            let affinity_spec = affinity_spec
                .filter(|affinity_spec| affinity_spec.strict && affinity_spec.affinity == Affinity::Negative);
            let members = affinity_spec
                .into_iter()
                .flat_map(|affinity_spec| &affinity_spec.resources)
                .map(|member| ResourceName::from(without_type(member)));
            let names_service = members.clone().any(|member| member == *name);
            let other_members = members.filter(move |member| names_service && member != name);
            other_members.map(|other| (rule.metadata.name.as_str(), other))
        })
    }

    /// Returns the amounts that a node lacks for a service in addition to other services; empty if the service fits.
    pub(crate) fn lacking_capacity(
        &self,
        resource: &Resource,
        node: &NodeName,
        other_services: &[ResourceName],
    ) -> Vec<&'static str> {
        let spec = self.read_object::<Node>(Kind::Node, node).map(|node| node.spec).unwrap_or_default();
        let declared = spec.capacity.unwrap_or_default();
        let reserved = spec.reserved.unwrap_or_default();
        let machine = self.machines.get(node).map(|machine| machine.capacity).unwrap_or_default();
        let other_services: Vec<Resource> =
            other_services.iter().filter_map(|other| self.read_object(Kind::Resource, other)).collect();
        let lacks = |(quantity_name, amount_of, factor): &Limit| {
            let requested = amount_of(&resource.spec.requests)?;
            let capacity = amount_of(&declared).or_else(|| amount_of(&machine))?;
            let used: i128 = other_services
                .iter()
                .filter_map(|other| amount_of(&other.spec.requests))
                .map(Quantity::milli)
                .sum();
            let limit = capacity.milli() * factor - amount_of(&reserved).unwrap_or_default().milli();
            (used + requested.milli() > limit).then_some(*quantity_name)
        };
        LIMITS.iter().filter_map(lacks).collect()
    }
}
