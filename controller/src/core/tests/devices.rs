//! Tests of fence devices (FENCING, sections 2 and 5, (b)): the intent is recorded first, only a confirmed power-off is
//! a proof, and the node is switched on afterward.

use super::fencing::{TH, cluster_with_running_service};
use super::test_cluster::TestCluster;
use crate::core::{FencerAction, FencerOutcome};
use ha_api_types::id::{Epoch, NodeName, Revision};
use ha_api_types::node::{FenceAction, FenceDevice, FenceKind, FencePart, NodeSpec};
use ha_api_types::operation::{OperationAction, OperationPhase, OperationSpec};
use ha_api_types::reason::Reason;
use ha_api_types::record::{Fence, FenceState, Proof, Switch};
use ha_api_types::time::Millis;
use ha_store::Change;
use serde_json::json;

/// Maximum duration of the device's work, in milliseconds.
const DURATION_MS: Millis = 21_500;

pub(super) fn pdu() -> FenceDevice {
    FenceDevice {
        name: "pdu".to_owned(),
        timeout_seconds: 20,
        retries: 0,
        parts: vec![FencePart { agent: "fence_x".to_owned(), ..FencePart::default() }],
        ..FenceDevice::default()
    }
}

/// Returns a fabric device that disconnects network and storage.
fn switch() -> FenceDevice {
    FenceDevice { name: "switch".to_owned(), kind: FenceKind::Fabric, covers_storage: true, ..pdu() }
}

/// Returns a node that its fabric device has disconnected.
fn node_disconnected_by(device: FenceDevice) -> (TestCluster, NodeName) {
    let (mut cluster, node) = node_with_device(device);
    cluster.fencer_outcome = Some(FencerOutcome::Confirmed);
    cluster.agent(&node).isolated = true;
    cluster.run_until(TH + 1_000, "fenced", |cluster| cluster.fence(&node).state == FenceState::Fenced);
    assert_eq!(cluster.fence(&node).proof, Some(Proof::Device { name: "switch".to_owned() }));
    (cluster, node)
}

/// Returns a node with this device on which a service runs. Runs of the device do not end until the test allows it.
fn node_with_device(device: FenceDevice) -> (TestCluster, NodeName) {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.edit::<NodeSpec>(&node, |node| node.spec.fencing.devices = vec![device]);
    cluster.fencer_outcome = Some(FencerOutcome::Confirmed);
    cluster.run(1_000);
    cluster.fencer_outcome = None;
    (cluster, node)
}

/// Returns a node that was isolated, and that has registered again while its device still works.
fn released_while_device_runs(device: FenceDevice) -> (TestCluster, NodeName) {
    let (mut cluster, node) = node_with_device(device);
    cluster.agent(&node).isolated = true;
    cluster.run_until(TH + 1_000, "at work", |cluster| ordered_actions(cluster, 0) == [FencerAction::Off]);
    cluster.agent(&node).isolated = false;
    cluster.run_until(2_000, "released", |cluster| cluster.fence(&node).state == FenceState::Fenced);
    assert_eq!(cluster.fence(&node).proof, Some(Proof::Reregistered));
    (cluster, node)
}

/// Returns the actions that one controller ordered from the device of a node.
pub(super) fn ordered_actions(cluster: &TestCluster, controller: usize) -> Vec<FencerAction> {
    let runs = cluster.controllers[controller].runs.iter().map(|run| run.action);
    runs.filter(|action| *action != FencerAction::Monitor).collect()
}

#[test]
fn proof_b_a_fence_device_replaces_the_rest_of_w() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.edit::<NodeSpec>(&node, |node| node.spec.fencing.devices = vec![pdu()]);
    cluster.fencer_outcome = Some(FencerOutcome::Confirmed);
    cluster.run(1_000);
    let failed_at = cluster.now.monotonic_raw;
    cluster.agent(&node).power_off();
    cluster.run_until(TH + 1_000, "fenced", |cluster| cluster.fence(&node).state == FenceState::Fenced);
    assert!(cluster.now.monotonic_raw.since(failed_at) < TH + 500);
    assert_eq!(cluster.fence(&node).proof, Some(Proof::Device { name: "pdu".to_owned() }));
    cluster.run_until(1_000, "runs elsewhere", |cluster| cluster.running_nodes("web").len() == 1);
    let actions: Vec<_> = cluster.controllers[0].runs.iter().map(|run| run.action).collect();
    assert_eq!(actions, [FencerAction::Monitor, FencerAction::Off, FencerAction::On], "off, release, on");
    assert!(cluster.fence(&node).device.is_none());
}

