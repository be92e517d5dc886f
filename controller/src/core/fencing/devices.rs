//! Fence devices. The leader records its intent before it starts a device, and only a confirmed end counts. Once the
//! services are released, the device restores power. A fabric device restores access after another boot, or on an
//! operator's request.

mod work;

pub use work::{DeviceWork, duration_ms};

use super::{FencedNode, is_unchanged_since_request, rewrite_fence};
use crate::core::interface::{FencerAction, FencerOutcome, FencerRun, RunId};
use crate::core::plan::{OnApplied, Plan, Subject, node_event, serialized};
use crate::core::plan_input::PlanInput;
use crate::core::world::Versioned;
use ha_api_types::event::{Event, EventType};
use ha_api_types::id::NodeName;
use ha_api_types::kind::Kind;
use ha_api_types::node::{FenceAction, FenceDevice, FenceKind};
use ha_api_types::operation::{Operation, OperationAction};
use ha_api_types::reason::Reason;
use ha_api_types::record::{DeviceIntent, Fence, FenceState, NodeReport, Proof, ShutdownKind, Switch};
use ha_api_types::time::MonotonicTime;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use work::IntentStage;

/// Returns `true` if an operator has requested fencing of this node with its devices.
pub(super) fn is_fencing_requested(input: &PlanInput<'_>, node: &NodeName) -> bool {
    open_operations_on(input, OperationAction::Fence, node).next().is_some()
}

/// Returns the errors of a node's devices, if each has failed to switch the node off since the given time. `None` while
/// a device may still confirm.
pub(in crate::core) fn device_errors_since(
    input: &PlanInput<'_>,
    node: &NodeName,
    since: MonotonicTime,
) -> Option<String> {
    let failed = &input.devices.get(node)?.failed_off;
    let errors = proving_devices(input, node).into_iter().map(|device| {
        let (at, error) = failed.get(&device.name)?;
        (*at >= since).then(|| format!("{}: {error}", device.name))
    });
    let errors: Vec<String> = errors.collect::<Option<_>>()?;
    (!errors.is_empty()).then(|| errors.join("; "))
}

/// Returns `true` if an operator has requested to reconnect this node, and the fence is still as the operator saw it.
fn is_reconnect_requested(input: &PlanInput<'_>, node: &NodeName, fence: &Fence) -> bool {
    open_operations_on(input, OperationAction::Unfence, node)
        .any(|operation| is_unchanged_since_request(&operation.spec, fence))
}

/// Returns the unfinished operations of this kind on a node.
fn open_operations_on<'a>(
    input: &PlanInput<'a>,
    action: OperationAction,
    node: &'a NodeName,
) -> impl Iterator<Item = &'a Operation> {
    let open = input.cluster_view.open_operations().map(|(_, operation)| &operation.value);
    open.filter(move |operation| {
        operation.spec.action == action && operation.spec.node.as_ref() == Some(node)
    })
}

/// Returns the fabric devices that keep a closed node disconnected, according to the fence record.
pub(in crate::core) fn disconnecting_devices<'a>(
    input: &PlanInput<'a>,
    node: &NodeName,
    fence: &Fence,
) -> Vec<&'a FenceDevice> {
    let names = switched_off(fence);
    let disconnecting = proving_devices(input, node).into_iter();
    disconnecting.filter(|device| device.kind == FenceKind::Fabric && names.contains(&device.name)).collect()
}

/// Returns `true` if the device of this name switches the node's power, rather than only disconnecting the node.
pub(super) fn is_power_device(input: &PlanInput<'_>, node: &NodeName, name: &str) -> bool {
    proving_devices(input, node).iter().any(|device| device.name == name && device.kind == FenceKind::Power)
}

/// Returns the devices in the spec of a node.
pub(in crate::core) fn declared_devices<'a>(input: &PlanInput<'a>, node: &NodeName) -> &'a [FenceDevice] {
    input.cluster_view.nodes.get(node).map_or(&[], |node| &node.value.spec.fencing.devices)
}

