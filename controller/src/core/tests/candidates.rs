//! Tests of candidates (FENCING, section 9, from R9.10 on).

use super::fencing::{TH, running_on};
use super::hold;
use super::lab::Lab;
use crate::core::Input;
use ha_api_types::cluster::ClusterSpec;
use ha_api_types::id::Revision;
use ha_api_types::reason::Reason;
use ha_api_types::record::FenceState;
use ha_store::{Guard, Transaction};

fn created(lab: &Lab, id: &str) -> Option<Revision> {
    lab.state.get(&lab.keys.candidate(&id.into())).entries.first().map(|entry| entry.create_revision)
}

/// Overwrites or deletes a candidate key.
fn overwrite(lab: &mut Lab, id: &str, value: Option<&str>) {
    let key = lab.keys.candidate(&id.into());
    let known = Guard::Unchanged(lab.state.get(&key).entries[0].mod_revision);
    let transaction = Transaction::new();
    let transaction = match value {
        Some(value) => transaction.put(key, known, value.as_bytes().to_vec()),
        None => transaction.delete(key, known),
    };
    assert!(lab.state.commit(&transaction).applied().is_some());
}

/// Shuts down a member cleanly and starts the next process of its id.
fn restart(lab: &mut Lab, at: usize, id: &str, instance: &str) {
    let now = lab.now.clone();
    lab.members[at].core.handle(&now, Input::Shutdown);
    lab.run_until(1_000, "the member ends", |lab| !lab.members[at].running);
    lab.add_controller(id, instance);
}

fn ready_condition(lab: &Lab, node: &str) -> (Reason, String) {
    let status = lab.node(node);
    let ready =
        status.conditions.iter().find(|condition| condition.kind == "Ready").expect("the condition exists");
    (ready.reason, ready.message.clone())
}

#[test]
fn restarted_controller_fences_nodes_known_to_predecessor() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.agent(&node).hold = created(&lab, "c0");
    lab.run(2_000);
    lab.agent(&node).power_off();
    let before = created(&lab, "c0");
    restart(&mut lab, 0, "c0", "2");
    lab.run(2_000);
    restart(&mut lab, 1, "c0", "3");
    assert_eq!(created(&lab, "c0"), before, "the key stays");
    let fencing_delay_ms = lab.agent(&node).fencing_delay_ms();
    lab.run_until(fencing_delay_ms + 3_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
}

#[test]
fn leader_rewrites_its_deleted_candidate_key() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    let before = created(&lab, "c0");
    overwrite(&mut lab, "c0", None);
    lab.run(1_000);
    assert!(created(&lab, "c0") > before, "another candidate");
    lab.agent(&node).power_off();
    lab.run_until(40_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
}

