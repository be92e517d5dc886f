//! Checks whether all shared services of a failed node would fit on other nodes at the same time.
//!
//! Replicated services move to their secondary, which reserves memory for them. Shared services move to any node within
//! the limits. The answer *survives* is based on an arrangement that was found; two packing strategies are tried.

use crate::balance::model::StorageReach;
use crate::balance::problem::{Placement, Problem};
use crate::balance::state::{RequiredLimits, State};

/// Returns `true` if some shared service uses memory, so that this check applies.
pub(super) fn has_shared_services(problem: &Problem) -> bool {
    problem.services.iter().any(|service| service.reach == StorageReach::Shared && service.memory_used > 0)
}

/// Returns the first node whose failure the cluster would not survive. `extra_services` are additional services with
/// their placements.
pub(super) fn first_fatal_failure(
    state: &mut State<'_>,
    extra_services: &[(usize, Placement)],
) -> Option<usize> {
    let problem = state.problem();
    if !has_shared_services(problem) {
        return None;
    }
    let mut running: Vec<Vec<(usize, Placement)>> = vec![Vec::new(); problem.nodes.len()];
    let placements: Vec<(usize, Placement)> = state.placements().iter().copied().enumerate().collect();
    for &(service, placement) in placements.iter().chain(extra_services) {
        let problem_service = &problem.services[service];
        if problem_service.memory_used > 0 && problem_service.reach != StorageReach::Local {
            running[placement.primary].push((service, placement));
        }
    }
    let mut working = (0..problem.nodes.len()).filter(|&node| !problem.nodes[node].is_offline);
    working.find(|&node| !try_failover(state, node, &mut running[node]))
}

fn try_failover(state: &mut State<'_>, node: usize, running: &mut [(usize, Placement)]) -> bool {
    let problem = state.problem();
    // A replicated service fails over to its secondary.
    let failed_over: Vec<(usize, Placement, Placement)> = running
        .iter()
        .filter_map(|&(service, placement)| {
            let swapped = placement.swapped().filter(|swapped| !problem.nodes[swapped.primary].is_offline)?;
            Some((service, placement, swapped))
        })
        .collect();
    for &(service, placement, swapped) in &failed_over {
        state.remove_added(service, placement);
        state.add_unchecked(service, swapped);
    }
    running.sort_by_key(|&(service, placement)| (-problem.services[service].memory_used, service, placement));
    let shared: Vec<usize> = running
        .iter()
        .filter(|(_, placement)| placement.secondary.is_none())
        .map(|(service, _)| *service)
        .collect();
    let can_fail_over = try_pack(state, node, &shared, true) || try_pack(state, node, &shared, false);
    for &(service, placement, swapped) in &failed_over {
        state.remove_added(service, swapped);
        state.add_unchecked(service, placement);
    }
    can_fail_over
}

/// Places all services on other nodes, the largest first, each where it leaves the least (`is_tight`) or the most
/// memory. Removes them again before it returns. Returns `true` if all services fit.
fn try_pack(state: &mut State<'_>, failed: usize, services: &[usize], is_tight: bool) -> bool {
    let mut placed: Vec<(usize, Placement)> = Vec::new();
    let mut all_fit = true;
    for &service in services {
        let mut nodes: Vec<usize> = (0..state.problem().nodes.len()).filter(|&node| node != failed).collect();
        nodes.sort_by_key(|&node| {
            let free = state.memory_free(node);
            if is_tight { free } else { -free }
        });
        let placement = nodes.into_iter().map(|primary| Placement { primary, secondary: None });
        let mut placements =
            placement.filter(|placement| state.try_add(service, *placement, RequiredLimits::Limits).is_ok());
        let placement_found = placements.next();
        drop(placements);
        if let Some(placement) = placement_found {
            placed.push((service, placement));
        } else {
            all_fit = false;
            break;
        }
    }
    for (service, placement) in placed {
        state.remove_added(service, placement);
    }
    all_fit
}
