//! The order of moves of services that block each other.

mod component;
#[cfg(test)]
mod tests;

use crate::filter::evicts;
use crate::place::eligible_nodes;
use crate::placement_query::priorities_of;
use crate::score::{PriorityTier, Score};
use crate::unit::PlacementUnit;
use crate::view::{Refusal, ServiceFacts, View};
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::reason::Reason;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// The next step of a service that blocks other services or is blocked by them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoveStep {
    /// The service moves now.
    Move {
        /// Target node.
        to: NodeName,
        /// Services whose own move this move makes possible. Empty if the service moves to its own best node.
        makes_room_for: BTreeSet<ResourceName>,
    },
    /// The service stays until another service has moved.
    Wait {
        /// One sentence that names the other service.
        message: String,
    },
    /// The service cannot reach its best node by any order of moves.
    Blocked {
        /// One sentence with the reason and the suggested action.
        message: String,
    },
}

/// Returns the services whose moves depend on other services, by name. All other services move independently.
///
/// Services are considered together in two cases:
///
/// - a strict Negative rule connects them, directly or through other services;
/// - one prefers the node of another, and the other would also prefer to leave.
///
/// In such a set, one unit moves at a time. The other units stay in the meantime, because an independent move of one
/// unit could undo a move that was made for another unit.
///
/// Guarantees: the result depends only on the view. The caller calls the function again after every move. A set in
/// which every service is on a suitable node is not returned.
pub fn dependent_moves(view: &View) -> BTreeMap<ResourceName, MoveStep> {
    let units = units(view);
    let is_node_shared = has_shared_node(view);
    // Shortcut for the most frequent case, in which no service needs to move.
    if !is_node_shared && !units.values().any(|unit| may_need_move(view, unit)) {
        return BTreeMap::new();
    }
    // The preferences of each unit are computed as if services that could move away, or are moving, used no node.
    let mut without_movable = view.clone();
    let unit_members: BTreeSet<&ResourceName> = units.values().flat_map(|unit| &unit.members).collect();
    without_movable.services.change_all(|name, facts| {
        if unit_members.contains(name) || facts.used_nodes.len() > 1 {
            facts.used_nodes.clear();
        }
    });
    let misplaced: BTreeMap<&ResourceName, NodePreferences> = units
        .iter()
        .filter(|(_, unit)| may_need_move(view, unit))
        .filter_map(|(name, unit)| Some((name, compute_preferences(&without_movable, unit)?)))
        .filter(|(name, preferences)| {
            units.get(*name).is_some_and(|unit| preferences.is_misplaced(unit.node.as_ref()))
        })
        .collect();
    let mut dependent_moves = BTreeMap::new();
    if misplaced.is_empty() && !is_node_shared {
        return dependent_moves;
    }
    for component in component::components(view, &units, &misplaced) {
        dependent_moves.extend(component.dependent_moves(view, &units));
    }
    dependent_moves
}

/// Services that count as one unit for the order of moves.
#[derive(Clone, Debug)]
struct MoveUnit {
    members: Vec<ResourceName>,
    /// Node of the running members; `None` if no member runs.
    node: Option<NodeName>,
}

/// Distance of each node from the best choice of a unit; nodes that the unit may not use are missing.
#[derive(Clone, Debug, Default)]
struct NodePreferences {
    distances: BTreeMap<NodeName, u32>,
    /// Rank of each node's priority tier, even for a unit that does not return to its tier automatically. The rank
    /// decides only between moves that a rule requires.
    tiers: BTreeMap<NodeName, u32>,
}

impl NodePreferences {
    fn is_misplaced(&self, node: Option<&NodeName>) -> bool {
        let Some(current_distance) = node.and_then(|node| self.distances.get(node)) else { return true };
        self.distances.values().any(|distance| distance < current_distance)
    }

    /// Returns the nodes that the unit prefers to its own.
    fn preferred_nodes(&self, node: Option<&NodeName>) -> impl Iterator<Item = &NodeName> {
        let current_distance = node.and_then(|node| self.distances.get(node)).copied();
        self.distances
            .iter()
            .filter(move |(_, distance)| {
                current_distance.is_none_or(|current_distance| **distance < current_distance)
            })
            .map(|(node, _)| node)
    }
}

