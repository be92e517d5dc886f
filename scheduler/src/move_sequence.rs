//! Moves that work only in a certain order or through a third node: the choice of the next move.
//!
//! [`next_move`] solves a small search problem: items on nodes, the nodes that each item may use and prefers, pairs that
//! must stay apart, and free capacity. The caller calls the function again after every move; no state is kept between
//! calls.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};

/// Number of states after which the search for detours stops.
const MAX_STATES: usize = 4_000;

/// Amounts that an item needs or a node has free: cpu, memory, disk in thousandths; `None` means unlimited.
pub type FreeAmounts = [Option<i128>; 3];

/// A service, or several services that stay together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MovableUnit {
    /// Index of the current node; `None` if the item does not run yet.
    pub node: Option<usize>,
    /// For each node, its distance from the best choice of the item, where 0 is the best. `None` if the item may not be
    /// there.
    pub distances: Vec<Option<u32>>,
    /// For each node, the rank of its priority tier, where 0 is the best. The rank alone causes no move; it decides
    /// between arrangements that are otherwise equal.
    pub tiers: Vec<u32>,
    /// Amounts that the item needs.
    pub requests: FreeAmounts,
}

/// Items on nodes, with the free capacity of the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MoveProblem {
    /// Items; `Move` and `Blocked` refer to them by index.
    pub items: Vec<MovableUnit>,
    /// Free amounts on each node for these items.
    pub free: Vec<FreeAmounts>,
    /// Pairs of items that must not share a node; the smaller index comes first.
    pub exclusive_pairs: BTreeSet<(usize, usize)>,
}

/// The result of [`next_move`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextMove {
    /// No step: no sequence of moves improves the arrangement.
    Done,
    /// This item moves first.
    Move {
        /// Index of the item.
        item: usize,
        /// Index of the target node.
        to: usize,
        /// Node of each item after the whole sequence.
        goal: Vec<Option<usize>>,
    },
    /// A better arrangement exists, but no sequence of moves leads to it.
    Blocked {
        /// Node of each item in that arrangement.
        goal: Vec<Option<usize>>,
    },
}

/// Cost of an arrangement: violations are compared first, then missed preferences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    /// Number of items that do not run or are on a forbidden node, plus the number of pairs that share a node but must not.
    violations: u32,
    /// Sum of the distances of all items from their best nodes.
    distance: u32,
}

type State = Vec<Option<usize>>;
/// The first move of a sequence: item and node.
type FirstMove = Option<(usize, usize)>;

/// Returns the next move toward the best reachable arrangement.
///
/// An arrangement is better if it has fewer violations. With equally many violations, it is better if its cost is lower
/// and every moved item improves its own distance. An item does not move only because of a preference of another item.
///
/// Guarantees:
///
/// - Each move is legal alone, with all other items on their nodes and the moved item counted on both nodes. The item
///   may use the target, which has enough capacity and holds no item that must stay apart from the moved item.
/// - Repeated calls end, because each move leads to an arrangement that is one move nearer to the same best
///   arrangement.
///
/// Beyond `MAX_STATES` arrangements, only moves that do not worsen any intermediate arrangement are considered. In
/// larger problems, some solutions are therefore not found, but each move still lowers the cost.
pub fn next_move(problem: &MoveProblem) -> NextMove {
    let start: State = problem.items.iter().map(|item| item.node).collect();
    if problem.cost(&start) == Cost::default() {
        return NextMove::Done;
    }
    let search_result = match search(problem, &start, false) {
        Search::Found { item, to, goal } => return NextMove::Move { item, to, goal },
        Search::Nothing => None,
        Search::TooLarge => Some(search(problem, &start, true)),
    };
    if let Some(Search::Found { item, to, goal }) = search_result {
        return NextMove::Move { item, to, goal };
    }
    let mut steps = 0;
    let mut best = None;
    find_best_arrangement(problem, &start, &mut Vec::new(), &mut steps, &mut best);
    best.map_or(NextMove::Done, |(_, goal)| NextMove::Blocked { goal })
}

/// Rank of a sequence of moves, lower is better: merit of the arrangement at its end, number of moves, and priority tiers.
type Rank = (Merit, usize, u32);

enum Search {
    Found { item: usize, to: usize, goal: State },
    Nothing,
    TooLarge,
}

/// Searches all reachable arrangements, breadth first. With `must_improve`, every move must lower the cost.
fn search(problem: &MoveProblem, start: &State, must_improve: bool) -> Search {
    let mut visited: BTreeSet<State> = BTreeSet::from([start.clone()]);
    let mut queue: VecDeque<(State, usize, FirstMove)> = VecDeque::from([(start.clone(), 0, None)]);
    let mut best: Option<(Rank, usize, usize, State)> = None;
    while let Some((state, depth, first_move)) = queue.pop_front() {
        if let Some((item, to)) = first_move
            && let Some(merit) = problem.merit(start, &state)
            && let rank = (merit, depth, problem.tiers(&state))
            && best.as_ref().is_none_or(|(best_rank, ..)| rank < *best_rank)
        {
            best = Some((rank, item, to, state.clone()));
        }
        let cost = problem.cost(&state);
        for (item, to) in problem.legal_moves(&state) {
            let mut after = state.clone();
            after[item] = Some(to);
            if (must_improve && problem.cost(&after) >= cost) || !visited.insert(after.clone()) {
                continue;
            }
            if visited.len() > MAX_STATES {
                if !must_improve {
                    return Search::TooLarge;
                }
                break;
            }
            queue.push_back((after, depth + 1, first_move.or(Some((item, to)))));
        }
    }
    best.map_or(Search::Nothing, |(_, item, to, goal)| Search::Found { item, to, goal })
}

