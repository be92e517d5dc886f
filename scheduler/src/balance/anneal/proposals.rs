//! Proposals of changes: of one instance, of two, or of chains that keep the number of instances on each node.

use super::super::moves::StepKind;
use super::super::problem::{Placement, Problem};
use super::super::random::Random;
use super::super::state::State;

/// Number of kinds of changes.
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
    /// Builds the indexes for a placement.
    pub(super) fn new(state: &State<'a>) -> Proposals<'a> {
        let problem = state.problem();
        let (hosts, guests) = (problem.hosts.len(), problem.guests.len());
        let mut proposals = Proposals {
            problem,
            movable: (0..guests).filter(|&guest| problem.guests[guest].movable).collect(),
            moved: InstanceLists::new(1, guests),
            primaries: InstanceLists::new(hosts, guests),
            secondaries: InstanceLists::new(hosts, guests),
        };
        for guest in proposals.movable.clone() {
            proposals.record_placement(guest, state.placement(guest));
        }
        proposals
    }

    /// Returns `true` if no change is possible.
    pub(super) fn is_empty(&self) -> bool {
        self.movable.is_empty() || self.problem.hosts.len() < 2
    }

    /// Records the new placement of an instance.
    pub(super) fn record_placement(&mut self, guest: usize, placement: Placement) {
        self.moved.move_to_list(guest, (placement != self.problem.start[guest]).then_some(0));
        self.primaries.move_to_list(guest, Some(placement.primary));
        self.secondaries.move_to_list(guest, placement.secondary);
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
            0 => self.propose_move(self.any_movable(random), random, changes),
            1 => self.propose_move(self.any_moved(random), random, changes),
            // An instance returns to its start, alone or while another one moves.
            2 => self.propose_return(self.any_moved(random), random, changes),
            3 => {
                let (guest, other) = (self.any_moved(random), self.any_movable(random));
                guest != other
                    && self.propose_return(guest, random, changes)
                    && self.propose_move(other, random, changes)
            }
            // Two instances exchange their primaries or their secondaries.
            4 => self.propose_exchange(
                state,
                self.any_moved(random),
                self.any_movable(random),
                random,
                changes,
            ),
            5 => {
                self.propose_exchange(state, self.any_moved(random), self.any_moved(random), random, changes)
            }
            6 => self.propose_exchange(
                state,
                self.any_movable(random),
                self.any_movable(random),
                random,
                changes,
            ),
            // One instance returns, and another one takes over its nodes.
            7 => self.propose_replacement(state, random, changes),
            // Instances exchange roles along a cycle.
            8 => self.propose_role_cycle(state, random, changes),
            // One instance moves, and others compensate for it.
            9 => {
                self.propose_move(self.any_movable(random), random, changes)
                    && self.compensate(state, random, changes)
            }
            10 => {
                self.propose_move(self.any_moved(random), random, changes)
                    && self.compensate(state, random, changes)
            }
            11 => {
                self.propose_return(self.any_moved(random), random, changes)
                    && self.compensate(state, random, changes)
            }
            _ => {
                let guest = self.any_movable(random);
                let Some(to) = state.placement(guest).swapped() else { return false };
                changes.push((guest, to));
                self.is_reachable(guest, to) && self.compensate(state, random, changes)
            }
        }
    }

    fn any_movable(&self, random: &mut Random) -> usize {
        self.movable[random.below(self.movable.len())]
    }

    fn any_moved(&self, random: &mut Random) -> usize {
        self.moved.any(0, random).unwrap_or_else(|| self.any_movable(random))
    }

    /// Returns `true` if the placement is the start of the instance or one step away from it.
    fn is_reachable(&self, guest: usize, to: Placement) -> bool {
        to.secondary != Some(to.primary)
            && (to == self.problem.start[guest]
                || StepKind::between(self.problem, guest, self.problem.start[guest], to).is_some())
    }

    /// Adds a move of an instance to a random placement. Returns `true` if the placement is one step away from the
    /// instance's start.
    fn propose_move(&self, guest: usize, random: &mut Random, changes: &mut Changes) -> bool {
        let start = self.problem.start[guest];
        let node = random.below(self.problem.hosts.len());
        let to = match start.secondary {
            None => Placement { primary: node, secondary: None },
            Some(secondary) => match random.below(9) {
                0 => Placement { primary: secondary, secondary: Some(start.primary) },
                1 | 2 => Placement { primary: start.primary, secondary: Some(node) },
                3 | 4 => Placement { primary: node, secondary: Some(start.primary) },
                5 | 6 => Placement { primary: secondary, secondary: Some(node) },
                _ => Placement { primary: node, secondary: Some(secondary) },
            },
        };
        changes.push((guest, to));
        self.is_reachable(guest, to)
    }

    /// Adds a move of an instance to the nodes of its start, with the same or exchanged roles. Returns `true` if the
    /// placement is reachable.
    fn propose_return(&self, guest: usize, random: &mut Random, changes: &mut Changes) -> bool {
        let start = self.problem.start[guest];
        let to = if random.below(2) == 0 { start } else { start.swapped().unwrap_or(start) };
        changes.push((guest, to));
        self.is_reachable(guest, to)
    }

    fn propose_exchange(
        &self,
        state: &State<'_>,
        guest: usize,
        other: usize,
        random: &mut Random,
        changes: &mut Changes,
    ) -> bool {
        let (mine, theirs) = (state.placement(guest), state.placement(other));
        if random.below(2) == 0 || mine.secondary.is_none() || theirs.secondary.is_none() {
            changes.push((guest, Placement { primary: theirs.primary, ..mine }));
            changes.push((other, Placement { primary: mine.primary, ..theirs }));
        } else {
            changes.push((guest, Placement { secondary: theirs.secondary, ..mine }));
            changes.push((other, Placement { secondary: mine.secondary, ..theirs }));
        }
        guest != other && changes.iter().all(|&(guest, to)| self.is_reachable(guest, to))
    }

    /// Adds a move of an instance back to a node of its start, and a move of another instance from that node to the
    /// node that the first one leaves. Returns `false` if no such pair was found.
    fn propose_replacement(&self, state: &State<'_>, random: &mut Random, changes: &mut Changes) -> bool {
        let guest = self.any_moved(random);
        let (placement, start) = (state.placement(guest), self.problem.start[guest]);
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
            (other != guest && self.is_reachable(other, placement)).then_some((other, placement))
        };
        let Some(other) = lists.find_from_random_start(home, random, fits) else { return false };
        changes.push((guest, to(placement, home)));
        changes.push(other);
        self.is_reachable(guest, changes[0].1)
    }

    /// Adds exchanges of primary and secondary along a cycle of nodes, which copy no disk. Returns `false` if no cycle
    /// was found.
    fn propose_role_cycle(&self, state: &State<'_>, random: &mut Random, changes: &mut Changes) -> bool {
        let first = self.any_movable(random);
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
            let free = |guest: usize| changes.iter().all(|&(changed_guest, _)| changed_guest != guest);
            let closing_the_cycle = |guest: usize| {
                (free(guest) && state.placement(guest).secondary == Some(begin)).then_some(guest)
            };
            let follows = |guest: usize| free(guest).then_some(guest);
            let Some(follower) = self
                .primaries
                .find_from_random_start(to.primary, random, closing_the_cycle)
                .or_else(|| self.primaries.find_from_random_start(to.primary, random, follows))
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
        let (guest, to) = changes[0];
        let from = state.placement(guest);
        if to.primary != from.primary {
            let Some(next) = self.replacement_primary(state, random, guest, to.primary, from.primary) else {
                return false;
            };
            changes.push(next);
        }
        // The changes so far leave one node with one disk more and another node with one disk less.
        let (mut fuller_host, mut emptier_host) = (None, None);
        for &(guest, to) in changes.iter() {
            let from = state.placement(guest);
            for host in to.nodes().filter(|&host| !from.contains(host)) {
                if emptier_host == Some(host) { emptier_host = None } else { fuller_host = Some(host) }
            }
            for host in from.nodes().filter(|&host| !to.contains(host)) {
                if fuller_host == Some(host) { fuller_host = None } else { emptier_host = Some(host) }
            }
        }
        if let (Some(fuller_host), Some(emptier_host)) = (fuller_host, emptier_host) {
            let fits = |other: usize| {
                let to = Placement { secondary: Some(emptier_host), ..state.placement(other) };
                let free = changes.iter().all(|&(changed_guest, _)| changed_guest != other);
                (free && self.is_reachable(other, to)).then_some((other, to))
            };
            let Some(last) = self.secondaries.find_from_random_start(fuller_host, random, fits) else {
                return false;
            };
            changes.push(last);
        }
        true
    }

    /// Returns another instance whose primary moves from one node to another.
    fn replacement_primary(
        &self,
        state: &State<'_>,
        random: &mut Random,
        guest: usize,
        from: usize,
        to: usize,
    ) -> Option<(usize, Placement)> {
        let roles_first = random.below(2) == 0;
        let fits = |other: usize| {
            if other == guest {
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
    fn new(lists: usize, guests: usize) -> InstanceLists {
        InstanceLists { lists: vec![Vec::new(); lists], positions: vec![None; guests] }
    }

    /// Moves an instance to a list, or removes it from all lists.
    fn move_to_list(&mut self, guest: usize, list: Option<usize>) {
        if self.positions[guest].map(|(current_list, _)| current_list) == list {
            return;
        }
        if let Some((current_list, position)) = self.positions[guest].take() {
            self.lists[current_list].swap_remove(position);
            if let Some(&other) = self.lists[current_list].get(position) {
                self.positions[other] = Some((current_list, position));
            }
        }
        if let Some(list) = list {
            self.positions[guest] = Some((list, self.lists[list].len()));
            self.lists[list].push(guest);
        }
    }

    fn any(&self, list: usize, random: &mut Random) -> Option<usize> {
        let list = &self.lists[list];
        (!list.is_empty()).then(|| list[random.below(list.len())])
    }

    /// Returns the first instance that fits, starting at a random one.
    fn find_from_random_start<T>(
        &self,
        list: usize,
        random: &mut Random,
        fits: impl FnMut(usize) -> Option<T>,
    ) -> Option<T> {
        let list = &self.lists[list];
        let begin = if list.is_empty() { 0 } else { random.below(list.len()) };
        list[begin..].iter().chain(&list[..begin]).copied().find_map(fits)
    }
}
