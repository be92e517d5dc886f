//! Tests of service states, start failures, placement, commands and shutdown, and of FENCING, sections 6 to 8.

use super::lab::Lab;
use ha_api_types::driver::{DriverSpec, ExecDriver};
use ha_api_types::id::{Epoch, NodeName};
use ha_api_types::kind::Kind;
use ha_api_types::meta::ConditionStatus;
use ha_api_types::node::{Node, NodeSpec, NodeState};
use ha_api_types::node_policy::NodePolicy;
use ha_api_types::operation::{OperationAction, OperationPhase, OperationSpec};
use ha_api_types::placement::{Group, GroupSpec, NodePriorities};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Action, Assignment, FailureClass, Fence, FenceState, Tombstone};
use ha_api_types::resource::{RequestedState, Resource, ResourceSpec, ServiceState};
use ha_store::{Outcome, Write};
use std::collections::BTreeSet;

pub(super) fn lab(nodes: &[&str]) -> Lab {
    let mut lab = Lab::new(1, nodes);
    lab.wait_until_nodes_online();
    lab
}

pub(super) fn started(nodes: &[&str]) -> (Lab, NodeName) {
    let mut lab = lab(nodes);
    lab.start("web");
    let node = lab.status("web").node.unwrap();
    (lab, node)
}

pub(super) fn other(lab: &Lab, node: &str) -> NodeName {
    lab.agents.keys().find(|name| *name != node).unwrap().clone()
}

pub(super) fn group(lab: &mut Lab, nodes: &[(&str, i64)], restricted: bool) {
    let nodes = NodePriorities(nodes.iter().map(|(node, priority)| ((*node).into(), *priority)).collect());
    lab.apply(Group::new("g", GroupSpec { nodes, restricted, ..GroupSpec::default() }));
}

pub(super) fn start_in_group(lab: &mut Lab, name: &str) {
    lab.create_resource(name);
    lab.edit::<ResourceSpec>(name, |resource| resource.spec.group = Some("g".to_owned()));
}

pub(super) fn operation(action: OperationAction, node: Option<&str>) -> OperationSpec {
    OperationSpec {
        action,
        resource: Some("web".to_owned()),
        node: node.map(Into::into),
        ..OperationSpec::default()
    }
}

pub(super) fn condition(lab: &Lab, name: &str, kind: &str) -> (ConditionStatus, Reason) {
    let status = lab.status(name);
    let found = status.conditions.iter().find(|condition| condition.kind == kind).unwrap();
    (found.status, found.reason)
}

#[test]
fn a_resource_is_probed_placed_started_and_ready() {
    let (lab, node) = started(&["node1", "node2", "node3"]);
    assert_eq!(lab.running_nodes("web"), [node]);
    assert_eq!(condition(&lab, "web", "Ready"), (ConditionStatus::True, Reason::Running));
    let conditions = lab.status("web").conditions;
    assert!(
        conditions.iter().all(|one| !matches!(one.kind.as_str(), "Reconciling" | "Stalled")),
        "{conditions:?}"
    );
    assert_eq!(lab.status("web").observed_generation, 1);
}