/// Rank of a better arrangement, lower is better: violations, number of moved items that did not improve, missed
/// preferences.
type Merit = (u32, u32, u32);

impl MoveProblem {
    fn cost(&self, state: &State) -> Cost {
        let mut cost = Cost::default();
        for (item, node) in self.items.iter().zip(state) {
            match item.distance_at(*node) {
                Some(distance) => cost.distance += distance,
                None => cost.violations += 1,
            }
        }
        let is_shared =
            |(first, second): &&(usize, usize)| state[*first].is_some() && state[*first] == state[*second];
        cost.violations +=
            u32::try_from(self.exclusive_pairs.iter().filter(is_shared).count()).unwrap_or(u32::MAX);
        cost
    }

    /// Returns the sum of the ranks of all items' priority tiers.
    fn tiers(&self, state: &State) -> u32 {
        let rank = |(item, node): (&MovableUnit, &Option<usize>)| item.tiers.get((*node)?).copied();
        self.items.iter().zip(state).filter_map(rank).fold(0, u32::saturating_add)
    }

    /// Returns the rank of an arrangement that is better than the start; `None` if it is not better.
    fn merit(&self, start: &State, state: &State) -> Option<Merit> {
        let (before, after) = (self.cost(start), self.cost(state));
        let harmed =
            (0..self.items.len()).filter(|item| self.is_harmed(*item, start[*item], state[*item])).count();
        let harmed = u32::try_from(harmed).unwrap_or(u32::MAX);
        let is_better = after.violations < before.violations || (after < before && harmed == 0);
        is_better.then_some((after.violations, harmed, after.distance))
    }

    /// Returns `true` if the item has moved and its own distance did not improve.
    fn is_harmed(&self, item: usize, from: Option<usize>, to: Option<usize>) -> bool {
        let item = &self.items[item];
        from != to
            && match (item.distance_at(from), item.distance_at(to)) {
                (None, Some(_)) => false,
                (Some(before), Some(after)) => after >= before,
                (_, None) => true,
            }
    }

    /// Returns `true` if an item prefers a node to its current one.
    pub fn is_improved_on(&self, item: usize, to: usize) -> bool {
        !self.is_harmed(item, self.items[item].node, Some(to))
    }

    /// Returns every move that is legal now.
    fn legal_moves<'a>(&'a self, state: &'a State) -> impl Iterator<Item = (usize, usize)> + 'a {
        (0..self.items.len()).flat_map(move |item| {
            (0..self.free.len()).filter(move |to| self.may_move(item, *to, state)).map(move |to| (item, to))
        })
    }

    /// Returns `true` if an item may move to a node while all others stay.
    pub fn may_move(&self, item: usize, to: usize, state: &[Option<usize>]) -> bool {
        let is_on_target = |other: usize| other != item && state[other] == Some(to);
        let is_exclusive_with =
            |other: usize| self.exclusive_pairs.contains(&(item.min(other), item.max(other)));
        state[item] != Some(to)
            && self.items[item].distance_at(Some(to)).is_some()
            && !(0..self.items.len()).any(|other| is_on_target(other) && is_exclusive_with(other))
            && (0..3).all(|kind| {
                let (Some(free), Some(requested)) = (self.free[to][kind], self.items[item].requests[kind])
                else {
                    return true;
                };
                let used_amount: i128 = (0..self.items.len())
                    .filter(|other| is_on_target(*other))
                    .filter_map(|other| self.items[other].requests[kind])
                    .sum();
                used_amount + requested <= free
            })
    }
}

impl MovableUnit {
    /// Returns the distance of a node from the best choice of the item; `None` if the item must not be there.
    fn distance_at(&self, node: Option<usize>) -> Option<u32> {
        self.distances.get(node?).copied().flatten()
    }
}

/// Searches for the best arrangement without regard to the order of moves. The result only serves to explain why a
/// problem is blocked.
fn find_best_arrangement(
    problem: &MoveProblem,
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
        if let Some(merit) = problem.merit(start, state)
            && best.as_ref().is_none_or(|(best_merit, _)| merit < *best_merit)
        {
            *best = Some((merit, state.clone()));
        }
        return;
    }
    let current_node = start[item];
    let targets: Vec<usize> = (0..problem.free.len())
        .filter(|to| Some(*to) != current_node && problem.items[item].distance_at(Some(*to)).is_some())
        .collect();
    for node in std::iter::once(current_node).chain(targets.into_iter().map(Some)) {
        let fits = node == current_node || {
            let mut complete_state = state.clone();
            complete_state.resize(start.len(), None);
            node.is_some_and(|to| problem.may_move(item, to, &complete_state))
        };
        if fits {
            state.push(node);
            find_best_arrangement(problem, start, state, steps, best);
            state.pop();
        }
    }
}
