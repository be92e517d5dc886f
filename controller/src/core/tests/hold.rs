//! Tests of hold (FENCING, section 9) on the side of the controllers.

use super::fencing::{TH, cluster_with_running_service};
use super::test_cluster::TestCluster;
use crate::core::{HoldId, Input};
use ha_api_types::id::{Epoch, NodeName};
use ha_api_types::node::NodeState;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FenceState, HoldAnswer, HoldRequest, Proof};
use ha_store::Guard;

/// More than two heartbeat intervals (Ki) of the default profile, in milliseconds. After that time, a controller
/// reports that it cannot reach the store.
const UNREACHABLE_DETECTED_MS: u64 = 2_100;

pub(super) fn request(cluster: &TestCluster, node: &str) -> HoldRequest {
    let fence = cluster.fence(node);
    HoldRequest { candidate: "c0".into(), sent_sequence: 7, boot_id: fence.boot_id, epoch: fence.epoch }
}

fn request_hold(
    cluster: &mut TestCluster,
    controller: usize,
    node: &str,
    request: &HoldRequest,
) -> HoldAnswer {
    let input = Input::HoldRequested { id: HoldId(1), node: node.into(), request: request.clone() };
    let now = cluster.now.clone();
    cluster.controllers[controller].core.handle(&now, input);
    cluster.step();
    cluster.controllers[controller].hold_answers.pop().expect("the request is answered immediately")
}

pub(super) fn check_refusal(
    cluster: &mut TestCluster,
    node: &str,
    request: &HoldRequest,
    expected_reason: &str,
) {
    let answer = request_hold(cluster, 0, node, request);
    assert!(!answer.granted && answer.reason.contains(expected_reason), "{answer:?}");
}

#[test]
fn a_controller_grants_only_the_open_epoch() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    let hold_request = request(&cluster, &node);
    check_refusal(&mut cluster, &node, &hold_request, "can reach etcd");
    cluster.store_unreachable = true;
    cluster.run(UNREACHABLE_DETECTED_MS);
    let answer = request_hold(&mut cluster, 0, &node, &hold_request);
    assert_eq!(answer, HoldAnswer { granted: true, reason: String::new() });
    check_refusal(
        &mut cluster,
        &node,
        &HoldRequest { epoch: Epoch(2), ..hold_request.clone() },
        "registration 1 is Open",
    );
    check_refusal(
        &mut cluster,
        &node,
        &HoldRequest { boot_id: "another".into(), ..hold_request.clone() },
        "registration 1",
    );
    check_refusal(&mut cluster, "node9", &hold_request, "no registration");
    let meant = HoldRequest { candidate: "c1".into(), ..hold_request.clone() };
    check_refusal(&mut cluster, &node, &meant, "each controller needs its own URL");
    cluster.store_unreachable = false;
    cluster.run(3_000);
    check_refusal(&mut cluster, &node, &hold_request, "can reach etcd");
}

#[test]
fn a_controller_that_has_not_read_etcd_refuses() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    let hold_request = request(&cluster, &node);
    cluster.store_unreachable = true;
    cluster.run(UNREACHABLE_DETECTED_MS);
    cluster.controllers[0].is_running = false;
    cluster.add_controller("c0", "2");
    cluster.run(UNREACHABLE_DETECTED_MS);
    let answer = request_hold(&mut cluster, 1, &node, &hold_request);
    assert!(!answer.granted && answer.reason.contains("has not read"), "{answer:?}");
}

#[test]
fn a_controller_does_not_grant_while_declaring() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    let hold_request = request(&cluster, &node);
    cluster.agent(&node).power_off();
    // The declaration is lost before it reaches the store, and then the store becomes unreachable.
    cluster.run(TH - 1_500);
    cluster.lost_commits = vec![false; 20];
    cluster.run_until(TH, "declared dead, with an outcome that is unknown", |cluster| {
        cluster.lost_commits.len() < 20
    });
    cluster.store_unreachable = true;
    cluster.run(UNREACHABLE_DETECTED_MS);
    check_refusal(&mut cluster, &node, &hold_request, "was sent and may be applied");
}

