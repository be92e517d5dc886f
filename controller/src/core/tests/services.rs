//! Tests of service states, start failures, placement, commands and shutdown, and of FENCING, sections 6 to 8.

use super::test_cluster::TestCluster;
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

pub(super) fn online_cluster(nodes: &[&str]) -> TestCluster {
    let mut cluster = TestCluster::new(1, nodes);
    cluster.wait_until_nodes_online();
    cluster
}

pub(super) fn cluster_with_started_service(nodes: &[&str]) -> (TestCluster, NodeName) {
    let mut cluster = online_cluster(nodes);
    cluster.start("web");
    let node = cluster.status("web").node.unwrap();
    (cluster, node)
}

pub(super) fn another_node(cluster: &TestCluster, node: &str) -> NodeName {
    cluster.agents.keys().find(|name| *name != node).unwrap().clone()
}

pub(super) fn put_group(cluster: &mut TestCluster, nodes: &[(&str, i64)], restricted: bool) {
    let nodes = NodePriorities(nodes.iter().map(|(node, priority)| ((*node).into(), *priority)).collect());
    cluster.apply(Group::new("g", GroupSpec { nodes, restricted, ..GroupSpec::default() }));
}

pub(super) fn start_in_group(cluster: &mut TestCluster, name: &str) {
    cluster.create_resource(name);
    cluster.edit::<ResourceSpec>(name, |resource| resource.spec.group = Some("g".to_owned()));
}

pub(super) fn operation(action: OperationAction, node: Option<&str>) -> OperationSpec {
    OperationSpec {
        action,
        resource: Some("web".to_owned()),
        node: node.map(Into::into),
        ..OperationSpec::default()
    }
}

pub(super) fn condition(cluster: &TestCluster, name: &str, kind: &str) -> (ConditionStatus, Reason) {
    let status = cluster.status(name);
    let condition = status.conditions.iter().find(|condition| condition.kind == kind).unwrap();
    (condition.status, condition.reason)
}

#[test]
fn a_resource_is_probed_placed_started_and_ready() {
    let (cluster, node) = cluster_with_started_service(&["node1", "node2", "node3"]);
    assert_eq!(cluster.running_nodes("web"), [node]);
    assert_eq!(condition(&cluster, "web", "Ready"), (ConditionStatus::True, Reason::Running));
    let conditions = cluster.status("web").conditions;
    assert!(
        conditions.iter().all(|condition| !matches!(condition.kind.as_str(), "Reconciling" | "Stalled")),
        "{conditions:?}"
    );
    assert_eq!(cluster.status("web").observed_generation, 1);
}

