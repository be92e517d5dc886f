//! Tests that a service which may still run on a node is never started elsewhere (FENCING, sections 3, 5, 7 and 10).

use super::test_cluster::TestCluster;
use ha_api_types::id::{Epoch, NodeName};
use ha_api_types::operation::{OperationAction, OperationSpec};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Fence, FenceState, Mode, NodeReport, Proof, Tombstone};
use ha_api_types::resource::{RequestedState, ResourceSpec, ServiceState};
use ha_store::{Guard, Transaction};

fn cluster_with_running_service(nodes: &[&str]) -> (TestCluster, NodeName) {
    let mut cluster = TestCluster::new(1, nodes);
    cluster.wait_until_nodes_online();
    cluster.start("web");
    let node = cluster.status("web").node.unwrap();
    (cluster, node)
}

fn clear_error(cluster: &mut TestCluster, name: &str) {
    let action = OperationAction::ClearError;
    let resource = Some("web".to_owned());
    cluster.create_operation(name, OperationSpec { action, resource, ..OperationSpec::default() });
}

/// Returns a node that registers again in the same boot, while its epoch is open, and names a service that it could
/// not stop.
fn registered_with_unstopped_service() -> (TestCluster, NodeName) {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.agent(&node).faults.fails_stop.insert("web".into());
    cluster.agent(&node).lose_journal();
    cluster.run_until(10_000, "admitted again", |cluster| {
        cluster.fence(&node).state == FenceState::Open && cluster.fence(&node).epoch == Epoch(2)
    });
    (cluster, node)
}

#[test]
fn unstopped_service_of_same_boot_is_error() {
    let (mut cluster, node) = registered_with_unstopped_service();
    let status = cluster.status("web");
    assert_eq!(
        (status.state, status.stop_confirmed),
        (ServiceState::Error, Some(false)),
        "{}",
        cluster.show()
    );
    cluster.run(5_000);
    assert_eq!(cluster.running_nodes("web"), [node]);
}

#[test]
fn clearing_an_error_stops_possible_copies() {
    let (mut cluster, node) = registered_with_unstopped_service();
    clear_error(&mut cluster, "first");
    cluster.run(5_000);
    assert_eq!(cluster.running_nodes("web"), [node.as_str()], "{}", cluster.show());
    assert!(cluster.is_in_state("web", ServiceState::Error), "the stop failed again: {}", cluster.show());
    cluster.agent(&node).faults.fails_stop.clear();
    clear_error(&mut cluster, "second");
    cluster.run_until(10_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    assert_eq!(cluster.running_nodes("web").len(), 1);
}

#[test]
fn clearing_an_error_does_not_delay_registration() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.agent(&node).faults.fails_stop.insert("web".into());
    cluster.agent(&node).lose_journal();
    cluster.set_requested_state("web", RequestedState::Disabled);
    cluster.run_until(10_000, "admitted again", |cluster| {
        cluster.fence(&node).state == FenceState::Open && cluster.fence(&node).epoch == Epoch(2)
    });
    cluster.agent(&node).faults.fails_stop.clear();
    cluster.run_until(10_000, "stopped", |cluster| {
        cluster.is_in_state("web", ServiceState::Disabled) && cluster.running_nodes("web").is_empty()
    });
}

#[test]
fn cleared_error_waits_for_fencing_of_lost_node() {
    let (mut cluster, node) = registered_with_unstopped_service();
    cluster.agent(&node).armed = false;
    cluster.run(3_000);
    cluster.agent(&node).isolated = true;
    cluster.run(1_000);
    clear_error(&mut cluster, "clear");
    cluster.run(40_000);
    assert_eq!(cluster.running_nodes("web"), [node], "{}", cluster.show());
}

