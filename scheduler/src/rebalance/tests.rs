//! Tables of rebalancing, and a property: moves end, each lowers the imbalance, and none violates a rule or a limit.

use super::*;
use crate::place::{Verdict, place};
use ha_api_types::id::ResourceName;
use ha_api_types::reason::Reason;
use proptest::prelude::*;

/// Returns amounts of cores and GiB.
pub(super) fn amounts(cpu: i128, memory: i128) -> Amounts {
    Amounts {
        cpu: Some(Quantity::from_units(cpu)),
        memory: Some(Quantity::from_units(memory << 30)),
        disk: None,
    }
}

fn service(node: &str, cpu: i128, memory: i128) -> ServiceFacts {
    ServiceFacts {
        node: Some(node.into()),
        used_nodes: BTreeSet::from([node.into()]),
        driver: Some("exec".to_owned()),
        requests: amounts(cpu, memory),
        moves_live: true,
        movable: true,
        is_desired: true,
        ..ServiceFacts::default()
    }
}

/// Returns a cluster of nodes with 16 cores and 64 GiB, and services with these nodes and requests (cores, GiB).
pub(super) fn cluster(nodes: &[&str], services: &[(&str, &str, i128, i128)]) -> View {
    let mut view = View::default();
    view.settings.mode = SchedulerMode::Static;
    view.settings.auto_rebalance.enabled = true;
    for node in nodes {
        let facts = NodeFacts { capacity: amounts(16, 64), ..NodeFacts::default() };
        view.nodes.insert((*node).into(), facts);
    }
    for (name, node, cpu, memory) in services {
        view.services.insert((*name).into(), service(node, *cpu, *memory));
    }
    view
}

fn next(view: &View) -> Option<Move> {
    best_move(view, &view.services.keys().collect(), |_, _| true)
}

fn check(view: &View, expected: Option<(&str, &str)>) {
    let next_move = next(view);
    let names = next_move.as_ref().map(|next_move| (next_move.service.as_str(), next_move.to.as_str()));
    assert_eq!(names, expected, "{next_move:?} {:?}", Loads::of(view));
}

#[test]
fn imbalance_is_the_coefficient_of_variation() {
    let check = |services: &[(&str, &str, i128, i128)], expected: f64| {
        let imbalance = Loads::of(&cluster(&["n1", "n2"], services)).imbalance();
        assert!((imbalance - expected).abs() < 1e-9, "{imbalance} {expected}");
    };
    check(&[], 0.0);
    check(&[("a", "n1", 4, 16)], 1.0);
    check(&[("a", "n1", 4, 16), ("b", "n2", 4, 16)], 0.0);
    // Shares of 0.375 and 0.125: the mean is 0.25, the standard deviation 0.125.
    check(&[("a", "n1", 4, 32), ("b", "n2", 2, 8)], 0.5);
    // The mean of both shares counts: one node has all cores in use, the other all memory.
    check(&[("a", "n1", 16, 0), ("b", "n2", 0, 64)], 0.0);
}

#[test]
fn ineligible_nodes_do_not_count() {
    let services = [("a", "n1", 4, 16), ("b", "n2", 4, 16)];
    let mut view = cluster(&["n1", "n2", "n3"], &services);
    assert!(Loads::of(&view).imbalance() > 0.7);
    view.nodes.get_mut("n3").expect("there").maintenance = true;
    assert!(Loads::of(&view).imbalance() < 1e-9);
    view = cluster(&["n1", "n2", "n3"], &services);
    view.nodes.get_mut("n3").expect("there").online = Err(Reason::Fencing);
    assert!(Loads::of(&view).imbalance() < 1e-9);
    // A node of unknown capacity does not count as empty.
    view = cluster(&["n1", "n2", "n3"], &services);
    view.nodes.get_mut("n3").expect("there").capacity = Amounts::default();
    assert!(Loads::of(&view).imbalance() < 1e-9);
    check(&view, None);
}

