//! Tests of placement, commands and shutdown, and of FENCING, section 8: targets and kinds of moves.

use super::devices::{ordered_actions, pdu};
use super::services::{
    another_node, cluster_with_started_service, condition, online_cluster, operation, put_group,
    start_in_group,
};
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
    let mut cluster = online_cluster(&["node1", "node2"]);
    put_group(&mut cluster, &[("node1", 2), ("node2", 1)], false);
    start_in_group(&mut cluster, "web");
    cluster.run_until(3_000, "on node1", |cluster| cluster.running_nodes("web") == ["node1"]);
    cluster.agent("node1").power_off();
    cluster.run_until(20_000, "on node2", |cluster| cluster.running_nodes("web") == ["node2"]);
    cluster.agent("node1").boot_again();
    cluster.run_until(20_000, "back on node1", |cluster| {
        cluster.running_nodes("web") == ["node1"] && cluster.is_in_state("web", ServiceState::Started)
    });
    cluster.edit::<ResourceSpec>("web", |resource| resource.spec.failback = false);
    cluster.agent("node1").power_off();
    cluster.run_until(20_000, "on node2", |cluster| cluster.running_nodes("web") == ["node2"]);
    cluster.agent("node1").boot_again();
    cluster.run(20_000);
    assert_eq!(cluster.running_nodes("web"), ["node2"]);
}

#[test]
fn restricted_group_runs_on_members_only() {
    let mut cluster = online_cluster(&["node1", "node2"]);
    put_group(&mut cluster, &[("node1", 0)], true);
    start_in_group(&mut cluster, "web");
    cluster.run_until(3_000, "on node1", |cluster| cluster.running_nodes("web") == ["node1"]);
    cluster.agent("node1").power_off();
    cluster.run_until(20_000, "recovery", |cluster| cluster.is_in_state("web", ServiceState::Recovery));
    let status = cluster.status("web");
    let stalled = status.conditions.iter().find(|condition| condition.kind == "Stalled").unwrap();
    assert_eq!((stalled.status, stalled.reason), (ConditionStatus::True, Reason::Unschedulable));
    assert!(stalled.message.contains("node2: node is not a member"), "{}", stalled.message);
    cluster.create_operation("move", operation(OperationAction::Migrate, Some("node2")));
    cluster.run(1_000);
    assert_eq!(cluster.operation("move").phase, OperationPhase::Refused, "commands in Recovery are refused");
    put_group(&mut cluster, &[("node1", 0), ("node2", 0)], true);
    cluster.run_until(2_000, "on node2", |cluster| cluster.running_nodes("web") == ["node2"]);
}

#[test]
fn recovery_starts_higher_priority_first() {
    let mut cluster = online_cluster(&["node1", "node2"]);
    put_group(&mut cluster, &[("node1", 1)], false);
    for name in ["a", "b", "c"] {
        start_in_group(&mut cluster, name);
    }
    cluster.edit::<ResourceSpec>("c", |resource| resource.spec.priority = 10);
    cluster.run_until(5_000, "all on node1", |cluster| {
        ["a", "b", "c"].iter().all(|name| cluster.running_nodes(name) == ["node1"])
    });
    cluster.agent("node1").power_off();
    cluster.run_until(20_000, "recovered", |cluster| {
        ["a", "b", "c"].iter().all(|name| cluster.running_nodes(name) == ["node2"])
    });
    let order: Vec<&str> = cluster
        .events
        .iter()
        .filter(|event| event.reason == Reason::Recovered)
        .map(|event| event.name.as_str())
        .collect();
    assert_eq!(order, ["c", "a", "b"]);
}

