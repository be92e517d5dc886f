//! Checks whether all shared services of a failed node would fit on other nodes at the same time.
//!
//! Replicated services move to their secondary, which reserves memory for them. Shared services move to any node within
//! the limits. The answer *survives* is based on an arrangement that was found; two packing strategies are tried.

use crate::balance::model::Reach;
use crate::balance::problem::{Problem, Spot};
use crate::balance::state::{Keep, State};

/// Returns `true` if some shared service uses memory, so that this check applies.
pub(super) fn concerns(problem: &Problem) -> bool {
    problem.guests.iter().any(|guest| guest.reach == Reach::Shared && guest.memory_used > 0)
}

/// Returns the first node whose failure the cluster would not survive. `extra` are additional guests with their
/// spots.
pub(super) fn fatal(state: &mut State<'_>, extra: &[(usize, Spot)]) -> Option<usize> {
    let problem = state.problem();
    if !concerns(problem) {
        return None;
    }
    let mut living: Vec<Vec<(usize, Spot)>> = vec![Vec::new(); problem.hosts.len()];
    let spots: Vec<(usize, Spot)> = state.spots().iter().copied().enumerate().collect();
    for &(guest, spot) in spots.iter().chain(extra) {
        let facts = &problem.guests[guest];
        if facts.memory_used > 0 && facts.reach != Reach::Local {
            living[spot.primary].push((guest, spot));
        }
    }
    let mut working = (0..problem.hosts.len()).filter(|&host| !problem.hosts[host].offline);
    working.find(|&host| !survives(state, host, &mut living[host]))
}

fn survives(state: &mut State<'_>, host: usize, living: &mut [(usize, Spot)]) -> bool {
    let problem = state.problem();
    // A replicated service fails over to its secondary.
    let failed_over: Vec<(usize, Spot, Spot)> = living
        .iter()
        .filter_map(|&(guest, spot)| {
            let turned = spot.turned().filter(|turned| !problem.hosts[turned.primary].offline)?;
            Some((guest, spot, turned))
        })
        .collect();
    for &(guest, spot, turned) in &failed_over {
        state.dismiss(guest, spot);
        state.force(guest, turned);
    }
    living.sort_by_key(|&(guest, spot)| (-problem.guests[guest].memory_used, guest, spot));
    let shared: Vec<usize> =
        living.iter().filter(|(_, spot)| spot.secondary.is_none()).map(|(guest, _)| *guest).collect();
    let found = packs(state, host, &shared, true) || packs(state, host, &shared, false);
    for &(guest, spot, turned) in &failed_over {
        state.dismiss(guest, turned);
        state.force(guest, spot);
    }
    found
}

/// Places all guests on other nodes, the largest first, each where it leaves the least (`tight`) or the most memory.
/// Removes them again before it returns. Returns `true` if all guests fit.
fn packs(state: &mut State<'_>, failed: usize, guests: &[usize], tight: bool) -> bool {
    let mut put: Vec<(usize, Spot)> = Vec::new();
    let mut fits = true;
    for &guest in guests {
        let mut hosts: Vec<usize> = (0..state.problem().hosts.len()).filter(|&host| host != failed).collect();
        hosts.sort_by_key(|&host| {
            let free = state.memory_free(host);
            if tight { free } else { -free }
        });
        let spot = hosts.into_iter().map(|primary| Spot { primary, secondary: None });
        let mut spots = spot.filter(|spot| state.admit(guest, *spot, Keep::Limits).is_ok());
        let found = spots.next();
        drop(spots);
        if let Some(spot) = found {
            put.push((guest, spot));
        } else {
            fits = false;
            break;
        }
    }
    for (guest, spot) in put {
        state.dismiss(guest, spot);
    }
    fits
}
