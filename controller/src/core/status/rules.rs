//! The statuses of groups, affinity rules and node groups.

use super::{condition, remove, write};
use crate::core::plan::{Plan, event};
use crate::core::situation::Situation;
use ha_api_types::event::{Event, EventType};
use ha_api_types::id::NodeName;
use ha_api_types::kind::Kind;
use ha_api_types::names;
use ha_api_types::placement::{AffinityRuleSpec, RuleStatus};
use ha_api_types::reason::Reason;
use ha_scheduler::RuleConflict;

pub(super) fn plan(situation: &Situation<'_>, conflicts: &[RuleConflict], plan: &mut Plan) {
    groups(situation, plan);
    rules(situation, conflicts, plan);
    node_groups(situation, plan);
}

fn groups(situation: &Situation<'_>, plan: &mut Plan) {
    let world = situation.world;
    for (name, group) in &world.groups {
        let known = world.group_statuses.get(name);
        let unknown = group.value.spec.nodes.0.keys().filter(|node| !world.nodes.contains_key(*node));
        let status = rule_status(
            situation,
            known.map(|known| &known.value),
            None,
            unknown.map(NodeName::as_str),
            group.value.metadata.generation,
        );
        write(situation, plan, Kind::Group, name, known, &status, Vec::new());
    }
    for (name, known) in world.group_statuses.iter().filter(|(name, _)| !world.groups.contains_key(*name)) {
        remove(situation, plan, Kind::Group, name, known);
    }
}

fn rules(situation: &Situation<'_>, conflicts: &[RuleConflict], plan: &mut Plan) {
    let world = situation.world;
    for (name, rule) in &world.rules {
        let known = world.rule_statuses.get(name);
        let conflict = conflicts.iter().find(|conflict| conflict.rule == *name);
        let missing = missing(situation, &rule.value.spec);
        let generation = rule.value.metadata.generation;
        let known_value = known.map(|known| &known.value);
        let status = rule_status(situation, known_value, conflict, missing.into_iter(), generation);
        let told = conflict_event(situation, name, &rule.value.metadata.uid, known_value, &status);
        let told = told.into_iter().collect();
        write(situation, plan, Kind::AffinityRule, name, known, &status, told);
    }
    for (name, known) in world.rule_statuses.iter().filter(|(name, _)| !world.rules.contains_key(*name)) {
        remove(situation, plan, Kind::AffinityRule, name, known);
    }
}

/// Returns the event when a conflict begins or ends, so that the rule is no longer applied, or is applied again.
fn conflict_event(
    situation: &Situation<'_>,
    name: &str,
    uid: &str,
    before: Option<&RuleStatus>,
    status: &RuleStatus,
) -> Option<Event> {
    let conflict = |status: &RuleStatus| {
        let ready = status.conditions.iter().find(|condition| condition.kind == "Ready");
        ready.filter(|ready| ready.reason == Reason::RuleConflict).map(|ready| ready.message.clone())
    };
    let (event_type, reason, message) = match (before.and_then(conflict), conflict(status)) {
        (None, Some(message)) => (EventType::Warning, Reason::RuleConflict, message),
        (Some(_), None) => {
            (EventType::Normal, Reason::Accepted, "Conflict resolved; the rule is active".to_owned())
        }
        (None, None) | (Some(_), Some(_)) => return None,
    };
    Some(event(situation, Kind::AffinityRule, name, uid, event_type, reason, message))
}

/// Returns the names in a rule that do not exist.
fn missing<'a>(situation: &Situation<'_>, spec: &'a AffinityRuleSpec) -> Vec<&'a str> {
    let world = situation.world;
    let by_node = spec.node_affinity.iter();
    let resources = by_node
        .clone()
        .flat_map(|rule| &rule.resources)
        .chain(spec.resource_affinity.iter().flat_map(|rule| &rule.resources))
        .filter(|name| !world.resources.contains_key(names::bare(name)));
    let nodes = by_node.flat_map(|rule| rule.nodes.0.keys()).filter(|node| !world.nodes.contains_key(*node));
    resources.map(String::as_str).chain(nodes.map(NodeName::as_str)).collect()
}

fn rule_status<'a>(
    situation: &Situation<'_>,
    known: Option<&RuleStatus>,
    conflict: Option<&RuleConflict>,
    missing: impl Iterator<Item = &'a str>,
    generation: i64,
) -> RuleStatus {
    let mut status = known.cloned().unwrap_or_default();
    status.observed_generation = generation;
    let missing: Vec<&str> = missing.collect();
    let (holds, reason, message) = match conflict {
        Some(conflict) => (false, Reason::RuleConflict, conflict.message.clone()),
        None if missing.is_empty() => (true, Reason::Accepted, Reason::Accepted.sentence().to_owned()),
        None => {
            let message = format!("Rule is active, but these objects are not found: {}", missing.join(", "));
            (true, Reason::NotFound, message)
        }
    };
    condition(situation, &mut status.conditions, "Ready", holds, reason, message, generation);
    status
}

fn node_groups(situation: &Situation<'_>, plan: &mut Plan) {
    let world = situation.world;
    for (name, group) in &world.node_groups {
        let known = world.node_group_statuses.get(name);
        let mut status = known.map(|known| known.value.clone()).unwrap_or_default();
        let generation = group.value.metadata.generation;
        status.observed_generation = generation;
        status.nodes = world
            .nodes
            .iter()
            .filter(|(_, node)| node.value.spec.node_group.as_deref() == Some(name.as_str()))
            .map(|(node, _)| node.clone())
            .collect();
        let message = Reason::Accepted.sentence();
        condition(situation, &mut status.conditions, "Ready", true, Reason::Accepted, message, generation);
        write(situation, plan, Kind::NodeGroup, name, known, &status, Vec::new());
    }
    for (name, known) in
        world.node_group_statuses.iter().filter(|(name, _)| !world.node_groups.contains_key(*name))
    {
        remove(situation, plan, Kind::NodeGroup, name, known);
    }
}