#[test]
fn requested_live_migration_succeeds() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    let target = another_node(&cluster, &node);
    cluster.create_operation("move", operation(OperationAction::Migrate, Some(&target)));
    cluster.run_until(5_000, "moved", |cluster| cluster.operation("move").phase == OperationPhase::Succeeded);
    assert_eq!(cluster.running_nodes("web"), std::slice::from_ref(&target));
    assert!(cluster.events.iter().any(|event| event.message.contains("Live-migrating")));
    cluster.create_operation("again", operation(OperationAction::Migrate, Some(&target)));
    cluster.run(1_000);
    assert_eq!(cluster.operation("again").reason, Reason::CurrentNode);
    cluster.create_operation("nowhere", operation(OperationAction::Migrate, Some("node9")));
    cluster.run(1_000);
    assert_eq!(cluster.operation("nowhere").reason, Reason::NotFound);
}

#[test]
fn failed_migration_leaves_service_on_source() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    let target = another_node(&cluster, &node);
    cluster.agent(&node).faults.fails_migrate = true;
    cluster.create_operation("move", operation(OperationAction::Migrate, Some(&target)));
    cluster.run_until(5_000, "failed", |cluster| cluster.operation("move").phase == OperationPhase::Failed);
    let message = cluster.operation("move").message;
    assert_eq!(message, format!("Move failed, staying on {node}: the link broke"));
    cluster.run(5_000);
    assert_eq!(cluster.running_nodes("web"), [node]);
    assert!(cluster.is_in_state("web", ServiceState::Started));
}

#[test]
fn source_lost_during_move_is_fenced_first() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    let target = another_node(&cluster, &node);
    cluster.agent(&target).faults.ignores_assignments = true;
    cluster.create_operation("move", operation(OperationAction::Migrate, Some(&target)));
    cluster.run_until(2_000, "moving", |cluster| cluster.is_in_state("web", ServiceState::Migrate));
    cluster.agent(&node).power_off();
    cluster.run_until(20_000, "fenced", |cluster| cluster.fence(&node).state == FenceState::Fenced);
    cluster.agent(&target).faults.ignores_assignments = false;
    cluster
        .run_until(5_000, "runs on the target", |cluster| cluster.running_nodes("web") == [target.clone()]);
}

#[test]
fn a_service_whose_target_is_lost_stays_on_its_source() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    let target = another_node(&cluster, &node);
    cluster.agent(&target).faults.ignores_assignments = true;
    cluster.create_operation("move", operation(OperationAction::Migrate, Some(&target)));
    cluster.run_until(2_000, "moving", |cluster| cluster.is_in_state("web", ServiceState::Migrate));
    cluster.agent(&target).power_off();
    cluster.run_until(20_000, "stays", |cluster| cluster.is_in_state("web", ServiceState::Started));
    assert_eq!(cluster.running_nodes("web"), [node]);
    assert_eq!(cluster.operation("move").phase, OperationPhase::Failed);
}

#[test]
fn relocation_stops_and_starts_the_service() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    let target = another_node(&cluster, &node);
    cluster.create_operation("move", operation(OperationAction::Relocate, Some(&target)));
    cluster.run_until(5_000, "moved", |cluster| cluster.operation("move").phase == OperationPhase::Succeeded);
    assert_eq!(cluster.running_nodes("web"), [target]);
}

#[test]
fn restart_is_a_new_start_action() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    let before = cluster.status("web").action_uid;
    cluster.create_operation("restart", operation(OperationAction::Restart, None));
    cluster.run_until(3_000, "restarted", |cluster| {
        cluster.operation("restart").phase == OperationPhase::Succeeded
    });
    assert_ne!(cluster.status("web").action_uid, before);
    assert_eq!(cluster.running_nodes("web"), [node]);
}

#[test]
fn move_to_unavailable_node_is_refused() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2", "node3"]);
    let targets: Vec<NodeName> = cluster.agents.keys().filter(|name| **name != node).cloned().collect();
    cluster.edit::<NodeSpec>(&targets[0], |node| node.spec.maintenance = true);
    cluster.agent(&targets[1]).power_off();
    cluster.run(9_000);
    cluster.create_operation("one", operation(OperationAction::Migrate, Some(&targets[0])));
    cluster.run(1_000);
    assert_eq!(cluster.operation("one").reason, Reason::NodeInMaintenance);
    cluster.create_operation("two", operation(OperationAction::Migrate, Some(&targets[1])));
    cluster.run(1_000);
    assert_eq!(cluster.operation("two").reason, Reason::NodeNotOnline);
}

