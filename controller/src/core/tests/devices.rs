//! Tests of fence devices (FENCING, sections 2 and 5, (b)): the intent is recorded first, only a confirmed power-off is
//! a proof, and the node is switched on afterward.

use super::fencing::{TH, running_on};
use super::lab::Lab;
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
fn node_disconnected_by(device: FenceDevice) -> (Lab, NodeName) {
    let (mut lab, node) = node_with_device(device);
    lab.fencer = Some(FencerOutcome::Confirmed);
    lab.agent(&node).isolated = true;
    lab.run_until(TH + 1_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
    assert_eq!(lab.fence(&node).proof, Some(Proof::Device { name: "switch".to_owned() }));
    (lab, node)
}

/// Returns a node with this device on which a service runs. Runs of the device do not end until the test allows it.
fn node_with_device(device: FenceDevice) -> (Lab, NodeName) {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.edit::<NodeSpec>(&node, |node| node.spec.fencing.devices = vec![device]);
    lab.fencer = Some(FencerOutcome::Confirmed);
    lab.run(1_000);
    lab.fencer = None;
    (lab, node)
}

/// Returns a node that was isolated, and that has registered again while its device still works.
fn released_while_device_runs(device: FenceDevice) -> (Lab, NodeName) {
    let (mut lab, node) = node_with_device(device);
    lab.agent(&node).isolated = true;
    lab.run_until(TH + 1_000, "at work", |lab| ordered_actions(lab, 0) == [FencerAction::Off]);
    lab.agent(&node).isolated = false;
    lab.run_until(2_000, "released", |lab| lab.fence(&node).state == FenceState::Fenced);
    assert_eq!(lab.fence(&node).proof, Some(Proof::Reregistered));
    (lab, node)
}

/// Returns the actions that one controller ordered from the device of a node.
pub(super) fn ordered_actions(lab: &Lab, member: usize) -> Vec<FencerAction> {
    let runs = lab.members[member].runs.iter().map(|run| run.action);
    runs.filter(|action| *action != FencerAction::Monitor).collect()
}

#[test]
fn proof_b_a_fence_device_replaces_the_rest_of_w() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.edit::<NodeSpec>(&node, |node| node.spec.fencing.devices = vec![pdu()]);
    lab.fencer = Some(FencerOutcome::Confirmed);
    lab.run(1_000);
    let failed_at = lab.now.monotonic_raw;
    lab.agent(&node).power_off();
    lab.run_until(TH + 1_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
    assert!(lab.now.monotonic_raw.since(failed_at) < TH + 500);
    assert_eq!(lab.fence(&node).proof, Some(Proof::Device { name: "pdu".to_owned() }));
    lab.run_until(1_000, "runs elsewhere", |lab| lab.running_nodes("web").len() == 1);
    let actions: Vec<_> = lab.members[0].runs.iter().map(|run| run.action).collect();
    assert_eq!(actions, [FencerAction::Monitor, FencerAction::Off, FencerAction::On], "off, release, on");
    assert!(lab.fence(&node).device.is_none());
}

#[test]
fn failed_fence_device_proves_nothing() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.edit::<NodeSpec>(&node, |node| node.spec.fencing.devices = vec![pdu()]);
    lab.fencer = Some(FencerOutcome::Failed("no route".to_owned()));
    lab.run(1_000);
    lab.agent(&node).power_off();
    lab.run_until(20_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
    assert!(matches!(lab.fence(&node).proof, Some(Proof::Silence { .. })));
    assert!(lab.events.iter().any(|event| event.reason == Reason::FenceDeviceFailed));
}

#[test]
fn unresponsive_fence_device_is_reported_early() {
    let (mut lab, node) = running_on(&["node1"]);
    lab.edit::<NodeSpec>(&node, |node| node.spec.fencing.devices = vec![pdu()]);
    lab.fencer = Some(FencerOutcome::Failed("no route".to_owned()));
    lab.run(1_000);
    let condition =
        |lab: &Lab| lab.node(&node).conditions.into_iter().find(|c| c.kind == "FenceDevicesHealthy").unwrap();
    assert!(condition(&lab).message.contains("no route"));
    lab.fencer = Some(FencerOutcome::Confirmed);
    lab.run(61_000);
    assert_eq!(condition(&lab).reason, Reason::Accepted);

    // An edited device is probed immediately, because its earlier outcome no longer counts.
    lab.fencer = None;
    let edited = FenceDevice { timeout_seconds: 10, ..pdu() };
    let second = FenceDevice { name: "second".to_owned(), ..pdu() };
    lab.edit::<NodeSpec>(&node, |node| node.spec.fencing.devices = vec![edited, second]);
    let generation = |lab: &Lab| condition(lab).observed_generation;
    let before = generation(&lab);
    lab.run(1_000);
    assert_eq!(generation(&lab), before, "neither device was probed yet");
    lab.fencer = Some(FencerOutcome::Failed("no route".to_owned()));
    lab.run(61_000);
    assert_eq!(condition(&lab).reason, Reason::FenceDeviceFailed);
    assert!(generation(&lab) > before);
}

#[test]
fn a_recorded_device_intent_keeps_the_epoch_closed_until_it_has_passed() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.edit::<NodeSpec>(&node, |node| node.spec.fencing.devices = vec![pdu()]);
    lab.run(1_000);
    lab.agent(&node).power_off();
    lab.run_until(TH + 2_000, "device intended", |lab| lab.fence(&node).device.is_some());
    let intended = lab.now.monotonic_raw;
    // The leader and the answer of its device are lost; the machine boots again automatically.
    lab.members[0].running = false;
    lab.fencer = Some(FencerOutcome::Confirmed);
    lab.add_controller("c9", "1");
    lab.agent(&node).boot_again();
    lab.run_until(60_000, "admitted", |lab| lab.fence(&node).state == FenceState::Open);
    assert!(lab.now.monotonic_raw.since(intended) >= 20_000, "{}", lab.now.monotonic_raw.since(intended));
}

