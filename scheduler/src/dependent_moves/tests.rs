//! Tests of the order of moves on whole views.

use super::*;
use crate::rules::{RuleInput, Rules};
use crate::view::NodeFacts;
use ha_api_types::id::NodeName;
use ha_api_types::placement::{Affinity, AffinityRuleSpec, GroupSpec, NodePriorities, ResourceAffinity};

/// Parses services: `a@1>2` is on node1, and its group prefers node2 to all others; `a@1~2` has the same group without
/// failback; `a@1` is on node1 without a preference.
fn cluster(nodes: usize, services: &[&str], rules: &[(Affinity, &[&str])]) -> View {
    let mut view = View::default();
    for number in 1..=nodes {
        view.nodes.insert(format!("node{number}").into(), NodeFacts::default());
    }
    let mut declared = RuleInput { nodes: view.nodes.keys().cloned().collect(), ..RuleInput::default() };
    for text in services {
        let (name, placement_text) = text.split_once('@').unwrap();
        let failback = !placement_text.contains('~');
        let (place, wants) = placement_text
            .split_once(['>', '~'])
            .map_or((placement_text, None), |(place, wants)| (place, Some(wants)));
        let node = NodeName::from(format!("node{place}"));
        let mut facts = ServiceFacts {
            node: Some(node.clone()),
            used_nodes: BTreeSet::from([node]),
            driver: Some("simulated".to_owned()),
            failback,
            is_desired: true,
            movable: true,
            ..ServiceFacts::default()
        };
        if let Some(wants) = wants {
            let nodes = NodePriorities(BTreeMap::from([(format!("node{wants}").into(), 1)]));
            view.groups.insert(name.to_owned(), GroupSpec { nodes, ..GroupSpec::default() });
            facts.group = Some(name.to_owned());
        }
        view.services.insert(name.into(), facts);
    }
    for (index, (affinity, resources)) in rules.iter().enumerate() {
        let resources = resources.iter().map(|name| (*name).to_owned()).collect();
        let rule = ResourceAffinity { resources, affinity: *affinity, strict: true };
        let spec = AffinityRuleSpec { resource_affinity: Some(rule), ..AffinityRuleSpec::default() };
        declared.rules.insert(format!("rule{index}"), spec);
    }
    let (rules, conflicts) = Rules::compile(&declared);
    assert_eq!(conflicts, []);
    view.rules = rules;
    view
}

/// Checks the moves: services and their target nodes.
fn check(view: &View, expected: &str) {
    let dependent_moves = dependent_moves(view);
    let planned_moves: Vec<String> = dependent_moves
        .iter()
        .filter_map(|(name, order_number)| match order_number {
            MoveStep::Move { to, .. } => Some(format!("{name}>{}", to.trim_start_matches("node"))),
            MoveStep::Wait { .. } => None,
            MoveStep::Blocked { .. } => Some(format!("{name} blocked")),
        })
        .collect();
    assert_eq!(planned_moves.join(" "), expected, "{dependent_moves:?}");
}

#[test]
fn satisfied_services_do_not_move() {
    let anti_affinity = [(Affinity::Negative, ["a", "b"].as_slice())];
    let view = cluster(3, &["a@1", "b@2"], &anti_affinity);
    assert_eq!(dependent_moves(&view), BTreeMap::new());
    // Without a conflict, the service moves independently.
    assert_eq!(dependent_moves(&cluster(3, &["a@1>2", "b@2"], &[])), BTreeMap::new());
}

#[test]
fn a_swap_with_anti_affinity_uses_a_free_node() {
    let anti_affinity = [(Affinity::Negative, ["a", "b"].as_slice())];
    check(&cluster(3, &["a@1>2", "b@2>1"], &anti_affinity), "a>3");
    check(&cluster(3, &["a@3>2", "b@2>1"], &anti_affinity), "b>1");
    check(&cluster(2, &["a@1>2", "b@2>1"], &anti_affinity), "a blocked b blocked");
}

#[test]
fn blocked_move_names_services_rules_and_fix() {
    let anti_affinity = [(Affinity::Negative, ["a", "b"].as_slice())];
    let dependent_moves = dependent_moves(&cluster(2, &["a@1>2", "b@2>1"], &anti_affinity));
    let Some(MoveStep::Blocked { message }) = dependent_moves.get("a") else { panic!("{dependent_moves:?}") };
    for part in ["move to node2", "b is on node2 (rule rule0) and waits for node1", "Allow one of these"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn other_services_wait_during_a_move() {
    let anti_affinity = [(Affinity::Negative, ["a", "b"].as_slice())];
    let mut view = cluster(3, &["a@1>2", "b@2>1"], &anti_affinity);
    let mut a = view.services.get_mut(&"a".into()).unwrap();
    a.used_nodes.insert("node3".into());
    a.movable = false;
    drop(a);
    let dependent_moves = dependent_moves(&view);
    let hold = MoveStep::Wait { message: "Waiting until a has moved, one service at a time".to_owned() };
    assert_eq!(dependent_moves, BTreeMap::from([("b".into(), hold)]));
}

#[test]
fn a_partner_moves_for_maintenance_but_not_for_a_preference() {
    let anti_affinity = [(Affinity::Negative, ["a", "b"].as_slice())];
    let mut view = cluster(3, &["a@1", "b@2"], &anti_affinity);
    view.nodes.get_mut("node1").unwrap().maintenance = true;
    check(&view, "a>3");
    // The node of b is the only other node that a may use.
    view.services.get_mut(&"a".into()).unwrap().storage_pool = Some("pool".to_owned());
    for node in ["node1", "node2"] {
        view.nodes.get_mut(node).unwrap().storage_pools.insert("pool".to_owned());
    }
    check(&view, "b>3");
    view.nodes.get_mut("node1").unwrap().maintenance = false;
    check(&view, "");
}

#[test]
fn services_with_affinity_move_as_one() {
    let rules = [(Affinity::Positive, ["a", "c"].as_slice()), (Affinity::Negative, ["a", "b"].as_slice())];
    check(&cluster(3, &["a@1>2", "c@1", "b@2>1"], &rules), "a>3 c>3");
}

#[test]
fn a_swap_without_memory_uses_a_free_node() {
    let mut view = cluster(3, &["a@1>2", "b@2>1"], &[]);
    for node in view.nodes.values_mut() {
        node.capacity.memory = "10Gi".parse().ok();
    }
    view.services.change_all(|_, service| {
        service.requests.memory = "6Gi".parse().ok();
    });
    check(&view, "a>3");
    view.nodes.get_mut("node3").unwrap().capacity.memory = "5Gi".parse().ok();
    check(&view, "a blocked b blocked");
}

#[test]
fn service_that_gains_preference_is_moved() {
    let check = |services: &[&str], expected: &str| {
        check(&cluster(3, services, &[(Affinity::Negative, &["a", "b"])]), expected);
    };
    check(&["a@1", "b@1"], "a>2");
    check(&["a@1", "b@1~2"], "b>2");
    check(&["a@1", "b@1~3"], "b>3");
    check(&["a@1~3", "b@1"], "a>3");
    // The other service would lose its preferred node.
    check(&["a@1~1", "b@1"], "b>2");
    check(&["a@1", "b@1~1"], "a>2");
    check(&["a@1~1", "b@1~2"], "b>2");
    // A preference alone causes no move.
    check(&["a@1~2", "b@3"], "");
}
