//! The number of further services of one size that fit: now, with N+1 kept, and in tiers of decreasing sizes.

use super::elsewhere::{most, shortlists, spots};
use super::newcomer::{Newcomer, Refused};
use super::tiers::{self, Tier};
use super::{failover, partition};
use crate::balance::model::Cluster;
use crate::balance::problem::{Problem, Settings, Spot};
use crate::balance::state::{Keep, Lack, State};
use std::collections::BTreeMap;

/// Maximum number of services that are counted.
pub const MOST: usize = 100_000;

/// The capacity of one group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupCapacity {
    /// Position of the group in the cluster.
    pub group: usize,
    /// Reason for which the group cannot accept the service; `None` if it can.
    pub refused: Option<Refused>,
    /// Services that fit within the limits.
    pub now: Filled,
    /// Services that fit while N+1 is kept. Every node must survive the failure of a peer, and shared services of any
    /// failed node must fit on other nodes.
    pub kept: Filled,
    /// Reason for which N+1 does not hold even without further services; `None` if it holds.
    pub broken: Option<Broken>,
    /// With N+1 kept: services of the requested size as long as they fit, then of smaller sizes.
    pub tiers: Vec<Tier>,
}

/// The reason why N+1 does not hold now, with nodes by position in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// These nodes have too little memory for the instances that would fail over to them from another node.
    Reserve(Vec<usize>),
    /// If this node failed, not all of its shared services would fit on other nodes.
    Failover(usize),
}

/// Services that were placed one at a time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filled {
    /// Primary and secondary of each service, by position in the cluster.
    pub places: Vec<(usize, Option<usize>)>,
    /// The most frequent reason that blocks a node for one more service.
    pub lack: Option<Lack>,
}

impl Filled {
    /// Returns the number of placed services.
    pub fn count(&self) -> usize {
        self.places.len()
    }
}

/// Computes the capacity of each group, in the order of the cluster. `tiered` is the size of the first tier; `None`
/// computes no tiers.
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

/// Places a new service in a group repeatedly while it fits, at most `limit` times.
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

/// Returns the spots of all placed guests, and the most frequent shortage for one more.
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
    // Some failure of a node would no longer be survived. A binary search finds how many guests to keep, and further ones
    // are added one at a time.
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

/// Adds a guest on a spot with which the cluster survives every failure.
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

/// Adds a guest on the spot with the lowest resulting score.
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

/// Returns the spots for one more guest with their scores, or the most frequent shortage.
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
