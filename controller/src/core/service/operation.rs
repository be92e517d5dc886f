//! Operations on services: their checks, their refusals with every reason, their execution and their outcome.

use super::assign::{assign, stop_on};
use super::policy::best_placement;
use super::{Planner, Service, ServiceUpdate, in_place, moves, ordering, replacement};
use crate::core::plan_input::PlanInput;
use crate::core::world::Versioned;
use ha_api_types::id::{NodeName, OperationName, ResourceName};
use ha_api_types::meta::{Condition, ConditionStatus, set_condition};
use ha_api_types::names;
use ha_api_types::operation::{Operation, OperationAction, OperationPhase, OperationSpec, OperationStatus};
use ha_api_types::reason::Reason;
use ha_api_types::record::Action;
use ha_api_types::resource::{RequestedState, ServiceState};
use ha_api_types::time::Millis;
use ha_scheduler::Verdict;
use std::collections::BTreeMap;

/// An operation that is not final, and its status.
#[derive(Clone, Copy, Debug)]
pub(in crate::core) struct ServiceRequest<'a> {
    pub(in crate::core) name: &'a OperationName,
    pub(super) operation: &'a Versioned<Operation>,
    pub(super) status: Option<&'a Versioned<OperationStatus>>,
}

/// Returns, for each service, its oldest operation that is not final, because a service has only one operation at a
/// time. Of several stops, the newest counts: a forced stop must not wait for a graceful one.
pub(in crate::core) fn requests_by_service<'a>(
    input: &PlanInput<'a>,
) -> BTreeMap<ResourceName, ServiceRequest<'a>> {
    let mut requests: BTreeMap<ResourceName, ServiceRequest<'_>> = BTreeMap::new();
    for (name, operation) in input.cluster_view.open_operations() {
        let Some(resource) = operation.value.spec.resource.as_deref() else { continue };
        let resource = ResourceName::from(names::without_type(resource));
        let status = input.cluster_view.operation_statuses.get(name);
        let request = ServiceRequest { name, operation, status };
        let takes_precedence = requests.get(&resource).is_none_or(|other| {
            let is_stop = |spec: &OperationSpec| spec.action == OperationAction::Stop;
            let older = operation.create_revision < other.operation.create_revision;
            if is_stop(&operation.value.spec) && is_stop(&other.operation.value.spec) {
                !older
            } else {
                older
            }
        });
        if takes_precedence {
            requests.insert(resource, request);
        }
    }
    requests
}

/// Returns the services that operations move or will move.
pub(in crate::core) fn services_to_move(input: &PlanInput<'_>) -> Vec<ResourceName> {
    let moves = |request: &ServiceRequest<'_>| {
        matches!(request.operation.value.spec.action, OperationAction::Migrate | OperationAction::Relocate)
    };
    requests_by_service(input)
        .into_iter()
        .filter(|(_, request)| moves(request))
        .map(|(name, _)| name)
        .collect()
}

/// Returns `timeoutSeconds` of a Stop in progress; after this time the service is killed.
pub(super) fn stop_timeout_ms(service: &Service<'_>) -> Option<Millis> {
    let spec = &service.operation?.operation.value.spec;
    (spec.action == OperationAction::Stop)
        .then_some(spec.timeout_seconds)
        .flatten()
        .map(|s| u64::from(s) * 1000)
}

pub(super) fn phase_of(request: &ServiceRequest<'_>) -> OperationPhase {
    request.status.map_or(OperationPhase::Pending, |status| status.value.phase)
}

