//! Progress: once the faults have stopped, what is wanted runs, and what does not says why.

use crate::world::World;
use ha_api_types::kind::Kind;
use ha_api_types::node::NodeState;
use ha_api_types::reason::Reason;
use ha_api_types::resource::{RequestedState, Resource, ResourceStatus, ServiceState};
use serde_json::Value;

impl World {
    /// Checks that everything came right; to be called after a run whose faults have all ended.
    pub fn check_progress(&mut self) {
        let mut missing = Vec::new();
        for (node, machine) in &self.machines {
            if !machine.up {
                missing.push(format!("{node} is not up"));
            } else if self.node_states.get(node) != Some(&NodeState::Online) {
                missing.push(format!("{node} is {:?}", self.node_states.get(node)));
            }
        }
        if self.leader().is_none() {
            missing.push("nobody leads".to_owned());
        }
        let running = self.running();
        let mut held = Vec::new();
        for (name, resource, status) in self.services() {
            let nodes = running.get(&name).cloned().unwrap_or_default();
            if self.is_held_by_a_rule(&name, &status) {
                held.push(name);
                continue;
            }
            if let Some(problem) = problem(&resource, &status, &nodes) {
                let reason = status.conditions.iter().find(|condition| condition.kind == "Ready");
                let reason = reason.map(|ready| ready.message.clone()).unwrap_or_default();
                missing.push(format!(
                    "{name} ({:?}) is {:?} at {:?} and runs on {nodes:?}: {problem} ({reason})",
                    resource.spec.state, status.state, status.node
                ));
            }
        }
        // A command for a service that no node can take waits with it.
        for text in self.operations_under_way() {
            if !held.iter().any(|name| text.split_whitespace().any(|word| word == name)) {
                missing.push(format!("{text} is under way"));
            }
        }
        for text in missing {
            self.violate("progress", text);
        }
    }

    /// No node can take it, and it says so, while a strict rule ties it to another service: it says why.
    fn is_held_by_a_rule(&self, name: &str, status: &ResourceStatus) -> bool {
        let tied = self.names_of(Kind::AffinityRule).iter().any(|rule| {
            let spec = self.spec_of(Kind::AffinityRule, rule).unwrap_or_default();
            let strict = spec.pointer("/spec/resourceAffinity/strict") == Some(&Value::Bool(true));
            let members = spec.pointer("/spec/resourceAffinity/resources").and_then(Value::as_array);
            strict && members.is_some_and(|members| members.iter().any(|member| member == name))
        });
        let says_so = status
            .conditions
            .iter()
            .any(|condition| condition.reason == Reason::NoFeasibleNode && !condition.message.is_empty());
        tied && says_so
    }

    fn services(&self) -> Vec<(String, Resource, ResourceStatus)> {
        self.names_of(Kind::Resource)
            .into_iter()
            .filter_map(|name| {
                let resource = serde_json::from_value(self.spec_of(Kind::Resource, &name)?).ok()?;
                let status = self.status_of(Kind::Resource, &name).unwrap_or_default();
                Some((name, resource, status))
            })
            .collect()
    }
}

/// What is wrong with how a service ended up; `None`: nothing.
fn problem(resource: &Resource, status: &ResourceStatus, nodes: &[String]) -> Option<&'static str> {
    if resource.metadata.deletion_timestamp.is_some() {
        return Some("its deletion does not end");
    }
    let stop_fails = resource.spec.driver.simulated.as_ref().is_some_and(|simulated| simulated.stop_fails);
    if stop_fails {
        // Where it cannot be stopped it stays, in whatever state says so.
        return None;
    }
    let on_its_node = nodes.len() == 1 && nodes.first() == status.node.as_ref();
    match (status.state, resource.spec.state) {
        (ServiceState::Error, _) => {
            let explained = status
                .conditions
                .iter()
                .any(|condition| condition.kind == "Ready" && !condition.message.is_empty());
            (!explained).then_some("its error says nothing")
        }
        (ServiceState::Started, RequestedState::Started) => {
            (!on_its_node).then_some("it does not run where it should")
        }
        (ServiceState::Stopped, RequestedState::Stopped)
        | (ServiceState::Disabled, RequestedState::Disabled) => {
            (!nodes.is_empty()).then_some("it runs although it is stopped")
        }
        (ServiceState::Ignored, RequestedState::Ignored) => None,
        (
            ServiceState::Queued
            | ServiceState::RequestStart
            | ServiceState::Starting
            | ServiceState::Started
            | ServiceState::RequestStop
            | ServiceState::Stopping
            | ServiceState::Stopped
            | ServiceState::Migrate
            | ServiceState::Relocate
            | ServiceState::Fence
            | ServiceState::Recovery
            | ServiceState::Freeze
            | ServiceState::Disabled
            | ServiceState::Ignored
            | ServiceState::Deleting,
            RequestedState::Started
            | RequestedState::Stopped
            | RequestedState::Disabled
            | RequestedState::Ignored,
        ) => Some("it is not as wanted"),
    }
}
