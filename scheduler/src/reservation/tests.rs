//! Verdicts on small clusters: tables, and a comparison with a brute-force search.

mod brute_force;
pub(crate) mod generate;
mod properties;

use super::*;
use crate::rules::{RuleInput, Rules};
use crate::view::{NodeFacts, NodePolicyId, ServiceFacts};
use ha_api_types::cluster::ReservationBasis;
use ha_api_types::placement::{Affinity, AffinityRuleSpec, GroupSpec, NodePriorities, ResourceAffinity};
use std::collections::BTreeMap;

/// Returns a cluster of nodes with memory, and of services written as `name node memory priority`.
pub(crate) fn cluster(nodes: &[(&str, &str)], services: &[&str]) -> View {
    let mut view = View::default();
    for (name, memory) in nodes {
        let mut node = NodeFacts::default();
        node.capacity.memory = memory.parse().ok();
        view.nodes.insert((*name).into(), node);
    }
    for text in services {
        let words: Vec<&str> = text.split(' ').collect();
        let mut service = ServiceFacts {
            node: Some(words[1].into()),
            used_nodes: BTreeSet::from([words[1].into()]),
            driver: Some("exec".to_owned()),
            exclusive: true,
            is_desired: true,
            movable: true,
            priority: words.get(3).and_then(|word| word.parse().ok()).unwrap_or(0),
            ..ServiceFacts::default()
        };
        service.requests.memory = words[2].parse().ok();
        view.services.insert(words[0].into(), service);
    }
    view
}

pub(crate) fn set_resource_rules(view: &mut View, sets: &[(Affinity, &[&str])]) {
    let mut declared = RuleInput {
        nodes: view.nodes.keys().cloned().collect(),
        groups: view.groups.clone(),
        ..RuleInput::default()
    };
    for (index, (affinity, resources)) in sets.iter().enumerate() {
        let resources = resources.iter().map(|name| (*name).to_owned()).collect();
        let resource_affinity = Some(ResourceAffinity { resources, affinity: *affinity, strict: true });
        declared.rules.insert(
            format!("r{index}"),
            AffinityRuleSpec { resource_affinity, ..AffinityRuleSpec::default() },
        );
    }
    let (compiled, conflicts) = Rules::compile(&declared);
    assert!(conflicts.is_empty(), "{conflicts:?}");
    view.rules = compiled;
}

/// Returns the verdict as text, with the relevant names.
fn describe(view: &View, failed: &[&str]) -> String {
    let failure = failed.iter().map(|node| (*node).into()).collect();
    let moves = |moves: &[Move]| -> Vec<String> {
        moves.iter().map(|service_move| format!("{} {}", service_move.service, service_move.to)).collect()
    };
    let unplaced = |services: &[Unplaced]| -> Vec<String> {
        services.iter().map(|unplaced| unplaced.service.to_string()).collect()
    };
    match check(view, &failure) {
        Verdict::Survives(proof) if proof.preempted.is_empty() => {
            format!("survives: {}", moves(&proof.moves).join(", "))
        }
        Verdict::Survives(proof) => {
            format!(
                "survives: {} where {} make room",
                moves(&proof.moves).join(", "),
                moves(&proof.preempted).join(", ")
            )
        }
        Verdict::Fails(failing) => {
            let certificate_text = match failing.certificate {
                Certificate::NoNode => "no node",
                Certificate::Capacity { .. } => "capacity",
                Certificate::AntiAffinity { .. } => "apart",
                Certificate::Exhausted => "searched",
            };
            format!("fails ({certificate_text}): {}", unplaced(&failing.services).join(", "))
        }
        Verdict::Unknown(services) => format!("unknown: {}", unplaced(&services).join(", ")),
    }
}

fn check_verdict(view: &View, failed: &[&str], expected: &str) {
    assert_eq!(describe(view, failed), expected);
}

