//! Sets of units that block each other, and the next move in each set.

use super::{MoveStep, MoveUnit, NodePreferences, compute_preferences};
use crate::filter::limits;
use crate::move_sequence::{FreeAmounts, MovableUnit, MoveProblem, NextMove, next_move};
use crate::sets::join;
use crate::unit::PlacementUnit;
use crate::view::View;
use crate::words::with_verb;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::quantity::{Amounts, Quantity};
use std::collections::{BTreeMap, BTreeSet};

/// A set of units, identified by their leaders.
#[derive(Clone, Debug, Default)]
pub(super) struct Component {
    units: BTreeSet<ResourceName>,
    /// Names of services of the set that are moving.
    moving: BTreeSet<ResourceName>,
}

/// Returns the sets that contain a unit with a better node.
pub(super) fn components(
    view: &View,
    units: &BTreeMap<ResourceName, MoveUnit>,
    misplaced: &BTreeMap<&ResourceName, NodePreferences>,
) -> Vec<Component> {
    let mut sets: Vec<BTreeSet<&ResourceName>> = Vec::new();
    for partners in view.rules.strict_anti_affinity_rules() {
        let is_relevant = |name: &&ResourceName| {
            view.services.get(*name).is_some_and(|facts| facts.is_desired || !facts.used_nodes.is_empty())
        };
        join(&mut sets, partners.resources.iter().filter(is_relevant).collect());
    }
    let moving: BTreeMap<&ResourceName, &BTreeSet<NodeName>> = view
        .services
        .iter()
        .filter(|(_, facts)| facts.used_nodes.len() > 1)
        .map(|(name, facts)| (name, &facts.used_nodes))
        .collect();
    for (name, preferences) in misplaced {
        let Some(unit) = units.get(*name) else { continue };
        if !requests_capacity(view, unit) {
            continue;
        }
        let preferred_nodes: BTreeSet<&NodeName> = preferences.preferred_nodes(unit.node.as_ref()).collect();
        for other in misplaced.keys() {
            let node_of_other = units.get(*other).and_then(|other| other.node.as_ref());
            if other != name
                && node_of_other.is_some_and(|node_of_other| preferred_nodes.contains(node_of_other))
            {
                join(&mut sets, BTreeSet::from([*name, *other]));
            }
        }
        for (other, other_nodes) in &moving {
            let is_affected = other_nodes
                .iter()
                .any(|node| preferred_nodes.contains(node) || unit.node.as_ref() == Some(node));
            if is_affected {
                join(&mut sets, BTreeSet::from([*name, *other]));
            }
        }
    }
    for unit in units.values().filter(|unit| unit.members.len() > 1) {
        join(&mut sets, unit.members.iter().collect());
    }
    sets.into_iter()
        .map(|set| Component {
            units: units.keys().filter(|name| set.contains(name)).cloned().collect(),
            moving: moving
                .keys()
                .filter(|name| set.contains(**name))
                .map(|name| (*name).to_owned())
                .collect(),
        })
        .filter(|component| component.units.len() + component.moving.len() > 1)
        .collect()
}

fn requests_capacity(view: &View, unit: &MoveUnit) -> bool {
    unit.members
        .iter()
        .filter_map(|name| view.services.get(name))
        .any(|facts| facts.requests != Amounts::default())
}