#[test]
fn failed_fence_device_proves_nothing() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.edit::<NodeSpec>(&node, |node| node.spec.fencing.devices = vec![pdu()]);
    cluster.fencer_outcome = Some(FencerOutcome::Failed("no route".to_owned()));
    cluster.run(1_000);
    cluster.agent(&node).power_off();
    cluster.run_until(20_000, "fenced", |cluster| cluster.fence(&node).state == FenceState::Fenced);
    assert!(matches!(cluster.fence(&node).proof, Some(Proof::Silence { .. })));
    assert!(cluster.events.iter().any(|event| event.reason == Reason::FenceDeviceFailed));
}

#[test]
fn unresponsive_fence_device_is_reported_early() {
    let (mut cluster, node) = cluster_with_running_service(&["node1"]);
    cluster.edit::<NodeSpec>(&node, |node| node.spec.fencing.devices = vec![pdu()]);
    cluster.fencer_outcome = Some(FencerOutcome::Failed("no route".to_owned()));
    cluster.run(1_000);
    let condition = |cluster: &TestCluster| {
        cluster.node(&node).conditions.into_iter().find(|c| c.kind == "FenceDevicesHealthy").unwrap()
    };
    assert!(condition(&cluster).message.contains("no route"));
    cluster.fencer_outcome = Some(FencerOutcome::Confirmed);
    cluster.run(61_000);
    assert_eq!(condition(&cluster).reason, Reason::Accepted);

    // An edited device is probed immediately, because its earlier outcome no longer counts.
    cluster.fencer_outcome = None;
    let edited = FenceDevice { timeout_seconds: 10, ..pdu() };
    let second = FenceDevice { name: "second".to_owned(), ..pdu() };
    cluster.edit::<NodeSpec>(&node, |node| node.spec.fencing.devices = vec![edited, second]);
    let generation = |cluster: &TestCluster| condition(cluster).observed_generation;
    let before = generation(&cluster);
    cluster.run(1_000);
    assert_eq!(generation(&cluster), before, "neither device was probed yet");
    cluster.fencer_outcome = Some(FencerOutcome::Failed("no route".to_owned()));
    cluster.run(61_000);
    assert_eq!(condition(&cluster).reason, Reason::FenceDeviceFailed);
    assert!(generation(&cluster) > before);
}

#[test]
fn a_recorded_device_intent_keeps_the_epoch_closed_until_it_has_passed() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.edit::<NodeSpec>(&node, |node| node.spec.fencing.devices = vec![pdu()]);
    cluster.run(1_000);
    cluster.agent(&node).power_off();
    cluster.run_until(TH + 2_000, "device intended", |cluster| cluster.fence(&node).device.is_some());
    let intended = cluster.now.monotonic_raw;
    // The leader and the answer of its device are lost; the machine boots again automatically.
    cluster.controllers[0].is_running = false;
    cluster.fencer_outcome = Some(FencerOutcome::Confirmed);
    cluster.add_controller("c9", "1");
    cluster.agent(&node).boot_again();
    cluster.run_until(60_000, "admitted", |cluster| cluster.fence(&node).state == FenceState::Open);
    assert!(
        cluster.now.monotonic_raw.since(intended) >= 20_000,
        "{}",
        cluster.now.monotonic_raw.since(intended)
    );
}

