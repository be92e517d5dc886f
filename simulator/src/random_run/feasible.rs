//! Checks, without the scheduler, whether some node could run a service now: from the objects and the running services.

use super::together::set_of;
use crate::world::World;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::kind::Kind;
use ha_api_types::placement::AffinityRule;
use ha_api_types::resource::{RequestedState, Resource, ResourceStatus, ServiceState};
use serde_json::Value;
use std::collections::BTreeMap;

impl World {
    /// Returns a node that is up and may run the service now; `None` if none exists. Conservative: a node does not
    /// count if another service would have to move away first.
    pub(super) fn feasible_node(&self, name: &ResourceName, resource: &Resource) -> Option<NodeName> {
        if self.waits_in_order(resource) {
            return None;
        }
        let rules = self.rules_in_force();
        let mut running = self.running();
        // A service without a confirmed stop counts as running (SEMANTICS, section 2). So does a service on its last known
        // node until every node has answered whether it runs there.
        for other in self.resource_names() {
            let status = self.status_of::<ResourceStatus>(Kind::Resource, &other).unwrap_or_default();
            let may_run = status.state == ServiceState::Queued
                || (status.state == ServiceState::Error && status.stop_confirmed == Some(false));
            let nodes = running.entry(other).or_default();
            nodes.extend(status.node.filter(|node| may_run && !nodes.contains(node)));
        }
        self.machines.keys().find(|node| self.may_take(node, name, resource, &rules, &running)).cloned()
    }

    /// Returns `true` if a dependency of the service does not run as desired.
    fn waits_in_order(&self, resource: &Resource) -> bool {
        resource.spec.depends_on.iter().any(|first| {
            let wanted = self.typed::<Resource>(Kind::Resource, first).map(|first| first.spec.state);
            let status = self.status_of::<ResourceStatus>(Kind::Resource, first).unwrap_or_default();
            wanted != Some(RequestedState::Ignored)
                && (wanted != Some(RequestedState::Started)
                    || status.state != ServiceState::Started
                    || !status.running)
        })
    }

    fn may_take(
        &self,
        node: &NodeName,
        name: &ResourceName,
        resource: &Resource,
        rules: &[AffinityRule],
        running: &BTreeMap<ResourceName, Vec<NodeName>>,
    ) -> bool {
        let runs_at = |other: &ResourceName| running.get(other).into_iter().flatten();
        if World::kept_apart(rules, name).any(|(_, other)| runs_at(&other).any(|at| at == node)) {
            return false;
        }
        let mut set = set_of(rules, name);
        set.remove(name);
        if set.iter().any(|other| runs_at(other).any(|at| at != node)) {
            return false;
        }
        // Stopped services that must be with this one are placed together with it.
        let stopped = set.into_iter().filter(|other| runs_at(other).next().is_none());
        let mut unit: Vec<_> = stopped
            .filter_map(|other| self.typed::<Resource>(Kind::Resource, &other).map(|found| (other, found)))
            .filter(|(_, other)| other.spec.state == RequestedState::Started)
            .collect();
        unit.push((name.to_owned(), resource.clone()));
        let there: Vec<ResourceName> = running
            .iter()
            .filter(|(other, nodes)| *other != name && nodes.iter().any(|at| at == node))
            .map(|(other, _)| other.clone())
            .collect();
        self.unit_fits(node, &unit, rules, &there)
    }

    /// Returns `true` if a node can run these services in addition to its current ones.
    pub(super) fn unit_fits(
        &self,
        node: &NodeName,
        unit: &[(ResourceName, Resource)],
        rules: &[AffinityRule],
        there: &[ResourceName],
    ) -> bool {
        unit.iter().all(|(member, resource)| {
            let mut beside = there.to_vec();
            beside.extend(unit.iter().map(|(other, _)| other.clone()).filter(|other| other != member));
            self.is_open_to(node, resource)
                && self.kept_off(rules, member, node).is_empty()
                && self.lacking(resource, node, &beside).is_empty()
        })
    }

    /// Returns `true` if a node is up, accepts services, and has this service's driver.
    pub(super) fn is_open_to(&self, node: &NodeName, resource: &Resource) -> bool {
        let spec = self.spec_of(Kind::Node, node).unwrap_or_default();
        let is = |field: &str| spec.pointer(&format!("/spec/{field}")).and_then(Value::as_bool);
        let simulated = resource.spec.driver.simulated.clone().unwrap_or_default();
        self.machines.get(node).is_some_and(|machine| {
            machine.up && !self.is_broken(node) && (machine.is_guarded() || !resource.spec.exclusive)
        }) && is("maintenance") != Some(true)
            && is("schedulable") != Some(false)
            && !simulated.missing.iter().any(|missing| missing == node)
    }
}
