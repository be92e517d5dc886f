//! Tests of `hactl node test-watchdog`: how the leader allows a test and follows its progress.

use super::fencing::cluster_with_running_service;
use super::test_cluster::TestCluster;
use ha_api_types::cluster::ClusterSpec;
use ha_api_types::kind::Kind;
use ha_api_types::meta::Condition;
use ha_api_types::node::{NodeSpec, NodeState};
use ha_api_types::operation::{OperationAction, OperationPhase, OperationSpec};
use ha_api_types::reason::Reason;
use ha_store::{Guard, Transaction};
use serde_json::{Value, json};

fn watchdog_test_spec(cluster: &TestCluster, node: &str) -> OperationSpec {
    OperationSpec {
        action: OperationAction::TestWatchdog,
        node: Some(node.into()),
        boot_id: Some(cluster.fence(node).boot_id),
        ..OperationSpec::default()
    }
}

/// Requests a test, and checks the leader's answer.
fn check(
    cluster: &mut TestCluster,
    name: &str,
    spec: OperationSpec,
    phase: OperationPhase,
    reason: Reason,
    part: &str,
) {
    cluster.create_operation(name, spec);
    cluster.run(300);
    let status = cluster.operation(name);
    assert!((status.phase, status.reason) == (phase, reason) && status.message.contains(part), "{status:?}");
}

/// Starts the operation `test` for a node that may test its watchdog.
fn start_test(cluster: &mut TestCluster, idle: &str) {
    let spec = watchdog_test_spec(cluster, idle);
    let message_part = "Waiting for the watchdog of";
    check(cluster, "test", spec, OperationPhase::Running, Reason::InProgress, message_part);
}

/// Enables maintenance of the node without services, and returns its name.
fn node_in_maintenance(cluster: &mut TestCluster, busy: &str) -> String {
    let names = ["node1", "node2"];
    let name = names.into_iter().find(|name| *name != busy).expect("two nodes");
    cluster.edit::<NodeSpec>(name, |node| node.spec.maintenance = true);
    cluster.run_until(5_000, "in maintenance", |cluster| cluster.node_is(name, NodeState::Maintenance));
    name.to_owned()
}

#[test]
fn only_an_idle_online_node_may_test_its_watchdog() {
    use OperationPhase::Refused;
    let (mut cluster, busy) = cluster_with_running_service(&["node1", "node2"]);
    let spec = watchdog_test_spec(&cluster, &busy);
    check(
        &mut cluster,
        "at-work",
        spec,
        Refused,
        Reason::Refused,
        "not in maintenance: run \"hactl node maintenance enable",
    );
    // No other node is eligible for its service.
    let other = node_in_maintenance(&mut cluster, &busy);
    cluster.edit::<NodeSpec>(&busy, |node| node.spec.maintenance = true);
    cluster.run(500);
    let spec = watchdog_test_spec(&cluster, &busy);
    check(&mut cluster, "busy", spec, Refused, Reason::Refused, "Services are still active on");
    let idle = other;
    let spec = OperationSpec { boot_id: Some("another".into()), ..watchdog_test_spec(&cluster, &idle) };
    check(&mut cluster, "old", spec, Refused, Reason::Outdated, "has rebooted");
    let spec = OperationSpec { node: Some("nix".into()), ..watchdog_test_spec(&cluster, &idle) };
    check(&mut cluster, "absent", spec, Refused, Reason::NotFound, "Node nix not found");
    start_test(&mut cluster, &idle);
}

#[test]
fn returning_machine_reports_the_watchdog_test_result() {
    let earlier = "another-test";
    for (remembers, phase) in [
        (Some("test"), OperationPhase::Succeeded),
        (Some(earlier), OperationPhase::Failed),
        (None, OperationPhase::Failed),
    ] {
        let (mut cluster, busy) = cluster_with_running_service(&["node1", "node2"]);
        let idle = node_in_maintenance(&mut cluster, &busy);
        start_test(&mut cluster, &idle);
        cluster.agent(&idle).power_off();
        cluster.run(10_000);
        assert_eq!(cluster.operation("test").phase, OperationPhase::Running);
        cluster.agent(&idle).tested = remembers.map(Into::into);
        cluster.agent(&idle).boot_again();
        cluster.run_until(20_000, "followed to its end", |cluster| cluster.operation("test").phase == phase);
        cluster.run(500);
        let watchdog = cluster.node(&idle).watchdog.expect("the node has a watchdog");
        assert_eq!(watchdog.last_test.map(|test| test.operation).as_deref(), remembers);
    }
}

#[test]
fn what_was_never_tested_fails_required_watchdog_test() {
    let (mut cluster, busy) = cluster_with_running_service(&["node1", "node2"]);
    let idle = node_in_maintenance(&mut cluster, &busy);
    cluster.edit::<ClusterSpec>("default", |settings| settings.spec.fencing.require_tested = true);
    cluster.run(500);
    let message = |cluster: &TestCluster| {
        let conditions = cluster.node(&idle).conditions;
        conditions
            .into_iter()
            .find(|condition| condition.kind == "Fenceable")
            .map(|condition| condition.reason)
    };
    assert_eq!(message(&cluster), Some(Reason::WatchdogUntested));
    // The watchdog can still be tested, and is accepted afterward.
    start_test(&mut cluster, &idle);
    cluster.agent(&idle).power_off();
    cluster.agent(&idle).tested = Some("test".into());
    cluster.run(8_000);
    cluster.agent(&idle).boot_again();
    cluster
        .run_until(20_000, "tested", |cluster| cluster.operation("test").phase == OperationPhase::Succeeded);
    cluster.run(500);
    assert!(message(&cluster) != Some(Reason::WatchdogUntested));
}

#[test]
fn conditions_of_earlier_versions_are_migrated() {
    let (mut cluster, busy) = cluster_with_running_service(&["node1", "node2"]);
    let kinds = |cluster: &TestCluster| -> (Vec<String>, Vec<String>) {
        let kinds = |list: Vec<Condition>| list.into_iter().map(|condition| condition.kind).collect();
        (kinds(cluster.node(&busy).conditions), kinds(cluster.status("web").conditions))
    };
    let present = kinds(&cluster);
    assert_eq!(present, (vec!["Fenceable".to_owned(), "Ready".to_owned()], vec!["Ready".to_owned()]));
    let keys = &cluster.keys;
    let (node, web) = (keys.status(Kind::Node, &busy), keys.status(Kind::Resource, "web"));
    let stalled = json!({"type": "Stalled", "status": "False", "reason": "Running", "message": ""});
    let mut old_node = cluster.read::<Value>(&node).unwrap();
    old_node["conditions"][0]["type"] = json!("Watchdog");
    old_node["conditions"].as_array_mut().unwrap().rotate_left(1);
    let mut old_web = cluster.read::<Value>(&web).unwrap();
    old_web["conditions"].as_array_mut().unwrap().push(stalled);
    for (key, value) in [(node, old_node), (web, old_web)] {
        let guard = Guard::Unchanged(cluster.state.get(&key).entries[0].mod_revision);
        cluster.state.commit(&Transaction::new().put(key, guard, serde_json::to_vec(&value).unwrap()));
    }
    assert_ne!(kinds(&cluster), present);
    cluster.run_until(60_000, "the present types", |cluster| kinds(cluster) == present);
}
