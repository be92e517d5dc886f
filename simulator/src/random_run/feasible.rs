//! Whether some node could take a service now, found out without the scheduler: from the objects and what runs.

use crate::world::{LIMITS, World};
use ha_api_types::kind::Kind;
use ha_api_types::names::bare;
use ha_api_types::placement::{Affinity, AffinityRule, Group};
use ha_api_types::quantity::Quantity;
use ha_api_types::resource::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;

impl World {
    /// A node that is up and may take the service as things are; `None`: there is none. Conservative: a node that only a
    /// move of another service would free does not count.
    pub(super) fn feasible_node(&self, name: &str, resource: &Resource) -> Option<String> {
        let rules: Vec<AffinityRule> = self.all(Kind::AffinityRule);
        let rules: Vec<&AffinityRule> = rules.iter().filter(|rule| self.is_in_force(rule)).collect();
        let running = self.running();
        self.machines.keys().find(|node| self.may_take(node, name, resource, &rules, &running)).cloned()
    }

    fn may_take(
        &self,
        node: &str,
        name: &str,
        resource: &Resource,
        rules: &[&AffinityRule],
        running: &BTreeMap<String, Vec<String>>,
    ) -> bool {
        let spec = self.spec_of(Kind::Node, node).unwrap_or_default();
        let is = |field: &str| spec.pointer(&format!("/spec/{field}")).and_then(Value::as_bool);
        if !self.machines.get(node).is_some_and(|machine| machine.up)
            || is("maintenance") == Some(true)
            || is("schedulable") == Some(false)
        {
            return false;
        }
        let simulated = resource.spec.driver.simulated.clone().unwrap_or_default();
        if simulated.missing.iter().any(|missing| missing == node) {
            return false;
        }
        let group: Option<Group> = resource
            .spec
            .group
            .as_ref()
            .and_then(|group| serde_json::from_value(self.spec_of(Kind::Group, group)?).ok());
        if group.is_some_and(|group| group.spec.restricted && !group.spec.nodes.0.contains_key(node)) {
            return false;
        }
        let runs_at = |other: &str| running.get(other).into_iter().flatten();
        let allowed = rules.iter().all(|rule| {
            let by_node = rule.spec.node_affinity.as_ref().is_none_or(|rule| {
                !rule.strict
                    || !rule.resources.iter().any(|member| bare(member) == name)
                    || rule.nodes.0.contains_key(node)
            });
            let by_partner = rule.spec.resource_affinity.as_ref().is_none_or(|rule| {
                let members = || rule.resources.iter().map(|member| bare(member));
                let mut others = members().filter(|other| *other != name);
                !rule.strict
                    || !members().any(|member| member == name)
                    || match rule.affinity {
                        Affinity::Negative => !others.any(|other| runs_at(other).any(|at| at == node)),
                        Affinity::Positive => others.all(|other| runs_at(other).all(|at| at == node)),
                    }
            });
            by_node && by_partner
        });
        allowed && self.has_room(node, name, resource, running)
    }

    /// Whether what runs on a node leaves room for the requests of a service.
    fn has_room(
        &self,
        node: &str,
        name: &str,
        resource: &Resource,
        running: &BTreeMap<String, Vec<String>>,
    ) -> bool {
        let Some(machine) = self.machines.get(node) else { return false };
        let others: Vec<Resource> = running
            .iter()
            .filter(|(other, nodes)| *other != name && nodes.iter().any(|at| at == node))
            .filter_map(|(other, _)| serde_json::from_value(self.spec_of(Kind::Resource, other)?).ok())
            .collect();
        LIMITS.iter().all(|(_, pick, factor)| {
            let (Some(wanted), Some(capacity)) = (pick(&resource.spec.requests), pick(&machine.capacity))
            else {
                return true;
            };
            let used: i128 =
                others.iter().filter_map(|other| pick(&other.spec.requests)).map(Quantity::milli).sum();
            used + wanted.milli() <= capacity.milli() * factor
        })
    }

    /// Whether a rule is applied: neither disabled nor in conflict with another.
    fn is_in_force(&self, rule: &AffinityRule) -> bool {
        !rule.spec.disabled && !self.conflicts(&rule.metadata.name)
    }

    fn all<T: DeserializeOwned>(&self, kind: Kind) -> Vec<T> {
        let names = self.names_of(kind);
        names.iter().filter_map(|name| serde_json::from_value(self.spec_of(kind, name)?).ok()).collect()
    }
}