#[test]
fn maintenance_moves_services_away_and_back_again() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    cluster.edit::<ResourceSpec>("web", |resource| resource.spec.failback = false);
    cluster.edit::<NodeSpec>(&node, |node| node.spec.maintenance = true);
    cluster.run_until(5_000, "away", |cluster| {
        !cluster.running_nodes("web").contains(&node) && cluster.is_in_state("web", ServiceState::Started)
    });
    assert!(cluster.node_is(&node, NodeState::Maintenance));
    assert_eq!(cluster.status("web").maintenance_node, Some(node.clone()));
    cluster.edit::<NodeSpec>(&node, |node| node.spec.maintenance = false);
    cluster.run_until(5_000, "back", |cluster| {
        cluster.running_nodes("web") == [node.clone()] && cluster.is_in_state("web", ServiceState::Started)
    });
    assert_eq!(cluster.status("web").maintenance_node, None);
}

#[test]
fn service_stuck_during_maintenance_has_a_reason() {
    let (mut cluster, node) = cluster_with_started_service(&["node1"]);
    cluster.edit::<NodeSpec>(&node, |node| node.spec.maintenance = true);
    cluster.run(2_000);
    assert!(cluster.is_in_state("web", ServiceState::Started));
    assert_eq!(condition(&cluster, "web", "Stalled"), (ConditionStatus::True, Reason::Draining));
}

#[test]
fn services_that_must_stay_together_move_together() {
    let mut cluster = online_cluster(&["node1", "node2"]);
    let rule = ResourceAffinity {
        resources: vec!["web".to_owned(), "db".to_owned()],
        affinity: Affinity::Positive,
        strict: true,
    };
    let spec = AffinityRuleSpec { resource_affinity: Some(rule), ..AffinityRuleSpec::default() };
    cluster.apply(AffinityRule::new("together", spec));
    cluster.start("web");
    cluster.start("db");
    let node = cluster.running_nodes("web");
    assert_eq!(cluster.running_nodes("db"), node);
    let target = another_node(&cluster, &node[0]);
    cluster.create_operation("move", operation(OperationAction::Migrate, Some(&target)));
    cluster.run_until(5_000, "both there", |cluster| {
        cluster.running_nodes("web") == std::slice::from_ref(&target)
            && cluster.running_nodes("db") == std::slice::from_ref(&target)
    });
    cluster.run(5_000);
    assert_eq!(cluster.running_nodes("db"), std::slice::from_ref(&target));
    assert_eq!(cluster.running_nodes("web"), std::slice::from_ref(&target));
    assert_eq!(cluster.operation("move").companions, ["db"]);
    cluster.edit::<NodeSpec>(&target, |node| node.spec.maintenance = true);
    cluster.run_until(8_000, "both away", |cluster| {
        cluster.running_nodes("web") == node && cluster.running_nodes("db") == node
    });
}

#[test]
fn move_that_breaks_anti_affinity_is_refused() {
    let mut cluster = online_cluster(&["node1", "node2"]);
    let rule = ResourceAffinity {
        resources: vec!["web".to_owned(), "db".to_owned()],
        affinity: Affinity::Negative,
        strict: true,
    };
    let spec = AffinityRuleSpec { resource_affinity: Some(rule), ..AffinityRuleSpec::default() };
    cluster.apply(AffinityRule::new("apart", spec));
    cluster.start("web");
    cluster.start("db");
    assert_ne!(cluster.running_nodes("web"), cluster.running_nodes("db"));
    let target = cluster.running_nodes("db")[0].clone();
    cluster.create_operation("move", operation(OperationAction::Migrate, Some(&target)));
    cluster.run(1_000);
    let status = cluster.operation("move");
    assert_eq!((status.phase, status.reason), (OperationPhase::Refused, Reason::NegativePartner));
    assert_eq!(status.blocked_by, ["db"]);
}

