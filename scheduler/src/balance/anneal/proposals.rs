//! Proposals of changes: of one instance, of two, or of chains that keep the number of instances on each node.

use super::super::moves::StepKind;
use super::super::problem::{Placement, Problem};
use super::super::random::Random;
use super::super::state::State;

pub(super) const KIND_COUNT: usize = 13;

/// Maximum number of instances in a cycle of role changes.
const MAX_CYCLE_LENGTH: usize = 5;

/// Changes that are tried together: instance and new placement.
pub(super) type Changes = Vec<(usize, Placement)>;

/// Indexes of the placement, to find partners for a change.
pub(super) struct Proposals<'a> {
    problem: &'a Problem,
    movable: Vec<usize>,
    /// Instances that are not on their initial placements, all in one list.
    moved: InstanceLists,
    /// Instances by their primary node.
    primaries: InstanceLists,
    secondaries: InstanceLists,
}

impl<'a> Proposals<'a> {
    pub(super) fn new(state: &State<'a>) -> Proposals<'a> {
        let problem = state.problem();
        let (nodes, services) = (problem.nodes.len(), problem.services.len());
        let mut proposals = Proposals {
            problem,
            movable: (0..services).filter(|&service| problem.services[service].is_movable).collect(),
            moved: InstanceLists::new(1, services),
            primaries: InstanceLists::new(nodes, services),
            secondaries: InstanceLists::new(nodes, services),
        };
        for service in proposals.movable.clone() {
            proposals.record_placement(service, state.placement(service));
        }
        proposals
    }

    /// Returns `true` if no change is possible.
    pub(super) fn is_empty(&self) -> bool {
        self.movable.is_empty() || self.problem.nodes.len() < 2
    }

    /// Updates the indexes for the new placement of an instance.
    pub(super) fn record_placement(&mut self, service: usize, placement: Placement) {
        self.moved.move_to_list(service, (placement != self.problem.start_placements[service]).then_some(0));
        self.primaries.move_to_list(service, Some(placement.primary));
        self.secondaries.move_to_list(service, placement.secondary);
    }

    /// Proposes a change of this kind, in `changes`. The change may be impossible or have no effect. Returns `false` if no
    /// change was found.
    pub(super) fn propose(
        &self,
        kind: usize,
        state: &State<'_>,
        random: &mut Random,
        changes: &mut Changes,
    ) -> bool {
        changes.clear();
        match kind {
            // One instance moves to any reachable placement.
            0 => self.propose_move(self.draw_movable(random), random, changes),
            1 => self.propose_move(self.draw_moved(random), random, changes),
            // An instance returns to its start, alone or while another one moves.
            2 => self.propose_return(self.draw_moved(random), random, changes),
            3 => {
                let (service, other) = (self.draw_moved(random), self.draw_movable(random));
                service != other
                    && self.propose_return(service, random, changes)
                    && self.propose_move(other, random, changes)
            }
            // Two instances exchange their primaries or their secondaries.
            4 => self.propose_exchange(
                state,
                self.draw_moved(random),
                self.draw_movable(random),
                random,
                changes,
            ),
            5 => self.propose_exchange(
                state,
                self.draw_moved(random),
                self.draw_moved(random),
                random,
                changes,
            ),
            6 => self.propose_exchange(
                state,
                self.draw_movable(random),
                self.draw_movable(random),
                random,
                changes,
            ),
            // One instance returns, and another one takes over its nodes.
            7 => self.propose_replacement(state, random, changes),
            // Instances exchange roles along a cycle.
            8 => self.propose_role_cycle(state, random, changes),
            // One instance moves, and others compensate for it.
            9 => {
                self.propose_move(self.draw_movable(random), random, changes)
                    && self.compensate(state, random, changes)
            }
            10 => {
                self.propose_move(self.draw_moved(random), random, changes)
                    && self.compensate(state, random, changes)
            }
            11 => {
                self.propose_return(self.draw_moved(random), random, changes)
                    && self.compensate(state, random, changes)
            }
            _ => {
                let service = self.draw_movable(random);
                let Some(to) = state.placement(service).swapped() else { return false };
                changes.push((service, to));
                self.is_reachable(service, to) && self.compensate(state, random, changes)
            }
        }
    }

    fn draw_movable(&self, random: &mut Random) -> usize {
        self.movable[random.draw_below(self.movable.len())]
    }

    fn draw_moved(&self, random: &mut Random) -> usize {
        self.moved.draw(0, random).unwrap_or_else(|| self.draw_movable(random))
    }

    /// Returns `true` if the placement is the start of the instance or one step away from it.
    fn is_reachable(&self, service: usize, to: Placement) -> bool {
        to.secondary != Some(to.primary)
            && (to == self.problem.start_placements[service]
                || StepKind::between(self.problem, service, self.problem.start_placements[service], to)
                    .is_some())
    }

    /// Adds a move of an instance to a random placement. Returns `true` if the placement is one step away from the
    /// instance's start.
    fn propose_move(&self, service: usize, random: &mut Random, changes: &mut Changes) -> bool {
        let start = self.problem.start_placements[service];
        let node = random.draw_below(self.problem.nodes.len());
        let to = match start.secondary {
            None => Placement { primary: node, secondary: None },
            Some(secondary) => match random.draw_below(9) {
                0 => Placement { primary: secondary, secondary: Some(start.primary) },
                1 | 2 => Placement { primary: start.primary, secondary: Some(node) },
                3 | 4 => Placement { primary: node, secondary: Some(start.primary) },
                5 | 6 => Placement { primary: secondary, secondary: Some(node) },
                _ => Placement { primary: node, secondary: Some(secondary) },
            },
        };
        changes.push((service, to));
        self.is_reachable(service, to)
    }

    /// Adds a move of an instance to the nodes of its start, with the same or exchanged roles. Returns `true` if the
    /// placement is reachable.
    fn propose_return(&self, service: usize, random: &mut Random, changes: &mut Changes) -> bool {
        let start = self.problem.start_placements[service];
        let to = if random.draw_below(2) == 0 { start } else { start.swapped().unwrap_or(start) };
        changes.push((service, to));
        self.is_reachable(service, to)
    }

    fn propose_exchange(
        &self,
        state: &State<'_>,
        service: usize,
        other: usize,
        random: &mut Random,
        changes: &mut Changes,
    ) -> bool {
        let (placement, other_placement) = (state.placement(service), state.placement(other));
        if random.draw_below(2) == 0 || placement.secondary.is_none() || other_placement.secondary.is_none() {
            changes.push((service, Placement { primary: other_placement.primary, ..placement }));
            changes.push((other, Placement { primary: placement.primary, ..other_placement }));
        } else {
            changes.push((service, Placement { secondary: other_placement.secondary, ..placement }));
            changes.push((other, Placement { secondary: placement.secondary, ..other_placement }));
        }
        service != other && changes.iter().all(|&(service, to)| self.is_reachable(service, to))
    }

    /// Adds a move of an instance back to a node of its start, and a move of another instance from that node to the
    /// node that the first one leaves. Returns `false` if no such pair was found.
    fn propose_replacement(&self, state: &State<'_>, random: &mut Random, changes: &mut Changes) -> bool {
        let service = self.draw_moved(random);
        let (placement, start) = (state.placement(service), self.problem.start_placements[service]);
        let Some(home) = start.nodes().find(|&node| !placement.contains(node)) else { return false };
        let primary = !start.contains(placement.primary);
        let to = |placement: Placement, node: usize| {
            if primary {
                Placement { primary: node, ..placement }
            } else {
                Placement { secondary: Some(node), ..placement }
            }
        };
        let left_node = if primary { Some(placement.primary) } else { placement.secondary };
        let Some(left_node) = left_node else { return false };
        let lists = if primary { &self.primaries } else { &self.secondaries };
        let fits = |other: usize| {
            let placement = to(state.placement(other), left_node);
            (other != service && self.is_reachable(other, placement)).then_some((other, placement))
        };
        let Some(other) = lists.find_from_random_start(home, random, fits) else { return false };
        changes.push((service, to(placement, home)));
        changes.push(other);
        self.is_reachable(service, changes[0].1)
    }

    /// Adds exchanges of primary and secondary along a cycle of nodes, which copy no disk. Returns `false` if no cycle
    /// was found.
    fn propose_role_cycle(&self, state: &State<'_>, random: &mut Random, changes: &mut Changes) -> bool {
        let first = self.draw_movable(random);
        let begin = state.placement(first).primary;
        let mut next = first;
        for _ in 0..MAX_CYCLE_LENGTH {
            let Some(to) = state.placement(next).swapped() else { return false };
            if !self.is_reachable(next, to) {
                return false;
            }
            changes.push((next, to));
            if to.primary == begin {
                return true;
            }
            let is_unchanged =
                |service: usize| changes.iter().all(|&(changed_service, _)| changed_service != service);
            let closing_the_cycle = |service: usize| {
                (is_unchanged(service) && state.placement(service).secondary == Some(begin))
                    .then_some(service)
            };
            let find_unchanged = |service: usize| is_unchanged(service).then_some(service);
            let Some(follower) = self
                .primaries
                .find_from_random_start(to.primary, random, closing_the_cycle)
                .or_else(|| self.primaries.find_from_random_start(to.primary, random, find_unchanged))
            else {
                return false;
            };
            next = follower;
        }
        false
    }

    /// Adds changes of other instances, after which each node has as many primaries and secondaries as before the first
    /// change.
    fn compensate(&self, state: &State<'_>, random: &mut Random, changes: &mut Changes) -> bool {
        let (service, to) = changes[0];
        let from = state.placement(service);
        if to.primary != from.primary {
            let Some(next) = self.find_replacement_primary(state, random, service, to.primary, from.primary)
            else {
                return false;
            };
            changes.push(next);
        }
        // The changes so far leave one node with one disk more and another node with one disk less.
        let (mut fuller_node, mut emptier_node) = (None, None);
        for &(service, to) in changes.iter() {
            let from = state.placement(service);
            for node in to.nodes().filter(|&node| !from.contains(node)) {
                if emptier_node == Some(node) { emptier_node = None } else { fuller_node = Some(node) }
            }
            for node in from.nodes().filter(|&node| !to.contains(node)) {
                if fuller_node == Some(node) { fuller_node = None } else { emptier_node = Some(node) }
            }
        }
        if let (Some(fuller_node), Some(emptier_node)) = (fuller_node, emptier_node) {
            let fits = |other: usize| {
                let to = Placement { secondary: Some(emptier_node), ..state.placement(other) };
                let is_unchanged = changes.iter().all(|&(changed_service, _)| changed_service != other);
                (is_unchanged && self.is_reachable(other, to)).then_some((other, to))
            };
            let Some(last) = self.secondaries.find_from_random_start(fuller_node, random, fits) else {
                return false;
            };
            changes.push(last);
        }
        true
    }

    /// Returns another instance whose primary moves from one node to another.
    fn find_replacement_primary(
        &self,
        state: &State<'_>,
        random: &mut Random,
        service: usize,
        from: usize,
        to: usize,
    ) -> Option<(usize, Placement)> {
        let roles_first = random.draw_below(2) == 0;
        let fits = |other: usize| {
            if other == service {
                return None;
            }
            let placement = state.placement(other);
            let moved = Placement { primary: to, ..placement };
            let follows = Placement { primary: to, secondary: placement.secondary.map(|_| from) };
            let options = if roles_first { [follows, moved] } else { [moved, follows] };
            options.into_iter().find(|&option| self.is_reachable(other, option)).map(|option| (other, option))
        };
        self.primaries.find_from_random_start(from, random, fits)
    }
}

/// Instances in lists that follow the current state, for random choices. Each instance is in at most one list.
struct InstanceLists {
    lists: Vec<Vec<usize>>,
    /// For each instance, its list and its position in that list.
    positions: Vec<Option<(usize, usize)>>,
}

impl InstanceLists {
    fn new(lists: usize, services: usize) -> InstanceLists {
        InstanceLists { lists: vec![Vec::new(); lists], positions: vec![None; services] }
    }

    /// Moves an instance to a list, or removes it from all lists.
    fn move_to_list(&mut self, service: usize, list: Option<usize>) {
        if self.positions[service].map(|(current_list, _)| current_list) == list {
            return;
        }
        if let Some((current_list, position)) = self.positions[service].take() {
            self.lists[current_list].swap_remove(position);
            if let Some(&other) = self.lists[current_list].get(position) {
                self.positions[other] = Some((current_list, position));
            }
        }
        if let Some(list) = list {
            self.positions[service] = Some((list, self.lists[list].len()));
            self.lists[list].push(service);
        }
    }

    fn draw(&self, list: usize, random: &mut Random) -> Option<usize> {
        let list = &self.lists[list];
        (!list.is_empty()).then(|| list[random.draw_below(list.len())])
    }

    /// Returns the first instance that fits, starting at a random one.
    fn find_from_random_start<T>(
        &self,
        list: usize,
        random: &mut Random,
        fits: impl FnMut(usize) -> Option<T>,
    ) -> Option<T> {
        let list = &self.lists[list];
        let begin = if list.is_empty() { 0 } else { random.draw_below(list.len()) };
        list[begin..].iter().chain(&list[..begin]).copied().find_map(fits)
    }
}
