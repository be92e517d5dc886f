//! Tests of the exact messages of refused commands.

use super::services::{
    another_node, cluster_with_started_service, online_cluster, operation, put_group, start_in_group,
};
use super::test_cluster::TestCluster;
use ha_api_types::meta::ConditionStatus;
use ha_api_types::node::NodeSpec;
use ha_api_types::operation::{OperationAction, OperationPhase, OperationSpec};
use ha_api_types::placement::{Affinity, AffinityRule, AffinityRuleSpec, ResourceAffinity};
use ha_api_types::reason::Reason;
use ha_api_types::resource::{RequestedState, ResourceSpec, ServiceState};

const MOVES: [OperationAction; 2] = [OperationAction::Migrate, OperationAction::Relocate];

/// Requests an operation, and compares the reason and message of its refusal.
fn check(cluster: &mut TestCluster, spec: OperationSpec, reason: Reason, message: &str) {
    let action = spec.action;
    let name = format!("{action:?}-{}", cluster.now.monotonic_raw.0).to_lowercase();
    cluster.create_operation(&name, spec);
    cluster.run(300);
    let status = cluster.operation(&name);
    assert_eq!(
        (status.phase, status.reason, status.message.as_str()),
        (OperationPhase::Refused, reason, message),
        "{action:?}"
    );
    let conditions: Vec<_> = status
        .conditions
        .iter()
        .map(|condition| (condition.kind.as_str(), condition.status, condition.reason))
        .collect();
    let (complete, failed) = (ConditionStatus::False, ConditionStatus::True);
    assert_eq!(conditions, [("Complete", complete, reason), ("Failed", failed, reason)], "{action:?}");
}

/// Checks the refusal of both kinds of moves to a node.
fn check_moves(cluster: &mut TestCluster, node: &str, reason: Reason, message: &str) {
    for action in MOVES {
        check(cluster, operation(action, Some(node)), reason, message);
    }
}

#[test]
fn missing_resources_and_nodes_are_refused() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    for action in [
        OperationAction::Migrate,
        OperationAction::Relocate,
        OperationAction::Start,
        OperationAction::Stop,
        OperationAction::Restart,
        OperationAction::ClearError,
    ] {
        let spec = |resource: Option<&str>| OperationSpec {
            resource: resource.map(str::to_owned),
            ..operation(action, Some(&node))
        };
        check(&mut cluster, spec(Some("vm:other")), Reason::NotFound, "Resource other not found");
        check(&mut cluster, spec(None), Reason::Invalid, "No resource specified: set spec.resource");
    }
    check_moves(&mut cluster, "node9", Reason::NotFound, "Node node9 not found");
    for action in MOVES {
        let message = "No target node: set spec.node";
        check(&mut cluster, operation(action, None), Reason::Invalid, message);
    }
    check_moves(&mut cluster, &node, Reason::CurrentNode, &format!("web is already on {node}"));
}

#[test]
fn an_ineligible_target_is_refused() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    let target = another_node(&cluster, &node);
    cluster.edit::<NodeSpec>(&target, |node| node.spec.maintenance = true);
    cluster.run(500);
    let message = format!("{target} is not eligible: node is in maintenance");
    check_moves(&mut cluster, &target, Reason::NodeInMaintenance, &message);
    cluster.edit::<NodeSpec>(&target, |node| node.spec.maintenance = false);
    cluster.edit::<NodeSpec>(&target, |node| node.spec.schedulable = Some(false));
    cluster.run(500);
    let message = format!("{target} is not eligible: node is unschedulable");
    check_moves(&mut cluster, &target, Reason::NodeUnschedulable, &message);
    cluster.edit::<NodeSpec>(&target, |node| node.spec.schedulable = Some(true));
    put_group(&mut cluster, &[(&node, 1)], true);
    cluster.edit::<ResourceSpec>("web", |resource| resource.spec.group = Some("g".to_owned()));
    cluster.run(500);
    let message = format!("{target} is not eligible: node is not a member of the restricted group g");
    check_moves(&mut cluster, &target, Reason::NotInGroup, &message);
    // Every reason is named, not only the first.
    cluster.agent(&target).power_off();
    cluster.run(10_000);
    cluster.create_operation("both", operation(OperationAction::Migrate, Some(&target)));
    cluster.run(300);
    let status = cluster.operation("both");
    assert_eq!((status.phase, status.reason), (OperationPhase::Refused, Reason::NodeNotOnline));
    assert!(status.message.starts_with(&format!("{target} is not eligible: node is not online: ")));
    assert!(
        status.message.ends_with(", node is not a member of the restricted group g"),
        "{}",
        status.message
    );
}

