//! Placements for a new service: all groups and nodes, the best first, with the reasons that block the others.

use super::elsewhere::{most, spots};
use super::newcomer::{Newcomer, Refused};
use super::partition;
use crate::balance::model::{Allocation, Cluster};
use crate::balance::problem::{Settings, Spot};
use crate::balance::state::{Keep, Lack, State};
use std::collections::BTreeMap;

/// A group that could accept a new service.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupOffer {
    /// Position of the group in the cluster.
    pub group: usize,
    /// Allocation policy of the group.
    pub allocation: Allocation,
    /// Reason for which the group cannot accept the service at all; `None` if it can.
    pub refused: Option<Refused>,
    /// Nodes of the group as primaries: eligible ones by ascending score, then the others by name. Empty if `refused` is
    /// set.
    pub nodes: Vec<NodeOffer>,
}

impl GroupOffer {
    /// Returns the best nodes in the group.
    pub fn best(&self) -> Option<&Place> {
        self.nodes.first().and_then(|node| node.place.as_ref().ok())
    }
}

/// A node as the primary of a new service.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeOffer {
    /// Position of the node in the cluster.
    pub node: usize,
    /// The best secondary for this primary, or the reason why the node cannot be the primary.
    pub place: Result<Place, Shortage>,
}

/// The secondary for a new service with a given primary, with the resulting score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// Node of the second copy, by position in the cluster; `None` if there is only one copy.
    pub secondary: Option<usize>,
    /// Score of the group with the service.
    pub score: f64,
}

/// The reason why a node cannot be the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// The node itself has too little capacity, or a limit of it would be exceeded.
    Lack(Lack),
    /// No other node fits the second copy. Contains the most frequent shortage, or `None` if there is no other node.
    Secondary(Option<Lack>),
}

impl std::fmt::Display for Shortage {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Shortage::Lack(lack) => write!(formatter, "{lack}"),
            Shortage::Secondary(None) => formatter.write_str("no other node for the second copy"),
            Shortage::Secondary(Some(lack)) => write!(formatter, "no node for the second copy: {lack}"),
        }
    }
}

/// Ranks all groups for a new service: groups with policy Preferred before LastResort, then by ascending score. Groups
/// without an eligible node are last.
pub fn allocate(cluster: &Cluster, settings: &Settings, newcomer: &Newcomer) -> Vec<GroupOffer> {
    let mut offers: Vec<GroupOffer> =
        partition::populated(cluster).map(|group| offer(cluster, settings, newcomer, group)).collect();
    let class = |allocation: Allocation| match allocation {
        Allocation::Preferred => 0,
        Allocation::LastResort => 1,
        Allocation::Unallocable => 2,
    };
    offers.sort_by(|one, other| {
        let key = |offer: &GroupOffer| (offer.best().is_none(), class(offer.allocation));
        let score = |offer: &GroupOffer| offer.best().map_or(0.0, |place| place.score);
        key(one)
            .cmp(&key(other))
            .then(score(one).total_cmp(&score(other)))
            .then(cluster.groups[one.group].name.cmp(&cluster.groups[other.group].name))
    });
    offers
}

fn offer(cluster: &Cluster, settings: &Settings, newcomer: &Newcomer, group: usize) -> GroupOffer {
    let refused = newcomer.permitted(cluster, group).err();
    let nodes = if refused.is_some() { Vec::new() } else { nodes(cluster, settings, newcomer, group) };
    GroupOffer { group, allocation: cluster.groups[group].allocation, refused, nodes }
}

fn nodes(cluster: &Cluster, settings: &Settings, newcomer: &Newcomer, group: usize) -> Vec<NodeOffer> {
    let problem = newcomer.problem(cluster, group, settings);
    let guest = problem.guests.len() - 1;
    let mut state = State::new(&problem, &problem.start);
    let keep = if settings.ignore_soft_errors { Keep::Limits } else { Keep::NPlusOne };
    let hosts: Vec<usize> = (0..problem.hosts.len()).collect();
    let mut best: Vec<Option<Place>> = vec![None; hosts.len()];
    let mut lacks: Vec<BTreeMap<Lack, usize>> = vec![BTreeMap::new(); hosts.len()];
    for spot in spots(problem.guests[guest].reach, &hosts) {
        match state.admit(guest, spot, keep) {
            Ok(()) => {
                let score = state.score();
                state.dismiss(guest, spot);
                let best = &mut best[spot.primary];
                if best.is_none_or(|best| score < best.score) {
                    let secondary = spot.secondary.map(|host| problem.hosts[host].node);
                    *best = Some(Place { secondary, score });
                }
            }
            Err(lack) => *lacks[spot.primary].entry(lack).or_default() += 1,
        }
    }
    let mut nodes: Vec<NodeOffer> = hosts
        .iter()
        .map(|&host| {
            let place = best[host].ok_or_else(|| {
                let alone = Spot { primary: host, secondary: None };
                if let Err(lack) = state.admit(guest, alone, keep) {
                    return Shortage::Lack(lack);
                }
                state.dismiss(guest, alone);
                Shortage::Secondary(most(&lacks[host]))
            });
            NodeOffer { node: problem.hosts[host].node, place }
        })
        .collect();
    nodes.sort_by(|one, other| {
        let score = |node: &NodeOffer| node.place.map_or(f64::INFINITY, |place| place.score);
        let name = |node: &NodeOffer| &cluster.nodes[node.node].name;
        score(one).total_cmp(&score(other)).then(name(one).cmp(name(other)))
    });
    nodes
}