/// R7.7: a node that never registered is empty, so that a new service does not wait for it.
#[test]
fn queued_does_not_wait_for_a_node_that_never_registered() {
    let mut cluster = online_cluster(&["node1", "node2"]);
    cluster.apply(Node::new("node9", NodeSpec::default()));
    cluster.run(1_000);
    cluster.create_resource("web");
    cluster.run_until(5_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    assert!(cluster.node_is("node9", NodeState::Unknown));
}

#[test]
fn queued_waits_for_every_node_and_names_silent() {
    let mut cluster = online_cluster(&["node1", "node2"]);
    cluster.agent("node2").faults.ignores_probes = true;
    cluster.create_resource("web");
    cluster.run(3_000);
    assert!(cluster.is_in_state("web", ServiceState::Queued));
    let waiting = cluster.controllers[0].core.wait_conditions();
    assert!(
        waiting.iter().any(|w| w.reason == Reason::NotProbed && w.message.contains("node2")),
        "{waiting:?}"
    );
    cluster.create_operation(
        "start",
        OperationSpec { not_on: Some("node2".into()), ..operation(OperationAction::Start, None) },
    );
    cluster.run_until(3_000, "an operator answers for the node", |cluster| {
        cluster.is_in_state("web", ServiceState::Started)
    });
    cluster.run(500);
    assert_eq!(cluster.operation("start").phase, OperationPhase::Succeeded);
}

#[test]
fn new_resource_counts_closed_node_as_empty() {
    let mut cluster = online_cluster(&["node1", "node2"]);
    cluster.agent("node2").power_off();
    cluster.create_resource("web");
    cluster.run_until(10_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    assert_eq!(condition(&cluster, "web", "Probed"), (ConditionStatus::False, Reason::NotProbed));
}

/// The leader emits one event for the start of a service. The agent emits the event about the running service.
#[test]
fn a_start_has_one_event_of_the_leader() {
    let mut cluster = online_cluster(&["node1"]);
    cluster.start("web");
    let messages: Vec<&str> = cluster
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
    let mut cluster = online_cluster(&["node1"]);
    put_group(&mut cluster, &[("node9", 0)], true);
    start_in_group(&mut cluster, "web");
    cluster.run(5_000);
    let mut events = cluster.events.iter().filter(|event| event.kind == Kind::Resource);
    assert!(events.any(|event| event.reason == Reason::Unschedulable), "{:?}", cluster.events);
}

#[test]
fn one_running_copy_is_adopted_in_place() {
    let mut cluster = online_cluster(&["node1", "node2", "node3"]);
    cluster.agent("node3").running.insert("web".into());
    cluster.start("web");
    assert_eq!(cluster.running_nodes("web"), ["node3"]);
    assert!(cluster.events.iter().any(|event| event.reason == Reason::Adopted));
}

#[test]
fn two_running_copies_are_an_error() {
    let mut cluster = TestCluster::new(1, &["node1", "node2", "node3"]);
    cluster.wait_until_nodes_online();
    cluster.agent("node2").running.insert("web".into());
    cluster.create_resource("web");
    // The second copy is only reported, because the test cluster fails a test in which two copies run.
    cluster.agent("node3").faults.ignores_probes = true;
    cluster.run(500);
    let key = cluster.keys.service_report(&"node3".into(), &"web".into());
    let report = ha_api_types::record::ServiceReport {
        uid: "uid-web".into(),
        epoch: Epoch(1),
        probed_generation: 1,
        exclusive: true,
        phase: ha_api_types::record::Phase::ProbedRunning,
        ..Default::default()
    };
    let value = serde_json::to_vec(&report).unwrap();
    cluster.state.commit(&ha_store::Transaction::new().put(key, ha_store::Guard::Absent, value));
    cluster.run_until(2_000, "error", |cluster| cluster.is_in_state("web", ServiceState::Error));
    let status = cluster.status("web");
    assert_eq!(status.stop_confirmed, Some(false));
    let ready = status.conditions.iter().find(|condition| condition.kind == "Ready").unwrap();
    assert_eq!(ready.reason, Reason::MultipleActive);
    assert!(ready.message.contains("node2") && ready.message.contains("node3"), "{}", ready.message);
    assert!(cluster.assignment("web").is_none());
}

#[test]
fn service_stops_and_starts_by_requested_state() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    cluster.set_requested_state("web", RequestedState::Stopped);
    cluster.run_until(2_000, "stopped", |cluster| cluster.is_in_state("web", ServiceState::Stopped));
    assert!(cluster.running_nodes("web").is_empty());
    assert_eq!(condition(&cluster, "web", "Ready"), (ConditionStatus::True, Reason::Stopped));
    cluster.set_requested_state("web", RequestedState::Started);
    cluster.run_until(2_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    assert_eq!(cluster.running_nodes("web"), [node], "the current node is preferred");
}

#[test]
fn stopped_service_is_reassigned_without_fencing() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    cluster.set_requested_state("web", RequestedState::Stopped);
    cluster.run_until(2_000, "stopped", |cluster| cluster.is_in_state("web", ServiceState::Stopped));
    cluster.agent(&node).power_off();
    cluster.run_until(9_000, "new home", |cluster| cluster.status("web").node.as_ref() != Some(&node));
    assert_ne!(cluster.fence(&node).state, ha_api_types::record::FenceState::Fenced);
}

#[test]
fn a_disabled_service_stays_assigned_to_its_node() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    cluster.set_requested_state("web", RequestedState::Disabled);
    cluster.run_until(2_000, "disabled", |cluster| cluster.is_in_state("web", ServiceState::Disabled));
    cluster.agent(&node).power_off();
    cluster.run(10_000);
    assert_eq!(cluster.status("web").node, Some(node));
    assert!(cluster.is_in_state("web", ServiceState::Disabled));
}

