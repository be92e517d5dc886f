//! Tables of load in modes Static and Dynamic, on equal nodes with different services.

use super::*;
use crate::place::place;
use crate::view::NodeFacts;
use ha_api_types::id::ResourceName;
use ha_api_types::reason::Reason;
use proptest::prelude::*;

/// Returns amounts of cores and GiB.
fn amounts(cpu: i128, memory: i128) -> Amounts {
    Amounts {
        cpu: Some(Quantity::from_units(cpu)),
        memory: Some(Quantity::from_units(memory << 30)),
        disk: None,
    }
}

fn service(node: Option<&str>, requests: Amounts, measured: Amounts) -> ServiceFacts {
    ServiceFacts {
        node: node.map(Into::into),
        used_nodes: node.map(Into::into).into_iter().collect(),
        driver: Some("exec".to_owned()),
        requests,
        measured,
        is_desired: true,
        movable: node.is_some(),
        ..ServiceFacts::default()
    }
}

/// Returns a cluster in which node1 has one service that uses more than its requests, and node2 has two services that
/// use less than their requests.
fn cluster(mode: SchedulerMode) -> View {
    let mut view = View::default();
    view.settings.mode = mode;
    for node in ["node1", "node2"] {
        let facts = NodeFacts { capacity: amounts(16, 64), ..NodeFacts::default() };
        view.nodes.insert(node.into(), facts);
    }
    let busy = service(Some("node1"), amounts(1, 2), amounts(6, 30));
    view.services.insert("busy".into(), busy);
    for name in ["idle1", "idle2"] {
        view.services.insert(name.into(), service(Some("node2"), amounts(2, 8), amounts(0, 1)));
    }
    view
}

fn check(view: &View, service: &ServiceFacts, node: &str) {
    let placement = place(view, &"new".into(), service);
    let name = "new".into();
    let unit = PlacementUnit::of_single_service(&name, service);
    let descriptions: Vec<_> = view.nodes.keys().map(|node| describe_load(view, &unit, node)).collect();
    assert_eq!(placement.node.as_deref(), Some(node), "{:?} {descriptions:?}", placement.verdicts);
}

#[test]
fn dynamic_mode_uses_measurements() {
    let new = service(None, amounts(1, 4), Amounts::default());
    check(&cluster(SchedulerMode::Basic), &new, "node1");
    check(&cluster(SchedulerMode::Static), &new, "node1");
    check(&cluster(SchedulerMode::Dynamic), &new, "node2");
}

#[test]
fn missing_measurements_count_as_requests() {
    let mut view = cluster(SchedulerMode::Dynamic);
    let new = service(None, amounts(1, 4), Amounts::default());
    for name in ["idle1", "idle2"] {
        view.services.insert(name.into(), service(Some("node2"), amounts(2, 20), Amounts::default()));
    }
    check(&view, &new, "node1");
    // Measured and requested values are chosen for each amount separately: here, memory was measured, and cpu was not.
    for name in ["idle1", "idle2"] {
        let memory = Amounts { cpu: None, ..amounts(0, 1) };
        view.services.insert(name.into(), service(Some("node2"), amounts(2, 20), memory));
    }
    check(&view, &new, "node2");
}

#[test]
fn external_node_usage_counts() {
    let mut view = cluster(SchedulerMode::Dynamic);
    let new = service(None, amounts(1, 4), Amounts::default());
    view.nodes.get_mut("node2").expect("there").reserved = amounts(1, 40);
    check(&view, &new, "node1");
}

/// Returns the loads of the two nodes.
fn loads_of(view: &View, unit: &PlacementUnit<'_>) -> Vec<u64> {
    let query = PlacementQuery::of(view, unit);
    let candidates: Vec<_> = query.candidates().take(2).collect();
    loads(&query, &candidates)
}

#[test]
fn a_node_that_is_not_online_does_not_count() {
    let mut view = cluster(SchedulerMode::Dynamic);
    let facts = NodeFacts { online: Err(Reason::Fencing), capacity: amounts(16, 64), ..NodeFacts::default() };
    view.nodes.insert("node3".into(), facts);
    view.services.insert("lost".into(), service(Some("node3"), amounts(1, 1), amounts(16, 64)));
    let new = service(None, amounts(1, 4), Amounts::default());
    let name = "new".into();
    let unit = PlacementUnit::of_single_service(&name, &new);
    let with = loads_of(&view, &unit);
    view.services.remove(&"lost".into());
    assert_eq!(loads_of(&view, &unit), with);
}