#[test]
fn a_declaration_conflicts_if_another_process_wrote_the_key() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.agent(&node).power_off();
    lab.run(TH - 1_000);
    // The view of the leader lags, so the plan does not contain the change.
    let seen = lab.members[0].core.cluster_view().revision;
    overwrite(&mut lab, "c0", Some(r#"{"id":"c0","instance":"other"}"#));
    assert!(lab.members[0].core.cluster_view().revision == seen);
    lab.run(TH);
    assert_eq!(lab.fence(&node).state, FenceState::Open, "{}", lab.show());
    assert_eq!(lab.members[0].core.term(), None, "the leader key was given up");
}

#[test]
fn controller_without_candidate_key_grants_no_hold() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    let hold_request = hold::request(&lab, &node);
    overwrite(&mut lab, "c0", Some(r#"{"id":"c0","instance":"other"}"#));
    lab.run(200);
    lab.store_unreachable = true;
    lab.run(3_000);
    hold::check_refusal(&mut lab, &node, &hold_request, "belongs to another process");
}

#[test]
fn controller_on_another_machine_is_another_candidate() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    let before = created(&lab, "c0");
    lab.agent(&node).hold = before;
    lab.run(2_000);
    // The old process may still be alive, isolated together with the node, and grant hold.
    lab.members[0].running = false;
    lab.agent(&node).power_off();
    lab.add_controller("c0", "2");
    let mut moved = lab.members[1].core.config().clone();
    moved.machine = "another machine".into();
    lab.members[1].core = crate::core::combined_controller::CombinedController::new(moved);
    lab.run(TH - 1_000);
    assert_eq!(created(&lab, "c0"), before, "the old process may refresh the key");
    lab.run(60_000);
    assert!(created(&lab, "c0") > before);
    assert_eq!(lab.fence(&node).state, FenceState::Open);
    let (reason, message) = ready_condition(&lab, &node);
    assert_eq!(reason, Reason::JoinedLater);
    assert!(
        message.contains("No controller that can end") && message.contains("confirm-fenced"),
        "{message}"
    );
}

#[test]
fn a_second_process_of_one_id_is_reported_and_does_not_lead() {
    let mut lab = Lab::new(1, &["node1"]);
    lab.wait_until_nodes_online();
    lab.add_controller("c0", "2");
    let mut other = lab.members[1].core.config().clone();
    "https://elsewhere:7443".clone_into(&mut other.url);
    lab.members[1].core = crate::core::combined_controller::CombinedController::new(other);
    lab.run(30_000);
    assert!(lab.members[0].core.term().is_some());
    assert!(lab.members[1].core.term().is_none());
    let duplicate_event_count =
        lab.events.iter().filter(|event| event.reason == Reason::DuplicateController).count();
    assert_eq!(duplicate_event_count, 1);
}

#[test]
fn later_leader_suggests_actions_while_node_fencing() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.agent(&node).hold = created(&lab, "c0");
    lab.run(2_000);
    lab.agent(&node).power_off();
    lab.run_until(TH + 2_000, "declared dead", |lab| lab.fence(&node).state == FenceState::Fencing);
    lab.members[0].running = false;
    lab.add_controller("c1", "1");
    lab.run_until(10_000, "the second member is leader", |lab| lab.members[1].core.term().is_some());
    lab.run(40_000);
    assert_eq!(lab.fence(&node).state, FenceState::Fencing);
    let (reason, message) = ready_condition(&lab, &node);
    assert_eq!(reason, Reason::JoinedLater);
    assert!(message.starts_with("Start controller c0 again"), "{message}");
    // The remedy works: the older controller returns, and the younger one resigns.
    lab.add_controller("c0", "2");
    lab.run_until(60_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
    assert!(lab.events.iter().any(|event| event.reason == Reason::YieldedLeadership));
}

#[test]
fn retention_counts_from_the_end_of_a_gap_of_own_commits() {
    let mut lab = Lab::new(2, &["node1"]);
    lab.wait_until_nodes_online();
    lab.edit::<ClusterSpec>("default", |cluster| {
        cluster.spec.timing.candidate_retention_seconds = Some(60.0);
    });
    let gone =
        lab.members.iter().position(|member| member.core.term().is_none()).expect("one member is not leader");
    let id = lab.members[gone].core.config().id.clone();
    lab.members[gone].running = false;
    lab.run(40_000);
    lab.store_unreachable = true;
    lab.run(30_000);
    lab.store_unreachable = false;
    lab.run(55_000);
    assert!(created(&lab, &id).is_some(), "the outage does not count");
    lab.run_until(60_000, "deleted", |lab| created(lab, &id).is_none());
    assert!(lab.state.get(&lab.keys.refresh(&id)).entries.is_empty());
    assert!(lab.events.iter().any(|event| event.reason == Reason::ControllerDeleted));
}

#[test]
fn a_controller_that_refreshes_is_not_deleted() {
    let mut lab = Lab::new(2, &["node1"]);
    lab.wait_until_nodes_online();
    lab.edit::<ClusterSpec>("default", |cluster| {
        cluster.spec.timing.candidate_retention_seconds = Some(30.0);
    });
    let joined = [created(&lab, "c0"), created(&lab, "c1")];
    lab.run(120_000);
    assert_eq!([created(&lab, "c0"), created(&lab, "c1")], joined);
}