/// Returns every unit that could be moved or started now, keyed by its first running member, or else by its first member.
fn units(view: &View) -> BTreeMap<ResourceName, MoveUnit> {
    let mut units = BTreeMap::new();
    let mut visited: BTreeSet<&ResourceName> = BTreeSet::new();
    for (name, facts) in &view.services {
        // A service that must be with a paused service stays with that service.
        let is_held_by_partner = facts.paused && !view.rules.strict_affinity_partners(name).is_empty();
        let can_move_or_start = (facts.movable && !is_held_by_partner)
            || (facts.is_desired && facts.used_nodes.is_empty() && !facts.waits_for_others);
        if !can_move_or_start || !visited.insert(name) {
            continue;
        }
        let companions = view.rules.strict_affinity_partners(name);
        let is_moving =
            |other: &ResourceName| view.services.get(other).is_some_and(|facts| facts.used_nodes.len() > 1);
        let unit = PlacementUnit::of(view, name, facts);
        visited.extend(unit.members.iter().map(|(member, _)| *member));
        // The partner of a moving service follows it to its target, independently of this order.
        if companions.iter().any(is_moving) {
            continue;
        }
        let nodes_in_use: BTreeSet<&NodeName> =
            unit.members.iter().filter_map(|(_, facts)| facts.current_or_target_node()).collect();
        // If partners are on different nodes, their unit cannot be moved yet.
        if nodes_in_use.len() > 1 {
            continue;
        }
        let node = nodes_in_use.first().map(|node| (*node).to_owned());
        let is_running = |facts: &ServiceFacts| !facts.used_nodes.is_empty();
        let representative =
            unit.members.iter().filter(|(_, facts)| is_running(facts)).chain(&unit.members).next();
        let Some((representative, _)) = representative else { continue };
        let members: BTreeSet<ResourceName> =
            unit.members.iter().map(|(member, _)| (*member).clone()).collect();
        let members = members.into_iter().collect();
        units.insert((*representative).to_owned(), MoveUnit { members, node });
    }
    units
}

/// Returns `true` if a unit may not be on its best node. This test is fast: it excludes most services of a cluster
/// without examining every node.
fn may_need_move(view: &View, unit: &MoveUnit) -> bool {
    let Some(node) = unit.node.as_ref().and_then(|node| view.nodes.get(node)) else { return true };
    node.maintenance
        || unit.members.iter().any(|name| {
            view.services.get(name).is_none_or(|facts| {
                facts.used_nodes.is_empty()
                    || facts.maintenance_node.is_some()
                    || !facts.failed_nodes.is_empty()
                    || priorities_of(view, name, facts).is_some()
            })
        })
}

/// Returns `true` if two services that a strict Negative rule keeps apart share a node.
fn has_shared_node(view: &View) -> bool {
    view.rules.strict_anti_affinity_rules().any(|partners| {
        let mut used_nodes = BTreeSet::new();
        let mut partner_nodes = partners
            .resources
            .iter()
            .filter_map(|name| view.services.get(name))
            .flat_map(|facts| &facts.used_nodes);
        partner_nodes.any(|node| !used_nodes.insert(node))
    })
}

/// Nodes with equal keys are equally preferred: whether a start failed there, and the priority tiers if failback applies.
type Key = (bool, Option<(Reverse<PriorityTier>, u32)>);

/// Computes the preferences of a unit, in a view in which services that could move away use no node. `None` if no member
/// can represent the unit.
fn compute_preferences(without_movable: &View, unit: &MoveUnit) -> Option<NodePreferences> {
    let representative = unit.members.iter().find(|name| {
        unit.node.is_none()
            || without_movable.services.get(*name).is_some_and(|facts| facts.node == unit.node)
    })?;
    let facts = without_movable.services.get(representative)?;
    let whole_unit = PlacementUnit::of(without_movable, representative, facts);
    let mut eligible = eligible_nodes(without_movable, &whole_unit, unit.node.as_ref());
    let mut scheduled_unit = whole_unit.clone();
    if eligible.scores.is_empty()
        && unit.node.is_some()
        && let Some(running) = whole_unit.retaining(|_, facts| facts.movable)
    {
        eligible = eligible_nodes(without_movable, &running, unit.node.as_ref());
        scheduled_unit = running;
    }
    let has_failback = scheduled_unit.has_failback(without_movable);
    let key = |score: &Score| -> Key {
        (score.failed_before, has_failback.then_some((score.priority_tier, score.partners_tier)))
    };
    let scores = &eligible.scores;
    let ranks: BTreeSet<_> =
        scores.values().map(|score| (score.priority_tier, score.partners_tier)).collect();
    let tiers = scores.iter().map(|(node, score)| {
        let rank =
            ranks.iter().position(|rank| *rank == (score.priority_tier, score.partners_tier)).unwrap_or(0);
        (node.clone(), u32::try_from(rank).unwrap_or(u32::MAX))
    });
    let tiers = tiers.collect();
    let allowed: BTreeMap<&NodeName, Key> = scores.iter().map(|(node, score)| (node, key(score))).collect();
    let keys: BTreeSet<&Key> = allowed.values().collect();
    let left_node = scheduled_unit.maintenance_node().filter(|left_node| allowed.contains_key(left_node));
    let mut distances: BTreeMap<NodeName, u32> = allowed
        .iter()
        .map(|(node, node_key)| {
            let rank = keys.iter().position(|key| *key == node_key).unwrap_or(0);
            let away = u32::from(left_node.is_some_and(|left_node| left_node != *node));
            ((*node).clone(), u32::try_from(rank).unwrap_or(u32::MAX / 4) * 2 + away)
        })
        .collect();
    // If a reason only prevents new placements, the unit neither leaves its node nor prefers another node.
    if let Some(node) = &unit.node
        && let Some(refusals) = &eligible.refusals
        && !refusals.iter().any(makes_leave)
    {
        distances.insert(node.clone(), 0);
    }
    Some(NodePreferences { distances, tiers })
}

/// Returns `true` if a service leaves its node for this reason.
fn makes_leave(refusal: &Refusal) -> bool {
    evicts(refusal.reason) || (refusal.evicts_running && refusal.reason == Reason::WatchdogFailed)
}
