//! Tables of placement rules, on one cluster of four nodes.

use super::*;
use crate::view::{NodeFacts, NodePolicyId};
use crate::{RuleInput, Rules};
use ha_api_types::cluster::SchedulerMode;
use ha_api_types::placement::{Affinity, AffinityRuleSpec, GroupSpec, NodePriorities, ResourceAffinity};
use proptest::prelude::*;

fn service(node: Option<&str>, group: Option<&str>) -> ServiceFacts {
    ServiceFacts {
        node: node.map(Into::into),
        used_nodes: node.map(Into::into).into_iter().collect(),
        driver: Some("exec".to_owned()),
        group: group.map(str::to_owned),
        failback: true,
        exclusive: true,
        ..ServiceFacts::default()
    }
}

/// Returns four nodes, and the group g with the priorities node1:2, node2:1, node3:1 and node4:0.
fn cluster(restricted: bool) -> View {
    let mut view = View::default();
    for node in ["node1", "node2", "node3", "node4"] {
        view.nodes.insert(node.into(), NodeFacts::default());
    }
    let nodes = [("node1", 2), ("node2", 1), ("node3", 1), ("node4", 0)];
    let nodes = NodePriorities(nodes.iter().map(|(node, priority)| ((*node).into(), *priority)).collect());
    view.groups.insert("g".to_owned(), GroupSpec { nodes, restricted, ..GroupSpec::default() });
    let nodes = NodePriorities([("node1".into(), 0)].into_iter().collect());
    view.groups.insert("only1".to_owned(), GroupSpec { nodes, restricted, ..GroupSpec::default() });
    view
}

fn check(view: &View, service: &ServiceFacts, node: Option<&str>, reason: Reason) {
    let placement = place(view, &"web".into(), service);
    assert_eq!((placement.node.as_deref(), placement.reason), (node, reason), "{:?}", placement.verdicts);
}

fn offline(view: &mut View, nodes: &[&str]) {
    for node in nodes {
        if let Some(node) = view.nodes.get_mut(*node) {
            node.online = Err(Reason::HeartbeatMissed);
        }
    }
}

#[test]
fn the_best_priority_tier_with_an_eligible_node_wins() {
    let mut view = cluster(false);
    check(&view, &service(None, Some("g")), Some("node1"), Reason::Scheduled);
    offline(&mut view, &["node1"]);
    check(&view, &service(None, Some("g")), Some("node2"), Reason::Scheduled);
    offline(&mut view, &["node2", "node3"]);
    check(&view, &service(None, Some("g")), Some("node4"), Reason::Scheduled);
}

#[test]
fn a_node_must_have_the_driver() {
    let mut view = cluster(false);
    let drivers: [&[&str]; 4] =
        [&["exec"], &["exec", "external:other"], &["exec", "external:zpool"], &["exec", "podman"]];
    for (node, drivers) in view.nodes.values_mut().zip(drivers) {
        node.drivers = drivers.iter().map(|driver| (*driver).to_owned()).collect();
    }
    let mut service = service(None, Some("g"));
    check(&view, &service, Some("node1"), Reason::Scheduled);
    service.driver = Some("external:zpool".to_owned());
    check(&view, &service, Some("node3"), Reason::Scheduled);
    service.driver = Some("external:absent".to_owned());
    check(&view, &service, None, Reason::Unschedulable);
}

#[test]
fn a_node_whose_policy_forbids_the_service_is_refused() {
    let mut view = cluster(false);
    for (node, policy) in [("node1", 0), ("node2", 1), ("node3", 1)] {
        view.nodes.get_mut(node).expect("a node").policy = Some(NodePolicyId(policy));
    }
    let mut service = service(None, Some("g"));
    service.forbidding_policies.insert(NodePolicyId(0), "node policy does not allow exec as root".to_owned());
    check(&view, &service, Some("node2"), Reason::Scheduled);
    let Verdict::Refused(refusals) = &place(&view, &"web".into(), &service).verdicts["node1"] else {
        panic!("node1 is allowed");
    };
    let actual: Vec<_> = refusals.iter().map(|refusal| (refusal.reason, refusal.message.as_str())).collect();
    assert_eq!(actual, [(Reason::NodePolicy, "node policy does not allow exec as root")]);
    service.forbidding_policies.insert(NodePolicyId(1), "node policy does not allow driver exec".to_owned());
    check(&view, &service, Some("node4"), Reason::Scheduled);
}

