//! Where services are put: strict rules hold after every planned move, and a placement never exceeds a node's capacity.

use super::super::World;
use ha_api_types::kind::Kind;
use ha_api_types::placement::{Affinity, AffinityRule};
use ha_api_types::record::{Action, Assignment, Phase, ServiceReport};
use ha_api_types::resource::{Resource, ResourceStatus, ServiceState};
use ha_api_types::time::Millis;

impl World {
    /// A service has arrived where it was moved to. A rule that was changed while it moved says nothing yet, nor does one about
    /// a service that was found there meanwhile.
    pub(super) fn check_rules_after_move(&mut self, name: &str, to: &str, begun: Millis) {
        if self.rules_changed_at >= begun || self.found_at.get(to).is_some_and(|at| *at >= begun) {
            return;
        }
        let rules = self.rules_in_force();
        for problem in self.broken_rules(&rules, name, to) {
            self.violate("strict rules hold after a move", problem);
        }
    }

    /// Strict rules in force that a service on a node breaks, but for those about being together.
    pub(crate) fn broken_rules(&self, rules: &[AffinityRule], name: &str, node: &str) -> Vec<String> {
        let mut broken = self.kept_off(rules, name, node);
        for (rule, about, others) in World::partners(rules, name) {
            if about.affinity == Affinity::Negative {
                let there = others.iter().filter(|other| self.is_counted_on(other, node));
                broken.extend(there.map(|other| {
                    format!("{name} and {other} are on {node}, and rule {rule} keeps them apart")
                }));
            }
        }
        broken
    }

    /// A service is given to a node: it fits in there. One that runs there already is not placed, nor one that ran there by
    /// the last word of a node that has gone since: it is taken over where somebody put it.
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
        if before.as_ref() == Some(&node)
            || self.present(&node, name).is_some()
            || self.is_reported_running(&node, name)
        {
            return;
        }
        let Some(resource) = self.typed::<Resource>(Kind::Resource, name) else { return };
        let others: Vec<String> = self
            .names_of(Kind::Resource)
            .into_iter()
            .filter(|other| other != name && self.is_counted_on(other, &node))
            .collect();
        for what in self.lacking(&resource, &node, &others) {
            let problem = format!("{name} is given to {node}, which has not enough {what} for it");
            self.violate("capacity is never exceeded", problem);
        }
    }

    fn is_reported_running(&self, node: &str, name: &str) -> bool {
        let report: Option<ServiceReport> = self.record(&self.keys.service_report(node, name));
        report.is_some_and(|report| matches!(report.phase, Phase::Running | Phase::ProbedRunning))
    }

    /// Whether a node has confirmed that what its service's status tells of there has ended. What the leader writes at one time
    /// is committed in any order, so that what is given the room may be seen before the status of what has left it.
    fn has_ended(&self, node: &str, name: &str, status: &ResourceStatus, by: &[Phase]) -> bool {
        let report: Option<ServiceReport> = self.record(&self.keys.service_report(node, name));
        report.is_some_and(|report| {
            by.contains(&report.phase)
                && report.action_uid.is_some()
                && report.action_uid == status.action_uid
        })
    }

    /// Whether a service counts on a node: it is there or on its way there, and not at rest.
    fn is_counted_on(&self, name: &str, node: &str) -> bool {
        let Some(status) = self.status_of::<ResourceStatus>(Kind::Resource, name) else { return false };
        let here = status.node.as_deref() == Some(node) || status.target.as_deref() == Some(node);
        here && match status.state {
            ServiceState::Starting => !self.has_ended(node, name, &status, &[Phase::Failed]),
            ServiceState::RequestStop
            | ServiceState::Stopping
            | ServiceState::Migrate
            | ServiceState::Relocate => {
                let ends = [Phase::Stopped, Phase::Failed, Phase::HandedOver];
                !self.has_ended(node, name, &status, &ends)
            }
            ServiceState::Started | ServiceState::Freeze | ServiceState::Fence => true,
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
