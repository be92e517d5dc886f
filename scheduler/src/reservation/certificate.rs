//! Proofs that no placement exists, without a search.

use super::Certificate;
use super::bits::Bits;
use super::greedy::nodes_of;
use super::model::Model;
use super::placement_trial::PlacementTrial;
use super::unit::PlacementUnit;
use crate::rules::can_use_distinct_nodes;
use ha_api_types::reason::Reason;
use std::collections::{BTreeMap, BTreeSet};

/// The kinds of amounts, with their reasons and their names in messages.
pub(super) const AMOUNT_KINDS: [(Reason, &str); 3] =
    [(Reason::NotEnoughCpu, "CPU"), (Reason::NotEnoughMemory, "memory"), (Reason::NotEnoughDisk, "disk")];

/// Returns the units that fit on no node, even if no other unit must be placed and all services that may be preempted
/// are removed.
pub(super) fn units_without_node<'u>(
    model: &Model,
    trial: &PlacementTrial<'_>,
    units: &'u [PlacementUnit],
    failed: &[u32],
    preemption: bool,
) -> Vec<&'u PlacementUnit> {
    let highest = units.iter().map(|unit| unit.lowest_priority).max().unwrap_or(i32::MIN);
    let mut trial = trial.clone();
    if preemption {
        for node in units.iter().flat_map(nodes_of).collect::<BTreeSet<_>>() {
            for other in PlacementUnit::preemptible_units(model, &trial, node, highest, failed) {
                for member in other.members {
                    trial.remove(member);
                }
            }
        }
    }
    units.iter().filter(|unit| !nodes_of(unit).any(|node| trial.fits(unit, node))).collect()
}

/// Returns a certificate if the requests exceed the free amounts of the nodes that the services may use. It considers all
/// services together, and those whose candidates are within the same set of nodes.
pub(super) fn capacity_certificate(
    model: &Model,
    trial: &PlacementTrial<'_>,
    units: &[PlacementUnit],
    failed: &[u32],
    preemption: bool,
) -> Option<Certificate> {
    let mut node_sets: BTreeSet<Bits> = BTreeSet::new();
    if preemption {
        // A preempted service also needs a node, possibly one that no other service may use.
        node_sets
            .insert(Bits::of(model.nodes.len(), |index| !failed.iter().any(|node| *node as usize == index)));
    } else {
        let mut all_nodes = Bits::of(model.nodes.len(), |_| false);
        for unit in units {
            all_nodes.unite(&unit.candidates);
        }
        node_sets.extend(units.iter().map(|unit| unit.candidates.clone()).take(MAX_NODE_SETS));
        node_sets.insert(all_nodes);
    }
    for node_set in node_sets {
        for (kind, (reason, amount_name)) in AMOUNT_KINDS.into_iter().enumerate() {
            let requesting_units = units.iter().filter(|unit| unit.candidates.is_subset(&node_set));
            let requested: i128 = requesting_units.filter_map(|unit| unit.requests[kind]).sum();
            let free: Option<i128> = node_set
                .iter()
                .filter_map(|node| u32::try_from(node).ok())
                .map(|node| trial.free(node, kind).map(|free| free.max(0)))
                .sum();
            if let Some(free) = free.filter(|free| requested > *free) {
                let message = format!(
                    "{} of {amount_name} requested in total, {} free (eligible nodes: {})",
                    Model::to_quantity(requested),
                    Model::to_quantity(free),
                    node_set.count()
                );
                return Some(Certificate::Capacity { reason, message });
            }
        }
    }
    None
}

/// Maximum number of candidate sets that are considered; those of the first units are used.
const MAX_NODE_SETS: usize = 64;
/// Maximum number of services of one set that are matched with nodes; larger sets are left to the search.
const MAX_MATCHED_UNITS: usize = 64;

/// Returns a certificate if services that must stay apart have too few nodes. The check is exact, by matching, for each set
/// separately.
pub(super) fn anti_affinity_certificate(
    model: &Model,
    trial: &PlacementTrial<'_>,
    units: &[PlacementUnit],
) -> Option<Certificate> {
    let mut sets: BTreeMap<u32, Vec<&PlacementUnit>> = BTreeMap::new();
    for unit in units {
        let anti_affinity_sets: BTreeSet<u32> = unit
            .members
            .iter()
            .flat_map(|member| model.service(*member).anti_affinity_sets.iter().copied())
            .collect();
        for set in anti_affinity_sets {
            sets.entry(set).or_default().push(unit);
        }
    }
    for (set, units) in sets.into_iter().filter(|(_, units)| units.len() > 1) {
        if units.len() > MAX_MATCHED_UNITS {
            continue;
        }
        let allowed: Vec<BTreeSet<usize>> = units
            .iter()
            .map(|unit| {
                nodes_of(unit).filter(|node| trial.fits(unit, *node)).map(|node| node as usize).collect()
            })
            .collect();
        if !can_use_distinct_nodes(&allowed.iter().collect::<Vec<_>>()) {
            let nodes: BTreeSet<&usize> = allowed.iter().flatten().collect();
            let message = format!(
                "{} services with anti-affinity ({}) require one node each (eligible nodes: {})",
                units.len(),
                model.anti_affinity_names[set as usize],
                nodes.len()
            );
            return Some(Certificate::AntiAffinity { message });
        }
    }
    None
}