#[test]
fn service_on_fencing_node_waits_for_proof() {
    let mut cluster = TestCluster::new(1, &["node1", "node2", "node3"]);
    cluster.agent("node3").faults.ignores_probes = true;
    cluster.wait_until_nodes_online();
    cluster.agent("node1").running.insert("web".into());
    cluster.create_resource("web");
    cluster.run(3_000);
    assert!(cluster.is_in_state("web", ServiceState::Queued), "node3 has not answered");
    cluster.agent("node1").power_off();
    cluster.run_until(10_000, "declared dead", |cluster| cluster.fence("node1").state == FenceState::Fencing);
    cluster.agent("node3").faults.ignores_probes = false;
    cluster.run(1_000);
    assert_eq!(cluster.fence("node1").state, FenceState::Fencing);
    assert!(cluster.assignment("web").is_none(), "{}", cluster.show());
    cluster.run_until(20_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    assert_eq!(cluster.fence("node1").state, FenceState::Fenced);
}

#[test]
fn unguarded_copy_blocks_an_exclusive_start() {
    let mut cluster = TestCluster::new(1, &["node1", "node2"]);
    cluster.wait_until_nodes_online();
    let node = cluster.start_non_exclusive("web");
    cluster.agent(&node).armed = false;
    cluster.run(2_000);
    // The API refuses this edit. After a restore or an upgrade, the spec may still contain it (R6.11).
    cluster.edit::<ResourceSpec>("web", |resource| resource.spec.exclusive = true);
    cluster.run(2_000);
    assert_eq!(cluster.running_nodes("web"), std::slice::from_ref(&node), "the service keeps running");
    cluster.agent(&node).isolated = true;
    cluster.run(60_000);
    // The watchdog was not armed for the service, so (g) closes the node's epoch. This is not proof about services that
    // the node did not guard (R5.24).
    assert_ne!(cluster.fence(&node).state, FenceState::Open, "{}", cluster.show());
    assert_eq!(cluster.running_nodes("web"), std::slice::from_ref(&node), "{}", cluster.show());
    let ready =
        cluster.status("web").conditions.into_iter().find(|condition| condition.kind == "Ready").unwrap();
    assert_eq!(ready.reason, Reason::CopyRemains, "{}", ready.message);
    assert!(ready.message.contains(&format!("--not-on {node}")), "{}", ready.message);
    cluster.agent(&node).isolated = false;
    cluster.agent(&node).power_off();
    cluster.agent(&node).armed = true;
    cluster.agent(&node).boot_again();
    cluster.run_until(60_000, "another boot proves it gone", |cluster| {
        cluster.is_in_state("web", ServiceState::Started)
    });
    assert_eq!(cluster.running_nodes("web").len(), 1);
}

#[test]
fn nonexclusive_service_moves_before_fencing_proof() {
    let mut cluster = TestCluster::new(1, &["node1", "node2"]);
    cluster.wait_until_nodes_online();
    cluster.start("web");
    let node = cluster.status("web").node.unwrap();
    let other = if node == "node1" { "node2" } else { "node1" };
    cluster.edit::<ha_api_types::node::NodeSpec>(other, |node| node.spec.schedulable = Some(false));
    cluster.create_resource("copy");
    cluster.edit::<ResourceSpec>("copy", |resource| resource.spec.exclusive = false);
    cluster.run_until(20_000, "started", |cluster| cluster.is_in_state("copy", ServiceState::Started));
    assert_eq!(cluster.status("copy").node.as_ref(), Some(&node));
    cluster.edit::<ha_api_types::node::NodeSpec>(other, |node| node.spec.schedulable = Some(true));
    cluster.agent(&node).power_off();
    cluster.run_until(10_000, "declared dead", |cluster| cluster.fence(&node).state == FenceState::Fencing);
    cluster.run_until(1_500, "the copy runs elsewhere", |cluster| cluster.running_nodes("copy") == [other]);
    assert_eq!(cluster.fence(&node).state, FenceState::Fencing);
    assert!(cluster.running_nodes("web").is_empty());
}

#[test]
fn same_boot_registration_proves_nothing_about_unmanaged() {
    let mut cluster = TestCluster::new(1, &["node1", "node2"]);
    cluster.wait_until_nodes_online();
    cluster.create_resource("web");
    cluster.set_requested_state("web", RequestedState::Ignored);
    cluster.run(2_000);
    cluster.agent("node1").is_powered_on = false;
    let fence = cluster.fence("node1");
    let key = cluster.keys.fence(&"node1".into());
    let mod_revision = cluster.state.get(&key).entries[0].mod_revision;
    let closed = Fence {
        epoch: fence.epoch + 1,
        state: FenceState::Fenced,
        proof: Some(Proof::Reregistered),
        ..fence
    };
    let value = serde_json::to_vec(&closed).unwrap();
    let closing = Transaction::new().put(key, Guard::Unchanged(mod_revision), value);
    assert!(cluster.state.commit(&closing).applied().is_some());
    cluster.set_requested_state("web", RequestedState::Started);
    cluster.run(5_000);
    assert!(cluster.is_in_state("web", ServiceState::Queued), "{}", cluster.show());
    assert!(cluster.assignment("web").is_none());
}

#[test]
fn unassigned_running_copy_stops_before_any_start() {
    let mut cluster = TestCluster::new(1, &["node1", "node2"]);
    cluster.wait_until_nodes_online();
    cluster.create_resource("web");
    cluster.set_requested_state("web", RequestedState::Stopped);
    cluster.run_until(5_000, "stopped", |cluster| {
        cluster.is_in_state("web", ServiceState::Stopped) && cluster.assignment("web").is_some()
    });
    let assigned_node = cluster.status("web").node.unwrap();
    let other = if assigned_node == "node1" { "node2" } else { "node1" };
    cluster.agent(other).running.insert("web".into());
    cluster.agent(other).probe_again();
    cluster.run(1_000);
    cluster.set_requested_state("web", RequestedState::Started);
    cluster.run_until(10_000, "started", |cluster| cluster.is_in_state("web", ServiceState::Started));
    assert_eq!(cluster.running_nodes("web").len(), 1, "{}", cluster.show());
}

#[test]
fn tombstone_of_moving_resource_names_both_nodes() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    let other = if node == "node1" { "node2" } else { "node1" };
    cluster.agent(&node).faults.ignores_assignments = true;
    let action = OperationAction::Migrate;
    let (resource, target) = (Some("web".to_owned()), Some(other.into()));
    cluster.create_operation(
        "move",
        OperationSpec { action, resource, node: target, ..OperationSpec::default() },
    );
    cluster.run_until(5_000, "moving", |cluster| cluster.is_in_state("web", ServiceState::Migrate));
    cluster.run(500);
    // The target cannot confirm that it no longer manages the service.
    cluster.agent(other).isolated = true;
    cluster.delete("web");
    cluster.run(1_000);
    assert!(cluster.is_in_state("web", ServiceState::Deleting));
    cluster.run(7_000);
    let tombstone: Tombstone = cluster.read(&cluster.keys.tombstone(&"web".into())).expect("a tombstone");
    assert_eq!(tombstone.nodes.len(), 2, "{tombstone:?}");
}

#[test]
fn tombstone_of_unconfirmed_error_names_its_node() {
    let (mut cluster, node) = registered_with_unstopped_service();
    cluster.delete("web");
    cluster.run(1_000);
    let tombstone: Tombstone = cluster.read(&cluster.keys.tombstone(&"web".into())).expect("a tombstone");
    assert!(tombstone.nodes.contains(&node), "{tombstone:?}");
}

#[test]
fn a_second_process_of_same_boot_proves_nothing() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    let key = cluster.keys.node_report(&node);
    let entry = cluster.state.get(&key).entries[0].clone();
    let report: NodeReport = serde_json::from_slice(&entry.value).unwrap();
    let other =
        NodeReport { instance: "another process".into(), mode: Mode::Registering, armed: false, ..report };
    let value = serde_json::to_vec(&other).unwrap();
    let request = Transaction::new().put(key, Guard::Unchanged(entry.mod_revision), value);
    assert!(cluster.state.commit(&request).applied().is_some());
    cluster.run(5_000);
    assert_eq!(
        (cluster.fence(&node).epoch, cluster.fence(&node).state),
        (Epoch(1), FenceState::Open),
        "{}",
        cluster.show()
    );
    assert_eq!(cluster.running_nodes("web"), [node]);
}
