//! The verdict on one failure: heuristics first, then proofs of impossibility, then the complete search.

use super::exact::{Found, search, search_with_room};
use super::greedy::{Attempt, best, quick, with_room};
use super::model::Model;
use super::unit::{Unit, after_failure};
use super::{Certificate, Failing, Move, Proof, Unplaced, Verdict, bound, lacks};
use ha_api_types::id::NodeName;
use std::collections::BTreeSet;

/// Maximum number of services in a verdict, as examples.
const MOST_NAMED: usize = 32;

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
    pub(super) makes_room: bool,
}

impl Model {
    /// Checks whether every service could be scheduled if these nodes failed now, see [`super::check`]. `effort` limits the
    /// search.
    pub fn check(&self, failure: &BTreeSet<NodeName>, effort: u64) -> Verdict {
        self.check_counting(failure, effort).0
    }

    /// Checks as [`Model::check`] does, and also returns the number of examined candidates.
    pub fn check_counting(&self, failure: &BTreeSet<NodeName>, effort: u64) -> (Verdict, u64) {
        let failed: Vec<u32> = failure.iter().filter_map(|node| self.node_number(node)).collect();
        let (judged, steps) = self.judge(&failed, effort);
        (self.told(judged), steps)
    }

    /// Returns the nodes with services that count, by name.
    pub fn nodes_with_services(&self) -> impl Iterator<Item = &NodeName> {
        let counts = |number: &u32| self.service(*number).counts;
        self.nodes.iter().filter(move |node| node.services.iter().any(counts)).map(|node| &node.name)
    }

    /// Converts a verdict to names.
    pub(super) fn told(&self, judged: CaseVerdict) -> Verdict {
        let placed = match judged {
            CaseVerdict::Other(verdict) => return verdict,
            CaseVerdict::Survives(placed) => placed,
        };
        let mut proof = Proof::default();
        for placed in placed {
            let service = self.service(placed.service);
            let from = service.home.map(|home| self.node(home).name.clone()).unwrap_or_default();
            let told = Move { service: service.name.clone(), from, to: self.node(placed.to).name.clone() };
            if placed.makes_room { &mut proof.make_room } else { &mut proof.moves }.push(told);
        }
        for moves in [&mut proof.moves, &mut proof.make_room] {
            moves.sort_by(|one, other| one.service.cmp(&other.service));
        }
        Verdict::Survives(proof)
    }

    /// Computes the verdict on a failure, and returns the number of examined candidates.
    pub(super) fn judge(&self, failed: &[u32], effort: u64) -> (CaseVerdict, u64) {
        let (mut trial, units) = after_failure(self, failed);
        let preemption = self.view.settings.preemption;
        let first = quick(self, &trial, &units);
        let mut steps = first.trial.steps();
        if first.is_whole() {
            return (survives(&first), steps);
        }
        // A fast proof makes further attempts unnecessary.
        let nowhere = bound::without_node(self, &trial, &units, failed, preemption);
        if !nowhere.is_empty() {
            let told = nowhere.into_iter().flat_map(|unit| lacks::of_unit(self, &trial, unit, failed));
            return (fails(Certificate::NoNode, told.take(MOST_NAMED).collect()), steps);
        }
        let certificate = bound::short_of_room(self, &trial, &units, failed, preemption).or_else(|| {
            (!preemption).then(|| bound::too_few_to_be_apart(self, &mut trial, &units)).flatten()
        });
        let mut attempt = best(self, &trial, &units, first);
        steps += attempt.trial.steps();
        if attempt.is_whole() {
            return (survives(&attempt), steps);
        }
        if preemption {
            let other = with_room(self, &trial, &units, failed);
            steps += other.trial.steps();
            if other.is_whole() {
                return (survives(&other), steps);
            }
            attempt = other;
        }
        let left_over = |attempt: &Attempt<'_>| -> Vec<Unplaced> {
            let units: Vec<&Unit> = attempt.left_over().collect();
            let told = units.into_iter().flat_map(|unit| lacks::of_unit(self, &attempt.trial, unit, failed));
            told.take(MOST_NAMED).collect()
        };
        if let Some(certificate) = certificate {
            return (fails(certificate, left_over(&attempt)), steps);
        }
        let found = if preemption {
            search_with_room(self, &trial, &units, failed, effort)
        } else {
            search(self, &trial, &units, effort)
        };
        steps += effort;
        let judged = match found {
            Found::Placement(whole) => survives(&whole),
            Found::Nothing => fails(Certificate::Searched, left_over(&attempt)),
            Found::Undecided => CaseVerdict::Other(Verdict::Unknown(left_over(&attempt))),
        };
        (judged, steps)
    }

    /// Returns `true` if a placement still proves that a failure is survived.
    pub(super) fn holds(&self, failed: &[u32], placed: &[Placed]) -> bool {
        let (mut trial, mut units) = after_failure(self, failed);
        let to =
            |service: u32| placed.iter().find(|placed| placed.service == service).map(|placed| placed.to);
        let mut accounted: BTreeSet<u32> =
            units.iter().flat_map(|unit| unit.members.iter().copied()).collect();
        for number in placed.iter().filter(|placed| placed.makes_room).map(|placed| placed.service) {
            if accounted.contains(&number) {
                continue;
            }
            let Some(home) = self.service(number).home.filter(|home| !failed.contains(home)) else {
                return false;
            };
            let unit = Unit::that_make_room(self, &trial, home, i32::MAX, failed)
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
        let mut highest: std::collections::BTreeMap<u32, i32> = std::collections::BTreeMap::new();
        for unit in &units {
            let Some(node) = unit.members.first().and_then(|member| to(*member)) else { return false };
            if unit.members.iter().any(|member| to(*member) != Some(node)) || !trial.fits(unit, node) {
                return false;
            }
            trial.place(unit, node);
            let known = highest.entry(node).or_insert(unit.least);
            *known = (*known).max(unit.least);
        }
        let is_justified = |unit: &Unit| {
            let highest = unit.from.and_then(|from| highest.get(&from));
            highest.is_some_and(|highest| unit.most < *highest)
        };
        self.view.settings.preemption && units.iter().filter(|unit| unit.makes_room).all(is_justified)
            || units.iter().all(|unit| !unit.makes_room)
    }
}

fn fails(certificate: Certificate, services: Vec<Unplaced>) -> CaseVerdict {
    CaseVerdict::Other(Verdict::Fails(Failing { certificate, services }))
}

fn survives(attempt: &Attempt<'_>) -> CaseVerdict {
    let placed = attempt.units.iter().zip(&attempt.nodes).filter_map(|(unit, node)| Some((unit, (*node)?)));
    let placed = placed.flat_map(|(unit, to)| {
        unit.members.iter().map(move |service| Placed { service: *service, to, makes_room: unit.makes_room })
    });
    CaseVerdict::Survives(placed.collect())
}
