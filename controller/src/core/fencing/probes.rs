//! Periodic probes of fence devices, so that a broken device is found before it is needed.

use super::Subjected;
use crate::core::interface::{FencerAction, FencerOutcome, FencerRun, RunId};
use crate::core::plan::Plan;
use crate::core::situation::Situation;
use ha_api_types::reason::Reason;
use ha_api_types::time::{Millis, Mono};
use std::collections::BTreeMap;

/// Interval between probes of a device, in milliseconds.
const EVERY_MS: Millis = 600_000;
/// Time until the next probe of a device that did not answer, in milliseconds.
const AGAIN_MS: Millis = 60_000;

/// Probe state of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceProbe {
    /// The probe in progress.
    pub running: Option<RunId>,
    /// Outcome of the last probe.
    pub outcome: Option<FencerOutcome>,
    /// Time at which the last probe ended.
    pub ended: Mono,
}

/// Probes by node and device.
pub type DeviceProbes = BTreeMap<(String, String), DeviceProbe>;

/// Probes the devices of a node whose epoch is open. A probe changes nothing, so no intent is recorded.
pub(super) fn plan(situation: &Situation<'_>, subject: &Subjected<'_>, plan: &mut Plan) {
    let Some(node) = situation.world.nodes.get(subject.name) else { return };
    for device in node.value.spec.fencing.devices.iter().filter(|device| device.proves()) {
        let key = (subject.name.to_owned(), device.name.clone());
        let known = situation.probes.get(&key).cloned().unwrap_or_default();
        if known.running.is_some() {
            continue;
        }
        let due = match &known.outcome {
            None => situation.now.raw,
            Some(FencerOutcome::Confirmed) => known.ended + EVERY_MS,
            Some(FencerOutcome::Failed(_)) => known.ended + AGAIN_MS,
        };
        if situation.now.raw < due {
            plan.wake(situation, due, "a fence device is probed");
            continue;
        }
        plan.runs.push(FencerRun {
            id: 0,
            node: subject.name.to_owned(),
            device: device.clone(),
            action: FencerAction::Monitor,
            limit_ms: u64::from(device.timeout_seconds) * 1000 + 1_000,
        });
    }
}

/// Returns whether all devices of a node answer, as a condition; `None` if it has no devices or none was probed yet.
pub(in crate::core) fn verdict(situation: &Situation<'_>, node: &str) -> Option<(bool, Reason, String)> {
    let devices = &situation.world.nodes.get(node)?.value.spec.fencing.devices;
    let mut failed = Vec::new();
    let mut asked = false;
    for device in devices {
        let key = (node.to_owned(), device.name.clone());
        match situation.probes.get(&key).and_then(|probe| probe.outcome.as_ref()) {
            Some(FencerOutcome::Confirmed) => asked = true,
            Some(FencerOutcome::Failed(message)) => {
                asked = true;
                failed.push(format!("Fence device {}: {message}", device.name));
            }
            None => {}
        }
    }
    if !asked {
        return None;
    }
    Some(if failed.is_empty() {
        (true, Reason::Accepted, "All fence devices respond".to_owned())
    } else {
        (false, Reason::FenceDeviceFailed, failed.join("; "))
    })
}