/// Returns `true` if the confirmation of a declared device is a proof.
pub(in crate::core) fn is_proving(input: &PlanInput<'_>, node: &NodeName, device: &FenceDevice) -> bool {
    device.confirms_power_off() && !is_refuted(input, node, device)
}

/// Returns the declared devices whose confirmation is a proof, by priority.
fn proving_devices<'a>(input: &PlanInput<'a>, node: &NodeName) -> Vec<&'a FenceDevice> {
    let declared = declared_devices(input, node).iter();
    let mut devices: Vec<&FenceDevice> = declared.filter(|device| is_proving(input, node, device)).collect();
    devices.sort_by(|a, b| (a.priority, &a.name).cmp(&(b.priority, &b.name)));
    devices
}

/// Returns `true` if the device, as it is declared now, confirmed a boot off that registered again (FENCING, R5.47).
pub(in crate::core) fn is_refuted(input: &PlanInput<'_>, node: &NodeName, device: &FenceDevice) -> bool {
    let fence = input.cluster_view.fences.get(node);
    let digest = fence.and_then(|fence| fence.value.refuted_devices.get(&device.name));
    digest.is_some_and(|digest| *digest == definition_digest(device))
}

/// Returns the device whose confirmation a registration refutes: the device confirmed the machine off, and the same
/// boot registers. The registration guards the fence that contains the confirmation. The boot therefore still ran after
/// the confirmation.
pub(super) fn device_refuted_by_registration<'a>(
    input: &PlanInput<'a>,
    node: &NodeName,
    fence: &Fence,
    report: &NodeReport,
) -> Option<&'a FenceDevice> {
    let Some(Proof::Device { name }) = &fence.proof else { return None };
    if fence.boot_id.is_empty() || report.boot_id != fence.boot_id {
        return None;
    }
    let is_confirming = |device: &&FenceDevice| device.name == *name && device.kind == FenceKind::Power;
    proving_devices(input, node).into_iter().find(is_confirming)
}

/// Returns the devices that remain refuted when an epoch opens, and the newly refuted device.
pub(super) fn refuted_devices(
    input: &PlanInput<'_>,
    node: &NodeName,
    newly_refuted: Option<&FenceDevice>,
) -> BTreeMap<String, String> {
    let refuted_devices =
        declared_devices(input, node).iter().filter(|device| is_refuted(input, node, device));
    refuted_devices
        .chain(newly_refuted)
        .map(|device| (device.name.clone(), definition_digest(device)))
        .collect()
}

/// Returns the description of a refuted device, for an event and a condition.
pub(super) fn refuted_message(device: &FenceDevice) -> String {
    format!(
        "Fence device {} confirmed that the machine was off, but the same boot registered again: the device switches \
         another machine or no machine. Its confirmations do not count until its definition changes",
        device.name
    )
}

/// Returns a digest of a device's definition, which contains passwords and is not copied to the record for that reason.
fn definition_digest(device: &FenceDevice) -> String {
    let digest = Sha256::digest(serialized(device));
    let prefix = digest.first_chunk().copied().unwrap_or_default();
    format!("{:032x}", u128::from_be_bytes(prefix))
}

/// Returns the devices that were ordered to switch the machine off and have not confirmed since that it is on,
/// according to the fence record.
fn switched_off(fence: &Fence) -> Vec<String> {
    let mut names = fence.switched_off.clone();
    // A record from a version without the list contains at most the intent.
    if let Some(intent) = fence.device.as_ref().filter(|intent| intent.switch == Switch::Off)
        && !names.contains(&intent.name)
    {
        names.push(intent.name.clone());
    }
    names
}

/// The node's devices and the state of their work in this process, while the fence of the node is planned.
struct DevicePlanner<'p, 'a> {
    input: &'p PlanInput<'a>,
    subject: &'p FencedNode<'p>,
    fence: &'p Versioned<Fence>,
    devices: Vec<&'a FenceDevice>,
    work: DeviceWork,
}

