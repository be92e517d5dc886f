//! The operations of a live cluster that a step of a plan needs.

use super::planned::{Planned, Source};
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
        crate::command::operate::verb(self.kind)
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
pub(super) fn actions(source: &Source, planned: &Planned, step: &Step) -> Vec<Action> {
    let problem = &planned.problem;
    let spots = step.kind.spots(step.from, step.to);
    let mut actions = Vec::new();
    for (operation, spot) in step.kind.operations(step.from, step.to).into_iter().zip(spots) {
        let (target, copies) = match operation {
            Operation::Failover => (spot.primary, false),
            Operation::MoveTo(host) => (host, false),
            Operation::Replace(host) => (host, true),
        };
        let mut along = BTreeSet::new();
        for at in problem.guests[step.guest].instances() {
            let binding = source.cluster.bindings.get(&at);
            // A rule does not move the data of other services.
            let crew = binding.and_then(|binding| binding.crew).filter(|_| !copies);
            if crew.is_some_and(|crew| !along.insert(crew)) {
                continue;
            }
            let is_live = binding.is_some_and(|binding| binding.live);
            actions.push(Action {
                kind: match (copies, is_live) {
                    (true, _) => OperationAction::ReplaceSecondary,
                    (false, true) => OperationAction::Migrate,
                    (false, false) => OperationAction::Relocate,
                },
                resource: source.cluster.instances[at].name.clone(),
                node: source.node(problem, target).to_owned(),
            });
        }
    }
    actions
}
