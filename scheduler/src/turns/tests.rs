//! Tests of the order of moves on whole views.

use super::*;
use crate::rules::{Declared, Rules};
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
    let mut declared = Declared { nodes: view.nodes.keys().cloned().collect(), ..Declared::default() };
    for text in services {
        let (name, rest) = text.split_once('@').unwrap();
        let failback = !rest.contains('~');
        let (place, wants) =
            rest.split_once(['>', '~']).map_or((rest, None), |(place, wants)| (place, Some(wants)));
        let node = NodeName::from(format!("node{place}"));
        let mut facts = ServiceFacts {
            node: Some(node.clone()),
            uses: BTreeSet::from([node]),
            driver: Some("simulated".to_owned()),
            failback,
            wanted: true,
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
    for (at, (affinity, resources)) in rules.iter().enumerate() {
        let resources = resources.iter().map(|name| (*name).to_owned()).collect();
        let rule = ResourceAffinity { resources, affinity: *affinity, strict: true };
        let spec = AffinityRuleSpec { resource_affinity: Some(rule), ..AffinityRuleSpec::default() };
        declared.rules.insert(format!("rule{at}"), spec);
    }
    let (rules, conflicts) = Rules::compile(&declared);
    assert_eq!(conflicts, []);
    view.rules = rules;
    view
}

/// Checks which services move to which nodes.
fn check(view: &View, expected: &str) {
    let turns = turns(view);
    let goes: Vec<String> = turns
        .iter()
        .filter_map(|(name, turn)| match turn {
            Turn::Go { to, .. } => Some(format!("{name}>{}", to.trim_start_matches("node"))),
            Turn::Hold { .. } => None,
            Turn::Blocked { .. } => Some(format!("{name} blocked")),
        })
        .collect();
    assert_eq!(goes.join(" "), expected, "{turns:?}");
}

#[test]
fn nobody_is_named_where_all_is_well() {
    let apart = [(Affinity::Negative, ["a", "b"].as_slice())];
    let view = cluster(3, &["a@1", "b@2"], &apart);
    assert_eq!(turns(&view), BTreeMap::new());
    // Without a conflict, the service moves independently.
    assert_eq!(turns(&cluster(3, &["a@1>2", "b@2"], &[])), BTreeMap::new());
}

#[test]
fn a_swap_of_two_apart_goes_over_a_free_node() {
    let apart = [(Affinity::Negative, ["a", "b"].as_slice())];
    check(&cluster(3, &["a@1>2", "b@2>1"], &apart), "a>3");
    check(&cluster(3, &["a@3>2", "b@2>1"], &apart), "b>1");
    check(&cluster(2, &["a@1>2", "b@2>1"], &apart), "a blocked b blocked");
}

#[test]
fn blocked_says_who_is_where_by_which_rule_and_what_would_help() {
    let apart = [(Affinity::Negative, ["a", "b"].as_slice())];
    let turns = turns(&cluster(2, &["a@1>2", "b@2>1"], &apart));
    let Some(Turn::Blocked { message }) = turns.get("a") else { panic!("{turns:?}") };
    for part in ["move to node2", "b is on node2 (rule rule0) and waits for node1", "Allow one of these"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn while_one_moves_the_others_hold() {
    let apart = [(Affinity::Negative, ["a", "b"].as_slice())];
    let mut view = cluster(3, &["a@1>2", "b@2>1"], &apart);
    let mut a = view.services.get_mut(&"a".into()).unwrap();
    a.uses.insert("node3".into());
    a.movable = false;
    drop(a);
    let turns = turns(&view);
    let hold = Turn::Hold { message: "Waiting until a has moved, one service at a time".to_owned() };
    assert_eq!(turns, BTreeMap::from([("b".into(), hold)]));
}

#[test]
fn a_content_partner_makes_room_in_maintenance_and_not_for_a_wish() {
    let apart = [(Affinity::Negative, ["a", "b"].as_slice())];
    let mut view = cluster(3, &["a@1", "b@2"], &apart);
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
fn those_that_stay_together_move_as_one_item() {
    let rules = [(Affinity::Positive, ["a", "c"].as_slice()), (Affinity::Negative, ["a", "b"].as_slice())];
    check(&cluster(3, &["a@1>2", "c@1", "b@2>1"], &rules), "a>3 c>3");
}

#[test]
fn a_swap_for_want_of_memory_goes_over_a_free_node() {
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
fn of_two_that_a_rule_separates_the_one_that_gains_moves() {
    let check = |services: &[&str], expected: &str| {
        check(&cluster(3, services, &[(Affinity::Negative, &["a", "b"])]), expected);
    };
    check(&["a@1", "b@1"], "a>2");
    check(&["a@1", "b@1~2"], "b>2");
    check(&["a@1", "b@1~3"], "b>3");
    check(&["a@1~3", "b@1"], "a>3");
    // The other one would lose its preferred node.
    check(&["a@1~1", "b@1"], "b>2");
    check(&["a@1", "b@1~1"], "a>2");
    check(&["a@1~1", "b@1~2"], "b>2");
    // A preference alone moves nothing.
    check(&["a@1~2", "b@3"], "");
}
