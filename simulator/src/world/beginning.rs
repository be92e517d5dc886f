//! The beginning of a world: the cluster forms, and at time 0 the services are where the scenario places them.

use super::World;
use super::event::Event;
use super::machine::{Doing, Present};
use crate::scenario::{Place, Power};
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::kind::{API_VERSION, Kind};
use ha_api_types::record::{Fence, FenceState};
use ha_api_types::resource::{Resource, ResourceStatus, ServiceDefinition, ServiceState};
use ha_api_types::time::Millis;
use ha_store::{Guard, Transaction};
use serde_json::{Value, json};

/// Virtual time at which time 0 begins even if the cluster has not formed, because some scenarios allow no leader.
const MOST_FORMING_MS: Millis = 30_000;
/// Time after the cluster has formed, so that delayed messages also reach every agent and controller.
const CALM_MS: Millis = 1_000;

impl World {
    /// Switches machines on, lets the cluster form, and begins at time 0 with every service in its place. All machines
    /// start early, so that no placement depends on the order in which nodes come up.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        let objects = self.scenario.objects.clone();
        // Objects that describe the cluster are needed while it forms. Its services are created at time 0.
        let (cluster, services): (Vec<_>, Vec<_>) =
            objects.iter().enumerate().partition(|(_, object)| is_of_the_cluster(object));
        self.apply_each(&cluster)?;
        let is_on = |machine: &&crate::scenario::Machine| machine.power == Power::On;
        let on: Vec<NodeName> =
            self.scenario.nodes.iter().filter(is_on).map(|machine| machine.name.clone()).collect();
        for node in &on {
            if let Some(machine) = self.machines.get_mut(node) {
                machine.boot = 1;
            }
            self.booted(node, 1);
        }
        self.look_at_store();
        self.form(&on);
        self.began = Some(self.now);
        self.step_began = self.now;
        for node in &on {
            self.log(node, "machine", "is up");
        }
        if let Some(leader) = self.leader() {
            self.log(&leader, "controller", "leads");
        }
        self.apply_each(&services)?;
        for (name, place) in self.scenario.place.clone() {
            let object = objects
                .iter()
                .find(|object| {
                    object.pointer("/metadata/name").and_then(Value::as_str) == Some(name.as_str())
                })
                .ok_or_else(|| format!("place.{name}: object not found"))?;
            if place.running {
                self.place_running(object, &place.node)?;
            }
            self.lie_in(&name, place)?;
        }
        self.remember_the_lost()?;
        self.queue.push(self.now, Event::Step);
        self.queue.push(self.now + super::COMPACT_MS, Event::Compact(self.store.revision()));
        Ok(())
    }

    /// Records that nodes that are off at time 0 and have services were members before.
    fn remember_the_lost(&mut self) -> Result<(), String> {
        let off = self.scenario.nodes.iter().filter(|machine| machine.power == Power::Off);
        let off: Vec<NodeName> = off.map(|machine| machine.name.clone()).collect();
        for node in off {
            let there = self.scenario.place.iter().filter(|(_, place)| place.node == node);
            let there: Vec<(ResourceName, Place)> =
                there.map(|(name, place)| (name.clone(), place.clone())).collect();
            if !there.is_empty() {
                self.was_lost(&node, &there)?;
            }
        }
        Ok(())
    }

    fn apply_each(&mut self, objects: &[(usize, &Value)]) -> Result<(), String> {
        for (at, object) in objects {
            self.apply(object).map_err(|problem| format!("objects[{at}]: {problem}"))?;
        }
        Ok(())
    }

    /// Advances time until every machine that is on is admitted and a controller is the leader.
    fn form(&mut self, on: &[NodeName]) {
        let mut until = MOST_FORMING_MS;
        while !on.is_empty() && self.now < until {
            let next = (self.now + 100).min(until);
            while self.advance(next) {}
            if until == MOST_FORMING_MS && self.has_formed(on) {
                until = self.now + CALM_MS;
            }
        }
    }

    fn has_formed(&self, on: &[NodeName]) -> bool {
        let is_admitted = |node: &NodeName| {
            let fence: Option<Fence> = self.record(&self.keys.fence(node));
            fence.is_some_and(|fence| fence.state == FenceState::Open)
                && !self.store.get(&self.keys.alive(node)).entries.is_empty()
        };
        self.leader().is_some() && on.iter().all(is_admitted)
    }

    /// Stores a node in the status of a service, which does not run.
    pub(super) fn lie(&mut self, name: &ResourceName, node: &NodeName) -> Result<(), String> {
        self.lie_in(name, Place { node: node.to_owned(), ..Place::default() })
    }

    fn lie_in(&mut self, name: &ResourceName, place: Place) -> Result<(), String> {
        let status = ResourceStatus {
            uid: self.uid_of(name),
            state: place.state.unwrap_or(ServiceState::Queued),
            node: Some(place.node),
            target: place.target,
            ..ResourceStatus::default()
        };
        let value = serde_json::to_vec(&status).map_err(|error| error.to_string())?;
        let key = self.keys.status(Kind::Resource, name);
        let before = self.store.revision();
        self.store.commit(&Transaction::new().put(key, Guard::Absent, value));
        self.committed(before + 1);
        Ok(())
    }

    fn uid_of(&self, name: &ResourceName) -> String {
        let resource: Option<Resource> = self.record(&self.keys.spec(Kind::Resource, name));
        resource.map(|resource| resource.metadata.uid).unwrap_or_default()
    }

    /// Puts a running service on a machine although no agent has started it.
    pub(super) fn place_running(&mut self, object: &Value, node: &NodeName) -> Result<(), String> {
        let mut object = object.clone();
        if object.get("metadata").is_none() {
            return Err("no metadata".to_owned());
        }
        object["apiVersion"] = json!(API_VERSION);
        let resource: Resource = serde_json::from_value(object).map_err(|error| error.to_string())?;
        let definition = ServiceDefinition::of(&resource);
        let machine = self.machines.get_mut(node).ok_or_else(|| format!("node {node:?} not found"))?;
        if !machine.up {
            return Err(format!("no service can run on {node}, which is powered off"));
        }
        machine.services.insert(definition.name.clone(), Present { definition, doing: Doing::Runs });
        self.check_never_two();
        Ok(())
    }
}

/// Returns `true` if an object describes the cluster rather than its services.
fn is_of_the_cluster(object: &Value) -> bool {
    let kind = object.get("kind").and_then(Value::as_str).and_then(Kind::parse);
    matches!(kind, Some(Kind::Cluster | Kind::Node | Kind::NodeGroup | Kind::Group))
}