#[test]
fn failed_starts_on_two_nodes_become_error() {
    let mut cluster = online_cluster(&["node1", "node2", "node3"]);
    for node in ["node1", "node2", "node3"] {
        cluster.agent(node).faults.fails_start.insert("web".into(), FailureClass::RetryHere);
    }
    cluster.create_resource("web");
    cluster.run_until(5_000, "error", |cluster| cluster.is_in_state("web", ServiceState::Error));
    let status = cluster.status("web");
    assert_eq!((status.relocations, status.failed_nodes.len()), (1, 2));
    assert_eq!(status.stop_confirmed, Some(true));
    assert_eq!(condition(&cluster, "web", "Stalled").0, ConditionStatus::True);
    for node in ["node1", "node2", "node3"] {
        cluster.agent(node).faults.fails_start.clear();
    }
    cluster.run(5_000);
    assert!(cluster.is_in_state("web", ServiceState::Error), "only Disabled or clear-error leaves it");
    cluster.create_operation("clear", operation(OperationAction::ClearError, None));
    cluster.run_until(2_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    assert_eq!(cluster.operation("clear").phase, OperationPhase::Succeeded);
    assert!(cluster.status("web").failed_nodes.is_empty());
}

#[test]
fn nodes_with_failed_starts_are_tried_last() {
    let mut cluster = online_cluster(&["node1", "node2"]);
    cluster.agent("node1").faults.fails_start.insert("web".into(), FailureClass::RetryHere);
    cluster.start("web");
    assert_eq!(cluster.running_nodes("web"), ["node2"]);
    assert_eq!(cluster.status("web").relocations, 1, "stableSeconds have not passed yet");
    cluster.run(31_000);
    assert_eq!(cluster.status("web").relocations, 0);
    assert!(cluster.status("web").failed_nodes.is_empty());
}

#[test]
fn without_another_node_a_failed_start_is_retried_in_place() {
    let mut cluster = online_cluster(&["node1"]);
    cluster.agent("node1").faults.fails_start.insert("web".into(), FailureClass::RetryHere);
    cluster.create_resource("web");
    cluster.run_until(5_000, "error", |cluster| cluster.is_in_state("web", ServiceState::Error));
    let starts = cluster.events.iter().filter(|event| event.reason == Reason::StartFailed).count();
    assert_eq!(starts, 1, "tried again once, as maxRelocate allows");
}

#[test]
fn manually_started_second_copy_is_an_error() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2", "node3"]);
    let second = another_node(&cluster, &node);
    // The second copy is only reported, because the test cluster fails a test in which two copies run.
    cluster.agent(&second).faults.ignores_probes = true;
    let key = cluster.keys.service_report(&second, &"web".into());
    let stored_report: ha_api_types::record::ServiceReport = cluster.read(&key).unwrap();
    let report = ha_api_types::record::ServiceReport {
        phase: ha_api_types::record::Phase::ProbedRunning,
        ..stored_report.clone()
    };
    let value = serde_json::to_vec(&report).unwrap();
    let guard = ha_store::Guard::Unchanged(cluster.state.get(&key).entries[0].mod_revision);
    cluster.state.commit(&ha_store::Transaction::new().put(key, guard, value));
    cluster.run_until(1_000, "an error", |cluster| cluster.is_in_state("web", ServiceState::Error));
    let status = cluster.status("web");
    let ready = status.conditions.iter().find(|condition| condition.kind == "Ready").unwrap();
    assert_eq!(ready.reason, Reason::MultipleActive);
    assert!(ready.message.contains(&*node) && ready.message.contains(&*second), "{}", ready.message);
    assert_eq!(cluster.running_nodes("web"), [node], "nothing was started or stopped");
    cluster.create_operation("clear", operation(OperationAction::ClearError, None));
    cluster.run_until(3_000, "stopped here", |cluster| cluster.running_nodes("web").is_empty());
    cluster.agent(&second).faults.ignores_probes = false;
    cluster.run_until(5_000, "started once", |cluster| cluster.is_in_state("web", ServiceState::Started));
    assert_eq!(cluster.running_nodes("web").len(), 1);
    let stops = cluster.events.iter().filter(|event| event.message.contains("Stopping on")).count();
    assert_eq!(stops, 2, "the service was stopped on both nodes");
}