#[test]
fn the_move_with_the_largest_gain_is_chosen() {
    let services = [("a", "n1", 6, 24), ("b", "n1", 2, 8), ("c", "n1", 1, 4)];
    check(&cluster(&["n1", "n2"], &services), Some(("a", "n2")));
    // Both moves have the same effect, so the smaller service moves.
    check(&cluster(&["n1", "n2"], &[("a", "n1", 6, 24), ("b", "n1", 2, 8)]), Some(("b", "n2")));
    // An exchange of the loads of two nodes does not lower the imbalance.
    check(&cluster(&["n1", "n2"], &[("a", "n1", 2, 8)]), None);
    check(&cluster(&["n1", "n2"], &[("a", "n1", 2, 8), ("b", "n1", 2, 8), ("c", "n2", 2, 8)]), None);
}

#[test]
fn services_with_affinity_move_together() {
    let view_with_affinity = |services: &[(&str, &str, i128, i128)], change: fn(&mut View)| {
        let mut view = cluster(&["n1", "n2"], services);
        let resources = ["a".to_owned(), "b".to_owned()].into();
        let affinity = ha_api_types::placement::Affinity::Positive;
        let rule = ha_api_types::placement::ResourceAffinity { resources, affinity, strict: true };
        let spec =
            ha_api_types::placement::AffinityRuleSpec { resource_affinity: Some(rule), ..Default::default() };
        let nodes = view.nodes.keys().cloned().collect();
        let rules = [("together".to_owned(), spec)].into();
        let declared = crate::RuleInput { rules, nodes, ..crate::RuleInput::default() };
        view.rules = crate::Rules::compile(&declared).0;
        change(&mut view);
        view
    };
    let named_services = [("a", "n1", 2, 8), ("b", "n1", 2, 8), ("c", "n1", 5, 20)];
    let view = view_with_affinity(&named_services, |_| {});
    check(&view, Some(("a", "n2")));
    let planned = next(&view).expect("a move");
    assert_eq!(planned.companions, ["b"]);
    // Both move: n1 and n2 then use 5 and 4 cores, with a coefficient of variation of 1/9.
    assert!((planned.after - 1.0 / 9.0).abs() < 1e-9, "{planned:?}");
    // Neither `a` nor `b` moves alone.
    check(
        &view_with_affinity(&named_services, |view| {
            view.services.get_mut(&"b".into()).expect("there").moves_live = false;
        }),
        Some(("c", "n2")),
    );
    check(
        &view_with_affinity(&named_services, |view| {
            view.services.get_mut(&"b".into()).expect("there").movable = false;
        }),
        Some(("c", "n2")),
    );
    let a = "a".into();
    let only_a: BTreeSet<&ResourceName> = [&a].into();
    assert_eq!(best_move(&view, &only_a, |_, _| true), None);
    // A partner that waits for its start is scheduled first.
    let waits =
        |view: &mut View| view.services.get_mut(&"b".into()).expect("there").used_nodes = BTreeSet::new();
    check(&view_with_affinity(&named_services, waits), Some(("c", "n2")));
    // A partner that is stopped on request does not move with the service.
    let stopped = |view: &mut View| {
        let mut facts = view.services.get_mut(&"b".into()).expect("there");
        (facts.used_nodes, facts.is_desired, facts.movable) = (BTreeSet::new(), false, false);
    };
    let view = view_with_affinity(&[("a", "n1", 2, 8), ("b", "n1", 2, 8), ("c", "n1", 3, 12)], stopped);
    assert_eq!(
        next(&view).map(|planned| (planned.service, planned.companions)),
        Some(("a".into(), Vec::new()))
    );
}

#[test]
fn small_balance_gain_causes_no_move() {
    let services = [("a", "n1", 8, 32), ("b", "n1", 1, 2)];
    let mut view = cluster(&["n1", "n2"], &services);
    view.settings.auto_rebalance.margin = 0.5;
    check(&view, None);
    view.settings.auto_rebalance.margin = 0.1;
    check(&view, Some(("b", "n2")));
}

