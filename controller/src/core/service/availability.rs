//! Availability: whether a service runs while it is desired. It is recorded in the write that changes it, without a
//! write of its own.

use super::{Draft, Planner, Service};
use ha_api_types::availability::{Availability, Standing};
use ha_api_types::resource::RequestedState;
use ha_api_types::time::Timestamp;

/// Records the availability according to the draft.
pub(super) fn note(planner: &Planner<'_>, service: &Service<'_>, draft: &mut Draft) {
    let standing = match (service.wanted(), draft.status.running) {
        (RequestedState::Started, true) => Standing::Up,
        (RequestedState::Started, false) => Standing::Down,
        (RequestedState::Stopped | RequestedState::Disabled | RequestedState::Ignored, _) => {
            Standing::NotWanted
        }
    };
    let known = draft
        .status
        .availability
        .get_or_insert_with(|| Availability::begin(standing, &planner.situation.now.timestamp()));
    if known.standing != standing {
        known.enter(standing, &since(planner, service, standing));
    }
}

/// Returns the time of the change. A service on an unreachable node counts as ended at the last heartbeat, not at the
/// proof.
fn since(planner: &Planner<'_>, service: &Service<'_>, standing: Standing) -> Timestamp {
    let now = planner.situation.now;
    let before = service.status.and_then(|known| known.value.node.as_ref());
    let node = before.and_then(|node| planner.nodes.get(node)).filter(|node| !node.is_heard());
    match (standing, node) {
        (Standing::Down, Some(node)) => {
            let silent_ms = now.raw.since(node.observed);
            Timestamp::from_unix_ms(now.wall_unix_ms - i128::from(silent_ms))
        }
        (Standing::Down | Standing::Up | Standing::NotWanted, _) => now.timestamp(),
    }
}
