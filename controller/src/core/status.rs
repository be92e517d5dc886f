//! Statuses of nodes, groups, rules and the cluster. An unchanged status is not written.

mod cluster;
mod node;
mod rules;

pub(super) use cluster::FAILOVER_CAPACITY;

use super::health::NodeTable;
use super::plan::{OnApplied, Plan, Subject, serialized};
use super::plan_input::PlanInput;
use super::world::{Versioned, guard_of};
use ha_api_types::event::Event;
use ha_api_types::kind::Kind;
use ha_api_types::meta::{Condition, ConditionStatus, set_condition};
use ha_api_types::reason::Reason;
use ha_scheduler::RuleConflict;
use ha_store::{Guard, Transaction};
use serde::Serialize;

/// Plans all statuses except those of services and operations.
pub(super) fn plan(input: &PlanInput<'_>, nodes: &NodeTable, conflicts: &[RuleConflict], plan: &mut Plan) {
    node::plan(input, nodes, plan);
    rules::plan(input, conflicts, plan);
    cluster::plan(input, nodes, plan);
}

/// Writes a status if it differs from the stored one, and emits `events` once it is written.
fn write<T: Serialize + PartialEq>(
    input: &PlanInput<'_>,
    plan: &mut Plan,
    kind: Kind,
    name: &str,
    current: Option<&Versioned<T>>,
    status: &T,
    events: Vec<Event>,
) {
    let key = input.cluster_view.keys.status(kind, name);
    // The leader writes this key, so it replaces a value that this version cannot read (FENCING, R1.23).
    let is_readable = !input.cluster_view.unreadable.contains_key(&key);
    if is_readable && current.is_some_and(|current| current.value == *status) {
        return;
    }
    let transaction = Transaction::new().put(key, guard_of(current), serialized(status));
    plan.add_action(Subject::Status(kind, name.to_owned()), transaction, events, OnApplied::None);
}

/// Removes the status of an object that no longer exists.
fn remove<T>(input: &PlanInput<'_>, plan: &mut Plan, kind: Kind, name: &str, stored: &Versioned<T>) {
    let keys = &input.cluster_view.keys;
    let spec = keys.spec(kind, name);
    if input.cluster_view.unreadable.contains_key(&spec) {
        return;
    }
    let transaction = Transaction::new()
        .delete(keys.status(kind, name), Guard::Unchanged(stored.mod_revision))
        .guard(spec, Guard::Absent);
    plan.add_action(Subject::Status(kind, name.to_owned()), transaction, Vec::new(), OnApplied::None);
}

fn put_condition(
    input: &PlanInput<'_>,
    conditions: &mut Vec<Condition>,
    kind: &str,
    holds: bool,
    reason: Reason,
    message: impl Into<String>,
    generation: i64,
) {
    let condition = Condition {
        kind: kind.to_owned(),
        status: if holds { ConditionStatus::True } else { ConditionStatus::False },
        reason,
        message: message.into(),
        last_transition_time: None,
        observed_generation: generation,
    };
    set_condition(conditions, condition, &input.now.timestamp());
}
