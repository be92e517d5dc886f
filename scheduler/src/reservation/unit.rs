//! Units of services that need one node, and the units that a failure of nodes affects.

use super::bits::Bits;
use super::model::{Model, Service, Sums};
use super::placement_trial::PlacementTrial;
use ha_api_types::id::ResourceName;
use std::collections::{BTreeMap, BTreeSet};

/// Services that are placed together on one node.
#[derive(Clone, Debug)]
pub(super) struct PlacementUnit {
    /// Numbers of the members. The first one is on a failed node or is preempted.
    pub(super) members: Vec<u32>,
    /// Current node of the first member; `None` if it uses no node.
    pub(super) from: Option<u32>,
    /// Sums of the requests of all members; `None` if no member requests the amount.
    pub(super) requests: [Option<i128>; 3],
    pub(super) lowest_priority: i32,
    pub(super) highest_priority: i32,
    /// Nodes that are eligible for all members, without regard to free capacity and other services.
    pub(super) candidates: Bits,
    /// `true` if the unit is preempted for others.
    pub(super) is_preempted: bool,
}

impl PlacementUnit {
    fn new(model: &Model, members: Vec<u32>, from: u32, failed: &[u32]) -> PlacementUnit {
        let candidates_of = |service: &Service| {
            let mut own_candidates =
                model.candidates(service, model.view.nodes.get(&model.node(from).name), failed);
            // A partner on another node may stay there, unless it must leave for some reason.
            if let Some(current_node) = service.current_node
                && current_node != from
                && !failed.contains(&current_node)
                && model.eligibility_cache.get(service.eligibility).stay_nodes.contains(current_node as usize)
            {
                own_candidates.insert(current_node as usize);
            }
            own_candidates
        };
        PlacementUnit { from: Some(from), ..PlacementUnit::of_members(model, members, candidates_of) }
    }

    /// Returns the unit of services that use no node and need one. A node on which a member failed to start is not a
    /// candidate.
    pub(super) fn waiting_unit(model: &Model, members: Vec<u32>) -> PlacementUnit {
        let candidates_of = |service: &Service| {
            let facts = model.view.services.get(&service.name);
            let last_node = facts.and_then(|facts| model.view.nodes.get(facts.node.as_ref()?));
            let failed: Vec<u32> = facts
                .iter()
                .flat_map(|facts| &facts.failed_nodes)
                .filter_map(|node| model.node_number(node))
                .collect();
            model.candidates(service, last_node, &failed)
        };
        PlacementUnit::of_members(model, members, candidates_of)
    }

    /// Sums up the requests of members without a node, and computes their common candidates.
    fn of_members(
        model: &Model,
        members: Vec<u32>,
        candidates_of: impl Fn(&Service) -> Bits,
    ) -> PlacementUnit {
        let mut requests = [None; 3];
        let mut candidates: Option<Bits> = None;
        let (mut lowest_priority, mut highest_priority) = (i32::MAX, i32::MIN);
        for number in &members {
            let service = model.service(*number);
            for (sum, request) in requests.iter_mut().zip(service.requests) {
                *sum = match (*sum, request) {
                    (Some(sum), Some(request)) => Some(sum + request),
                    (left, right) => left.or(right),
                };
            }
            let member_candidates = candidates_of(service);
            match &mut candidates {
                Some(common) => common.intersect(&member_candidates),
                None => candidates = Some(member_candidates),
            }
            lowest_priority = lowest_priority.min(service.priority);
            highest_priority = highest_priority.max(service.priority);
        }
        let candidates = candidates.unwrap_or_default();
        PlacementUnit {
            members,
            from: None,
            requests,
            lowest_priority,
            highest_priority,
            candidates,
            is_preempted: false,
        }
    }

    /// Returns the size of the unit relative to the whole cluster: the largest of its shares.
    pub(super) fn size(&self, total: &Sums) -> f64 {
        let shares = self.requests.iter().zip(total).map(|(requests, total)| {
            if *total > 0 { requests.unwrap_or(0) as f64 / *total as f64 } else { 0.0 }
        });
        shares.fold(0.0, f64::max)
    }