/// Returns a migration from the first node to the second. The source has committed the hand-over, and the target has
/// the active copy. The source registers again, so that its report of the hand-over is overwritten.
fn cluster_with_reregistered_source() -> (super::test_cluster::TestCluster, NodeName, NodeName) {
    let (mut cluster, source) = cluster_with_started_service(&["node1", "node2", "node3"]);
    let target = another_node(&cluster, &source);
    cluster.create_operation("move", operation(OperationAction::Migrate, Some(&target)));
    let key = cluster.keys.service_report(&source, &"web".into());
    cluster.run_until(5_000, "handing over", |cluster| {
        cluster.read::<ServiceReport>(&key).is_some_and(|report| report.phase == Phase::HandingOver)
    });
    cluster.agent(&target).faults.ignores_assignments = true;
    cluster.agent(&source).running.clear();
    cluster.agent(&target).running.insert("web".into());
    cluster.agent(&source).lose_journal();
    cluster.run_until(5_000, "registered again", |cluster| {
        cluster.fence(&source).epoch == Epoch(2) && cluster.node_is(&source, NodeState::Online)
    });
    cluster.run_until(2_000, "overwritten", |cluster| {
        cluster.read::<ServiceReport>(&key).is_some_and(|report| report.phase != Phase::HandingOver)
    });
    (cluster, source, target)
}

#[test]
fn cutover_survives_new_registration_of_source() {
    let (mut cluster, _, target) = cluster_with_reregistered_source();
    assert_eq!(
        cluster.assignment("web").unwrap().node,
        target,
        "the only place that is left: {}",
        cluster.show()
    );
    cluster.agent(&target).faults.ignores_assignments = false;
    cluster
        .run_until(5_000, "runs on the target", |cluster| cluster.is_in_state("web", ServiceState::Started));
    assert_eq!(cluster.running_nodes("web"), [target]);
}

#[test]
fn cutover_blocks_starts_until_target_is_empty() {
    let (mut cluster, source, target) = cluster_with_reregistered_source();
    cluster.agent(&target).isolated = true;
    cluster.run_until(20_000, "elsewhere", |cluster| {
        let fenced = cluster.fence(&target).state == FenceState::Fenced;
        assert!(fenced || cluster.assignment("web").is_some_and(|assignment| assignment.node == target));
        fenced && cluster.running_nodes("web").iter().any(|place| *place != target)
    });
    assert!(cluster.fence(&source).epoch == Epoch(2) && cluster.running_nodes("web").len() == 1);
}

/// Returns a service whose migration ended with the end of the source. The leader has ordered the target to stop a copy
/// that arrived, or to start the copy that it received. The target registers again without an answer, after a copy has
/// arrived on it.
fn cluster_with_late_arrival(action: Action) -> (super::test_cluster::TestCluster, NodeName) {
    let (mut cluster, source) = cluster_with_started_service(&["node1", "node2", "node3"]);
    let target = another_node(&cluster, &source);
    cluster.agent(&target).faults.ignores_assignments = true;
    cluster.agent(&source).running.clear();
    let source_report_key = cluster.keys.service_report(&source, &"web".into());
    let handed_over = ServiceReport { phase: Phase::HandedOver, ..cluster.read(&source_report_key).unwrap() };
    cluster.put(&source_report_key, &handed_over);
    let (fence, mut assignment) = (cluster.fence(&target), cluster.assignment("web").unwrap());
    assignment.definition.driver.simulated.get_or_insert_default().gated = false;
    let stop = Assignment {
        node: target.clone(),
        epoch: fence.epoch,
        boot_id: fence.boot_id,
        action_uid: "asked-after-the-source-ended".into(),
        action,
        source_end_revision: Some(cluster.state.revision()),
        ..assignment
    };
    let state = if stop.action == Action::Start { ServiceState::Starting } else { ServiceState::Relocate };
    let status = ResourceStatus {
        state,
        node: Some(target.clone()),
        epoch: Some(stop.epoch),
        action_uid: Some(stop.action_uid.clone()),
        ..cluster.status("web")
    };
    cluster.put(&cluster.keys.assignment(&"web".into()), &stop);
    cluster.put(&cluster.keys.status(Kind::Resource, "web"), &status);
    cluster.agent(&target).lose_journal();
    cluster.run_until(5_000, "registered again", |cluster| cluster.fence(&target).epoch == Epoch(2));
    cluster.agent(&target).running.insert("web".into());
    (cluster, target)
}

