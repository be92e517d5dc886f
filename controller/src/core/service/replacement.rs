//! Replacement of the secondary of a running replicated service: requested by an operator, carried out by its node,
//! and ended by the node's answer.
//!
//! The request is part of the assignment, next to the action, so the service keeps running under its permit. Until
//! its node has answered or is proven gone, it is unknown which secondary is in use. Until then, the old secondary
//! counts, the service is not moved, and every assignment repeats the request.

use super::operation::{phase_of, set};
use super::{Assign, Draft, Planner, Service, Standing, report_guard};
use crate::core::placement::service_facts;
use crate::core::situation::Situation;
use ha_api_types::cluster::Disarmed;
use ha_api_types::event::EventType;
use ha_api_types::id::NodeName;
use ha_api_types::operation::{OperationAction, OperationPhase};
use ha_api_types::reason::Reason;
use ha_api_types::record::{
    Action, Assignment, FenceState, Phase, Replacement, ReplacementPhase, ReplacementReport,
};
use ha_api_types::resource::{
    ReplacementStatus, RequestedState, ServiceDefinition, ServiceState, StorageMode,
};
use ha_scheduler::secondary_refusals;
use ha_store::Guard;

/// Advances a replacement in progress, before all other decisions. Returns `true` if no other decision follows.
pub(super) fn look(planner: &Planner<'_>, service: &Service<'_>, draft: &mut Draft) -> bool {
    let situation = planner.situation;
    let Some(known) = draft.status.replacement.clone() else { return false };
    let assignment = service.assignment.map(|assignment| &assignment.value);
    let asked = assignment.and_then(|assignment| {
        let asked = assignment.replacement.as_ref().filter(|asked| asked.uid == known.uid)?;
        Some((assignment, asked))
    });
    let Some((assignment, asked)) = asked else {
        fail(&situation, service, draft, Reason::ReplaceFailed, "Service is no longer assigned to a node");
        return false;
    };
    let node = &assignment.node;
    let standing = Service::standing(&situation, node, assignment.epoch);
    let report = situation
        .world
        .service_report(service.name, node)
        .map(|report| &report.value)
        .filter(|report| report.epoch == assignment.epoch && report.uid == service.uid());
    let said = report.and_then(|report| report.replacement.as_ref()).filter(|said| said.uid == known.uid);
    let present = asked.present.as_ref();
    match said.map(|said| (said.phase, said)) {
        Some((ReplacementPhase::Done, _)) => done(&situation, service, draft, node, present),
        Some((ReplacementPhase::Failed, said)) => {
            let reason = if said.reason == Reason::Unknown { Reason::ReplaceFailed } else { said.reason };
            fail(&situation, service, draft, reason, &still_used(present, &words(said)));
        }
        Some((ReplacementPhase::Begun, _)) | None => {
            let never = said.is_none()
                && report.is_some_and(|report| {
                    report.action_uid.as_ref() == Some(&assignment.action_uid)
                        && matches!(report.phase, Phase::Stopped | Phase::Failed)
                });
            match standing {
                Standing::Released => {
                    let why = still_used(present, &format!("Node {node} failed during the replacement"));
                    fail(&situation, service, draft, Reason::NodeFailed, &why);
                }
                Standing::InForce if never => {
                    let why = still_used(present, "Service ended before the replacement began");
                    fail(&situation, service, draft, Reason::Interrupted, &why);
                }
                Standing::InForce | Standing::Closing => {
                    return goes_on(&situation, service, draft, assignment, asked, said.is_some());
                }
            }
        }
    }
    let (key, guard) = report_guard(&situation, node, service.name);
    draft.guards.insert(key, guard);
    if standing == Standing::InForce {
        rewrite(&situation, draft, Assignment { replacement: None, ..assignment.clone() });
    }
    draft.assign != Assign::Keep
}

/// Handles a replacement without an answer yet.
fn goes_on(
    situation: &Situation<'_>,
    service: &Service<'_>,
    draft: &mut Draft,
    assignment: &Assignment,
    asked: &Replacement,
    begun: bool,
) -> bool {
    let (node, new) = (&assignment.node, &asked.node);
    let in_place =
        asked.present.as_ref().map(|present| format!(" in place of {present}")).unwrap_or_default();
    let message = match (asked.called_off, begun) {
        (true, _) => format!("Canceling on {node}: {new} does not become the secondary"),
        (false, true) => format!("Node {node} is making {new} the secondary{in_place}"),
        (false, false) => format!("Waiting for node {node} to make {new} the secondary{in_place}"),
    };
    if asked_for(service) {
        set(situation, service, draft, OperationPhase::Running, Reason::ReplacingSecondary, &message);
    }
    if Service::standing(situation, node, assignment.epoch) != Standing::InForce {
        return false;
    }
    draft.say(Reason::ReplacingSecondary, message);
    let leaves = must_end(situation, service);
    if (leaves || !asked_for(service)) && !asked.called_off {
        let replacement = Some(Replacement { called_off: true, ..asked.clone() });
        rewrite(situation, draft, Assignment { replacement, ..assignment.clone() });
    }
    leaves || draft.assign != Assign::Keep
}