#[test]
fn node_that_can_never_run_service_is_skipped() {
    let mut cluster = online_cluster(&["node1"]);
    cluster.agent("node1").faults.fails_start.insert("web".into(), FailureClass::NeverHere);
    cluster.create_resource("web");
    cluster.run_until(5_000, "error", |cluster| cluster.is_in_state("web", ServiceState::Error));
    assert_eq!(condition(&cluster, "web", "Ready").1, Reason::NotInstalled);
}

#[test]
fn a_service_waits_for_a_node_whose_policy_allows_it() {
    let mut cluster = TestCluster::new(1, &["node1", "node2"]);
    cluster.agent("node1").policy = Some(NodePolicy::default());
    cluster.wait_until_nodes_online();
    cluster.edit::<NodeSpec>("node2", |node| node.spec.schedulable = Some(false));
    assert_eq!(cluster.node("node1").policy, Some(NodePolicy::default()));
    let exec = ExecDriver { command: vec!["/usr/bin/web".to_owned()], ..ExecDriver::default() };
    let driver = DriverSpec { exec: Some(exec), ..DriverSpec::default() };
    cluster.apply(Resource::new("web", ResourceSpec { driver, ..ResourceSpec::default() }));
    cluster.run(5_000);
    let ready =
        cluster.status("web").conditions.into_iter().find(|condition| condition.kind == "Ready").unwrap();
    assert!(ready.message.contains("node policy does not allow exec as root"), "{}", ready.message);
    assert!(cluster.running_nodes("web").is_empty());
    cluster.edit::<NodeSpec>("node2", |node| node.spec.schedulable = Some(true));
    cluster.run_until(5_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    assert_eq!(cluster.running_nodes("web"), ["node2"]);
}

#[test]
fn disabling_a_service_clears_its_error() {
    let mut cluster = online_cluster(&["node1"]);
    cluster.agent("node1").faults.fails_start.insert("web".into(), FailureClass::ConfigurationWrong);
    cluster.create_resource("web");
    cluster.run_until(5_000, "error", |cluster| cluster.is_in_state("web", ServiceState::Error));
    cluster.set_requested_state("web", RequestedState::Disabled);
    cluster.run_until(2_000, "disabled", |cluster| cluster.is_in_state("web", ServiceState::Disabled));
}

#[test]
fn a_stop_that_fails_is_an_unconfirmed_error() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    cluster.agent(&node).faults.fails_stop.insert("web".into());
    cluster.set_requested_state("web", RequestedState::Stopped);
    cluster.run_until(2_000, "error", |cluster| cluster.is_in_state("web", ServiceState::Error));
    assert_eq!(cluster.status("web").stop_confirmed, Some(false));
    assert_eq!(cluster.assignment("web").map(|assignment| assignment.action), Some(Action::DoNothing));
    cluster.agent(&node).power_off();
    cluster.run_until(20_000, "fenced", |cluster| {
        cluster.fence(&node).state == ha_api_types::record::FenceState::Fenced
    });
    cluster.run(1_000);
    assert_eq!(cluster.status("web").stop_confirmed, Some(true), "the proof confirms it");
    assert!(cluster.running_nodes("web").is_empty());
}