#[test]
fn a_priority_tier_is_filled_evenly() {
    let mut view = cluster(false);
    offline(&mut view, &["node1"]);
    view.services.insert("other".into(), service(Some("node2"), Some("g")));
    check(&view, &service(None, Some("g")), Some("node3"), Reason::Scheduled);
}

#[test]
fn a_restricted_group_excludes_other_nodes() {
    let mut view = cluster(true);
    offline(&mut view, &["node1"]);
    check(&view, &service(None, Some("only1")), None, Reason::Unschedulable);
    let mut view = cluster(false);
    offline(&mut view, &["node1"]);
    check(&view, &service(None, Some("only1")), Some("node2"), Reason::Scheduled);
}

#[test]
fn failback_only_if_enabled() {
    let view = cluster(false);
    check(&view, &service(Some("node2"), Some("g")), Some("node1"), Reason::Failback);
    let without_failback = ServiceFacts { failback: false, ..service(Some("node2"), Some("g")) };
    check(&view, &without_failback, Some("node2"), Reason::CurrentNode);
    let mut view = cluster(false);
    if let Some(group) = view.groups.get_mut("g") {
        group.nofailback = true;
    }
    check(&view, &service(Some("node2"), Some("g")), Some("node2"), Reason::CurrentNode);
}

#[test]
fn a_service_stays_within_its_priority_tier() {
    let view = cluster(false);
    check(&view, &service(Some("node3"), None), Some("node3"), Reason::CurrentNode);
}

#[test]
fn a_service_returns_after_maintenance() {
    let view = cluster(false);
    let moved = ServiceFacts { maintenance_node: Some("node2".into()), ..service(Some("node3"), None) };
    check(&view, &moved, Some("node2"), Reason::ReturningFromMaintenance);
    // Without failback the service would have stayed on that node, so the service returns even to a lower priority
    // tier.
    let without_failback = ServiceFacts { failback: false, ..moved };
    check(&view, &without_failback, Some("node2"), Reason::ReturningFromMaintenance);
}

#[test]
fn nodes_with_failed_starts_are_tried_last() {
    let mut view = cluster(false);
    let failed =
        ServiceFacts { failed_nodes: ["node1".into()].into_iter().collect(), ..service(Some("node1"), None) };
    check(&view, &failed, Some("node2"), Reason::Scheduled);
    offline(&mut view, &["node2", "node3", "node4"]);
    check(&view, &failed, Some("node1"), Reason::CurrentNode);
}

#[test]
fn the_memory_limit_names_the_free_amount() {
    let mut view = cluster(false);
    for node in view.nodes.values_mut() {
        node.capacity.memory = "4Gi".parse().ok();
    }
    let mut other = service(Some("node1"), None);
    other.requests.memory = "3Gi".parse().ok();
    view.services.insert("other".into(), other);
    let mut big = service(None, Some("g"));
    big.requests.memory = "2Gi".parse().ok();
    check(&view, &big, Some("node2"), Reason::Scheduled);
    let placement = place(&view, &"web".into(), &big);
    let Some(Verdict::Refused(refusals)) = placement.verdicts.get("node1") else { panic!("{placement:?}") };
    assert_eq!(refusals[0].reason, Reason::NotEnoughMemory);
    assert_eq!(refusals[0].message, "not enough memory: 2Gi requested, 1Gi of 4Gi free");
}

#[test]
fn an_exclusive_service_needs_a_fenceable_node() {
    let mut view = cluster(false);
    for node in view.nodes.values_mut() {
        node.fenceable = Err(Reason::WatchdogMissing);
    }
    check(&view, &service(None, None), None, Reason::Unschedulable);
    check(&view, &ServiceFacts { exclusive: false, ..service(None, None) }, Some("node1"), Reason::Scheduled);
}

