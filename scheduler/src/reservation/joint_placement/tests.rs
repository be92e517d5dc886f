//! Tests of joint placement: tables, and a comparison with the placement by the leader and with the failover capacity
//! check.

use super::place_jointly;
use crate::reservation::tests::generate::view;
use crate::reservation::tests::{cluster, set_resource_rules};
use crate::reservation::{Verdict, check};
use crate::view::View;
use crate::{Verdict as CaseVerdict, place};
use ha_api_types::id::ResourceName;
use ha_api_types::placement::{Affinity, GroupSpec, NodePriorities};
use ha_api_types::reason::Reason;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Checks the placement of all services of node1 after the failure of node1.
fn check_joint_placement(mut view: View, expected: &str) {
    let failed_node = view.nodes.get_mut("node1").expect("a node");
    failed_node.online = Err(Reason::Fencing);
    let unplaced = view
        .services
        .iter()
        .filter(|(_, facts)| facts.node.as_deref() == Some("node1"))
        .map(|(name, _)| name.clone())
        .collect();
    let arranged: Vec<String> =
        place_jointly(&view, &unplaced).into_iter().map(|(name, node)| format!("{name} {node}")).collect();
    assert_eq!(arranged.join(", "), expected);
}

const NODES: [(&str, &str); 3] = [("node1", "16Gi"), ("node2", "3Gi"), ("node3", "2Gi")];

#[test]
fn joint_placement_succeeds_where_sequential_fails() {
    check_joint_placement(cluster(&NODES, &["a node1 2Gi", "b node1 3Gi"]), "a node3, b node2");
    check_joint_placement(
        cluster(&NODES, &["a node1 2Gi", "b node1 1Gi", "c node1 2Gi"]),
        "a node2, b node2, c node3",
    );
}

#[test]
fn a_partner_may_join_an_overcommitted_node_without_adding_to_its_use() {
    let mut view = cluster(&NODES, &["a node2 1Gi", "b node1 1Gi", "c node2 1Gi"]);
    set_resource_rules(&mut view, &[(Affinity::Positive, &["a", "b"])]);
    view.nodes.get_mut("node2").expect("a node").capacity.cpu = "1".parse().ok();
    for node in ["node1", "node3"] {
        view.nodes.get_mut(node).expect("a node").online = Err(Reason::Fencing);
    }
    let request_cpu = |view: &mut View, name: &str| {
        view.services.get_mut(&name.into()).expect("a service").requests.cpu = "3".parse().ok();
    };
    request_cpu(&mut view, "a");
    request_cpu(&mut view, "c");
    let node_of_b = |view: &View| {
        let facts = view.services.get("b").expect("a service");
        place(view, &"b".into(), facts).node
    };
    assert_eq!(node_of_b(&view).as_deref(), Some("node2"));
    check_joint_placement(view.clone(), "b node2");
    request_cpu(&mut view, "b");
    assert_eq!(node_of_b(&view), None);
    check_joint_placement(view, "");
}

#[test]
fn important_services_are_placed_first() {
    check_joint_placement(cluster(&NODES, &["a node1 3Gi 1", "b node1 3Gi 2"]), "b node2");
    // In addition to the service of 3Gi, only one of the two services of 2Gi fits.
    check_joint_placement(
        cluster(&NODES, &["a node1 2Gi 2", "b node1 3Gi 3", "c node1 2Gi 1"]),
        "a node3, b node2",
    );
    check_joint_placement(
        cluster(&NODES, &["a node1 2Gi 3", "b node1 3Gi 1", "c node1 2Gi 2"]),
        "a node2, c node3",
    );
    // A service that fits on no node does not delay the other services.
    check_joint_placement(
        cluster(&NODES, &["a node1 2Gi", "b node1 3Gi", "c node1 9Gi 5"]),
        "a node3, b node2",
    );
}

