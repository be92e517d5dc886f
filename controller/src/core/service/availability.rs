//! Availability: whether a service runs while it is desired. It is recorded in the write that changes it, without a
//! write of its own.

use super::{Planner, Service, ServiceDraft};
use ha_api_types::availability::{Availability, AvailabilityState};
use ha_api_types::resource::RequestedState;
use ha_api_types::time::Timestamp;

/// Records the availability according to the draft.
pub(super) fn record(planner: &Planner<'_>, service: &Service<'_>, draft: &mut ServiceDraft) {
    let standing = match (service.requested_state(), draft.status.running) {
        (RequestedState::Started, true) => AvailabilityState::Up,
        (RequestedState::Started, false) => AvailabilityState::Down,
        (RequestedState::Stopped | RequestedState::Disabled | RequestedState::Ignored, _) => {
            AvailabilityState::NotWanted
        }
    };
    let known = draft
        .status
        .availability
        .get_or_insert_with(|| Availability::begin(standing, &planner.input.now.timestamp()));
    if known.standing != standing {
        known.enter(standing, &since(planner, service, standing));
    }
}

/// Returns the time of the change. A service on an unreachable node counts as ended at the last heartbeat, not at the
/// proof.
fn since(planner: &Planner<'_>, service: &Service<'_>, standing: AvailabilityState) -> Timestamp {
    let now = planner.input.now;
    let before = service.status.and_then(|known| known.value.node.as_ref());
    let node = before.and_then(|node| planner.nodes.get(node)).filter(|node| !node.is_reachable());
    match (standing, node) {
        (AvailabilityState::Down, Some(node)) => {
            let silent_ms = now.raw.since(node.observed);
            Timestamp::from_unix_ms(now.wall_unix_ms - i128::from(silent_ms))
        }
        (AvailabilityState::Down | AvailabilityState::Up | AvailabilityState::NotWanted, _) => {
            now.timestamp()
        }
    }
}
