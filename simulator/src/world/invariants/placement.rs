//! Where services are put: strict rules hold after every planned move, and a placement never exceeds a node's capacity.

use super::super::World;
use ha_api_types::kind::Kind;
use ha_api_types::names::bare;
use ha_api_types::node::Node;
use ha_api_types::placement::{Affinity, AffinityRule, Group};
use ha_api_types::quantity::{Amounts, Quantity};
use ha_api_types::record::{Action, Assignment};
use ha_api_types::resource::{Resource, ResourceStatus, ServiceState};
use ha_api_types::time::Millis;
use serde::de::DeserializeOwned;

/// One of three amounts, and by how much the sum of requests may exceed what a node has.
pub(crate) type Limit = (&'static str, fn(&Amounts) -> Option<Quantity>, i128);

/// As the settings are by default: no more memory and disk than there is, four times the cores.
pub(crate) const LIMITS: [Limit; 3] = [
    ("memory", |amounts| amounts.memory, 1),
    ("disk", |amounts| amounts.disk, 1),
    ("cpu", |amounts| amounts.cpu, 4),
];

impl World {
    /// A service has arrived where it was moved to. A rule that was changed while it moved says nothing yet.
    pub(super) fn check_rules_after_move(&mut self, name: &str, to: &str, begun: Millis) {
        if self.rules_changed_at >= begun {
            return;
        }
        for problem in self.broken_rules(name, to) {
            self.violate("strict rules hold after a move", problem);
        }
    }

    /// Strict rules in force that a service on a node breaks.
    pub(crate) fn broken_rules(&self, name: &str, node: &str) -> Vec<String> {
        let mut broken = Vec::new();
        let rules = self.names_of(Kind::AffinityRule);
        let rules = rules.iter().filter(|rule| !self.conflicts(rule));
        for rule in rules.filter_map(|rule| self.typed::<AffinityRule>(Kind::AffinityRule, rule)) {
            if rule.spec.disabled {
                continue;
            }
            let title = &rule.metadata.name;
            if let Some(by_node) = rule.spec.node_affinity.filter(|rule| rule.strict)
                && by_node.resources.iter().any(|member| bare(member) == name)
                && !by_node.nodes.0.contains_key(node)
            {
                broken.push(format!("{name} is on {node}, which rule {title} does not allow"));
            }
            if let Some(partners) = rule.spec.resource_affinity.filter(|rule| rule.strict)
                && partners.affinity == Affinity::Negative
                && partners.resources.iter().any(|member| bare(member) == name)
            {
                let partners = partners.resources.iter().map(|member| bare(member));
                for other in partners.filter(|other| *other != name && self.is_counted_on(other, node)) {
                    broken
                        .push(format!("{name} and {other} are on {node}, and rule {title} keeps them apart"));
                }
            }
        }
        let resource: Option<Resource> = self.typed(Kind::Resource, name);
        let group = resource.and_then(|resource| resource.spec.group);
        if let Some(group) = group.and_then(|group| self.typed::<Group>(Kind::Group, &group))
            && group.spec.restricted
            && !group.spec.nodes.0.contains_key(node)
        {
            broken.push(format!("{name} is on {node}, outside its restricted group {}", group.metadata.name));
        }
        broken
    }

    /// A service is given to a node: it fits in there. One that runs there already is not placed.
    pub(super) fn check_capacity(&mut self, name: &str, value: &[u8]) {
        let Ok(assignment) = serde_json::from_slice::<Assignment>(value) else {
            return self.violate("readable records", format!("assignment of {name} cannot be read"));
        };
        let node = match assignment.action {
            Action::Start | Action::Restart => assignment.node,
            Action::Migrate { target, .. } => target,
            Action::Stop { .. } | Action::Leave => return,
        };
        let before = self.placed.insert(name.to_owned(), node.clone());
        if before.as_ref() == Some(&node) || self.present(&node, name).is_some() {
            return;
        }
        for problem in self.overcommitted(name, &node) {
            self.violate("capacity is never exceeded", problem);
        }
    }

    fn overcommitted(&self, name: &str, node: &str) -> Vec<String> {
        let Some(resource) = self.typed::<Resource>(Kind::Resource, name) else { return Vec::new() };
        let spec = self.typed::<Node>(Kind::Node, node).map(|node| node.spec).unwrap_or_default();
        let declared = spec.capacity.unwrap_or_default();
        let reserved = spec.reserved.unwrap_or_default();
        let machine = self.machines.get(node).map(|machine| machine.capacity).unwrap_or_default();
        let others: Vec<Resource> = self
            .names_of(Kind::Resource)
            .iter()
            .filter(|other| *other != name && self.is_counted_on(other, node))
            .filter_map(|other| self.typed(Kind::Resource, other))
            .collect();
        let check = |(what, pick, factor): &Limit| {
            let wanted = pick(&resource.spec.requests)?;
            let capacity = pick(&declared).or_else(|| pick(&machine))?;
            let used: i128 =
                others.iter().filter_map(|other| pick(&other.spec.requests)).map(Quantity::milli).sum();
            let limit = capacity.milli() * factor - pick(&reserved).unwrap_or_default().milli();
            let over = used + wanted.milli() > limit;
            over.then(|| format!("{name} is given to {node}, which has not enough {what} for it"))
        };
        LIMITS.iter().filter_map(check).collect()
    }

    /// Whether a service counts on a node: it is there or on its way there, and not at rest.
    fn is_counted_on(&self, name: &str, node: &str) -> bool {
        let Some(status) = self.status_of::<ResourceStatus>(Kind::Resource, name) else { return false };
        let here = status.node.as_deref() == Some(node) || status.target.as_deref() == Some(node);
        here && match status.state {
            ServiceState::Starting
            | ServiceState::Started
            | ServiceState::RequestStop
            | ServiceState::Stopping
            | ServiceState::Migrate
            | ServiceState::Relocate
            | ServiceState::Freeze
            | ServiceState::Fence => true,
            ServiceState::Queued
            | ServiceState::RequestStart
            | ServiceState::Stopped
            | ServiceState::Recovery
            | ServiceState::Error
            | ServiceState::Disabled
            | ServiceState::Ignored
            | ServiceState::Deleting => false,
        }
    }

    fn typed<T: DeserializeOwned>(&self, kind: Kind, name: &str) -> Option<T> {
        serde_json::from_value(self.spec_of(kind, name)?).ok()
    }
}
