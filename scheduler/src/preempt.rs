//! Preemption: services of lower priority stop so that a service without an eligible node can start. This module
//! chooses these services.
//!
//! [`preempt`] is the entry point. It only chooses the node and the services to stop. The controller stops these
//! services, and starts the other one after the stops are confirmed.

use crate::place::{Placement, Verdict};
use crate::score::priority_tier_of;
use crate::trial::StartTrial;
use crate::view::{ServiceFacts, View};
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::reason::Reason;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of sets of services that are examined per node. Beyond it, the best set found so far is used. That
/// set is minimal (none of its services could stay), but possibly not the cheapest.
const MAX_CHECKS: usize = 512;

/// The request for the capacity of one service.
#[derive(Clone, Copy, Debug)]
pub struct PreemptionRequest<'a> {
    /// The service that has no eligible node.
    pub name: &'a ResourceName,
    /// Facts of the service as it would start.
    pub service: &'a ServiceFacts,
    /// Services that must be on the same node (strict Positive) and have no eligible node either.
    pub companions: &'a BTreeSet<ResourceName>,
    /// Services that may be stopped: they run, and no other action on them is in progress.
    pub preemptible: &'a BTreeSet<ResourceName>,
    /// Services that are already being stopped, whose capacity will be free.
    pub leaving: &'a BTreeSet<ResourceName>,
}

/// The services that must stop, and their node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// The node on which the service will start.
    pub node: NodeName,
    /// Services that have to leave the node, by name. Empty if the service fits once the services in
    /// [`PreemptionRequest::leaving`] are removed.
    pub victims: BTreeSet<ResourceName>,
}

/// Services that leave together: one service, and those that must stay with it.
#[derive(Clone, Debug)]
struct LeavingUnit {
    members: BTreeSet<ResourceName>,
    /// The highest priority of the members.
    priority: i32,
    /// Requested memory and cpu, in thousandths. Of units with equal priority, smaller units are kept first.
    size: (i128, i128),
}

/// Returns the cheapest way to free capacity on a node, or `None`.
///
/// The cost is the list of priorities of all services that leave, highest first, compared element by element. The
/// highest priority among the leaving services is thus as low as possible, then the next highest, and finally their
/// number is as small as possible. At equal cost, the better priority tier for the service decides, then the node name.
/// A node on which the service failed to start comes last.
///
/// Guarantees:
///
/// - The result is deterministic.
/// - Every service that leaves has a lower priority than the service and than all services in `with`.
/// - Services that must stay together leave together.
/// - Without the services that leave, no hard limit and no strict rule excludes the node.
/// - A node with a reason that the departure of services cannot remove is not considered.
pub fn preempt(view: &View, placement: &Placement, request: &PreemptionRequest<'_>) -> Option<Preemption> {
    let priority_limit = request
        .companions
        .iter()
        .filter_map(|name| view.services.get(name))
        .map(|facts| facts.priority)
        .fold(request.service.priority, i32::min);
    let mut best: Option<(Rank, Preemption)> = None;
    for (node, verdict) in &placement.verdicts {
        let Verdict::Refused(refusals) = verdict else { continue };
        if !refusals.iter().all(|refusal| is_removable_by_departure(refusal.reason)) {
            continue;
        }
        let failed_before = request.service.failed_nodes.contains(node);
        let priority_tier = Reverse(priority_tier_of(view, request.name, request.service, node));
        let limit = best.as_ref().filter(|(rank, _)| rank.0 == failed_before).map(|(rank, _)| rank.1.clone());
        let Some((cost, victims)) = cheapest(view, request, node, priority_limit, limit) else { continue };
        let rank = (failed_before, cost, priority_tier);
        if best.as_ref().is_none_or(|(best_rank, _)| rank < *best_rank) {
            best = Some((rank, Preemption { node: node.clone(), victims }));
        }
    }
    best.map(|(_, preemption)| preemption)
}

type Rank = (bool, Vec<i32>, Reverse<crate::score::PriorityTier>);

/// Returns `true` if the departure of other services can remove this reason.
fn is_removable_by_departure(reason: Reason) -> bool {
    [
        Reason::NotEnoughMemory,
        Reason::NotEnoughDisk,
        Reason::NotEnoughCpu,
        Reason::NegativePartner,
        Reason::ExclusionTag,
    ]
    .contains(&reason)
}

/// Returns the cheapest set of services on one node. With `limit`, the search ignores sets of a higher cost.
fn cheapest(
    view: &View,
    request: &PreemptionRequest<'_>,
    node: &NodeName,
    priority_limit: i32,
    limit: Option<Vec<i32>>,
) -> Option<(Vec<i32>, BTreeSet<ResourceName>)> {
    let units = units(view, request, node, priority_limit);
    let trial =
        StartTrial::new(view, request.name, request.service, request.companions, request.leaving, node);
    let mut search = Search { trial, units: &units, limit, cheapest: None, checks: 0 };
    if !search.try_fit_without(&[], 0) {
        return None;
    }
    search.search_leaving_units(0, &mut Vec::new());
    search.cheapest
}