#[test]
fn clearing_an_unconfirmed_error_stops_the_service() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    cluster.agent(&node).faults.fails_stop.insert("web".into());
    cluster.set_requested_state("web", RequestedState::Stopped);
    cluster.run_until(2_000, "error", |cluster| cluster.is_in_state("web", ServiceState::Error));
    cluster.set_requested_state("web", RequestedState::Started);
    cluster.agent(&node).faults.fails_stop.clear();
    cluster.create_operation("clear", operation(OperationAction::ClearError, None));
    cluster.run_until(3_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    assert!(cluster.events.iter().any(|event| event.reason == Reason::Stopping));
}

#[test]
fn ignored_is_not_managed_and_later_probed_again() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    // The target keeps its report from before the service was unmanaged.
    let target = another_node(&cluster, &node);
    cluster.agent(&target).faults.ignores_probes = true;
    cluster.set_requested_state("web", RequestedState::Ignored);
    cluster.run_until(2_000, "ignored", |cluster| cluster.is_in_state("web", ServiceState::Ignored));
    assert!(cluster.assignment("web").is_none());
    assert_eq!(cluster.running_nodes("web"), std::slice::from_ref(&node), "left as it is");
    // The service is moved by hand while it is unmanaged.
    cluster.agent(&node).running.clear();
    cluster.agent(&target).running.insert("web".into());
    cluster.run(1_000);
    // That report does not count as the target's answer.
    cluster.set_requested_state("web", RequestedState::Started);
    cluster.run(3_000);
    assert!(cluster.is_in_state("web", ServiceState::Queued), "{}", cluster.show());
    cluster.agent(&target).faults.ignores_probes = false;
    cluster.run_until(3_000, "adopted", |cluster| cluster.is_in_state("web", ServiceState::Started));
    assert_eq!(cluster.running_nodes("web"), [target]);
}

#[test]
fn a_service_is_not_ignored_before_its_agent_confirms() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    cluster.agent(&node).faults.ignores_probes = true;
    cluster.set_requested_state("web", RequestedState::Ignored);
    cluster.run(2_000);
    assert!(cluster.is_in_state("web", ServiceState::Queued) && cluster.assignment("web").is_none());
    // Managed again: the node may still run the service, so no other node starts it.
    cluster.set_requested_state("web", RequestedState::Started);
    cluster.run(3_000);
    assert!(cluster.is_in_state("web", ServiceState::Queued), "{}", cluster.show());
    cluster.agent(&node).faults.ignores_probes = false;
    cluster.run_until(3_000, "adopted", |cluster| cluster.is_in_state("web", ServiceState::Started));
    assert_eq!(cluster.running_nodes("web"), std::slice::from_ref(&node));
    // The node is lost before it confirms: the watchdog is the proof.
    cluster.agent(&node).faults.ignores_probes = true;
    cluster.set_requested_state("web", RequestedState::Ignored);
    cluster.run(2_000);
    cluster.agent(&node).isolated = true;
    cluster.run_until(30_000, "ignored", |cluster| cluster.is_in_state("web", ServiceState::Ignored));
    assert_ne!(cluster.fence(&node).state, FenceState::Open);
}

#[test]
fn a_node_whose_services_are_all_ignored_is_not_fenced() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    cluster.set_requested_state("web", RequestedState::Ignored);
    cluster.run_until(2_000, "ignored", |cluster| cluster.is_in_state("web", ServiceState::Ignored));
    cluster.agent(&node).isolated = true;
    cluster.run(20_000);
    assert_eq!(cluster.fence(&node).proof, Some(ha_api_types::record::Proof::NothingActive));
}

