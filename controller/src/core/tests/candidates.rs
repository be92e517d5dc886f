//! Tests of candidates (FENCING, section 9, from R9.10 on).

use super::fencing::{TH, cluster_with_running_service};
use super::hold;
use super::test_cluster::TestCluster;
use crate::core::Input;
use ha_api_types::cluster::ClusterSpec;
use ha_api_types::id::Revision;
use ha_api_types::reason::Reason;
use ha_api_types::record::FenceState;
use ha_store::{Guard, Transaction};

fn create_revision(cluster: &TestCluster, id: &str) -> Option<Revision> {
    cluster.state.get(&cluster.keys.candidate(&id.into())).entries.first().map(|entry| entry.create_revision)
}

/// Overwrites or deletes a candidate key.
fn overwrite_or_delete(cluster: &mut TestCluster, id: &str, value: Option<&str>) {
    let key = cluster.keys.candidate(&id.into());
    let guard = Guard::Unchanged(cluster.state.get(&key).entries[0].mod_revision);
    let transaction = Transaction::new();
    let transaction = match value {
        Some(value) => transaction.put(key, guard, value.as_bytes().to_vec()),
        None => transaction.delete(key, guard),
    };
    assert!(cluster.state.commit(&transaction).applied().is_some());
}

/// Shuts down a controller cleanly and starts the next process of its id.
fn restart(cluster: &mut TestCluster, controller: usize, id: &str, instance: &str) {
    let now = cluster.now.clone();
    cluster.controllers[controller].core.handle(&now, Input::Shutdown);
    cluster.run_until(1_000, "the controller ends", |cluster| !cluster.controllers[controller].is_running);
    cluster.add_controller(id, instance);
}

fn ready_condition(cluster: &TestCluster, node: &str) -> (Reason, String) {
    let status = cluster.node(node);
    let ready =
        status.conditions.iter().find(|condition| condition.kind == "Ready").expect("the condition exists");
    (ready.reason, ready.message.clone())
}

#[test]
fn restarted_controller_fences_nodes_known_to_predecessor() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.agent(&node).hold = create_revision(&cluster, "c0");
    cluster.run(2_000);
    cluster.agent(&node).power_off();
    let before = create_revision(&cluster, "c0");
    restart(&mut cluster, 0, "c0", "2");
    cluster.run(2_000);
    restart(&mut cluster, 1, "c0", "3");
    assert_eq!(create_revision(&cluster, "c0"), before, "the key stays");
    let fencing_delay_ms = cluster.agent(&node).fencing_delay_ms();
    cluster.run_until(fencing_delay_ms + 3_000, "fenced", |cluster| {
        cluster.fence(&node).state == FenceState::Fenced
    });
}

#[test]
fn leader_rewrites_its_deleted_candidate_key() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    let before = create_revision(&cluster, "c0");
    overwrite_or_delete(&mut cluster, "c0", None);
    cluster.run(1_000);
    assert!(create_revision(&cluster, "c0") > before, "another candidate");
    cluster.agent(&node).power_off();
    cluster.run_until(40_000, "fenced", |cluster| cluster.fence(&node).state == FenceState::Fenced);
}