#[test]
fn a_node_that_registers_while_its_device_runs_is_switched_on_again() {
    let (mut cluster, node) = released_while_device_runs(pdu());
    assert_eq!(cluster.fence(&node).device.unwrap().switch, Switch::Off, "still at work");
    cluster.agent(&node).power_off();
    cluster.fencer_outcome = Some(FencerOutcome::Confirmed);
    cluster.run(1_000);
    assert_eq!(ordered_actions(&cluster, 0), [FencerAction::Off, FencerAction::On]);
    let fence = cluster.fence(&node);
    assert_eq!((fence.device, fence.switched_off), (None, Vec::new()));
    assert_eq!(
        fence.state,
        FenceState::Fenced,
        "a request from before the power-off does not open the epoch"
    );
    cluster.agent(&node).boot_again();
    cluster.run_until(5_000, "back", |cluster| cluster.fence(&node).state == FenceState::Open);
    assert_eq!(ordered_actions(&cluster, 0).len(), 2);
}

#[test]
fn requested_fencing_uses_device_on_idle_node() {
    for is_idle in [false, true] {
        let (mut cluster, busy) = node_with_device(pdu());
        let idle = if busy == "node1" { "node2" } else { "node1" };
        cluster.edit::<NodeSpec>(idle, |node| node.spec.fencing.devices = vec![pdu()]);
        let node = if is_idle { idle.into() } else { busy };
        cluster.operate_node(OperationAction::Fence, &node);
        cluster.run(3_000);
        assert_eq!(
            cluster.operation("fence").phase,
            OperationPhase::Running,
            "a registration does not complete the operation"
        );
        assert_eq!(
            (cluster.fence(&node).state, ordered_actions(&cluster, 0)),
            (FenceState::Fencing, vec![FencerAction::Off])
        );
        cluster.agent(&node).power_off();
        cluster.fencer_outcome = Some(FencerOutcome::Confirmed);
        cluster.run_until(2_000, "ended", |cluster| cluster.operation("fence").phase.is_final());
        let status = cluster.operation("fence");
        assert_eq!(status.phase, OperationPhase::Succeeded, "{}", status.message);
        assert!(status.message.contains("pdu"), "{}", status.message);
        cluster.run(1_000);
        assert_eq!(ordered_actions(&cluster, 0), [FencerAction::Off, FencerAction::On]);
        cluster.agent(&node).boot_again();
        cluster.run_until(5_000, "back", |cluster| cluster.fence(&node).state == FenceState::Open);
    }
}

#[test]
fn unconfirmed_device_fails_the_fence_operation() {
    let (mut cluster, node) = node_with_device(pdu());
    cluster.operate_node(OperationAction::Fence, &node);
    cluster.run_until(2_000, "at work", |cluster| ordered_actions(cluster, 0) == [FencerAction::Off]);
    // The machine is reset by other means before the device answers.
    cluster.agent(&node).power_off();
    cluster.agent(&node).boot_again();
    cluster.run_until(5_000, "ended", |cluster| cluster.operation("fence").phase.is_final());
    let status = cluster.operation("fence");
    assert_eq!((status.phase, status.reason), (OperationPhase::Failed, Reason::FenceDeviceFailed));
    assert!(status.message.contains("rebooted"), "{}", status.message);
}

#[test]
fn fence_operation_needs_device_and_unfenced_node() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.operate_node(OperationAction::Fence, &node);
    cluster.run_until(2_000, "ended", |cluster| cluster.operation("fence").phase.is_final());
    let status = cluster.operation("fence");
    assert_eq!((status.phase, status.reason), (OperationPhase::Refused, Reason::FencingUnavailable));
    assert!(status.message.contains("hactl node confirm-fenced"), "{}", status.message);
    assert_eq!(cluster.fence(&node).state, FenceState::Open);
    cluster.agent(&node).power_off();
    cluster.run_until(20_000, "fenced", |cluster| cluster.fence(&node).state == FenceState::Fenced);
    let spec = OperationSpec { action: OperationAction::Fence, node: Some(node), ..OperationSpec::default() };
    cluster.create_operation("late", spec);
    cluster.run_until(2_000, "ended", |cluster| cluster.operation("late").phase.is_final());
    assert_eq!(cluster.operation("late").reason, Reason::Outdated);
}