/// Returns `true` if the service is about to become unmanaged; the replacement must end first.
fn must_end(situation: &Situation<'_>, service: &Service<'_>) -> bool {
    service.wanted() == RequestedState::Ignored
        || service.resource.value.metadata.deletion_timestamp.is_some()
        || situation.world.settings().disarmed == Some(Disarmed::Ignore)
}

/// Writes the active assignment again, under the same action and with the guards of every assignment.
pub(super) fn rewrite(situation: &Situation<'_>, draft: &mut Draft, assignment: Assignment) {
    let node = &assignment.node;
    if let Some(fence) = situation.world.fences.get(node) {
        draft.guards.insert(situation.world.keys.fence(node), Guard::Unchanged(fence.modified));
    }
    draft.assign = Assign::Put(Box::new(assignment));
}

fn words(said: &ReplacementReport) -> String {
    if said.message.is_empty() { said.reason.sentence().to_owned() } else { said.message.clone() }
}

fn still_used(present: Option<&NodeName>, why: &str) -> String {
    match present {
        Some(present) => format!("{why}; {present} remains the secondary"),
        None => format!("{why}; the resource remains without a secondary"),
    }
}

fn done(
    situation: &Situation<'_>,
    service: &Service<'_>,
    draft: &mut Draft,
    node: &NodeName,
    present: Option<&NodeName>,
) {
    let Some(ReplacementStatus { node: new, .. }) = draft.status.replacement.take() else { return };
    let storage = service.resource.value.spec.storage.as_ref();
    draft.status.declared_secondary = storage.and_then(|storage| storage.secondary.clone());
    let mut replicas = vec![node.to_owned(), new.clone()];
    replicas.sort();
    draft.status.replicas = replicas;
    let in_place = present.map(|present| format!(" in place of {present}")).unwrap_or_default();
    let message = format!("{new} is the secondary{in_place}");
    draft.tell(EventType::Normal, Reason::SecondaryReplaced, message.clone());
    end(situation, service, draft, OperationPhase::Succeeded, Reason::SecondaryReplaced, &message);
}

fn fail(situation: &Situation<'_>, service: &Service<'_>, draft: &mut Draft, reason: Reason, message: &str) {
    draft.status.replacement = None;
    let text = format!("Secondary not replaced: {message}");
    draft.tell(EventType::Warning, Reason::ReplaceFailed, text);
    end(situation, service, draft, OperationPhase::Failed, reason, message);
}

/// Returns `true` if the operation that began the replacement still exists; its deletion cancels the replacement.
fn asked_for(service: &Service<'_>) -> bool {
    service.operation.is_some_and(|request| {
        request.operation.value.spec.action == OperationAction::ReplaceSecondary
            && phase_of(&request) == OperationPhase::Running
    })
}

/// Sets the outcome of the operation.
fn end(
    situation: &Situation<'_>,
    service: &Service<'_>,
    draft: &mut Draft,
    phase: OperationPhase,
    reason: Reason,
    message: &str,
) {
    if asked_for(service) {
        set(situation, service, draft, phase, reason, message);
    }
}

/// Returns the request that a new assignment on the current node repeats while there is no answer: it is canceled.
pub(super) fn carried_over(draft: &Draft, assignment: &Assignment) -> Option<Replacement> {
    let known = draft.status.replacement.as_ref()?;
    let asked = assignment.replacement.as_ref().filter(|asked| asked.uid == known.uid)?;
    Some(Replacement { called_off: true, ..asked.clone() })
}

