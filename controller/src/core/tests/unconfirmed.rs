//! Tests that a service which may still run on a node is never started elsewhere (FENCING, sections 3, 5, 7 and 10).

use super::lab::Lab;
use ha_api_types::id::{Epoch, NodeName};
use ha_api_types::operation::{OperationAction, OperationSpec};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Fence, FenceState, Mode, NodeReport, Proof, Tombstone};
use ha_api_types::resource::{RequestedState, ResourceSpec, ServiceState};
use ha_store::{Guard, Transaction};

fn running_on(nodes: &[&str]) -> (Lab, NodeName) {
    let mut lab = Lab::new(1, nodes);
    lab.wait_until_nodes_online();
    lab.start("web");
    let node = lab.status("web").node.unwrap();
    (lab, node)
}

fn clear_error(lab: &mut Lab, name: &str) {
    let action = OperationAction::ClearError;
    let resource = Some("web".to_owned());
    lab.create_operation(name, OperationSpec { action, resource, ..OperationSpec::default() });
}

/// Returns a node that registers again in the same boot, while its epoch is open, and names a service that it could
/// not stop.
fn registered_with_unstopped_service() -> (Lab, NodeName) {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.agent(&node).faults.fails_stop.insert("web".into());
    lab.agent(&node).lose_journal();
    lab.run_until(10_000, "admitted again", |lab| {
        lab.fence(&node).state == FenceState::Open && lab.fence(&node).epoch == Epoch(2)
    });
    (lab, node)
}

#[test]
fn unstopped_service_of_same_boot_is_error() {
    let (mut lab, node) = registered_with_unstopped_service();
    let status = lab.status("web");
    assert_eq!((status.state, status.stop_confirmed), (ServiceState::Error, Some(false)), "{}", lab.show());
    lab.run(5_000);
    assert_eq!(lab.running_nodes("web"), [node]);
}

#[test]
fn clearing_an_error_stops_possible_copies() {
    let (mut lab, node) = registered_with_unstopped_service();
    clear_error(&mut lab, "first");
    lab.run(5_000);
    assert_eq!(lab.running_nodes("web"), [node.as_str()], "{}", lab.show());
    assert!(lab.is_in_state("web", ServiceState::Error), "the stop failed again: {}", lab.show());
    lab.agent(&node).faults.fails_stop.clear();
    clear_error(&mut lab, "second");
    lab.run_until(10_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
    assert_eq!(lab.running_nodes("web").len(), 1);
}

#[test]
fn clearing_an_error_does_not_delay_registration() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.agent(&node).faults.fails_stop.insert("web".into());
    lab.agent(&node).lose_journal();
    lab.set_requested_state("web", RequestedState::Disabled);
    lab.run_until(10_000, "admitted again", |lab| {
        lab.fence(&node).state == FenceState::Open && lab.fence(&node).epoch == Epoch(2)
    });
    lab.agent(&node).faults.fails_stop.clear();
    lab.run_until(10_000, "stopped", |lab| {
        lab.is_in_state("web", ServiceState::Disabled) && lab.running_nodes("web").is_empty()
    });
}

#[test]
fn cleared_error_waits_for_fencing_of_lost_node() {
    let (mut lab, node) = registered_with_unstopped_service();
    lab.agent(&node).armed = false;
    lab.run(3_000);
    lab.agent(&node).isolated = true;
    lab.run(1_000);
    clear_error(&mut lab, "clear");
    lab.run(40_000);
    assert_eq!(lab.running_nodes("web"), [node], "{}", lab.show());
}