#[test]
fn hard_limits_use_requests_in_every_mode() {
    // A service that uses less than its requests may use all of them later, so its requests count.
    let mut view = cluster(SchedulerMode::Dynamic);
    view.services.insert("idle3".into(), service(Some("node2"), amounts(0, 46), amounts(0, 1)));
    check(&view, &service(None, amounts(1, 4), Amounts::default()), "node1");
}

#[test]
fn a_moving_partner_counts_once() {
    let mut view = cluster(SchedulerMode::Static);
    let (web, partner_name) =
        (service(Some("node1"), amounts(1, 8), Amounts::default()), ResourceName::from("partner"));
    view.services.insert(partner_name.clone(), web.clone());
    let partner = view.services.get(&partner_name).cloned().expect("there");
    let new = "new".into();
    let unit = PlacementUnit::new(vec![(&new, &web), (&partner_name, &partner)]);
    let loads_with_partner = loads_of(&view, &unit);
    view.services.remove(&partner_name);
    assert_eq!(loads_of(&view, &unit), loads_with_partner);
}

#[test]
fn the_description_contains_measurements() {
    let view = cluster(SchedulerMode::Dynamic);
    let new = service(None, amounts(1, 4), Amounts::default());
    let check = |view: &View, node: &str, expected: Option<&str>| {
        assert_eq!(
            describe_load(view, &PlacementUnit::of_single_service(&"new".into(), &new), &node.into())
                .as_deref(),
            expected,
            "{node}"
        );
    };
    check(
        &view,
        "node1",
        Some(
            "load with the service: cpu 7 of 16 (44 %), memory 34Gi of 64Gi (53 %); measured busy: cpu 6 memory 30Gi; \
             requested new: cpu 1 memory 4Gi",
        ),
    );
    check(
        &view,
        "node2",
        Some(
            "load with the service: cpu 1 of 16 (6 %), memory 6Gi of 64Gi (9 %); measured idle1 and 1 more: cpu 0 memory 2Gi; \
             requested new: cpu 1 memory 4Gi",
        ),
    );
    check(
        &cluster(SchedulerMode::Static),
        "node1",
        Some(
            "load with the service: cpu 2 of 16 (12 %), memory 6Gi of 64Gi (9 %); requested new and 1 more: cpu 2 memory 6Gi",
        ),
    );
    check(&cluster(SchedulerMode::Basic), "node1", None);
}

proptest! {
    /// The columns after a change must equal those computed by definition from the shares of all nodes.
    #[test]
    fn incremental_columns_equal_full_computation(
        nodes in proptest::collection::vec((1i128..20, 0i128..40, 1i128..64, 0i128..64), 2..8),
        (from, to, cpu, memory) in (0usize..8, 0usize..8, 0i128..4, 0i128..8),
    ) {
        let mut view = View::default();
        for (index, (cpu, used_cpu, memory, used_memory)) in nodes.iter().enumerate() {
            let facts = NodeFacts { capacity: amounts(*cpu, *memory), ..NodeFacts::default() };
            view.nodes.insert(format!("n{index}").into(), facts);
            let user = service(Some(&format!("n{index}")), amounts(*used_cpu, *used_memory), Amounts::default());
            view.services.insert(format!("s{index}").into(), user);
        }
        let (from, to) = (from % nodes.len(), to % nodes.len());
        let load = cpu_and_memory(&sums(&amounts(cpu, memory)));
        let changes = [(from, load.map(|load| -load)), (to, load)];
        let changes = if from == to { &[][..] } else { &changes[..] };
        let empty_unit = PlacementUnit::new(Vec::new());
        let query = PlacementQuery::of(&view, &empty_unit);
        let online_nodes = OnlineNodes::new(&query);
        let columns = online_nodes.columns(changes);
        for at in 0..2 {
            let share = |(index, node): (usize, &OnlineNode<'_>)| {
                let change = changes.iter().find(|(changed, _)| *changed == index);
                (node.used[at] + change.map_or(0.0, |(_, change)| change[at])) / node.capacity[at]
            };
            let shares: Vec<f64> = online_nodes.nodes.iter().enumerate().map(share).collect();
            let mean = shares.iter().map(|share| share * share).sum::<f64>() / shares.len() as f64;
            prop_assert!((columns[2 * at] - mean.sqrt()).abs() < 1e-9);
            prop_assert!((columns[2 * at + 1] - shares.iter().copied().fold(0.0, f64::max)).abs() < 1e-9);
        }
    }
}
