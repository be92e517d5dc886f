//! A definition that an operator confirms for the running copy, without a stop (FENCING, R6.10).

use super::operation::{refuse, set};
use super::{Assign, Draft, Service, Standing, replacement};
use crate::core::situation::Situation;
use ha_api_types::event::EventType;
use ha_api_types::id::{Epoch, NodeName, OperationName, ResourceName};
use ha_api_types::operation::OperationPhase;
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Assignment};
use ha_api_types::resource::ServiceDefinition;

/// Decision about an operator's request to apply the edited definition in place.
enum Verdict<'a> {
    /// The assignment gets the definition.
    Rewrite(&'a Assignment),
    /// Nothing remains to be done.
    Done(String),
    /// The request waits.
    Wait(Reason, String),
    /// The request cannot be carried out.
    Refuse(Reason, String),
}

/// Rewrites the definition of the active assignment to that of the spec, under the same action. From then on, the
/// running copy is stopped, killed and monitored under that definition.
///
/// Guarantees: identity and `exclusive` stay (R6.7), so no fact changes on which a proof depends. Fence, assignment,
/// status and the spec's revision are guarded; the operator has confirmed the generation that is written.
pub(super) fn consider(situation: &Situation<'_>, service: &Service<'_>, draft: &mut Draft) {
    if draft.assign != Assign::Keep {
        return;
    }
    match verdict(situation, service, draft) {
        Verdict::Rewrite(assignment) => rewrite(situation, service, draft, assignment),
        Verdict::Done(message) => {
            set(situation, service, draft, OperationPhase::Succeeded, Reason::Completed, &message);
        }
        Verdict::Wait(reason, message) => {
            set(situation, service, draft, OperationPhase::Pending, reason, &message);
        }
        Verdict::Refuse(reason, message) => refuse(situation, service, draft, reason, &message),
    }
}

fn verdict<'a>(situation: &Situation<'_>, service: &Service<'a>, draft: &Draft) -> Verdict<'a> {
    let name = service.name;
    let stored = service.resource.value.metadata.generation;
    let confirmed = service.operation.and_then(|request| request.operation.value.spec.generation);
    match confirmed {
        None => {
            return Verdict::Refuse(
                Reason::Invalid,
                "No generation confirmed: set spec.generation".to_owned(),
            );
        }
        Some(confirmed) if confirmed < stored => {
            let message = format!(
                "{name} was edited again: generation {confirmed} was confirmed, generation {stored} \
                     is stored"
            );
            return Verdict::Refuse(Reason::Outdated, message);
        }
        Some(confirmed) if confirmed > stored => {
            return Verdict::Wait(
                Reason::Waiting,
                format!("Waiting for generation {confirmed} of {name} to be read"),
            );
        }
        Some(_) => {}
    }
    if situation.world.settings().disarmed.is_some() {
        return Verdict::Wait(Reason::Disarmed, Reason::Disarmed.sentence().to_owned());
    }
    let (assignment, standing) = match service.assigned(situation) {
        Some(assigned) => assigned,
        None if draft.status.copies.is_empty() => return no_copy(name),
        None => {
            let nodes: Vec<&str> = draft.status.copies.iter().map(|copy| copy.node.as_str()).collect();
            let message = format!("{name} may run on {} without an assignment", nodes.join(", "));
            return Verdict::Wait(Reason::CopyRemains, message);
        }
    };
    let node = &assignment.node;
    match standing {
        Standing::InForce => {}
        Standing::Closing => return Verdict::Wait(Reason::Fencing, format!("Node {node} is being fenced")),
        Standing::Released => return no_copy(name),
    }
    match &assignment.action {
        Action::Migrate { .. } => {
            return Verdict::Wait(Reason::Migrating, format!("{name} is being live-migrated from {node}"));
        }
        Action::Start | Action::Stop { .. } | Action::Restart | Action::Leave => {}
    }
    if draft.status.replacement.is_some() {
        let message = format!("Secondary of {name} is being replaced");
        return Verdict::Wait(Reason::ReplacingSecondary, message);
    }
    let wanted = ServiceDefinition::of(&service.resource.value);
    if assignment.definition.uid != wanted.uid || !assignment.definition.may_replace(&wanted) {
        let message =
            format!("Service on node {node} is not the one in the spec: run \"hactl stop {name}\" first");
        return Verdict::Refuse(Reason::DefinitionDiffers, message);
    }
    if wanted.driver.makes_what_runs() && assignment.definition.driver != wanted.driver {
        let message = format!(
            "Container on {node} cannot apply a driver edit without a restart: run \"hactl restart \
                 {name}\""
        );
        return Verdict::Refuse(Reason::Refused, message);
    }
    if assignment.in_place.is_some() && assignment.definition == wanted {
        return Verdict::Done(format!("{name} on {node} already has this definition"));
    }
    Verdict::Rewrite(assignment)
}

fn no_copy<'a>(name: &ResourceName) -> Verdict<'a> {
    Verdict::Done(format!("No copy of {name} runs: the next start uses the edited definition"))
}

fn rewrite(situation: &Situation<'_>, service: &Service<'_>, draft: &mut Draft, assignment: &Assignment) {
    let Some(request) = service.operation else { return };
    let definition = ServiceDefinition::of(&service.resource.value);
    for copy in &mut draft.status.copies {
        if copy.node == assignment.node
            && copy.epoch == assignment.epoch
            && copy.definition.may_replace(&definition)
        {
            copy.definition = definition.clone();
        }
    }
    let rewritten = Assignment { definition, in_place: Some(request.name.to_owned()), ..assignment.clone() };
    replacement::rewrite(situation, draft, rewritten);
    let message = format!("Node {} uses the edited definition without a stop", assignment.node);
    let by = &request.operation.value.spec.requested_by;
    draft.tell(EventType::Normal, Reason::UserRequested, format!("{message}, confirmed by {by}"));
    set(situation, service, draft, OperationPhase::Succeeded, Reason::Completed, &message);
}

/// Returns the confirmation that a later assignment of the same copy repeats. With it, an agent that missed the
/// rewritten assignment still takes over the definition. `None` for any other definition, which was not confirmed.
pub(super) fn carried_over(
    service: &Service<'_>,
    node: &NodeName,
    epoch: Epoch,
    definition: &ServiceDefinition,
) -> Option<OperationName> {
    let known = &service.assignment?.value;
    (known.node == *node && known.epoch == epoch && known.definition == *definition)
        .then(|| known.in_place.clone())
        .flatten()
}