#[test]
fn survival_depends_on_free_capacity() {
    let nodes = [("node1", "8Gi"), ("node2", "4Gi"), ("node3", "4Gi")];
    let view = cluster(&nodes, &["a node1 3Gi", "b node1 3Gi"]);
    check_verdict(&view, &["node1"], "survives: a node2, b node3");
    check_verdict(&view, &["node2"], "survives: ");
    check_verdict(&view, &["node1", "node2"], "fails (capacity): b");
    let view = cluster(&nodes, &["a node1 5Gi", "b node1 3Gi"]);
    check_verdict(&view, &["node1"], "fails (no node): a");
    // The services request 6Gi, and 8Gi are free, but the free amount of each node is too small.
    let view = cluster(&nodes, &["a node1 2Gi", "b node1 2Gi", "c node1 2Gi", "d node2 1Gi", "e node3 1Gi"]);
    check_verdict(&view, &["node1"], "fails (searched): c");
}

#[test]
fn a_remaining_service_is_placed_by_a_swap() {
    // Placing the largest service first, on the node with the most free capacity, fails here: only 3+3 and 2+2+2 fill
    // both nodes.
    let nodes = [("node1", "12Gi"), ("node2", "6Gi"), ("node3", "6Gi")];
    let view = cluster(&nodes, &["a node1 3Gi", "b node1 3Gi", "c node1 2Gi", "d node1 2Gi", "e node1 2Gi"]);
    assert!(describe(&view, &["node1"]).starts_with("survives: "), "{}", describe(&view, &["node1"]));
}

#[test]
fn services_with_affinity_need_one_node() {
    let nodes = [("node1", "8Gi"), ("node2", "4Gi"), ("node3", "4Gi")];
    let mut view = cluster(&nodes, &["a node1 3Gi", "b node1 3Gi"]);
    set_resource_rules(&mut view, &[(Affinity::Positive, &["a", "b"])]);
    check_verdict(&view, &["node1"], "fails (no node): a, b");
    view.nodes.get_mut("node3").expect("a node").capacity.memory = "6Gi".parse().ok();
    check_verdict(&view, &["node1"], "survives: a node3, b node3");
}

/// Regression test for a defect that the property tests found: the leader places the others on the node to which the
/// partner is moving, and the check must do the same.
#[test]
fn immovable_affinity_partner_determines_the_node() {
    let nodes = [("node1", "4Gi"), ("node2", "4Gi"), ("node3", "4Gi")];
    let mut view = cluster(&nodes, &["a node1 1Gi", "b node2 1Gi"]);
    set_resource_rules(&mut view, &[(Affinity::Positive, &["a", "b"])]);
    let members = NodePriorities(BTreeMap::from([("node1".into(), 0)]));
    view.groups
        .insert("g".to_owned(), GroupSpec { nodes: members, restricted: true, ..GroupSpec::default() });
    view.services.get_mut(&"b".into()).expect("a service").group = Some("g".to_owned());
    check_verdict(&view, &["node1"], "fails (no node): a");
    view.services.get_mut(&"b".into()).expect("a service").movable = false;
    check_verdict(&view, &["node1"], "survives: a node2");
}

/// Regression test for a defect that the property tests found: the check did not consider a movable partner that stays,
/// if another service with the same exclusion tag was placed on its node first.
#[test]
fn remaining_service_blocks_its_exclusion_tag() {
    let nodes = [("node1", "4Gi"), ("node2", "4Gi")];
    let mut view = cluster(&nodes, &["a node2 1Gi", "b node1 2Gi", "c node1 1Gi"]);
    set_resource_rules(&mut view, &[(Affinity::Positive, &["a", "c"])]);
    check_verdict(&view, &["node1"], "survives: a node2, b node2, c node2");
    view.settings.exclusion_tags = vec!["x:".to_owned()];
    for name in ["a", "b"] {
        view.services.get_mut(&name.into()).expect("a service").tags.insert("x:1".to_owned());
    }
    check_verdict(&view, &["node1"], "fails (apart): c");
}