/// Plans the work on a node that is Fencing: intent, run, proof.
pub(super) fn plan_fencing(
    input: &PlanInput<'_>,
    subject: &FencedNode<'_>,
    fence: &Versioned<Fence>,
    plan: &mut Plan,
) {
    let planner = DevicePlanner::of(input, subject, fence);
    let Some(intent) = &fence.value.device else {
        planner.switch_off(plan);
        return;
    };
    match planner.stage(intent) {
        IntentStage::ToStart { device, ends_at } => {
            planner.start_device(device, intent.switch, ends_at, plan);
        }
        IntentStage::Running => {}
        IntentStage::Ended(FencerOutcome::Confirmed) if intent.switch == Switch::Off => {
            let proof = Proof::Device { name: intent.name.clone() };
            let message = format!("Fenced: {}", proof.sentence());
            let events = vec![planner.event(EventType::Warning, Reason::FenceDeviceConfirmed, message)];
            let value = Fence {
                state: FenceState::Fenced,
                proof: Some(proof),
                off_revision: Some(planner.work.recorded),
                at: input.now.timestamp(),
                ..planner.without_intent(intent)
            };
            planner.continue_with_next_device(value, events, plan);
        }
        IntentStage::Ended(FencerOutcome::Failed(error)) => {
            let events = vec![planner.failure_event(intent, &error)];
            planner.clear_intent(&planner.without_intent(intent), events, plan);
        }
        IntentStage::Ended(FencerOutcome::Confirmed) | IntentStage::Expired => {
            planner.clear_intent(&planner.without_intent(intent), Vec::new(), plan);
        }
        IntentStage::OtherProcess { expires_at } => planner.wait_for_other_process(intent, expires_at, plan),
    }
}

/// Plans the work on a node that is closed with a proof, so that all of its services are released. Waits for running
/// devices, and switches the node on again if its devices switched it off for a reboot. Returns `true` if the epoch
/// must not be opened before that.
///
/// If `needs_later_proof`, a service may have arrived after the proof, and a device confirms again that the node is off
/// (R8.17). A node that requests an epoch is on, so it is admitted instead, and is asked about the arrival.
pub(super) fn plan_closed(
    input: &PlanInput<'_>,
    subject: &FencedNode<'_>,
    fence: &Versioned<Fence>,
    needs_later_proof: bool,
    plan: &mut Plan,
) -> bool {
    let planner = DevicePlanner::of(input, subject, fence);
    let switches_off = needs_later_proof
        && !planner.devices.is_empty()
        && !planner.requests_epoch(&fence.value)
        && (input.cluster_view.settings().disarmed.is_none() || is_fencing_requested(input, subject.name));
    let Some(intent) = &fence.value.device else {
        if switches_off {
            planner.switch_off(plan);
            return true;
        }
        return planner.switch_on_again(plan);
    };
    match (planner.stage(intent), intent.switch) {
        (IntentStage::ToStart { device, ends_at }, Switch::On) => {
            planner.start_device(device, Switch::On, ends_at, plan);
        }
        (IntentStage::ToStart { device, ends_at }, Switch::Off) if switches_off => {
            planner.start_device(device, Switch::Off, ends_at, plan);
        }
        (IntentStage::Ended(FencerOutcome::Confirmed), Switch::Off) if needs_later_proof => {
            let proof = Proof::Device { name: intent.name.clone() };
            let message = format!("Fenced: {}", proof.sentence());
            let events = vec![planner.event(EventType::Warning, Reason::FenceDeviceConfirmed, message)];
            let is_kept = is_left_off(&fence.value);
            let value = Fence {
                state: FenceState::Fenced,
                proof: if is_kept { fence.value.proof.clone() } else { Some(proof) },
                off_revision: Some(planner.work.recorded),
                at: input.now.timestamp(),
                ..planner.without_intent(intent)
            };
            planner.clear_intent(&value, events, plan);
        }
        // A switch-on in between would reset the pause before the next attempt.
        (IntentStage::Ended(FencerOutcome::Failed(error)), Switch::Off) if switches_off => {
            let events = vec![planner.failure_event(intent, &error)];
            planner.clear_intent(&planner.without_intent(intent), events, plan);
        }
        (IntentStage::Expired, Switch::Off) if switches_off => {
            planner.clear_intent(&planner.without_intent(intent), Vec::new(), plan);
        }
        (IntentStage::Running, Switch::Off | Switch::On) => {}
        (IntentStage::OtherProcess { expires_at }, _) => {
            planner.wait_for_other_process(intent, expires_at, plan);
        }
        // Even after a failure the device may have switched the machine off.
        (IntentStage::Ended(FencerOutcome::Failed(error)), Switch::Off) => {
            let events = vec![planner.failure_event(intent, &error)];
            planner.continue_with_next_device(planner.without_intent(intent), events, plan);
        }
        (IntentStage::ToStart { .. } | IntentStage::Ended(_) | IntentStage::Expired, Switch::Off)
        | (IntentStage::Expired, Switch::On) => {
            planner.continue_with_next_device(planner.without_intent(intent), Vec::new(), plan);
        }
        (IntentStage::Ended(FencerOutcome::Confirmed), Switch::On) => {
            let mut value = planner.without_intent(intent);
            value.switched_off.retain(|name| *name != intent.name);
            planner.continue_with_next_device(value, Vec::new(), plan);
        }
        (IntentStage::Ended(FencerOutcome::Failed(error)), Switch::On) => {
            let message = format!("Fence device {} did not power the node on again: {error}", intent.name);
            // Only the first of consecutive failures gets an event; the waiting message shows the retries.
            let first = planner.work.failures == 1;
            let event = planner.event(EventType::Warning, Reason::FenceDeviceFailed, message);
            planner.clear_intent(
                &planner.without_intent(intent),
                first.then_some(event).into_iter().collect(),
                plan,
            );
        }
    }
    true
}