#[test]
fn service_on_fencing_node_waits_for_proof() {
    let mut lab = Lab::new(1, &["node1", "node2", "node3"]);
    lab.agent("node3").faults.ignores_probes = true;
    lab.wait_until_nodes_online();
    lab.agent("node1").running.insert("web".into());
    lab.create_resource("web");
    lab.run(3_000);
    assert!(lab.is_in_state("web", ServiceState::Queued), "node3 has not answered");
    lab.agent("node1").power_off();
    lab.run_until(10_000, "declared dead", |lab| lab.fence("node1").state == FenceState::Fencing);
    lab.agent("node3").faults.ignores_probes = false;
    lab.run(1_000);
    assert_eq!(lab.fence("node1").state, FenceState::Fencing);
    assert!(lab.assignment("web").is_none(), "{}", lab.show());
    lab.run_until(20_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
    assert_eq!(lab.fence("node1").state, FenceState::Fenced);
}

#[test]
fn unguarded_copy_blocks_an_exclusive_start() {
    let mut lab = Lab::new(1, &["node1", "node2"]);
    lab.wait_until_nodes_online();
    let node = lab.start_non_exclusive("web");
    lab.agent(&node).armed = false;
    lab.run(2_000);
    // The API refuses this edit. After a restore or an upgrade, the spec may still contain it (R6.11).
    lab.edit::<ResourceSpec>("web", |resource| resource.spec.exclusive = true);
    lab.run(2_000);
    assert_eq!(lab.running_nodes("web"), std::slice::from_ref(&node), "the service keeps running");
    lab.agent(&node).isolated = true;
    lab.run(60_000);
    // The watchdog was not armed for the service, so (g) closes the node's epoch. This is not proof about services that
    // the node did not guard (R5.24).
    assert_ne!(lab.fence(&node).state, FenceState::Open, "{}", lab.show());
    assert_eq!(lab.running_nodes("web"), std::slice::from_ref(&node), "{}", lab.show());
    let ready = lab.status("web").conditions.into_iter().find(|condition| condition.kind == "Ready").unwrap();
    assert_eq!(ready.reason, Reason::CopyRemains, "{}", ready.message);
    assert!(ready.message.contains(&format!("--not-on {node}")), "{}", ready.message);
    lab.agent(&node).isolated = false;
    lab.agent(&node).power_off();
    lab.agent(&node).armed = true;
    lab.agent(&node).boot_again();
    lab.run_until(60_000, "another boot proves it gone", |lab| lab.is_in_state("web", ServiceState::Started));
    assert_eq!(lab.running_nodes("web").len(), 1);
}

#[test]
fn nonexclusive_service_moves_before_fencing_proof() {
    let mut lab = Lab::new(1, &["node1", "node2"]);
    lab.wait_until_nodes_online();
    lab.start("web");
    let node = lab.status("web").node.unwrap();
    let other = if node == "node1" { "node2" } else { "node1" };
    lab.edit::<ha_api_types::node::NodeSpec>(other, |node| node.spec.schedulable = false);
    lab.create_resource("copy");
    lab.edit::<ResourceSpec>("copy", |resource| resource.spec.exclusive = false);
    lab.run_until(20_000, "started", |lab| lab.is_in_state("copy", ServiceState::Started));
    assert_eq!(lab.status("copy").node.as_ref(), Some(&node));
    lab.edit::<ha_api_types::node::NodeSpec>(other, |node| node.spec.schedulable = true);
    lab.agent(&node).power_off();
    lab.run_until(10_000, "declared dead", |lab| lab.fence(&node).state == FenceState::Fencing);
    lab.run_until(1_500, "the copy runs elsewhere", |lab| lab.running_nodes("copy") == [other]);
    assert_eq!(lab.fence(&node).state, FenceState::Fencing);
    assert!(lab.running_nodes("web").is_empty());
}

#[test]
fn same_boot_registration_proves_nothing_about_unmanaged() {
    let mut lab = Lab::new(1, &["node1", "node2"]);
    lab.wait_until_nodes_online();
    lab.create_resource("web");
    lab.set_requested_state("web", RequestedState::Ignored);
    lab.run(2_000);
    lab.agent("node1").is_powered_on = false;
    let fence = lab.fence("node1");
    let key = lab.keys.fence(&"node1".into());
    let modified = lab.state.get(&key).entries[0].mod_revision;
    let closed = Fence {
        epoch: fence.epoch + 1,
        state: FenceState::Fenced,
        proof: Some(Proof::Reregistered),
        ..fence
    };
    let value = serde_json::to_vec(&closed).unwrap();
    let closing = Transaction::new().put(key, Guard::Unchanged(modified), value);
    assert!(lab.state.commit(&closing).applied().is_some());
    lab.set_requested_state("web", RequestedState::Started);
    lab.run(5_000);
    assert!(lab.is_in_state("web", ServiceState::Queued), "{}", lab.show());
    assert!(lab.assignment("web").is_none());
}

#[test]
fn unassigned_running_copy_stops_before_any_start() {
    let mut lab = Lab::new(1, &["node1", "node2"]);
    lab.wait_until_nodes_online();
    lab.create_resource("web");
    lab.set_requested_state("web", RequestedState::Stopped);
    lab.run_until(5_000, "stopped", |lab| {
        lab.is_in_state("web", ServiceState::Stopped) && lab.assignment("web").is_some()
    });
    let assigned_node = lab.status("web").node.unwrap();
    let other = if assigned_node == "node1" { "node2" } else { "node1" };
    lab.agent(other).running.insert("web".into());
    lab.agent(other).probe_again();
    lab.run(1_000);
    lab.set_requested_state("web", RequestedState::Started);
    lab.run_until(10_000, "started", |lab| lab.is_in_state("web", ServiceState::Started));
    assert_eq!(lab.running_nodes("web").len(), 1, "{}", lab.show());
}

#[test]
fn tombstone_of_moving_resource_names_both_nodes() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    let other = if node == "node1" { "node2" } else { "node1" };
    lab.agent(&node).faults.ignores_assignments = true;
    let action = OperationAction::Migrate;
    let (resource, target) = (Some("web".to_owned()), Some(other.into()));
    lab.create_operation(
        "move",
        OperationSpec { action, resource, node: target, ..OperationSpec::default() },
    );
    lab.run_until(5_000, "moving", |lab| lab.is_in_state("web", ServiceState::Migrate));
    lab.run(500);
    // The target cannot confirm that it no longer manages the service.
    lab.agent(other).isolated = true;
    lab.delete("web");
    lab.run(1_000);
    assert!(lab.is_in_state("web", ServiceState::Deleting));
    lab.run(7_000);
    let tombstone: Tombstone = lab.read(&lab.keys.tombstone(&"web".into())).expect("a tombstone");
    assert_eq!(tombstone.nodes.len(), 2, "{tombstone:?}");
}

#[test]
fn tombstone_of_unconfirmed_error_names_its_node() {
    let (mut lab, node) = registered_with_unstopped_service();
    lab.delete("web");
    lab.run(1_000);
    let tombstone: Tombstone = lab.read(&lab.keys.tombstone(&"web".into())).expect("a tombstone");
    assert!(tombstone.nodes.contains(&node), "{tombstone:?}");
}

#[test]
fn a_second_process_of_same_boot_proves_nothing() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    let key = lab.keys.node_report(&node);
    let entry = lab.state.get(&key).entries[0].clone();
    let report: NodeReport = serde_json::from_slice(&entry.value).unwrap();
    let other =
        NodeReport { instance: "another process".into(), mode: Mode::Registering, armed: false, ..report };
    let value = serde_json::to_vec(&other).unwrap();
    let request = Transaction::new().put(key, Guard::Unchanged(entry.mod_revision), value);
    assert!(lab.state.commit(&request).applied().is_some());
    lab.run(5_000);
    assert_eq!(
        (lab.fence(&node).epoch, lab.fence(&node).state),
        (Epoch(1), FenceState::Open),
        "{}",
        lab.show()
    );
    assert_eq!(lab.running_nodes("web"), [node]);
}