impl Component {
    /// Returns the next step of each service of the set.
    pub(super) fn dependent_moves(
        &self,
        view: &View,
        units: &BTreeMap<ResourceName, MoveUnit>,
    ) -> BTreeMap<ResourceName, MoveStep> {
        let order: Vec<(&ResourceName, &MoveUnit)> =
            self.units.iter().filter_map(|name| units.get_key_value(name)).collect();
        let members = || order.iter().flat_map(|(_, unit)| &unit.members);
        if !self.moving.is_empty() {
            let moving: Vec<&ResourceName> = self.moving.iter().collect();
            let have = with_verb(&moving, "has", "have");
            let message = format!("Waiting until {have} moved, one service at a time");
            return members()
                .map(|name| (name.clone(), MoveStep::Wait { message: message.clone() }))
                .collect();
        }
        let mut component_view = view.clone();
        for name in members() {
            if let Some(mut facts) = component_view.services.get_mut(name) {
                facts.used_nodes.clear();
            }
        }
        let preferences: Vec<NodePreferences> = order
            .iter()
            .map(|(_, unit)| compute_preferences(&component_view, unit).unwrap_or_default())
            .collect();
        let nodes = relevant_nodes(&order, &preferences);
        let problem = build_problem(&component_view, &order, &preferences, &nodes);
        match next_move(&problem) {
            NextMove::Done => BTreeMap::new(),
            NextMove::Move { item, to, goal } => move_one(&order, &nodes, &problem, item, to, &goal),
            NextMove::Blocked { goal } => explain_blocked(view, &order, &nodes, &goal),
        }
    }
}

/// Moves one unit while the others stay.
fn move_one(
    order: &[(&ResourceName, &MoveUnit)],
    nodes: &[NodeName],
    problem: &MoveProblem,
    item: usize,
    to: usize,
    goal: &[Option<usize>],
) -> BTreeMap<ResourceName, MoveStep> {
    let (Some((_, mover)), Some(node)) = (order.get(item), nodes.get(to)) else { return BTreeMap::new() };
    let improved_services: BTreeSet<ResourceName> = order
        .iter()
        .enumerate()
        .filter(|(other, _)| *other != item && goal[*other] != problem.items[*other].node)
        .flat_map(|(_, (_, unit))| unit.members.clone())
        .collect();
    let improves_own_placement = goal.get(item) == Some(&Some(to)) && problem.is_improved_on(item, to);
    let makes_room_for = if improves_own_placement { BTreeSet::new() } else { improved_services };
    let have = with_verb(&mover.members, "has", "have");
    let message = match mover.node {
        Some(_) => format!("Waiting until {have} moved to {node}"),
        None => format!("Waiting until {have} started on {node}"),
    };
    let mut dependent_moves: BTreeMap<ResourceName, MoveStep> = order
        .iter()
        .flat_map(|(_, unit)| &unit.members)
        .map(|name| (name.clone(), MoveStep::Wait { message: message.clone() }))
        .collect();
    for name in &mover.members {
        dependent_moves.insert(
            name.clone(),
            MoveStep::Move { to: node.clone(), makes_room_for: makes_room_for.clone() },
        );
    }
    dependent_moves
}

/// Returns the relevant nodes: the current nodes of all units and, for each unit, its k best other nodes, where k is
/// the number of units. No order of moves needs more than k free nodes.
fn relevant_nodes(order: &[(&ResourceName, &MoveUnit)], preferences: &[NodePreferences]) -> Vec<NodeName> {
    let nodes_in_use: BTreeSet<NodeName> = order.iter().filter_map(|(_, unit)| unit.node.clone()).collect();
    let mut nodes = nodes_in_use.clone();
    for preferences in preferences {
        let mut unused: Vec<(u32, &NodeName)> = preferences
            .distances
            .iter()
            .filter(|(node, _)| !nodes_in_use.contains(*node))
            .map(|(node, distance)| (*distance, node))
            .collect();
        unused.sort();
        nodes.extend(unused.into_iter().take(order.len()).map(|(_, node)| node.clone()));
    }
    nodes.into_iter().collect()
}

fn build_problem(
    component_view: &View,
    order: &[(&ResourceName, &MoveUnit)],
    preferences: &[NodePreferences],
    nodes: &[NodeName],
) -> MoveProblem {
    let items: Vec<MovableUnit> = order
        .iter()
        .zip(preferences)
        .map(|((_, unit), preferences)| MovableUnit {
            node: unit
                .node
                .as_ref()
                .and_then(|current_node| nodes.iter().position(|node| node == current_node)),
            distances: nodes.iter().map(|node| preferences.distances.get(node).copied()).collect(),
            tiers: nodes
                .iter()
                .map(|node| preferences.tiers.get(node).copied().unwrap_or_default())
                .collect(),
            requests: requests(component_view, unit),
        })
        .collect();
    let mut exclusive_pairs = BTreeSet::new();
    for first in 0..order.len() {
        for second in first + 1..order.len() {
            if separating_rule(component_view, order[first].1, order[second].1).is_some() {
                exclusive_pairs.insert((first, second));
            }
        }
    }
    MoveProblem {
        items,
        free: nodes.iter().map(|node| free_capacity(component_view, node)).collect(),
        exclusive_pairs,
    }
}