#[test]
fn target_of_anti_affinity_partner_is_refused() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    let target = another_node(&cluster, &node);
    let anti_affinity = ResourceAffinity {
        resources: vec!["web".to_owned(), "db".to_owned()],
        affinity: Affinity::Negative,
        strict: true,
    };
    let spec = AffinityRuleSpec { resource_affinity: Some(anti_affinity), ..AffinityRuleSpec::default() };
    cluster.apply(AffinityRule::new("apart", spec));
    cluster.start("db");
    let message = format!("{target} is not eligible: db uses the node (anti-affinity rule apart)");
    check_moves(&mut cluster, &target, Reason::NegativePartner, &message);
    cluster.create_operation("named", operation(OperationAction::Migrate, Some(&target)));
    cluster.run(300);
    assert_eq!(cluster.operation("named").blocked_by, ["db"]);
}

#[test]
fn operation_impossible_in_current_state_is_refused() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    let target = another_node(&cluster, &node);
    let web = |action: OperationAction| operation(action, Some(&target));
    let actions = [OperationAction::Migrate, OperationAction::Relocate, OperationAction::Restart];
    let message = "web is in state Started, not Error";
    check(&mut cluster, web(OperationAction::ClearError), Reason::Refused, message);
    cluster.set_requested_state("web", RequestedState::Stopped);
    cluster.run_until(5_000, "stopped", |cluster| cluster.is_in_state("web", ServiceState::Stopped));
    let message = "web is stopped: run \"hactl start web\"";
    check(&mut cluster, web(OperationAction::Restart), Reason::Refused, message);
    cluster.set_requested_state("web", RequestedState::Ignored);
    cluster.run_until(5_000, "ignored", |cluster| cluster.is_in_state("web", ServiceState::Ignored));
    for action in actions {
        let message = "web is Ignored (not managed): run \"hactl start web\" to manage it";
        check(&mut cluster, web(action), Reason::Unmanaged, message);
    }
    cluster.set_requested_state("web", RequestedState::Started);
    cluster.run_until(5_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    cluster.agent(&node).faults.fails_stop.insert("web".into());
    cluster.set_requested_state("web", RequestedState::Stopped);
    cluster.run_until(5_000, "in error", |cluster| cluster.is_in_state("web", ServiceState::Error));
    for action in actions.into_iter().chain([OperationAction::Start]) {
        let message = "web is in Error: run \"hactl clear-error web\"";
        check(&mut cluster, web(action), Reason::Refused, message);
    }
}

#[test]
fn operations_are_refused_during_fencing_recovery_and_freeze() {
    let actions = [OperationAction::Migrate, OperationAction::Relocate, OperationAction::Restart];
    let mut cluster = online_cluster(&["node1", "node2"]);
    put_group(&mut cluster, &[("node1", 0)], true);
    start_in_group(&mut cluster, "web");
    cluster.run_until(5_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    cluster.agent("node1").armed = false;
    cluster.run(1_500);
    cluster.agent("node1").set_mode(ha_api_types::record::Mode::Restart);
    cluster.run_until(5_000, "frozen", |cluster| cluster.is_in_state("web", ServiceState::Freeze));
    for action in actions {
        let message = "web is in state Freeze: start the agent of its node (systemctl start ha-node-agent)";
        check(&mut cluster, operation(action, Some("node2")), Reason::Frozen, message);
    }
    cluster.agent("node1").armed = true;
    cluster.agent("node1").mode = None;
    cluster.run_until(5_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    cluster.run(2_000);
    cluster.agent("node1").power_off();
    cluster.run_until(10_000, "in fence", |cluster| cluster.is_in_state("web", ServiceState::Fence));
    for action in actions {
        let message = "web is waiting for its node to be fenced";
        check(&mut cluster, operation(action, Some("node2")), Reason::Fencing, message);
    }
    cluster.run_until(20_000, "in recovery", |cluster| cluster.is_in_state("web", ServiceState::Recovery));
    for action in actions {
        let spec = operation(action, Some("node2"));
        check(&mut cluster, spec, Reason::Recovering, "web is waiting to be scheduled");
    }
}