/// Returns the status of an operation in a new phase, with the times and conditions that the phase sets.
pub(in crate::core) fn status_in_phase(
    input: &PlanInput<'_>,
    previous_status: Option<&OperationStatus>,
    generation: i64,
    phase: OperationPhase,
    reason: Reason,
    message: &str,
) -> OperationStatus {
    let now = input.now.timestamp();
    let mut status = previous_status.cloned().unwrap_or_default();
    status.observed_generation = generation;
    status.phase = phase;
    status.reason = reason;
    message.clone_into(&mut status.message);
    if status.start_time.is_none() && phase != OperationPhase::Pending {
        status.start_time = Some(now.clone());
    }
    if phase.is_final() && status.completion_time.is_none() {
        status.completion_time = Some(now.clone());
    }
    let mut set_status = |kind: &str, holds: bool| {
        let condition = Condition {
            kind: kind.to_owned(),
            status: if holds { ConditionStatus::True } else { ConditionStatus::False },
            reason,
            message: message.to_owned(),
            last_transition_time: None,
            observed_generation: generation,
        };
        set_condition(&mut status.conditions, condition, &now);
    };
    // Like a Kubernetes Job, an operation that did not succeed is not Complete, but Failed.
    set_status("Complete", phase == OperationPhase::Succeeded);
    if phase.is_final() && phase != OperationPhase::Succeeded {
        set_status("Failed", true);
    }
    status
}

pub(super) fn set_status(
    input: &PlanInput<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    phase: OperationPhase,
    reason: Reason,
    message: &str,
) {
    let Some(request) = service.operation else { return };
    let previous_status = update.operation.as_ref().or(request.status.map(|status| &status.value));
    let generation = request.operation.value.metadata.generation;
    update.operation = Some(status_in_phase(input, previous_status, generation, phase, reason, message));
}

pub(super) fn refuse(
    input: &PlanInput<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    reason: Reason,
    message: &str,
) {
    set_status(input, service, update, OperationPhase::Refused, reason, message);
}

/// Checks a pending operation before all other decisions. An impossible operation is refused with the reason.
pub(super) fn check_pending(planner: &mut Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    let input = planner.input;
    let Some(request) = service.operation else { return };
    if phase_of(&request) != OperationPhase::Pending {
        return;
    }
    let spec = &request.operation.value.spec;
    let state = update.status.state;
    let name = service.name;
    match spec.action {
        OperationAction::Start if state == ServiceState::Error => {
            let message = format!("{name} is in Error: run \"hactl clear-error {name}\"");
            refuse(&input, service, update, Reason::Refused, &message);
        }
        OperationAction::Start | OperationAction::Stop => {
            set_status(&input, service, update, OperationPhase::Running, Reason::InProgress, "");
        }
        OperationAction::ClearError => {
            if state == ServiceState::Error {
                set_status(&input, service, update, OperationPhase::Running, Reason::InProgress, "");
            } else {
                let message = format!("{name} is in state {state:?}, not Error");
                refuse(&input, service, update, Reason::Refused, &message);
            }
        }
        OperationAction::UpdateInPlace => in_place::apply_confirmed_definition(&input, service, update),
        OperationAction::Restart | OperationAction::Migrate | OperationAction::Relocate => {
            if let Some((reason, message)) = refusal_of_state(service, state, spec.action) {
                refuse(&input, service, update, reason, &message);
            } else if spec.action != OperationAction::Restart {
                check_target(planner, service, update);
            }
        }
        OperationAction::ReplaceSecondary => {
            let refusal = refusal_of_state(service, state, spec.action)
                .or_else(|| replacement::refusal(planner, service, update));
            if let Some((reason, message)) = refusal {
                refuse(&input, service, update, reason, &message);
            }
        }
        OperationAction::ConfirmFenced
        | OperationAction::Fence
        | OperationAction::Unfence
        | OperationAction::FollowStore
        | OperationAction::ShutdownContinue
        | OperationAction::TestWatchdog
        | OperationAction::Balance
        | OperationAction::TestNotifications => {
            let message = "Action does not apply to a resource";
            refuse(&input, service, update, Reason::Invalid, message);
        }
    }
}