#[test]
fn affinity_partners_get_the_same_node() {
    let mut view = View::default();
    for (node, memory) in [("node1", "5Gi"), ("node2", "1Gi")] {
        let mut facts = NodeFacts::default();
        facts.capacity.memory = memory.parse().ok();
        view.nodes.insert(node.into(), facts);
    }
    let stopped_service = |memory: &str, priority: i32| {
        let mut facts = ServiceFacts { is_desired: true, priority, ..service(None, None) };
        facts.requests.memory = memory.parse().ok();
        facts
    };
    let running = || ServiceFacts { movable: true, is_desired: true, ..service(Some("node2"), None) };
    let services = [
        ("a", running()),
        ("b", running()),
        ("large", stopped_service("4Gi", 0)),
        ("small", stopped_service("3Gi", 1)),
    ];
    view.services = services.map(|(name, facts)| (name.into(), facts)).into();
    let affinity = ResourceAffinity {
        resources: view.services.keys().map(ToString::to_string).collect(),
        affinity: Affinity::Positive,
        strict: true,
    };
    let rule = AffinityRuleSpec { resource_affinity: Some(affinity), ..AffinityRuleSpec::default() };
    let nodes = view.nodes.keys().cloned().collect();
    let rules = [("together".to_owned(), rule)].into();
    (view.rules, _) = Rules::compile(&RuleInput { rules, nodes, ..RuleInput::default() });
    // No node fits all four services. Without the large service of lower priority, the others fit on node1.
    for (name, node) in
        [("a", Some("node1")), ("b", Some("node1")), ("small", Some("node1")), ("large", None)]
    {
        let placement = place(&view, &name.into(), &view.services[name]);
        assert_eq!(placement.node.as_deref(), node, "{name}: {placement:?}");
    }
}

#[test]
fn reservation_also_considers_service_count() {
    let mut view = cluster(false);
    view.nodes.retain(|name, _| ["node1", "node2"].contains(&name.as_str()));
    view.settings.mode = SchedulerMode::Static;
    for node in view.nodes.values_mut() {
        (node.capacity.cpu, node.capacity.memory) = ("8".parse().ok(), "64Gi".parse().ok());
    }
    // Three small services on node1 request less than the large one on node2.
    for (name, node, memory) in
        [("a", "node1", "1Gi"), ("b", "node1", "1Gi"), ("c", "node1", "1Gi"), ("d", "node2", "32Gi")]
    {
        let mut facts = service(Some(node), None);
        facts.requests.memory = memory.parse().ok();
        view.services.insert(name.into(), facts);
    }
    let mut new = service(None, None);
    new.requests.memory = "1Gi".parse().ok();
    check(&view, &new, Some("node1"), Reason::Scheduled);
    view.reservation.enabled = true;
    check(&view, &new, Some("node2"), Reason::Scheduled);
    // The weight becomes small relative to the load, so that the load decides again.
    view.reservation.scale_down = 100;
    check(&view, &new, Some("node1"), Reason::Scheduled);
}

proptest! {
    #[test]
    fn quick_placement_equals_full_placement(view in crate::reservation::tests::generate::view()) {
        for mode in [SchedulerMode::Basic, SchedulerMode::Static] {
            let mut view = view.clone();
            view.settings.mode = mode;
            for (name, facts) in &view.services {
                let unplaced = ServiceFacts { used_nodes: BTreeSet::new(), ..facts.clone() };
                for facts in [facts, &unplaced] {
                    let placement = place(&view, name, facts);
                    let (node, reason) = choose(&view, name, facts);
                    prop_assert_eq!((node, reason), (placement.node.as_ref(), placement.reason));
                    let refused = placement.verdicts.values().filter_map(|verdict| match verdict {
                        Verdict::Refused(refusals) => Some(refusals),
                        Verdict::Allowed(_) => None,
                    });
                    // Every refused node has at least one reason.
                    prop_assert!(refused.into_iter().all(|refusals| !refusals.is_empty()));
                }
            }
        }
    }
}