#[test]
fn next_leader_switches_node_on_again() {
    let (mut cluster, node) = released_while_device_runs(pdu());
    let released = cluster.now.monotonic_raw;
    cluster.controllers[0].is_running = false;
    cluster.agent(&node).power_off();
    cluster.fencer_outcome = Some(FencerOutcome::Confirmed);
    cluster.add_controller("c9", "1");
    cluster.run_until(60_000, "switched on", |cluster| ordered_actions(cluster, 1) == [FencerAction::On]);
    assert!(
        cluster.now.monotonic_raw.since(released) >= DURATION_MS,
        "no process starts the first device after the release"
    );
    cluster.run(1_000);
    assert_eq!((cluster.fence(&node).device, cluster.fence(&node).switched_off), (None, Vec::new()));
}

#[test]
fn failed_switch_off_is_followed_by_switch_on() {
    let (mut cluster, node) = node_with_device(pdu());
    cluster.fencer_outcome = Some(FencerOutcome::Confirmed);
    cluster.refused_actions = vec![FencerAction::Off];
    cluster.agent(&node).power_off();
    cluster.run_until(20_000, "fenced", |cluster| cluster.fence(&node).state == FenceState::Fenced);
    assert!(matches!(cluster.fence(&node).proof, Some(Proof::Silence { .. })));
    cluster.run(1_000);
    assert_eq!(ordered_actions(&cluster, 0).last(), Some(&FencerAction::On));
    assert!(cluster.fence(&node).switched_off.is_empty());
}

#[test]
fn switch_on_retries_delay_no_registration() {
    let (mut cluster, node) = node_with_device(pdu());
    cluster.fencer_outcome = Some(FencerOutcome::Confirmed);
    cluster.refused_actions = vec![FencerAction::On];
    cluster.agent(&node).power_off();
    cluster.run_until(20_000, "fenced", |cluster| cluster.fence(&node).state == FenceState::Fenced);
    cluster.run_until(20_000, "tried again", |cluster| ordered_actions(cluster, 0).len() >= 4);
    cluster.controllers[0].is_running = false;
    cluster.add_controller("c9", "1");
    cluster.run_until(60_000, "by the next leader", |cluster| ordered_actions(cluster, 1).len() >= 3);
    assert!(ordered_actions(&cluster, 1).iter().all(|action| *action == FencerAction::On));
    cluster.agent(&node).boot_again();
    cluster.run_until(DURATION_MS, "back", |cluster| cluster.fence(&node).state == FenceState::Open);
    let tries = ordered_actions(&cluster, 1).len();
    cluster.run(120_000);
    assert_eq!(ordered_actions(&cluster, 1).len(), tries, "the node is on");
}

#[test]
fn failing_device_does_not_block_reachable_node() {
    let (mut cluster, node) = node_with_device(pdu());
    cluster.fencer_outcome = Some(FencerOutcome::Failed("no route".to_owned()));
    cluster.operate_node(OperationAction::Fence, &node);
    cluster.run_until(2_000, "ended", |cluster| cluster.operation("fence").phase.is_final());
    let status = cluster.operation("fence");
    assert_eq!((status.phase, status.reason), (OperationPhase::Failed, Reason::FenceDeviceFailed));
    assert!(status.message.contains("pdu: no route"), "{}", status.message);
    cluster.run_until(10_000, "back", |cluster| {
        let fence = cluster.fence(&node);
        fence.state == FenceState::Open && fence.epoch == Epoch(2)
    });
    cluster.run(30_000);
    assert_eq!(cluster.fence(&node).epoch, Epoch(2));
}

#[test]
fn a_request_from_before_the_device_ended_is_not_admitted() {
    let (mut cluster, node) = released_while_device_runs(pdu());
    // The device switches the machine off, and reports a failure.
    cluster.agent(&node).power_off();
    cluster.fencer_outcome = Some(FencerOutcome::Failed("no route".to_owned()));
    cluster.run_until(60_000, "tried again", |cluster| ordered_actions(cluster, 0).len() >= 4);
    assert_eq!((cluster.fence(&node).state, cluster.fence(&node).epoch), (FenceState::Fenced, Epoch(2)));
    cluster.fencer_outcome = Some(FencerOutcome::Confirmed);
    cluster.run_until(60_000, "switched on", |cluster| cluster.fence(&node).switched_off.is_empty());
    cluster.agent(&node).boot_again();
    cluster.run_until(5_000, "back", |cluster| cluster.fence(&node).state == FenceState::Open);
}

