//! Periodic probes of fence devices, so that a broken device is found before it is needed.

use super::{FencedNode, devices};
use crate::core::interface::{FencerAction, FencerOutcome, FencerRun, RunId};
use crate::core::plan::Plan;
use crate::core::plan_input::PlanInput;
use ha_api_types::id::NodeName;
use ha_api_types::node::FenceDevice;
use ha_api_types::reason::Reason;
use ha_api_types::time::{Millis, MonotonicTime};
use std::collections::BTreeMap;

/// Interval between probes of a device, in milliseconds.
const PROBE_INTERVAL_MS: Millis = 600_000;
/// Time until the next probe of a device that did not answer, in milliseconds.
const RETRY_INTERVAL_MS: Millis = 60_000;

/// Probe state of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceProbe {
    /// Definition of the device that was probed. The outcome does not apply to another address or password.
    pub device: FenceDevice,
    /// The probe in progress.
    pub running: Option<RunId>,
    /// Outcome of the last probe.
    pub outcome: Option<FencerOutcome>,
    /// Time at which the last probe ended.
    pub ended: MonotonicTime,
}

impl DeviceProbe {
    /// Notes that a probe of a device began. An outcome for another definition of the device is discarded.
    pub fn begin(&mut self, device: &FenceDevice, run: RunId) {
        if self.device != *device {
            *self = DeviceProbe { device: device.clone(), ..DeviceProbe::default() };
        }
        self.running = Some(run);
    }

    /// Notes the end of a probe, unless another one has begun since.
    pub fn record_end(&mut self, run: RunId, outcome: FencerOutcome, now: MonotonicTime) {
        if self.running == Some(run) {
            (self.running, self.outcome, self.ended) = (None, Some(outcome), now);
        }
    }
}

/// Returns the probe of this definition of a device; `None` if there was none yet.
fn probe_of<'a>(input: &PlanInput<'a>, node: &NodeName, device: &FenceDevice) -> Option<&'a DeviceProbe> {
    let probe = input.probes.get(&(node.to_owned(), device.name.clone()))?;
    (probe.device == *device).then_some(probe)
}

/// Probes by node and device.
pub type DeviceProbes = BTreeMap<(NodeName, String), DeviceProbe>;

/// Probes the devices of a node whose epoch is open. A probe has no effect on the machine, so no intent is recorded.
pub(super) fn plan(input: &PlanInput<'_>, subject: &FencedNode<'_>, plan: &mut Plan) {
    for device in
        devices::declared_devices(input, subject.name).iter().filter(|device| device.confirms_power_off())
    {
        let previous_probe = probe_of(input, subject.name, device);
        if previous_probe.is_some_and(|probe| probe.running.is_some()) {
            continue;
        }
        let due = previous_probe.map_or(input.now.monotonic_raw, |probe| match &probe.outcome {
            None => input.now.monotonic_raw,
            Some(FencerOutcome::Confirmed) => probe.ended + PROBE_INTERVAL_MS,
            Some(FencerOutcome::Failed(_)) => probe.ended + RETRY_INTERVAL_MS,
        });
        if input.now.monotonic_raw < due {
            plan.wake_at(input, due, "a fence device is probed");
            continue;
        }
        plan.runs.push(FencerRun {
            id: RunId::default(),
            node: subject.name.to_owned(),
            device: device.clone(),
            action: FencerAction::Monitor,
            limit_ms: u64::from(device.timeout_seconds) * 1000 + 1_000,
        });
    }
}

/// Returns the condition that shows whether all devices of a node answer. `None` if it has no devices, or if none
/// failed and one was not probed yet.
pub(in crate::core) fn devices_condition(
    input: &PlanInput<'_>,
    node: &NodeName,
) -> Option<(bool, Reason, String)> {
    let declared = devices::declared_devices(input, node);
    let mut failed = Vec::new();
    let mut reason = Reason::FenceDeviceFailed;
    let mut all_probed = declared.iter().any(FenceDevice::confirms_power_off);
    for device in declared.iter().filter(|device| device.confirms_power_off()) {
        if devices::is_refuted(input, node, device) {
            reason = Reason::FenceDeviceRefuted;
            failed.push(devices::refuted_message(device));
            continue;
        }
        match probe_of(input, node, device).and_then(|probe| probe.outcome.as_ref()) {
            Some(FencerOutcome::Confirmed) => {}
            Some(FencerOutcome::Failed(message)) => {
                failed.push(format!("Fence device {}: {message}", device.name));
            }
            None => all_probed = false,
        }
    }
    if !all_probed && failed.is_empty() {
        return None;
    }
    Some(if failed.is_empty() {
        (true, Reason::Accepted, "All fence devices respond".to_owned())
    } else {
        (false, reason, failed.join("; "))
    })
}
