//! The verdict on one failure: heuristics first, then proofs of impossibility, then the complete search.

use super::exact::{SearchResult, search, search_with_preemption};
use super::greedy::{Attempt, best_attempt, place_quickly, place_with_preemption};
use super::model::Model;
use super::unit::{PlacementUnit, after_failure};
use super::{Certificate, FailedCheck, Move, Proof, Unplaced, Verdict, blocked_nodes, certificate};
use ha_api_types::id::NodeName;
use std::collections::BTreeSet;

/// Maximum number of services in a verdict, as examples.
const MAX_NAMED: usize = 32;

/// A verdict with numbers instead of names.
#[derive(Clone, Debug)]
pub(super) enum CaseVerdict {
    /// The placement of all units.
    Survives(Vec<Placed>),
    /// A verdict without a placement.
    Other(Verdict),
}

/// The node of one service in a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Placed {
    pub(super) service: u32,
    pub(super) to: u32,
    pub(super) is_preempted: bool,
}

impl Model {
    /// Checks whether every service could be scheduled if these nodes failed now, see [`super::check`]. `effort` limits the
    /// search.
    pub fn check(&self, failure: &BTreeSet<NodeName>, effort: u64) -> Verdict {
        self.check_and_count(failure, effort).0
    }

    /// Checks as [`Model::check`] does, and also returns the number of examined candidates.
    pub fn check_and_count(&self, failure: &BTreeSet<NodeName>, effort: u64) -> (Verdict, u64) {
        let failed: Vec<u32> = failure.iter().filter_map(|node| self.node_number(node)).collect();
        let (verdict, steps) = self.compute_verdict(&failed, effort);
        (self.with_names(verdict), steps)
    }

    /// Returns the nodes with services that count, by name.
    pub fn nodes_with_services(&self) -> impl Iterator<Item = &NodeName> {
        let counts = |number: &u32| self.service(*number).needs_failover;
        self.nodes.iter().filter(move |node| node.services.iter().any(counts)).map(|node| &node.name)
    }

    /// Replaces the numbers of nodes and services in a verdict with their names.
    pub(super) fn with_names(&self, verdict: CaseVerdict) -> Verdict {
        let placed = match verdict {
            CaseVerdict::Other(verdict) => return verdict,
            CaseVerdict::Survives(placed) => placed,
        };
        let mut proof = Proof::default();
        for placed in placed {
            let service = self.service(placed.service);
            let from = service
                .current_node
                .map(|current_node| self.node(current_node).name.clone())
                .unwrap_or_default();
            let service_move =
                Move { service: service.name.clone(), from, to: self.node(placed.to).name.clone() };
            if placed.is_preempted { &mut proof.preempted } else { &mut proof.moves }.push(service_move);
        }
        for moves in [&mut proof.moves, &mut proof.preempted] {
            moves.sort_by(|left, right| left.service.cmp(&right.service));
        }
        Verdict::Survives(proof)
    }

