//! All groups of a cluster as one problem, so that moves between groups obey the same limits as moves inside a group.

use super::partition;
use crate::balance::model::{Allocation, Cluster};
use crate::balance::plan::{Plan, Step};
use crate::balance::problem::{Problem, Settings, Spot};
use crate::balance::state::State;

/// All groups of a cluster as one problem.
#[derive(Clone, Debug)]
pub struct Span<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The nodes and instances of the cluster. The group of a host is the group of its node.
    pub problem: Problem,
    /// `true` if instances may move between groups.
    pub inter_group_moves: bool,
}

/// The reason why a group is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stays {
    /// No other group reaches the storage of the group's instances.
    Alone,
    /// Moves between groups are switched off.
    InterGroupMoves,
}

impl std::fmt::Display for Stays {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Stays::Alone => "no other group reaches the storage of its instances",
            Stays::InterGroupMoves => "moves between groups are disabled",
        })
    }
}

impl<'a> Span<'a> {
    /// Builds the problem of all groups of a cluster.
    pub fn new(cluster: &'a Cluster, settings: &Settings, inter_group_moves: bool) -> Span<'a> {
        let groups: Vec<usize> = (0..cluster.groups.len()).collect();
        Span { cluster, problem: Problem::of_groups(cluster, &groups, settings), inter_group_moves }
    }

    /// Returns the groups that have nodes.
    pub fn groups(&self) -> Vec<usize> {
        partition::populated(self.cluster).collect()
    }

    /// Returns the group of a host.
    pub fn group_of(&self, host: usize) -> usize {
        self.cluster.nodes[self.problem.hosts[host].node].group
    }

    /// Returns the hosts of a group.
    pub fn hosts(&self, group: usize) -> Vec<usize> {
        (0..self.problem.hosts.len()).filter(|&host| self.group_of(host) == group).collect()
    }

    /// Returns the name of a node.
    pub fn node(&self, host: usize) -> &str {
        self.problem.node_name(self.cluster, host)
    }

    /// Returns the name of an instance, followed after plus signs by the names of the instances that move with it.
    pub fn name(&self, guest: usize) -> String {
        self.problem.instance_name(self.cluster, guest)
    }

    /// Returns the allocation policy of a group, which ranks it as a target for instances.
    pub fn allocation(&self, group: usize) -> Allocation {
        self.cluster.groups[group].allocation
    }

    /// Returns the reason why no instance can leave a group; `None` if some can.
    pub fn stays(&self, group: usize) -> Option<Stays> {
        if !self.inter_group_moves {
            Some(Stays::InterGroupMoves)
        } else if partition::neighbours(self.cluster, group).is_empty() {
            Some(Stays::Alone)
        } else {
            None
        }
    }

    /// Returns the instances that use a node of a group, in their order.
    pub(super) fn living_in(&self, state: &State<'_>, group: usize) -> Vec<usize> {
        (0..self.problem.guests.len())
            .filter(|&guest| state.spot(guest).nodes().any(|host| self.group_of(host) == group))
            .collect()
    }

    /// Returns a plan of these steps from the start.
    pub fn plan(&self, steps: Vec<Step>) -> Plan {
        Plan { start: State::new(&self.problem, &self.problem.start).score(), steps }
    }
}

/// An instance with its route to other nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Moved {
    /// Index of the instance in the problem.
    pub guest: usize,
    /// Group that the instance leaves.
    pub source: usize,
    /// Group to which it moves; equal to `source` for a move inside the group.
    pub target: usize,
    /// Spot before the move.
    pub from: Spot,
    /// Spot after the move.
    pub to: Spot,
    /// The steps, one or two.
    pub steps: Vec<Step>,
}

impl Moved {
    /// Builds the record of a move from its first spot and its steps.
    pub(super) fn new(span: &Span<'_>, guest: usize, from: Spot, steps: Vec<Step>) -> Moved {
        let to = steps.last().map_or(from, |step| step.to);
        let (source, target) = (span.group_of(from.primary), span.group_of(to.primary));
        Moved { guest, source, target, from, to, steps }
    }

    /// Returns `true` if the instance moves to another group.
    pub fn between_groups(&self) -> bool {
        self.source != self.target
    }
}

/// Returns the steps of all moves, in order.
pub fn steps(moved: &[Moved]) -> Vec<Step> {
    moved.iter().flat_map(|moved| moved.steps.iter().copied()).collect()
}
