//! The choice of services that are preempted: single cases, and a comparison with a brute-force search over every set.

use super::*;
use crate::filter::refusals;
use crate::place;
use crate::view::NodeFacts;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::placement::{Affinity, AffinityRuleSpec, ResourceAffinity};
use ha_api_types::quantity::{Amounts, Quantity};
use proptest::prelude::*;

/// Returns an amount of memory in bytes, because gibibytes would not make these tests easier to read.
fn memory(amount: i128) -> Amounts {
    Amounts { memory: Some(Quantity::from_milli(amount * 1000)), ..Amounts::default() }
}

fn service(priority: i32, takes: i128, node: Option<&str>) -> ServiceFacts {
    ServiceFacts {
        priority,
        node: node.map(Into::into),
        used_nodes: node.map(Into::into).into_iter().collect(),
        driver: Some("simulated".to_owned()),
        requests: memory(takes),
        ..ServiceFacts::default()
    }
}

fn rule(affinity: Affinity, resources: &[String]) -> AffinityRuleSpec {
    let rule = ResourceAffinity { resources: resources.to_vec(), affinity, strict: true };
    AffinityRuleSpec { resource_affinity: Some(rule), ..AffinityRuleSpec::default() }
}

/// Returns a cluster of nodes with these amounts of memory. A service is a tuple of name, priority, memory and node.
fn cluster(
    nodes: &[i128],
    services: &[(&str, i32, i128, Option<&str>)],
    rules: &[(Affinity, &[&str])],
) -> View {
    let rules: BTreeMap<String, AffinityRuleSpec> = rules
        .iter()
        .enumerate()
        .map(|(index, (affinity, names))| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            (format!("rule{index}"), rule(*affinity, &names))
        })
        .collect();
    let nodes: BTreeMap<NodeName, NodeFacts> = nodes
        .iter()
        .enumerate()
        .map(|(index, has)| {
            (
                format!("node{}", index + 1).into(),
                NodeFacts { capacity: memory(*has), ..NodeFacts::default() },
            )
        })
        .collect();
    let names = nodes.keys().cloned().collect();
    let services = services
        .iter()
        .map(|(name, priority, takes, node)| ((*name).into(), service(*priority, *takes, *node)))
        .collect();
    let declared = crate::RuleInput { rules, nodes: names, ..crate::RuleInput::default() };
    View { nodes, services, rules: crate::Rules::compile(&declared).0, ..View::default() }
}

fn preempt_for(
    view: &View,
    name: &ResourceName,
    companions: &[&str],
    leaving: &[&str],
) -> Option<Preemption> {
    let facts = view.services.get(name).cloned().unwrap_or_default();
    let set = |names: &[&str]| names.iter().copied().map(ResourceName::from).collect::<BTreeSet<_>>();
    let (companions, leaving) = (set(companions), set(leaving));
    let preemptible = view.services.keys().filter(|name| !leaving.contains(*name)).cloned().collect();
    let placement = place(view, name, &facts);
    let request = PreemptionRequest {
        name,
        service: &facts,
        companions: &companions,
        preemptible: &preemptible,
        leaving: &leaving,
    };
    preempt(view, &placement, &request)
}

fn check(view: &View, name: &str, expected: Option<(&str, &[&str])>) {
    let preemption = preempt_for(view, &name.into(), &[], &[]);
    let preemption = preemption.as_ref().map(|preemption| {
        (preemption.node.as_str(), preemption.victims.iter().map(ResourceName::as_str).collect::<Vec<_>>())
    });
    assert_eq!(preemption, expected.map(|(node, victims)| (node, victims.to_vec())));
}

