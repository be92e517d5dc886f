//! The executable steps: the operations that move an instance from one placement to another, and the intermediate
//! placements.

use super::model::StorageReach;
use super::problem::{Placement, Problem};
use super::state::State;

/// A part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Migration or failover to the secondary.
    Failover,
    /// Copy of the disk to this node, which becomes the secondary.
    Replace(usize),
    /// Migration or failover to this node, which reaches the disk.
    MoveTo(usize),
}

/// The kind of a step: the operations on one instance, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// `f`: primary and secondary exchange roles.
    Failover,
    /// `r:X`: another secondary.
    ReplaceSecondary,
    /// `r:X f`: the new copy becomes the primary, and the old primary the secondary.
    ReplaceAndFailover,
    /// `f r:X`: the secondary becomes the primary, with a new secondary.
    FailoverAndReplace,
    /// `f r:X f`: another primary.
    ReplacePrimary,
    /// `fa:X`: another primary, on shared storage.
    MoveTo,
}

impl StepKind {
    /// Returns the kind of step from one placement to another; `None` if there is none or the settings prohibit it.
    pub fn between(problem: &Problem, service: usize, from: Placement, to: Placement) -> Option<StepKind> {
        let settings = &problem.settings;
        let kind = match (problem.services[service].reach, from.secondary, to.secondary) {
            (StorageReach::Replicated, Some(old), Some(new)) => {
                match (from.primary == to.primary, old == new) {
                    (true, false) => Some(StepKind::ReplaceSecondary),
                    (false, true) => Some(StepKind::ReplacePrimary),
                    (false, false) if Some(to) == from.swapped() => Some(StepKind::Failover),
                    (false, false) if to.primary == old => Some(StepKind::FailoverAndReplace),
                    (false, false) if new == from.primary => Some(StepKind::ReplaceAndFailover),
                    // Nothing changes, or both nodes change.
                    (true, true) | (false, false) => None,
                }
            }
            (StorageReach::Shared, None, None) if from.primary != to.primary => Some(StepKind::MoveTo),
            (StorageReach::Replicated | StorageReach::Shared | StorageReach::Local, _, _) => None,
        }?;
        let permitted = match kind {
            StepKind::Failover | StepKind::MoveTo => !settings.no_instance_moves,
            StepKind::ReplaceSecondary => !settings.no_disk_moves,
            StepKind::ReplaceAndFailover | StepKind::FailoverAndReplace => {
                !settings.no_disk_moves && !settings.no_instance_moves
            }
            StepKind::ReplacePrimary => {
                !settings.no_disk_moves && !settings.no_instance_moves && !settings.restricted_migration
            }
        };
        // The node that runs the instance makes the copy.
        let copies_first = matches!(kind, StepKind::ReplaceSecondary | StepKind::ReplaceAndFailover);
        let can_copy =
            !copies_first || !problem.nodes[from.primary].is_down || settings.copies_from_down_nodes;
        let problem_node = |node: usize| &problem.nodes[node];
        let migrates = |from: usize, to: usize| problem_node(from).migrates_to(problem_node(to));
        // As in hbal, an instance of a node that is off does not migrate: it is started again.
        let can_migrate = problem_node(from.primary).is_down
            || match kind {
                StepKind::ReplaceSecondary => true,
                StepKind::Failover
                | StepKind::FailoverAndReplace
                | StepKind::ReplaceAndFailover
                | StepKind::MoveTo => migrates(from.primary, to.primary),
                StepKind::ReplacePrimary => from.secondary.is_some_and(|secondary| {
                    migrates(from.primary, secondary) && migrates(secondary, to.primary)
                }),
            };
        let service = &problem.services[service];
        let can_copy = can_copy && (service.can_copy_disk || kind.copies() == 0);
        (permitted && can_copy && can_migrate && service.is_movable).then_some(kind)
    }

    /// Returns the operations of a step between these placements.
    pub fn operations(self, from: Placement, to: Placement) -> Vec<Operation> {
        let replace = |placement: Option<usize>| Operation::Replace(placement.unwrap_or(to.primary));
        match self {
            StepKind::Failover => vec![Operation::Failover],
            StepKind::ReplaceSecondary => vec![replace(to.secondary)],
            StepKind::ReplaceAndFailover => vec![replace(Some(to.primary)), Operation::Failover],
            StepKind::FailoverAndReplace => vec![Operation::Failover, replace(to.secondary)],
            StepKind::ReplacePrimary => {
                vec![Operation::Failover, replace(Some(to.primary)), Operation::Failover]
            }
            StepKind::MoveTo => {
                debug_assert_ne!(from.primary, to.primary);
                vec![Operation::MoveTo(to.primary)]
            }
        }
    }