#[test]
fn deletion_leaves_service_running_and_tombstone() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    cluster.delete("web");
    cluster.run_until(2_000, "gone", |cluster| {
        cluster
            .read::<serde_json::Value>(&cluster.keys.spec(ha_api_types::kind::Kind::Resource, "web"))
            .is_none()
    });
    assert!(cluster.assignment("web").is_none());
    assert_eq!(cluster.running_nodes("web"), std::slice::from_ref(&node));
    let tombstone: Tombstone = cluster.read(&cluster.keys.tombstone(&"web".into())).unwrap();
    assert!(tombstone.nodes.contains(&node));
    // After the resource is created again, it waits for that node's answer, and the service is adopted there.
    cluster.start("web");
    assert_eq!(cluster.running_nodes("web"), [node]);
    assert!(cluster.read::<Tombstone>(&cluster.keys.tombstone(&"web".into())).is_none());
}

#[test]
fn a_recreated_resource_waits_for_tombstone_nodes() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    cluster.agent(&node).isolated = true;
    cluster.delete("web");
    cluster.run(10_000);
    cluster.create_resource("web");
    cluster.run(10_000);
    assert!(cluster.is_in_state("web", ServiceState::Queued), "{}", cluster.show());
    let waiting = cluster.controllers[0].core.wait_conditions();
    assert!(waiting.iter().any(|w| w.message.contains(&*node)), "{waiting:?}");
}

#[test]
fn service_killed_on_isolated_node_restarts_there() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    let before = cluster.status("web").action_uid;
    cluster.agent(&node).isolated = true;
    cluster.run(4_500);
    assert!(cluster.running_nodes("web").is_empty());
    cluster.agent(&node).isolated = false;
    cluster.run_until(3_000, "runs again", |cluster| {
        cluster.running_nodes("web") == std::slice::from_ref(&node)
    });
    assert_ne!(cluster.status("web").action_uid, before);
    assert_eq!(cluster.fence(&node).epoch, Epoch(1));
}