#[test]
fn a_grant_is_an_observation() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    let fencing_delay_ms = cluster.agent(&node).fencing_delay_ms();
    let hold_request = request(&cluster, &node);
    cluster.agent(&node).power_off();
    cluster.store_unreachable = true;
    cluster.run(8_000);
    assert!(request_hold(&mut cluster, 0, &node, &hold_request).granted);
    let granted = cluster.now.monotonic_raw;
    cluster.store_unreachable = false;
    cluster.run_until(3 * fencing_delay_ms, "fenced", |cluster| {
        cluster.fence(&node).state == FenceState::Fenced
    });
    assert!(matches!(cluster.fence(&node).proof, Some(Proof::Silence { .. })));
    assert!(cluster.now.monotonic_raw.since(granted) + 200 >= fencing_delay_ms, "W counts from the grant");
}

/// Returns a node with Hold that has read one candidate key, after another controller has joined and become leader.
fn led_by_newer_controller(declared_before: bool) -> (TestCluster, NodeName) {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    let generation = cluster.state.get(&cluster.keys.candidate(&"c0".into())).entries[0].create_revision;
    cluster.agent(&node).hold = Some(generation);
    cluster.run(2_000);
    cluster.add_controller("c1", "1");
    cluster.run(2_000);
    cluster.agent(&node).power_off();
    if declared_before {
        cluster.run_until(TH + 2_000, "declared dead", |cluster| {
            cluster.fence(&node).state == FenceState::Fencing
        });
    }
    // The controller loses power, and its candidate key stays.
    cluster.controllers[0].is_running = false;
    cluster.run_until(10_000, "the newer one leads", |cluster| cluster.controllers[1].core.term().is_some());
    (cluster, node)
}

#[test]
fn a_newer_controller_fences_no_held_node() {
    let (mut cluster, node) = led_by_newer_controller(false);
    cluster.run(60_000);
    assert_eq!(cluster.fence(&node).state, FenceState::Open);
    let status = cluster.node(&node);
    assert_eq!(status.state, NodeState::Unknown);
    assert_eq!(status.conditions.iter().find(|c| c.kind == "Ready").unwrap().reason, Reason::JoinedLater);
    // Another boot is still a proof.
    cluster.agent(&node).boot_again();
    cluster.run_until(10_000, "admitted", |cluster| {
        cluster.fence(&node).state == FenceState::Open && cluster.fence(&node).epoch == Epoch(2)
    });
}

#[test]
fn a_newer_controller_completes_no_foreign_declaration() {
    let (mut cluster, node) = led_by_newer_controller(true);
    cluster.run(60_000);
    assert_eq!(cluster.fence(&node).state, FenceState::Fencing, "{}", cluster.show());
    cluster.agent(&node).boot_again();
    cluster.run_until(10_000, "admitted", |cluster| {
        cluster.fence(&node).state == FenceState::Open && cluster.fence(&node).epoch == Epoch(2)
    });
}

#[test]
fn a_declaration_rests_on_the_candidate_key() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.agent(&node).power_off();
    cluster.run_until(40_000, "fenced", |cluster| cluster.fence(&node).state == FenceState::Fenced);
    let candidate = cluster.keys.candidate(&"c0".into());
    let fence = cluster.keys.fence(&node);
    let writes = cluster.controllers[0]
        .commits
        .iter()
        .filter(|(_, transaction, outcome)| transaction.writes_key(&fence) && outcome.applied().is_some());
    let guards: Vec<Option<Guard>> =
        writes.map(|(_, transaction, _)| transaction.guards().get(&candidate).copied()).collect();
    // The fence is opened, then closed and released on silence, guarded by the revision of this process's own put
    // (R9.18).
    let put = cluster.controllers[0].commits.iter().find_map(|(_, transaction, outcome)| {
        transaction.writes_key(&candidate).then(|| outcome.applied()).flatten()
    });
    let own_guard = Some(Guard::Unchanged(put.expect("the candidate key was put")));
    assert_eq!(guards, [None, own_guard, own_guard]);
}
