//! Tests of replicated services on the live cluster: the services whose data a plan copies, and the target nodes.

use super::*;
use crate::balance::moves::execute;

/// Checks the placements to which one step may move `a`, as `primary:secondary`.
#[track_caller]
fn check(view: &View, expected: &[&str]) {
    let cluster = live(view);
    let problem = problem(view);
    let of_a = |service: &crate::balance::problem::ProblemService| {
        service.instances().any(|instance| cluster.instances[instance].name == "a")
    };
    let service = problem.services.iter().position(of_a).expect("the service");
    let from = problem.start_placements[service];
    let mut state = State::new(&problem, &problem.start_placements);
    let mut destinations = Vec::new();
    let nodes = 0..problem.nodes.len();
    for (primary, secondary) in
        nodes.clone().flat_map(|primary| nodes.clone().map(move |other| (primary, other)))
    {
        let to = Placement { primary, secondary: Some(secondary) };
        if primary != secondary && execute(&mut state, service, to).is_some() {
            let name = |node: usize| cluster.nodes[problem.nodes[node].cluster_node].name.as_str();
            destinations.push(format!("{}:{}", name(primary), name(secondary)));
            state.restore(service, from);
        }
    }
    assert_eq!(destinations, expected);
}

/// Returns a view in which `a` runs on n1 with data on n1 and n3, and `b` runs on n2.
fn replicated(change: fn(&mut View)) -> View {
    let mut view = view(&[("a", "n1"), ("b", "n2")]);
    {
        let mut a = a(&mut view);
        a.storage_nodes = Some(names(&["n1", "n3"]));
        a.storage_pool = Some("pool".to_owned());
        a.replaces_secondary = true;
    }
    change(&mut view);
    view
}

#[test]
fn a_driver_that_replaces_secondaries_allows_moves_to_other_nodes() {
    check(&replicated(|_| {}), &["n1:n2", "n2:n1", "n2:n3", "n3:n1", "n3:n2"]);
    check(&replicated(|view| a(view).replaces_secondary = false), &["n3:n1"]);
}

#[test]
fn the_new_secondary_must_be_eligible_and_have_disk_space() {
    let only_the_roles_change = ["n3:n1"];
    check(
        &replicated(|view| view.nodes.get_mut("n2").unwrap().storage_pools.clear()),
        &only_the_roles_change,
    );
    check(&replicated(|view| view.nodes.get_mut("n2").unwrap().maintenance = true), &only_the_roles_change);
    let full = replicated(|view| {
        a(view).requests.disk = gib(60);
        view.services.get_mut(&"b".into()).unwrap().requests.disk = gib(60);
    });
    check(&full, &only_the_roles_change);
}

#[test]
fn stopped_services_and_units_keep_their_secondary() {
    let stopped = replicated(|view| stop(view, "a"));
    check(&stopped, &["n3:n1"]);
    check(&replicated(|view| a(view).movable = false), &[]);
    let pair = replicated(|view| {
        let like_a = view.services["a"].clone();
        view.services.insert("c".into(), like_a);
    });
    let affinity = resource_rule(&["a", "c"], Affinity::Positive, true);
    check(&with_rules(pair, &[("pair", affinity)]), &["n3:n1"]);
}

#[test]
fn secondaries_leave_a_drained_node() {
    let view = replicated(|view| n3(view).maintenance = true);
    let problem = problem(&view);
    let plan = search(&problem, &Goal::default(), &TimeLimit::unlimited());
    let steps: Vec<(Option<usize>, Option<usize>)> =
        plan.steps.iter().map(|step| (step.from.secondary, step.to.secondary)).collect();
    assert_eq!(steps.first(), Some(&(Some(2), Some(1))), "{plan:?}");
}