    /// Returns the placements after each operation, including the final one.
    pub fn placements(self, from: Placement, to: Placement) -> Vec<Placement> {
        let swapped = |placement: Placement| placement.swapped().unwrap_or(placement);
        match self {
            StepKind::Failover | StepKind::ReplaceSecondary | StepKind::MoveTo => vec![to],
            StepKind::ReplaceAndFailover => vec![swapped(to), to],
            StepKind::FailoverAndReplace => vec![swapped(from), to],
            StepKind::ReplacePrimary => vec![swapped(from), swapped(to), to],
        }
    }

    /// Returns the number of copied disks.
    pub fn copies(self) -> usize {
        match self {
            StepKind::Failover | StepKind::MoveTo => 0,
            StepKind::ReplaceSecondary
            | StepKind::ReplaceAndFailover
            | StepKind::FailoverAndReplace
            | StepKind::ReplacePrimary => 1,
        }
    }

    /// Returns the number of times that the move changes the node on which the instance runs.
    pub fn migrations(self) -> usize {
        match self {
            StepKind::ReplaceSecondary => 0,
            StepKind::Failover
            | StepKind::MoveTo
            | StepKind::ReplaceAndFailover
            | StepKind::FailoverAndReplace => 1,
            StepKind::ReplacePrimary => 2,
        }
    }
}

/// Collects every placement that an instance can reach by one step through these nodes, in `found` and in the order of
/// hbal. Of equally good steps, the first one is made.
pub fn destinations(
    problem: &Problem,
    service: usize,
    from: Placement,
    via: &[usize],
    destinations: &mut Vec<Placement>,
) {
    destinations.clear();
    let mut add_if_possible = |to: Placement| {
        if StepKind::between(problem, service, from, to).is_some() {
            destinations.push(to);
        }
    };
    let new_nodes =
        via.iter().copied().filter(|&node| !from.contains(node) && !problem.nodes[node].is_offline);
    match from.secondary {
        None => new_nodes.for_each(|node| add_if_possible(Placement { primary: node, secondary: None })),
        Some(secondary) => {
            from.swapped().into_iter().for_each(&mut add_if_possible);
            for node in new_nodes {
                add_if_possible(Placement { primary: from.primary, secondary: Some(node) });
                add_if_possible(Placement { primary: node, secondary: Some(from.primary) });
                add_if_possible(Placement { primary: node, secondary: Some(secondary) });
                add_if_possible(Placement { primary: secondary, secondary: Some(node) });
            }
        }
    }
}

/// Returns the intermediate placements of two-step routes to a placement.
pub(super) fn intermediate_placements(
    problem: &Problem,
    service: usize,
    from: Placement,
    to: Placement,
) -> Vec<Placement> {
    if from.secondary.is_none() || to.secondary.is_none() {
        return Vec::new();
    }
    let is_step = |from, to| StepKind::between(problem, service, from, to).is_some();
    let mut destinations = Vec::new();
    for unchanged_node in from.nodes() {
        for new_node in to.nodes().filter(|&new_node| !from.contains(new_node)) {
            for (primary, secondary) in [(unchanged_node, new_node), (new_node, unchanged_node)] {
                let middle = Placement { primary, secondary: Some(secondary) };
                if is_step(from, middle) && is_step(middle, to) {
                    destinations.push(middle);
                }
            }
        }
    }
    destinations
}

/// Executes a step on a placement, each operation within the hard limits. Returns `None` and leaves the placement unchanged
/// if an operation exceeds a limit.
pub fn execute(state: &mut State<'_>, service: usize, to: Placement) -> Option<StepKind> {
    let from = state.placement(service);
    let kind = StepKind::between(state.problem(), service, from, to)?;
    for placement in kind.placements(from, to) {
        if !state.change_within(service, placement, from) {
            state.restore(service, from);
            return None;
        }
    }
    Some(kind)
}