/// Returns why an operation can never be carried out in this state.
fn refusal_of_state(
    service: &Service<'_>,
    state: ServiceState,
    action: OperationAction,
) -> Option<(Reason, String)> {
    let name = service.name;
    match state {
        ServiceState::Ignored => Some((
            Reason::Unmanaged,
            format!("{name} is Ignored (not managed): run \"hactl start {name}\" to manage it"),
        )),
        ServiceState::Error => {
            Some((Reason::Refused, format!("{name} is in Error: run \"hactl clear-error {name}\"")))
        }
        ServiceState::Fence => {
            Some((Reason::Fencing, format!("{name} is waiting for its node to be fenced")))
        }
        ServiceState::Recovery => Some((Reason::Recovering, format!("{name} is waiting to be scheduled"))),
        ServiceState::Freeze => Some((
            Reason::Frozen,
            format!("{name} is in state Freeze: start the agent of its node (systemctl start ha-node-agent)"),
        )),
        ServiceState::Deleting => Some((Reason::Deleted, format!("{name} is being deleted"))),
        ServiceState::Stopped | ServiceState::Disabled if action == OperationAction::Restart => {
            Some((Reason::Refused, format!("{name} is stopped: run \"hactl start {name}\"")))
        }
        ServiceState::Queued
        | ServiceState::RequestStart
        | ServiceState::Starting
        | ServiceState::Started
        | ServiceState::RequestStop
        | ServiceState::Stopping
        | ServiceState::Stopped
        | ServiceState::Disabled
        | ServiceState::Migrate
        | ServiceState::Relocate => None,
    }
}

/// Refuses a move to an ineligible node, with every reason, or to the current node.
fn check_target(planner: &mut Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) {
    let input = planner.input;
    let Some(request) = service.operation else { return };
    let Some(target) = request.operation.value.spec.node.as_ref() else {
        refuse(&input, service, update, Reason::Invalid, "No target node: set spec.node");
        return;
    };
    if !input.cluster_view.nodes.contains_key(target) {
        refuse(&input, service, update, Reason::NotFound, &format!("Node {target} not found"));
        return;
    }
    if is_on_assigned_node(update.status.state) && update.status.node.as_ref() == Some(target) {
        let message = format!("{} is already on {target}", service.name);
        refuse(&input, service, update, Reason::CurrentNode, &message);
        return;
    }
    // An operator's request retries a node on which the service could never run.
    update.status.incompatible_nodes.retain(|node| node != target);
    let placement = best_placement(planner, service, update);
    let companions: Vec<ResourceName> =
        planner.view.rules.strict_affinity_partners(service.name).into_iter().collect();
    if let Some(Verdict::Refused(refusals)) = placement.verdicts.get(target)
        && !moves::is_eligible_with_companions(&placement, target)
    {
        let messages: Vec<&str> = refusals.iter().map(|refusal| refusal.message.as_str()).collect();
        let message = format!("{target} is not eligible: {}", messages.join(", "));
        let reason = refusals.first().map_or(Reason::Refused, |refusal| refusal.reason);
        refuse(&input, service, update, reason, &message);
        if let Some(status) = &mut update.operation {
            status.blocked_by = blockers(planner, service, target);
            status.companions = companions;
        }
    }
}

/// Returns `true` if a service in this state is on the node in its status, and stays there unless an operation moves
/// it.
fn is_on_assigned_node(state: ServiceState) -> bool {
    match state {
        ServiceState::Starting
        | ServiceState::Started
        | ServiceState::RequestStop
        | ServiceState::Stopping
        | ServiceState::Stopped
        | ServiceState::Disabled
        | ServiceState::Freeze => true,
        ServiceState::Queued
        | ServiceState::RequestStart
        | ServiceState::Migrate
        | ServiceState::Relocate
        | ServiceState::Fence
        | ServiceState::Recovery
        | ServiceState::Error
        | ServiceState::Ignored
        | ServiceState::Deleting => false,
    }
}

