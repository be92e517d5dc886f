//! A definition that an operator confirms for the running copy, without a stop (FENCING, R6.10).

use super::operation::{refuse, set_status};
use super::{AssignmentChange, EpochStatus, Service, ServiceUpdate, replacement};
use crate::core::plan_input::PlanInput;
use ha_api_types::event::EventType;
use ha_api_types::id::{Epoch, NodeName, OperationName, ResourceName};
use ha_api_types::operation::OperationPhase;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Assignment};
use ha_api_types::resource::ServiceDefinition;

/// Decision about an operator's request to apply the edited definition in place.
enum Decision<'a> {
    /// Write the definition to this assignment.
    Rewrite(&'a Assignment),
    /// The operation is complete; contains the message.
    Done(String),
    /// The request waits.
    Wait(Reason, String),
    /// The operation is refused; contains the reason and the message.
    Refuse(Reason, String),
}

/// Rewrites the definition of the active assignment to that of the spec, under the same action. From then on, the
/// running copy is stopped, killed and monitored under that definition.
///
/// Guarantees: identity and `exclusive` stay (R6.7), so no fact changes on which a proof depends. Fence, assignment,
/// status and the spec's revision are guarded; the operator has confirmed the generation that is written.
pub(super) fn apply_confirmed_definition(
    input: &PlanInput<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
) {
    if update.assignment_change != AssignmentChange::Keep {
        return;
    }
    match decide(input, service, update) {
        Decision::Rewrite(assignment) => rewrite_definition(input, service, update, assignment),
        Decision::Done(message) => {
            set_status(input, service, update, OperationPhase::Succeeded, Reason::Completed, &message);
        }
        Decision::Wait(reason, message) => {
            set_status(input, service, update, OperationPhase::Pending, reason, &message);
        }
        Decision::Refuse(reason, message) => refuse(input, service, update, reason, &message),
    }
}

fn decide<'a>(input: &PlanInput<'_>, service: &Service<'a>, update: &ServiceUpdate) -> Decision<'a> {
    let name = service.name;
    let stored = service.resource.value.metadata.generation;
    let confirmed = service.operation.and_then(|request| request.operation.value.spec.generation);
    match confirmed {
        None => {
            return Decision::Refuse(
                Reason::Invalid,
                "No generation confirmed: set spec.generation".to_owned(),
            );
        }
        Some(confirmed) if confirmed < stored => {
            let message = format!(
                "{name} was edited again: generation {confirmed} was confirmed, generation {stored} \
                     is stored"
            );
            return Decision::Refuse(Reason::Outdated, message);
        }
        Some(confirmed) if confirmed > stored => {
            return Decision::Wait(
                Reason::Waiting,
                format!("Waiting for the leader to read generation {confirmed} of {name}"),
            );
        }
        Some(_) => {}
    }
    if input.cluster_view.settings().disarmed.is_some() {
        return Decision::Wait(Reason::Disarmed, Reason::Disarmed.sentence().to_owned());
    }
    let (assignment, epoch_status) = match service.assignment_with_epoch(input) {
        Some(assigned) => assigned,
        None if update.status.copies.is_empty() => return no_copy(name),
        None => {
            let nodes: Vec<&str> = update.status.copies.iter().map(|copy| copy.node.as_str()).collect();
            let message = format!("{name} may run on {} without an assignment", nodes.join(", "));
            return Decision::Wait(Reason::CopyRemains, message);
        }
    };
    let node = &assignment.node;
    match epoch_status {
        EpochStatus::Active => {}
        EpochStatus::Closing => {
            return Decision::Wait(Reason::Fencing, format!("Node {node} is being fenced"));
        }
        EpochStatus::Released => return no_copy(name),
    }
    match &assignment.action {
        Action::Migrate { .. } => {
            return Decision::Wait(Reason::Migrating, format!("{name} is being live-migrated from {node}"));
        }
        Action::Start | Action::Stop { .. } | Action::Restart | Action::DoNothing => {}
    }
    if update.status.replacement.is_some() {
        let message = format!("Secondary of {name} is being replaced");
        return Decision::Wait(Reason::ReplacingSecondary, message);
    }
    let desired_definition = ServiceDefinition::of(&service.resource.value);
    if assignment.definition.uid != desired_definition.uid
        || !assignment.definition.may_replace(&desired_definition)
    {
        let message =
            format!("Service on node {node} is not the service in the spec: run \"hactl stop {name}\" first");
        return Decision::Refuse(Reason::DefinitionDiffers, message);
    }
    if desired_definition.driver.creates_unit_from_spec()
        && assignment.definition.driver != desired_definition.driver
    {
        let message = format!(
            "Container on {node} cannot apply a driver edit without a restart: run \"hactl restart \
                 {name}\""
        );
        return Decision::Refuse(Reason::Refused, message);
    }
    if assignment.in_place.is_some() && assignment.definition == desired_definition {
        return Decision::Done(format!("{name} on {node} already has this definition"));
    }
    Decision::Rewrite(assignment)
}

fn no_copy<'a>(name: &ResourceName) -> Decision<'a> {
    Decision::Done(format!("No copy of {name} runs: the next start uses the edited definition"))
}

fn rewrite_definition(
    input: &PlanInput<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    assignment: &Assignment,
) {
    let Some(request) = service.operation else { return };
    let definition = ServiceDefinition::of(&service.resource.value);
    for copy in &mut update.status.copies {
        if copy.node == assignment.node
            && copy.epoch == assignment.epoch
            && copy.definition.may_replace(&definition)
        {
            copy.definition = definition.clone();
        }
    }
    let rewritten = Assignment { definition, in_place: Some(request.name.to_owned()), ..assignment.clone() };
    replacement::rewrite(input, update, rewritten);
    let message = format!("Node {} uses the edited definition without a stop", assignment.node);
    let requester = &request.operation.value.spec.requested_by;
    update.emit_event(
        EventType::Normal,
        Reason::UserRequested,
        format!("{message}, confirmed by {requester}"),
    );
    set_status(input, service, update, OperationPhase::Succeeded, Reason::Completed, &message);
}

/// Returns the confirmation that a later assignment of the same copy repeats. An agent that missed the rewritten
/// assignment then still applies the definition. `None` for any other definition, which was not confirmed.
pub(super) fn repeated_confirmation(
    service: &Service<'_>,
    node: &NodeName,
    epoch: Epoch,
    definition: &ServiceDefinition,
) -> Option<OperationName> {
    let assignment = &service.assignment?.value;
    (assignment.node == *node && assignment.epoch == epoch && assignment.definition == *definition)
        .then(|| assignment.in_place.clone())
        .flatten()
}
