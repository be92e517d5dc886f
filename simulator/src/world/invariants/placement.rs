//! Invariants of placements: strict rules hold after every planned move, and no placement exceeds a node's capacity.

use super::super::World;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::kind::Kind;
use ha_api_types::placement::AffinityRule;
use ha_api_types::record::{Action, Assignment, Fence, FenceState, Phase, ServiceReport};
use ha_api_types::resource::{Resource, ResourceStatus, ServiceState};
use ha_api_types::time::Millis;

impl World {
    /// Checks strict rules after a service has moved. The check is skipped if a rule changed during the move, or if a
    /// probe found a service running on the target in the meantime.
    pub(super) fn check_rules_after_move(&mut self, name: &ResourceName, to: &NodeName, begun: Millis) {
        if self.rules_changed_at >= begun || self.found_running_at.get(to).is_some_and(|at| *at >= begun) {
            return;
        }
        let rules = self.active_rules();
        for problem in self.broken_rules(&rules, name, to) {
            self.record_violation("strict rules hold after a move", problem);
        }
    }

    /// Returns the strict rules that a service on a node breaks, except positive affinity.
    pub(crate) fn broken_rules(
        &self,
        rules: &[AffinityRule],
        name: &ResourceName,
        node: &NodeName,
    ) -> Vec<String> {
        let mut broken = self.node_rule_violations(rules, name, node);
        let conflicts =
            World::separation_rules(rules, name).filter(|(_, other)| self.counts_on_node(other, node));
        broken.extend(conflicts.map(|(rule, other)| {
            format!("{name} and {other} are on {node}, and rule {rule} keeps them apart")
        }));
        broken
    }

    /// Checks that an assignment fits into its node. A service that already runs on the node is adopted there, so it is
    /// not checked. A service that a lost node last reported running is not checked either.
    pub(super) fn check_capacity(&mut self, name: &ResourceName, value: &[u8]) {
        let Ok(assignment) = serde_json::from_slice::<Assignment>(value) else {
            return self.record_violation("readable records", format!("assignment of {name} cannot be read"));
        };
        let node = match assignment.action {
            Action::Start | Action::Restart => assignment.node,
            Action::Migrate { target, .. } => target,
            Action::Stop { .. } | Action::DoNothing => return,
        };
        let previous_node = self.assigned_nodes.insert(name.to_owned(), node.clone());
        if previous_node.as_ref() == Some(&node)
            || self.service_activity(&node, name).is_some()
            || self.is_reported_running(&node, name)
        {
            return;
        }
        let Some(resource) = self.read_object::<Resource>(Kind::Resource, name) else { return };
        let other_services: Vec<ResourceName> = self
            .resource_names()
            .into_iter()
            .filter(|other| other != name && self.counts_on_node(other, &node))
            .collect();
        for lacking_resource in self.lacking_capacity(&resource, &node, &other_services) {
            let problem = format!("{name} is assigned to {node}, which lacks {lacking_resource}");
            self.record_violation("capacity is never exceeded", problem);
        }
    }

    fn is_reported_running(&self, node: &NodeName, name: &ResourceName) -> bool {
        let report: Option<ServiceReport> = self.read_record(&self.keys.service_report(node, name));
        report.is_some_and(|report| matches!(report.phase, Phase::Running | Phase::ProbedRunning))
    }

    /// Returns `true` if a node has confirmed the end of the action in a service's status. The leader's writes of one
    /// moment commit in any order. A service that takes freed capacity can thus appear before the new status of the
    /// service that freed it.
    fn has_ended(
        &self,
        node: &NodeName,
        name: &ResourceName,
        status: &ResourceStatus,
        end_phases: &[Phase],
    ) -> bool {
        let report: Option<ServiceReport> = self.read_record(&self.keys.service_report(node, name));
        report.is_some_and(|report| {
            end_phases.contains(&report.phase)
                && report.action_uid.is_some()
                && report.action_uid == status.action_uid
        })
    }

    /// Returns `true` if a node has a later registration than the one under which the service was frozen: the service runs
    /// nowhere, and the leader schedules it with the other services that wait.
    fn has_returned(&self, node: &NodeName, status: &ResourceStatus) -> bool {
        let fence: Option<Fence> = self.read_record(&self.keys.fence(node));
        fence.is_some_and(|fence| {
            fence.state == FenceState::Open && status.epoch.is_some_and(|epoch| epoch < fence.epoch)
        })
    }

    /// Returns `true` if a service counts on a node: the node is its node or target, and the service is not at rest.
    fn counts_on_node(&self, name: &ResourceName, node: &NodeName) -> bool {
        let Some(status) = self.status_of::<ResourceStatus>(Kind::Resource, name) else { return false };
        let is_on_node = status.node.as_ref() == Some(node) || status.target.as_ref() == Some(node);
        is_on_node
            && match status.state {
                ServiceState::Starting => !self.has_ended(node, name, &status, &[Phase::Failed]),
                ServiceState::Freeze if self.has_returned(node, &status) => false,
                // A service that was stopped before the cluster was disarmed uses no capacity while it is frozen.
                ServiceState::RequestStop
                | ServiceState::Stopping
                | ServiceState::Migrate
                | ServiceState::Relocate
                | ServiceState::Freeze => {
                    let end_phases = [Phase::Stopped, Phase::Failed, Phase::HandedOver];
                    !self.has_ended(node, name, &status, &end_phases)
                }
                ServiceState::Started | ServiceState::Fence => true,
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
}