/// Returns the services on a node that a strict rule keeps apart from this one.
fn blockers(planner: &Planner<'_>, service: &Service<'_>, target: &NodeName) -> Vec<ResourceName> {
    let mut names: Vec<ResourceName> = planner
        .view
        .rules
        .anti_affinity_rules_of(service.name)
        .filter(|partners| partners.strict)
        .flat_map(|partners| partners.resources.iter())
        .filter(|name| *name != service.name)
        .filter(|name| {
            planner.view.services.get(*name).is_some_and(|facts| facts.used_nodes.contains(target))
        })
        .cloned()
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Carries out the operation on a running service. Returns `true` if an action has begun, or if the operation
/// controls the service.
pub(super) fn execute(planner: &mut Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) -> bool {
    let input = planner.input;
    let Some(request) = service.operation else { return false };
    if phase_of(&request) != OperationPhase::Pending
        || update.operation.as_ref().is_some_and(|s| s.phase.is_final())
    {
        return false;
    }
    let spec = &request.operation.value.spec;
    let has_begun = match spec.action {
        OperationAction::Migrate | OperationAction::Relocate => {
            let live = spec.action == OperationAction::Migrate;
            let target = spec.node.clone().unwrap_or_default();
            let has_begun = moves::begin(planner, service, update, &target, live, Reason::UserRequested);
            if has_begun {
                // After an operator's move, the service no longer returns to its node from before maintenance.
                update.status.maintenance_node = None;
                planner.moved_by_operator.insert(service.name.to_owned());
            }
            has_begun
        }
        OperationAction::Restart => restart(planner, service, update),
        OperationAction::ReplaceSecondary => {
            replacement::begin(planner, service, update, &spec.node.clone().unwrap_or_default())
        }
        OperationAction::Start
        | OperationAction::Stop
        | OperationAction::ClearError
        | OperationAction::UpdateInPlace
        | OperationAction::ConfirmFenced
        | OperationAction::Fence
        | OperationAction::Unfence
        | OperationAction::FollowStore
        | OperationAction::ShutdownContinue
        | OperationAction::TestWatchdog
        | OperationAction::Balance
        | OperationAction::TestNotifications => return false,
    };
    if has_begun {
        update.status.operation = Some(request.name.to_owned());
        let message = update.message.clone();
        set_status(&input, service, update, OperationPhase::Running, Reason::InProgress, &message);
        let moves = matches!(spec.action, OperationAction::Migrate | OperationAction::Relocate);
        if let Some(status) = &mut update.operation
            && moves
        {
            status.companions =
                planner.view.rules.strict_affinity_partners(service.name).into_iter().collect();
        }
    } else {
        let message = update.message.clone();
        set_status(&input, service, update, OperationPhase::Pending, Reason::Waiting, &message);
    }
    true
}

/// Restarts a service in place under the same permit. If the stop needs a definition other than that of the start,
/// stops the service and starts it again. Returns `true` if the restart was ordered.
fn restart(planner: &mut Planner<'_>, service: &Service<'_>, update: &mut ServiceUpdate) -> bool {
    let Some(node) = update.status.node.clone() else { return false };
    if !ordering::stop_dependents_first(planner, service, update) {
        return false;
    }
    let same_driver = service
        .assignment
        .is_some_and(|assignment| assignment.value.definition.driver == service.resource.value.spec.driver);
    let message = format!("Restarting on {node}");
    if same_driver {
        if !assign(planner, service, update, &node, Action::Restart) {
            return false;
        }
        update.transition_to(ServiceState::Starting, Reason::UserRequested, message);
    } else {
        if !stop_on(planner, service, update, &node) {
            return false;
        }
        update.status.target = Some(node);
        update.transition_to(ServiceState::Relocate, Reason::UserRequested, message);
    }
    true
}

/// Assigns a stopped service to the target of an operator's move, without a start. Returns `true` if it was assigned.
pub(super) fn reassign_stopped(
    planner: &mut Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
) -> bool {
    let input = planner.input;
    let Some(request) = service.operation else { return false };
    let spec = &request.operation.value.spec;
    let is_move = matches!(spec.action, OperationAction::Migrate | OperationAction::Relocate);
    let refused = update.operation.as_ref().is_some_and(|status| status.phase.is_final());
    let (true, false, Some(target)) = (is_move, refused, spec.node.clone()) else { return false };
    if !stop_on(planner, service, update, &target) {
        return false;
    }
    // After an operator's move, the service no longer returns to its node from before maintenance.
    update.status.maintenance_node = None;
    update.status.operation = Some(request.name.to_owned());
    let disabled = service.requested_state() == RequestedState::Disabled;
    let reason = if disabled { Reason::Disabled } else { Reason::Stopped };
    update.set_message(reason, format!("Stopped, assigned to {target}"));
    set_status(
        &input,
        service,
        update,
        OperationPhase::Succeeded,
        Reason::Moved,
        &format!("Assigned to {target}"),
    );
    true
}