#[test]
fn nonexclusive_service_moves_before_fencing_completes() {
    let mut cluster = online_cluster(&["node1", "node2"]);
    cluster.create_resource("web");
    cluster.edit::<ResourceSpec>("web", |resource| resource.spec.exclusive = false);
    cluster.run_until(5_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    let node = cluster.running_nodes("web")[0].clone();
    cluster.agent(&node).power_off();
    cluster.run_until(8_500, "elsewhere, soon after Th", |cluster| {
        cluster.running_nodes("web").iter().any(|place| *place != node)
    });
}

#[test]
fn a_service_starts_after_its_dependencies() {
    let mut cluster = online_cluster(&["node1", "node2"]);
    cluster.create_resource("web");
    cluster.edit::<ResourceSpec>("web", |resource| resource.spec.depends_on = vec!["db".to_owned()]);
    for node in ["node1", "node2"] {
        cluster.agent(node).faults.ignores_assignments = true;
    }
    cluster.create_resource("db");
    cluster.run(2_000);
    assert!(cluster.assignment("db").is_some() && cluster.assignment("web").is_none());
    for node in ["node1", "node2"] {
        cluster.agent(node).faults.ignores_assignments = false;
    }
    cluster.run_until(3_000, "both", |cluster| {
        cluster.is_in_state("web", ServiceState::Started) && cluster.is_in_state("db", ServiceState::Started)
    });
}

#[test]
fn impossible_operations_are_refused_and_later_removed() {
    let (mut cluster, _) = cluster_with_started_service(&["node1"]);
    cluster.create_operation(
        "unknown",
        OperationSpec { resource: Some("nix".to_owned()), ..OperationSpec::default() },
    );
    cluster.create_operation("clear", operation(OperationAction::ClearError, None));
    cluster.run(1_000);
    assert_eq!(cluster.operation("unknown").reason, Reason::NotFound);
    assert_eq!(cluster.operation("clear").phase, OperationPhase::Refused);
    cluster.now.wall_unix_ms += 86_400_000 * 2;
    cluster.run(60_000);
    let remaining = cluster.state.list(&cluster.keys.specs_of(ha_api_types::kind::Kind::Operation)).entries;
    assert!(remaining.is_empty(), "{remaining:?}");
}

#[test]
fn unchanged_cluster_causes_no_writes() {
    let (mut cluster, _) = cluster_with_started_service(&["node1", "node2"]);
    // By then the set of nodes counts as complete, so the N+1 check has been published.
    cluster.run(60_000);
    let before = cluster.controllers[0].commits.len();
    let applied = |cluster: &TestCluster, from: usize| {
        cluster.controllers[0].commits[from..]
            .iter()
            .filter(|(_, transaction, _)| !transaction.writes_key(&cluster.keys.refresh(&"c0".into())))
            .count()
    };
    cluster.run(45_000);
    assert_eq!(applied(&cluster, before), 0);
    cluster.run(60_000);
    assert!(applied(&cluster, before) <= 4, "last seen, once a minute");
}

#[test]
fn lost_etcd_answers_change_no_final_state() {
    for pattern in 0..32_u32 {
        let mut cluster = online_cluster(&["node1", "node2"]);
        cluster.lost_commits = (0..5).map(|bit| pattern >> bit & 1 == 1).collect();
        cluster.start("web");
        assert_eq!(cluster.running_nodes("web").len(), 1);
    }
}

#[test]
fn every_leader_write_is_signed_and_guarded() {
    let (mut cluster, node) = cluster_with_started_service(&["node1", "node2"]);
    cluster.agent(&node).power_off();
    cluster.run(20_000);
    let mut opened = BTreeSet::new();
    for (_, transaction, outcome) in &cluster.controllers[0].commits {
        // R3.16: the transaction that opens an epoch guards the registration that the leader has read.
        for node in ["node1", "node2"] {
            if let Some(Write::Put { value, .. }) =
                transaction.writes().get(&cluster.keys.fence(&node.into()))
            {
                let fence: Fence = serde_json::from_slice(value).unwrap();
                if fence.state == FenceState::Open && opened.insert((node, fence.epoch)) {
                    assert!(
                        transaction.guards().contains_key(&cluster.keys.node_report(&node.into())),
                        "{transaction:?}"
                    );
                }
            }
        }
        let is_own_key =
            [cluster.keys.candidate(&"c0".into()), cluster.keys.refresh(&"c0".into()), cluster.keys.leader()]
                .iter()
                .any(|key| transaction.writes_key(key));
        assert!(is_own_key || transaction.guards().contains_key(&cluster.keys.leader()));
        assert!(transaction.writes().keys().all(|key| transaction.guards().contains_key(key)));
        assert!(!matches!(outcome, Outcome::Refused(_)));
        // R6.8: an assignment guards the spec from which the leader derived it.
        let assigns = transaction.writes_key(&cluster.keys.assignment(&"web".into()));
        assert!(!assigns || transaction.guards().contains_key(&cluster.keys.spec(Kind::Resource, "web")));
        // R6.13: an assignment also guards the fence of its node.
        if let Some(Write::Put { value, .. }) =
            transaction.writes().get(&cluster.keys.assignment(&"web".into()))
        {
            let assigned: Assignment = serde_json::from_slice(value).unwrap();
            assert!(
                transaction.guards().contains_key(&cluster.keys.fence(&assigned.node)),
                "{transaction:?}"
            );
        }
    }
    assert!(
        cluster.controllers[0]
            .commits
            .iter()
            .any(|(_, sent, _)| sent.writes_key(&cluster.keys.assignment(&"web".into())))
    );
    assert!(opened.len() >= 2, "{opened:?}");
}

#[test]
fn agent_missing_after_restart_is_reported() {
    let (mut cluster, node) = cluster_with_started_service(&["node1"]);
    cluster.agent(&node).set_mode(ha_api_types::record::Mode::Restart);
    cluster.run(2_000);
    cluster.agent(&node).is_powered_on = false;
    cluster.run(610_000);
    let status = cluster.node(&node);
    let ready = status.conditions.iter().find(|condition| condition.kind == "Ready").unwrap();
    assert!(ready.message.contains("has not started again"), "{}", ready.message);
}
