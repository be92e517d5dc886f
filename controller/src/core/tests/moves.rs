//! Tests of placement, commands and shutdown, and of FENCING, section 8: targets and kinds of moves.

use super::devices::{ordered_actions, pdu};
use super::services::{condition, group, lab, operation, other, start_in_group, started};
use crate::core::{FencerAction, FencerOutcome};
use ha_api_types::id::{Epoch, NodeName};
use ha_api_types::kind::Kind;
use ha_api_types::meta::ConditionStatus;
use ha_api_types::node::{FenceAction, FenceDevice, NodeSpec, NodeState};
use ha_api_types::operation::{OperationAction, OperationPhase, OperationSpec};
use ha_api_types::placement::{Affinity, AffinityRule, AffinityRuleSpec, ResourceAffinity};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Assignment, FenceState, Phase, Proof, ServiceReport, Tombstone};
use ha_api_types::resource::{ResourceSpec, ResourceStatus, ServiceState};

#[test]
fn service_fails_back_to_returned_preferred_node() {
    let mut lab = lab(&["node1", "node2"]);
    group(&mut lab, &[("node1", 2), ("node2", 1)], false);
    start_in_group(&mut lab, "web");
    lab.run_until(3_000, "on node1", |lab| lab.running_nodes("web") == ["node1"]);
    lab.agent("node1").power_off();
    lab.run_until(20_000, "on node2", |lab| lab.running_nodes("web") == ["node2"]);
    lab.agent("node1").boot_again();
    lab.run_until(20_000, "back on node1", |lab| {
        lab.running_nodes("web") == ["node1"] && lab.is_in_state("web", ServiceState::Started)
    });
    lab.edit::<ResourceSpec>("web", |resource| resource.spec.failback = false);
    lab.agent("node1").power_off();
    lab.run_until(20_000, "on node2", |lab| lab.running_nodes("web") == ["node2"]);
    lab.agent("node1").boot_again();
    lab.run(20_000);
    assert_eq!(lab.running_nodes("web"), ["node2"]);
}

#[test]
fn restricted_group_runs_on_members_only() {
    let mut lab = lab(&["node1", "node2"]);
    group(&mut lab, &[("node1", 0)], true);
    start_in_group(&mut lab, "web");
    lab.run_until(3_000, "on node1", |lab| lab.running_nodes("web") == ["node1"]);
    lab.agent("node1").power_off();
    lab.run_until(20_000, "recovery", |lab| lab.is_in_state("web", ServiceState::Recovery));
    let status = lab.status("web");
    let stalled = status.conditions.iter().find(|condition| condition.kind == "Stalled").unwrap();
    assert_eq!((stalled.status, stalled.reason), (ConditionStatus::True, Reason::Unschedulable));
    assert!(stalled.message.contains("node2: node is not a member"), "{}", stalled.message);
    lab.create_operation("move", operation(OperationAction::Migrate, Some("node2")));
    lab.run(1_000);
    assert_eq!(lab.operation("move").phase, OperationPhase::Refused, "commands in Recovery are refused");
    group(&mut lab, &[("node1", 0), ("node2", 0)], true);
    lab.run_until(2_000, "on node2", |lab| lab.running_nodes("web") == ["node2"]);
}

#[test]
fn recovery_starts_higher_priority_first() {
    let mut lab = lab(&["node1", "node2"]);
    group(&mut lab, &[("node1", 1)], false);
    for name in ["a", "b", "c"] {
        start_in_group(&mut lab, name);
    }
    lab.edit::<ResourceSpec>("c", |resource| resource.spec.priority = 10);
    lab.run_until(5_000, "all on node1", |lab| {
        ["a", "b", "c"].iter().all(|name| lab.running_nodes(name) == ["node1"])
    });
    lab.agent("node1").power_off();
    lab.run_until(20_000, "recovered", |lab| {
        ["a", "b", "c"].iter().all(|name| lab.running_nodes(name) == ["node2"])
    });
    let order: Vec<&str> = lab
        .events
        .iter()
        .filter(|event| event.reason == Reason::Recovered)
        .map(|event| event.name.as_str())
        .collect();
    assert_eq!(order, ["c", "a", "b"]);
}