#[test]
fn a_node_that_registers_while_its_device_runs_is_switched_on_again() {
    let (mut lab, node) = released_while_device_runs(pdu());
    assert_eq!(lab.fence(&node).device.unwrap().switch, Switch::Off, "still at work");
    lab.agent(&node).power_off();
    lab.fencer = Some(FencerOutcome::Confirmed);
    lab.run(1_000);
    assert_eq!(ordered_actions(&lab, 0), [FencerAction::Off, FencerAction::On]);
    let fence = lab.fence(&node);
    assert_eq!((fence.device, fence.switched_off), (None, Vec::new()));
    assert_eq!(
        fence.state,
        FenceState::Fenced,
        "a request from before the power-off does not open the epoch"
    );
    lab.agent(&node).boot_again();
    lab.run_until(5_000, "back", |lab| lab.fence(&node).state == FenceState::Open);
    assert_eq!(ordered_actions(&lab, 0).len(), 2);
}

#[test]
fn requested_fencing_uses_device_on_idle_node() {
    for is_idle in [false, true] {
        let (mut lab, busy) = node_with_device(pdu());
        let idle = if busy == "node1" { "node2" } else { "node1" };
        lab.edit::<NodeSpec>(idle, |node| node.spec.fencing.devices = vec![pdu()]);
        let node = if is_idle { idle.into() } else { busy };
        lab.operate_node(OperationAction::Fence, &node);
        lab.run(3_000);
        assert_eq!(
            lab.operation("fence").phase,
            OperationPhase::Running,
            "a registration does not complete the operation"
        );
        assert_eq!(
            (lab.fence(&node).state, ordered_actions(&lab, 0)),
            (FenceState::Fencing, vec![FencerAction::Off])
        );
        lab.agent(&node).power_off();
        lab.fencer = Some(FencerOutcome::Confirmed);
        lab.run_until(2_000, "ended", |lab| lab.operation("fence").phase.is_final());
        let status = lab.operation("fence");
        assert_eq!(status.phase, OperationPhase::Succeeded, "{}", status.message);
        assert!(status.message.contains("pdu"), "{}", status.message);
        lab.run(1_000);
        assert_eq!(ordered_actions(&lab, 0), [FencerAction::Off, FencerAction::On]);
        lab.agent(&node).boot_again();
        lab.run_until(5_000, "back", |lab| lab.fence(&node).state == FenceState::Open);
    }
}

