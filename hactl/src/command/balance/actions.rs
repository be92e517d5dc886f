//! The operations of a live cluster that a step of a plan needs.

use super::planned::{GroupPlan, Source};
use ha_api_types::operation::{OperationAction, OperationSpec};
use ha_scheduler::balance::actions::MoveAction;
use ha_scheduler::balance::plan::Step;

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
    ha_scheduler::balance::actions::actions(&source.cluster, &group_plan.problem, step)
        .into_iter()
        .map(|MoveAction { kind, resource, node }| Action { kind, resource, node })
        .collect()
}