#[test]
fn requested_live_migration_succeeds() {
    let (mut lab, node) = started(&["node1", "node2"]);
    let target = other(&lab, &node);
    lab.create_operation("move", operation(OperationAction::Migrate, Some(&target)));
    lab.run_until(5_000, "moved", |lab| lab.operation("move").phase == OperationPhase::Succeeded);
    assert_eq!(lab.running_nodes("web"), std::slice::from_ref(&target));
    assert!(lab.events.iter().any(|event| event.message.contains("Live-migrating")));
    lab.create_operation("again", operation(OperationAction::Migrate, Some(&target)));
    lab.run(1_000);
    assert_eq!(lab.operation("again").reason, Reason::CurrentNode);
    lab.create_operation("nowhere", operation(OperationAction::Migrate, Some("node9")));
    lab.run(1_000);
    assert_eq!(lab.operation("nowhere").reason, Reason::NotFound);
}

#[test]
fn failed_migration_leaves_service_on_source() {
    let (mut lab, node) = started(&["node1", "node2"]);
    let target = other(&lab, &node);
    lab.agent(&node).faults.fails_migrate = true;
    lab.create_operation("move", operation(OperationAction::Migrate, Some(&target)));
    lab.run_until(5_000, "failed", |lab| lab.operation("move").phase == OperationPhase::Failed);
    let message = lab.operation("move").message;
    assert_eq!(message, format!("Move failed, staying on {node}: the link broke"));
    lab.run(5_000);
    assert_eq!(lab.running_nodes("web"), [node]);
    assert!(lab.is_in_state("web", ServiceState::Started));
}

