//! The progress check: after the faults, every desired service with an eligible node runs, and the status of every
//! other service states a reason.

use crate::world::World;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::kind::Kind;
use ha_api_types::node::NodeState;
use ha_api_types::reason::Reason;
use ha_api_types::resource::{RequestedState, Resource, ResourceStatus, ServiceState};
use serde_json::Value;

impl World {
    /// Checks that the cluster has recovered, at the end of a run whose faults have all ended.
    pub fn check_progress(&mut self) {
        let mut unmet = Vec::new();
        for (node, machine) in &self.machines {
            if self.is_broken(node) {
                continue;
            }
            if !machine.is_up {
                unmet.push(format!("{node} is not up"));
            } else if self.node_states.get(node) != Some(&NodeState::Online) {
                unmet.push(format!("{node} is {:?}", self.node_states.get(node)));
            }
        }
        if self.leader().is_none() {
            unmet.push("no controller is leader".to_owned());
        }
        let mut running = self.running_nodes_by_service();
        // A service on a broken node does not count as running.
        for nodes in running.values_mut() {
            nodes.retain(|node| !self.is_broken(node));
        }
        running.retain(|_, nodes| !nodes.is_empty());
        let mut exempt_services = Vec::new();
        let rules = self.active_rules();
        let rebalances = self.rebalances();
        for (name, resource, status) in self.services_with_status() {
            let nodes = running.get(&name).cloned().unwrap_or_default();
            if is_waiting(&resource, &status, &nodes) && self.feasible_node(&name, &resource).is_none() {
                exempt_services.push(name);
                continue;
            }
            if self.is_held_by_broken_node(&status) {
                exempt_services.push(name);
                continue;
            }
            // A command for a service that cannot be stopped stays open until a stop succeeds.
            if stop_fails(&resource) {
                exempt_services.push(name.clone());
            }
            // A service that was adopted on a node that its rules exclude stays there until another node can run it.
            if status.state == ServiceState::Started
                && let [node] = nodes.as_slice()
            {
                let broken_rules = self.broken_rules(&rules, &name, node);
                if !broken_rules.is_empty() && self.feasible_node(&name, &resource).is_some() {
                    unmet.extend(broken_rules);
                }
            }
            if let Some(problem) = progress_problem(&resource, &status, &nodes, rebalances) {
                let possible_node = self.feasible_node(&name, &resource);
                let possible_node =
                    possible_node.map_or_else(String::new, |node| format!(", it could run on {node}"));
                unmet.push(format!(
                    "{name} ({:?}) is {:?} at {:?} and runs on {nodes:?}{possible_node}: {problem} ({})",
                    resource.spec.state,
                    status.state,
                    status.node,
                    ready_message(&status).unwrap_or("no reason reported")
                ));
            }
        }
        unmet.extend(self.separation_problems(&rules, &running));
        // A command for a service without an eligible node waits with the service.
        for text in self.open_operations() {
            if !exempt_services.iter().any(|name| text.split_whitespace().any(|word| word == name)) {
                unmet.push(format!("{text} is in progress"));
            }
        }
        for text in unmet {
            self.record_violation("progress", text);
        }
    }

    /// Returns `true` if the cluster moves services automatically to balance load or the number of services.
    fn rebalances(&self) -> bool {
        let spec = self.spec_of(Kind::Cluster, "default").unwrap_or_default();
        ["/spec/scheduler/autoRebalance/enabled", "/spec/reservation/enabled"]
            .iter()
            .any(|field| spec.pointer(field).and_then(Value::as_bool) == Some(true))
    }

    fn services_with_status(&self) -> Vec<(ResourceName, Resource, ResourceStatus)> {
        self.resource_names()
            .into_iter()
            .filter_map(|name| {
                let resource = serde_json::from_value(self.spec_of(Kind::Resource, &name)?).ok()?;
                let status = self.status_of(Kind::Resource, &name).unwrap_or_default();
                Some((name, resource, status))
            })
            .collect()
    }
}

/// Returns the service's own explanation of why it is not in its desired state.
fn ready_message(status: &ResourceStatus) -> Option<&str> {
    let ready = status.conditions.iter().find(|condition| condition.kind == "Ready")?;
    Some(ready.message.as_str()).filter(|message| !message.is_empty())
}

/// Returns `true` if a service does not run because no node is eligible, and its status reports this. A preempted
/// service waits for a node like any other. A service whose desired state is Stopped stays in Recovery until a node is
/// eligible, because only Disabled leads out of Recovery.
fn is_waiting(resource: &Resource, status: &ResourceStatus, nodes: &[NodeName]) -> bool {
    let reports_waiting = status.conditions.iter().any(|condition| {
        matches!(
            condition.reason,
            Reason::Unschedulable
                | Reason::Preempted
                | Reason::WaitingForDependency
                | Reason::StoppingForDependency
        ) && !condition.message.is_empty()
    });
    let may_wait = match resource.spec.state {
        RequestedState::Started => true,
        RequestedState::Stopped => status.state == ServiceState::Recovery,
        RequestedState::Disabled | RequestedState::Ignored => false,
    };
    reports_waiting && nodes.is_empty() && may_wait
}

/// Returns `true` if the service's driver cannot stop the service.
pub(super) fn stop_fails(resource: &Resource) -> bool {
    resource.spec.driver.simulated.as_ref().is_some_and(|simulated| simulated.stop_fails)
}

/// Returns the problem with a service's final state; `None` if there is no problem.
fn progress_problem(
    resource: &Resource,
    status: &ResourceStatus,
    nodes: &[NodeName],
    rebalances: bool,
) -> Option<&'static str> {
    if resource.metadata.deletion_timestamp.is_some() {
        return Some("deletion does not end");
    }
    if stop_fails(resource) {
        // A received copy that cannot be removed may run without a gated driver, so only then a migration does not end.
        let waits_for_resume_permit = resource.spec.driver.waits_for_resume_permit();
        if status.state == ServiceState::Migrate && waits_for_resume_permit && !rebalances {
            return Some("live migration does not end");
        }
        // A service that cannot be stopped stays on its node; every other state with an explanation is correct.
        return ready_message(status).is_none().then_some("status has no reason");
    }
    let on_its_node = nodes.len() == 1 && nodes.first() == status.node.as_ref();
    match (status.state, resource.spec.state) {
        (ServiceState::Error, _) => ready_message(status).is_none().then_some("state Error has no reason"),
        (ServiceState::Started, RequestedState::Started) => {
            (!on_its_node).then_some("service does not run on its assigned node")
        }
        // Rebalancing begins when no other action is in progress, so it may not have ended yet.
        (ServiceState::Migrate, RequestedState::Started) if rebalances => {
            nodes.is_empty().then_some("service does not run during its live migration")
        }
        (ServiceState::Stopped, RequestedState::Stopped)
        | (ServiceState::Disabled, RequestedState::Disabled) => {
            (!nodes.is_empty()).then_some("service runs although its state is Stopped or Disabled")
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
        ) => Some("service is not in its requested state"),
    }
}