#[test]
fn immovable_services_stay() {
    let services = [("a", "n1", 6, 24), ("b", "n1", 4, 16)];
    let check_stays = |change: fn(&mut View), expected: Option<(&str, &str)>| {
        let mut view = cluster(&["n1", "n2"], &services);
        change(&mut view);
        check(&view, expected);
    };
    check_stays(|_| {}, Some(("b", "n2")));
    check_stays(
        |view| view.services.get_mut(&"b".into()).expect("there").moves_live = false,
        Some(("a", "n2")),
    );
    check_stays(|view| view.services.get_mut(&"b".into()).expect("there").movable = false, Some(("a", "n2")));
    check_stays(
        |view| view.services.get_mut(&"b".into()).expect("there").maintenance_node = Some("n2".into()),
        Some(("a", "n2")),
    );
    check_stays(
        |view| {
            view.services.get_mut(&"b".into()).expect("there").failed_nodes = BTreeSet::from(["n2".into()]);
        },
        Some(("a", "n2")),
    );
    check_stays(|view| view.nodes.get_mut("n2").expect("there").schedulable = false, None);
    // On the lower priority tier of its group, the service would move back immediately.
    check_stays(
        |view| {
            let nodes = ha_api_types::placement::NodePriorities(
                [("n1".into(), 2), ("n2".into(), 1)].into_iter().collect(),
            );
            let group = ha_api_types::placement::GroupSpec { nodes, ..Default::default() };
            view.groups.insert("g".to_owned(), group);
            view.services.get_mut(&"b".into()).expect("there").group = Some("g".to_owned());
        },
        Some(("a", "n2")),
    );
}

#[test]
fn dynamic_mode_uses_measurements() {
    let mut view = cluster(&["n1", "n2"], &[("a", "n1", 1, 1), ("b", "n1", 1, 1), ("c", "n2", 8, 32)]);
    check(&view, None);
    view.settings.mode = SchedulerMode::Dynamic;
    view.services.get_mut(&"a".into()).expect("there").measured = amounts(6, 24);
    view.services.get_mut(&"b".into()).expect("there").measured = amounts(5, 20);
    view.services.get_mut(&"c".into()).expect("there").measured = amounts(0, 1);
    check(&view, Some(("b", "n2")));
}

#[test]
fn topsis_compares_the_results_of_moves() {
    // The mean of the shares is equally balanced after moving `a` or `b`. Moving `b` also balances memory, which has more
    // weight.
    let services = [("a", "n1", 8, 2), ("b", "n1", 1, 30), ("c", "n2", 0, 4), ("d", "n1", 0, 30)];
    let mut view = cluster(&["n1", "n2"], &services);
    check(&view, Some(("a", "n2")));
    view.settings.auto_rebalance.method = RebalanceMethod::Topsis;
    let planned = next(&view).expect("a move lowers the imbalance");
    assert_ne!(planned.service, "a", "memory has the imbalance: {planned:?}");
}

proptest! {
    #[test]
    fn moves_terminate_and_each_improves_balance(
        placed in proptest::collection::vec((0..4_usize, 0..8_i128, 0..24_i128), 0..14),
        topsis in any::<bool>(),
    ) {
        let names: Vec<String> = (0..placed.len()).map(|index| format!("s{index}")).collect();
        let nodes = ["n1", "n2", "n3", "n4"];
        let services: Vec<(&str, &str, i128, i128)> = placed
            .iter()
            .zip(&names)
            .map(|((node, cpu, memory), name)| (name.as_str(), nodes[*node], *cpu, *memory))
            .collect();
        let mut view = cluster(&nodes, &services);
        if topsis {
            view.settings.auto_rebalance.method = RebalanceMethod::Topsis;
        }
        let mut moves = 0;
        while let Some(planned) = next(&view) {
            let before = Loads::of(&view).imbalance();
            prop_assert!((before - planned.before).abs() < 1e-9);
            let facts = view.services.get(&planned.service).expect("there").clone();
            let verdict = place(&view, &planned.service, &facts).verdicts.remove(&planned.to);
            prop_assert!(matches!(verdict, Some(Verdict::Allowed(_))), "{planned:?} {verdict:?}");
            let mut moved = view.services.get_mut(&planned.service).expect("there");
            moved.node = Some(planned.to.clone());
            moved.used_nodes = BTreeSet::from([planned.to.clone()]);
            drop(moved);
            // The incremental result for one move must equal a full computation after the move.
            let after = Loads::of(&view).imbalance();
            prop_assert!((after - planned.after).abs() < 1e-6, "{after} {planned:?}");
            prop_assert!(after <= before * 0.9 + 1e-9);
            // The service must stay on the target without further moves.
            let next_placement = place(&view, &planned.service, &view.services[&planned.service]);
            prop_assert_eq!(next_placement.node.as_deref(), Some(planned.to.as_str()));
            moves += 1;
            prop_assert!(moves < 200, "the sequence of moves does not end");
        }
    }
}