#[test]
fn a_device_with_action_off_never_switches_on() {
    let (mut cluster, node) = released_while_device_runs(FenceDevice { action: FenceAction::Off, ..pdu() });
    cluster.agent(&node).power_off();
    cluster.fencer_outcome = Some(FencerOutcome::Confirmed);
    cluster.run(60_000);
    assert_eq!(ordered_actions(&cluster, 0), [FencerAction::Off]);
    assert_eq!((cluster.fence(&node).state, cluster.fence(&node).device), (FenceState::Fenced, None));
}

#[test]
fn operator_confirmation_ends_device_orders() {
    let (mut cluster, node) = node_with_device(pdu());
    cluster.fencer_outcome = Some(FencerOutcome::Confirmed);
    cluster.refused_actions = vec![FencerAction::On];
    cluster.agent(&node).power_off();
    cluster.run_until(20_000, "fenced", |cluster| cluster.fence(&node).state == FenceState::Fenced);
    cluster.operate_node(OperationAction::ConfirmFenced, &node);
    cluster.run_until(DURATION_MS + 5_000, "confirmed", |cluster| {
        let fence = cluster.fence(&node);
        matches!(fence.proof, Some(Proof::Operator { .. })) && fence.device.is_none()
    });
    let tries = ordered_actions(&cluster, 0).len();
    cluster.run(120_000);
    assert_eq!(ordered_actions(&cluster, 0).len(), tries);
    let (proofs, _) = check_proof_revisions(&cluster, &node);
    assert_eq!(proofs, 2, "the operator's confirmation is a later proof");
}

#[test]
fn fencing_continues_from_older_device_record() {
    let (mut cluster, node) = node_with_device(pdu());
    cluster.agent(&node).power_off();
    cluster.fencer_outcome = Some(FencerOutcome::Confirmed);
    cluster.controllers[0].is_running = false;
    let fence = cluster.fence(&node);
    let older = json!({
        "epoch": fence.epoch + 1, "machineId": fence.machine_id, "bootId": fence.boot_id, "request": fence.request,
        "state": "Fenced", "proof": {"kind": "device", "name": "pdu"}, "at": fence.at,
        "device": {"name": "pdu", "durationMs": DURATION_MS, "term": 1},
    });
    let key = cluster.keys.fence(&node);
    super::fencing::put(&mut cluster, &key, &older);
    cluster.add_controller("c9", "1");
    cluster.run_until(60_000, "switched on", |cluster| ordered_actions(cluster, 1) == [FencerAction::On]);
}

#[test]
fn what_a_fabric_device_cut_off_needs_another_boot() {
    let (mut cluster, node) = node_disconnected_by(switch());
    cluster.run(60_000);
    assert_eq!(ordered_actions(&cluster, 0), [FencerAction::Off], "the services of the node may still run");
    // The same boot returns. Its reports do not reconnect the node.
    cluster.agent(&node).isolated = false;
    cluster.run(60_000);
    assert_eq!(ordered_actions(&cluster, 0), [FencerAction::Off]);
    assert_eq!(cluster.fence(&node).state, FenceState::Fenced, "no services on a node without storage");
    cluster.agent(&node).boot_again();
    cluster.run_until(5_000, "back", |cluster| cluster.fence(&node).state == FenceState::Open);
    assert_eq!(ordered_actions(&cluster, 0), [FencerAction::Off, FencerAction::On]);
    assert_eq!(cluster.fence(&node).switched_off, Vec::<String>::new());
}

#[test]
fn operator_reconnects_the_same_boot() {
    let (mut cluster, node) = node_disconnected_by(switch());
    cluster.agent(&node).isolated = false;
    cluster.run(5_000);
    cluster.operate_node(OperationAction::Unfence, &node);
    cluster.run_until(5_000, "back", |cluster| cluster.fence(&node).state == FenceState::Open);
    assert_eq!(ordered_actions(&cluster, 0), [FencerAction::Off, FencerAction::On]);
    cluster.run(1_000);
    assert_eq!(cluster.operation("unfence").phase, OperationPhase::Succeeded);
}

