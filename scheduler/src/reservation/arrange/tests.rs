//! Who finds a place: tables, and what the leader's own placement and the check of the reservation say of it.

use super::arrange;
use crate::reservation::tests::generate::view;
use crate::reservation::tests::{cluster, rules};
use crate::reservation::{Verdict, check};
use crate::view::View;
use crate::{Verdict as Judged, place};
use ha_api_types::placement::{Affinity, GroupSpec, NodePriorities};
use ha_api_types::reason::Reason;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// node1 is gone; who was there looks for a place.
fn check_arranged(mut view: View, expected: &str) {
    let gone = view.nodes.get_mut("node1").expect("a node");
    gone.online = Err(Reason::Fencing);
    let looking = view
        .services
        .iter()
        .filter(|(_, facts)| facts.node.as_deref() == Some("node1"))
        .map(|(name, _)| name.clone())
        .collect();
    let arranged: Vec<String> =
        arrange(&view, &looking).into_iter().map(|(name, node)| format!("{name} {node}")).collect();
    assert_eq!(arranged.join(", "), expected);
}

const NODES: [(&str, &str); 3] = [("node1", "16Gi"), ("node2", "3Gi"), ("node3", "2Gi")];

#[test]
fn all_find_a_place_though_one_after_the_other_they_would_not() {
    check_arranged(cluster(&NODES, &["a node1 2Gi", "b node1 3Gi"]), "a node3, b node2");
    check_arranged(
        cluster(&NODES, &["a node1 2Gi", "b node1 1Gi", "c node1 2Gi"]),
        "a node2, b node2, c node3",
    );
}

#[test]
fn the_more_important_are_not_left_over() {
    check_arranged(cluster(&NODES, &["a node1 3Gi 1", "b node1 3Gi 2"]), "b node2");
    // Beside the one of 3Gi there is no place for both of 2Gi.
    check_arranged(cluster(&NODES, &["a node1 2Gi 2", "b node1 3Gi 3", "c node1 2Gi 1"]), "a node3, b node2");
    check_arranged(cluster(&NODES, &["a node1 2Gi 3", "b node1 3Gi 1", "c node1 2Gi 2"]), "a node2, c node3");
    // One that fits nowhere holds up nobody.
    check_arranged(cluster(&NODES, &["a node1 2Gi", "b node1 3Gi", "c node1 9Gi 5"]), "a node3, b node2");
}

#[test]
fn rules_and_failed_starts_count() {
    let mut view = cluster(&NODES, &["a node1 1Gi", "b node1 1Gi", "c node1 3Gi"]);
    rules(&mut view, &[(Affinity::Positive, &["a", "b"])]);
    check_arranged(view, "a node3, b node3, c node2");
    let mut view = cluster(&NODES, &["a node1 1Gi", "b node1 1Gi", "c node2 0Gi"]);
    rules(&mut view, &[(Affinity::Positive, &["a", "c"]), (Affinity::Negative, &["a", "b"])]);
    check_arranged(view, "a node2, b node3");
    let mut view = cluster(&NODES, &["a node1 2Gi", "b node1 3Gi"]);
    view.services.get_mut("a").expect("a service").failed_nodes.insert("node3".to_owned());
    check_arranged(view, "a node2");
    // Whoever is somewhere by mistake draws nobody there.
    let mut view = cluster(&NODES, &["a node1 1Gi", "b node2 1Gi"]);
    rules(&mut view, &[(Affinity::Positive, &["a", "b"])]);
    check_arranged(view.clone(), "a node2");
    let nodes = NodePriorities([("node3".to_owned(), 0)].into());
    view.groups.insert("g".to_owned(), GroupSpec { nodes, restricted: true, ..GroupSpec::default() });
    view.services.get_mut("b").expect("a service").group = Some("g".to_owned());
    check_arranged(view, "");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn what_the_reservation_promises_is_found(view in view()) {
        let failure = BTreeSet::from(["node1".to_owned()]);
        let counted = View { reservation: ha_api_types::cluster::ReservationSpec { count_stopped: false, ..view.reservation.clone() }, ..view.clone() };
        let promised = match check(&counted, &failure) {
            Verdict::Survives(proof) if proof.make_room.is_empty() => Some(proof.moves),
            Verdict::Survives(_) | Verdict::Fails(_) | Verdict::Unknown(_) => None,
        };
        let mut after = view;
        after.nodes.get_mut("node1").expect("a node").online = Err(Reason::Fencing);
        let lost = |facts: &crate::ServiceFacts| facts.uses.len() == 1 && facts.uses.contains("node1");
        let looking: BTreeSet<String> =
            after.services.iter().filter(|(_, facts)| facts.wanted && lost(facts)).map(|(name, _)| name.clone()).collect();
        // Nobody is there any more: who was being stopped is nowhere, and who was moving is at the other end.
        after.services.change_all(|_, facts| {
            facts.uses.remove("node1");
            facts.movable &= !facts.uses.is_empty();
        });
        let arranged = arrange(&after, &looking);
        // A promise for services of which some move along, or that were on their way, is about more than these.
        if let Some(moves) = promised
            && moves.iter().map(|one| &one.service).eq(&looking)
        {
            prop_assert_eq!(arranged.keys().collect::<Vec<_>>(), looking.iter().collect::<Vec<_>>());
        }
        // Where somebody is as he may not be, moves put that right first, and the leader's own filters have the last word.
        let stays = |(name, facts): (&String, &crate::ServiceFacts)| {
            let verdicts = place(&after, name, facts).verdicts;
            facts.uses.iter().all(|node| match verdicts.get(node) {
                Some(Judged::Refused(refusals)) => !refusals.iter().any(|refusal| refusal.drives),
                Some(Judged::Allowed(_)) | None => true,
            })
        };
        if !after.services.iter().all(stays) {
            return Ok(());
        }
        // One after the other they may go where it says, by the leader's own filters; those that stay together go at once.
        for (name, node) in &arranged {
            let facts = after.services.get(name).expect("a service").clone();
            if !facts.uses.is_empty() {
                continue;
            }
            let placement = place(&after, name, &facts);
            prop_assert!(
                matches!(placement.verdicts.get(node), Some(Judged::Allowed(_))),
                "{name} {node}: {placement:?} in {after:#?}"
            );
            let mut along: BTreeSet<String> = after.rules.companions(name).into_iter().collect();
            along.insert(name.clone());
            for name in along.iter().filter(|name| arranged.get(*name) == Some(node)) {
                let mut facts = after.services.get_mut(name).expect("a service");
                facts.uses.insert(node.clone());
                facts.node = Some(node.clone());
            }
        }
    }
}
