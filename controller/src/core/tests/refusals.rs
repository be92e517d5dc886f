//! Tests of the exact messages of refused commands.

use super::lab::Lab;
use super::services::{group, lab, operation, other, start_in_group, started};
use ha_api_types::meta::ConditionStatus;
use ha_api_types::node::NodeSpec;
use ha_api_types::operation::{OperationAction, OperationPhase, OperationSpec};
use ha_api_types::placement::{Affinity, AffinityRule, AffinityRuleSpec, ResourceAffinity};
use ha_api_types::reason::Reason;
use ha_api_types::resource::{RequestedState, ResourceSpec, ServiceState};

const MOVES: [OperationAction; 2] = [OperationAction::Migrate, OperationAction::Relocate];

/// Requests an operation, and compares the reason and message of its refusal.
fn check(lab: &mut Lab, spec: OperationSpec, reason: Reason, message: &str) {
    let action = spec.action;
    let name = format!("{action:?}-{}", lab.now.monotonic_raw.0).to_lowercase();
    lab.create_operation(&name, spec);
    lab.run(300);
    let status = lab.operation(&name);
    assert_eq!(
        (status.phase, status.reason, status.message.as_str()),
        (OperationPhase::Refused, reason, message),
        "{action:?}"
    );
    let conditions: Vec<_> =
        status.conditions.iter().map(|one| (one.kind.as_str(), one.status, one.reason)).collect();
    let (complete, failed) = (ConditionStatus::False, ConditionStatus::True);
    assert_eq!(conditions, [("Complete", complete, reason), ("Failed", failed, reason)], "{action:?}");
}

/// Checks the refusal of both kinds of moves to a node.
fn check_moves(lab: &mut Lab, node: &str, reason: Reason, message: &str) {
    for action in MOVES {
        check(lab, operation(action, Some(node)), reason, message);
    }
}

#[test]
fn missing_resources_and_nodes_are_refused() {
    let (mut lab, node) = started(&["node1", "node2"]);
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
        check(&mut lab, spec(Some("vm:other")), Reason::NotFound, "Resource other not found");
        check(&mut lab, spec(None), Reason::Invalid, "No resource specified: set spec.resource");
    }
    check_moves(&mut lab, "node9", Reason::NotFound, "Node node9 not found");
    for action in MOVES {
        let message = "No target node: set spec.node";
        check(&mut lab, operation(action, None), Reason::Invalid, message);
    }
    check_moves(&mut lab, &node, Reason::CurrentNode, &format!("web is already on {node}"));
}

#[test]
fn an_ineligible_target_is_refused() {
    let (mut lab, node) = started(&["node1", "node2"]);
    let target = other(&lab, &node);
    lab.edit::<NodeSpec>(&target, |node| node.spec.maintenance = true);
    lab.run(500);
    let message = format!("{target} is not eligible: node is in maintenance");
    check_moves(&mut lab, &target, Reason::NodeInMaintenance, &message);
    lab.edit::<NodeSpec>(&target, |node| node.spec.maintenance = false);
    lab.edit::<NodeSpec>(&target, |node| node.spec.schedulable = false);
    lab.run(500);
    let message = format!("{target} is not eligible: node is unschedulable");
    check_moves(&mut lab, &target, Reason::NodeUnschedulable, &message);
    lab.edit::<NodeSpec>(&target, |node| node.spec.schedulable = true);
    group(&mut lab, &[(&node, 1)], true);
    lab.edit::<ResourceSpec>("web", |resource| resource.spec.group = Some("g".to_owned()));
    lab.run(500);
    let message = format!("{target} is not eligible: node is not a member of the restricted group g");
    check_moves(&mut lab, &target, Reason::NotInGroup, &message);
    // Every reason is named, not only the first.
    lab.agent(&target).power_off();
    lab.run(10_000);
    lab.create_operation("both", operation(OperationAction::Migrate, Some(&target)));
    lab.run(300);
    let status = lab.operation("both");
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
    let (mut lab, node) = started(&["node1", "node2"]);
    let target = other(&lab, &node);
    let apart = ResourceAffinity {
        resources: vec!["web".to_owned(), "db".to_owned()],
        affinity: Affinity::Negative,
        strict: true,
    };
    let spec = AffinityRuleSpec { resource_affinity: Some(apart), ..AffinityRuleSpec::default() };
    lab.apply(AffinityRule::new("apart", spec));
    lab.start("db");
    let message = format!("{target} is not eligible: db uses the node (anti-affinity rule apart)");
    check_moves(&mut lab, &target, Reason::NegativePartner, &message);
    lab.create_operation("named", operation(OperationAction::Migrate, Some(&target)));
    lab.run(300);
    assert_eq!(lab.operation("named").blocked_by, ["db"]);
}

