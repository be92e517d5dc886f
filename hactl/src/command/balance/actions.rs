//! What is asked of a live cluster for a step of a plan.

use super::planned::{Planned, Source};
use ha_api_types::operation::{OperationAction, OperationSpec};
use ha_scheduler::balance::moves::Operation;
use ha_scheduler::balance::plan::Step;
use std::collections::BTreeSet;

/// One operation on a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Action {
    /// Migrate where the service can be moved without being stopped, else Relocate; or ReplaceSecondary.
    pub(super) kind: OperationAction,
    /// The service.
    pub(super) resource: String,
    /// Where to.
    pub(super) node: String,
}

impl Action {
    /// The command that asks for it.
    pub(super) fn command(&self) -> String {
        format!("hactl {} {} {}", self.verb(), self.resource, self.node)
    }

    /// The command's name.
    pub(super) fn verb(&self) -> &'static str {
        crate::command::operate::verb(self.kind)
    }

    /// The operation that is recorded for it.
    pub(super) fn spec(&self) -> OperationSpec {
        OperationSpec {
            action: self.kind,
            resource: Some(self.resource.clone()),
            node: Some(self.node.clone()),
            ..OperationSpec::default()
        }
    }
}

/// The operations of a step, in their order. Those that rules bring along are not named.
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
            // A rule brings nobody's data along.
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