#[test]
fn unconfirmed_device_fails_the_fence_operation() {
    let (mut lab, node) = node_with_device(pdu());
    lab.operate_node(OperationAction::Fence, &node);
    lab.run_until(2_000, "at work", |lab| ordered_actions(lab, 0) == [FencerAction::Off]);
    // The machine is reset by other means before the device answers.
    lab.agent(&node).power_off();
    lab.agent(&node).boot_again();
    lab.run_until(5_000, "ended", |lab| lab.operation("fence").phase.is_final());
    let status = lab.operation("fence");
    assert_eq!((status.phase, status.reason), (OperationPhase::Failed, Reason::FenceDeviceFailed));
    assert!(status.message.contains("rebooted"), "{}", status.message);
}

#[test]
fn fence_operation_needs_device_and_unfenced_node() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.operate_node(OperationAction::Fence, &node);
    lab.run_until(2_000, "ended", |lab| lab.operation("fence").phase.is_final());
    let status = lab.operation("fence");
    assert_eq!((status.phase, status.reason), (OperationPhase::Refused, Reason::FencingUnavailable));
    assert!(status.message.contains("hactl node confirm-fenced"), "{}", status.message);
    assert_eq!(lab.fence(&node).state, FenceState::Open);
    lab.agent(&node).power_off();
    lab.run_until(20_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
    let spec = OperationSpec { action: OperationAction::Fence, node: Some(node), ..OperationSpec::default() };
    lab.create_operation("late", spec);
    lab.run_until(2_000, "ended", |lab| lab.operation("late").phase.is_final());
    assert_eq!(lab.operation("late").reason, Reason::Outdated);
}

#[test]
fn next_leader_switches_node_on_again() {
    let (mut lab, node) = released_while_device_runs(pdu());
    let released = lab.now.monotonic_raw;
    lab.members[0].running = false;
    lab.agent(&node).power_off();
    lab.fencer = Some(FencerOutcome::Confirmed);
    lab.add_controller("c9", "1");
    lab.run_until(60_000, "switched on", |lab| ordered_actions(lab, 1) == [FencerAction::On]);
    assert!(
        lab.now.monotonic_raw.since(released) >= DURATION_MS,
        "no process starts the first device after the release"
    );
    lab.run(1_000);
    assert_eq!((lab.fence(&node).device, lab.fence(&node).switched_off), (None, Vec::new()));
}