#[test]
fn services_with_anti_affinity_need_one_node_each() {
    let nodes = [("node1", "8Gi"), ("node2", "8Gi"), ("node3", "8Gi")];
    let mut view = cluster(&nodes, &["a node1 1Gi", "b node2 1Gi", "c node3 1Gi"]);
    set_resource_rules(&mut view, &[(Affinity::Negative, &["a", "b", "c"])]);
    check_verdict(&view, &["node1"], "fails (no node): a");
    check_verdict(&view, &["node1", "node2"], "fails (no node): a, b");
    view.services.remove(&"c".into());
    check_verdict(&view, &["node1"], "survives: a node3");
    check_verdict(&view, &["node1", "node2"], "fails (apart): b");
    view.rules = Rules::default();
    view.services.change_all(|_, service| {
        service.tags.insert("rack:a".to_owned());
    });
    check_verdict(&view, &["node1", "node2"], "survives: a node3, b node3");
    view.settings.exclusion_tags = vec!["rack:".to_owned()];
    check_verdict(&view, &["node1", "node2"], "fails (apart): b");
}

#[test]
fn storage_groups_and_drivers_limit_the_nodes() {
    let nodes = [("node1", "8Gi"), ("node2", "8Gi"), ("node3", "8Gi")];
    let mut view = cluster(&nodes, &["a node1 1Gi"]);
    let change = |view: &View, change: &dyn Fn(&mut ServiceFacts)| {
        let mut view = view.clone();
        change(&mut view.services.get_mut(&"a".into()).expect("a service"));
        view
    };
    let replicated = change(&view, &|a| a.storage_nodes = Some(["node1", "node3"].map(Into::into).into()));
    check_verdict(&replicated, &["node1"], "survives: a node3");
    check_verdict(&replicated, &["node1", "node3"], "fails (no node): a");
    let local = change(&view, &|a| a.storage_nodes = Some(BTreeSet::from(["node1".into()])));
    check_verdict(&local, &["node1"], "fails (no node): a");
    let pool = change(&view, &|a| a.storage_pool = Some("san".to_owned()));
    check_verdict(&pool, &["node1"], "fails (no node): a");
    let never = change(&view, &|a| a.incompatible_nodes = ["node2"].map(Into::into).into());
    check_verdict(&never, &["node1"], "survives: a node3");
    let grouped = NodePriorities(BTreeMap::from([("node1".into(), 0), ("node3".into(), 0)]));
    view.groups
        .insert("g".to_owned(), GroupSpec { nodes: grouped, restricted: true, ..GroupSpec::default() });
    let grouped = change(&view, &|a| a.group = Some("g".to_owned()));
    check_verdict(&grouped, &["node1"], "survives: a node3");
    check_verdict(&grouped, &["node1", "node3"], "fails (no node): a");
}

#[test]
fn a_policy_forbids_only_some_services_with_the_same_driver() {
    let mut view = cluster(&[("node1", "8Gi"), ("node2", "8Gi")], &["a node1 1Gi", "b node1 1Gi"]);
    view.nodes.get_mut("node2").expect("a node").policy = Some(NodePolicyId(0));
    let mut b = view.services.get_mut(&"b".into()).expect("a service");
    b.forbidding_policies.insert(NodePolicyId(0), "node policy does not allow exec as root".to_owned());
    drop(b);
    check_verdict(&view, &["node1"], "fails (no node): b");
}

#[test]
fn only_relevant_facts_invalidate_a_verdict() {
    let mut view = cluster(&[("node1", "4Gi"), ("node2", "4Gi")], &["a node1 3Gi", "b node2 2Gi"]);
    let mut cache = VerdictCache::new(view.clone());
    while !cache.compute_missing(MAX_SEARCH_STEPS) {}
    assert_eq!(cache.not_survived().count(), 2);
    let change = |view: &mut View, memory: &str, is_measured: bool| {
        let mut a = view.services.get_mut(&"a".into()).expect("a service");
        let amounts = if is_measured { &mut a.measured } else { &mut a.requests };
        amounts.memory = memory.parse().ok();
    };
    change(&mut view, "1Gi", true);
    cache.update(view.clone());
    assert!(cache.is_complete(), "the check uses requests, and measured memory has changed");
    change(&mut view, "2Gi", false);
    cache.update(view);
    assert_eq!(cache.missing_count(), 2);
}