#[test]
fn operation_impossible_in_current_state_is_refused() {
    let (mut lab, node) = started(&["node1", "node2"]);
    let target = other(&lab, &node);
    let web = |action: OperationAction| operation(action, Some(&target));
    let all = [OperationAction::Migrate, OperationAction::Relocate, OperationAction::Restart];
    let message = "web is in state Started, not Error";
    check(&mut lab, web(OperationAction::ClearError), Reason::Refused, message);
    lab.set_requested_state("web", RequestedState::Stopped);
    lab.run_until(5_000, "stopped", |lab| lab.is_in_state("web", ServiceState::Stopped));
    let message = "web is stopped: run \"hactl start web\"";
    check(&mut lab, web(OperationAction::Restart), Reason::Refused, message);
    lab.set_requested_state("web", RequestedState::Ignored);
    lab.run_until(5_000, "ignored", |lab| lab.is_in_state("web", ServiceState::Ignored));
    for action in all {
        let message = "web is Ignored (not managed): run \"hactl start web\" to manage it";
        check(&mut lab, web(action), Reason::Unmanaged, message);
    }
    lab.set_requested_state("web", RequestedState::Started);
    lab.run_until(5_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
    lab.agent(&node).faults.fails_stop.insert("web".into());
    lab.set_requested_state("web", RequestedState::Stopped);
    lab.run_until(5_000, "in error", |lab| lab.is_in_state("web", ServiceState::Error));
    for action in all.into_iter().chain([OperationAction::Start]) {
        let message = "web is in Error: run \"hactl clear-error web\"";
        check(&mut lab, web(action), Reason::Refused, message);
    }
}

#[test]
fn operations_are_refused_during_fencing_recovery_and_freeze() {
    let all = [OperationAction::Migrate, OperationAction::Relocate, OperationAction::Restart];
    let mut lab = lab(&["node1", "node2"]);
    group(&mut lab, &[("node1", 0)], true);
    start_in_group(&mut lab, "web");
    lab.run_until(5_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
    lab.agent("node1").armed = false;
    lab.run(1_500);
    lab.agent("node1").leave(ha_api_types::record::Mode::Restart);
    lab.run_until(5_000, "frozen", |lab| lab.is_in_state("web", ServiceState::Freeze));
    for action in all {
        let message = "web is in state Freeze: start the agent of its node (systemctl start ha-node-agent)";
        check(&mut lab, operation(action, Some("node2")), Reason::Frozen, message);
    }
    lab.agent("node1").armed = true;
    lab.agent("node1").mode = None;
    lab.run_until(5_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
    lab.run(2_000);
    lab.agent("node1").power_off();
    lab.run_until(10_000, "in fence", |lab| lab.is_in_state("web", ServiceState::Fence));
    for action in all {
        let message = "web is waiting for its node to be fenced";
        check(&mut lab, operation(action, Some("node2")), Reason::Fencing, message);
    }
    lab.run_until(20_000, "in recovery", |lab| lab.is_in_state("web", ServiceState::Recovery));
    for action in all {
        let spec = operation(action, Some("node2"));
        check(&mut lab, spec, Reason::Recovering, "web is waiting to be scheduled");
    }
}