    /// Computes the verdict on a failure, and returns the number of examined candidates.
    pub(super) fn compute_verdict(&self, failed: &[u32], effort: u64) -> (CaseVerdict, u64) {
        let (trial, units) = after_failure(self, failed);
        let preemption = self.view.settings.preemption;
        let first = place_quickly(self, &trial, &units);
        let mut steps = first.trial.steps();
        if first.is_complete() {
            return (surviving_case(&first), steps);
        }
        // If a fast proof exists, further attempts are unnecessary.
        let without_node = certificate::units_without_node(self, &trial, &units, failed, preemption);
        if !without_node.is_empty() {
            let unplaced = without_node
                .into_iter()
                .flat_map(|unit| blocked_nodes::explain_unit(self, &trial, unit, failed));
            return (failed_case(Certificate::NoNode, unplaced.take(MAX_NAMED).collect()), steps);
        }
        let certificate = certificate::capacity_certificate(self, &trial, &units, failed, preemption)
            .or_else(|| {
                (!preemption).then(|| certificate::anti_affinity_certificate(self, &trial, &units)).flatten()
            });
        let mut attempt = best_attempt(self, &trial, &units, first);
        steps += attempt.trial.steps();
        if attempt.is_complete() {
            return (surviving_case(&attempt), steps);
        }
        if preemption {
            let other = place_with_preemption(self, &trial, &units, failed);
            steps += other.trial.steps();
            if other.is_complete() {
                return (surviving_case(&other), steps);
            }
            attempt = other;
        }
        let unplaced_units = |attempt: &Attempt<'_>| -> Vec<Unplaced> {
            let units: Vec<&PlacementUnit> = attempt.unplaced_units().collect();
            let unplaced = units
                .into_iter()
                .flat_map(|unit| blocked_nodes::explain_unit(self, &attempt.trial, unit, failed));
            unplaced.take(MAX_NAMED).collect()
        };
        if let Some(certificate) = certificate {
            return (failed_case(certificate, unplaced_units(&attempt)), steps);
        }
        let search_result = if preemption {
            search_with_preemption(self, &trial, &units, failed, effort)
        } else {
            search(self, &trial, &units, effort)
        };
        steps += effort;
        let verdict = match search_result {
            SearchResult::Placement(placement) => surviving_case(&placement),
            SearchResult::Nothing => failed_case(Certificate::Exhausted, unplaced_units(&attempt)),
            SearchResult::Undecided => CaseVerdict::Other(Verdict::Unknown(unplaced_units(&attempt))),
        };
        (verdict, steps)
    }

    /// Returns `true` if a placement still proves that the cluster survives the failure.
    pub(super) fn is_still_valid(&self, failed: &[u32], placed: &[Placed]) -> bool {
        let (mut trial, mut units) = after_failure(self, failed);
        let to =
            |service: u32| placed.iter().find(|placed| placed.service == service).map(|placed| placed.to);
        let mut accounted: BTreeSet<u32> =
            units.iter().flat_map(|unit| unit.members.iter().copied()).collect();
        for number in placed.iter().filter(|placed| placed.is_preempted).map(|placed| placed.service) {
            if accounted.contains(&number) {
                continue;
            }
            let Some(current_node) =
                self.service(number).current_node.filter(|current_node| !failed.contains(current_node))
            else {
                return false;
            };
            let unit = PlacementUnit::preemptible_units(self, &trial, current_node, i32::MAX, failed)
                .into_iter()
                .find(|unit| unit.members.contains(&number));
            let Some(unit) = unit else { return false };
            accounted.extend(unit.members.iter().copied());
            for member in &unit.members {
                trial.remove(*member);
            }
            units.push(unit);
        }
        if placed.len() != accounted.len() {
            return false;
        }
        let mut highest_priorities: std::collections::BTreeMap<u32, i32> = std::collections::BTreeMap::new();
        for unit in &units {
            let Some(node) = unit.members.first().and_then(|member| to(*member)) else { return false };
            if unit.members.iter().any(|member| to(*member) != Some(node)) || !trial.fits(unit, node) {
                return false;
            }
            trial.place(unit, node);
            let highest_priority = highest_priorities.entry(node).or_insert(unit.lowest_priority);
            *highest_priority = (*highest_priority).max(unit.lowest_priority);
        }
        let is_justified = |unit: &PlacementUnit| {
            let highest_priority = unit.from.and_then(|from| highest_priorities.get(&from));
            highest_priority.is_some_and(|highest_priority| unit.highest_priority < *highest_priority)
        };
        self.view.settings.preemption && units.iter().filter(|unit| unit.is_preempted).all(is_justified)
            || units.iter().all(|unit| !unit.is_preempted)
    }
}

fn failed_case(certificate: Certificate, services: Vec<Unplaced>) -> CaseVerdict {
    CaseVerdict::Other(Verdict::Fails(FailedCheck { certificate, services }))
}

fn surviving_case(attempt: &Attempt<'_>) -> CaseVerdict {
    let placed = attempt.units.iter().zip(&attempt.nodes).filter_map(|(unit, node)| Some((unit, (*node)?)));
    let placed = placed.flat_map(|(unit, to)| {
        unit.members.iter().map(move |service| Placed {
            service: *service,
            to,
            is_preempted: unit.is_preempted,
        })
    });
    CaseVerdict::Survives(placed.collect())
}
