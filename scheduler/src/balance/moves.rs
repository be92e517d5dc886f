//! The executable steps: the operations that move an instance from one spot to another, and the intermediate
//! spots.

use super::model::Reach;
use super::problem::{Problem, Spot};
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
pub enum Kind {
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

impl Kind {
    /// Returns the kind of step from one spot to another; `None` if there is none or the settings prohibit it.
    pub fn between(problem: &Problem, guest: usize, from: Spot, to: Spot) -> Option<Kind> {
        let settings = &problem.settings;
        let kind = match (problem.guests[guest].reach, from.secondary, to.secondary) {
            (Reach::Replicated, Some(old), Some(new)) => match (from.primary == to.primary, old == new) {
                (true, false) => Some(Kind::ReplaceSecondary),
                (false, true) => Some(Kind::ReplacePrimary),
                (false, false) if Some(to) == from.turned() => Some(Kind::Failover),
                (false, false) if to.primary == old => Some(Kind::FailoverAndReplace),
                (false, false) if new == from.primary => Some(Kind::ReplaceAndFailover),
                // Nothing changes, or both nodes change.
                (true, true) | (false, false) => None,
            },
            (Reach::Shared, None, None) if from.primary != to.primary => Some(Kind::MoveTo),
            (Reach::Replicated | Reach::Shared | Reach::Local, _, _) => None,
        }?;
        let permitted = match kind {
            Kind::Failover | Kind::MoveTo => !settings.no_instance_moves,
            Kind::ReplaceSecondary => !settings.no_disk_moves,
            Kind::ReplaceAndFailover | Kind::FailoverAndReplace => {
                !settings.no_disk_moves && !settings.no_instance_moves
            }
            Kind::ReplacePrimary => {
                !settings.no_disk_moves && !settings.no_instance_moves && !settings.restricted_migration
            }
        };
        // The node that runs the instance makes the copy.
        let copies_first = matches!(kind, Kind::ReplaceSecondary | Kind::ReplaceAndFailover);
        let can_copy = !copies_first || !problem.hosts[from.primary].down || settings.copies_from_down_nodes;
        let host = |node: usize| &problem.hosts[node];
        let migrates = |from: usize, to: usize| host(from).migrates_to(host(to));
        // As in hbal, an instance of a node that is off does not migrate: it is started again.
        let can_migrate = host(from.primary).down
            || match kind {
                Kind::ReplaceSecondary => true,
                Kind::Failover | Kind::FailoverAndReplace | Kind::ReplaceAndFailover | Kind::MoveTo => {
                    migrates(from.primary, to.primary)
                }
                Kind::ReplacePrimary => from.secondary.is_some_and(|secondary| {
                    migrates(from.primary, secondary) && migrates(secondary, to.primary)
                }),
            };
        let guest = &problem.guests[guest];
        let can_copy = can_copy && (guest.copies || kind.copies() == 0);
        (permitted && can_copy && can_migrate && guest.movable).then_some(kind)
    }

    /// Returns the operations of a step between these spots.
    pub fn operations(self, from: Spot, to: Spot) -> Vec<Operation> {
        let newcomer = |spot: Option<usize>| Operation::Replace(spot.unwrap_or(to.primary));
        match self {
            Kind::Failover => vec![Operation::Failover],
            Kind::ReplaceSecondary => vec![newcomer(to.secondary)],
            Kind::ReplaceAndFailover => vec![newcomer(Some(to.primary)), Operation::Failover],
            Kind::FailoverAndReplace => vec![Operation::Failover, newcomer(to.secondary)],
            Kind::ReplacePrimary => {
                vec![Operation::Failover, newcomer(Some(to.primary)), Operation::Failover]
            }
            Kind::MoveTo => {
                debug_assert_ne!(from.primary, to.primary);
                vec![Operation::MoveTo(to.primary)]
            }
        }
    }

    /// Returns the spots after each operation, including the final one.
    pub fn spots(self, from: Spot, to: Spot) -> Vec<Spot> {
        let turned = |spot: Spot| spot.turned().unwrap_or(spot);
        match self {
            Kind::Failover | Kind::ReplaceSecondary | Kind::MoveTo => vec![to],
            Kind::ReplaceAndFailover => vec![turned(to), to],
            Kind::FailoverAndReplace => vec![turned(from), to],
            Kind::ReplacePrimary => vec![turned(from), turned(to), to],
        }
    }

    /// Returns the number of copied disks.
    pub fn copies(self) -> usize {
        match self {
            Kind::Failover | Kind::MoveTo => 0,
            Kind::ReplaceSecondary
            | Kind::ReplaceAndFailover
            | Kind::FailoverAndReplace
            | Kind::ReplacePrimary => 1,
        }
    }

    /// Returns the number of migrations.
    pub fn migrations(self) -> usize {
        match self {
            Kind::ReplaceSecondary => 0,
            Kind::Failover | Kind::MoveTo | Kind::ReplaceAndFailover | Kind::FailoverAndReplace => 1,
            Kind::ReplacePrimary => 2,
        }
    }
}

/// Collects every spot that an instance can reach by one step through these nodes, in `found` and in the order of
/// hbal. Of equally good steps, the first one is made.
pub fn destinations(problem: &Problem, guest: usize, from: Spot, via: &[usize], found: &mut Vec<Spot>) {
    found.clear();
    let mut offer = |to: Spot| {
        if Kind::between(problem, guest, from, to).is_some() {
            found.push(to);
        }
    };
    let fresh = via.iter().copied().filter(|&node| !from.contains(node) && !problem.hosts[node].offline);
    match from.secondary {
        None => fresh.for_each(|node| offer(Spot { primary: node, secondary: None })),
        Some(secondary) => {
            from.turned().into_iter().for_each(&mut offer);
            for node in fresh {
                offer(Spot { primary: from.primary, secondary: Some(node) });
                offer(Spot { primary: node, secondary: Some(from.primary) });
                offer(Spot { primary: node, secondary: Some(secondary) });
                offer(Spot { primary: secondary, secondary: Some(node) });
            }
        }
    }
}

/// Returns the intermediate spots of two-step routes to a spot.
pub(super) fn ways(problem: &Problem, guest: usize, from: Spot, to: Spot) -> Vec<Spot> {
    if from.secondary.is_none() || to.secondary.is_none() {
        return Vec::new();
    }
    let leads = |from, to| Kind::between(problem, guest, from, to).is_some();
    let mut ways = Vec::new();
    for kept in from.nodes() {
        for fresh in to.nodes().filter(|&fresh| !from.contains(fresh)) {
            for (primary, secondary) in [(kept, fresh), (fresh, kept)] {
                let way = Spot { primary, secondary: Some(secondary) };
                if leads(from, way) && leads(way, to) {
                    ways.push(way);
                }
            }
        }
    }
    ways
}

/// Executes a step on a placement, each operation within the hard limits. Returns `None` and leaves the placement unchanged
/// if an operation exceeds a limit.
pub fn execute(state: &mut State<'_>, guest: usize, to: Spot) -> Option<Kind> {
    let from = state.spot(guest);
    let kind = Kind::between(state.problem(), guest, from, to)?;
    for spot in kind.spots(from, to) {
        if !state.change_within(guest, spot, from) {
            state.restore(guest, from);
            return None;
        }
    }
    Some(kind)
}
