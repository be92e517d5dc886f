//! Places for an instance among some nodes, the best first; and what is said when there is none.

use super::partition::{self, Barrier};
use super::route::route;
use super::span::Span;
use crate::balance::model::{Allocation, Reach};
use crate::balance::plan::Step;
use crate::balance::problem::Spot;
use crate::balance::state::{Lack, State};
use std::collections::BTreeMap;
use std::fmt;

/// What keeps an instance from a group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// It may not go there.
    Barrier(Barrier),
    /// The group is not healthy itself, or is to be emptied.
    Unhealthy,
    /// What most of its nodes lack.
    Lack(Lack),
    /// There is room, but no sequence of operations leads there within the limits.
    NoWay,
    /// It has fewer nodes than copies are needed.
    TooFewNodes,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Barrier(barrier) => write!(formatter, "{barrier}"),
            Obstacle::Unhealthy => formatter.write_str("the group is not healthy"),
            Obstacle::Lack(lack) => write!(formatter, "{lack}"),
            Obstacle::NoWay => formatter.write_str("no way there keeps the limits at every step"),
            Obstacle::TooFewNodes => formatter.write_str("too few nodes that work"),
        }
    }
}

/// An instance that finds no place, and why, group by group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoPlace {
    /// The instance, by its position in the problem.
    pub guest: usize,
    /// What keeps it from each group.
    pub obstacles: Vec<(usize, Obstacle)>,
}

impl NoPlace {
    /// `g1: too little memory; g2: the group is unallocable`.
    pub fn reasons(&self, span: &Span<'_>) -> String {
        let each = self
            .obstacles
            .iter()
            .map(|(group, obstacle)| format!("{}: {obstacle}", span.cluster.groups[*group].name));
        let all: Vec<String> = each.collect();
        if all.is_empty() { "there is no other group".to_owned() } else { all.join("; ") }
    }
}

/// Nodes that are looked at first where there are more; all are looked at when these have no room.
const SHORTLIST: usize = 40;

/// Every spot on these hosts.
pub(super) fn spots(reach: Reach, hosts: &[usize]) -> Vec<Spot> {
    match reach {
        Reach::Local | Reach::Shared => {
            hosts.iter().map(|&primary| Spot { primary, secondary: None }).collect()
        }
        Reach::Replicated => hosts
            .iter()
            .flat_map(|&primary| {
                let others = hosts.iter().filter(move |&&host| host != primary);
                others.map(move |&secondary| Spot { primary, secondary: Some(secondary) })
            })
            .collect(),
    }
}

/// These hosts, and before them, if they are many, those with the most memory to spare.
pub(super) fn shortlists(state: &State<'_>, hosts: Vec<usize>) -> Vec<Vec<usize>> {
    if hosts.len() <= SHORTLIST {
        return vec![hosts];
    }
    let mut roomy = hosts.clone();
    roomy.sort_by(|&one, &other| {
        state.spare_memory_share(other).total_cmp(&state.spare_memory_share(one)).then(one.cmp(&other))
    });
    roomy.truncate(SHORTLIST);
    roomy.sort_unstable();
    vec![roomy, hosts]
}

/// The spots on these hosts to which an instance can be brought as far as ends are concerned, the lowest score first; or what
/// most of them lack.
pub(super) fn ranked(
    state: &mut State<'_>,
    guest: usize,
    hosts: &[usize],
) -> Result<Vec<(f64, Spot)>, Obstacle> {
    let from = state.spot(guest);
    let mut found = Vec::new();
    let mut lacks: BTreeMap<Lack, usize> = BTreeMap::new();
    for to in spots(state.problem().guests[guest].reach, hosts) {
        if to == from {
            continue;
        }
        match state.try_change(&[(guest, to)]) {
            Ok(()) => {
                found.push((state.score(), to));
                state.restore(guest, from);
            }
            Err(lack) => *lacks.entry(lack).or_default() += 1,
        }
    }
    found.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    if found.is_empty() { Err(most(&lacks).map_or(Obstacle::TooFewNodes, Obstacle::Lack)) } else { Ok(found) }
}

/// The most frequent one.
pub(super) fn most(lacks: &BTreeMap<Lack, usize>) -> Option<Lack> {
    lacks.iter().max_by_key(|(lack, count)| (**count, std::cmp::Reverse(**lack))).map(|(lack, _)| *lack)
}

/// Brings an instance to the best place on these hosts that a way leads to.
pub(super) fn place(state: &mut State<'_>, guest: usize, hosts: Vec<usize>) -> Result<Vec<Step>, Obstacle> {
    let mut obstacle = Obstacle::TooFewNodes;
    for hosts in shortlists(state, hosts) {
        match ranked(state, guest, &hosts) {
            Err(lack) => obstacle = lack,
            Ok(found) => {
                obstacle = Obstacle::NoWay;
                for (_, to) in found {
                    if let Some(steps) = route(state, guest, to) {
                        return Ok(steps);
                    }
                }
            }
        }
    }
    Err(obstacle)
}

impl Span<'_> {
    /// The hosts of a group that something new may come to: online, and bearing the failure of a peer.
    pub(super) fn open_hosts(&self, state: &State<'_>, group: usize) -> Vec<usize> {
        let mut hosts = self.hosts(group);
        hosts.retain(|&host| !self.problem.hosts[host].offline && !state.fails_n1(host));
        hosts
    }

    /// Brings an instance to another group: preferred ones before those of last resort, never to one that takes nothing. Of a
    /// class the place with the lowest score. `open` are the groups that may be chosen.
    pub(super) fn elsewhere(
        &self,
        state: &mut State<'_>,
        guest: usize,
        open: &dyn Fn(usize) -> bool,
    ) -> Result<(usize, Vec<Step>), NoPlace> {
        let instance = self.problem.guests[guest].instance;
        let from = state.spot(guest);
        let home = self.group_of(from.primary);
        let mut obstacles = Vec::new();
        for class in [Allocation::Preferred, Allocation::LastResort, Allocation::Unallocable] {
            let mut best: Option<(f64, usize, Spot, Vec<Step>)> = None;
            for group in self.groups() {
                if group == home || self.allocation(group) != class {
                    continue;
                }
                let hosts = self.open_hosts(state, group);
                let entered = self.may_enter(instance, group, open);
                let found = entered.and_then(|()| place(state, guest, hosts));
                match found {
                    Err(obstacle) => obstacles.push((group, obstacle)),
                    Ok(steps) => {
                        let (score, to) = (state.score(), state.spot(guest));
                        state.restore(guest, from);
                        if best.as_ref().is_none_or(|(least, ..)| score < *least) {
                            best = Some((score, group, to, steps));
                        }
                    }
                }
            }
            if let Some((_, group, to, steps)) = best {
                state.restore(guest, to);
                return Ok((group, steps));
            }
        }
        Err(NoPlace { guest, obstacles })
    }

    fn may_enter(&self, instance: usize, group: usize, open: &dyn Fn(usize) -> bool) -> Result<(), Obstacle> {
        if !self.inter_group_moves {
            return Err(Obstacle::Barrier(Barrier::InterGroupMoves));
        }
        partition::admits(self.cluster, instance, group).map_err(Obstacle::Barrier)?;
        if open(group) { Ok(()) } else { Err(Obstacle::Unhealthy) }
    }
}