const STOP: Action = Action::Stop { timeout_ms: None };

/// FENCING R8.17: the proof may be older than the arrival, so the target is asked again under its new epoch.
#[test]
fn arrival_is_verified_again_after_registration_request() {
    for ordered in [STOP, Action::Start] {
        let (mut cluster, target) = cluster_with_late_arrival(ordered);
        cluster.run(3_000);
        let assignment = cluster.assignment("web").unwrap();
        assert_eq!((assignment.node, assignment.epoch), (target.clone(), Epoch(2)), "{}", cluster.show());
        assert!(matches!(assignment.action, Action::Stop { .. }) && assignment.source_end_revision.is_some());
        cluster.agent(&target).faults.ignores_assignments = false;
        cluster.run_until(10_000, "runs", |cluster| {
            cluster.is_in_state("web", ServiceState::Started) && cluster.status("web").running
        });
        assert_eq!(cluster.running_nodes("web").len(), 1);
        assert_eq!(cluster.assignment("web").unwrap().source_end_revision, None);
    }
}

/// FENCING R8.17: the daemon of a node that is armed but has no permit may have no deadline. If such a node becomes
/// silent, its watchdog does not reset it.
#[test]
fn target_silence_does_not_disprove_arrival() {
    let (mut cluster, target) = cluster_with_late_arrival(STOP);
    cluster.run(3_000);
    cluster.agent(&target).isolated = true;
    cluster.run_until(30_000, "fenced for its silence", |cluster| {
        matches!(cluster.fence(&target).proof, Some(Proof::Silence { .. }))
    });
    cluster.run(10_000);
    assert_eq!(cluster.assignment("web").unwrap().node, target, "{}", cluster.show());
    assert!(!cluster.status("web").running);
    cluster.agent(&target).power_off();
    cluster.agent(&target).faults.ignores_assignments = false;
    cluster.agent(&target).boot_again();
    cluster.run_until(20_000, "runs", |cluster| {
        cluster.is_in_state("web", ServiceState::Started) && cluster.status("web").running
    });
    assert_eq!(cluster.running_nodes("web").len(), 1);
}

/// Returns a service whose driver is not gated, and which its source is handing over, with the source and the target.
fn cluster_in_ungated_cutover() -> (super::test_cluster::TestCluster, NodeName, NodeName) {
    let (mut cluster, source) = cluster_with_started_service(&["node1", "node2", "node3"]);
    cluster.edit::<ResourceSpec>("web", |resource| {
        resource.spec.allow_ungated = true;
        let driver = resource.spec.driver.simulated.get_or_insert_default();
        driver.gated = false;
    });
    cluster.create_operation("restart", operation(OperationAction::Restart, None));
    cluster.run_until(5_000, "started with the edited driver", |cluster| {
        cluster
            .assignment("web")
            .is_some_and(|assignment| !assignment.definition.driver.waits_for_resume_permit())
            && cluster.is_in_state("web", ServiceState::Started)
    });
    let target = another_node(&cluster, &source);
    cluster.create_operation("move", operation(OperationAction::Migrate, Some(&target)));
    let key = cluster.keys.service_report(&source, &"web".into());
    cluster.run_until(5_000, "handing over", |cluster| {
        cluster.read::<ServiceReport>(&key).is_some_and(|report| report.phase == Phase::HandingOver)
    });
    (cluster, source, target)
}

