//! Placement rules as users wrote them, evaluated without the scheduler, for the invariants and the progress check.

use super::World;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::kind::Kind;
use ha_api_types::names::bare;
use ha_api_types::node::Node;
use ha_api_types::placement::{Affinity, AffinityRule, Group, RuleStatus};
use ha_api_types::quantity::{Amounts, Quantity};
use ha_api_types::reason::Reason;
use ha_api_types::resource::Resource;
use serde::de::DeserializeOwned;

/// Name of an amount, its accessor, and the factor by which requests may exceed a node's capacity.
type Limit = (&'static str, fn(&Amounts) -> Option<Quantity>, i128);

/// Default limits: no overcommitment of memory and disk, and four times the cores.
const LIMITS: [Limit; 3] = [
    ("memory", |amounts| amounts.memory, 1),
    ("disk", |amounts| amounts.disk, 1),
    ("cpu", |amounts| amounts.cpu, 4),
];

impl World {
    /// Returns a stored object; `None` if it does not exist or cannot be read.
    pub(crate) fn typed<T: DeserializeOwned>(&self, kind: Kind, name: &str) -> Option<T> {
        serde_json::from_value(self.spec_of(kind, name)?).ok()
    }

    /// Returns the stored objects of a kind.
    fn all<T: DeserializeOwned>(&self, kind: Kind) -> Vec<T> {
        self.names_of(kind).iter().filter_map(|name| self.typed(kind, name)).collect()
    }

    /// Returns the active rules: neither disabled nor in conflict with another one, as the leader reported.
    pub(crate) fn rules_in_force(&self) -> Vec<AffinityRule> {
        let conflicts = |rule: &AffinityRule| {
            let status: Option<RuleStatus> = self.status_of(Kind::AffinityRule, &rule.metadata.name);
            status.is_some_and(|status| {
                status.conditions.iter().any(|condition| condition.reason == Reason::RuleConflict)
            })
        };
        let rules: Vec<AffinityRule> = self.all(Kind::AffinityRule);
        rules.into_iter().filter(|rule| !rule.spec.disabled && !conflicts(rule)).collect()
    }

    /// Returns the reasons that keep a service off a node regardless of other services: strict node rules, and a
    /// restricted group.
    pub(crate) fn kept_off(
        &self,
        rules: &[AffinityRule],
        name: &ResourceName,
        node: &NodeName,
    ) -> Vec<String> {
        let about = |rule: &AffinityRule| {
            let about = rule.spec.node_affinity.clone()?;
            about.resources.iter().any(|member| bare(member) == name).then_some(about)
        };
        let by_rule = rules.iter().filter_map(|rule| {
            let about = about(rule).filter(|about| about.strict && !about.nodes.0.contains_key(node))?;
            let nodes: Vec<&str> = about.nodes.0.keys().map(NodeName::as_str).collect();
            let title = &rule.metadata.name;
            Some(format!("{name} is on {node}, and rule {title} allows {}", nodes.join(", ")))
        });
        // A rule with `nodeAffinity` replaces the group.
        let group = if rules.iter().any(|rule| about(rule).is_some()) {
            None
        } else {
            self.typed::<Resource>(Kind::Resource, name).and_then(|resource| resource.spec.group)
        };
        let by_group = group.and_then(|group| self.typed::<Group>(Kind::Group, &group)).and_then(|group| {
            (group.spec.restricted && !group.spec.nodes.0.contains_key(node))
                .then(|| format!("{name} is on {node}, outside its restricted group {}", group.metadata.name))
        });
        by_rule.chain(by_group).collect()
    }

    /// Returns the services that strict Negative rules keep apart from a service, each with the name of the rule.
    pub(crate) fn kept_apart<'a>(
        rules: &'a [AffinityRule],
        name: &'a ResourceName,
    ) -> impl Iterator<Item = (&'a str, ResourceName)> {
        rules.iter().flat_map(move |rule| {
            let about = rule.spec.resource_affinity.as_ref();
            let about = about.filter(|about| about.strict && about.affinity == Affinity::Negative);
            let members = about
                .into_iter()
                .flat_map(|about| &about.resources)
                .map(|member| ResourceName::from(bare(member)));
            let concerns = members.clone().any(|member| member == *name);
            let others = members.filter(move |member| concerns && member != name);
            others.map(|other| (rule.metadata.name.as_str(), other))
        })
    }

    /// Returns the amounts that a node lacks for a service in addition to others; empty if the service fits.
    pub(crate) fn lacking(
        &self,
        resource: &Resource,
        node: &NodeName,
        others: &[ResourceName],
    ) -> Vec<&'static str> {
        let spec = self.typed::<Node>(Kind::Node, node).map(|node| node.spec).unwrap_or_default();
        let declared = spec.capacity.unwrap_or_default();
        let reserved = spec.reserved.unwrap_or_default();
        let machine = self.machines.get(node).map(|machine| machine.capacity).unwrap_or_default();
        let others: Vec<Resource> =
            others.iter().filter_map(|other| self.typed(Kind::Resource, other)).collect();
        let lacks = |(what, pick, factor): &Limit| {
            let wanted = pick(&resource.spec.requests)?;
            let capacity = pick(&declared).or_else(|| pick(&machine))?;
            let used: i128 =
                others.iter().filter_map(|other| pick(&other.spec.requests)).map(Quantity::milli).sum();
            let limit = capacity.milli() * factor - pick(&reserved).unwrap_or_default().milli();
            (used + wanted.milli() > limit).then_some(*what)
        };
        LIMITS.iter().filter_map(lacks).collect()
    }
}
