//! The statuses of groups, affinity rules and node groups.

use super::{put_condition, remove, write};
use crate::core::plan::{Plan, event};
use crate::core::plan_input::PlanInput;
use ha_api_types::event::{Event, EventType};
use ha_api_types::id::{NodeName, ObjectUid};
use ha_api_types::kind::Kind;
use ha_api_types::names;
use ha_api_types::placement::{AffinityRuleSpec, RuleStatus};
use ha_api_types::reason::Reason;
use ha_scheduler::RuleConflict;

pub(super) fn plan(input: &PlanInput<'_>, conflicts: &[RuleConflict], plan: &mut Plan) {
    groups(input, plan);
    rules(input, conflicts, plan);
    node_groups(input, plan);
}

fn groups(input: &PlanInput<'_>, plan: &mut Plan) {
    let cluster_view = input.cluster_view;
    for (name, group) in &cluster_view.groups {
        let stored_status = cluster_view.group_statuses.get(name);
        let unknown = group.value.spec.nodes.0.keys().filter(|node| !cluster_view.nodes.contains_key(*node));
        let status = rule_status(
            input,
            stored_status.map(|stored_status| &stored_status.value),
            None,
            unknown.map(NodeName::as_str),
            group.value.metadata.generation,
        );
        write(input, plan, Kind::Group, name, stored_status, &status, Vec::new());
    }
    for (name, stored_status) in
        cluster_view.group_statuses.iter().filter(|(name, _)| !cluster_view.groups.contains_key(*name))
    {
        remove(input, plan, Kind::Group, name, stored_status);
    }
}

fn rules(input: &PlanInput<'_>, conflicts: &[RuleConflict], plan: &mut Plan) {
    let cluster_view = input.cluster_view;
    for (name, rule) in &cluster_view.rules {
        let stored_status = cluster_view.rule_statuses.get(name);
        let conflict = conflicts.iter().find(|conflict| conflict.rule == *name);
        let missing = missing(input, &rule.value.spec);
        let generation = rule.value.metadata.generation;
        let known_value = stored_status.map(|stored_status| &stored_status.value);
        let status = rule_status(input, known_value, conflict, missing.into_iter(), generation);
        let events = conflict_event(input, name, &rule.value.metadata.uid, known_value, &status);
        let events = events.into_iter().collect();
        write(input, plan, Kind::AffinityRule, name, stored_status, &status, events);
    }
    for (name, stored_status) in
        cluster_view.rule_statuses.iter().filter(|(name, _)| !cluster_view.rules.contains_key(*name))
    {
        remove(input, plan, Kind::AffinityRule, name, stored_status);
    }
}

/// Returns the event for the start or the end of a conflict: the rule becomes inactive, or active again.
fn conflict_event(
    input: &PlanInput<'_>,
    name: &str,
    uid: &ObjectUid,
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
    Some(event(input, Kind::AffinityRule, name, uid, event_type, reason, message))
}

/// Returns the names in a rule that do not exist.
fn missing<'a>(input: &PlanInput<'_>, spec: &'a AffinityRuleSpec) -> Vec<&'a str> {
    let cluster_view = input.cluster_view;
    let by_node = spec.node_affinity.iter();
    let resources = by_node
        .clone()
        .flat_map(|rule| &rule.resources)
        .chain(spec.resource_affinity.iter().flat_map(|rule| &rule.resources))
        .filter(|name| !cluster_view.resources.contains_key(names::without_type(name)));
    let nodes =
        by_node.flat_map(|rule| rule.nodes.0.keys()).filter(|node| !cluster_view.nodes.contains_key(*node));
    resources.map(String::as_str).chain(nodes.map(NodeName::as_str)).collect()
}

fn rule_status<'a>(
    input: &PlanInput<'_>,
    stored_status: Option<&RuleStatus>,
    conflict: Option<&RuleConflict>,
    missing: impl Iterator<Item = &'a str>,
    generation: i64,
) -> RuleStatus {
    let mut status = stored_status.cloned().unwrap_or_default();
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
    put_condition(input, &mut status.conditions, "Ready", holds, reason, message, generation);
    status
}

fn node_groups(input: &PlanInput<'_>, plan: &mut Plan) {
    let cluster_view = input.cluster_view;
    for (name, group) in &cluster_view.node_groups {
        let stored_status = cluster_view.node_group_statuses.get(name);
        let mut status = stored_status.map(|stored_status| stored_status.value.clone()).unwrap_or_default();
        let generation = group.value.metadata.generation;
        status.observed_generation = generation;
        status.nodes = cluster_view
            .nodes
            .iter()
            .filter(|(_, node)| node.value.spec.node_group.as_deref() == Some(name.as_str()))
            .map(|(node, _)| node.clone())
            .collect();
        let message = Reason::Accepted.sentence();
        put_condition(input, &mut status.conditions, "Ready", true, Reason::Accepted, message, generation);
        write(input, plan, Kind::NodeGroup, name, stored_status, &status, Vec::new());
    }
    for (name, stored_status) in cluster_view
        .node_group_statuses
        .iter()
        .filter(|(name, _)| !cluster_view.node_groups.contains_key(*name))
    {
        remove(input, plan, Kind::NodeGroup, name, stored_status);
    }
}
