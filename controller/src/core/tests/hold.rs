//! Tests of hold (FENCING, section 9) on the side of the controllers.

use super::fencing::{TH, running_on};
use super::lab::Lab;
use crate::core::{HoldId, Input};
use ha_api_types::id::{Epoch, NodeName};
use ha_api_types::node::NodeState;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FenceState, HoldAnswer, HoldRequest, Proof};
use ha_store::Guard;

/// More than two heartbeat intervals (Ki) of the default profile, in milliseconds. After that time, a controller
/// reports that it cannot reach the store.
const UNREACHABLE_DETECTED_MS: u64 = 2_100;

pub(super) fn request(lab: &Lab, node: &str) -> HoldRequest {
    let fence = lab.fence(node);
    HoldRequest { candidate: "c0".into(), sent_sequence: 7, boot_id: fence.boot_id, epoch: fence.epoch }
}

fn request_hold(lab: &mut Lab, at: usize, node: &str, request: &HoldRequest) -> HoldAnswer {
    let input = Input::HoldRequested { id: HoldId(1), node: node.into(), request: request.clone() };
    let now = lab.now.clone();
    lab.members[at].core.handle(&now, input);
    lab.step();
    lab.members[at].hold_answers.pop().expect("the request is answered immediately")
}

pub(super) fn check_refusal(lab: &mut Lab, node: &str, request: &HoldRequest, expected_reason: &str) {
    let answer = request_hold(lab, 0, node, request);
    assert!(!answer.granted && answer.reason.contains(expected_reason), "{answer:?}");
}

#[test]
fn a_controller_grants_only_the_open_epoch() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    let hold_request = request(&lab, &node);
    check_refusal(&mut lab, &node, &hold_request, "can reach etcd");
    lab.store_unreachable = true;
    lab.run(UNREACHABLE_DETECTED_MS);
    let answer = request_hold(&mut lab, 0, &node, &hold_request);
    assert_eq!(answer, HoldAnswer { granted: true, reason: String::new() });
    check_refusal(
        &mut lab,
        &node,
        &HoldRequest { epoch: Epoch(2), ..hold_request.clone() },
        "registration 1 is Open",
    );
    check_refusal(
        &mut lab,
        &node,
        &HoldRequest { boot_id: "another".into(), ..hold_request.clone() },
        "registration 1",
    );
    check_refusal(&mut lab, "node9", &hold_request, "no registration");
    let meant = HoldRequest { candidate: "c1".into(), ..hold_request.clone() };
    check_refusal(&mut lab, &node, &meant, "each controller needs its own URL");
    lab.store_unreachable = false;
    lab.run(3_000);
    check_refusal(&mut lab, &node, &hold_request, "can reach etcd");
}

#[test]
fn a_controller_that_has_not_read_etcd_refuses() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    let hold_request = request(&lab, &node);
    lab.store_unreachable = true;
    lab.run(UNREACHABLE_DETECTED_MS);
    lab.members[0].running = false;
    lab.add_controller("c0", "2");
    lab.run(UNREACHABLE_DETECTED_MS);
    let answer = request_hold(&mut lab, 1, &node, &hold_request);
    assert!(!answer.granted && answer.reason.contains("has not read"), "{answer:?}");
}

#[test]
fn a_controller_does_not_grant_while_declaring() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    let hold_request = request(&lab, &node);
    lab.agent(&node).power_off();
    // The declaration is lost before it reaches the store, and then the store becomes unreachable.
    lab.run(TH - 1_500);
    lab.lost_commits = vec![false; 20];
    lab.run_until(TH, "declared dead, with an outcome that is unknown", |lab| lab.lost_commits.len() < 20);
    lab.store_unreachable = true;
    lab.run(UNREACHABLE_DETECTED_MS);
    check_refusal(&mut lab, &node, &hold_request, "was sent and may be applied");
}

#[test]
fn a_grant_is_an_observation() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    let fencing_delay_ms = lab.agent(&node).fencing_delay_ms();
    let hold_request = request(&lab, &node);
    lab.agent(&node).power_off();
    lab.store_unreachable = true;
    lab.run(8_000);
    assert!(request_hold(&mut lab, 0, &node, &hold_request).granted);
    let granted = lab.now.monotonic_raw;
    lab.store_unreachable = false;
    lab.run_until(3 * fencing_delay_ms, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
    assert!(matches!(lab.fence(&node).proof, Some(Proof::Silence { .. })));
    assert!(lab.now.monotonic_raw.since(granted) + 200 >= fencing_delay_ms, "W counts from the grant");
}

/// Returns a node with Hold that has read one candidate key, after another controller has joined and become leader.
fn led_by_newer_controller(declared_before: bool) -> (Lab, NodeName) {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    let generation = lab.state.get(&lab.keys.candidate(&"c0".into())).entries[0].create_revision;
    lab.agent(&node).hold = Some(generation);
    lab.run(2_000);
    lab.add_controller("c1", "1");
    lab.run(2_000);
    lab.agent(&node).power_off();
    if declared_before {
        lab.run_until(TH + 2_000, "declared dead", |lab| lab.fence(&node).state == FenceState::Fencing);
    }
    // The controller loses power, and its candidate key stays.
    lab.members[0].running = false;
    lab.run_until(10_000, "the newer one leads", |lab| lab.members[1].core.term().is_some());
    (lab, node)
}

#[test]
fn a_newer_controller_fences_no_held_node() {
    let (mut lab, node) = led_by_newer_controller(false);
    lab.run(60_000);
    assert_eq!(lab.fence(&node).state, FenceState::Open);
    let status = lab.node(&node);
    assert_eq!(status.state, NodeState::Unknown);
    assert_eq!(status.conditions.iter().find(|c| c.kind == "Ready").unwrap().reason, Reason::JoinedLater);
    // Another boot is still a proof.
    lab.agent(&node).boot_again();
    lab.run_until(10_000, "admitted", |lab| {
        lab.fence(&node).state == FenceState::Open && lab.fence(&node).epoch == Epoch(2)
    });
}

#[test]
fn a_newer_controller_completes_no_foreign_declaration() {
    let (mut lab, node) = led_by_newer_controller(true);
    lab.run(60_000);
    assert_eq!(lab.fence(&node).state, FenceState::Fencing, "{}", lab.show());
    lab.agent(&node).boot_again();
    lab.run_until(10_000, "admitted", |lab| {
        lab.fence(&node).state == FenceState::Open && lab.fence(&node).epoch == Epoch(2)
    });
}

#[test]
fn a_declaration_rests_on_the_candidate_key() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.agent(&node).power_off();
    lab.run_until(40_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
    let candidate = lab.keys.candidate(&"c0".into());
    let fence = lab.keys.fence(&node);
    let writes = lab.members[0]
        .commits
        .iter()
        .filter(|(_, transaction, outcome)| transaction.writes_key(&fence) && outcome.applied().is_some());
    let guards: Vec<Option<Guard>> =
        writes.map(|(_, transaction, _)| transaction.guards().get(&candidate).copied()).collect();
    // The fence is opened, then closed and released on silence, guarded by the revision of this process's own put
    // (R9.18).
    let put = lab.members[0].commits.iter().find_map(|(_, transaction, outcome)| {
        transaction.writes_key(&candidate).then(|| outcome.applied()).flatten()
    });
    let own = Some(Guard::Unchanged(put.expect("the candidate key was put")));
    assert_eq!(guards, [None, own, own]);
}
