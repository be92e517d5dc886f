//! The operations of a live cluster that a step of a plan needs.

use super::planned::{GroupPlan, Source};
use ha_api_types::operation::{OperationAction, OperationSpec};
use ha_scheduler::balance::moves::Operation;
use ha_scheduler::balance::plan::Step;
use std::collections::BTreeSet;

/// An operation on a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Action {
    /// Migrate if the service can be moved without a stop, Relocate otherwise; or ReplaceSecondary.
    pub(super) kind: OperationAction,
    /// Name of the service.
    pub(super) resource: String,
    /// Target node.
    pub(super) node: String,
}

impl Action {
    /// Returns the equivalent command.
    pub(super) fn command(&self) -> String {
        format!("hactl {} {} {}", self.verb(), self.resource, self.node)
    }

    /// Returns the name of the command.
    pub(super) fn verb(&self) -> &'static str {
        crate::command::operate::action_verb(self.kind)
    }

    /// Returns the spec of the recorded operation.
    pub(super) fn spec(&self) -> OperationSpec {
        OperationSpec {
            action: self.kind,
            resource: Some(self.resource.clone()),
            node: Some(self.node.as_str().into()),
            ..OperationSpec::default()
        }
    }
}

/// Returns the operations of a step in order, without services that a rule moves along.
pub(super) fn actions(source: &Source, group_plan: &GroupPlan, step: &Step) -> Vec<Action> {
    let problem = &group_plan.problem;
    let placements = step.kind.placements(step.from, step.to);
    let mut actions = Vec::new();
    for (operation, placement) in step.kind.operations(step.from, step.to).into_iter().zip(placements) {
        let (target, copies_data) = match operation {
            Operation::Failover => (placement.primary, false),
            Operation::MoveTo(problem_node) => (problem_node, false),
            Operation::Replace(problem_node) => (problem_node, true),
        };
        let mut handled_affinity_sets = BTreeSet::new();
        for instance_index in problem.services[step.service].instances() {
            let constraints = source.cluster.live_constraints.get(&instance_index);
            // A rule does not move the data of other services.
            let affinity_set =
                constraints.and_then(|constraints| constraints.affinity_set).filter(|_| !copies_data);
            if affinity_set.is_some_and(|affinity_set| !handled_affinity_sets.insert(affinity_set)) {
                continue;
            }
            let is_live = constraints.is_some_and(|constraints| constraints.can_live_migrate);
            actions.push(Action {
                kind: match (copies_data, is_live) {
                    (true, _) => OperationAction::ReplaceSecondary,
                    (false, true) => OperationAction::Migrate,
                    (false, false) => OperationAction::Relocate,
                },
                resource: source.cluster.instances[instance_index].name.clone(),
                node: source.node_name(problem, target).to_owned(),
            });
        }
    }
    actions
}