#[test]
fn only_an_operator_undoes_a_fabric_device_with_action_off() {
    let (mut cluster, node) = node_disconnected_by(FenceDevice { action: FenceAction::Off, ..switch() });
    cluster.agent(&node).boot_again();
    cluster.run(60_000);
    assert_eq!(ordered_actions(&cluster, 0), [FencerAction::Off]);
    assert_eq!(cluster.fence(&node).state, FenceState::Fenced);
    cluster.operate_node(OperationAction::Unfence, &node);
    cluster.run_until(5_000, "back", |cluster| cluster.fence(&node).state == FenceState::Open);
    assert_eq!(ordered_actions(&cluster, 0), [FencerAction::Off, FencerAction::On]);
}

#[test]
fn unfencing_a_connected_node_is_refused() {
    let (mut cluster, node) = node_with_device(pdu());
    cluster.operate_node(OperationAction::Unfence, &node);
    cluster.run(1_000);
    let status = cluster.operation("unfence");
    assert_eq!(
        (status.phase, status.reason),
        (OperationPhase::Refused, Reason::Refused),
        "{}",
        status.message
    );
}

#[test]
fn a_fabric_device_that_leaves_the_storage_proves_nothing() {
    let (mut cluster, node) = node_with_device(FenceDevice { covers_storage: false, ..switch() });
    cluster.fencer_outcome = Some(FencerOutcome::Confirmed);
    cluster.agent(&node).power_off();
    cluster.run_until(20_000, "fenced", |cluster| cluster.fence(&node).state == FenceState::Fenced);
    assert!(matches!(cluster.fence(&node).proof, Some(Proof::Silence { .. })));
    assert_eq!(ordered_actions(&cluster, 0), []);
}

#[test]
fn a_device_that_switched_nothing_is_no_proof_until_it_is_corrected() {
    let (mut cluster, node) = node_with_device(pdu());
    // The device confirms, and the machine keeps running.
    cluster.fencer_outcome = Some(FencerOutcome::Confirmed);
    cluster.agent(&node).isolated = true;
    cluster.run_until(TH + 1_000, "fenced", |cluster| cluster.fence(&node).state == FenceState::Fenced);
    assert_eq!(cluster.fence(&node).proof, Some(Proof::Device { name: "pdu".to_owned() }));
    cluster.agent(&node).isolated = false;
    cluster.run_until(10_000, "registered again", |cluster| cluster.fence(&node).state == FenceState::Open);
    assert!(cluster.events.iter().any(|event| event.reason == Reason::FenceDeviceRefuted));
    let devices_reason = |cluster: &TestCluster| {
        let conditions = cluster.node(&node).conditions;
        conditions
            .into_iter()
            .find(|condition| condition.kind == "FenceDevicesHealthy")
            .map(|condition| condition.reason)
    };
    cluster.run_until(1_000, "shown", |cluster| devices_reason(cluster) == Some(Reason::FenceDeviceRefuted));

    // The refuted device does not confirm the next failure, even after another edit of the node.
    cluster.edit::<NodeSpec>(&node, |node| node.spec.count_threads = true);
    cluster.run_until(10_000, "runs again", |cluster| !cluster.running_nodes("web").is_empty());
    let holder = cluster.running_nodes("web")[0].clone();
    cluster.edit::<NodeSpec>(&holder, |other| other.spec.maintenance = holder != node);
    cluster.run_until(30_000, "runs there", |cluster| cluster.running_nodes("web") == [node.clone()]);
    cluster.agent(&node).power_off();
    cluster.run_until(30_000, "fenced again", |cluster| cluster.fence(&node).state == FenceState::Fenced);
    assert!(
        matches!(cluster.fence(&node).proof, Some(Proof::Silence { .. })),
        "{:?}",
        cluster.fence(&node).proof
    );

    // A corrected device is a proof again.
    cluster.agent(&node).boot_again();
    let corrected = FenceDevice {
        parts: vec![FencePart { agent: "fence_y".to_owned(), ..FencePart::default() }],
        ..pdu()
    };
    cluster.edit::<NodeSpec>(&node, |node| node.spec.fencing.devices = vec![corrected]);
    cluster.run_until(20_000, "registered", |cluster| cluster.fence(&node).state == FenceState::Open);
    cluster.run_until(70_000, "probed", |cluster| devices_reason(cluster) == Some(Reason::Accepted));
    cluster.operate_node(OperationAction::Fence, &node);
    cluster.run_until(10_000, "fenced by the device", |cluster| {
        cluster.fence(&node).proof == Some(Proof::Device { name: "pdu".to_owned() })
    });
}

