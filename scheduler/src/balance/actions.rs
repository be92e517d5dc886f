//! The operations of a live cluster that a step of a plan needs.

use super::model::Cluster;
use super::moves::Operation;
use super::plan::Step;
use super::problem::Problem;
use ha_api_types::operation::OperationAction;
use std::collections::BTreeSet;

/// An operation on a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveAction {
    /// Migrate if the service can be moved without a stop, Relocate otherwise; or ReplaceSecondary.
    pub kind: OperationAction,
    /// Name of the service.
    pub resource: String,
    /// Target node.
    pub node: String,
}

/// Returns the operations of a step in order, without services that a rule moves along.
pub fn actions(cluster: &Cluster, problem: &Problem, step: &Step) -> Vec<MoveAction> {
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
            let constraints = cluster.live_constraints.get(&instance_index);
            // A rule does not move the data of other services.
            let affinity_set =
                constraints.and_then(|constraints| constraints.affinity_set).filter(|_| !copies_data);
            if affinity_set.is_some_and(|affinity_set| !handled_affinity_sets.insert(affinity_set)) {
                continue;
            }
            let is_live = constraints.is_some_and(|constraints| constraints.can_live_migrate);
            actions.push(MoveAction {
                kind: match (copies_data, is_live) {
                    (true, _) => OperationAction::ReplaceSecondary,
                    (false, true) => OperationAction::Migrate,
                    (false, false) => OperationAction::Relocate,
                },
                resource: cluster.instances[instance_index].name.clone(),
                node: problem.node_name(cluster, target).to_owned(),
            });
        }
    }
    actions
}
