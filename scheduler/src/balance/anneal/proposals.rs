//! Changes worth trying: of one instance, of two, or chains of up to three after which every node has as many instances as before.

use super::super::moves::Kind;
use super::super::problem::{Problem, Spot};
use super::super::random::Random;
use super::super::state::State;

/// Changes that are tried together.
pub(super) type Changes = Vec<(usize, Spot)>;

/// Who is where, to find partners for a change.
pub(super) struct Proposals<'a> {
    problem: &'a Problem,
    movable: Vec<usize>,
    /// Instances that are not where they were at the start, all in one list.
    moved: Lists,
    /// Primaries of each node, and secondaries.
    primaries: Lists,
    secondaries: Lists,
}

impl<'a> Proposals<'a> {
    /// For a placement.
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

    /// Nothing can be moved.
    pub(super) fn is_empty(&self) -> bool {
        self.movable.is_empty() || self.problem.hosts.len() < 2
    }

    /// An instance is here now.
    pub(super) fn note(&mut self, guest: usize, spot: Spot) {
        self.moved.put(guest, (spot != self.problem.start[guest]).then_some(0));
        self.primaries.put(guest, Some(spot.primary));
        self.secondaries.put(guest, spot.secondary);
    }

    /// A change to be tried; it may be impossible or none at all.
    pub(super) fn propose(&self, state: &State<'_>, random: &mut Random, changes: &mut Changes) -> bool {
        changes.clear();
        match random.below(16) {
            // Anywhere.
            0..=3 => self.go(self.any(random), random, changes),
            4 => self.go(self.already(random), random, changes),
            // Back, alone or while another one goes.
            5 => self.go_back(self.already(random), random, changes),
            6..=8 => {
                let (guest, other) = (self.already(random), self.any(random));
                guest != other && self.go_back(guest, random, changes) && self.go(other, random, changes)
            }
            // Two exchange their primaries or their secondaries.
            9..=11 => self.exchange(state, random, changes),
            // One goes, and others make up for it.
            _ => {
                let guest = if random.below(3) == 0 { self.already(random) } else { self.any(random) };
                let begun = match random.below(3) {
                    0 => self.go(guest, random, changes),
                    1 => self.go_back(guest, random, changes),
                    _ => turned(state.spot(guest)).is_some_and(|to| {
                        changes.push((guest, to));
                        self.reachable(guest, to)
                    }),
                };
                begun && self.make_up(state, random, changes)
            }
        }
    }

    fn any(&self, random: &mut Random) -> usize {
        self.movable[random.below(self.movable.len())]
    }

    fn already(&self, random: &mut Random) -> usize {
        self.moved.any(0, random).unwrap_or_else(|| self.any(random))
    }

    /// One step from the start could bring an instance here, or it was here.
    fn reachable(&self, guest: usize, to: Spot) -> bool {
        to.secondary != Some(to.primary)
            && (to == self.problem.start[guest]
                || Kind::between(self.problem, guest, self.problem.start[guest], to).is_some())
    }

    /// To a spot that one step from the start could bring it to.
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

    /// To the nodes of the start, in the same roles or in turned ones.
    fn go_back(&self, guest: usize, random: &mut Random, changes: &mut Changes) -> bool {
        let start = self.problem.start[guest];
        let to = if random.below(2) == 0 { start } else { turned(start).unwrap_or(start) };
        changes.push((guest, to));
        self.reachable(guest, to)
    }

    fn exchange(&self, state: &State<'_>, random: &mut Random, changes: &mut Changes) -> bool {
        let guest = self.any(random);
        let other = if random.below(2) == 0 { self.already(random) } else { self.any(random) };
        let (mine, theirs) = (state.spot(guest), state.spot(other));
        if random.below(2) == 0 {
            changes.push((guest, Spot { primary: theirs.primary, ..mine }));
            changes.push((other, Spot { primary: mine.primary, ..theirs }));
        } else if mine.secondary.is_some() && theirs.secondary.is_some() {
            changes.push((guest, Spot { secondary: theirs.secondary, ..mine }));
            changes.push((other, Spot { secondary: mine.secondary, ..theirs }));
        } else {
            return false;
        }
        guest != other && changes.iter().all(|&(guest, to)| self.reachable(guest, to))
    }

    /// Adds changes of others after which each node has as many primaries and secondaries as before the first.
    fn make_up(&self, state: &State<'_>, random: &mut Random, changes: &mut Changes) -> bool {
        let (guest, to) = changes[0];
        let from = state.spot(guest);
        if to.primary != from.primary {
            let Some(next) = self.next_primary(state, random, guest, to.primary, from.primary) else {
                return false;
            };
            changes.push(next);
        }
        // What the copies of those so far leave one node with too much and another with too little.
        let (mut more, mut less) = (None, None);
        for &(guest, to) in changes.iter() {
            let from = state.spot(guest);
            let had = |host| host == from.primary || Some(host) == from.secondary;
            let has = |host| host == to.primary || Some(host) == to.secondary;
            for host in [Some(to.primary), to.secondary].into_iter().flatten().filter(|&host| !had(host)) {
                if less == Some(host) { less = None } else { more = Some(host) }
            }
            for host in [Some(from.primary), from.secondary].into_iter().flatten().filter(|&host| !has(host))
            {
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

    /// Another instance whose primary goes from one node to another.
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

/// Primary and secondary in each other's place.
fn turned(spot: Spot) -> Option<Spot> {
    spot.secondary.map(|secondary| Spot { primary: secondary, secondary: Some(spot.primary) })
}

/// Lists of instances, each instance in one of them at most.
struct Lists {
    lists: Vec<Vec<usize>>,
    /// The list and the position in it of each instance.
    places: Vec<Option<(usize, usize)>>,
}

impl Lists {
    fn new(lists: usize, guests: usize) -> Lists {
        Lists { lists: vec![Vec::new(); lists], places: vec![None; guests] }
    }

    /// Puts an instance into a list, or into none.
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

    /// The first that fits, from a random one on.
    fn pick<T>(&self, list: usize, random: &mut Random, fits: impl FnMut(usize) -> Option<T>) -> Option<T> {
        let list = &self.lists[list];
        let begin = if list.is_empty() { 0 } else { random.below(list.len()) };
        list[begin..].iter().chain(&list[..begin]).copied().find_map(fits)
    }
}
