//! Swaps, chains and cycles as tables, and a property that executes every plan.

use super::*;
use proptest::prelude::*;

/// Parses a problem with one item per word.
///
/// - `0>1`: is on node 0 and prefers node 1
/// - `0>1|2`: prefers node 1, then node 2
/// - `->1`: does not run yet
/// - `0!1`: must move to node 1
/// - `0`: accepts all nodes equally
/// - `0*`: may be only on node 0
fn problem(nodes: usize, items: &str, exclusive_pairs: &[(usize, usize)]) -> MoveProblem {
    let items: Vec<MovableUnit> = items.split_whitespace().map(|word| item(nodes, word)).collect();
    MoveProblem {
        items,
        free: vec![[None; 3]; nodes],
        exclusive_pairs: exclusive_pairs.iter().copied().collect(),
    }
}

fn item(nodes: usize, word: &str) -> MovableUnit {
    let parse_number = |text: &str| text.parse::<usize>().ok();
    let (node, distances) = if let Some((node_text, targets)) = word.split_once('>') {
        let mut distances = vec![Some(9); nodes];
        for (rank, node) in targets.split('|').filter_map(parse_number).enumerate() {
            distances[node] = Some(u32::try_from(rank).unwrap());
        }
        (parse_number(node_text), distances)
    } else if let Some((node_text, targets)) = word.split_once('!') {
        let mut distances = vec![None; nodes];
        distances[parse_number(targets).unwrap()] = Some(0);
        (parse_number(node_text), distances)
    } else if let Some(node_text) = word.strip_suffix('*').and_then(parse_number) {
        (Some(node_text), (0..nodes).map(|node| (node == node_text).then_some(0)).collect())
    } else {
        (parse_number(word), vec![Some(0); nodes])
    };
    MovableUnit { node, distances, tiers: Vec::new(), requests: [None; 3] }
}

const ALL_PAIRS: &[(usize, usize)] = &[(0, 1), (0, 2), (1, 2)];

/// Checks all moves until no step remains. A move is written as `item>node`; `blocked` at the end means that a better
/// arrangement is not reachable.
fn check(problem: &MoveProblem, expected: &str) {
    assert_eq!(run(problem).join(" "), expected, "{problem:?}");
}

fn run(problem: &MoveProblem) -> Vec<String> {
    let mut problem = problem.clone();
    let mut move_texts = Vec::new();
    for _ in 0..100 {
        match next_move(&problem) {
            NextMove::Done => return move_texts,
            NextMove::Blocked { .. } => {
                move_texts.push("blocked".to_owned());
                return move_texts;
            }
            NextMove::Move { item, to, .. } => {
                let state: Vec<_> = problem.items.iter().map(|item| item.node).collect();
                assert!(problem.may_move(item, to, &state), "{item} may not go to {to}: {problem:?}");
                problem.items[item].node = Some(to);
                move_texts.push(format!("{item}>{to}"));
            }
        }
    }
    panic!("no end: {move_texts:?}");
}

#[test]
fn a_direct_move_is_one_step() {
    check(&problem(2, "0>1", &[]), "0>1");
    check(&problem(2, "0 1", &[(0, 1)]), "");
}

#[test]
fn a_swap_uses_a_third_node() {
    check(&problem(3, "0>1 1>0", &[(0, 1)]), "0>2 1>0 0>1");
    check(&problem(2, "0>1 1>0", &[(0, 1)]), "blocked");
}

#[test]
fn move_chain_starts_with_last_item() {
    check(&problem(4, "0>1 1>2 2>3", ALL_PAIRS), "2>3 1>2 0>1");
}

#[test]
fn cycle_of_three_needs_a_fourth_node() {
    check(&problem(4, "0>1 1>2 2>0", ALL_PAIRS), "0>3 2>0 1>2 0>1");
    check(&problem(3, "0>1 1>2 2>0", ALL_PAIRS), "blocked");
}

#[test]
fn an_item_on_its_best_node_moves_for_a_violation_but_not_for_a_preference() {
    check(&problem(3, "0!1 1", &[(0, 1)]), "1>2 0>1");
    check(&problem(3, "0>1 1", &[(0, 1)]), "");
    check(&problem(3, "0!1 1*", &[(0, 1)]), "");
    check(&problem(3, "->0 0", &[(0, 1)]), "0>1");
}

