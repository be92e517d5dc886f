//! Swaps, chains and cycles as tables, and a property that executes every plan.

use super::*;
use proptest::prelude::*;

/// Parses a puzzle with one item per word.
///
/// - `0>1`: is on node 0 and prefers node 1
/// - `0>1|2`: prefers node 1, then node 2
/// - `->1`: does not run yet
/// - `0!1`: must move to node 1
/// - `0`: accepts all nodes equally
/// - `0*`: may be only on node 0
fn puzzle(nodes: usize, items: &str, apart: &[(usize, usize)]) -> Puzzle {
    let items: Vec<Item> = items.split_whitespace().map(|word| item(nodes, word)).collect();
    Puzzle { items, room: vec![[None; 3]; nodes], apart: apart.iter().copied().collect() }
}

fn item(nodes: usize, word: &str) -> Item {
    let number = |text: &str| text.parse::<usize>().ok();
    let (place, wishes) = if let Some((place, wants)) = word.split_once('>') {
        let mut wishes = vec![Some(9); nodes];
        for (rank, node) in wants.split('|').filter_map(number).enumerate() {
            wishes[node] = Some(u32::try_from(rank).unwrap());
        }
        (number(place), wishes)
    } else if let Some((place, wants)) = word.split_once('!') {
        let mut wishes = vec![None; nodes];
        wishes[number(wants).unwrap()] = Some(0);
        (number(place), wishes)
    } else if let Some(place) = word.strip_suffix('*').and_then(number) {
        (Some(place), (0..nodes).map(|node| (node == place).then_some(0)).collect())
    } else {
        (number(word), vec![Some(0); nodes])
    };
    Item { place, wishes, tiers: Vec::new(), requests: [None; 3] }
}

const ALL: &[(usize, usize)] = &[(0, 1), (0, 2), (1, 2)];

/// Checks all moves until no step is left, as `item>node`. `blocked` at the end means that a better arrangement is not
/// reachable.
fn check(puzzle: &Puzzle, expected: &str) {
    assert_eq!(run(puzzle).join(" "), expected, "{puzzle:?}");
}

fn run(puzzle: &Puzzle) -> Vec<String> {
    let mut puzzle = puzzle.clone();
    let mut told = Vec::new();
    for _ in 0..100 {
        match next(&puzzle) {
            Next::Rest => return told,
            Next::Blocked { .. } => {
                told.push("blocked".to_owned());
                return told;
            }
            Next::Move { item, to, .. } => {
                let state: Vec<_> = puzzle.items.iter().map(|item| item.place).collect();
                assert!(puzzle.may_go(item, to, &state), "{item} may not go to {to}: {puzzle:?}");
                puzzle.items[item].place = Some(to);
                told.push(format!("{item}>{to}"));
            }
        }
    }
    panic!("no end: {told:?}");
}

#[test]
fn what_can_be_had_directly_is_one_move() {
    check(&puzzle(2, "0>1", &[]), "0>1");
    check(&puzzle(2, "0 1", &[(0, 1)]), "");
}

#[test]
fn a_swap_goes_through_a_third_node() {
    check(&puzzle(3, "0>1 1>0", &[(0, 1)]), "0>2 1>0 0>1");
    check(&puzzle(2, "0>1 1>0", &[(0, 1)]), "blocked");
}

#[test]
fn a_chain_is_moved_from_its_end() {
    check(&puzzle(4, "0>1 1>2 2>3", ALL), "2>3 1>2 0>1");
}

#[test]
fn a_circle_of_three_is_solved_with_a_fourth_node_and_says_so_without() {
    check(&puzzle(4, "0>1 1>2 2>0", ALL), "0>3 2>0 1>2 0>1");
    check(&puzzle(3, "0>1 1>2 2>0", ALL), "blocked");
}

