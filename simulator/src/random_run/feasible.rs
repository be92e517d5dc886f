//! Checks, without the scheduler, whether some node could run a service now: based on the objects and the running
//! services.

use super::affinity_sets::affinity_set_of;
use crate::world::World;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::kind::Kind;
use ha_api_types::placement::AffinityRule;
use ha_api_types::resource::{RequestedState, Resource, ResourceStatus, ServiceState};
use serde_json::Value;
use std::collections::BTreeMap;

impl World {
    /// Returns a node that is up and may run the service now; `None` if no such node exists. The check is conservative:
    /// a node does not count if another service would have to move away first.
    pub(super) fn feasible_node(&self, name: &ResourceName, resource: &Resource) -> Option<NodeName> {
        if self.is_dependency_unmet(resource) {
            return None;
        }
        let rules = self.active_rules();
        let mut running = self.running_nodes_by_service();
        // A service without a confirmed stop counts as running (FENCING, R7.17). A service also counts as running on
        // its last known node until every node has answered whether the service runs there.
        for other in self.resource_names() {
            let status = self.status_of::<ResourceStatus>(Kind::Resource, &other).unwrap_or_default();
            let may_run = status.state == ServiceState::Queued
                || (status.state == ServiceState::Error && status.stop_confirmed == Some(false));
            let nodes = running.entry(other).or_default();
            nodes.extend(status.node.filter(|node| may_run && !nodes.contains(node)));
        }
        self.machines.keys().find(|node| self.is_feasible(node, name, resource, &rules, &running)).cloned()
    }

    /// Returns `true` if a dependency of the service does not run as desired.
    fn is_dependency_unmet(&self, resource: &Resource) -> bool {
        resource.spec.depends_on.iter().any(|dependency| {
            let requested_state = self
                .read_object::<Resource>(Kind::Resource, dependency)
                .map(|dependency| dependency.spec.state);
            let status = self.status_of::<ResourceStatus>(Kind::Resource, dependency).unwrap_or_default();
            requested_state != Some(RequestedState::Ignored)
                && (requested_state != Some(RequestedState::Started)
                    || status.state != ServiceState::Started
                    || !status.running)
        })
    }

    fn is_feasible(
        &self,
        node: &NodeName,
        name: &ResourceName,
        resource: &Resource,
        rules: &[AffinityRule],
        running: &BTreeMap<ResourceName, Vec<NodeName>>,
    ) -> bool {
        let nodes_running = |other: &ResourceName| running.get(other).into_iter().flatten();
        if World::separation_rules(rules, name)
            .any(|(_, other)| nodes_running(&other).any(|running_node| running_node == node))
        {
            return false;
        }
        let mut set = affinity_set_of(rules, name);
        set.remove(name);
        if set.iter().any(|other| nodes_running(other).any(|running_node| running_node != node)) {
            return false;
        }
        // Stopped services that must run on the same node as this service are placed together with it.
        let stopped = set.into_iter().filter(|other| nodes_running(other).next().is_none());
        let mut unit: Vec<_> = stopped
            .filter_map(|other| {
                self.read_object::<Resource>(Kind::Resource, &other).map(|definition| (other, definition))
            })
            .filter(|(_, other)| other.spec.state == RequestedState::Started)
            .collect();
        unit.push((name.to_owned(), resource.clone()));
        let services_on_node: Vec<ResourceName> = running
            .iter()
            .filter(|(other, nodes)| *other != name && nodes.iter().any(|running_node| running_node == node))
            .map(|(other, _)| other.clone())
            .collect();
        self.unit_fits(node, &unit, rules, &services_on_node)
    }

    /// Returns `true` if a node can run these services in addition to its current services.
    pub(super) fn unit_fits(
        &self,
        node: &NodeName,
        unit: &[(ResourceName, Resource)],
        rules: &[AffinityRule],
        services_on_node: &[ResourceName],
    ) -> bool {
        unit.iter().all(|(member, resource)| {
            let mut other_services = services_on_node.to_vec();
            other_services
                .extend(unit.iter().map(|(other, _)| other.clone()).filter(|other| other != member));
            self.accepts_service(node, resource)
                && self.node_rule_violations(rules, member, node).is_empty()
                && self.lacking_capacity(resource, node, &other_services).is_empty()
        })
    }

    /// Returns `true` if a node is up, accepts services, and has this service's driver.
    pub(super) fn accepts_service(&self, node: &NodeName, resource: &Resource) -> bool {
        let spec = self.spec_of(Kind::Node, node).unwrap_or_default();
        let node_flag = |field: &str| spec.pointer(&format!("/spec/{field}")).and_then(Value::as_bool);
        let simulated = resource.spec.driver.simulated.clone().unwrap_or_default();
        self.machines.get(node).is_some_and(|machine| {
            machine.is_up && !self.is_broken(node) && (machine.is_guarded() || !resource.spec.exclusive)
        }) && node_flag("maintenance") != Some(true)
            && node_flag("schedulable") != Some(false)
            && !simulated.missing.iter().any(|missing| missing == node)
    }
}
