//! All groups of a cluster as one problem, so that moves between groups obey the same limits as moves inside a group.

use super::partition;
use crate::balance::model::{Allocation, Cluster};
use crate::balance::plan::{Plan, Step};
use crate::balance::problem::{Placement, Problem, Settings};
use crate::balance::state::State;

/// The problem of a cluster with several groups.
#[derive(Clone, Debug)]
pub struct AllGroups<'a> {
    /// The cluster before any move.
    pub cluster: &'a Cluster,
    /// The nodes and instances of the cluster. A node of the problem belongs to the group of its node in the
    /// cluster.
    pub problem: Problem,
    /// `true` if instances may move between groups.
    pub inter_group_moves: bool,
}

/// The reason why a group is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExclusionReason {
    /// No other group reaches the storage of the group's instances.
    NoConnectedGroup,
    /// Moves between groups are switched off.
    InterGroupMoves,
}

impl std::fmt::Display for ExclusionReason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            ExclusionReason::NoConnectedGroup => "no other group reaches the storage of its instances",
            ExclusionReason::InterGroupMoves => "moves between groups are disabled",
        })
    }
}

impl<'a> AllGroups<'a> {
    /// Builds the problem of all groups of a cluster.
    pub fn new(cluster: &'a Cluster, settings: &Settings, inter_group_moves: bool) -> AllGroups<'a> {
        let groups: Vec<usize> = (0..cluster.groups.len()).collect();
        AllGroups { cluster, problem: Problem::of_groups(cluster, &groups, settings), inter_group_moves }
    }

    /// Returns the groups that have nodes.
    pub fn groups(&self) -> Vec<usize> {
        partition::populated_groups(self.cluster).collect()
    }

    /// Returns the group of a node of the problem.
    pub fn group_of(&self, node: usize) -> usize {
        self.cluster.nodes[self.problem.nodes[node].cluster_node].group
    }

    /// Returns the nodes of a group, by position in the problem.
    pub fn nodes_of(&self, group: usize) -> Vec<usize> {
        (0..self.problem.nodes.len()).filter(|&node| self.group_of(node) == group).collect()
    }

    /// Returns the name of a node, by position in the problem.
    pub fn node_name(&self, node: usize) -> &str {
        self.problem.node_name(self.cluster, node)
    }

    /// Returns the name of an instance, followed after plus signs by the names of the instances that move with it.
    pub fn service_name(&self, service: usize) -> String {
        self.problem.instance_name(self.cluster, service)
    }

    /// Returns the allocation policy of a group, which ranks it as a target for instances.
    pub fn allocation(&self, group: usize) -> Allocation {
        self.cluster.groups[group].allocation
    }

    /// Returns the reason why no instance can leave a group; `None` if some can.
    pub fn exclusion_reason(&self, group: usize) -> Option<ExclusionReason> {
        if !self.inter_group_moves {
            Some(ExclusionReason::InterGroupMoves)
        } else if partition::connected_groups(self.cluster, group).is_empty() {
            Some(ExclusionReason::NoConnectedGroup)
        } else {
            None
        }
    }

    /// Returns the instances that use a node of a group, in their order.
    pub(super) fn instances_using(&self, state: &State<'_>, group: usize) -> Vec<usize> {
        (0..self.problem.services.len())
            .filter(|&service| state.placement(service).nodes().any(|node| self.group_of(node) == group))
            .collect()
    }

    /// Returns a plan of these steps from the start.
    pub fn plan(&self, steps: Vec<Step>) -> Plan {
        Plan { start_score: State::new(&self.problem, &self.problem.start_placements).score(), steps }
    }
}

/// An instance with its route to other nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedMove {
    /// Index of the instance in the problem.
    pub service: usize,
    /// Group that the instance leaves.
    pub source: usize,
    /// Group to which the instance moves; equal to `source` for a move inside the group.
    pub target: usize,
    /// Placement before the move.
    pub from: Placement,
    /// Placement after the move.
    pub to: Placement,
    /// The steps, one or two.
    pub steps: Vec<Step>,
}

impl PlannedMove {
    /// Builds the record of a move from its first placement and its steps.
    pub(super) fn new(
        all_groups: &AllGroups<'_>,
        service: usize,
        from: Placement,
        steps: Vec<Step>,
    ) -> PlannedMove {
        let to = steps.last().map_or(from, |step| step.to);
        let (source, target) = (all_groups.group_of(from.primary), all_groups.group_of(to.primary));
        PlannedMove { service, source, target, from, to, steps }
    }

    /// Returns `true` if the instance moves to another group.
    pub fn is_between_groups(&self) -> bool {
        self.source != self.target
    }
}

/// Returns the steps of all moves, in order.
pub fn steps(moved: &[PlannedMove]) -> Vec<Step> {
    moved.iter().flat_map(|moved| moved.steps.iter().copied()).collect()
}
