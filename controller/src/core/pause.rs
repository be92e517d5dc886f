//! The pause after a failed move, during which the controller does not try again.

use super::service::operation;
use super::situation::Situation;
use ha_api_types::id::ResourceName;
use ha_api_types::reason::Reason;
use ha_api_types::resource::{ResourceStatus, ServiceState};
use ha_api_types::time::{Millis, Mono};
use ha_scheduler::Rules;
use std::collections::BTreeSet;

/// Returns the pause in milliseconds after this number of failures: 10 s, 20 s, … up to an hour.
fn pause_ms(failures: u32) -> Millis {
    if failures == 0 { 0 } else { (10_000_u64 << (failures - 1).min(9)).min(3_600_000) }
}

/// Returns the start and the length of a service's pause; `None` if its last move did not fail.
pub(super) fn of(situation: &Situation<'_>, name: &ResourceName) -> Option<(Mono, Millis)> {
    let world = situation.world;
    let failed = world.failed_moves.get(name)?;
    let status = world.resource_statuses.get(name)?;
    (status.value.state == ServiceState::Started).then(|| (failed.since, pause_ms(failed.count)))
}

/// Returns the services that pause now. A service that moves together with an operator's move does not pause.
pub(super) fn pausing(situation: &Situation<'_>, rules: &Rules) -> BTreeSet<ResourceName> {
    let now = situation.now.raw;
    let is_now =
        |name: &&ResourceName| of(situation, name).is_some_and(|(since, length_ms)| now < since + length_ms);
    let mut pausing: BTreeSet<ResourceName> =
        situation.world.failed_moves.keys().filter(is_now).cloned().collect();
    if !pausing.is_empty() {
        for name in operation::moved(situation) {
            pausing.remove(&name);
            for companion in rules.companions(&name) {
                pausing.remove(&companion);
            }
        }
    }
    pausing
}

/// Returns `true` if a service pauses according to its status. Stored times are not compared.
pub(super) fn is_reported(status: &ResourceStatus) -> bool {
    let ready = status.conditions.iter().find(|condition| condition.kind == "Ready");
    status.state == ServiceState::Started
        && status.move_failures > 0
        && ready.is_some_and(|ready| ready.reason == Reason::MoveFailed)
}

#[cfg(test)]
mod tests {
    use super::pause_ms;

    #[test]
    fn pauses_grow_up_to_an_hour() {
        let lengths: Vec<u64> = (0..5).map(pause_ms).collect();
        assert_eq!(lengths, [0, 10_000, 20_000, 40_000, 80_000]);
        assert_eq!([9, 10, u32::MAX].map(pause_ms), [2_560_000, 3_600_000, 3_600_000]);
    }
}