/// Returns why the operation can never be carried out in the current state.
pub(super) fn refusal(
    planner: &Planner<'_>,
    service: &Service<'_>,
    draft: &Draft,
) -> Option<(Reason, String)> {
    let (name, spec) = (service.name, &service.resource.value.spec);
    let refused = |message: String| Some((Reason::Refused, message));
    let Some(target) = service.operation.and_then(|request| request.operation.value.spec.node.as_ref())
    else {
        return Some((Reason::Invalid, "No node specified: set spec.node".to_owned()));
    };
    if !spec.storage.as_ref().is_some_and(|storage| storage.mode == StorageMode::Replicated) {
        return refused(format!("{name} has no secondary: spec.storage.mode is not Replicated"));
    }
    if !spec.exclusive {
        return refused(format!("{name} has exclusive: false, so hactl does not move its data"));
    }
    if !spec.driver.can_replace_secondary() {
        return refused(format!(
            "Driver of {name} cannot replace the secondary: add a replaceSecondary command (driver exec)"
        ));
    }
    if draft.status.state != ServiceState::Started {
        let state = draft.status.state;
        return refused(format!(
            "{name} is in state {state:?}: the secondary can be replaced only in state Started"
        ));
    }
    let started = service.assignment.map(|assignment| assignment.value.definition.driver.kind());
    if started.is_some_and(|started| started != spec.driver.kind()) {
        return refused(format!(
            "{name} was started by a different driver: run \"hactl restart {name}\" first"
        ));
    }
    let Some(node) = planner.view.nodes.get(target) else {
        return Some((Reason::NotFound, format!("Node {target} not found")));
    };
    if draft.status.node.as_ref() == Some(target) {
        return refused(format!("{name} runs on {target}: the secondary must be another node"));
    }
    if draft.status.secondary() == Some(target) {
        return Some((Reason::CurrentNode, format!("{target} is already the secondary of {name}")));
    }
    let facts = service_facts(planner.situation.world, &service.resource.value, &draft.status);
    let refusals = secondary_refusals(&planner.view, name, &facts, target, node);
    let first = refusals.first()?;
    let messages: Vec<&str> = refusals.iter().map(|refusal| refusal.message.as_str()).collect();
    Some((first.reason, format!("{target} is not eligible as the secondary: {}", messages.join(", "))))
}

/// Orders the node of a running service to begin. Returns `false` if that is not possible yet; the draft then names
/// the condition to wait for.
pub(super) fn begin(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    draft: &mut Draft,
    target: &NodeName,
) -> bool {
    let situation = planner.situation;
    let world = situation.world;
    let Some(assignment) = service.assignment.map(|assignment| &assignment.value) else { return false };
    let node = assignment.node.clone();
    let runs = match &assignment.action {
        Action::Start | Action::Restart => service.phase(&situation) == Some(Phase::Running),
        Action::Stop { .. } | Action::Migrate { .. } | Action::Leave => false,
    };
    if !runs {
        let message = format!("Waiting for node {node} to confirm that the service runs");
        planner.await_action(draft, &node, Reason::Waiting, message);
        return false;
    }
    let limit = usize::try_from(world.settings().max_migrations).unwrap_or(usize::MAX).max(1);
    for place in [&node, target] {
        if super::moves::moves_at(planner, place) >= limit {
            let message = format!(
                "{limit} live migrations or replacements in progress on {place}, limit reached \
                 (maxMigrations)"
            );
            draft.wait(Reason::Waiting, message);
            return false;
        }
    }
    let Some(fence) = world.fences.get(target).filter(|fence| fence.value.state == FenceState::Open) else {
        draft.wait(Reason::NodeNotOnline, format!("Node {target} is not registered"));
        return false;
    };
    draft.guards.insert(world.keys.fence(target), Guard::Unchanged(fence.modified));
    let (key, guard) = report_guard(&situation, &node, service.name);
    draft.guards.insert(key, guard);
    let replacement = Replacement {
        uid: planner.action_uid().to_string(),
        present: draft.status.secondary().cloned(),
        node: target.to_owned(),
        definition: ServiceDefinition::of(&service.resource.value),
        called_off: false,
    };
    planner.replacements.push([node.clone(), target.to_owned()]);
    draft.status.replacement =
        Some(ReplacementStatus { uid: replacement.uid.clone(), node: target.to_owned() });
    let message = match &replacement.present {
        Some(present) => format!("Making {target} the secondary in place of {present}"),
        None => format!("Making {target} the secondary"),
    };
    rewrite(&situation, draft, Assignment { replacement: Some(replacement), ..assignment.clone() });
    draft.tell(EventType::Normal, Reason::ReplacingSecondary, message.clone());
    draft.say(Reason::ReplacingSecondary, message);
    true
}

/// Returns the number of replacements in progress that copy from or to a node, including those of this plan.
pub(super) fn under_way_at(planner: &Planner<'_>, node: &NodeName) -> usize {
    let statuses = planner.situation.world.resource_statuses.values().map(|status| &status.value);
    let copies = statuses.filter(|status| {
        let new = status.replacement.as_ref().map(|replacement| &replacement.node);
        new.is_some() && (new == Some(node) || status.node.as_ref() == Some(node))
    });
    copies.count()
        + planner.replacements.iter().filter(|places| places.iter().any(|place| place == node)).count()
}
