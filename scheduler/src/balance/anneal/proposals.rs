//! Proposals of changes: of one instance, of two, or of chains that keep the number of instances on each node.

use super::super::moves::Kind;
use super::super::problem::{Problem, Spot};
use super::super::random::Random;
use super::super::state::State;

/// Number of kinds of changes.
pub(super) const KINDS: usize = 13;

/// Maximum number of instances in a cycle of role changes.
const LONGEST_CIRCLE: usize = 5;

/// Changes that are tried together: instance and new spot.
pub(super) type Changes = Vec<(usize, Spot)>;

/// Indexes of the placement, to find partners for a change.
pub(super) struct Proposals<'a> {
    problem: &'a Problem,
    movable: Vec<usize>,
    /// Instances that are not on their initial spots, all in one list.
    moved: Lists,
    /// Instances by their primary node.
    primaries: Lists,
    secondaries: Lists,
}

impl<'a> Proposals<'a> {
    /// Builds the indexes for a placement.
    pub(super) fn new(state: &State<'a>) -> Proposals<'a> {
        let problem = state.problem();
        let (hosts, guests) = (problem.hosts.len(), problem.guests.len());
        let mut proposals = Proposals {
            problem,
            movable: (0..guests).filter(|&guest| problem.guests[guest].movable).collect(),
            moved: Lists::new(1, guests),
            primaries: Lists::new(hosts, guests),
            secondaries: Lists::new(hosts, guests),
        };
        for guest in proposals.movable.clone() {
            proposals.note(guest, state.spot(guest));
        }
        proposals
    }

    /// Returns `true` if no change is possible.
    pub(super) fn is_empty(&self) -> bool {
        self.movable.is_empty() || self.problem.hosts.len() < 2
    }

    /// Records the new spot of an instance.
    pub(super) fn note(&mut self, guest: usize, spot: Spot) {
        self.moved.put(guest, (spot != self.problem.start[guest]).then_some(0));
        self.primaries.put(guest, Some(spot.primary));
        self.secondaries.put(guest, spot.secondary);
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
            // One instance moves to any reachable spot.
            0 => self.go(self.any(random), random, changes),
            1 => self.go(self.already(random), random, changes),
            // An instance returns to its start, alone or while another one moves.
            2 => self.go_back(self.already(random), random, changes),
            3 => {
                let (guest, other) = (self.already(random), self.any(random));
                guest != other && self.go_back(guest, random, changes) && self.go(other, random, changes)
            }
            // Two instances exchange their primaries or their secondaries.
            4 => self.exchange(state, self.already(random), self.any(random), random, changes),
            5 => self.exchange(state, self.already(random), self.already(random), random, changes),
            6 => self.exchange(state, self.any(random), self.any(random), random, changes),
            // One instance returns, and another one takes over its nodes.
            7 => self.replace(state, random, changes),
            // Instances exchange roles along a cycle.
            8 => self.turn_around(state, random, changes),
            // One instance moves, and others compensate for it.
            9 => self.go(self.any(random), random, changes) && self.compensate(state, random, changes),
            10 => self.go(self.already(random), random, changes) && self.compensate(state, random, changes),
            11 => {
                self.go_back(self.already(random), random, changes) && self.compensate(state, random, changes)
            }
            _ => {
                let guest = self.any(random);
                let Some(to) = state.spot(guest).turned() else { return false };
                changes.push((guest, to));
                self.reachable(guest, to) && self.compensate(state, random, changes)
            }
        }
    }

    fn any(&self, random: &mut Random) -> usize {
        self.movable[random.below(self.movable.len())]
    }

    fn already(&self, random: &mut Random) -> usize {
        self.moved.any(0, random).unwrap_or_else(|| self.any(random))
    }

    /// Returns `true` if the spot is the start of the instance or one step away from it.
    fn reachable(&self, guest: usize, to: Spot) -> bool {
        to.secondary != Some(to.primary)
            && (to == self.problem.start[guest]
                || Kind::between(self.problem, guest, self.problem.start[guest], to).is_some())
    }

