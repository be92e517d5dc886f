//! Tables of relieving moves, and a property: the moves end, and no target node gets too many services.

use super::*;
use crate::rebalance::tests::cluster;
use ha_api_types::cluster::SchedulerMode;
use proptest::prelude::*;

/// Returns services on these nodes. Each service has 1 core and 1 GiB, except the first service, which is larger.
fn view(nodes: &[&str], node_of_service: &[&str]) -> View {
    let names: Vec<String> = (0..node_of_service.len()).map(|index| format!("s{index}")).collect();
    let size = |index: usize| if index == 0 { 4 } else { 1 };
    let services: Vec<(&str, &str, i128, i128)> = node_of_service
        .iter()
        .enumerate()
        .map(|(index, node)| (names[index].as_str(), *node, size(index), size(index)))
        .collect();
    let mut view = cluster(nodes, &services);
    view.settings.mode = SchedulerMode::Basic;
    view.settings.auto_rebalance.enabled = false;
    view.reservation.enabled = true;
    view
}

fn next(view: &View) -> Option<Move> {
    relieve_crowded_node(view, &view.services.keys().collect(), |_| true)
}

fn check(view: &View, expected: Option<(&str, &str)>) {
    let relief = next(view);
    let said = relief.as_ref().map(|planned| (planned.service.as_str(), planned.to.as_str()));
    assert_eq!(said, expected, "{relief:?}");
}

#[test]
fn a_node_is_overloaded_from_the_fifth_service() {
    let nodes = ["n1", "n2", "n3"];
    check(&view(&nodes, &["n1", "n1", "n1", "n1", "n2", "n3"]), None);
    // The large service stays; the smallest one moves to the node with the fewest services.
    let mut view = view(&nodes, &["n1", "n1", "n1", "n1", "n1", "n2"]);
    check(&view, Some(("s1", "n3")));
    view.nodes.get_mut("n3").expect("there").schedulable = false;
    check(&view, Some(("s1", "n2")));
    view.reservation.over_utilization = 300;
    check(&view, None);
}

#[test]
fn a_node_in_maintenance_does_not_count() {
    let mut view = view(&["n1", "n2", "n3"], &["n1", "n1", "n1", "n1", "n1", "n2"]);
    view.nodes.get_mut("n3").expect("there").maintenance = true;
    // The even share is 3 now, and 5 is not more than 6.
    check(&view, None);
}

#[test]
fn services_without_live_migration_stay() {
    let mut view = view(&["n1", "n2", "n3"], &["n1", "n1", "n1", "n1", "n1", "n2"]);
    view.services.get_mut(&"s1".into()).expect("there").moves_live = false;
    view.services.get_mut(&"s2".into()).expect("there").movable = false;
    check(&view, Some(("s3", "n3")));
}

#[test]
fn auto_rebalance_keeps_the_configured_balance() {
    // One node has many small services, the other has one large service. The number of services requires a move, but
    // the load prohibits it.
    let mut view = view(&["n1", "n2"], &["n2", "n1", "n1", "n1", "n1", "n1"]);
    view.settings.mode = SchedulerMode::Static;
    view.reservation.over_utilization = 150;
    view.settings.auto_rebalance.threshold = 0.05;
    check(&view, Some(("s1", "n2")));
    view.settings.auto_rebalance.enabled = true;
    view.services.get_mut(&"s0".into()).expect("there").requests = crate::rebalance::tests::amounts(5, 5);
    check(&view, None);
}

proptest! {
    #[test]
    fn moves_terminate_without_overloading_any_node(node_of_service in proptest::collection::vec(0usize..4, 1..24), percent in 100u32..400) {
        let nodes = ["n1", "n2", "n3", "n4"];
        let node_of_service: Vec<&str> = node_of_service.into_iter().map(|index| nodes[index]).collect();
        let mut view = view(&nodes, &node_of_service);
        view.reservation.over_utilization = percent;
        let mut moves = 0;
        while let Some(planned) = next(&view) {
            let counts = ServiceCounts::of(&view);
            prop_assert!(counts.count(&planned.to).expect("there") + 1 < counts.count(&planned.from).expect("there"));
            prop_assert!(!counts.is_full(&planned.to));
            let mut moved = view.services.get_mut(&planned.service).expect("there");
            moved.node = Some(planned.to.clone());
            moved.used_nodes = BTreeSet::from([planned.to.clone()]);
            drop(moved);
            moves += 1;
            prop_assert!(moves <= node_of_service.len());
        }
        // With equal sizes and no rules, no node may keep too many services if all could be below the limit.
        let even = node_of_service.len().div_ceil(nodes.len());
        let attainable = even * nodes.len() * 100 <= node_of_service.len() * usize::try_from(percent).expect("small");
        prop_assert!(!attainable || ServiceCounts::of(&view).nodes_by_side().all(|(_, above)| !above));
    }
}
