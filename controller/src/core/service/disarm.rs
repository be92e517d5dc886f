//! Services of a disarmed cluster: which freeze, which finish an action first, and where they are probed on arming
//! (SEMANTICS 8, FENCING 7).

use super::{Assign, Draft, Planner, Service, Standing};
use crate::core::health::NodeHealth;
use crate::core::situation::Situation;
use ha_api_types::cluster::Disarmed;
use ha_api_types::reason::Reason;
use ha_api_types::resource::ServiceState;

/// Freezes a service while the cluster is disarmed. A fencing, recovery or move in progress ends first. Returns
/// `true` if everything about the service is decided.
///
/// Under Ignore its assignment is deleted, so that no agent keeps the service on its node: an operator may move it.
/// On arming, every node is probed as if the service had never been managed.
pub(super) fn rests(
    planner: &Planner<'_>,
    service: &Service<'_>,
    draft: &mut Draft,
    disarmed: Disarmed,
) -> bool {
    let situation = &planner.situation;
    draft.forget_failures();
    draft.status.move_failures = 0;
    let by_hand = match disarmed {
        Disarmed::Freeze => false,
        Disarmed::Ignore => true,
    };
    match draft.status.state {
        ServiceState::Fence
        | ServiceState::Recovery
        | ServiceState::Migrate
        | ServiceState::Relocate
        | ServiceState::Ignored
        | ServiceState::Deleting => false,
        // The service stays in Error. When an operator clears the error later, it must not start in addition to a
        // copy that was started by hand meanwhile.
        ServiceState::Error => {
            if by_hand {
                draft.status.probe_arming = Some(situation.world.cluster_generation());
            }
            false
        }
        ServiceState::Queued | ServiceState::RequestStart | ServiceState::Disabled => {
            if by_hand {
                freeze(service, draft, by_hand);
            }
            by_hand
        }
        ServiceState::Starting
        | ServiceState::Started
        | ServiceState::RequestStop
        | ServiceState::Stopping => match service.assigned(situation) {
            // The action in progress on its node ends first, so that the service is in its desired state.
            Some((assignment, Standing::InForce))
                if draft.status.state != ServiceState::Started
                    && !is_agreed(situation, disarmed)
                    && planner.nodes.get(&assignment.node).is_some_and(NodeHealth::is_heard) =>
            {
                false
            }
            Some((_, Standing::InForce)) => {
                freeze(service, draft, by_hand);
                true
            }
            // The fencing of its node ends first, unless the agents are already disarmed.
            Some((_, Standing::Closing | Standing::Released)) if is_agreed(situation, disarmed) => {
                freeze(service, draft, by_hand);
                true
            }
            Some((_, Standing::Closing | Standing::Released)) | None => false,
        },
        ServiceState::Stopped => {
            if by_hand || service.assignment.is_some() {
                freeze(service, draft, by_hand);
                return true;
            }
            false
        }
        ServiceState::Freeze => {
            if by_hand && service.assignment.is_some() {
                draft.assign = Assign::Delete;
            }
            draft.wait(Reason::Disarmed, "Cluster is disarmed");
            true
        }
    }
}

fn freeze(service: &Service<'_>, draft: &mut Draft, by_hand: bool) {
    let message = if by_hand {
        "Cluster is disarmed: the service may be moved manually, and every node is probed when the \
         cluster is armed"
    } else {
        "Cluster is disarmed"
    };
    if by_hand && service.assignment.is_some() {
        draft.assign = Assign::Delete;
    }
    draft.go(ServiceState::Freeze, Reason::Disarmed, message.to_owned());
}

/// Returns `true` if the agents were permitted to disarm.
fn is_agreed(situation: &Situation<'_>, disarmed: Disarmed) -> bool {
    situation.world.cluster_status.as_ref().is_some_and(|known| known.value.disarm == Some(disarmed))
}

/// Returns `true` if a service, as stored, prevents the agents from disarming.
pub(in crate::core) fn holds_up(state: ServiceState, is_assigned: bool, disarmed: Disarmed) -> bool {
    let by_hand = match disarmed {
        Disarmed::Freeze => false,
        Disarmed::Ignore => true,
    };
    match state {
        ServiceState::Fence | ServiceState::Recovery | ServiceState::Migrate | ServiceState::Relocate => true,
        ServiceState::Error | ServiceState::Ignored | ServiceState::Deleting => false,
        ServiceState::Queued | ServiceState::RequestStart | ServiceState::Disabled => by_hand,
        ServiceState::Freeze => by_hand && is_assigned,
        ServiceState::Starting
        | ServiceState::Started
        | ServiceState::RequestStop
        | ServiceState::Stopping
        | ServiceState::Stopped => by_hand || is_assigned,
    }
}