    /// Adds a move of an instance to a random spot. Returns `true` if the spot is one step away from the
    /// instance's start.
    fn go(&self, guest: usize, random: &mut Random, changes: &mut Changes) -> bool {
        let start = self.problem.start[guest];
        let node = random.below(self.problem.hosts.len());
        let to = match start.secondary {
            None => Spot { primary: node, secondary: None },
            Some(secondary) => match random.below(9) {
                0 => Spot { primary: secondary, secondary: Some(start.primary) },
                1 | 2 => Spot { primary: start.primary, secondary: Some(node) },
                3 | 4 => Spot { primary: node, secondary: Some(start.primary) },
                5 | 6 => Spot { primary: secondary, secondary: Some(node) },
                _ => Spot { primary: node, secondary: Some(secondary) },
            },
        };
        changes.push((guest, to));
        self.reachable(guest, to)
    }

    /// Adds a move of an instance to the nodes of its start, with the same or exchanged roles. Returns `true` if the
    /// spot is reachable.
    fn go_back(&self, guest: usize, random: &mut Random, changes: &mut Changes) -> bool {
        let start = self.problem.start[guest];
        let to = if random.below(2) == 0 { start } else { start.turned().unwrap_or(start) };
        changes.push((guest, to));
        self.reachable(guest, to)
    }

    fn exchange(
        &self,
        state: &State<'_>,
        guest: usize,
        other: usize,
        random: &mut Random,
        changes: &mut Changes,
    ) -> bool {
        let (mine, theirs) = (state.spot(guest), state.spot(other));
        if random.below(2) == 0 || mine.secondary.is_none() || theirs.secondary.is_none() {
            changes.push((guest, Spot { primary: theirs.primary, ..mine }));
            changes.push((other, Spot { primary: mine.primary, ..theirs }));
        } else {
            changes.push((guest, Spot { secondary: theirs.secondary, ..mine }));
            changes.push((other, Spot { secondary: mine.secondary, ..theirs }));
        }
        guest != other && changes.iter().all(|&(guest, to)| self.reachable(guest, to))
    }

    /// Adds a move of an instance back to a node of its start, and a move of another instance from that node to the
    /// node that the first one leaves. Returns `false` if no such pair was found.
    fn replace(&self, state: &State<'_>, random: &mut Random, changes: &mut Changes) -> bool {
        let guest = self.already(random);
        let (spot, start) = (state.spot(guest), self.problem.start[guest]);
        let Some(home) = start.nodes().find(|&node| !spot.contains(node)) else { return false };
        let primary = !start.contains(spot.primary);
        let to = |spot: Spot, node: usize| {
            if primary { Spot { primary: node, ..spot } } else { Spot { secondary: Some(node), ..spot } }
        };
        let place = if primary { Some(spot.primary) } else { spot.secondary };
        let Some(place) = place else { return false };
        let lists = if primary { &self.primaries } else { &self.secondaries };
        let fits = |other: usize| {
            let spot = to(state.spot(other), place);
            (other != guest && self.reachable(other, spot)).then_some((other, spot))
        };
        let Some(other) = lists.pick(home, random, fits) else { return false };
        changes.push((guest, to(spot, home)));
        changes.push(other);
        self.reachable(guest, changes[0].1)
    }