#[test]
fn few_services_of_low_priority_are_preempted() {
    let node = Some("node1");
    let new = ("new", 10, 4, None);
    check(&cluster(&[8], &[new, ("a", 1, 4, node), ("b", 2, 4, node)], &[]), "new", Some(("node1", &["a"])));
    // Two services of priority 1 leave rather than one of priority 2.
    let three = [new, ("a", 1, 2, node), ("b", 1, 2, node), ("c", 2, 4, node)];
    check(&cluster(&[8], &three, &[]), "new", Some(("node1", &["a", "b"])));
    // One large service leaves, rather than two small services of the same priority.
    let sizes = [new, ("a", 1, 4, node), ("b", 1, 2, node), ("c", 1, 2, node)];
    check(&cluster(&[8], &sizes, &[]), "new", Some(("node1", &["a"])));
    // The node with the lower cost is chosen.
    let two = [new, ("a", 5, 8, node), ("b", 4, 8, Some("node2"))];
    check(&cluster(&[8, 8], &two, &[]), "new", Some(("node2", &["b"])));
    check(&cluster(&[8], &[new, ("a", 10, 8, node)], &[]), "new", None);
    check(&cluster(&[8], &[new, ("a", 11, 8, node)], &[]), "new", None);
    check(&cluster(&[2], &[new, ("a", 1, 2, node)], &[]), "new", None);
}

#[test]
fn preemption_respects_rules() {
    let node = Some("node1");
    let new = ("new", 10, 4, None);
    // The service of lower priority with anti-affinity to the new one leaves.
    let anti_affinity: &[(Affinity, &[&str])] = &[(Affinity::Negative, &["new", "b"])];
    let two_users = [new, ("a", 1, 2, node), ("b", 2, 2, node)];
    check(&cluster(&[8, 1], &two_users, anti_affinity), "new", Some(("node1", &["b"])));
    // Services with affinity leave together, or not at all if one of them has the priority of the new service.
    let affinity: &[(Affinity, &[&str])] = &[(Affinity::Positive, &["a", "b"])];
    check(&cluster(&[6], &two_users, affinity), "new", Some(("node1", &["a", "b"])));
    let important = [new, ("a", 1, 2, node), ("b", 10, 2, node)];
    check(&cluster(&[6], &important, affinity), "new", None);
}

#[test]
fn services_that_start_together_fit_together() {
    let affinity_rules: &[(Affinity, &[&str])] = &[(Affinity::Positive, &["new", "other"])];
    let services =
        [("new", 10, 4, None), ("other", 9, 4, None), ("a", 1, 6, Some("node1")), ("b", 2, 8, Some("node2"))];
    // node1 has the service of lower priority, but not enough capacity for both new services.
    let view = cluster(&[7, 8], &services, affinity_rules);
    let preemption = preempt_for(&view, &"new".into(), &["other"], &[]).unwrap();
    assert_eq!((preemption.node.as_str(), preemption.victims.len()), ("node2", 1));
}

#[test]
fn affinity_set_is_placed_where_all_fit() {
    let affinity_rules: &[(Affinity, &[&str])] = &[(Affinity::Positive, &["new", "other"])];
    let services = [("new", 1, 4, None), ("other", 1, 4, None), ("a", 1, 1, Some("node3"))];
    let view = cluster(&[4, 7, 9], &services, affinity_rules);
    let facts = &view.services["new"];
    let placement = place(&view, &"new".into(), facts);
    assert_eq!(placement.node.as_deref(), Some("node1"));
    let companions = BTreeSet::from(["other".into()]);
    assert_eq!(
        crate::best_common_node(&view, &placement, &"new".into(), facts, &companions).as_deref(),
        Some("node3")
    );
    let view = cluster(&[4, 7, 8], &services, affinity_rules);
    assert_eq!(
        crate::best_common_node(&view, &placement, &"new".into(), &view.services["new"], &companions),
        None
    );
}

#[test]
fn preemption_waits_for_departing_services() {
    let services = [("new", 10, 4, None), ("a", 1, 4, Some("node1")), ("b", 2, 4, Some("node2"))];
    let view = cluster(&[4, 4], &services, &[]);
    let preemption = preempt_for(&view, &"new".into(), &[], &["b"]).unwrap();
    assert_eq!((preemption.node.as_str(), preemption.victims.len()), ("node2", 0));
}