#[test]
fn a_declaration_conflicts_if_another_process_wrote_the_key() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.agent(&node).power_off();
    cluster.run(TH - 1_000);
    // The view of the leader lags, so the plan does not contain the change.
    let view_revision = cluster.controllers[0].core.cluster_view().revision;
    overwrite_or_delete(&mut cluster, "c0", Some(r#"{"id":"c0","instance":"other"}"#));
    assert!(cluster.controllers[0].core.cluster_view().revision == view_revision);
    cluster.run(TH);
    assert_eq!(cluster.fence(&node).state, FenceState::Open, "{}", cluster.show());
    assert_eq!(cluster.controllers[0].core.term(), None, "the leader key was given up");
}

#[test]
fn controller_without_candidate_key_grants_no_hold() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    let hold_request = hold::request(&cluster, &node);
    overwrite_or_delete(&mut cluster, "c0", Some(r#"{"id":"c0","instance":"other"}"#));
    cluster.run(200);
    cluster.store_unreachable = true;
    cluster.run(3_000);
    hold::check_refusal(&mut cluster, &node, &hold_request, "belongs to another process");
}

#[test]
fn controller_on_another_machine_is_another_candidate() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    let before = create_revision(&cluster, "c0");
    cluster.agent(&node).hold = before;
    cluster.run(2_000);
    // The old process may still be alive, isolated together with the node, and grant hold.
    cluster.controllers[0].is_running = false;
    cluster.agent(&node).power_off();
    cluster.add_controller("c0", "2");
    let mut moved = cluster.controllers[1].core.config().clone();
    moved.machine = "another machine".into();
    cluster.controllers[1].core = crate::core::combined_controller::CombinedController::new(moved);
    cluster.run(TH - 1_000);
    assert_eq!(create_revision(&cluster, "c0"), before, "the old process may refresh the key");
    cluster.run(60_000);
    assert!(create_revision(&cluster, "c0") > before);
    assert_eq!(cluster.fence(&node).state, FenceState::Open);
    let (reason, message) = ready_condition(&cluster, &node);
    assert_eq!(reason, Reason::JoinedLater);
    assert!(
        message.contains("No controller that can end") && message.contains("confirm-fenced"),
        "{message}"
    );
}

#[test]
fn a_second_process_of_one_id_is_reported_and_does_not_lead() {
    let mut cluster = TestCluster::new(1, &["node1"]);
    cluster.wait_until_nodes_online();
    cluster.add_controller("c0", "2");
    let mut other = cluster.controllers[1].core.config().clone();
    "https://elsewhere:7443".clone_into(&mut other.url);
    cluster.controllers[1].core = crate::core::combined_controller::CombinedController::new(other);
    cluster.run(30_000);
    assert!(cluster.controllers[0].core.term().is_some());
    assert!(cluster.controllers[1].core.term().is_none());
    let duplicate_event_count =
        cluster.events.iter().filter(|event| event.reason == Reason::DuplicateController).count();
    assert_eq!(duplicate_event_count, 1);
}

#[test]
fn later_leader_suggests_actions_while_node_fencing() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.agent(&node).hold = create_revision(&cluster, "c0");
    cluster.run(2_000);
    cluster.agent(&node).power_off();
    cluster
        .run_until(TH + 2_000, "declared dead", |cluster| cluster.fence(&node).state == FenceState::Fencing);
    cluster.controllers[0].is_running = false;
    cluster.add_controller("c1", "1");
    cluster.run_until(10_000, "the second controller is leader", |cluster| {
        cluster.controllers[1].core.term().is_some()
    });
    cluster.run(40_000);
    assert_eq!(cluster.fence(&node).state, FenceState::Fencing);
    let (reason, message) = ready_condition(&cluster, &node);
    assert_eq!(reason, Reason::JoinedLater);
    assert!(message.starts_with("Start controller c0 again"), "{message}");
    // The remedy works: the older controller returns, and the younger one resigns.
    cluster.add_controller("c0", "2");
    cluster.run_until(60_000, "fenced", |cluster| cluster.fence(&node).state == FenceState::Fenced);
    assert!(cluster.events.iter().any(|event| event.reason == Reason::YieldedLeadership));
}

#[test]
fn retention_counts_from_the_end_of_a_gap_of_own_commits() {
    let mut cluster = TestCluster::new(2, &["node1"]);
    cluster.wait_until_nodes_online();
    cluster.edit::<ClusterSpec>("default", |settings| {
        settings.spec.timing.candidate_retention_seconds = Some(60.0);
    });
    let removed = cluster
        .controllers
        .iter()
        .position(|controller| controller.core.term().is_none())
        .expect("one controller is not leader");
    let id = cluster.controllers[removed].core.config().id.clone();
    cluster.controllers[removed].is_running = false;
    cluster.run(40_000);
    cluster.store_unreachable = true;
    cluster.run(30_000);
    cluster.store_unreachable = false;
    cluster.run(55_000);
    assert!(create_revision(&cluster, &id).is_some(), "the outage does not count");
    cluster.run_until(60_000, "deleted", |cluster| create_revision(cluster, &id).is_none());
    assert!(cluster.state.get(&cluster.keys.refresh(&id)).entries.is_empty());
    assert!(cluster.events.iter().any(|event| event.reason == Reason::ControllerDeleted));
}

#[test]
fn a_controller_that_refreshes_is_not_deleted() {
    let mut cluster = TestCluster::new(2, &["node1"]);
    cluster.wait_until_nodes_online();
    cluster.edit::<ClusterSpec>("default", |settings| {
        settings.spec.timing.candidate_retention_seconds = Some(30.0);
    });
    let joined = [create_revision(&cluster, "c0"), create_revision(&cluster, "c1")];
    cluster.run(120_000);
    assert_eq!([create_revision(&cluster, "c0"), create_revision(&cluster, "c1")], joined);
}