    /// Adds exchanges of primary and secondary along a cycle of nodes, which copy no disk. Returns `false` if no cycle
    /// was found.
    fn turn_around(&self, state: &State<'_>, random: &mut Random, changes: &mut Changes) -> bool {
        let first = self.any(random);
        let begin = state.spot(first).primary;
        let mut next = first;
        for _ in 0..LONGEST_CIRCLE {
            let Some(to) = state.spot(next).turned() else { return false };
            if !self.reachable(next, to) {
                return false;
            }
            changes.push((next, to));
            if to.primary == begin {
                return true;
            }
            let free = |guest: usize| changes.iter().all(|&(known, _)| known != guest);
            let closes =
                |guest: usize| (free(guest) && state.spot(guest).secondary == Some(begin)).then_some(guest);
            let follows = |guest: usize| free(guest).then_some(guest);
            let Some(follower) = self
                .primaries
                .pick(to.primary, random, closes)
                .or_else(|| self.primaries.pick(to.primary, random, follows))
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
        let from = state.spot(guest);
        if to.primary != from.primary {
            let Some(next) = self.next_primary(state, random, guest, to.primary, from.primary) else {
                return false;
            };
            changes.push(next);
        }
        // The changes so far leave one node with one disk more and another node with one disk less.
        let (mut more, mut less) = (None, None);
        for &(guest, to) in changes.iter() {
            let from = state.spot(guest);
            for host in to.nodes().filter(|&host| !from.contains(host)) {
                if less == Some(host) { less = None } else { more = Some(host) }
            }
            for host in from.nodes().filter(|&host| !to.contains(host)) {
                if more == Some(host) { more = None } else { less = Some(host) }
            }
        }
        if let (Some(more), Some(less)) = (more, less) {
            let fits = |other: usize| {
                let to = Spot { secondary: Some(less), ..state.spot(other) };
                let free = changes.iter().all(|&(known, _)| known != other);
                (free && self.reachable(other, to)).then_some((other, to))
            };
            let Some(last) = self.secondaries.pick(more, random, fits) else { return false };
            changes.push(last);
        }
        true
    }

    /// Returns another instance whose primary moves from one node to another.
    fn next_primary(
        &self,
        state: &State<'_>,
        random: &mut Random,
        guest: usize,
        from: usize,
        to: usize,
    ) -> Option<(usize, Spot)> {
        let turn_first = random.below(2) == 0;
        let fits = |other: usize| {
            if other == guest {
                return None;
            }
            let spot = state.spot(other);
            let moved = Spot { primary: to, ..spot };
            let follows = Spot { primary: to, secondary: spot.secondary.map(|_| from) };
            let options = if turn_first { [follows, moved] } else { [moved, follows] };
            options.into_iter().find(|&option| self.reachable(other, option)).map(|option| (other, option))
        };
        self.primaries.pick(from, random, fits)
    }
}

/// Instances in lists that follow the current state, for random choices. Each instance is in at most one list.
struct Lists {
    lists: Vec<Vec<usize>>,
    /// For each instance, its list and its position in that list.
    places: Vec<Option<(usize, usize)>>,
}

impl Lists {
    fn new(lists: usize, guests: usize) -> Lists {
        Lists { lists: vec![Vec::new(); lists], places: vec![None; guests] }
    }

    /// Moves an instance to a list, or removes it from all lists.
    fn put(&mut self, guest: usize, list: Option<usize>) {
        if self.places[guest].map(|(known, _)| known) == list {
            return;
        }
        if let Some((known, position)) = self.places[guest].take() {
            self.lists[known].swap_remove(position);
            if let Some(&other) = self.lists[known].get(position) {
                self.places[other] = Some((known, position));
            }
        }
        if let Some(list) = list {
            self.places[guest] = Some((list, self.lists[list].len()));
            self.lists[list].push(guest);
        }
    }

    fn any(&self, list: usize, random: &mut Random) -> Option<usize> {
        let list = &self.lists[list];
        (!list.is_empty()).then(|| list[random.below(list.len())])
    }

    /// Returns the first instance that fits, starting at a random one.
    fn pick<T>(&self, list: usize, random: &mut Random, fits: impl FnMut(usize) -> Option<T>) -> Option<T> {
        let list = &self.lists[list];
        let begin = if list.is_empty() { 0 } else { random.below(list.len()) };
        list[begin..].iter().chain(&list[..begin]).copied().find_map(fits)
    }
}