/// Returns `true` if a person switched the machine of a closed node off. No device switches it on again.
fn is_left_off(fence: &Fence) -> bool {
    matches!(
        fence.proof,
        Some(Proof::Operator { .. } | Proof::CleanLeave { shutdown_kind: ShutdownKind::Poweroff })
    )
}

impl<'p, 'a> DevicePlanner<'p, 'a> {
    fn of(
        input: &'p PlanInput<'a>,
        subject: &'p FencedNode<'p>,
        fence: &'p Versioned<Fence>,
    ) -> DevicePlanner<'p, 'a> {
        let work = input.devices.get(subject.name).cloned().unwrap_or_default();
        DevicePlanner { input, subject, fence, devices: proving_devices(input, subject.name), work }
    }

    fn stage(&self, intent: &DeviceIntent) -> IntentStage<'a> {
        IntentStage::of(self.input, self.fence, intent, &self.devices, &self.work)
    }

    /// Returns the fence after the end of its intent.
    ///
    /// A registration that is older than the end of an Off counts as answered, because the machine may be off since. If
    /// the agent is alive, it registers again, and the new registration shows that the machine is on. A registration
    /// cannot arrive late, because it guards the fence.
    fn without_intent(&self, intent: &DeviceIntent) -> Fence {
        let fence = &self.fence.value;
        let registration_revision = self.subject.registration().map(|report| report.mod_revision);
        let request = match intent.switch {
            Switch::Off => registration_revision.or(fence.request),
            Switch::On => fence.request,
        };
        Fence { request, device: None, switched_off: switched_off(fence), ..fence.clone() }
    }

    /// Plans the next attempt to switch the node off, while no device is running. After a failure, the next device is
    /// tried.
    fn switch_off(&self, plan: &mut Plan) {
        if self.wait_for_retry(FencerAction::Off, plan) {
            return;
        }
        let attempt = usize::try_from(self.work.failures_of(FencerAction::Off)).unwrap_or(0);
        if let Some(device) = self.devices.get(attempt % self.devices.len().max(1)) {
            self.record_intent(self.fence.value.clone(), device, Switch::Off, Vec::new(), plan);
        }
    }

    /// Returns `true` if the leader has not answered the node's latest registration. The machine is then on.
    fn requests_epoch(&self, fence: &Fence) -> bool {
        self.subject.registration().is_some_and(|report| fence.request != Some(report.mod_revision))
    }

    /// Plans the next run of a device for a closed node, while no device is running. Returns `true` if the epoch of the
    /// node must stay closed.
    fn switch_on_again(&self, plan: &mut Plan) -> bool {
        let fence = &self.fence.value;
        let Some(device) = self.next_to_switch_on(fence) else { return self.wait_while_disconnected(plan) };
        if self.wait_for_retry(FencerAction::On, plan) {
            let message = format!("Waiting for fence device {} to power the node on again", device.name);
            plan.add_wait(Kind::Node, self.subject.name, Reason::FenceDeviceFailed, message);
        } else {
            self.record_intent(fence.clone(), device, Switch::On, Vec::new(), plan);
        }
        true
    }

    /// Returns `true`, and waits, if a fabric device keeps the node disconnected. Such a node must not be opened for
    /// services.
    fn wait_while_disconnected(&self, plan: &mut Plan) -> bool {
        let disconnecting = disconnecting_devices(self.input, self.subject.name, &self.fence.value);
        let Some(device) = disconnecting.first() else { return false };
        let name = self.subject.name;
        let message = match device.action {
            FenceAction::Reboot => format!(
                "Fence device {} disconnected the node until it registers after a reboot. Reboot the machine, or, if no service that was started before the fencing still runs on it, run hactl node unfence {name}",
                device.name
            ),
            FenceAction::Off => format!(
                "Fence device {} disconnected the node until an operator reconnects it. When the machine is \
                 repaired, run hactl node unfence {name}",
                device.name
            ),
        };
        plan.add_wait(Kind::Node, name, Reason::FencedOff, message);
        true
    }

    /// Writes the fence after a device's work on a closed node has ended, with the next device that must switch the
    /// node on, if any.
    fn continue_with_next_device(&self, value: Fence, events: Vec<Event>, plan: &mut Plan) {
        match self.next_to_switch_on(&value) {
            Some(device) => self.record_intent(value, device, Switch::On, events, plan),
            None => self.clear_intent(&value, events, plan),
        }
    }

    /// Returns the first declared device that must switch the machine on or reconnect it.
    ///
    /// Power returns as soon as all services are released, with two exceptions. A machine that requests an epoch is
    /// already on. A machine that an operator has confirmed off is switched on by the operator. A disconnected machine
    /// keeps running: its old services count as ended only after another boot, or if an operator confirms it.
    fn next_to_switch_on(&self, fence: &Fence) -> Option<&'a FenceDevice> {
        let names = switched_off(fence);
        let registration = self.subject.registration();
        let requests_epoch = self.requests_epoch(fence);
        let confirmed = matches!(fence.proof, Some(Proof::Operator { .. }));
        let rebooted = registration.is_some_and(|report| {
            report.value.boot_id != fence.boot_id
                && (report.value.machine_id == fence.machine_id || confirmed)
        });
        let due = |device: &FenceDevice| {
            let reboots = device.action == FenceAction::Reboot;
            match device.kind {
                FenceKind::Power => reboots && !requests_epoch && !is_left_off(fence),
                FenceKind::Fabric => {
                    (reboots && rebooted) || is_reconnect_requested(self.input, self.subject.name, fence)
                }
            }
        };
        self.devices.iter().find(|device| names.contains(&device.name) && due(device)).copied()
    }

    /// Returns `true`, and sets a wake-up, if runs of this kind pause after a failure.
    fn wait_for_retry(&self, action: FencerAction, plan: &mut Plan) -> bool {
        let retry_at = self.work.retry_at(action).filter(|retry_at| self.input.now.monotonic_raw < *retry_at);
        if let Some(retry_at) = retry_at {
            plan.wake_at(self.input, retry_at, "a fence device is retried");
        }
        retry_at.is_some()
    }

    fn has_failed_on(&self) -> bool {
        self.work.failures_of(FencerAction::On) > 0
    }

    fn record_intent(
        &self,
        value: Fence,
        device: &FenceDevice,
        switch: Switch,
        mut events: Vec<Event>,
        plan: &mut Plan,
    ) {
        let (operation, retried) = match (switch, device.kind) {
            (Switch::Off, _) if value.proof.is_some() => (
                "was started again, because a service may have arrived after the node was fenced",
                self.work.failures_of(FencerAction::Off) > 0,
            ),
            (Switch::Off, _) => ("was started", false),
            (Switch::On, FenceKind::Power) => {
                ("was started to power the node on again", self.has_failed_on())
            }
            (Switch::On, FenceKind::Fabric) => ("was started to reconnect the node", self.has_failed_on()),
        };
        if !retried {
            let message = format!("Fence device {} {operation}", device.name);
            events.push(self.event(EventType::Normal, Reason::FenceDeviceStarted, message));
        }
        let mut switched_off = value.switched_off.clone();
        let needs_restore = device.action == FenceAction::Reboot || device.kind == FenceKind::Fabric;
        if switch == Switch::Off && needs_restore && !switched_off.contains(&device.name) {
            switched_off.push(device.name.clone());
        }
        let intent = DeviceIntent {
            name: device.name.clone(),
            duration_ms: duration_ms(device),
            term: self.input.term,
            switch,
        };
        let value = Fence { device: Some(intent), switched_off, ..value };
        self.write(&value, events, OnApplied::DeviceIntent(self.subject.name.to_owned()), plan);
    }

    fn clear_intent(&self, value: &Fence, events: Vec<Event>, plan: &mut Plan) {
        self.write(value, events, OnApplied::DeviceIntentCleared(self.subject.name.to_owned()), plan);
    }

    fn write(&self, value: &Fence, events: Vec<Event>, on_applied: OnApplied, plan: &mut Plan) {
        let transaction = rewrite_fence(self.input, self.subject, self.fence, value);
        plan.add_action(Subject::Fence(self.subject.name.to_owned()), transaction, events, on_applied);
    }

    /// Starts the intended device with the remaining time of the intent.
    fn start_device(&self, device: &FenceDevice, switch: Switch, ends_at: MonotonicTime, plan: &mut Plan) {
        plan.wake_at(self.input, ends_at, "the time limit of a fence device has passed");
        let action = match switch {
            Switch::Off => FencerAction::Off,
            Switch::On => FencerAction::On,
        };
        plan.runs.push(FencerRun {
            id: RunId::default(),
            node: self.subject.name.to_owned(),
            device: device.clone(),
            action,
            limit_ms: ends_at.since(self.input.now.monotonic_raw),
        });
    }

    /// Waits until the recorded duration has passed since this process saw the record. After that, no process starts
    /// the device.
    fn wait_for_other_process(&self, intent: &DeviceIntent, expires_at: MonotonicTime, plan: &mut Plan) {
        plan.wake_at(self.input, expires_at, "the time limit of a recorded fence device has passed");
        let message = format!("Fence device {} may still be running", intent.name);
        plan.add_wait(Kind::Node, self.subject.name, Reason::FenceDeviceStarted, message);
    }

    fn failure_event(&self, intent: &DeviceIntent, error: &str) -> Event {
        let message = format!("Fence device {} failed: {error}", intent.name);
        self.event(EventType::Warning, Reason::FenceDeviceFailed, message)
    }

    fn event(&self, event_type: EventType, reason: Reason, message: String) -> Event {
        node_event(self.input, self.subject.name, event_type, reason, message)
    }
}

/// Returns the note for a write of the fence that keeps its intent, so that this process keeps track of the work.
pub(in crate::core) fn keep_device_work_on_applied(
    input: &PlanInput<'_>,
    node: &NodeName,
    fence: &Versioned<Fence>,
) -> OnApplied {
    let ours = input.devices.get(node).and_then(|work| work::own_intent_sent_at(input, fence, work));
    ours.map_or(OnApplied::None, |_| OnApplied::DeviceIntentKept(node.to_owned()))
}
