//! The state of groups: which are healthy, and which would gain from balancing.

use super::all_groups::AllGroups;
use crate::balance::model::Cluster;
use crate::balance::plan::Plan;
use crate::balance::problem::{Problem, Settings};
use crate::balance::search::{Goal, search};
use crate::balance::state::State;
use crate::balance::time_limit::TimeLimit;

/// Health of a group, with nodes by position in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// No offline node holds instances, and each node survives the failure of a peer.
    Healthy,
    /// Some nodes fail N+1.
    WeaklyUnhealthy {
        /// Nodes that fail N+1.
        failing: Vec<usize>,
    },
    /// Some offline nodes still hold instances.
    Unhealthy {
        /// Offline nodes with instances.
        offline: Vec<usize>,
        /// Nodes that fail N+1.
        failing: Vec<usize>,
    },
}

impl Health {
    /// Returns `true` if the group needs no repair.
    pub fn is_healthy(&self) -> bool {
        *self == Health::Healthy
    }
}

/// The result of the check of one group.
#[derive(Clone, Debug)]
pub struct GroupCheck {
    /// Position of the group in the cluster.
    pub group: usize,
    /// Number of nodes in the group.
    pub node_count: usize,
    /// Number of instances in the group.
    pub instance_count: usize,
    /// Result of the health check, with the nodes that make the group unhealthy.
    pub health: Health,
    /// Plan that balances the group; without steps if it cannot be improved. `None` if no goal was given.
    pub plan: Option<Plan>,
    /// `true` if the search for the plan ended at its time limit.
    pub has_reached_time_limit: bool,
}

impl GroupCheck {
    /// Returns `true` if balancing would improve the group.
    pub fn needs_balancing(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| !plan.steps.is_empty())
    }

    /// Returns `true` if the group needs repair or balancing.
    pub fn needs_work(&self) -> bool {
        !self.health.is_healthy() || self.needs_balancing()
    }
}

/// Computes the health of a group for the placements in `state`.
pub fn health(all_groups: &AllGroups<'_>, state: &State<'_>, group: usize) -> Health {
    let nodes = all_groups.nodes_of(group);
    let mut has_instances = vec![false; all_groups.problem.nodes.len()];
    for placement in state.placements() {
        for node in placement.nodes() {
            has_instances[node] = true;
        }
    }
    let cluster_node = |&node: &usize| all_groups.problem.nodes[node].cluster_node;
    let is_offline_with_instances =
        |node: &&usize| all_groups.problem.nodes[**node].is_offline && has_instances[**node];
    let offline: Vec<usize> = nodes.iter().filter(is_offline_with_instances).map(cluster_node).collect();
    let failing: Vec<usize> = nodes.iter().filter(|&&node| state.fails_n1(node)).map(cluster_node).collect();
    match (offline.is_empty(), failing.is_empty()) {
        (true, true) => Health::Healthy,
        (true, false) => Health::WeaklyUnhealthy { failing },
        (false, _) => Health::Unhealthy { offline, failing },
    }
}

/// Checks groups, and with a goal also computes plans that balance them. `time_limit_of` returns the limit for each group
/// by its index in `groups`.
pub fn check<'t>(
    cluster: &Cluster,
    settings: &Settings,
    groups: &[usize],
    goal: Option<&Goal>,
    time_limit_of: impl Fn(usize) -> TimeLimit<'t>,
) -> Vec<GroupCheck> {
    let all_groups = AllGroups::new(cluster, settings, true);
    let state = State::new(&all_groups.problem, &all_groups.problem.start_placements);
    let each = groups.iter().enumerate().map(|(index, &group)| {
        let problem = Problem::new(cluster, group, settings);
        let time = time_limit_of(index);
        let plan = goal.map(|goal| search(&problem, goal, &time));
        GroupCheck {
            group,
            node_count: problem.nodes.len(),
            instance_count: problem.services.len(),
            health: health(&all_groups, &state, group),
            plan,
            has_reached_time_limit: time.has_reached_limit(),
        }
    });
    each.collect()
}
