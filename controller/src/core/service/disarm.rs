//! Services of a disarmed cluster: freezing, completion of actions in progress, and probes on arming (FENCING 7 and
//! 10).

use super::{AssignmentChange, EpochStatus, Planner, Service, ServiceUpdate};
use crate::core::health::NodeHealth;
use crate::core::plan_input::PlanInput;
use ha_api_types::cluster::Disarmed;
use ha_api_types::reason::Reason;
use ha_api_types::resource::ServiceState;

/// Freezes a service while the cluster is disarmed. A fencing, recovery or move in progress ends first. Returns `true`
/// if no further decision about the service is necessary.
///
/// Under Ignore its assignment is deleted, so that no agent keeps the service on its node: an operator may move it.
/// On arming, every node is probed as if the service had never been managed.
pub(super) fn freeze_if_disarmed(
    planner: &Planner<'_>,
    service: &Service<'_>,
    update: &mut ServiceUpdate,
    disarmed: Disarmed,
) -> bool {
    let input = &planner.input;
    update.clear_all_failures();
    update.status.move_failures = 0;
    let is_manual = match disarmed {
        Disarmed::Freeze => false,
        Disarmed::Ignore => true,
    };
    match update.status.state {
        ServiceState::Fence
        | ServiceState::Recovery
        | ServiceState::Migrate
        | ServiceState::Relocate
        | ServiceState::Ignored
        | ServiceState::Deleting => false,
        // The service stays in Error. If an operator clears the error later, the service must not start in addition to
        // a copy that was started by hand in the meantime.
        ServiceState::Error => {
            if is_manual {
                update.status.probe_arming = Some(input.cluster_view.cluster_generation());
            }
            false
        }
        ServiceState::Queued | ServiceState::RequestStart | ServiceState::Disabled => {
            if is_manual {
                freeze(service, update, is_manual);
            }
            is_manual
        }
        ServiceState::Starting
        | ServiceState::Started
        | ServiceState::RequestStop
        | ServiceState::Stopping => match service.assignment_with_epoch(input) {
            // The action in progress on its node ends first, so that the service is in its desired state.
            Some((assignment, EpochStatus::Active))
                if update.status.state != ServiceState::Started
                    && !is_disarm_permitted(input, disarmed)
                    && planner.nodes.get(&assignment.node).is_some_and(NodeHealth::is_reachable) =>
            {
                false
            }
            Some((_, EpochStatus::Active)) => {
                freeze(service, update, is_manual);
                true
            }
            // The fencing of its node ends first, unless the agents are already disarmed.
            Some((_, EpochStatus::Closing | EpochStatus::Released))
                if is_disarm_permitted(input, disarmed) =>
            {
                freeze(service, update, is_manual);
                true
            }
            Some((_, EpochStatus::Closing | EpochStatus::Released)) | None => false,
        },
        ServiceState::Stopped => {
            if is_manual || service.assignment.is_some() {
                freeze(service, update, is_manual);
                return true;
            }
            false
        }
        ServiceState::Freeze => {
            if is_manual && service.assignment.is_some() {
                update.assignment_change = AssignmentChange::Delete;
            }
            update.add_wait(Reason::Disarmed, "Cluster is disarmed");
            true
        }
    }
}

fn freeze(service: &Service<'_>, update: &mut ServiceUpdate, is_manual: bool) {
    let message = if is_manual {
        "Cluster is disarmed: the service may be moved manually, and every node is probed when the \
         cluster is armed"
    } else {
        "Cluster is disarmed"
    };
    if is_manual && service.assignment.is_some() {
        update.assignment_change = AssignmentChange::Delete;
    }
    update.transition_to(ServiceState::Freeze, Reason::Disarmed, message.to_owned());
}

/// Returns `true` if the agents were permitted to disarm.
fn is_disarm_permitted(input: &PlanInput<'_>, disarmed: Disarmed) -> bool {
    input.cluster_view.cluster_status.as_ref().is_some_and(|status| status.value.disarm == Some(disarmed))
}

/// Returns `true` if a service, as stored, prevents the agents from disarming.
pub(in crate::core) fn delays_disarm(state: ServiceState, is_assigned: bool, disarmed: Disarmed) -> bool {
    let is_manual = match disarmed {
        Disarmed::Freeze => false,
        Disarmed::Ignore => true,
    };
    match state {
        ServiceState::Fence | ServiceState::Recovery | ServiceState::Migrate | ServiceState::Relocate => true,
        ServiceState::Error | ServiceState::Ignored | ServiceState::Deleting => false,
        ServiceState::Queued | ServiceState::RequestStart | ServiceState::Disabled => is_manual,
        ServiceState::Freeze => is_manual && is_assigned,
        ServiceState::Starting
        | ServiceState::Started
        | ServiceState::RequestStop
        | ServiceState::Stopping
        | ServiceState::Stopped => is_manual || is_assigned,
    }
}
