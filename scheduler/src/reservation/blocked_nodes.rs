//! Explanations of blocking reasons for a service without an eligible node, per node.

use super::certificate::AMOUNT_KINDS;
use super::eligibility::{blocking_reason, node_group_reason};
use super::model::Model;
use super::placement_trial::PlacementTrial;
use super::unit::PlacementUnit;
use super::{BlockedNode, Unplaced};
use ha_api_types::reason::Reason;

/// Maximum number of nodes that are listed for a service.
const MAX_BLOCKED_NODES: usize = 8;

/// Returns the blocking reasons for the services of a unit in the current state of the trial.
pub(super) fn explain_unit(
    model: &Model,
    trial: &PlacementTrial<'_>,
    unit: &PlacementUnit,
    failed: &[u32],
) -> Vec<Unplaced> {
    let remaining_nodes = (0..).take(model.nodes.len()).filter(|node| !failed.contains(node));
    let mut ordered_nodes: Vec<(bool, BlockedNode)> =
        remaining_nodes.filter_map(|node| explain_node(model, trial, unit, node)).collect();
    ordered_nodes.sort_by_key(|(is_excluded, _)| *is_excluded);
    let omitted = ordered_nodes.len().saturating_sub(MAX_BLOCKED_NODES);
    let blocked_nodes: Vec<BlockedNode> =
        ordered_nodes.into_iter().take(MAX_BLOCKED_NODES).map(|(_, blocked)| blocked).collect();
    let was_affected = |member: &&u32| {
        let current_node = model.service(**member).current_node;
        current_node
            .is_some_and(|current_node| Some(current_node) == unit.from || failed.contains(&current_node))
    };
    unit.members
        .iter()
        .filter(was_affected)
        .map(|member| {
            let service = model.service(*member);
            let node = service
                .current_node
                .map(|current_node| model.node(current_node).name.clone())
                .unwrap_or_default();
            Unplaced { service: service.name.clone(), node, blocked_nodes: blocked_nodes.clone(), omitted }
        })
        .collect()
}

/// Returns the reason that blocks one node; `true` if the reason is independent of free capacity and of other services.
fn explain_node(
    model: &Model,
    trial: &PlacementTrial<'_>,
    unit: &PlacementUnit,
    node: u32,
) -> Option<(bool, BlockedNode)> {
    let name = &model.node(node).name;
    let blocked = |reason: Reason, message: String| BlockedNode { node: name.clone(), reason, message };
    if !unit.candidates.contains(node as usize) {
        let (reason, message) = exclusion_reason(model, unit, node);
        return Some((true, blocked(reason, message)));
    }
    for (kind, (reason, amount_name)) in AMOUNT_KINDS.into_iter().enumerate() {
        let (Some(requests), Some(free), Some(limit)) =
            (unit.requests[kind], trial.free(node, kind), model.node(node).limits[kind])
        else {
            continue;
        };
        if requests > free {
            let request_text = if unit.members.len() > 1 {
                "requested together with services that have strict affinity"
            } else {
                "requested"
            };
            let message = format!(
                "not enough {amount_name}: {} {request_text}, {} of {} would be free",
                Model::to_quantity(requests),
                Model::to_quantity(free),
                Model::to_quantity(limit)
            );
            return Some((false, blocked(reason, message)));
        }
    }
    let set = trial.conflicting_set(unit, node)?;
    let (reason, message) = if set < model.first_tag {
        (
            Reason::NegativePartner,
            format!(
                "a service with anti-affinity ({}) would be on the node",
                model.anti_affinity_names[set as usize]
            ),
        )
    } else {
        (
            Reason::ExclusionTag,
            format!("a service with {} would be on the node", model.anti_affinity_names[set as usize]),
        )
    };
    Some((false, blocked(reason, message)))
}

/// Returns the reason why a node is not a candidate of the unit.
fn exclusion_reason(model: &Model, unit: &PlacementUnit, node: u32) -> (Reason, String) {
    let view = &model.view;
    let name = &model.node(node).name;
    let from = unit.from.and_then(|from| view.nodes.get(&model.node(from).name));
    for member in &unit.members {
        let service = model.service(*member);
        let (Some(facts), Some(node_facts)) = (view.services.get(&service.name), view.nodes.get(name)) else {
            continue;
        };
        let elsewhere = service.storage_nodes.as_ref().is_some_and(|nodes| !nodes.contains(&node));
        let reason = blocking_reason(view, &service.name, facts, name, node_facts)
            .or_else(|| service.incompatible_nodes.contains(&node).then_some(Reason::NotInstalled))
            .or_else(|| elsewhere.then_some(Reason::StorageUnreachable))
            .or_else(|| node_group_reason(view, from, node_facts));
        if let Some(reason) = reason {
            let member_prefix =
                if unit.members.len() > 1 { format!("{}: ", service.name) } else { String::new() };
            let sentence = if elsewhere && reason == Reason::StorageUnreachable {
                "node has no copy of the data"
            } else {
                reason.sentence()
            };
            return (reason, format!("{member_prefix}{sentence}"));
        }
    }
    (Reason::PositivePartner, Reason::PositivePartner.sentence().to_owned())
}
