//! The pause after a failed move, during which the controller does not try again.

use super::plan_input::PlanInput;
use super::service::operation;
use ha_api_types::id::ResourceName;
use ha_api_types::reason::Reason;
use ha_api_types::resource::{ResourceStatus, ServiceState};
use ha_api_types::time::{Millis, MonotonicTime};
use ha_scheduler::Rules;
use std::collections::BTreeSet;

/// Returns the pause in milliseconds after this number of failures: 10 s, 20 s, … up to an hour.
fn pause_ms(failures: u32) -> Millis {
    if failures == 0 { 0 } else { (10_000_u64 << (failures - 1).min(9)).min(3_600_000) }
}

/// Returns the start and the length of a service's pause; `None` if its last move did not fail.
pub(super) fn pause_of(input: &PlanInput<'_>, name: &ResourceName) -> Option<(MonotonicTime, Millis)> {
    let cluster_view = input.cluster_view;
    let failed = cluster_view.failed_moves.get(name)?;
    let status = cluster_view.resource_statuses.get(name)?;
    (status.value.state == ServiceState::Started).then(|| (failed.since, pause_ms(failed.count)))
}

/// Returns the services that pause now. A service that moves together with an operator's move does not pause.
pub(super) fn paused_services(input: &PlanInput<'_>, rules: &Rules) -> BTreeSet<ResourceName> {
    let now = input.now.monotonic_raw;
    let is_current = |name: &&ResourceName| {
        pause_of(input, name).is_some_and(|(since, duration_ms)| now < since + duration_ms)
    };
    let mut paused: BTreeSet<ResourceName> =
        input.cluster_view.failed_moves.keys().filter(is_current).cloned().collect();
    if !paused.is_empty() {
        for name in operation::services_to_move(input) {
            paused.remove(&name);
            for companion in rules.strict_affinity_partners(&name) {
                paused.remove(&companion);
            }
        }
    }
    paused
}

/// Returns `true` if a service pauses according to its status. Stored times are not compared.
pub(super) fn is_paused_in_status(status: &ResourceStatus) -> bool {
    let ready = status.conditions.iter().find(|condition| condition.kind == "Ready");
    status.state == ServiceState::Started
        && status.move_failures > 0
        && ready.is_some_and(|ready| ready.reason == Reason::MoveFailed)
}

#[cfg(test)]
mod tests {
    use super::pause_ms;

    #[test]
    fn retry_pause_grows_to_one_hour() {
        let lengths: Vec<u64> = (0..5).map(pause_ms).collect();
        assert_eq!(lengths, [0, 10_000, 20_000, 40_000, 80_000]);
        assert_eq!([9, 10, u32::MAX].map(pause_ms), [2_560_000, 3_600_000, 3_600_000]);
    }
}
