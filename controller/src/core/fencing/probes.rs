//! Fence devices are asked from time to time whether they answer, so that a broken one is known before it is needed.

use super::Subjected;
use crate::core::interface::{FencerAction, FencerOutcome, FencerRun, RunId};
use crate::core::plan::Plan;
use crate::core::situation::Situation;
use ha_api_types::reason::Reason;
use ha_api_types::time::{Millis, Mono};
use std::collections::BTreeMap;

/// How often a device is asked, milliseconds.
const EVERY_MS: Millis = 600_000;
/// How soon a device that did not answer is asked again, milliseconds.
const AGAIN_MS: Millis = 60_000;

/// What is known of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceProbe {
    /// The probe under way.
    pub running: Option<RunId>,
    /// What the last one said.
    pub outcome: Option<FencerOutcome>,
    /// When it ended.
    pub ended: Mono,
}

/// Probes by node and device.
pub type DeviceProbes = BTreeMap<(String, String), DeviceProbe>;

/// Asks the devices of a node whose epoch is open. Asking changes nothing, so no intent is recorded.
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
            plan.wake(situation, due, "a fence device is asked whether it answers");
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

/// Whether all devices of a node answer, as a condition; `None`: it has none, or they were not asked yet.
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
                failed.push(format!("{}: {message}", device.name));
            }
            None => {}
        }
    }
    if !asked {
        return None;
    }
    Some(if failed.is_empty() {
        (true, Reason::Accepted, "its fence devices answer".to_owned())
    } else {
        (false, Reason::FenceDeviceFailed, failed.join("; "))
    })
}
