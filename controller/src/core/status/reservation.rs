//! Publication of the N+1 check: a condition of the cluster, and an event when it changes.

use crate::core::plan::cluster_event;
use crate::core::reservation::{headline, message_of};
use crate::core::situation::Situation;
use ha_api_types::cluster::ClusterStatus;
use ha_api_types::event::{Event, EventType};
use ha_api_types::meta::{Condition, ConditionStatus, rename_conditions, set_condition};
use ha_api_types::reason::Reason;

/// Type of the condition.
pub(in crate::core) const FAILOVER_CAPACITY: &str = "FailoverCapacityAvailable";

/// Sets the condition. The result of a previous leader stays until this leader has one.
pub(super) fn show(situation: &Situation<'_>, conditions: &mut Vec<Condition>, generation: i64) {
    let Some(finding) = situation.reservation else { return };
    let status = match finding.holds {
        Some(true) => ConditionStatus::True,
        Some(false) => ConditionStatus::False,
        None => ConditionStatus::Unknown,
    };
    let condition = Condition {
        kind: FAILOVER_CAPACITY.to_owned(),
        status,
        reason: finding.reason,
        message: message_of(finding),
        last_transition_time: None,
        observed_generation: generation,
    };
    set_condition(conditions, condition, &situation.now.timestamp());
}

/// Returns the events for a new status: the check fails, fails for other nodes than before, or no longer fails.
pub(super) fn events(situation: &Situation<'_>, status: &ClusterStatus) -> Vec<Event> {
    let find = |conditions: &[Condition]| {
        conditions.iter().find(|condition| condition.kind == FAILOVER_CAPACITY).cloned()
    };
    let before = situation.world.cluster_status.as_ref().and_then(|known| {
        let mut conditions = known.value.conditions.clone();
        rename_conditions(&mut conditions);
        find(&conditions)
    });
    let Some(now) = find(&status.conditions) else { return Vec::new() };
    let changed = match &before {
        Some(before) => before.reason != now.reason || headline(&before.message) != headline(&now.message),
        None => now.reason != Reason::FailoverCapacityAvailable,
    };
    if !changed {
        return Vec::new();
    }
    let event_type =
        if now.reason == Reason::FailoverCapacityAvailable { EventType::Normal } else { EventType::Warning };
    vec![cluster_event(situation, event_type, now.reason, now.message)]
}
