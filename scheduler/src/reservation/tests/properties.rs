//! Properties: the verdict equals a brute-force search, every proof is valid, and the verdict cache agrees with a new
//! check.

use super::brute_force::{proves, survives};
use super::generate::{DrawnService, service, view, view_with_preemption};
use crate::reservation::{MAX_SEARCH_STEPS, Model, Verdict, VerdictCache, check};
use crate::view::View;
use ha_api_types::id::{NodeName, ResourceName};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn check_failure(view: &View, failure: &BTreeSet<NodeName>) {
    let verdict = check(view, failure);
    let expected = survives(view, failure);
    match &verdict {
        Verdict::Survives(proof) => {
            assert!(expected && proves(view, failure, proof), "{failure:?}: {proof:?} in {view:#?}");
        }
        Verdict::Fails(failing) => assert!(!expected, "{failure:?}: {failing:?} in {view:#?}"),
        Verdict::Unknown(_) => panic!("so small a cluster is decided: {failure:?} in {view:#?}"),
    }
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Survives(_) => "survives",
        Verdict::Fails(_) => "fails",
        Verdict::Unknown(_) => "unknown",
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn reservation_verdict_equals_brute_force(view in view()) {
        for node in view.nodes.keys() {
            check_failure(&view, &BTreeSet::from([node.clone()]));
        }
        let first_nodes: BTreeSet<NodeName> = view.nodes.keys().take(2).cloned().collect();
        check_failure(&view, &first_nodes);
    }

    #[test]
    fn reservation_verdict_with_preemption_equals_brute_force(view in view_with_preemption()) {
        for node in view.nodes.keys() {
            check_failure(&view, &BTreeSet::from([node.clone()]));
        }
    }

    #[test]
    fn limited_search_never_contradicts_full_search(view in view(), effort in 0_u64..6) {
        for node in view.nodes.keys() {
            let failure = BTreeSet::from([node.clone()]);
            match Model::new(&view).check(&failure, effort) {
                Verdict::Survives(proof) => assert!(proves(&view, &failure, &proof)),
                Verdict::Fails(_) => assert!(!survives(&view, &failure)),
                Verdict::Unknown(undecided) => assert!(!undecided.is_empty()),
            }
        }
    }

    #[test]
    fn cached_verdict_equals_a_new_check(
        view in view(),
        changes in prop::collection::vec((0_usize..8, any::<Option<DrawnService>>()), 1..8),
        whole in any::<bool>(),
    ) {
        let mut now = view.clone();
        let mut watch = VerdictCache::new(view);
        while !watch.compute_missing(1) {}
        for (index, drawn) in changes {
            let name = ResourceName::from(format!("s{index}"));
            let facts = drawn.map(|(node, memory, priority, bits)| {
                service(now.nodes.len(), (node % 4, 1 + memory % 3, priority.rem_euclid(3), bits))
            });
            match &facts {
                Some(facts) => drop(now.services.insert(name.clone(), facts.clone())),
                None => drop(now.services.remove(&name)),
            }
            if index == 0 {
                let node = now.nodes.values_mut().next().expect("a node");
                node.maintenance = !node.maintenance;
            }
            if whole || index == 0 {
                watch.update(now.clone());
            } else {
                watch.on_service_changed(&name, facts);
            }
            while !watch.compute_missing(1) {}
            let fresh = Model::new(&now);
            for (node, verdict) in watch.verdicts() {
                let failure = BTreeSet::from([node.to_owned()]);
                assert_eq!(word(&verdict), word(&fresh.check(&failure, MAX_SEARCH_STEPS)), "{node} in {now:#?}");
                if let Verdict::Survives(proof) = &verdict {
                    assert!(proves(&now, &failure, proof), "{node}: {proof:?} in {now:#?}");
                }
            }
            assert_eq!(watch.verdicts().count(), now.nodes.len());
        }
    }
}
