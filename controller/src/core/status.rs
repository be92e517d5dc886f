//! Statuses of nodes, groups, rules and the cluster. An unchanged status is not written.

mod cluster;
mod node;
mod rules;

pub(super) use cluster::FAILOVER_CAPACITY;

use super::health::NodeTable;
use super::plan::{Note, Plan, Subject, stored};
use super::situation::Situation;
use super::world::{Versioned, guard_of};
use ha_api_types::event::Event;
use ha_api_types::kind::Kind;
use ha_api_types::meta::{Condition, ConditionStatus, set_condition};
use ha_api_types::reason::Reason;
use ha_scheduler::RuleConflict;
use ha_store::{Guard, Transaction};
use serde::Serialize;

/// Plans all statuses except those of services and operations.
pub(super) fn plan(
    situation: &Situation<'_>,
    nodes: &NodeTable,
    conflicts: &[RuleConflict],
    plan: &mut Plan,
) {
    node::plan(situation, nodes, plan);
    rules::plan(situation, conflicts, plan);
    cluster::plan(situation, nodes, plan);
}

/// Writes a status if it differs from the stored one, and emits `events` once it is written.
fn write<T: Serialize + PartialEq>(
    situation: &Situation<'_>,
    plan: &mut Plan,
    kind: Kind,
    name: &str,
    known: Option<&Versioned<T>>,
    status: &T,
    events: Vec<Event>,
) {
    let key = situation.world.keys.status(kind, name);
    // The leader writes this key, so it replaces a value that this version cannot read (FENCING, R1.23).
    let is_readable = !situation.world.unreadable.contains_key(&key);
    if is_readable && known.is_some_and(|known| known.value == *status) {
        return;
    }
    let transaction = Transaction::new().put(key, guard_of(known), stored(status));
    plan.act(Subject::Status(kind, name.to_owned()), transaction, events, Note::None);
}

/// Removes the status of an object that is gone.
fn remove<T>(situation: &Situation<'_>, plan: &mut Plan, kind: Kind, name: &str, known: &Versioned<T>) {
    let keys = &situation.world.keys;
    let spec = keys.spec(kind, name);
    if situation.world.unreadable.contains_key(&spec) {
        return;
    }
    let transaction = Transaction::new()
        .delete(keys.status(kind, name), Guard::Unchanged(known.modified))
        .guard(spec, Guard::Absent);
    plan.act(Subject::Status(kind, name.to_owned()), transaction, Vec::new(), Note::None);
}

fn condition(
    situation: &Situation<'_>,
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
    set_condition(conditions, condition, &situation.now.timestamp());
}