/// FENCING R8.17: a target with the order to start a received copy may have registered again before the copy arrived.
#[test]
fn a_target_that_is_ordered_to_start_verifies_arrival() {
    let (mut cluster, source, target) = cluster_in_ungated_cutover();
    cluster.agent(&source).power_off();
    cluster.agent(&target).faults.ignores_assignments = true;
    cluster.run_until(20_000, "ordered to start", |cluster| {
        cluster.assignment("web").is_some_and(|assignment| assignment.action == Action::Start)
    });
    let ordered = cluster.assignment("web").unwrap();
    assert_eq!((&ordered.node, ordered.source_end_revision.is_some()), (&target, true), "{}", cluster.show());
    cluster.agent(&target).faults.ignores_assignments = false;
    cluster.run_until(5_000, "runs", |cluster| {
        cluster.is_in_state("web", ServiceState::Started) && cluster.status("web").running
    });
    assert_eq!(cluster.running_nodes("web"), [target.as_str()]);
    // The target has answered: a later proof covers the arrival.
    cluster.agent(&target).power_off();
    cluster.run_until(20_000, "runs elsewhere", |cluster| {
        cluster.running_nodes("web").len() == 1 && !cluster.running_nodes("web").contains(&target)
    });
}

/// Returns a service that its source is handing over to a target with a fence device. Runs of the device do not end
/// until the test allows it.
fn cluster_in_cutover_to_node_with_device(
    device: FenceDevice,
) -> (super::test_cluster::TestCluster, NodeName, NodeName) {
    let (mut cluster, source, target) = cluster_in_ungated_cutover();
    cluster.agent(&source).faults.ignores_assignments = true;
    cluster.edit::<NodeSpec>(&target, |node| node.spec.fencing.devices = vec![device]);
    cluster.fencer_outcome = Some(FencerOutcome::Confirmed);
    cluster.run(500);
    cluster.fencer_outcome = None;
    cluster.agent(&target).power_off();
    cluster.run_until(20_000, "device at work", |cluster| ordered_actions(cluster, 0) == [FencerAction::Off]);
    (cluster, source, target)
}