/// The operation's write of the fence keeps the intent of the device. Otherwise, the leader would wait for the longest
/// duration of the device, as if another process ran the device.
#[test]
fn an_operators_confirmation_does_not_prolong_the_work_of_a_device() {
    let (mut cluster, node) = node_with_device(pdu());
    cluster.agent(&node).power_off();
    cluster.run_until(TH + 1_000, "at work", |cluster| ordered_actions(cluster, 0) == [FencerAction::Off]);
    cluster.operate_node(OperationAction::ConfirmFenced, &node);
    cluster.run_until(TH, "confirmed", |cluster| {
        matches!(cluster.fence(&node).proof, Some(Proof::Operator { .. }))
    });
    assert!(cluster.fence(&node).device.is_some(), "still at work");
    cluster.fencer_outcome = Some(FencerOutcome::Failed("no route".to_owned()));
    cluster.agent(&node).boot_again();
    cluster.run_until(5_000, "registered", |cluster| cluster.fence(&node).state == FenceState::Open);
    assert!(cluster.events.iter().any(|event| event.reason == Reason::FenceDeviceFailed));
}

/// Checks that each stored fence has the revision at which its proof was stored first. Returns the number of proofs and
/// of fences with a proof.
fn check_proof_revisions(cluster: &TestCluster, node: &NodeName) -> (usize, usize) {
    let changes = cluster.state.changes_of(&[cluster.keys.fence(node)], Revision(1)).unwrap();
    let fences = changes.into_iter().flat_map(|(_, changes)| changes).filter_map(|change| match change {
        Change::Put(entry) => {
            Some((entry.mod_revision, serde_json::from_slice::<Fence>(&entry.value).unwrap()))
        }
        Change::Delete { .. } => None,
    });
    let (mut proofs, mut proven_fences) = (Vec::new(), 0);
    for (mod_revision, fence) in fences.filter(|(_, fence)| fence.proof.is_some()) {
        proven_fences += 1;
        let proof = (fence.proof.clone(), fence.off_revision, fence.epoch);
        if proofs.last().is_none_or(|(last, _)| *last != proof) {
            proofs.push((proof, mod_revision));
        }
        assert_eq!(Some(fence.proven_at(mod_revision)), proofs.last().map(|(_, stored_at)| *stored_at));
    }
    (proofs.len(), proven_fences)
}

#[test]
fn a_proof_keeps_the_revision_at_which_it_was_stored() {
    let (mut cluster, node) = node_with_device(pdu());
    cluster.fencer_outcome = Some(FencerOutcome::Confirmed);
    cluster.agent(&node).power_off();
    cluster.run_until(60_000, "switched on", |cluster| {
        let fence = cluster.fence(&node);
        fence.state == FenceState::Fenced && fence.device.is_none()
    });
    let (proofs, proven_fences) = check_proof_revisions(&cluster, &node);
    assert!(proofs == 1 && proven_fences > 1, "{proofs} {proven_fences}");
}

#[test]
fn the_last_heartbeat_of_an_unreachable_node_is_stored_exactly() {
    let (mut cluster, node) = cluster_with_running_service(&["node1", "node2"]);
    cluster.run(30_000);
    let failed_at = cluster.now.timestamp().unix_seconds().unwrap();
    cluster.agent(&node).power_off();
    cluster.run(TH + 2_000);
    let stored = cluster.node(&node).last_heartbeat_time.and_then(|time| time.unix_seconds()).unwrap();
    assert!((failed_at - 3..=failed_at).contains(&stored), "{stored}, failed at {failed_at}");
}