/// R7.7: a node that never registered is empty, so that a new service does not wait for it.
#[test]
fn queued_does_not_wait_for_a_node_that_never_registered() {
    let mut lab = lab(&["node1", "node2"]);
    lab.apply(Node::new("node9", NodeSpec::default()));
    lab.run(1_000);
    lab.create_resource("web");
    lab.run_until(5_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
    assert!(lab.node_is("node9", NodeState::Unknown));
}

#[test]
fn queued_waits_for_every_node_and_names_silent() {
    let mut lab = lab(&["node1", "node2"]);
    lab.agent("node2").faults.ignores_probes = true;
    lab.create_resource("web");
    lab.run(3_000);
    assert!(lab.is_in_state("web", ServiceState::Queued));
    let waiting = lab.members[0].core.wait_conditions();
    assert!(
        waiting.iter().any(|w| w.reason == Reason::NotProbed && w.message.contains("node2")),
        "{waiting:?}"
    );
    lab.create_operation(
        "start",
        OperationSpec { not_on: Some("node2".into()), ..operation(OperationAction::Start, None) },
    );
    lab.run_until(3_000, "an operator answers for the node", |lab| {
        lab.is_in_state("web", ServiceState::Started)
    });
    lab.run(500);
    assert_eq!(lab.operation("start").phase, OperationPhase::Succeeded);
}

#[test]
fn new_resource_counts_closed_node_as_empty() {
    let mut lab = lab(&["node1", "node2"]);
    lab.agent("node2").power_off();
    lab.create_resource("web");
    lab.run_until(10_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
    assert_eq!(condition(&lab, "web", "Probed"), (ConditionStatus::False, Reason::NotProbed));
}

/// The leader emits one event for the start of a service. The agent emits the event about the running service.
#[test]
fn a_start_has_one_event_of_the_leader() {
    let mut lab = lab(&["node1"]);
    lab.start("web");
    let messages: Vec<&str> = lab
        .events
        .iter()
        .filter(|event| event.kind == Kind::Resource)
        .map(|event| event.message.as_str())
        .collect();
    assert!(matches!(messages[..], [message] if message.starts_with("Starting on node1: ")), "{messages:?}");
}

/// A service without an eligible node has an event with the blocking reasons.
#[test]
fn an_unschedulable_service_has_an_event() {
    let mut lab = lab(&["node1"]);
    group(&mut lab, &[("node9", 0)], true);
    start_in_group(&mut lab, "web");
    lab.run(5_000);
    let mut events = lab.events.iter().filter(|event| event.kind == Kind::Resource);
    assert!(events.any(|event| event.reason == Reason::Unschedulable), "{:?}", lab.events);
}

#[test]
fn one_running_copy_is_adopted_in_place() {
    let mut lab = lab(&["node1", "node2", "node3"]);
    lab.agent("node3").running.insert("web".into());
    lab.start("web");
    assert_eq!(lab.running_nodes("web"), ["node3"]);
    assert!(lab.events.iter().any(|event| event.reason == Reason::Adopted));
}

#[test]
fn two_running_copies_are_an_error() {
    let mut lab = Lab::new(1, &["node1", "node2", "node3"]);
    lab.wait_until_nodes_online();
    lab.agent("node2").running.insert("web".into());
    lab.create_resource("web");
    // The second copy is only reported, because the lab fails a test in which two copies run.
    lab.agent("node3").faults.ignores_probes = true;
    lab.run(500);
    let key = lab.keys.service_report(&"node3".into(), &"web".into());
    let report = ha_api_types::record::ServiceReport {
        uid: "uid-web".into(),
        epoch: Epoch(1),
        probed_generation: 1,
        exclusive: true,
        phase: ha_api_types::record::Phase::ProbedRunning,
        ..Default::default()
    };
    let value = serde_json::to_vec(&report).unwrap();
    lab.state.commit(&ha_store::Transaction::new().put(key, ha_store::Guard::Absent, value));
    lab.run_until(2_000, "error", |lab| lab.is_in_state("web", ServiceState::Error));
    let status = lab.status("web");
    assert_eq!(status.stop_confirmed, Some(false));
    let ready = status.conditions.iter().find(|condition| condition.kind == "Ready").unwrap();
    assert_eq!(ready.reason, Reason::MultipleActive);
    assert!(ready.message.contains("node2") && ready.message.contains("node3"), "{}", ready.message);
    assert!(lab.assignment("web").is_none());
}

#[test]
fn service_stops_and_starts_by_requested_state() {
    let (mut lab, node) = started(&["node1", "node2"]);
    lab.set_requested_state("web", RequestedState::Stopped);
    lab.run_until(2_000, "stopped", |lab| lab.is_in_state("web", ServiceState::Stopped));
    assert!(lab.running_nodes("web").is_empty());
    assert_eq!(condition(&lab, "web", "Ready"), (ConditionStatus::True, Reason::Stopped));
    lab.set_requested_state("web", RequestedState::Started);
    lab.run_until(2_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
    assert_eq!(lab.running_nodes("web"), [node], "the current node is preferred");
}

#[test]
fn stopped_service_is_reassigned_without_fencing() {
    let (mut lab, node) = started(&["node1", "node2"]);
    lab.set_requested_state("web", RequestedState::Stopped);
    lab.run_until(2_000, "stopped", |lab| lab.is_in_state("web", ServiceState::Stopped));
    lab.agent(&node).power_off();
    lab.run_until(9_000, "new home", |lab| lab.status("web").node.as_ref() != Some(&node));
    assert_ne!(lab.fence(&node).state, ha_api_types::record::FenceState::Fenced);
}

#[test]
fn a_disabled_service_stays_assigned_to_its_node() {
    let (mut lab, node) = started(&["node1", "node2"]);
    lab.set_requested_state("web", RequestedState::Disabled);
    lab.run_until(2_000, "disabled", |lab| lab.is_in_state("web", ServiceState::Disabled));
    lab.agent(&node).power_off();
    lab.run(10_000);
    assert_eq!(lab.status("web").node, Some(node));
    assert!(lab.is_in_state("web", ServiceState::Disabled));
}

#[test]
fn failed_starts_on_two_nodes_become_error() {
    let mut lab = lab(&["node1", "node2", "node3"]);
    for node in ["node1", "node2", "node3"] {
        lab.agent(node).faults.fails_start.insert("web".into(), FailureClass::RetryHere);
    }
    lab.create_resource("web");
    lab.run_until(5_000, "error", |lab| lab.is_in_state("web", ServiceState::Error));
    let status = lab.status("web");
    assert_eq!((status.relocations, status.failed_nodes.len()), (1, 2));
    assert_eq!(status.stop_confirmed, Some(true));
    assert_eq!(condition(&lab, "web", "Stalled").0, ConditionStatus::True);
    for node in ["node1", "node2", "node3"] {
        lab.agent(node).faults.fails_start.clear();
    }
    lab.run(5_000);
    assert!(lab.is_in_state("web", ServiceState::Error), "only Disabled or clear-error leaves it");
    lab.create_operation("clear", operation(OperationAction::ClearError, None));
    lab.run_until(2_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
    assert_eq!(lab.operation("clear").phase, OperationPhase::Succeeded);
    assert!(lab.status("web").failed_nodes.is_empty());
}

#[test]
fn nodes_with_failed_starts_are_tried_last() {
    let mut lab = lab(&["node1", "node2"]);
    lab.agent("node1").faults.fails_start.insert("web".into(), FailureClass::RetryHere);
    lab.start("web");
    assert_eq!(lab.running_nodes("web"), ["node2"]);
    assert_eq!(lab.status("web").relocations, 1, "stableSeconds have not passed yet");
    lab.run(31_000);
    assert_eq!(lab.status("web").relocations, 0);
    assert!(lab.status("web").failed_nodes.is_empty());
}

#[test]
fn without_another_node_a_failed_start_is_retried_in_place() {
    let mut lab = lab(&["node1"]);
    lab.agent("node1").faults.fails_start.insert("web".into(), FailureClass::RetryHere);
    lab.create_resource("web");
    lab.run_until(5_000, "error", |lab| lab.is_in_state("web", ServiceState::Error));
    let starts = lab.events.iter().filter(|event| event.reason == Reason::StartFailed).count();
    assert_eq!(starts, 1, "tried again once, as maxRelocate allows");
}

#[test]
fn manually_started_second_copy_is_an_error() {
    let (mut lab, node) = started(&["node1", "node2", "node3"]);
    let second = other(&lab, &node);
    // The second copy is only reported, because the lab fails a test in which two copies run.
    lab.agent(&second).faults.ignores_probes = true;
    let key = lab.keys.service_report(&second, &"web".into());
    let known: ha_api_types::record::ServiceReport = lab.read(&key).unwrap();
    let report = ha_api_types::record::ServiceReport {
        phase: ha_api_types::record::Phase::ProbedRunning,
        ..known.clone()
    };
    let value = serde_json::to_vec(&report).unwrap();
    let guard = ha_store::Guard::Unchanged(lab.state.get(&key).entries[0].mod_revision);
    lab.state.commit(&ha_store::Transaction::new().put(key, guard, value));
    lab.run_until(1_000, "an error", |lab| lab.is_in_state("web", ServiceState::Error));
    let status = lab.status("web");
    let ready = status.conditions.iter().find(|condition| condition.kind == "Ready").unwrap();
    assert_eq!(ready.reason, Reason::MultipleActive);
    assert!(ready.message.contains(&*node) && ready.message.contains(&*second), "{}", ready.message);
    assert_eq!(lab.running_nodes("web"), [node], "nothing was started or stopped");
    lab.create_operation("clear", operation(OperationAction::ClearError, None));
    lab.run_until(3_000, "stopped here", |lab| lab.running_nodes("web").is_empty());
    lab.agent(&second).faults.ignores_probes = false;
    lab.run_until(5_000, "started once", |lab| lab.is_in_state("web", ServiceState::Started));
    assert_eq!(lab.running_nodes("web").len(), 1);
    let stops = lab.events.iter().filter(|event| event.message.contains("Stopping on")).count();
    assert_eq!(stops, 2, "the service was stopped on both nodes");
}

#[test]
fn node_that_can_never_run_service_is_skipped() {
    let mut lab = lab(&["node1"]);
    lab.agent("node1").faults.fails_start.insert("web".into(), FailureClass::NeverHere);
    lab.create_resource("web");
    lab.run_until(5_000, "error", |lab| lab.is_in_state("web", ServiceState::Error));
    assert_eq!(condition(&lab, "web", "Ready").1, Reason::NotInstalled);
}

#[test]
fn a_service_waits_for_a_node_whose_policy_allows_it() {
    let mut lab = Lab::new(1, &["node1", "node2"]);
    lab.agent("node1").policy = Some(NodePolicy::default());
    lab.wait_until_nodes_online();
    lab.edit::<NodeSpec>("node2", |node| node.spec.schedulable = false);
    assert_eq!(lab.node("node1").policy, Some(NodePolicy::default()));
    let exec = ExecDriver { command: vec!["/usr/bin/web".to_owned()], ..ExecDriver::default() };
    let driver = DriverSpec { exec: Some(exec), ..DriverSpec::default() };
    lab.apply(Resource::new("web", ResourceSpec { driver, ..ResourceSpec::default() }));
    lab.run(5_000);
    let ready = lab.status("web").conditions.into_iter().find(|condition| condition.kind == "Ready").unwrap();
    assert!(ready.message.contains("node does not run exec as root"), "{}", ready.message);
    assert!(lab.running_nodes("web").is_empty());
    lab.edit::<NodeSpec>("node2", |node| node.spec.schedulable = true);
    lab.run_until(5_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
    assert_eq!(lab.running_nodes("web"), ["node2"]);
}

#[test]
fn disabling_a_service_clears_its_error() {
    let mut lab = lab(&["node1"]);
    lab.agent("node1").faults.fails_start.insert("web".into(), FailureClass::ConfigurationWrong);
    lab.create_resource("web");
    lab.run_until(5_000, "error", |lab| lab.is_in_state("web", ServiceState::Error));
    lab.set_requested_state("web", RequestedState::Disabled);
    lab.run_until(2_000, "disabled", |lab| lab.is_in_state("web", ServiceState::Disabled));
}

#[test]
fn a_stop_that_fails_is_an_unconfirmed_error() {
    let (mut lab, node) = started(&["node1", "node2"]);
    lab.agent(&node).faults.fails_stop.insert("web".into());
    lab.set_requested_state("web", RequestedState::Stopped);
    lab.run_until(2_000, "error", |lab| lab.is_in_state("web", ServiceState::Error));
    assert_eq!(lab.status("web").stop_confirmed, Some(false));
    assert_eq!(lab.assignment("web").map(|assignment| assignment.action), Some(Action::Leave));
    lab.agent(&node).power_off();
    lab.run_until(20_000, "fenced", |lab| lab.fence(&node).state == ha_api_types::record::FenceState::Fenced);
    lab.run(1_000);
    assert_eq!(lab.status("web").stop_confirmed, Some(true), "the proof confirms it");
    assert!(lab.running_nodes("web").is_empty());
}

#[test]
fn clearing_an_unconfirmed_error_stops_the_service() {
    let (mut lab, node) = started(&["node1", "node2"]);
    lab.agent(&node).faults.fails_stop.insert("web".into());
    lab.set_requested_state("web", RequestedState::Stopped);
    lab.run_until(2_000, "error", |lab| lab.is_in_state("web", ServiceState::Error));
    lab.set_requested_state("web", RequestedState::Started);
    lab.agent(&node).faults.fails_stop.clear();
    lab.create_operation("clear", operation(OperationAction::ClearError, None));
    lab.run_until(3_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
    assert!(lab.events.iter().any(|event| event.reason == Reason::Stopping));
}

#[test]
fn ignored_is_not_managed_and_later_probed_again() {
    let (mut lab, node) = started(&["node1", "node2"]);
    // The target keeps its report from before the service was unmanaged.
    let target = other(&lab, &node);
    lab.agent(&target).faults.ignores_probes = true;
    lab.set_requested_state("web", RequestedState::Ignored);
    lab.run_until(2_000, "ignored", |lab| lab.is_in_state("web", ServiceState::Ignored));
    assert!(lab.assignment("web").is_none());
    assert_eq!(lab.running_nodes("web"), std::slice::from_ref(&node), "left as it is");
    // The service is moved by hand while it is unmanaged.
    lab.agent(&node).running.clear();
    lab.agent(&target).running.insert("web".into());
    lab.run(1_000);
    // That report does not count as the target's answer.
    lab.set_requested_state("web", RequestedState::Started);
    lab.run(3_000);
    assert!(lab.is_in_state("web", ServiceState::Queued), "{}", lab.show());
    lab.agent(&target).faults.ignores_probes = false;
    lab.run_until(3_000, "adopted", |lab| lab.is_in_state("web", ServiceState::Started));
    assert_eq!(lab.running_nodes("web"), [target]);
}

#[test]
fn a_service_is_not_ignored_before_its_agent_confirms() {
    let (mut lab, node) = started(&["node1", "node2"]);
    lab.agent(&node).faults.ignores_probes = true;
    lab.set_requested_state("web", RequestedState::Ignored);
    lab.run(2_000);
    assert!(lab.is_in_state("web", ServiceState::Queued) && lab.assignment("web").is_none());
    // Managed again: the node may still run the service, so no other node starts it.
    lab.set_requested_state("web", RequestedState::Started);
    lab.run(3_000);
    assert!(lab.is_in_state("web", ServiceState::Queued), "{}", lab.show());
    lab.agent(&node).faults.ignores_probes = false;
    lab.run_until(3_000, "adopted", |lab| lab.is_in_state("web", ServiceState::Started));
    assert_eq!(lab.running_nodes("web"), std::slice::from_ref(&node));
    // The node is lost before it confirms: the watchdog is the proof.
    lab.agent(&node).faults.ignores_probes = true;
    lab.set_requested_state("web", RequestedState::Ignored);
    lab.run(2_000);
    lab.agent(&node).isolated = true;
    lab.run_until(30_000, "ignored", |lab| lab.is_in_state("web", ServiceState::Ignored));
    assert_ne!(lab.fence(&node).state, FenceState::Open);
}

#[test]
fn a_node_whose_services_are_all_ignored_is_not_fenced() {
    let (mut lab, node) = started(&["node1", "node2"]);
    lab.set_requested_state("web", RequestedState::Ignored);
    lab.run_until(2_000, "ignored", |lab| lab.is_in_state("web", ServiceState::Ignored));
    lab.agent(&node).isolated = true;
    lab.run(20_000);
    assert_eq!(lab.fence(&node).proof, Some(ha_api_types::record::Proof::NothingActive));
}

#[test]
fn deletion_leaves_service_running_and_tombstone() {
    let (mut lab, node) = started(&["node1", "node2"]);
    lab.delete("web");
    lab.run_until(2_000, "gone", |lab| {
        lab.read::<serde_json::Value>(&lab.keys.spec(ha_api_types::kind::Kind::Resource, "web")).is_none()
    });
    assert!(lab.assignment("web").is_none());
    assert_eq!(lab.running_nodes("web"), std::slice::from_ref(&node));
    let tombstone: Tombstone = lab.read(&lab.keys.tombstone(&"web".into())).unwrap();
    assert!(tombstone.nodes.contains(&node));
    // After the resource is created again, it waits for that node's answer, and the service is adopted there.
    lab.start("web");
    assert_eq!(lab.running_nodes("web"), [node]);
    assert!(lab.read::<Tombstone>(&lab.keys.tombstone(&"web".into())).is_none());
}

#[test]
fn a_recreated_resource_waits_for_tombstone_nodes() {
    let (mut lab, node) = started(&["node1", "node2"]);
    lab.agent(&node).isolated = true;
    lab.delete("web");
    lab.run(10_000);
    lab.create_resource("web");
    lab.run(10_000);
    assert!(lab.is_in_state("web", ServiceState::Queued), "{}", lab.show());
    let waiting = lab.members[0].core.wait_conditions();
    assert!(waiting.iter().any(|w| w.message.contains(&*node)), "{waiting:?}");
}

#[test]
fn service_killed_on_isolated_node_restarts_there() {
    let (mut lab, node) = started(&["node1", "node2"]);
    let before = lab.status("web").action_uid;
    lab.agent(&node).isolated = true;
    lab.run(4_500);
    assert!(lab.running_nodes("web").is_empty());
    lab.agent(&node).isolated = false;
    lab.run_until(3_000, "runs again", |lab| lab.running_nodes("web") == std::slice::from_ref(&node));
    assert_ne!(lab.status("web").action_uid, before);
    assert_eq!(lab.fence(&node).epoch, Epoch(1));
}

#[test]
fn nonexclusive_service_moves_before_fencing_completes() {
    let mut lab = lab(&["node1", "node2"]);
    lab.create_resource("web");
    lab.edit::<ResourceSpec>("web", |resource| resource.spec.exclusive = false);
    lab.run_until(5_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
    let node = lab.running_nodes("web")[0].clone();
    lab.agent(&node).power_off();
    lab.run_until(8_500, "elsewhere, soon after Th", |lab| {
        lab.running_nodes("web").iter().any(|place| *place != node)
    });
}

#[test]
fn a_service_starts_after_its_dependencies() {
    let mut lab = lab(&["node1", "node2"]);
    lab.create_resource("web");
    lab.edit::<ResourceSpec>("web", |resource| resource.spec.depends_on = vec!["db".to_owned()]);
    for node in ["node1", "node2"] {
        lab.agent(node).faults.ignores_assignments = true;
    }
    lab.create_resource("db");
    lab.run(2_000);
    assert!(lab.assignment("db").is_some() && lab.assignment("web").is_none());
    for node in ["node1", "node2"] {
        lab.agent(node).faults.ignores_assignments = false;
    }
    lab.run_until(3_000, "both", |lab| {
        lab.is_in_state("web", ServiceState::Started) && lab.is_in_state("db", ServiceState::Started)
    });
}

#[test]
fn impossible_operations_are_refused_and_later_removed() {
    let (mut lab, _) = started(&["node1"]);
    lab.create_operation(
        "unknown",
        OperationSpec { resource: Some("nix".to_owned()), ..OperationSpec::default() },
    );
    lab.create_operation("clear", operation(OperationAction::ClearError, None));
    lab.run(1_000);
    assert_eq!(lab.operation("unknown").reason, Reason::NotFound);
    assert_eq!(lab.operation("clear").phase, OperationPhase::Refused);
    lab.now.wall_unix_ms += 86_400_000 * 2;
    lab.run(60_000);
    let left = lab.state.list(&lab.keys.specs_of(ha_api_types::kind::Kind::Operation)).entries;
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn unchanged_cluster_causes_no_writes() {
    let (mut lab, _) = started(&["node1", "node2"]);
    // By then the set of nodes counts as complete, so the N+1 check has been published.
    lab.run(60_000);
    let before = lab.members[0].commits.len();
    let applied = |lab: &Lab, from: usize| {
        lab.members[0].commits[from..]
            .iter()
            .filter(|(_, transaction, _)| !transaction.writes_key(&lab.keys.refresh(&"c0".into())))
            .count()
    };
    lab.run(45_000);
    assert_eq!(applied(&lab, before), 0);
    lab.run(60_000);
    assert!(applied(&lab, before) <= 4, "last seen, once a minute");
}

#[test]
fn lost_etcd_answers_change_no_final_state() {
    for pattern in 0..32_u32 {
        let mut lab = lab(&["node1", "node2"]);
        lab.lost_commits = (0..5).map(|bit| pattern >> bit & 1 == 1).collect();
        lab.start("web");
        assert_eq!(lab.running_nodes("web").len(), 1);
    }
}

#[test]
fn every_leader_write_is_signed_and_guarded() {
    let (mut lab, node) = started(&["node1", "node2"]);
    lab.agent(&node).power_off();
    lab.run(20_000);
    let mut opened = BTreeSet::new();
    for (_, transaction, outcome) in &lab.members[0].commits {
        // R3.16: the transaction that opens an epoch guards the registration that the leader has read.
        for node in ["node1", "node2"] {
            if let Some(Write::Put { value, .. }) = transaction.writes().get(&lab.keys.fence(&node.into())) {
                let fence: Fence = serde_json::from_slice(value).unwrap();
                if fence.state == FenceState::Open && opened.insert((node, fence.epoch)) {
                    assert!(
                        transaction.guards().contains_key(&lab.keys.node_report(&node.into())),
                        "{transaction:?}"
                    );
                }
            }
        }
        let own = [lab.keys.candidate(&"c0".into()), lab.keys.refresh(&"c0".into()), lab.keys.leader()]
            .iter()
            .any(|key| transaction.writes_key(key));
        assert!(own || transaction.guards().contains_key(&lab.keys.leader()));
        assert!(transaction.writes().keys().all(|key| transaction.guards().contains_key(key)));
        assert!(!matches!(outcome, Outcome::Refused(_)));
        // R6.8: an assignment guards the spec from which the leader derived it.
        let assigns = transaction.writes_key(&lab.keys.assignment(&"web".into()));
        assert!(!assigns || transaction.guards().contains_key(&lab.keys.spec(Kind::Resource, "web")));
        // R6.13: an assignment also guards the fence of its node.
        if let Some(Write::Put { value, .. }) = transaction.writes().get(&lab.keys.assignment(&"web".into()))
        {
            let assigned: Assignment = serde_json::from_slice(value).unwrap();
            assert!(transaction.guards().contains_key(&lab.keys.fence(&assigned.node)), "{transaction:?}");
        }
    }
    assert!(
        lab.members[0]
            .commits
            .iter()
            .any(|(_, sent, _)| sent.writes_key(&lab.keys.assignment(&"web".into())))
    );
    assert!(opened.len() >= 2, "{opened:?}");
}

#[test]
fn agent_missing_after_restart_is_reported() {
    let (mut lab, node) = started(&["node1"]);
    lab.agent(&node).leave(ha_api_types::record::Mode::Restart);
    lab.run(2_000);
    lab.agent(&node).is_powered_on = false;
    lab.run(610_000);
    let status = lab.node(&node);
    let ready = status.conditions.iter().find(|condition| condition.kind == "Ready").unwrap();
    assert!(ready.message.contains("has not started again"), "{}", ready.message);
}
