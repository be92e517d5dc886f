//! Moves that only work one after another, or through a third node: which one is next.
//!
//! [`next`] looks at a small puzzle: items on nodes, where each may and would like to be, which must stay apart, and how
//! much room there is. It is asked anew after every move, and needs no memory of what it answered before.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};

/// States that are looked at before the search for detours is given up.
const MAX_STATES: usize = 4_000;

/// What an item needs of a node, or a node has left: cpu, memory, disk in thousandths; `None`: not limited.
pub type Room = [Option<i128>; 3];

/// A service, or several that stay together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// Where it is; `None`: it does not run yet.
    pub place: Option<usize>,
    /// How far each node is from what it would like best, 0 is that; `None`: it may not be there.
    pub wishes: Vec<Option<u32>>,
    /// What it needs.
    pub requests: Room,
}

/// Items on nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Puzzle {
    /// The items.
    pub items: Vec<Item>,
    /// What each node has left for these items.
    pub room: Vec<Room>,
    /// Pairs of items that must not share a node.
    pub apart: BTreeSet<(usize, usize)>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing: no order of moves makes it better.
    Rest,
    /// This item goes there first.
    Move {
        /// The item.
        item: usize,
        /// The node.
        to: usize,
        /// Where all items are in the end.
        goal: Vec<Option<usize>>,
    },
    /// A better arrangement exists, but no order of moves leads there.
    Blocked {
        /// That arrangement.
        goal: Vec<Option<usize>>,
    },
}

/// How bad an arrangement is: first what must not be, then what is not as wished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    /// Items that do not run or are where they may not be, and pairs that share a node and must not.
    hard: u32,
    /// The sum of what is wished for and missed.
    wish: u32,
}

type State = Vec<Option<usize>>;
/// The move that began a way: item and node.
type FirstMove = Option<(usize, usize)>;

/// The next move towards the best arrangement that can be reached.
///
/// An arrangement is better if fewer things are where they must not be; or as few, and every item that has moved is
/// better off. Nobody is moved for the mere wish of another.
///
/// Guarantees: each move is legal by itself, with all other items where they are and the moved one counting on both
/// nodes: it goes where it may be, to no item that it must stay apart from, and where there is room. Repeated until it
/// says otherwise it ends, since each move leads to an arrangement from which the same best one is one move nearer.
/// Beyond `MAX_STATES` arrangements only moves that make nothing worse on the way are considered: of a larger puzzle some
/// solutions are not found, and still each move lowers what is bad.
pub fn next(puzzle: &Puzzle) -> Next {
    let start: State = puzzle.items.iter().map(|item| item.place).collect();
    if puzzle.cost(&start) == Cost::default() {
        return Next::Rest;
    }
    let found = match search(puzzle, &start, false) {
        Search::Found { item, to, goal } => return Next::Move { item, to, goal },
        Search::Nothing => None,
        Search::TooLarge => Some(search(puzzle, &start, true)),
    };
    if let Some(Search::Found { item, to, goal }) = found {
        return Next::Move { item, to, goal };
    }
    let mut steps = 0;
    let mut best = None;
    arrange(puzzle, &start, &mut Vec::new(), &mut steps, &mut best);
    best.map_or(Next::Rest, |(_, goal)| Next::Blocked { goal })
}

enum Search {
    Found { item: usize, to: usize, goal: State },
    Nothing,
    TooLarge,
}

/// Breadth first over all that moves can reach. `downhill`: no move may make anything worse.
fn search(puzzle: &Puzzle, start: &State, downhill: bool) -> Search {
    let mut seen: BTreeSet<State> = BTreeSet::from([start.clone()]);
    let mut queue: VecDeque<(State, usize, FirstMove)> = VecDeque::from([(start.clone(), 0, None)]);
    let mut best: Option<((Merit, usize), usize, usize, State)> = None;
    while let Some((state, depth, first)) = queue.pop_front() {
        if let Some((item, to)) = first
            && let Some(merit) = puzzle.merit(start, &state)
            && best.as_ref().is_none_or(|(known, ..)| (merit, depth) < *known)
        {
            best = Some(((merit, depth), item, to, state.clone()));
        }
        let cost = puzzle.cost(&state);
        for (item, to) in puzzle.moves(&state) {
            let mut after = state.clone();
            after[item] = Some(to);
            if (downhill && puzzle.cost(&after) >= cost) || !seen.insert(after.clone()) {
                continue;
            }
            if seen.len() > MAX_STATES {
                if !downhill {
                    return Search::TooLarge;
                }
                break;
            }
            queue.push_back((after, depth + 1, first.or(Some((item, to)))));
        }
    }
    best.map_or(Search::Nothing, |(_, item, to, goal)| Search::Found { item, to, goal })
}