/// Returns the units that may leave a node, highest priority first, then smallest first. The search tries to keep them in
/// this order.
fn units(
    view: &View,
    request: &PreemptionRequest<'_>,
    node: &NodeName,
    priority_limit: i32,
) -> Vec<LeavingUnit> {
    let own_partners = view.rules.strict_affinity_partners(request.name);
    let stays = |name: &ResourceName, facts: &ServiceFacts| {
        !request.preemptible.contains(name)
            || own_partners.contains(name)
            || facts.priority >= priority_limit
            || facts.used_nodes.len() != 1
            || !facts.used_nodes.contains(node)
    };
    let mut units: BTreeMap<BTreeSet<ResourceName>, LeavingUnit> = BTreeMap::new();
    for (name, facts) in view.users_of(node) {
        if name == request.name || request.leaving.contains(name) || stays(name, facts) {
            continue;
        }
        let members = services_leaving_with(view, request, name, node);
        let member_facts: Vec<(&ResourceName, &ServiceFacts)> =
            members.iter().filter_map(|name| Some((name, view.services.get(name)?))).collect();
        if member_facts.iter().any(|(name, facts)| stays(name, facts)) {
            continue;
        }
        let priority = member_facts.iter().map(|(_, facts)| facts.priority).max().unwrap_or(facts.priority);
        let sum =
            |pick: fn(&ServiceFacts) -> i128| member_facts.iter().map(|(_, facts)| pick(facts)).sum::<i128>();
        let size = (
            sum(|facts| facts.requests.memory.unwrap_or_default().milli()),
            sum(|facts| facts.requests.cpu.unwrap_or_default().milli()),
        );
        units.insert(members.clone(), LeavingUnit { members, priority, size });
    }
    let mut units: Vec<LeavingUnit> = units.into_values().collect();
    units.sort_by(|a, b| {
        (Reverse(a.priority), a.size, &a.members).cmp(&(Reverse(b.priority), b.size, &b.members))
    });
    units
}

/// Returns a service and the services on the node that must stay with it.
fn services_leaving_with(
    view: &View,
    request: &PreemptionRequest<'_>,
    name: &ResourceName,
    node: &NodeName,
) -> BTreeSet<ResourceName> {
    view.rules
        .strict_affinity_partners(name)
        .into_iter()
        .filter(|other| !request.leaving.contains(other))
        .filter(|other| view.services.get(other).is_some_and(|facts| facts.used_nodes.contains(node)))
        .chain(std::iter::once(name.to_owned()))
        .collect()
}

/// Search that decides about each unit in turn, the most important first. A unit stays if the departure of all
/// undecided units would suffice. The first result is minimal; the further search finds the cheapest result.
struct Search<'a> {
    trial: StartTrial<'a>,
    units: &'a [LeavingUnit],
    /// The cost that a result must not exceed.
    limit: Option<Vec<i32>>,
    cheapest: Option<(Vec<i32>, BTreeSet<ResourceName>)>,
    checks: usize,
}

impl Search<'_> {
    /// Checks whether the service fits when these units and all undecided units leave, and counts the check.
    fn try_fit_without(&mut self, chosen_units: &[usize], undecided: usize) -> bool {
        self.checks += 1;
        let leaving_units = chosen_units
            .iter()
            .filter_map(|index| self.units.get(*index))
            .chain(self.units.iter().skip(undecided));
        self.trial.try_fit_without(leaving_units.flat_map(|unit| &unit.members))
    }

    fn cost(&self, leave: &[usize]) -> Vec<i32> {
        let mut cost: Vec<i32> = leave
            .iter()
            .filter_map(|index| self.units.get(*index))
            .flat_map(|unit| &unit.members)
            .filter_map(|name| self.trial.priority_of(name))
            .collect();
        cost.sort_unstable_by_key(|priority| Reverse(*priority));
        cost
    }

    /// Decides about the unit at index `at` and all later units. Assumes that the service fits if the units in `leave`
    /// and all units from `at` on leave.
    fn search_leaving_units(&mut self, index: usize, leave: &mut Vec<usize>) {
        let cost = self.cost(leave);
        // Each further unit that leaves raises the cost, so this branch cannot become cheaper.
        if self.limit.as_ref().is_some_and(|limit| cost > *limit)
            || self.cheapest.as_ref().is_some_and(|(cheapest_cost, _)| cost >= *cheapest_cost)
        {
            return;
        }
        if index >= self.units.len() {
            let members =
                leave.iter().filter_map(|index| self.units.get(*index)).flat_map(|unit| unit.members.clone());
            self.cheapest = Some((cost, members.collect()));
            return;
        }
        if self.checks >= MAX_CHECKS && self.cheapest.is_some() {
            return;
        }
        if self.try_fit_without(leave, index + 1) {
            self.search_leaving_units(index + 1, leave);
        }
        leave.push(index);
        self.search_leaving_units(index + 1, leave);
        leave.pop();
    }
}

#[cfg(test)]
mod tests;
