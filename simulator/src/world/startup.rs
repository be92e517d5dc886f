//! The beginning of a world: the cluster forms, and at time 0 each service is on the node on which the scenario places
//! it.

use super::World;
use super::event::Event;
use super::machine::{Activity, ServiceCopy};
use crate::scenario::{InitialPlacement, Power};
use ha_api_types::id::{NodeName, ObjectUid, ResourceName};
use ha_api_types::kind::{API_VERSION, Kind};
use ha_api_types::record::{Fence, FenceState};
use ha_api_types::resource::{Resource, ResourceStatus, ServiceDefinition, ServiceState};
use ha_api_types::time::Millis;
use ha_store::{Guard, Transaction};
use serde_json::{Value, json};

/// Virtual time at which time 0 begins even if the cluster has not formed, because some scenarios allow no leader.
const MAX_FORMING_MS: Millis = 30_000;
/// Time after the cluster has formed, so that delayed messages also reach every agent and controller.
const SETTLED_AFTER_FORMING_MS: Millis = 1_000;

impl World {
    /// Switches machines on, waits until the cluster has formed, and places every service at time 0. All machines start
    /// early, so no placement depends on the order in which nodes come up.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        let objects = self.scenario.objects.clone();
        // Objects that describe the cluster are needed while it forms. Its services are created at time 0.
        let (cluster, services): (Vec<_>, Vec<_>) =
            objects.iter().enumerate().partition(|(_, object)| is_cluster_configuration(object));
        self.apply_objects(&cluster)?;
        let is_on = |machine: &&crate::scenario::Machine| machine.power == Power::On;
        let running_nodes: Vec<NodeName> =
            self.scenario.nodes.iter().filter(is_on).map(|machine| machine.name.clone()).collect();
        for node in &running_nodes {
            if let Some(machine) = self.machines.get_mut(node) {
                machine.boot = 1;
            }
            self.on_booted(node, 1);
        }
        self.update_store_leader();
        self.wait_until_formed(&running_nodes);
        self.begun_at = Some(self.now);
        self.step_begun_at = self.now;
        for node in &running_nodes {
            self.log(node, "machine", "is up");
        }
        if let Some(leader) = self.leader() {
            self.log(&leader, "controller", "leads");
        }
        self.apply_objects(&services)?;
        for (name, initial_placement) in self.scenario.initial_placements.clone() {
            let object = objects
                .iter()
                .find(|object| {
                    object.pointer("/metadata/name").and_then(Value::as_str) == Some(name.as_str())
                })
                .ok_or_else(|| format!("place.{name}: object not found"))?;
            if initial_placement.running {
                self.add_running_copy(object, &initial_placement.node)?;
            }
            self.store_placement(&name, initial_placement)?;
        }
        self.record_failed_nodes()?;
        self.queue.push(self.now, Event::Step);
        self.queue.push(self.now + super::COMPACT_INTERVAL_MS, Event::Compact(self.store.revision()));
        Ok(())
    }

    /// Records that each node that is off at time 0 and has services was a member before.
    fn record_failed_nodes(&mut self) -> Result<(), String> {
        let off_nodes = self.scenario.nodes.iter().filter(|machine| machine.power == Power::Off);
        let off_nodes: Vec<NodeName> = off_nodes.map(|machine| machine.name.clone()).collect();
        for node in off_nodes {
            let placed_services = self
                .scenario
                .initial_placements
                .iter()
                .filter(|(_, initial_placement)| initial_placement.node == node);
            let placed_services: Vec<(ResourceName, InitialPlacement)> = placed_services
                .map(|(name, initial_placement)| (name.clone(), initial_placement.clone()))
                .collect();
            if !placed_services.is_empty() {
                self.record_failed_node(&node, &placed_services)?;
            }
        }
        Ok(())
    }

    fn apply_objects(&mut self, objects: &[(usize, &Value)]) -> Result<(), String> {
        for (index, object) in objects {
            self.apply(object).map_err(|problem| format!("objects[{index}]: {problem}"))?;
        }
        Ok(())
    }

    /// Advances time until every machine that is on is admitted and a controller is the leader.
    fn wait_until_formed(&mut self, running_nodes: &[NodeName]) {
        let mut deadline_ms = MAX_FORMING_MS;
        while !running_nodes.is_empty() && self.now < deadline_ms {
            let slice_end_ms = (self.now + 100).min(deadline_ms);
            while self.advance(slice_end_ms) {}
            if deadline_ms == MAX_FORMING_MS && self.has_formed(running_nodes) {
                deadline_ms = self.now + SETTLED_AFTER_FORMING_MS;
            }
        }
    }

    fn has_formed(&self, running_nodes: &[NodeName]) -> bool {
        let is_admitted = |node: &NodeName| {
            let fence: Option<Fence> = self.read_record(&self.keys.fence(node));
            fence.is_some_and(|fence| fence.state == FenceState::Open)
                && !self.store.get(&self.keys.alive(node)).entries.is_empty()
        };
        self.leader().is_some() && running_nodes.iter().all(is_admitted)
    }

    /// Stores a node in the status of a service that does not run.
    pub(super) fn store_stopped_placement(
        &mut self,
        name: &ResourceName,
        node: &NodeName,
    ) -> Result<(), String> {
        self.store_placement(name, InitialPlacement { node: node.to_owned(), ..InitialPlacement::default() })
    }

    fn store_placement(
        &mut self,
        name: &ResourceName,
        initial_placement: InitialPlacement,
    ) -> Result<(), String> {
        let status = ResourceStatus {
            uid: self.uid_of(name),
            state: initial_placement.state.unwrap_or(ServiceState::Queued),
            node: Some(initial_placement.node),
            target: initial_placement.target,
            ..ResourceStatus::default()
        };
        let value = serde_json::to_vec(&status).map_err(|error| error.to_string())?;
        let key = self.keys.status(Kind::Resource, name);
        let revision_before = self.store.revision();
        self.store.commit(&Transaction::new().put(key, Guard::Absent, value));
        self.handle_commit(revision_before + 1);
        Ok(())
    }

    fn uid_of(&self, name: &ResourceName) -> ObjectUid {
        let resource: Option<Resource> = self.read_record(&self.keys.spec(Kind::Resource, name));
        resource.map(|resource| resource.metadata.uid).unwrap_or_default()
    }

    /// Puts a running service on a machine although no agent has started it.
    pub(super) fn add_running_copy(&mut self, object: &Value, node: &NodeName) -> Result<(), String> {
        let mut object = object.clone();
        if object.get("metadata").is_none() {
            return Err("no metadata".to_owned());
        }
        object["apiVersion"] = json!(API_VERSION);
        let resource: Resource = serde_json::from_value(object).map_err(|error| error.to_string())?;
        let definition = ServiceDefinition::of(&resource);
        let machine = self.machines.get_mut(node).ok_or_else(|| format!("node {node:?} not found"))?;
        if !machine.is_up {
            return Err(format!("no service can run on {node}, which is powered off"));
        }
        machine
            .services
            .insert(definition.name.clone(), ServiceCopy { definition, activity: Activity::Runs });
        self.check_at_most_one_copy();
        Ok(())
    }
}

/// Returns `true` if an object describes the cluster rather than its services.
fn is_cluster_configuration(object: &Value) -> bool {
    let kind = object.get("kind").and_then(Value::as_str).and_then(Kind::parse);
    matches!(kind, Some(Kind::Cluster | Kind::Node | Kind::NodeGroup | Kind::Group))
}
