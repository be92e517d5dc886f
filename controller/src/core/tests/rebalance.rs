//! Tests of automatic rebalancing: its states, events and metrics.

use super::metric_events::leader_samples;
use super::services::online_cluster;
use super::test_cluster::TestCluster;
use crate::core::plan::RebalanceState;
use crate::core::plan_input::ImbalanceKind;
use ha_api_types::cluster::{ClusterSpec, SchedulerMode};
use ha_api_types::metric::leader;
use ha_api_types::node::NodeSpec;
use ha_api_types::placement::{Affinity, AffinityRule, AffinityRuleSpec, ResourceAffinity};
use ha_api_types::quantity::{Amounts, Quantity};
use ha_api_types::reason::Reason;
use ha_api_types::resource::{ResourceSpec, ServiceState};

fn cpus(count: i128) -> Amounts {
    Amounts { cpu: Some(Quantity::from_units(count)), ..Amounts::default() }
}

/// Returns a cluster with these services, and their CPUs, on the first of two nodes with 16 CPUs. Automatic rebalancing
/// is enabled.
fn imbalanced(services: &[(&str, i128)]) -> TestCluster {
    let mut cluster = online_cluster(&["node1", "node2"]);
    for node in ["node1", "node2"] {
        cluster.edit::<NodeSpec>(node, |node| node.spec.capacity = Some(cpus(16)));
    }
    cluster.edit::<NodeSpec>("node2", |node| node.spec.schedulable = Some(false));
    for (name, count) in services {
        cluster.create_resource(name);
        cluster.edit::<ResourceSpec>(name, |resource| resource.spec.requests = cpus(*count));
    }
    cluster.run_until(20_000, "all on node1", |cluster| {
        services.iter().all(|(name, _)| {
            cluster.is_in_state(name, ServiceState::Started) && cluster.running_nodes(name) == ["node1"]
        })
    });
    cluster.edit::<NodeSpec>("node2", |node| node.spec.schedulable = Some(true));
    cluster.edit::<ClusterSpec>("default", |settings| {
        settings.spec.scheduler.mode = SchedulerMode::Static;
        settings.spec.scheduler.auto_rebalance.enabled = true;
    });
    cluster
}

fn load_state(cluster: &TestCluster) -> Option<RebalanceState> {
    cluster.controllers[0].core.rebalance().get(&ImbalanceKind::Load).copied()
}

#[test]
fn a_set_moves_together_and_the_event_says_why() {
    let mut cluster = imbalanced(&[("p1", 2), ("p2", 2), ("q", 4)]);
    let rule = ResourceAffinity {
        resources: vec!["p1".to_owned(), "p2".to_owned()],
        affinity: Affinity::Positive,
        strict: true,
    };
    let spec = AffinityRuleSpec { resource_affinity: Some(rule), ..AffinityRuleSpec::default() };
    cluster.apply(AffinityRule::new("together", spec));
    cluster.agent("node2").faults.ignores_assignments = true;
    cluster.run(5_000);
    assert_eq!(load_state(&cluster), Some(RebalanceState::Holding));
    cluster.run_until(60_000, "moving", |cluster| load_state(cluster) == Some(RebalanceState::Moving));
    cluster.agent("node2").faults.ignores_assignments = false;
    cluster.run_until(60_000, "the set is on node2", |cluster| {
        ["p1", "p2"].iter().all(|name| {
            cluster.running_nodes(name) == ["node2"] && cluster.is_in_state(name, ServiceState::Started)
        })
    });
    cluster.run(60_000);
    assert_eq!(load_state(&cluster), Some(RebalanceState::Balanced));
    assert_eq!(cluster.running_nodes("q"), ["node1"]);
    let messages: Vec<&str> = cluster
        .events
        .iter()
        .filter(|event| event.reason == Reason::Rebalanced)
        .map(|event| event.message.as_str())
        .collect();
    let expected = "Live-migrating from node1 to node2: Load of the nodes is being rebalanced, together with p2: \
                    imbalance from 1.00 to 0.00, threshold 0.3";
    assert_eq!(messages, [expected]);
    let shown = leader_samples(&cluster);
    for sample in [
        leader::REBALANCE_STATE.sample(["Load", "Balanced"], 1.0),
        leader::REBALANCE_STATE.sample(["Load", "Moving"], 0.0),
    ] {
        assert!(shown.contains(&sample), "{sample:?} is missing in {shown:#?}");
    }
}

#[test]
fn a_load_that_no_move_reduces_is_reported() {
    let mut cluster = imbalanced(&[("only", 4)]);
    cluster.run(5_000);
    assert_eq!(load_state(&cluster), Some(RebalanceState::Holding));
    cluster.run(60_000);
    assert_eq!(load_state(&cluster), Some(RebalanceState::NoMove));
    assert!(leader_samples(&cluster).contains(&leader::REBALANCE_STATE.sample(["Load", "NoMove"], 1.0)));
    assert_eq!(cluster.running_nodes("only"), ["node1"]);
    assert!(
        !leader_samples(&cluster)
            .iter()
            .any(|sample| { *sample.metric == *leader::REBALANCE_STATE && sample.labels[0] == "Services" })
    );
}

#[test]
fn a_node_with_too_many_services_is_reported_as_its_own_cause() {
    let mut cluster = imbalanced(&[("a", 1), ("b", 1), ("c", 1)]);
    cluster.edit::<ClusterSpec>("default", |settings| {
        settings.spec.scheduler.auto_rebalance.enabled = false;
        settings.spec.reservation.enabled = true;
        settings.spec.reservation.over_utilization = 100;
    });
    let state = |cluster: &TestCluster| {
        cluster.controllers[0].core.rebalance().get(&ImbalanceKind::Services).copied()
    };
    cluster.run(5_000);
    assert_eq!(state(&cluster), Some(RebalanceState::Holding));
    cluster.agent("node2").faults.ignores_assignments = true;
    cluster.run_until(60_000, "moving", |cluster| state(cluster) == Some(RebalanceState::Moving));
    cluster.agent("node2").faults.ignores_assignments = false;
    cluster.run(60_000);
    // Two services are above the limit of 1.5, but a further move would only exchange the nodes.
    assert_eq!(state(&cluster), Some(RebalanceState::NoMove));
    assert_eq!(load_state(&cluster), None);
}