fn wait_until_recovered_elsewhere(
    cluster: &mut super::test_cluster::TestCluster,
    source: &NodeName,
    target: &NodeName,
) {
    cluster.run_until(60_000, "runs on the third node", |cluster| {
        let places = cluster.running_nodes("web");
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
        let (mut cluster, source, target) =
            cluster_in_cutover_to_node_with_device(FenceDevice { action, ..pdu() });
        cluster.fencer_outcome = Some(FencerOutcome::Confirmed);
        cluster
            .run_until(5_000, "target fenced", |cluster| cluster.fence(&target).state == FenceState::Fenced);
        cluster.agent(&source).power_off();
        wait_until_recovered_elsewhere(&mut cluster, &source, &target);
        cluster.run(5_000);
        assert_eq!(ordered_actions(&cluster, 0), expected, "{action:?}");
        let fence = cluster.fence(&target);
        assert_eq!((fence.state, fence.epoch, fence.device), (FenceState::Fenced, Epoch(2), None));
    }
}

/// FENCING R8.17: the device may have confirmed the power-off before the source ended, if it was started before.
#[test]
fn a_device_run_from_before_the_end_of_the_source_is_no_proof() {
    let (mut cluster, source, _) =
        cluster_in_cutover_to_node_with_device(FenceDevice { action: FenceAction::Off, ..pdu() });
    let key = cluster.keys.service_report(&source, &"web".into());
    let handed_over = ServiceReport { phase: Phase::HandedOver, ..cluster.read(&key).unwrap() };
    cluster.agent(&source).running.clear();
    cluster.put(&key, &handed_over);
    cluster.run(500);
    cluster.agent(&source).faults.ignores_assignments = false;
    cluster.fencer_outcome = Some(FencerOutcome::Confirmed);
    cluster.run_until(10_000, "runs", |cluster| cluster.running_nodes("web").len() == 1);
    assert_eq!(ordered_actions(&cluster, 0), [FencerAction::Off, FencerAction::Off], "{}", cluster.show());
}

/// An operator can also request the later proof, and the outcome shows why it fails. A machine that registers is asked
/// instead.
#[test]
fn an_operator_requests_another_power_off_of_a_fenced_target() {
    let (mut cluster, source, target) = cluster_in_cutover_to_node_with_device(pdu());
    cluster.fencer_outcome = Some(FencerOutcome::Confirmed);
    cluster.run_until(5_000, "target fenced", |cluster| cluster.fence(&target).state == FenceState::Fenced);
    cluster.refused_actions = vec![FencerAction::Off];
    cluster.agent(&source).power_off();
    cluster.run_until(30_000, "source fenced", |cluster| cluster.fence(&source).state == FenceState::Fenced);
    let requested = OperationSpec { node: Some(target.clone()), ..operation(OperationAction::Fence, None) };
    let request = |cluster: &mut super::test_cluster::TestCluster, name: &str| {
        cluster.create_operation(name, OperationSpec { resource: None, ..requested.clone() });
    };
    request(&mut cluster, "first");
    cluster.run_until(70_000, "failed", |cluster| cluster.operation("first").phase == OperationPhase::Failed);
    assert!(
        cluster.operation("first").message.contains("pdu: no route"),
        "{}",
        cluster.operation("first").message
    );
    let conditions = cluster.status("web").conditions;
    assert!(conditions.iter().any(|shown| shown.message.contains("fence device")), "{conditions:?}");
    let switched_on = |cluster: &super::test_cluster::TestCluster| {
        ordered_actions(cluster, 0).iter().filter(|a| **a == FencerAction::On).count()
    };
    assert_eq!(switched_on(&cluster), 1, "not between the attempts");
    cluster.refused_actions.clear();
    request(&mut cluster, "second");
    cluster.run_until(70_000, "succeeded", |cluster| {
        cluster.operation("second").phase == OperationPhase::Succeeded
    });
    wait_until_recovered_elsewhere(&mut cluster, &source, &target);
    cluster.run(5_000);
    assert_eq!(switched_on(&cluster), 2);
}

/// A target that requests an epoch is on: it is not switched off again, but asked about the arrival.
#[test]
fn a_target_that_registers_is_not_switched_off_again() {
    let (mut cluster, source, target) = cluster_in_cutover_to_node_with_device(pdu());
    cluster.fencer_outcome = Some(FencerOutcome::Confirmed);
    cluster.run_until(5_000, "target fenced", |cluster| cluster.fence(&target).state == FenceState::Fenced);
    cluster.run(1_000);
    cluster.agent(&source).power_off();
    cluster.run(3_000);
    cluster.agent(&target).boot_again();
    cluster.run_until(30_000, "runs", |cluster| cluster.running_nodes("web").len() == 1);
    assert_eq!(ordered_actions(&cluster, 0), [FencerAction::Off, FencerAction::On]);
}

/// FENCING R7.15 and R8.17: the tombstone of a deleted resource names the node of the arrival.
#[test]
fn deleting_a_possibly_arrived_resource_leaves_tombstone() {
    let (mut cluster, target) = cluster_with_late_arrival(STOP);
    cluster.delete("web");
    let key = cluster.keys.tombstone(&"web".into());
    cluster.run_until(2_000, "deleted", |cluster| cluster.assignment("web").is_none());
    let tombstone: Tombstone = cluster.read(&key).expect("a tombstone");
    assert!(tombstone.nodes.contains(&target), "{tombstone:?}");
}
