//! A disarmed cluster: what freezes, what ends first, and where services are looked for on arming (SEMANTICS 8, FENCING 7).

use super::{Assign, Draft, Planner, Service, Standing};
use crate::core::health::NodeHealth;
use crate::core::situation::Situation;
use ha_api_types::cluster::Disarmed;
use ha_api_types::reason::Reason;
use ha_api_types::resource::ServiceState;

/// Freezes a service while the cluster is disarmed; what is being fenced, recovered or moved ends first. `true`: nothing
/// else is decided about it.
///
/// Under Ignore its assignment goes, so that no agent keeps it where it was: an operator may move it, and on arming every
/// node is asked for it as if it had never been managed.
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
        // It stays in Error, but whoever clears that later must not start it beside what was started by hand meanwhile.
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
            // What its node is at ends first, so that it is found as it was wanted.
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
            // Its node is being fenced, or was: that ends first, unless the agents are disarmed already.
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
            draft.wait(Reason::Disarmed, "the cluster is disarmed");
            true
        }
    }
}

fn freeze(service: &Service<'_>, draft: &mut Draft, by_hand: bool) {
    let message = if by_hand {
        "the cluster is disarmed: it may be moved by hand, and is looked for when the cluster is armed"
    } else {
        "the cluster is disarmed"
    };
    if by_hand && service.assignment.is_some() {
        draft.assign = Assign::Delete;
    }
    draft.go(ServiceState::Freeze, Reason::Disarmed, message.to_owned());
}

/// Whether agents have been told that they may disarm.
fn is_agreed(situation: &Situation<'_>, disarmed: Disarmed) -> bool {
    situation.world.cluster_status.as_ref().is_some_and(|known| known.value.disarm == Some(disarmed))
}

/// Whether a service, as stored, keeps the agents from being disarmed.
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