#[test]
fn failed_switch_off_is_followed_by_switch_on() {
    let (mut lab, node) = node_with_device(pdu());
    lab.fencer = Some(FencerOutcome::Confirmed);
    lab.refused = vec![FencerAction::Off];
    lab.agent(&node).power_off();
    lab.run_until(20_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
    assert!(matches!(lab.fence(&node).proof, Some(Proof::Silence { .. })));
    lab.run(1_000);
    assert_eq!(ordered_actions(&lab, 0).last(), Some(&FencerAction::On));
    assert!(lab.fence(&node).switched_off.is_empty());
}

#[test]
fn switch_on_retries_delay_no_registration() {
    let (mut lab, node) = node_with_device(pdu());
    lab.fencer = Some(FencerOutcome::Confirmed);
    lab.refused = vec![FencerAction::On];
    lab.agent(&node).power_off();
    lab.run_until(20_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
    lab.run_until(20_000, "tried again", |lab| ordered_actions(lab, 0).len() >= 4);
    lab.members[0].running = false;
    lab.add_controller("c9", "1");
    lab.run_until(60_000, "by the next leader", |lab| ordered_actions(lab, 1).len() >= 3);
    assert!(ordered_actions(&lab, 1).iter().all(|action| *action == FencerAction::On));
    lab.agent(&node).boot_again();
    lab.run_until(DURATION_MS, "back", |lab| lab.fence(&node).state == FenceState::Open);
    let tries = ordered_actions(&lab, 1).len();
    lab.run(120_000);
    assert_eq!(ordered_actions(&lab, 1).len(), tries, "the node is on");
}

#[test]
fn failing_device_does_not_block_reachable_node() {
    let (mut lab, node) = node_with_device(pdu());
    lab.fencer = Some(FencerOutcome::Failed("no route".to_owned()));
    lab.operate_node(OperationAction::Fence, &node);
    lab.run_until(2_000, "ended", |lab| lab.operation("fence").phase.is_final());
    let status = lab.operation("fence");
    assert_eq!((status.phase, status.reason), (OperationPhase::Failed, Reason::FenceDeviceFailed));
    assert!(status.message.contains("pdu: no route"), "{}", status.message);
    lab.run_until(10_000, "back", |lab| {
        let fence = lab.fence(&node);
        fence.state == FenceState::Open && fence.epoch == Epoch(2)
    });
    lab.run(30_000);
    assert_eq!(lab.fence(&node).epoch, Epoch(2));
}

#[test]
fn a_request_from_before_the_device_ended_is_not_admitted() {
    let (mut lab, node) = released_while_device_runs(pdu());
    // The device switches the machine off, and reports a failure.
    lab.agent(&node).power_off();
    lab.fencer = Some(FencerOutcome::Failed("no route".to_owned()));
    lab.run_until(60_000, "tried again", |lab| ordered_actions(lab, 0).len() >= 4);
    assert_eq!((lab.fence(&node).state, lab.fence(&node).epoch), (FenceState::Fenced, Epoch(2)));
    lab.fencer = Some(FencerOutcome::Confirmed);
    lab.run_until(60_000, "switched on", |lab| lab.fence(&node).switched_off.is_empty());
    lab.agent(&node).boot_again();
    lab.run_until(5_000, "back", |lab| lab.fence(&node).state == FenceState::Open);
}

#[test]
fn a_device_with_action_off_never_switches_on() {
    let (mut lab, node) = released_while_device_runs(FenceDevice { action: FenceAction::Off, ..pdu() });
    lab.agent(&node).power_off();
    lab.fencer = Some(FencerOutcome::Confirmed);
    lab.run(60_000);
    assert_eq!(ordered_actions(&lab, 0), [FencerAction::Off]);
    assert_eq!((lab.fence(&node).state, lab.fence(&node).device), (FenceState::Fenced, None));
}

#[test]
fn operator_confirmation_ends_device_orders() {
    let (mut lab, node) = node_with_device(pdu());
    lab.fencer = Some(FencerOutcome::Confirmed);
    lab.refused = vec![FencerAction::On];
    lab.agent(&node).power_off();
    lab.run_until(20_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
    lab.operate_node(OperationAction::ConfirmFenced, &node);
    lab.run_until(DURATION_MS + 5_000, "confirmed", |lab| {
        let fence = lab.fence(&node);
        matches!(fence.proof, Some(Proof::Operator { .. })) && fence.device.is_none()
    });
    let tries = ordered_actions(&lab, 0).len();
    lab.run(120_000);
    assert_eq!(ordered_actions(&lab, 0).len(), tries);
    let (proofs, _) = check_proof_revisions(&lab, &node);
    assert_eq!(proofs, 2, "the operator's confirmation is a later proof");
}

#[test]
fn fencing_continues_from_older_device_record() {
    let (mut lab, node) = node_with_device(pdu());
    lab.agent(&node).power_off();
    lab.fencer = Some(FencerOutcome::Confirmed);
    lab.members[0].running = false;
    let fence = lab.fence(&node);
    let older = json!({
        "epoch": fence.epoch + 1, "machineId": fence.machine_id, "bootId": fence.boot_id, "request": fence.request,
        "state": "Fenced", "proof": {"kind": "device", "name": "pdu"}, "at": fence.at,
        "device": {"name": "pdu", "durationMs": DURATION_MS, "term": 1},
    });
    let key = lab.keys.fence(&node);
    super::fencing::put(&mut lab, &key, &older);
    lab.add_controller("c9", "1");
    lab.run_until(60_000, "switched on", |lab| ordered_actions(lab, 1) == [FencerAction::On]);
}

#[test]
fn what_a_fabric_device_cut_off_needs_another_boot() {
    let (mut lab, node) = node_disconnected_by(switch());
    lab.run(60_000);
    assert_eq!(ordered_actions(&lab, 0), [FencerAction::Off], "the services of the node may still run");
    // The same boot returns. Its reports do not reconnect the node.
    lab.agent(&node).isolated = false;
    lab.run(60_000);
    assert_eq!(ordered_actions(&lab, 0), [FencerAction::Off]);
    assert_eq!(lab.fence(&node).state, FenceState::Fenced, "no services on a node without storage");
    lab.agent(&node).boot_again();
    lab.run_until(5_000, "back", |lab| lab.fence(&node).state == FenceState::Open);
    assert_eq!(ordered_actions(&lab, 0), [FencerAction::Off, FencerAction::On]);
    assert_eq!(lab.fence(&node).switched_off, Vec::<String>::new());
}

#[test]
fn operator_reconnects_the_same_boot() {
    let (mut lab, node) = node_disconnected_by(switch());
    lab.agent(&node).isolated = false;
    lab.run(5_000);
    lab.operate_node(OperationAction::Unfence, &node);
    lab.run_until(5_000, "back", |lab| lab.fence(&node).state == FenceState::Open);
    assert_eq!(ordered_actions(&lab, 0), [FencerAction::Off, FencerAction::On]);
    lab.run(1_000);
    assert_eq!(lab.operation("unfence").phase, OperationPhase::Succeeded);
}

#[test]
fn only_an_operator_undoes_a_fabric_device_with_action_off() {
    let (mut lab, node) = node_disconnected_by(FenceDevice { action: FenceAction::Off, ..switch() });
    lab.agent(&node).boot_again();
    lab.run(60_000);
    assert_eq!(ordered_actions(&lab, 0), [FencerAction::Off]);
    assert_eq!(lab.fence(&node).state, FenceState::Fenced);
    lab.operate_node(OperationAction::Unfence, &node);
    lab.run_until(5_000, "back", |lab| lab.fence(&node).state == FenceState::Open);
    assert_eq!(ordered_actions(&lab, 0), [FencerAction::Off, FencerAction::On]);
}

#[test]
fn unfencing_a_connected_node_is_refused() {
    let (mut lab, node) = node_with_device(pdu());
    lab.operate_node(OperationAction::Unfence, &node);
    lab.run(1_000);
    let status = lab.operation("unfence");
    assert_eq!(
        (status.phase, status.reason),
        (OperationPhase::Refused, Reason::Refused),
        "{}",
        status.message
    );
}

#[test]
fn a_fabric_device_that_leaves_the_storage_proves_nothing() {
    let (mut lab, node) = node_with_device(FenceDevice { covers_storage: false, ..switch() });
    lab.fencer = Some(FencerOutcome::Confirmed);
    lab.agent(&node).power_off();
    lab.run_until(20_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
    assert!(matches!(lab.fence(&node).proof, Some(Proof::Silence { .. })));
    assert_eq!(ordered_actions(&lab, 0), []);
}

#[test]
fn a_device_that_switched_nothing_is_no_proof_until_it_is_corrected() {
    let (mut lab, node) = node_with_device(pdu());
    // The device confirms, and the machine keeps running.
    lab.fencer = Some(FencerOutcome::Confirmed);
    lab.agent(&node).isolated = true;
    lab.run_until(TH + 1_000, "fenced", |lab| lab.fence(&node).state == FenceState::Fenced);
    assert_eq!(lab.fence(&node).proof, Some(Proof::Device { name: "pdu".to_owned() }));
    lab.agent(&node).isolated = false;
    lab.run_until(10_000, "registered again", |lab| lab.fence(&node).state == FenceState::Open);
    assert!(lab.events.iter().any(|event| event.reason == Reason::FenceDeviceRefuted));
    let devices_reason = |lab: &Lab| {
        let conditions = lab.node(&node).conditions;
        conditions
            .into_iter()
            .find(|condition| condition.kind == "FenceDevicesHealthy")
            .map(|found| found.reason)
    };
    lab.run_until(1_000, "shown", |lab| devices_reason(lab) == Some(Reason::FenceDeviceRefuted));

    // The refuted device does not confirm the next failure, even after another edit of the node.
    lab.edit::<NodeSpec>(&node, |node| node.spec.count_threads = true);
    lab.run_until(10_000, "runs again", |lab| !lab.running_nodes("web").is_empty());
    let holder = lab.running_nodes("web")[0].clone();
    lab.edit::<NodeSpec>(&holder, |other| other.spec.maintenance = holder != node);
    lab.run_until(30_000, "runs there", |lab| lab.running_nodes("web") == [node.clone()]);
    lab.agent(&node).power_off();
    lab.run_until(30_000, "fenced again", |lab| lab.fence(&node).state == FenceState::Fenced);
    assert!(matches!(lab.fence(&node).proof, Some(Proof::Silence { .. })), "{:?}", lab.fence(&node).proof);

    // A corrected device is a proof again.
    lab.agent(&node).boot_again();
    let corrected = FenceDevice {
        parts: vec![FencePart { agent: "fence_y".to_owned(), ..FencePart::default() }],
        ..pdu()
    };
    lab.edit::<NodeSpec>(&node, |node| node.spec.fencing.devices = vec![corrected]);
    lab.run_until(20_000, "registered", |lab| lab.fence(&node).state == FenceState::Open);
    lab.run_until(70_000, "probed", |lab| devices_reason(lab) == Some(Reason::Accepted));
    lab.operate_node(OperationAction::Fence, &node);
    lab.run_until(10_000, "fenced by the device", |lab| {
        lab.fence(&node).proof == Some(Proof::Device { name: "pdu".to_owned() })
    });
}

/// The operation's write of the fence keeps the intent of the device. Otherwise, the leader would wait for the longest
/// duration of the device, as if another process ran the device.
#[test]
fn an_operators_confirmation_does_not_prolong_the_work_of_a_device() {
    let (mut lab, node) = node_with_device(pdu());
    lab.agent(&node).power_off();
    lab.run_until(TH + 1_000, "at work", |lab| ordered_actions(lab, 0) == [FencerAction::Off]);
    lab.operate_node(OperationAction::ConfirmFenced, &node);
    lab.run_until(TH, "confirmed", |lab| matches!(lab.fence(&node).proof, Some(Proof::Operator { .. })));
    assert!(lab.fence(&node).device.is_some(), "still at work");
    lab.fencer = Some(FencerOutcome::Failed("no route".to_owned()));
    lab.agent(&node).boot_again();
    lab.run_until(5_000, "registered", |lab| lab.fence(&node).state == FenceState::Open);
    assert!(lab.events.iter().any(|event| event.reason == Reason::FenceDeviceFailed));
}

/// Checks that each stored fence has the revision at which its proof was stored first. Returns the number of proofs and
/// of fences with a proof.
fn check_proof_revisions(lab: &Lab, node: &NodeName) -> (usize, usize) {
    let changes = lab.state.changes_of(&[lab.keys.fence(node)], Revision(1)).unwrap();
    let fences = changes.into_iter().flat_map(|(_, changes)| changes).filter_map(|change| match change {
        Change::Put(entry) => {
            Some((entry.mod_revision, serde_json::from_slice::<Fence>(&entry.value).unwrap()))
        }
        Change::Delete { .. } => None,
    });
    let (mut proofs, mut proven_fences) = (Vec::new(), 0);
    for (modified, fence) in fences.filter(|(_, fence)| fence.proof.is_some()) {
        proven_fences += 1;
        let proof = (fence.proof.clone(), fence.off_revision, fence.epoch);
        if proofs.last().is_none_or(|(last, _)| *last != proof) {
            proofs.push((proof, modified));
        }
        assert_eq!(Some(fence.proven_at(modified)), proofs.last().map(|(_, stored_at)| *stored_at));
    }
    (proofs.len(), proven_fences)
}

#[test]
fn a_proof_keeps_the_revision_at_which_it_was_stored() {
    let (mut lab, node) = node_with_device(pdu());
    lab.fencer = Some(FencerOutcome::Confirmed);
    lab.agent(&node).power_off();
    lab.run_until(60_000, "switched on", |lab| {
        let fence = lab.fence(&node);
        fence.state == FenceState::Fenced && fence.device.is_none()
    });
    let (proofs, proven_fences) = check_proof_revisions(&lab, &node);
    assert!(proofs == 1 && proven_fences > 1, "{proofs} {proven_fences}");
}

#[test]
fn the_last_heartbeat_of_an_unreachable_node_is_stored_exactly() {
    let (mut lab, node) = running_on(&["node1", "node2"]);
    lab.run(30_000);
    let failed_at = lab.now.timestamp().unix_seconds().unwrap();
    lab.agent(&node).power_off();
    lab.run(TH + 2_000);
    let stored = lab.node(&node).last_heartbeat_time.and_then(|time| time.unix_seconds()).unwrap();
    assert!((failed_at - 3..=failed_at).contains(&stored), "{stored}, failed at {failed_at}");
}