#[test]
fn rules_and_failed_starts_are_respected() {
    let mut view = cluster(&NODES, &["a node1 1Gi", "b node1 1Gi", "c node1 3Gi"]);
    set_resource_rules(&mut view, &[(Affinity::Positive, &["a", "b"])]);
    check_joint_placement(view, "a node3, b node3, c node2");
    let mut view = cluster(&NODES, &["a node1 1Gi", "b node1 1Gi", "c node2 0Gi"]);
    set_resource_rules(&mut view, &[(Affinity::Positive, &["a", "c"]), (Affinity::Negative, &["a", "b"])]);
    check_joint_placement(view, "a node2, b node3");
    let mut view = cluster(&NODES, &["a node1 2Gi", "b node1 3Gi"]);
    view.services.get_mut(&"a".into()).expect("a service").failed_nodes.insert("node3".into());
    check_joint_placement(view, "a node2");
    // A service on a node that it may not use does not attract its partners to that node.
    let mut view = cluster(&NODES, &["a node1 1Gi", "b node2 1Gi"]);
    set_resource_rules(&mut view, &[(Affinity::Positive, &["a", "b"])]);
    check_joint_placement(view.clone(), "a node2");
    let nodes = NodePriorities([("node3".into(), 0)].into());
    view.groups.insert("g".to_owned(), GroupSpec { nodes, restricted: true, ..GroupSpec::default() });
    view.services.get_mut(&"b".into()).expect("a service").group = Some("g".to_owned());
    check_joint_placement(view, "");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_survivable_failure_is_placed_completely(view in view()) {
        let failure = BTreeSet::from(["node1".into()]);
        let counted = View { reservation: ha_api_types::cluster::ReservationSpec { count_stopped: false, ..view.reservation.clone() }, ..view.clone() };
        let promised = match check(&counted, &failure) {
            Verdict::Survives(proof) if proof.preempted.is_empty() => Some(proof.moves),
            Verdict::Survives(_) | Verdict::Fails(_) | Verdict::Unknown(_) => None,
        };
        let mut after = view;
        after.nodes.get_mut("node1").expect("a node").online = Err(Reason::Fencing);
        let is_affected = |facts: &crate::ServiceFacts| facts.used_nodes.len() == 1 && facts.used_nodes.contains("node1");
        let unplaced: BTreeSet<ResourceName> =
            after.services.iter().filter(|(_, facts)| facts.is_desired && is_affected(facts)).map(|(name, _)| name.clone()).collect();
        // No service still uses node1: a stopping service uses no node, and a moving service uses only its target.
        after.services.change_all(|_, facts| {
            facts.used_nodes.remove("node1");
            facts.movable &= !facts.used_nodes.is_empty();
        });
        let arranged = place_jointly(&after, &unplaced);
        // A proof that includes partners or moving services covers more services, so it is not comparable.
        if let Some(moves) = promised
            && moves.iter().map(|service_move| &service_move.service).eq(&unplaced)
        {
            prop_assert_eq!(arranged.keys().collect::<Vec<_>>(), unplaced.iter().collect::<Vec<_>>());
        }
        // Skip the case if a service must leave its node, because its move changes the capacity. The leader's filters
        // decide that.
        let stays = |(name, facts): (&ResourceName, &crate::ServiceFacts)| {
            let verdicts = place(&after, name, facts).verdicts;
            facts.used_nodes.iter().all(|node| match verdicts.get(node) {
                Some(CaseVerdict::Refused(refusals)) => !refusals.iter().any(|refusal| refusal.evicts_running),
                Some(CaseVerdict::Allowed(_)) | None => true,
            })
        };
        if !after.services.iter().all(stays) {
            return Ok(());
        }
        // By the filters of the leader, the services must be able to start one at a time on their nodes; services with
        // affinity start together.
        for (name, node) in &arranged {
            let facts = after.services.get(name).expect("a service").clone();
            if !facts.used_nodes.is_empty() {
                continue;
            }
            let placement = place(&after, name, &facts);
            prop_assert!(
                matches!(placement.verdicts.get(node), Some(CaseVerdict::Allowed(_))),
                "{name} {node}: {placement:?} in {after:#?}"
            );
            let mut along: BTreeSet<ResourceName> = after.rules.strict_affinity_partners(name).into_iter().collect();
            along.insert(name.clone());
            for name in along.iter().filter(|name| arranged.get(*name) == Some(node)) {
                let mut facts = after.services.get_mut(name).expect("a service");
                facts.used_nodes.insert(node.clone());
                facts.node = Some(node.clone());
            }
        }
    }
}
