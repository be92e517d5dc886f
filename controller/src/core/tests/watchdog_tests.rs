//! Tests of `hactl node test-watchdog`: how the leader allows a test and follows its progress.

use super::fencing::running_on;
use super::lab::Lab;
use ha_api_types::cluster::ClusterSpec;
use ha_api_types::kind::Kind;
use ha_api_types::meta::Condition;
use ha_api_types::node::{NodeSpec, NodeState};
use ha_api_types::operation::{OperationAction, OperationPhase, OperationSpec};
use ha_api_types::reason::Reason;
use ha_store::{Guard, Transaction};
use serde_json::{Value, json};

fn watchdog_test_spec(lab: &Lab, node: &str) -> OperationSpec {
    OperationSpec {
        action: OperationAction::TestWatchdog,
        node: Some(node.into()),
        boot_id: Some(lab.fence(node).boot_id),
        ..OperationSpec::default()
    }
}

/// Requests a test, and checks the leader's answer.
fn check(lab: &mut Lab, name: &str, spec: OperationSpec, phase: OperationPhase, reason: Reason, part: &str) {
    lab.create_operation(name, spec);
    lab.run(300);
    let status = lab.operation(name);
    assert!((status.phase, status.reason) == (phase, reason) && status.message.contains(part), "{status:?}");
}

/// Enables maintenance of the node without services, and returns its name.
fn node_in_maintenance(lab: &mut Lab, busy: &str) -> String {
    let names = ["node1", "node2"];
    let name = names.into_iter().find(|name| *name != busy).expect("two nodes");
    lab.edit::<NodeSpec>(name, |node| node.spec.maintenance = true);
    lab.run_until(5_000, "in maintenance", |lab| lab.node_is(name, NodeState::Maintenance));
    name.to_owned()
}

#[test]
fn only_an_idle_online_node_may_test_its_watchdog() {
    use OperationPhase::{Refused, Running};
    let (mut lab, busy) = running_on(&["node1", "node2"]);
    let spec = watchdog_test_spec(&lab, &busy);
    check(
        &mut lab,
        "at-work",
        spec,
        Refused,
        Reason::Refused,
        "not in maintenance: run \"hactl node maintenance enable",
    );
    // No other node is eligible for its service.
    let other = node_in_maintenance(&mut lab, &busy);
    lab.edit::<NodeSpec>(&busy, |node| node.spec.maintenance = true);
    lab.run(500);
    let spec = watchdog_test_spec(&lab, &busy);
    check(&mut lab, "busy", spec, Refused, Reason::Refused, "Services are still active on");
    let idle = other;
    let spec = OperationSpec { boot_id: Some("another".into()), ..watchdog_test_spec(&lab, &idle) };
    check(&mut lab, "old", spec, Refused, Reason::Outdated, "has rebooted");
    let spec = OperationSpec { node: Some("nix".into()), ..watchdog_test_spec(&lab, &idle) };
    check(&mut lab, "nobody", spec, Refused, Reason::NotFound, "Node nix not found");
    let spec = watchdog_test_spec(&lab, &idle);
    check(&mut lab, "test", spec, Running, Reason::InProgress, "Waiting for the watchdog of");
}

#[test]
fn returning_machine_reports_the_watchdog_test_result() {
    let earlier = "another-test";
    for (remembers, phase) in [
        (Some("test"), OperationPhase::Succeeded),
        (Some(earlier), OperationPhase::Failed),
        (None, OperationPhase::Failed),
    ] {
        let (mut lab, busy) = running_on(&["node1", "node2"]);
        let idle = node_in_maintenance(&mut lab, &busy);
        let spec = watchdog_test_spec(&lab, &idle);
        check(
            &mut lab,
            "test",
            spec,
            OperationPhase::Running,
            Reason::InProgress,
            "Waiting for the watchdog of",
        );
        lab.agent(&idle).power_off();
        lab.run(10_000);
        assert_eq!(lab.operation("test").phase, OperationPhase::Running);
        lab.agent(&idle).tested = remembers.map(Into::into);
        lab.agent(&idle).boot_again();
        lab.run_until(20_000, "followed to its end", |lab| lab.operation("test").phase == phase);
        lab.run(500);
        let watchdog = lab.node(&idle).watchdog.expect("the node has a watchdog");
        assert_eq!(watchdog.last_test.map(|test| test.operation).as_deref(), remembers);
    }
}

#[test]
fn what_was_never_tested_fails_required_watchdog_test() {
    let (mut lab, busy) = running_on(&["node1", "node2"]);
    let idle = node_in_maintenance(&mut lab, &busy);
    lab.edit::<ClusterSpec>("default", |cluster| cluster.spec.fencing.require_tested = true);
    lab.run(500);
    let message = |lab: &Lab| {
        let conditions = lab.node(&idle).conditions;
        conditions.into_iter().find(|one| one.kind == "Fenceable").map(|one| one.reason)
    };
    assert_eq!(message(&lab), Some(Reason::WatchdogUntested));
    // The watchdog can still be tested, and is accepted afterward.
    let spec = watchdog_test_spec(&lab, &idle);
    check(&mut lab, "test", spec, OperationPhase::Running, Reason::InProgress, "Waiting for the watchdog of");
    lab.agent(&idle).power_off();
    lab.agent(&idle).tested = Some("test".into());
    lab.run(8_000);
    lab.agent(&idle).boot_again();
    lab.run_until(20_000, "tested", |lab| lab.operation("test").phase == OperationPhase::Succeeded);
    lab.run(500);
    assert!(message(&lab) != Some(Reason::WatchdogUntested));
}

#[test]
fn conditions_of_earlier_versions_are_migrated() {
    let (mut lab, busy) = running_on(&["node1", "node2"]);
    let kinds = |lab: &Lab| -> (Vec<String>, Vec<String>) {
        let kinds = |list: Vec<Condition>| list.into_iter().map(|one| one.kind).collect();
        (kinds(lab.node(&busy).conditions), kinds(lab.status("web").conditions))
    };
    let present = kinds(&lab);
    assert_eq!(present, (vec!["Fenceable".to_owned(), "Ready".to_owned()], vec!["Ready".to_owned()]));
    let keys = &lab.keys;
    let (node, web) = (keys.status(Kind::Node, &busy), keys.status(Kind::Resource, "web"));
    let stalled = json!({"type": "Stalled", "status": "False", "reason": "Running", "message": ""});
    let mut old_node = lab.read::<Value>(&node).unwrap();
    old_node["conditions"][0]["type"] = json!("Watchdog");
    old_node["conditions"].as_array_mut().unwrap().rotate_left(1);
    let mut old_web = lab.read::<Value>(&web).unwrap();
    old_web["conditions"].as_array_mut().unwrap().push(stalled);
    for (key, value) in [(node, old_node), (web, old_web)] {
        let known = Guard::Unchanged(lab.state.get(&key).entries[0].mod_revision);
        lab.state.commit(&Transaction::new().put(key, known, serde_json::to_vec(&value).unwrap()));
    }
    assert_ne!(kinds(&lab), present);
    lab.run_until(60_000, "the present types", |lab| kinds(lab) == present);
}