#[test]
fn who_is_content_makes_room_for_what_must_be_and_not_for_a_wish() {
    check(&puzzle(3, "0!1 1", &[(0, 1)]), "1>2 0>1");
    check(&puzzle(3, "0>1 1", &[(0, 1)]), "");
    check(&puzzle(3, "0!1 1*", &[(0, 1)]), "");
    check(&puzzle(3, "->0 0", &[(0, 1)]), "0>1");
}

#[test]
fn two_that_must_be_apart_part() {
    check(&puzzle(2, "0 0", &[(0, 1)]), "0>1");
}

#[test]
fn three_on_two_nodes_stay() {
    // Node 0 is in maintenance; the others are in use.
    let mut three = puzzle(3, "0 1 2", ALL);
    for item in &mut three.items {
        item.wishes[0] = None;
    }
    check(&three, "");
}

#[test]
fn room_counts_on_both_nodes() {
    let mut swap = puzzle(3, "0>1 1>0", &[]);
    for item in &mut swap.items {
        item.requests[1] = Some(6);
    }
    swap.room = vec![[None, Some(10), None]; 3];
    check(&swap, "0>2 1>0 0>1");
    swap.room[2] = [None, Some(5), None];
    check(&swap, "blocked");
}

fn any_puzzle() -> impl Strategy<Value = Puzzle> {
    (2..=4_usize, 1..=4_usize).prop_flat_map(|(nodes, count)| {
        let item = (
            proptest::option::weighted(0.9, 0..nodes),
            proptest::collection::vec(proptest::option::weighted(0.8, 0..4_u32), nodes),
            proptest::option::weighted(0.3, 1..6_i128),
        );
        let pairs: Vec<(usize, usize)> =
            (0..count).flat_map(|one| (one + 1..count).map(move |other| (one, other))).collect();
        let most = pairs.len();
        (
            proptest::collection::vec(item, count),
            proptest::collection::vec(proptest::option::weighted(0.5, 3..12_i128), nodes),
            proptest::sample::subsequence(pairs, 0..=most),
        )
            .prop_map(|(items, room, apart)| Puzzle {
                items: items
                    .into_iter()
                    .map(|(place, wishes, memory)| Item {
                        place,
                        wishes,
                        tiers: Vec::new(),
                        requests: [None, memory, None],
                    })
                    .collect(),
                room: room.into_iter().map(|memory| [None, memory, None]).collect(),
                apart: apart.into_iter().collect(),
            })
    })
}

proptest! {
    /// Executed step by step, with each step legal, every plan must end, and its end must not cost more than its start. No
    /// state with fewer violations may be reachable from the end, according to a separate search.
    #[test]
    fn it_always_ends_and_never_breaks_a_rule_on_the_way(puzzle in any_puzzle()) {
        let before = puzzle.cost(&puzzle.items.iter().map(|item| item.place).collect());
        let moves: Vec<(usize, usize)> = run(&puzzle)
            .iter()
            .filter_map(|told| {
                let (item, to) = told.split_once('>')?;
                Some((item.parse().ok()?, to.parse().ok()?))
            })
            .collect();
        let mut state: State = puzzle.items.iter().map(|item| item.place).collect();
        let broken = |state: &State| {
            puzzle.apart.iter().filter(|(one, other)| state[*one].is_some() && state[*one] == state[*other]).count()
        };
        for (item, to) in &moves {
            let was = broken(&state);
            state[*item] = Some(*to);
            prop_assert!(broken(&state) <= was);
        }
        prop_assert!(puzzle.cost(&state) <= before);
        if !moves.is_empty() {
            prop_assert!(puzzle.cost(&state) < before);
        }
        // No order of moves may lead to fewer violations.
        let mut reached = BTreeSet::from([state.clone()]);
        let mut open = vec![state.clone()];
        while let Some(at) = open.pop() {
            prop_assert!(puzzle.cost(&at).hard >= puzzle.cost(&state).hard);
            for (item, to) in puzzle.moves(&at).collect::<Vec<_>>() {
                let mut after = at.clone();
                after[item] = Some(to);
                if reached.insert(after.clone()) {
                    open.push(after);
                }
            }
        }
    }
}
