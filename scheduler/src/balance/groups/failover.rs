//! Checks whether all shared services of a failed node would fit on other nodes at the same time.
//!
//! Replicated services move to their secondary, which reserves memory for them. Shared services move to any node within
//! the limits. The answer *survives* is based on an arrangement that was found; two packing strategies are tried.

use crate::balance::model::Reach;
use crate::balance::problem::{Placement, Problem};
use crate::balance::state::{RequiredLimits, State};

/// Returns `true` if some shared service uses memory, so that this check applies.
pub(super) fn has_shared_services(problem: &Problem) -> bool {
    problem.guests.iter().any(|guest| guest.reach == Reach::Shared && guest.memory_used > 0)
}

/// Returns the first node whose failure the cluster would not survive. `extra` are additional guests with their
/// placements.
pub(super) fn first_fatal_failure(state: &mut State<'_>, extra: &[(usize, Placement)]) -> Option<usize> {
    let problem = state.problem();
    if !has_shared_services(problem) {
        return None;
    }
    let mut running: Vec<Vec<(usize, Placement)>> = vec![Vec::new(); problem.hosts.len()];
    let placements: Vec<(usize, Placement)> = state.placements().iter().copied().enumerate().collect();
    for &(guest, placement) in placements.iter().chain(extra) {
        let facts = &problem.guests[guest];
        if facts.memory_used > 0 && facts.reach != Reach::Local {
            running[placement.primary].push((guest, placement));
        }
    }
    let mut working = (0..problem.hosts.len()).filter(|&host| !problem.hosts[host].offline);
    working.find(|&host| !try_failover(state, host, &mut running[host]))
}

fn try_failover(state: &mut State<'_>, host: usize, running: &mut [(usize, Placement)]) -> bool {
    let problem = state.problem();
    // A replicated service fails over to its secondary.
    let failed_over: Vec<(usize, Placement, Placement)> = running
        .iter()
        .filter_map(|&(guest, placement)| {
            let swapped = placement.swapped().filter(|swapped| !problem.hosts[swapped.primary].offline)?;
            Some((guest, placement, swapped))
        })
        .collect();
    for &(guest, placement, swapped) in &failed_over {
        state.remove_added(guest, placement);
        state.add_unchecked(guest, swapped);
    }
    running.sort_by_key(|&(guest, placement)| (-problem.guests[guest].memory_used, guest, placement));
    let shared: Vec<usize> = running
        .iter()
        .filter(|(_, placement)| placement.secondary.is_none())
        .map(|(guest, _)| *guest)
        .collect();
    let can_fail_over = try_pack(state, host, &shared, true) || try_pack(state, host, &shared, false);
    for &(guest, placement, swapped) in &failed_over {
        state.remove_added(guest, swapped);
        state.add_unchecked(guest, placement);
    }
    can_fail_over
}

/// Places all guests on other nodes, the largest first, each where it leaves the least (`tight`) or the most memory.
/// Removes them again before it returns. Returns `true` if all guests fit.
fn try_pack(state: &mut State<'_>, failed: usize, guests: &[usize], tight: bool) -> bool {
    let mut placed: Vec<(usize, Placement)> = Vec::new();
    let mut fits = true;
    for &guest in guests {
        let mut hosts: Vec<usize> = (0..state.problem().hosts.len()).filter(|&host| host != failed).collect();
        hosts.sort_by_key(|&host| {
            let free = state.memory_free(host);
            if tight { free } else { -free }
        });
        let placement = hosts.into_iter().map(|primary| Placement { primary, secondary: None });
        let mut placements =
            placement.filter(|placement| state.try_add(guest, *placement, RequiredLimits::Limits).is_ok());
        let placement_found = placements.next();
        drop(placements);
        if let Some(placement) = placement_found {
            placed.push((guest, placement));
        } else {
            fits = false;
            break;
        }
    }
    for (guest, placement) in placed {
        state.remove_added(guest, placement);
    }
    fits
}