#[test]
fn lower_priority_is_preempted_if_another_node_fits() {
    let nodes = [("node1", "4Gi"), ("node2", "4Gi"), ("node3", "4Gi")];
    let services = ["high node1 4Gi 10", "low node2 2Gi 1", "small node3 2Gi 1"];
    let mut view = cluster(&nodes, &services);
    check_verdict(&view, &["node1"], "fails (no node): high");
    view.settings.preemption = true;
    check_verdict(&view, &["node1"], "survives: high node2 where low node3 make room");
    view.services.get_mut(&"low".into()).expect("a service").priority = 10;
    check_verdict(&view, &["node1"], "survives: high node3 where small node2 make room");
    view.services.get_mut(&"small".into()).expect("a service").priority = 10;
    check_verdict(&view, &["node1"], "fails (no node): high");
    let view = View {
        settings: view.settings,
        ..cluster(&nodes, &["high node1 4Gi 10", "low node2 2Gi 1", "b node3 3Gi 1"])
    };
    check_verdict(&view, &["node1"], "fails (capacity): low");
}

#[test]
fn stopped_services_count_as_running() {
    let nodes = [("node1", "4Gi"), ("node2", "4Gi")];
    let mut view = cluster(&nodes, &["a node1 3Gi", "b node2 3Gi"]);
    let mut b = view.services.get_mut(&"b".into()).expect("a service");
    (b.is_desired, b.movable, b.stopped) = (false, false, true);
    b.used_nodes.clear();
    drop(b);
    check_verdict(&view, &["node1"], "fails (no node): a");
    check_verdict(&view, &["node2"], "fails (no node): b");
    view.reservation.count_stopped = false;
    check_verdict(&view, &["node1"], "survives: a node2");
    check_verdict(&view, &["node2"], "survives: ");
}

#[test]
fn measured_usage_counts_if_configured() {
    let nodes = [("node1", "4Gi"), ("node2", "4Gi")];
    let mut view = cluster(&nodes, &["a node1 3Gi", "b node2 1Gi"]);
    let measured = |view: &mut View, name: &str, memory: &str| {
        view.services.get_mut(&name.into()).expect("a service").measured.memory = memory.parse().ok();
    };
    measured(&mut view, "a", "1Gi");
    measured(&mut view, "b", "2Gi");
    let check = |basis: ReservationBasis, expected: &str| {
        let mut view = view.clone();
        view.reservation.basis = basis;
        check_verdict(&view, &["node1"], expected);
    };
    check(ReservationBasis::Requests, "survives: a node2");
    check(ReservationBasis::Measured, "survives: a node2");
    check(ReservationBasis::Max, "fails (no node): a");
    let mut view = cluster(&nodes, &["a node1 3Gi", "b node2 2Gi"]);
    measured(&mut view, "a", "1Gi");
    check_verdict(&view, &["node1"], "fails (no node): a");
    view.reservation.basis = ReservationBasis::Measured;
    check_verdict(&view, &["node1"], "survives: a node2");
}

#[test]
fn blocking_reasons_are_listed_per_node() {
    let nodes = [("node1", "4Gi"), ("node2", "4Gi"), ("node3", "4Gi")];
    let mut view = cluster(&nodes, &["a node1 3Gi", "b node2 2Gi"]);
    view.nodes.get_mut("node3").expect("a node").maintenance = true;
    let Verdict::Fails(failing) = check(&view, &BTreeSet::from(["node1".into()])) else {
        panic!("the check must fail");
    };
    let blocked_nodes: Vec<String> = failing.services[0]
        .blocked_nodes
        .iter()
        .map(|blocked| format!("{} {}: {}", blocked.node, blocked.reason, blocked.message))
        .collect();
    assert_eq!(
        blocked_nodes,
        [
            "node2 NotEnoughMemory: not enough memory: 3Gi requested, 2Gi of 4Gi would be free",
            "node3 NodeInMaintenance: node is in maintenance",
        ]
    );
}