/// Returns the name of the strict rule that keeps two units apart.
fn separating_rule<'v>(view: &'v View, left: &'v MoveUnit, right: &MoveUnit) -> Option<&'v str> {
    left.members.iter().find_map(|name| {
        view.rules
            .anti_affinity_rules_of(name)
            .filter(|partners| partners.strict)
            .find(|partners| right.members.iter().any(|member| partners.resources.contains(member)))
            .map(|partners| partners.name.as_str())
    })
}

fn amounts_of(amounts: &Amounts) -> [Option<Quantity>; 3] {
    [amounts.cpu, amounts.memory, amounts.disk]
}

fn requests(view: &View, unit: &MoveUnit) -> FreeAmounts {
    let Some((name, facts)) = unit.members.first().and_then(|name| view.services.get_key_value(name)) else {
        return FreeAmounts::default();
    };
    amounts_of(&PlacementUnit::of(view, name, facts).requests()).map(|amount| amount.map(Quantity::milli))
}

/// Returns the free capacity of a node for the units of the set, which use no node in this view.
fn free_capacity(view: &View, node: &NodeName) -> FreeAmounts {
    let Some(facts) = view.nodes.get(node) else { return FreeAmounts::default() };
    let mut free = limits(&view.settings, facts);
    for (_, user) in view.users_of(node) {
        for (remaining, requested) in free.iter_mut().zip(amounts_of(&user.requests)) {
            if let (Some(remaining), Some(requested)) = (remaining.as_mut(), requested) {
                *remaining -= requested.milli();
            }
        }
    }
    free
}

/// Returns the message for each service that would move in a better arrangement, but is blocked in every order of
/// moves.
fn explain_blocked(
    view: &View,
    order: &[(&ResourceName, &MoveUnit)],
    nodes: &[NodeName],
    goal: &[Option<usize>],
) -> BTreeMap<ResourceName, MoveStep> {
    let mut dependent_moves = BTreeMap::new();
    let goal_node = |index: usize| goal.get(index).copied().flatten().and_then(|to| nodes.get(to));
    for (index, (_, unit)) in order.iter().enumerate() {
        let Some(to) = goal_node(index).filter(|to| Some(*to) != unit.node.as_ref()) else { continue };
        let in_the_way: Vec<String> = order
            .iter()
            .enumerate()
            .filter(|(other, (_, blocking_unit))| *other != index && blocking_unit.node.as_ref() == Some(to))
            .map(|(other, (_, blocking_unit))| {
                let rule_text = separating_rule(view, unit, blocking_unit)
                    .map_or_else(|| "not enough capacity".to_owned(), |rule| format!("rule {rule}"));
                let waits = if blocking_unit.members.len() == 1 { "waits" } else { "wait" };
                let next_target_text = goal_node(other)
                    .filter(|next| *next != to)
                    .map_or_else(String::new, |next| format!(" and {waits} for {next}"));
                format!(
                    "{} on {to} ({rule_text}){next_target_text}",
                    with_verb(&blocking_unit.members, "is", "are")
                )
            })
            .collect();
        let message = format!(
            "Waiting to move to {to}: {}. No order of moves is possible because no node is free as an intermediate \
             step. Allow one of these services on another node, or stop one of them temporarily",
            if in_the_way.is_empty() {
                "other services block the move".to_owned()
            } else {
                in_the_way.join(", ")
            }
        );
        for name in &unit.members {
            dependent_moves.insert(name.clone(), MoveStep::Blocked { message: message.clone() });
        }
    }
    dependent_moves
}