/// How good a better arrangement is; less is better: what must not be, items moved without being better off, wishes.
type Merit = (u32, u32, u32);

impl Puzzle {
    fn cost(&self, state: &State) -> Cost {
        let mut cost = Cost::default();
        for (item, place) in self.items.iter().zip(state) {
            match item.at(*place) {
                Some(wish) => cost.wish += wish,
                None => cost.hard += 1,
            }
        }
        let shared = |(one, other): &&(usize, usize)| state[*one].is_some() && state[*one] == state[*other];
        cost.hard += u32::try_from(self.apart.iter().filter(shared).count()).unwrap_or(u32::MAX);
        cost
    }

    /// How much better it is than at the start; `None`: it is not.
    fn merit(&self, start: &State, state: &State) -> Option<Merit> {
        let (before, after) = (self.cost(start), self.cost(state));
        let harmed =
            (0..self.items.len()).filter(|item| self.harmed(*item, start[*item], state[*item])).count();
        let harmed = u32::try_from(harmed).unwrap_or(u32::MAX);
        let better = after.hard < before.hard || (after < before && harmed == 0);
        better.then_some((after.hard, harmed, after.wish))
    }

    /// Whether it has moved and is no better off by its own measure.
    fn harmed(&self, item: usize, from: Option<usize>, to: Option<usize>) -> bool {
        let item = &self.items[item];
        from != to
            && match (item.at(from), item.at(to)) {
                (None, Some(_)) => false,
                (Some(before), Some(after)) => after >= before,
                (_, None) => true,
            }
    }

    /// Whether an item likes a node better than its place.
    pub fn better_off(&self, item: usize, to: usize) -> bool {
        !self.harmed(item, self.items[item].place, Some(to))
    }

    /// Every move that is legal now.
    fn moves<'a>(&'a self, state: &'a State) -> impl Iterator<Item = (usize, usize)> + 'a {
        (0..self.items.len()).flat_map(move |item| {
            (0..self.room.len()).filter(move |to| self.may_go(item, *to, state)).map(move |to| (item, to))
        })
    }

    /// Whether an item may go to a node with all others where they are.
    pub fn may_go(&self, item: usize, to: usize, state: &[Option<usize>]) -> bool {
        let there = |other: usize| other != item && state[other] == Some(to);
        let apart = |other: usize| self.apart.contains(&(item.min(other), item.max(other)));
        state[item] != Some(to)
            && self.items[item].at(Some(to)).is_some()
            && !(0..self.items.len()).any(|other| there(other) && apart(other))
            && (0..3).all(|kind| {
                let (Some(room), Some(asked)) = (self.room[to][kind], self.items[item].requests[kind]) else {
                    return true;
                };
                let used: i128 = (0..self.items.len())
                    .filter(|other| there(*other))
                    .filter_map(|other| self.items[other].requests[kind])
                    .sum();
                used + asked <= room
            })
    }
}

impl Item {
    /// What it misses at a place; `None`: it must not be there.
    fn at(&self, place: Option<usize>) -> Option<u32> {
        self.wishes.get(place?).copied().flatten()
    }
}

/// The best arrangement there would be if all could jump: found by trying, for the explanation of what is blocked.
fn arrange(
    puzzle: &Puzzle,
    start: &State,
    state: &mut State,
    steps: &mut usize,
    best: &mut Option<(Merit, State)>,
) {
    *steps += 1;
    if *steps > 20 * MAX_STATES {
        return;
    }
    let item = state.len();
    if item == start.len() {
        if let Some(merit) = puzzle.merit(start, state)
            && best.as_ref().is_none_or(|(known, _)| merit < *known)
        {
            *best = Some((merit, state.clone()));
        }
        return;
    }
    let stays = start[item];
    let goes: Vec<usize> = (0..puzzle.room.len())
        .filter(|to| Some(*to) != stays && puzzle.items[item].at(Some(*to)).is_some())
        .collect();
    for place in std::iter::once(stays).chain(goes.into_iter().map(Some)) {
        let fits = place == stays || {
            let mut all = state.clone();
            all.resize(start.len(), None);
            place.is_some_and(|to| puzzle.may_go(item, to, &all))
        };
        if fits {
            state.push(place);
            arrange(puzzle, start, state, steps, best);
            state.pop();
        }
    }
}