#[test]
fn two_items_with_anti_affinity_separate() {
    check(&problem(2, "0 0", &[(0, 1)]), "0>1");
}

#[test]
fn three_items_with_anti_affinity_stay_on_two_nodes() {
    // Node 0 is in maintenance; the others are in use.
    let mut three = problem(3, "0 1 2", ALL_PAIRS);
    for item in &mut three.items {
        item.distances[0] = None;
    }
    check(&three, "");
}

#[test]
fn moving_item_uses_capacity_on_both_nodes() {
    let mut swap = problem(3, "0>1 1>0", &[]);
    for item in &mut swap.items {
        item.requests[1] = Some(6);
    }
    swap.free = vec![[None, Some(10), None]; 3];
    check(&swap, "0>2 1>0 0>1");
    swap.free[2] = [None, Some(5), None];
    check(&swap, "blocked");
}

fn any_problem() -> impl Strategy<Value = MoveProblem> {
    (2..=4_usize, 1..=4_usize).prop_flat_map(|(nodes, count)| {
        let item = (
            proptest::option::weighted(0.9, 0..nodes),
            proptest::collection::vec(proptest::option::weighted(0.8, 0..4_u32), nodes),
            proptest::option::weighted(0.3, 1..6_i128),
        );
        let pairs: Vec<(usize, usize)> =
            (0..count).flat_map(|first| (first + 1..count).map(move |second| (first, second))).collect();
        let max_pairs = pairs.len();
        (
            proptest::collection::vec(item, count),
            proptest::collection::vec(proptest::option::weighted(0.5, 3..12_i128), nodes),
            proptest::sample::subsequence(pairs, 0..=max_pairs),
        )
            .prop_map(|(items, capacities, exclusive_pairs)| MoveProblem {
                items: items
                    .into_iter()
                    .map(|(node, distances, memory)| MovableUnit {
                        node,
                        distances,
                        tiers: Vec::new(),
                        requests: [None, memory, None],
                    })
                    .collect(),
                free: capacities.into_iter().map(|memory| [None, memory, None]).collect(),
                exclusive_pairs: exclusive_pairs.into_iter().collect(),
            })
    })
}

proptest! {
    /// Every plan, executed in legal steps, must end, and the end must not have a higher cost than the start. No state
    /// with fewer violations may be reachable from the end, according to a separate search.
    #[test]
    fn moves_terminate_without_new_violations(problem in any_problem()) {
        let initial_cost = problem.cost(&problem.items.iter().map(|item| item.node).collect());
        let moves: Vec<(usize, usize)> = run(&problem)
            .iter()
            .filter_map(|move_text| {
                let (item, to) = move_text.split_once('>')?;
                Some((item.parse().ok()?, to.parse().ok()?))
            })
            .collect();
        let mut state: State = problem.items.iter().map(|item| item.node).collect();
        let count_violations = |state: &State| {
            problem.exclusive_pairs.iter().filter(|(first, second)| state[*first].is_some() && state[*first] == state[*second]).count()
        };
        for (item, to) in &moves {
            let violations_before = count_violations(&state);
            state[*item] = Some(*to);
            prop_assert!(count_violations(&state) <= violations_before);
        }
        prop_assert!(problem.cost(&state) <= initial_cost);
        if !moves.is_empty() {
            prop_assert!(problem.cost(&state) < initial_cost);
        }
        // No order of moves may lead to fewer violations.
        let mut reached = BTreeSet::from([state.clone()]);
        let mut unvisited = vec![state.clone()];
        while let Some(visited_state) = unvisited.pop() {
            prop_assert!(problem.cost(&visited_state).violations >= problem.cost(&state).violations);
            for (item, to) in problem.legal_moves(&visited_state).collect::<Vec<_>>() {
                let mut after = visited_state.clone();
                after[item] = Some(to);
                if reached.insert(after.clone()) {
                    unvisited.push(after);
                }
            }
        }
    }
}
