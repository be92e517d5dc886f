//! All groups of a cluster as one problem, so that a move from group to group obeys the same limits as one inside.

use super::partition;
use crate::balance::model::{Allocation, Cluster};
use crate::balance::plan::{Plan, Step};
use crate::balance::problem::{Problem, Settings, Spot};
use crate::balance::state::State;

/// All groups as one problem.
#[derive(Clone, Debug)]
pub struct Span<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// Its nodes and instances; a host's group is that of its node.
    pub problem: Problem,
    /// Whether anything may change groups.
    pub inter_group_moves: bool,
}

/// Why a group takes no part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stays {
    /// No other group reaches the storage of what lives here.
    Alone,
    /// Moves between groups are switched off.
    InterGroupMoves,
}

impl std::fmt::Display for Stays {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Stays::Alone => "alone in its partition",
            Stays::InterGroupMoves => "moves between groups are switched off",
        })
    }
}

impl<'a> Span<'a> {
    /// All groups of a cluster.
    pub fn new(cluster: &'a Cluster, settings: &Settings, inter_group_moves: bool) -> Span<'a> {
        let groups: Vec<usize> = (0..cluster.groups.len()).collect();
        Span { cluster, problem: Problem::of_groups(cluster, &groups, settings), inter_group_moves }
    }

    /// Groups that have nodes.
    pub fn groups(&self) -> Vec<usize> {
        partition::populated(self.cluster).collect()
    }

    /// The group of a host.
    pub fn group_of(&self, host: usize) -> usize {
        self.cluster.nodes[self.problem.hosts[host].node].group
    }

    /// The hosts of a group.
    pub fn hosts(&self, group: usize) -> Vec<usize> {
        (0..self.problem.hosts.len()).filter(|&host| self.group_of(host) == group).collect()
    }

    /// The name of a node.
    pub fn node(&self, host: usize) -> &str {
        self.problem.node_name(self.cluster, host)
    }

    /// The name of an instance, and after plus signs those that move as one with it.
    pub fn name(&self, guest: usize) -> String {
        self.problem.instance_name(self.cluster, guest)
    }

    /// Whether a new instance or one from elsewhere may come to a group before one of a lesser class.
    pub fn allocation(&self, group: usize) -> Allocation {
        self.cluster.groups[group].allocation
    }

    /// Why nothing can leave a group, if so.
    pub fn stays(&self, group: usize) -> Option<Stays> {
        if !self.inter_group_moves {
            Some(Stays::InterGroupMoves)
        } else if partition::neighbours(self.cluster, group).is_empty() {
            Some(Stays::Alone)
        } else {
            None
        }
    }

    /// The instances that use a node of a group, in their order.
    pub(super) fn living_in(&self, state: &State<'_>, group: usize) -> Vec<usize> {
        (0..self.problem.guests.len())
            .filter(|&guest| state.spot(guest).nodes().any(|host| self.group_of(host) == group))
            .collect()
    }

    /// A plan of these steps from the start.
    pub fn plan(&self, steps: Vec<Step>) -> Plan {
        Plan { start: State::new(&self.problem, &self.problem.start).score(), steps }
    }
}

/// An instance with its way to another place.
#[derive(Clone, Debug, PartialEq)]
pub struct Moved {
    /// The instance, by its position in the problem.
    pub guest: usize,
    /// The group that it leaves.
    pub source: usize,
    /// The group to which it goes; the same when it stays inside.
    pub target: usize,
    /// Where it was.
    pub from: Spot,
    /// Where it is at the end.
    pub to: Spot,
    /// The steps, one or two.
    pub steps: Vec<Step>,
}

impl Moved {
    /// What changed a placement into its present one.
    pub(super) fn new(span: &Span<'_>, guest: usize, from: Spot, steps: Vec<Step>) -> Moved {
        let to = steps.last().map_or(from, |step| step.to);
        let (source, target) = (span.group_of(from.primary), span.group_of(to.primary));
        Moved { guest, source, target, from, to, steps }
    }

    /// It changes groups.
    pub fn between_groups(&self) -> bool {
        self.source != self.target
    }
}

/// The steps of all, in their order.
pub fn steps(moved: &[Moved]) -> Vec<Step> {
    moved.iter().flat_map(|moved| moved.steps.iter().copied()).collect()
}
