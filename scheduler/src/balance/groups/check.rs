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
    pub nodes: usize,
    /// Number of instances in the group.
    pub instances: usize,
    /// Health of the group.
    pub health: Health,
    /// Plan that balances the group; without steps if it cannot be improved. `None` if no goal was given.
    pub plan: Option<Plan>,
    /// `true` if the search for the plan ended at its time limit.
    pub is_time_cut: bool,
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

/// Computes the health of a group.
pub fn health(all_groups: &AllGroups<'_>, state: &State<'_>, group: usize) -> Health {
    let hosts = all_groups.hosts(group);
    let mut holds = vec![false; all_groups.problem.hosts.len()];
    for placement in state.placements() {
        for host in placement.nodes() {
            holds[host] = true;
        }
    }
    let node = |&host: &usize| all_groups.problem.hosts[host].node;
    let offline = |host: &&usize| all_groups.problem.hosts[**host].offline && holds[**host];
    let offline: Vec<usize> = hosts.iter().filter(offline).map(node).collect();
    let failing: Vec<usize> = hosts.iter().filter(|&&host| state.fails_n1(host)).map(node).collect();
    match (offline.is_empty(), failing.is_empty()) {
        (true, true) => Health::Healthy,
        (true, false) => Health::WeaklyUnhealthy { failing },
        (false, _) => Health::Unhealthy { offline, failing },
    }
}

/// Checks groups, and with a goal also computes plans that balance them. `time` returns the limit for each group by its
/// index in `groups`.
pub fn check<'t>(
    cluster: &Cluster,
    settings: &Settings,
    groups: &[usize],
    goal: Option<&Goal>,
    time: impl Fn(usize) -> TimeLimit<'t>,
) -> Vec<GroupCheck> {
    let all_groups = AllGroups::new(cluster, settings, true);
    let state = State::new(&all_groups.problem, &all_groups.problem.start);
    let each = groups.iter().enumerate().map(|(nth, &group)| {
        let problem = Problem::new(cluster, group, settings);
        let time = time(nth);
        let plan = goal.map(|goal| search(&problem, goal, &time));
        GroupCheck {
            group,
            nodes: problem.hosts.len(),
            instances: problem.guests.len(),
            health: health(&all_groups, &state, group),
            plan,
            is_time_cut: time.has_cut(),
        }
    });
    each.collect()
}