#[test]
fn source_lost_during_move_is_fenced_first() {
    let (mut lab, node) = started(&["node1", "node2"]);
    let target = other(&lab, &node);
    lab.agent(&target).faults.ignores_assignments = true;
    lab.create_operation("move", operation(OperationAction::Migrate, Some(&target)));
    lab.run_until(2_000, "moving", |lab| lab.is_in_state("web", ServiceState::Migrate));
    lab.agent(&node).power_off();
    lab.run_until(20_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
    lab.agent(&target).faults.ignores_assignments = false;
    lab.run_until(5_000, "runs on the target", |lab| lab.running_nodes("web") == [target.clone()]);
}

#[test]
fn a_service_whose_target_is_lost_stays_on_its_source() {
    let (mut lab, node) = started(&["node1", "node2"]);
    let target = other(&lab, &node);
    lab.agent(&target).faults.ignores_assignments = true;
    lab.create_operation("move", operation(OperationAction::Migrate, Some(&target)));
    lab.run_until(2_000, "moving", |lab| lab.is_in_state("web", ServiceState::Migrate));
    lab.agent(&target).power_off();
    lab.run_until(20_000, "stays", |lab| lab.is_in_state("web", ServiceState::Started));
    assert_eq!(lab.running_nodes("web"), [node]);
    assert_eq!(lab.operation("move").phase, OperationPhase::Failed);
}

#[test]
fn relocation_stops_and_starts_the_service() {
    let (mut lab, node) = started(&["node1", "node2"]);
    let target = other(&lab, &node);
    lab.create_operation("move", operation(OperationAction::Relocate, Some(&target)));
    lab.run_until(5_000, "moved", |lab| lab.operation("move").phase == OperationPhase::Succeeded);
    assert_eq!(lab.running_nodes("web"), [target]);
}

#[test]
fn restart_is_a_new_start_action() {
    let (mut lab, node) = started(&["node1", "node2"]);
    let before = lab.status("web").action_uid;
    lab.create_operation("restart", operation(OperationAction::Restart, None));
    lab.run_until(3_000, "restarted", |lab| lab.operation("restart").phase == OperationPhase::Succeeded);
    assert_ne!(lab.status("web").action_uid, before);
    assert_eq!(lab.running_nodes("web"), [node]);
}

#[test]
fn move_to_unavailable_node_is_refused() {
    let (mut lab, node) = started(&["node1", "node2", "node3"]);
    let targets: Vec<NodeName> = lab.agents.keys().filter(|name| **name != node).cloned().collect();
    lab.edit::<NodeSpec>(&targets[0], |node| node.spec.maintenance = true);
    lab.agent(&targets[1]).power_off();
    lab.run(9_000);
    lab.create_operation("one", operation(OperationAction::Migrate, Some(&targets[0])));
    lab.run(1_000);
    assert_eq!(lab.operation("one").reason, Reason::NodeInMaintenance);
    lab.create_operation("two", operation(OperationAction::Migrate, Some(&targets[1])));
    lab.run(1_000);
    assert_eq!(lab.operation("two").reason, Reason::NodeNotOnline);
}

#[test]
fn maintenance_moves_services_away_and_back_again() {
    let (mut lab, node) = started(&["node1", "node2"]);
    lab.edit::<ResourceSpec>("web", |resource| resource.spec.failback = false);
    lab.edit::<NodeSpec>(&node, |node| node.spec.maintenance = true);
    lab.run_until(5_000, "away", |lab| {
        !lab.running_nodes("web").contains(&node) && lab.is_in_state("web", ServiceState::Started)
    });
    assert!(lab.node_is(&node, NodeState::Maintenance));
    assert_eq!(lab.status("web").maintenance_node, Some(node.clone()));
    lab.edit::<NodeSpec>(&node, |node| node.spec.maintenance = false);
    lab.run_until(5_000, "back", |lab| {
        lab.running_nodes("web") == [node.clone()] && lab.is_in_state("web", ServiceState::Started)
    });
    assert_eq!(lab.status("web").maintenance_node, None);
}

#[test]
fn service_stuck_during_maintenance_has_a_reason() {
    let (mut lab, node) = started(&["node1"]);
    lab.edit::<NodeSpec>(&node, |node| node.spec.maintenance = true);
    lab.run(2_000);
    assert!(lab.is_in_state("web", ServiceState::Started));
    assert_eq!(condition(&lab, "web", "Stalled"), (ConditionStatus::True, Reason::Draining));
}

#[test]
fn services_that_must_stay_together_move_together() {
    let mut lab = lab(&["node1", "node2"]);
    let rule = ResourceAffinity {
        resources: vec!["web".to_owned(), "db".to_owned()],
        affinity: Affinity::Positive,
        strict: true,
    };
    let spec = AffinityRuleSpec { resource_affinity: Some(rule), ..AffinityRuleSpec::default() };
    lab.apply(AffinityRule::new("together", spec));
    lab.start("web");
    lab.start("db");
    let node = lab.running_nodes("web");
    assert_eq!(lab.running_nodes("db"), node);
    let target = other(&lab, &node[0]);
    lab.create_operation("move", operation(OperationAction::Migrate, Some(&target)));
    lab.run_until(5_000, "both there", |lab| {
        lab.running_nodes("web") == std::slice::from_ref(&target)
            && lab.running_nodes("db") == std::slice::from_ref(&target)
    });
    lab.run(5_000);
    assert_eq!(lab.running_nodes("db"), std::slice::from_ref(&target));
    assert_eq!(lab.running_nodes("web"), std::slice::from_ref(&target));
    assert_eq!(lab.operation("move").companions, ["db"]);
    lab.edit::<NodeSpec>(&target, |node| node.spec.maintenance = true);
    lab.run_until(8_000, "both away", |lab| {
        lab.running_nodes("web") == node && lab.running_nodes("db") == node
    });
}

#[test]
fn move_that_breaks_anti_affinity_is_refused() {
    let mut lab = lab(&["node1", "node2"]);
    let rule = ResourceAffinity {
        resources: vec!["web".to_owned(), "db".to_owned()],
        affinity: Affinity::Negative,
        strict: true,
    };
    let spec = AffinityRuleSpec { resource_affinity: Some(rule), ..AffinityRuleSpec::default() };
    lab.apply(AffinityRule::new("apart", spec));
    lab.start("web");
    lab.start("db");
    assert_ne!(lab.running_nodes("web"), lab.running_nodes("db"));
    let target = lab.running_nodes("db")[0].clone();
    lab.create_operation("move", operation(OperationAction::Migrate, Some(&target)));
    lab.run(1_000);
    let status = lab.operation("move");
    assert_eq!((status.phase, status.reason), (OperationPhase::Refused, Reason::NegativePartner));
    assert_eq!(status.blocked_by, ["db"]);
}

/// Returns a migration from the first node to the second. The source has committed the hand-over, and the target has
/// the active copy. The source registers again, so that its report of the hand-over is overwritten.
fn lab_with_reregistered_source() -> (super::lab::Lab, NodeName, NodeName) {
    let (mut lab, source) = started(&["node1", "node2", "node3"]);
    let target = other(&lab, &source);
    lab.create_operation("move", operation(OperationAction::Migrate, Some(&target)));
    let key = lab.keys.service_report(&source, &"web".into());
    lab.run_until(5_000, "handing over", |lab| {
        lab.read::<ServiceReport>(&key).is_some_and(|report| report.phase == Phase::HandingOver)
    });
    lab.agent(&target).faults.ignores_assignments = true;
    lab.agent(&source).running.clear();
    lab.agent(&target).running.insert("web".into());
    lab.agent(&source).lose_journal();
    lab.run_until(5_000, "registered again", |lab| {
        lab.fence(&source).epoch == Epoch(2) && lab.node_is(&source, NodeState::Online)
    });
    lab.run_until(2_000, "overwritten", |lab| {
        lab.read::<ServiceReport>(&key).is_some_and(|report| report.phase != Phase::HandingOver)
    });
    (lab, source, target)
}

#[test]
fn cutover_survives_new_registration_of_source() {
    let (mut lab, _, target) = lab_with_reregistered_source();
    assert_eq!(lab.assignment("web").unwrap().node, target, "the only place that is left: {}", lab.show());
    lab.agent(&target).faults.ignores_assignments = false;
    lab.run_until(5_000, "runs on the target", |lab| lab.is_in_state("web", ServiceState::Started));
    assert_eq!(lab.running_nodes("web"), [target]);
}

#[test]
fn cutover_blocks_starts_until_target_is_empty() {
    let (mut lab, source, target) = lab_with_reregistered_source();
    lab.agent(&target).isolated = true;
    lab.run_until(20_000, "elsewhere", |lab| {
        let fenced = lab.fence(&target).state == FenceState::Fenced;
        assert!(fenced || lab.assignment("web").is_some_and(|assignment| assignment.node == target));
        fenced && lab.running_nodes("web").iter().any(|place| *place != target)
    });
    assert!(lab.fence(&source).epoch == Epoch(2) && lab.running_nodes("web").len() == 1);
}

/// Returns a service whose migration ended with the end of the source. The leader has ordered the target to stop a copy
/// that arrived, or to start the copy that it received. The target registers again without an answer, after a copy has
/// arrived on it.
fn lab_with_late_arrival(action: Action) -> (super::lab::Lab, NodeName) {
    let (mut lab, source) = started(&["node1", "node2", "node3"]);
    let target = other(&lab, &source);
    lab.agent(&target).faults.ignores_assignments = true;
    lab.agent(&source).running.clear();
    let source_report_key = lab.keys.service_report(&source, &"web".into());
    let handed_over = ServiceReport { phase: Phase::HandedOver, ..lab.read(&source_report_key).unwrap() };
    lab.put(&source_report_key, &handed_over);
    let (fence, mut assignment) = (lab.fence(&target), lab.assignment("web").unwrap());
    assignment.definition.driver.simulated.get_or_insert_default().gated = false;
    let stop = Assignment {
        node: target.clone(),
        epoch: fence.epoch,
        boot_id: fence.boot_id,
        action_uid: "asked-after-the-source-ended".into(),
        action,
        source_end_revision: Some(lab.state.revision()),
        ..assignment
    };
    let state = if stop.action == Action::Start { ServiceState::Starting } else { ServiceState::Relocate };
    let status = ResourceStatus {
        state,
        node: Some(target.clone()),
        epoch: Some(stop.epoch),
        action_uid: Some(stop.action_uid.clone()),
        ..lab.status("web")
    };
    lab.put(&lab.keys.assignment(&"web".into()), &stop);
    lab.put(&lab.keys.status(Kind::Resource, "web"), &status);
    lab.agent(&target).lose_journal();
    lab.run_until(5_000, "registered again", |lab| lab.fence(&target).epoch == Epoch(2));
    lab.agent(&target).running.insert("web".into());
    (lab, target)
}

const STOP: Action = Action::Stop { timeout_ms: None };

/// FENCING R8.17: the proof may be older than the arrival, so the target is asked again under its new epoch.
#[test]
fn arrival_is_verified_again_after_registration_request() {
    for ordered in [STOP, Action::Start] {
        let (mut lab, target) = lab_with_late_arrival(ordered);
        lab.run(3_000);
        let assignment = lab.assignment("web").unwrap();
        assert_eq!((assignment.node, assignment.epoch), (target.clone(), Epoch(2)), "{}", lab.show());
        assert!(matches!(assignment.action, Action::Stop { .. }) && assignment.source_end_revision.is_some());
        lab.agent(&target).faults.ignores_assignments = false;
        lab.run_until(10_000, "runs", |lab| {
            lab.is_in_state("web", ServiceState::Started) && lab.status("web").running
        });
        assert_eq!(lab.running_nodes("web").len(), 1);
        assert_eq!(lab.assignment("web").unwrap().source_end_revision, None);
    }
}

/// FENCING R8.17: the daemon of a node that is armed but has no permit may have no deadline. If such a node becomes
/// silent, its watchdog does not reset it.
#[test]
fn target_silence_does_not_disprove_arrival() {
    let (mut lab, target) = lab_with_late_arrival(STOP);
    lab.run(3_000);
    lab.agent(&target).isolated = true;
    lab.run_until(30_000, "fenced for its silence", |lab| {
        matches!(lab.fence(&target).proof, Some(Proof::Silence { .. }))
    });
    lab.run(10_000);
    assert_eq!(lab.assignment("web").unwrap().node, target, "{}", lab.show());
    assert!(!lab.status("web").running);
    lab.agent(&target).power_off();
    lab.agent(&target).faults.ignores_assignments = false;
    lab.agent(&target).boot_again();
    lab.run_until(20_000, "runs", |lab| {
        lab.is_in_state("web", ServiceState::Started) && lab.status("web").running
    });
    assert_eq!(lab.running_nodes("web").len(), 1);
}

/// Returns a service whose driver is not gated, and which its source is handing over, with the source and the target.
fn lab_in_ungated_cutover() -> (super::lab::Lab, NodeName, NodeName) {
    let (mut lab, source) = started(&["node1", "node2", "node3"]);
    lab.edit::<ResourceSpec>("web", |resource| {
        resource.spec.allow_ungated = true;
        let driver = resource.spec.driver.simulated.get_or_insert_default();
        driver.gated = false;
    });
    lab.create_operation("restart", operation(OperationAction::Restart, None));
    lab.run_until(5_000, "started with the edited driver", |lab| {
        lab.assignment("web")
            .is_some_and(|assignment| !assignment.definition.driver.waits_for_resume_permit())
            && lab.is_in_state("web", ServiceState::Started)
    });
    let target = other(&lab, &source);
    lab.create_operation("move", operation(OperationAction::Migrate, Some(&target)));
    let key = lab.keys.service_report(&source, &"web".into());
    lab.run_until(5_000, "handing over", |lab| {
        lab.read::<ServiceReport>(&key).is_some_and(|report| report.phase == Phase::HandingOver)
    });
    (lab, source, target)
}

/// FENCING R8.17: a target with the order to start a received copy may have registered again before the copy arrived.
#[test]
fn a_target_that_is_ordered_to_start_verifies_arrival() {
    let (mut lab, source, target) = lab_in_ungated_cutover();
    lab.agent(&source).power_off();
    lab.agent(&target).faults.ignores_assignments = true;
    lab.run_until(20_000, "ordered to start", |lab| {
        lab.assignment("web").is_some_and(|assignment| assignment.action == Action::Start)
    });
    let ordered = lab.assignment("web").unwrap();
    assert_eq!((&ordered.node, ordered.source_end_revision.is_some()), (&target, true), "{}", lab.show());
    lab.agent(&target).faults.ignores_assignments = false;
    lab.run_until(5_000, "runs", |lab| {
        lab.is_in_state("web", ServiceState::Started) && lab.status("web").running
    });
    assert_eq!(lab.running_nodes("web"), [target.as_str()]);
    // The target has answered: a later proof covers the arrival.
    lab.agent(&target).power_off();
    lab.run_until(20_000, "runs elsewhere", |lab| {
        lab.running_nodes("web").len() == 1 && !lab.running_nodes("web").contains(&target)
    });
}

/// Returns a service that its source is handing over to a target with a fence device. Runs of the device do not end
/// until the test allows it.
fn lab_in_cutover_to_node_with_device(device: FenceDevice) -> (super::lab::Lab, NodeName, NodeName) {
    let (mut lab, source, target) = lab_in_ungated_cutover();
    lab.agent(&source).faults.ignores_assignments = true;
    lab.edit::<NodeSpec>(&target, |node| node.spec.fencing.devices = vec![device]);
    lab.fencer = Some(FencerOutcome::Confirmed);
    lab.run(500);
    lab.fencer = None;
    lab.agent(&target).power_off();
    lab.run_until(20_000, "device at work", |lab| ordered_actions(lab, 0) == [FencerAction::Off]);
    (lab, source, target)
}

fn recovered_elsewhere(lab: &mut super::lab::Lab, source: &NodeName, target: &NodeName) {
    lab.run_until(60_000, "runs on the third node", |lab| {
        let places = lab.running_nodes("web");
        places.len() == 1 && !places.contains(source) && !places.contains(target)
    });
}

/// FENCING R8.17: the device confirms again that a target is off, if the source ended after the first confirmation.
#[test]
fn a_device_confirms_the_target_again_after_the_end_of_the_source() {
    let actions = [
        (FenceAction::Off, vec![FencerAction::Off, FencerAction::Off]),
        (FenceAction::Reboot, vec![FencerAction::Off, FencerAction::On, FencerAction::Off, FencerAction::On]),
    ];
    for (action, expected) in actions {
        let (mut lab, source, target) = lab_in_cutover_to_node_with_device(FenceDevice { action, ..pdu() });
        lab.fencer = Some(FencerOutcome::Confirmed);
        lab.run_until(5_000, "target fenced", |lab| lab.fence(&target).state == FenceState::Fenced);
        lab.agent(&source).power_off();
        recovered_elsewhere(&mut lab, &source, &target);
        lab.run(5_000);
        assert_eq!(ordered_actions(&lab, 0), expected, "{action:?}");
        let fence = lab.fence(&target);
        assert_eq!((fence.state, fence.epoch, fence.device), (FenceState::Fenced, Epoch(2), None));
    }
}

/// FENCING R8.17: the device may have confirmed the power-off before the source ended, if it was started before.
#[test]
fn a_device_run_from_before_the_end_of_the_source_is_no_proof() {
    let (mut lab, source, _) =
        lab_in_cutover_to_node_with_device(FenceDevice { action: FenceAction::Off, ..pdu() });
    let key = lab.keys.service_report(&source, &"web".into());
    let handed_over = ServiceReport { phase: Phase::HandedOver, ..lab.read(&key).unwrap() };
    lab.agent(&source).running.clear();
    lab.put(&key, &handed_over);
    lab.run(500);
    lab.agent(&source).faults.ignores_assignments = false;
    lab.fencer = Some(FencerOutcome::Confirmed);
    lab.run_until(10_000, "runs", |lab| lab.running_nodes("web").len() == 1);
    assert_eq!(ordered_actions(&lab, 0), [FencerAction::Off, FencerAction::Off], "{}", lab.show());
}

/// An operator can also request the later proof, and the outcome shows why it fails. A machine that registers is asked
/// instead.
#[test]
fn an_operator_requests_another_power_off_of_a_fenced_target() {
    let (mut lab, source, target) = lab_in_cutover_to_node_with_device(pdu());
    lab.fencer = Some(FencerOutcome::Confirmed);
    lab.run_until(5_000, "target fenced", |lab| lab.fence(&target).state == FenceState::Fenced);
    lab.refused = vec![FencerAction::Off];
    lab.agent(&source).power_off();
    lab.run_until(30_000, "source fenced", |lab| lab.fence(&source).state == FenceState::Fenced);
    let requested = OperationSpec { node: Some(target.clone()), ..operation(OperationAction::Fence, None) };
    let request = |lab: &mut super::lab::Lab, name: &str| {
        lab.create_operation(name, OperationSpec { resource: None, ..requested.clone() });
    };
    request(&mut lab, "first");
    lab.run_until(70_000, "failed", |lab| lab.operation("first").phase == OperationPhase::Failed);
    assert!(lab.operation("first").message.contains("pdu: no route"), "{}", lab.operation("first").message);
    let conditions = lab.status("web").conditions;
    assert!(conditions.iter().any(|shown| shown.message.contains("fence device")), "{conditions:?}");
    let switched_on =
        |lab: &super::lab::Lab| ordered_actions(lab, 0).iter().filter(|a| **a == FencerAction::On).count();
    assert_eq!(switched_on(&lab), 1, "not between the attempts");
    lab.refused.clear();
    request(&mut lab, "second");
    lab.run_until(70_000, "succeeded", |lab| lab.operation("second").phase == OperationPhase::Succeeded);
    recovered_elsewhere(&mut lab, &source, &target);
    lab.run(5_000);
    assert_eq!(switched_on(&lab), 2);
}

/// A target that requests an epoch is on: it is not switched off again, but asked about the arrival.
#[test]
fn a_target_that_registers_is_not_switched_off_again() {
    let (mut lab, source, target) = lab_in_cutover_to_node_with_device(pdu());
    lab.fencer = Some(FencerOutcome::Confirmed);
    lab.run_until(5_000, "target fenced", |lab| lab.fence(&target).state == FenceState::Fenced);
    lab.run(1_000);
    lab.agent(&source).power_off();
    lab.run(3_000);
    lab.agent(&target).boot_again();
    lab.run_until(30_000, "runs", |lab| lab.running_nodes("web").len() == 1);
    assert_eq!(ordered_actions(&lab, 0), [FencerAction::Off, FencerAction::On]);
}

/// FENCING R7.15 and R8.17: the tombstone of a deleted resource names the node of the arrival.
#[test]
fn deleting_a_possibly_arrived_resource_leaves_tombstone() {
    let (mut lab, target) = lab_with_late_arrival(STOP);
    lab.delete("web");
    let key = lab.keys.tombstone(&"web".into());
    lab.run_until(2_000, "deleted", |lab| lab.assignment("web").is_none());
    let tombstone: Tombstone = lab.read(&key).expect("a tombstone");
    assert!(tombstone.nodes.contains(&target), "{tombstone:?}");
}