    /// Returns the units on this node whose priority is below `above`, with the partners that must stay with them.
    /// These units may be preempted.
    pub(super) fn preemptible_units(
        model: &Model,
        trial: &PlacementTrial<'_>,
        node: u32,
        min_priority: i32,
        failed: &[u32],
    ) -> Vec<PlacementUnit> {
        let may_be_preempted = |number: &u32| {
            let service = model.service(*number);
            service.needs_failover
                && service.movable
                && service.used_nodes == [node]
                && service.priority < min_priority
        };
        let mut units = Vec::new();
        let mut examined = BTreeSet::new();
        for number in &model.node(node).services {
            if trial.is_removed(*number) || !may_be_preempted(number) || !examined.insert(*number) {
                continue;
            }
            let mut members = vec![*number];
            if let Some(set) = model.service(*number).affinity_set {
                let partners = model.affinity_sets[set as usize].iter().filter(|other| *other != number);
                members.extend(partners.copied());
            }
            examined.extend(members.iter().copied());
            if members.iter().all(|member| may_be_preempted(member) && !trial.is_removed(*member)) {
                let mut unit = PlacementUnit::new(model, members, node, failed);
                unit.candidates.remove(node as usize);
                unit.is_preempted = true;
                units.push(unit);
            }
        }
        units
    }
}

/// Returns the cluster after nodes have failed and before any recovery, and the units that need a node.
pub(super) fn after_failure<'m>(
    model: &'m Model,
    failed: &[u32],
) -> (PlacementTrial<'m>, Vec<PlacementUnit>) {
    let mut trial = PlacementTrial::new(model);
    let mut units = Vec::new();
    let mut sets: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for node in failed {
        for number in &model.node(*node).services {
            let service = model.service(*number);
            if !service.needs_failover {
                continue;
            }
            trial.remove(*number);
            match service.affinity_set {
                Some(set) => sets.entry(set).or_default().push(*number),
                None => units.push(PlacementUnit::new(model, vec![*number], *node, failed)),
            }
        }
    }
    for (set, mut members) in sets {
        members.sort_by(|left, right| model.service(*left).name.cmp(&model.service(*right).name));
        let Some(from) = members.first().and_then(|first| model.service(*first).current_node) else {
            continue;
        };
        let mut required_nodes = None;
        for other in &model.affinity_sets[set as usize] {
            let service = model.service(*other);
            if members.contains(other) {
                continue;
            }
            if service.movable {
                trial.remove(*other);
                members.push(*other);
                continue;
            }
            // If a partner cannot be moved now, the others must use the node to which it is moving.
            restrict_nodes(&mut required_nodes, model, service, failed);
        }
        let mut unit = PlacementUnit::new(model, members, from, failed);
        if let Some(nodes) = required_nodes {
            unit.candidates.intersect(&nodes);
        }
        units.push(unit);
    }
    (trial, units)
}

/// Restricts the candidates to the node of a partner, or the target of its move. If a movable partner may not stay on
/// its node, no candidate remains. If a partner cannot be moved now, its node is the only candidate in any case, as in
/// the placement by the leader.
fn restrict_nodes(required_nodes: &mut Option<Bits>, model: &Model, service: &Service, failed: &[u32]) {
    let remaining_nodes: Vec<u32> =
        service.used_nodes.iter().copied().filter(|node| !failed.contains(node)).collect();
    let target = remaining_nodes
        .iter()
        .find(|node| Some(**node) != service.current_node)
        .or(remaining_nodes.first())
        .copied();
    let Some(node) = target else { return };
    let stays = !service.movable
        || model.eligibility_cache.get(service.eligibility).stay_nodes.contains(node as usize);
    let allowed_nodes = Bits::of(model.nodes.len(), |index| stays && index == node as usize);
    match required_nodes {
        None => *required_nodes = Some(allowed_nodes),
        Some(common) => common.intersect(&allowed_nodes),
    }
}

/// Returns the units of services that use no node and need one. Services with strict affinity form one unit, restricted to
/// the node of members that already use one.
pub(super) fn waiting_units(model: &Model, names: &BTreeSet<ResourceName>) -> Vec<PlacementUnit> {
    let mut units = Vec::new();
    let mut sets: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for number in names.iter().filter_map(|name| model.service_number(name)) {
        match model.service(number).affinity_set {
            Some(set) => sets.entry(set).or_default().push(number),
            None => units.push(PlacementUnit::waiting_unit(model, vec![number])),
        }
    }
    for (set, members) in sets {
        let mut required_nodes = None;
        for other in &model.affinity_sets[set as usize] {
            restrict_nodes(&mut required_nodes, model, model.service(*other), &[]);
        }
        let mut unit = PlacementUnit::waiting_unit(model, members);
        if let Some(nodes) = required_nodes {
            unit.candidates.intersect(&nodes);
        }
        units.push(unit);
    }
    units
}
