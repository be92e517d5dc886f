//! Explanations of blocking reasons for a service without an eligible node, per node.

use super::bound::KINDS;
use super::classes::{against, node_group_reason};
use super::model::Model;
use super::trial::Trial;
use super::unit::Unit;
use super::{Lack, Unplaced};
use ha_api_types::reason::Reason;

/// Maximum number of nodes that are listed for a service.
const MOST_LACKS: usize = 8;

/// Returns the blocking reasons for the services of a unit in the current state of the trial.
pub(super) fn of_unit(model: &Model, trial: &Trial<'_>, unit: &Unit, failed: &[u32]) -> Vec<Unplaced> {
    let others = (0..).take(model.nodes.len()).filter(|node| !failed.contains(node));
    let mut found: Vec<(bool, Lack)> = others.filter_map(|node| of_node(model, trial, unit, node)).collect();
    found.sort_by_key(|(never, _)| *never);
    let more = found.len().saturating_sub(MOST_LACKS);
    let lacks: Vec<Lack> = found.into_iter().take(MOST_LACKS).map(|(_, lack)| lack).collect();
    let at_home = |member: &&u32| {
        let home = model.service(**member).home;
        home.is_some_and(|home| Some(home) == unit.from || failed.contains(&home))
    };
    unit.members
        .iter()
        .filter(at_home)
        .map(|member| {
            let service = model.service(*member);
            let node = service.home.map(|home| model.node(home).name.clone()).unwrap_or_default();
            Unplaced { service: service.name.clone(), node, lacks: lacks.clone(), more }
        })
        .collect()
}

/// Returns the reason that blocks one node, and whether it does so independently of free capacity and neighbors.
fn of_node(model: &Model, trial: &Trial<'_>, unit: &Unit, node: u32) -> Option<(bool, Lack)> {
    let name = &model.node(node).name;
    let lack = |reason: Reason, message: String| Lack { node: name.clone(), reason, message };
    if !unit.candidates.contains(node as usize) {
        let (reason, message) = never(model, unit, node);
        return Some((true, lack(reason, message)));
    }
    for (kind, (reason, what)) in KINDS.into_iter().enumerate() {
        let (Some(asks), Some(free), Some(limit)) =
            (unit.asks[kind], trial.free(node, kind), model.node(node).limits[kind])
        else {
            continue;
        };
        if asks > free {
            let who = if unit.members.len() > 1 {
                "requested together with services that have strict affinity"
            } else {
                "requested"
            };
            let message = format!(
                "not enough {what}: {} {who}, {} of {} would be free",
                Model::amount(asks),
                Model::amount(free),
                Model::amount(limit)
            );
            return Some((false, lack(reason, message)));
        }
    }
    let set = trial.neighbour(unit, node)?;
    let (reason, message) = if set < model.first_tag {
        (
            Reason::NegativePartner,
            format!(
                "a service with anti-affinity ({}) would be on the node",
                model.apart_names[set as usize]
            ),
        )
    } else {
        (
            Reason::ExclusionTag,
            format!("a service with {} would be on the node", model.apart_names[set as usize]),
        )
    };
    Some((false, lack(reason, message)))
}

/// Returns the reason why a node is not a candidate of the unit.
fn never(model: &Model, unit: &Unit, node: u32) -> (Reason, String) {
    let view = &model.view;
    let name = &model.node(node).name;
    let from = unit.from.and_then(|from| view.nodes.get(&model.node(from).name));
    for member in &unit.members {
        let service = model.service(*member);
        let (Some(facts), Some(node_facts)) = (view.services.get(&service.name), view.nodes.get(name)) else {
            continue;
        };
        let elsewhere = service.only.as_ref().is_some_and(|only| !only.contains(&node));
        let reason = against(view, &service.name, facts, name, node_facts)
            .or_else(|| service.never.contains(&node).then_some(Reason::NotInstalled))
            .or_else(|| elsewhere.then_some(Reason::StorageUnreachable))
            .or_else(|| node_group_reason(view, from, node_facts));
        if let Some(reason) = reason {
            let who = if unit.members.len() > 1 { format!("{}: ", service.name) } else { String::new() };
            let sentence = if elsewhere && reason == Reason::StorageUnreachable {
                "node has no copy of the data"
            } else {
                reason.sentence()
            };
            return (reason, format!("{who}{sentence}"));
        }
    }
    (Reason::PositivePartner, Reason::PositivePartner.sentence().to_owned())
}
