//! The check whether every node could be evacuated after its failure, by the rules of Ganeti's hcheck, hspace and hail.
//!
//! Replicated instances fail over to their secondary. Then instances on shared storage move inside the group, the last
//! one first and each to the node with the lowest resulting score. Finally, new instances replace those on local
//! storage, the largest first, if the policy allows their size. As in Ganeti, the soft limits do not count. Offline
//! nodes are checked too, and are possible targets.

use super::allocation::{Request, policy_refusal};
use crate::balance::model::{Cluster, StorageReach};
use crate::balance::problem::{Placement, Problem};
use crate::balance::state::State;
use crate::balance::state::checked::Checks;
use std::collections::BTreeMap;

/// Sizes of the disks of instances, by position in the cluster. An instance that is missing here has one disk.
pub type DiskSizes = BTreeMap<usize, Vec<i64>>;

/// The instances of a group with their placements, which the state contains.
pub(super) struct Running {
    placements: Vec<(usize, Placement, StorageReach)>,
    /// Instances of the cluster on local storage that the policy of the group does not allow, by position in the problem.
    forbidden: Vec<bool>,
}

impl Running {
    pub(super) fn new(cluster: &Cluster, problem: &Problem, sizes: &DiskSizes) -> Running {
        let is_forbidden = |(service, placement): (usize, &Placement)| {
            let request = Request::of_existing(cluster, problem.services[service].instance, sizes);
            let node = &cluster.nodes[problem.nodes[placement.primary].cluster_node];
            request.instance.template.reach() == StorageReach::Local
                && policy_refusal(cluster, node.group, &request, node.exclusive_storage).is_some()
        };
        let placements = problem.start_placements.iter().zip(&problem.services).enumerate();
        Running {
            placements: placements
                .map(|(index, (placement, service))| (index, *placement, service.reach))
                .collect(),
            forbidden: problem.start_placements.iter().enumerate().map(is_forbidden).collect(),
        }
    }

    pub(super) fn push(&mut self, service: usize, placement: Placement, reach: StorageReach) {
        self.placements.push((service, placement, reach));
    }

    pub(super) fn pop(&mut self) -> Option<(usize, Placement)> {
        self.placements.pop().map(|(service, placement, _)| (service, placement))
    }

    fn is_forbidden(&self, service: usize) -> bool {
        self.forbidden.get(service).copied().unwrap_or(false)
    }
}

/// Returns the nodes of a group that could not be evacuated, in their order.
pub fn fatal_nodes(cluster: &Cluster, problem: &Problem) -> Vec<usize> {
    let mut state = State::new(problem, &problem.start_placements);
    let running = Running::new(cluster, problem, &DiskSizes::new());
    (0..problem.nodes.len()).filter(|&node| !try_evacuation(&mut state, node, &running)).collect()
}

/// Tries to move all instances of a node to other nodes, moves them back, and returns `true` if all could move.
pub(super) fn try_evacuation(state: &mut State<'_>, node: usize, running: &Running) -> bool {
    let mut moved = Vec::new();
    let is_possible = evacuate(state, node, running, &mut moved).is_some();
    for (service, from, to) in moved.into_iter().rev() {
        if let Some(to) = to {
            state.remove_added(service, to);
        }
        if let Some(from) = from {
            state.add_unchecked(service, from);
        }
    }
    is_possible
}

/// A changed instance: the instance, its placement before, and its placement now.
type Changed = (usize, Option<Placement>, Option<Placement>);

fn evacuate(state: &mut State<'_>, node: usize, running: &Running, changed: &mut Vec<Changed>) -> Option<()> {
    let problem = state.problem();
    let on_node = |reach: StorageReach| {
        let is_here = move |(_, placement, each): &&(usize, Placement, StorageReach)| {
            placement.primary == node && *each == reach
        };
        running.placements.iter().rev().filter(is_here).map(|(service, placement, _)| (*service, *placement))
    };
    for (service, from) in on_node(StorageReach::Replicated) {
        let to = from.swapped()?;
        if !can_run_after(problem, node, to.primary) {
            return None;
        }
        state.remove_added(service, from);
        changed.push((service, Some(from), None));
        let checks = Checks {
            forces_primary: true,
            forces_secondary: true,
            ignores_secondary_disk: problem.nodes[node].is_down,
            ..Checks::default()
        };
        state.add_checked(service, to, checks).ok()?;
        changed.push((service, None, Some(to)));
    }
    for (service, from) in on_node(StorageReach::Shared) {
        state.remove_added(service, from);
        changed.push((service, Some(from), None));
        let to = best_other_node(state, service, node, true)?;
        state.add_unchecked(service, to);
        changed.push((service, None, Some(to)));
    }
    let mut local: Vec<(usize, Placement)> = on_node(StorageReach::Local).collect();
    local.sort_by_key(|(service, _)| std::cmp::Reverse(problem.services[*service].memory_forthcoming));
    for (service, _) in local {
        if running.is_forbidden(service) {
            return None;
        }
        let to = best_other_node(state, service, node, false)?;
        state.add_unchecked(service, to);
        changed.push((service, None, Some(to)));
    }
    Some(())
}

/// Returns `true` if instances of a node may run on another one by the migration tags of both.
fn can_run_after(problem: &Problem, from: usize, to: usize) -> bool {
    problem.nodes[from].migrates_to(&problem.nodes[to])
}

/// Returns the node with the lowest resulting score that accepts an instance. Of equal scores, the last one counts.
fn best_other_node(
    state: &mut State<'_>,
    service: usize,
    failed: usize,
    migrates: bool,
) -> Option<Placement> {
    let mut best: Option<(f64, Placement)> = None;
    let problem = state.problem();
    let others = (0..problem.nodes.len()).filter(|&node| node != failed);
    for primary in others.filter(|&node| !migrates || can_run_after(problem, failed, node)) {
        let to = Placement { primary, secondary: None };
        let checks = Checks { forces_primary: true, ..Checks::default() };
        if state.add_checked(service, to, checks).is_ok() {
            let score = state.score();
            state.remove_added(service, to);
            if best.is_none_or(|(best_score, _)| score <= best_score) {
                best = Some((score, to));
            }
        }
    }
    best.map(|(_, to)| to)
}
