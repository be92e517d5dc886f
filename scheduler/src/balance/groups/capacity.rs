//! How many more services of a size fit: now, with N+1 kept, and in tiers of ever smaller sizes.

use super::elsewhere::{most, shortlists, spots};
use super::newcomer::{Newcomer, Refused};
use super::tiers::{self, Tier};
use super::{failover, partition};
use crate::balance::model::Cluster;
use crate::balance::problem::{Problem, Settings, Spot};
use crate::balance::state::{Keep, Lack, State};
use std::collections::BTreeMap;

/// More than so many are not counted.
pub const MOST: usize = 100_000;

/// What fits into a group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupCapacity {
    /// The group, by position.
    pub group: usize,
    /// Why it takes none, if so.
    pub refused: Option<Refused>,
    /// How many fit within the limits.
    pub now: Filled,
    /// How many fit while every node bears the failure of a peer, and every shared service finds another place if its node fails.
    pub kept: Filled,
    /// What keeps N+1 from being kept already without any more.
    pub broken: Option<Broken>,
    /// With N+1 kept: of the asked size as many as fit, then of smaller ones.
    pub tiers: Vec<Tier>,
}

/// Why N+1 does not hold now; nodes by their position in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// These cannot bear what a peer would send.
    Reserve(Vec<usize>),
    /// If this one failed, not all of its shared services would find a place.
    Failover(usize),
}

/// Services that were put one after another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filled {
    /// Where, by positions in the cluster.
    pub places: Vec<(usize, Option<usize>)>,
    /// What most places lack for one more.
    pub lack: Option<Lack>,
}

impl Filled {
    /// How many.
    pub fn count(&self) -> usize {
        self.places.len()
    }
}

/// What fits into each group, in the order of the cluster. `tiered` is the size with which tiers begin.
pub fn capacity(
    cluster: &Cluster,
    settings: &Settings,
    newcomer: &Newcomer,
    tiered: Option<&Newcomer>,
) -> Vec<GroupCapacity> {
    partition::populated(cluster)
        .map(|group| {
            if let Err(refused) = newcomer.permitted(cluster, group) {
                let none = Filled::default();
                return GroupCapacity {
                    group,
                    refused: Some(refused),
                    now: none.clone(),
                    kept: none,
                    broken: None,
                    tiers: Vec::new(),
                };
            }
            let problem = newcomer.problem(cluster, group, settings);
            let broken = broken(&problem);
            let fill = |keep| fill(cluster, settings, group, newcomer, keep, MOST);
            let now = fill(Keep::Limits);
            let kept = if broken.is_some() { Filled::default() } else { fill(Keep::NPlusOne) };
            let tiers = match tiered {
                Some(first) if broken.is_none() => tiers::tiers(cluster, settings, group, first),
                Some(_) | None => Vec::new(),
            };
            GroupCapacity { group, refused: None, now, kept, broken, tiers }
        })
        .collect()
}

fn broken(problem: &Problem) -> Option<Broken> {
    let mut state = State::new(problem, &problem.start);
    let failing: Vec<usize> = (0..problem.hosts.len())
        .filter(|&host| state.fails_n1(host))
        .map(|host| problem.hosts[host].node)
        .collect();
    if !failing.is_empty() {
        return Some(Broken::Reserve(failing));
    }
    failover::fatal(&mut state, &[]).map(|host| Broken::Failover(problem.hosts[host].node))
}

/// Puts a new service into a group as often as there is room, but not more often than this.
pub(super) fn fill(
    cluster: &Cluster,
    settings: &Settings,
    group: usize,
    newcomer: &Newcomer,
    keep: Keep,
    limit: usize,
) -> Filled {
    let problem = newcomer.problem(cluster, group, settings);
    let mut state = State::new(&problem, &problem.start);
    let (placed, lack) = fill_problem(&mut state, problem.guests.len() - 1, keep, limit.min(MOST));
    let node = |host: usize| problem.hosts[host].node;
    let place = |spot: &Spot| (node(spot.primary), spot.secondary.map(node));
    Filled { places: placed.iter().map(place).collect(), lack }
}

/// Where a guest was put, and what most places lack for one more.
fn fill_problem(state: &mut State<'_>, guest: usize, keep: Keep, limit: usize) -> (Vec<Spot>, Option<Lack>) {
    let mut placed = Vec::new();
    let mut lack = None;
    while placed.len() < limit {
        match best(state, guest, keep) {
            Ok(spot) => placed.push(spot),
            Err(none) => {
                lack = none;
                break;
            }
        }
    }
    if keep == Keep::Limits || failover::fatal(state, &extra(guest, &placed)).is_none() {
        return (placed, lack);
    }
    // The failure of a node would not be survived any more: as many as are, and from there one by one.
    let (mut survives, mut fails) = (0, placed.len());
    while fails - survives > 1 {
        let middle = usize::midpoint(survives, fails);
        placed[middle..].iter().for_each(|&spot| state.dismiss(guest, spot));
        if failover::fatal(state, &extra(guest, &placed[..middle])).is_none() {
            survives = middle;
        } else {
            fails = middle;
        }
        placed[middle..].iter().for_each(|&spot| state.force(guest, spot));
    }
    placed[survives..].iter().for_each(|&spot| state.dismiss(guest, spot));
    placed.truncate(survives);
    while placed.len() < limit
        && let Some(spot) = survivable(state, guest, &placed)
    {
        placed.push(spot);
    }
    (placed, Some(Lack::Reserve))
}

fn extra(guest: usize, placed: &[Spot]) -> Vec<(usize, Spot)> {
    placed.iter().map(|&spot| (guest, spot)).collect()
}

/// A place with which every failure is survived.
fn survivable(state: &mut State<'_>, guest: usize, placed: &[Spot]) -> Option<Spot> {
    let mut offers = offers(state, guest, &all(state), Keep::NPlusOne).ok()?;
    offers.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    let mut known = extra(guest, placed);
    for (_, spot) in offers {
        state.force(guest, spot);
        known.push((guest, spot));
        if failover::fatal(state, &known).is_none() {
            return Some(spot);
        }
        known.pop();
        state.dismiss(guest, spot);
    }
    None
}

fn all(state: &State<'_>) -> Vec<usize> {
    (0..state.problem().hosts.len()).collect()
}

/// Puts a guest where the score is lowest then.
fn best(state: &mut State<'_>, guest: usize, keep: Keep) -> Result<Spot, Option<Lack>> {
    let mut lack = None;
    for hosts in shortlists(state, all(state)) {
        match offers(state, guest, &hosts, keep) {
            Err(none) => lack = none,
            Ok(offers) => {
                let least = offers
                    .into_iter()
                    .min_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
                if let Some((_, spot)) = least {
                    state.force(guest, spot);
                    return Ok(spot);
                }
            }
        }
    }
    Err(lack)
}

/// The places for one more, each with its score; or what most lack.
fn offers(
    state: &mut State<'_>,
    guest: usize,
    hosts: &[usize],
    keep: Keep,
) -> Result<Vec<(f64, Spot)>, Option<Lack>> {
    let mut lacks: BTreeMap<Lack, usize> = BTreeMap::new();
    let mut found = Vec::new();
    for spot in spots(state.problem().guests[guest].reach, hosts) {
        match state.admit(guest, spot, keep) {
            Ok(()) => {
                found.push((state.score(), spot));
                state.dismiss(guest, spot);
            }
            Err(lack) => *lacks.entry(lack).or_default() += 1,
        }
    }
    if found.is_empty() { Err(most(&lacks)) } else { Ok(found) }
}