/// Tries every set of services on every node, and returns the lowest cost.
fn lowest_cost_by_brute_force(view: &View, name: &ResourceName) -> Option<Vec<i32>> {
    let service = view.services.get(name)?;
    let mut best: Option<Vec<i32>> = None;
    for (node, facts) in &view.nodes {
        let users: Vec<&ResourceName> = view
            .services
            .iter()
            .filter(|(_, facts)| facts.used_nodes.contains(node))
            .map(|(name, _)| name)
            .collect();
        for mask in 0..(1_u32 << users.len()) {
            let preempted: BTreeSet<&ResourceName> = users
                .iter()
                .enumerate()
                .filter(|(index, _)| mask & (1 << index) != 0)
                .map(|(_, name)| *name)
                .collect();
            let partners = view.rules.strict_affinity_partners(name);
            let lower = preempted
                .iter()
                .all(|name| view.services[*name].priority < service.priority && !partners.contains(*name));
            let leaves_with_partners = preempted.iter().all(|name| {
                view.rules
                    .strict_affinity_partners(name)
                    .iter()
                    .all(|other| other != "new" && (!users.contains(&other) || preempted.contains(other)))
            });
            let mut trial = view.clone();
            trial.services.retain(|name, _| !preempted.contains(name));
            if lower
                && leaves_with_partners
                && refusals(&trial, &crate::PlacementUnit::of_single_service(name, service), node, facts)
                    .is_empty()
            {
                let mut cost: Vec<i32> = preempted.iter().map(|name| view.services[*name].priority).collect();
                cost.sort_unstable_by_key(|priority| Reverse(*priority));
                if best.as_ref().is_none_or(|best_cost| cost < *best_cost) {
                    best = Some(cost);
                }
            }
        }
    }
    best
}

proptest! {
    #[test]
    fn preempted_set_has_the_lowest_cost(
        nodes in prop::collection::vec(2_i128..12, 1..4),
        services in prop::collection::vec((0_i32..5, 1_i128..6, 0_usize..4), 0..8),
        wants in 1_i128..12,
        rules in prop::collection::vec((any::<bool>(), 0_usize..9, 0_usize..9), 0..4),
    ) {
        let name = |index: usize| if index == 0 { "new".to_owned() } else { format!("s{index}") };
        let mut listed = vec![("new".to_owned(), 3, wants, None)];
        for (index, (priority, takes, node)) in services.iter().enumerate() {
            let node = (*node < nodes.len()).then(|| format!("node{}", node + 1));
            listed.push((name(index + 1), *priority, *takes, node));
        }
        let listed: Vec<(&str, i32, i128, Option<&str>)> =
            listed.iter().map(|(name, p, t, node)| (name.as_str(), *p, *t, node.as_deref())).collect();
        let pairs: Vec<(Affinity, [String; 2])> = rules
            .iter()
            .filter(|(_, a, b)| a != b)
            .map(|(positive, a, b)| {
                let affinity = if *positive { Affinity::Positive } else { Affinity::Negative };
                (affinity, [name(*a), name(*b)])
            })
            .collect();
        let pairs: Vec<(Affinity, Vec<&str>)> =
            pairs.iter().map(|(affinity, names)| (*affinity, names.iter().map(String::as_str).collect())).collect();
        let pairs: Vec<(Affinity, &[&str])> =
            pairs.iter().map(|(affinity, names)| (*affinity, names.as_slice())).collect();
        let view = cluster(&nodes, &listed, &pairs);
        let preemption = preempt_for(&view, &"new".into(), &[], &[]);
        let fits_somewhere = place(&view, &"new".into(), &view.services["new"]).node.is_some();
        if fits_somewhere {
            return Ok(());
        }
        let cost = preemption.as_ref().map(|preemption| {
            let mut cost: Vec<i32> =
                preemption.victims.iter().map(|name| view.services[name].priority).collect();
            cost.sort_unstable_by_key(|priority| Reverse(*priority));
            cost
        });
        prop_assert_eq!(&cost, &lowest_cost_by_brute_force(&view, &"new".into()));
        if let Some(preemption) = preemption {
            let mut after = view.clone();
            after.services.retain(|name, _| !preemption.victims.contains(name));
            let node = &after.nodes[&preemption.node];
            let name = "new".into();
            let new = crate::PlacementUnit::of_single_service(&name, &view.services["new"]);
            prop_assert!(refusals(&after, &new, &preemption.node, node).is_empty());
        }
    }
}
