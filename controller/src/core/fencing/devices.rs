//! Fence devices: the intent is recorded before anything is started, and only a confirmed end counts.

use super::registration::without_device;
use super::{Subjected, rewrite};
use crate::core::health::device_proves;
use crate::core::interface::{FencerAction, FencerOutcome, FencerRun, RunId};
use crate::core::plan::{Note, Plan, Subject, node_event};
use crate::core::situation::Situation;
use crate::core::world::Versioned;
use ha_api_types::event::EventType;
use ha_api_types::kind::Kind;
use ha_api_types::node::{FenceAction, FenceDevice};
use ha_api_types::operation::{OperationAction, OperationPhase};
use ha_api_types::reason::Reason;
use ha_api_types::record::{DeviceIntent, Fence, FenceState, Proof, Revision};
use ha_api_types::time::{Millis, Mono};

/// What this process knows of the device work on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceWork {
    /// The intent that this process recorded: when it sent the commit, and the revision at which that was applied. Its
    /// duration counts from the sending, so it ends no later than any other process takes it to end.
    pub intended: Option<(Mono, Revision)>,
    /// The run under way.
    pub running: Option<RunId>,
    /// What became of the last run.
    pub outcome: Option<FencerOutcome>,
    /// Failed runs in a row; they choose the next device, and the pause before it.
    pub failures: u32,
    /// When the last run ended.
    pub ended: Mono,
}

/// The pause before the next run after failures, milliseconds: 2 s, 4 s, … up to a minute.
fn pause_ms(failures: u32) -> Millis {
    if failures == 0 { 0 } else { (1_000_u64 << failures.min(6)).min(60_000) }
}

/// What a device's work may take in all, milliseconds: each attempt its timeout, and a second for what lies between.
pub fn duration_ms(device: &FenceDevice) -> Millis {
    (u64::from(device.timeout_seconds) * 1000 + 500) * (u64::from(device.retries) + 1) + 1_000
}

/// Whether an operator has asked to fence this node with its devices.
pub(super) fn is_asked_for(situation: &Situation<'_>, node: &str) -> bool {
    situation.world.operations.iter().any(|(name, operation)| {
        let spec = &operation.value.spec;
        let phase =
            situation.world.operation_statuses.get(name).map_or(OperationPhase::Pending, |s| s.value.phase);
        spec.action == OperationAction::Fence && spec.node.as_deref() == Some(node) && !phase.is_final()
    })
}

fn devices<'a>(situation: &Situation<'a>, node: &str) -> Vec<&'a FenceDevice> {
    let mut devices: Vec<&FenceDevice> = situation
        .world
        .nodes
        .get(node)
        .map(|node| node.value.spec.fencing.devices.iter().filter(|device| device_proves(device)).collect())
        .unwrap_or_default();
    devices.sort_by(|a, b| (a.priority, &a.name).cmp(&(b.priority, &b.name)));
    devices
}

/// Works on a node that is Fencing: intent, run, proof.
pub(super) fn plan_fencing(
    situation: &Situation<'_>,
    subject: &Subjected<'_>,
    fence: &Versioned<Fence>,
    plan: &mut Plan,
) {
    let devices = devices(situation, subject.name);
    let work = situation.devices.get(subject.name).cloned().unwrap_or_default();
    let Some(intent) = &fence.value.device else {
        let resumes = work.ended + pause_ms(work.failures);
        if work.failures > 0 && situation.now.raw < resumes {
            plan.wake(situation, resumes, "a fence device is tried again");
            return;
        }
        let turn = usize::try_from(work.failures).unwrap_or(0);
        if let Some(device) = devices.get(turn % devices.len().max(1)) {
            intend(situation, subject, fence, device, plan);
        }
        return;
    };
    match (is_ours(situation, fence, &work), &work.outcome) {
        (Some(sent), None) => run(situation, subject, intent, &devices, FencerAction::Off, sent, &work, plan),
        (Some(_), Some(FencerOutcome::Confirmed)) => {
            confirmed(situation, subject, fence, intent, &devices, plan);
        }
        (Some(_), Some(FencerOutcome::Failed(error))) => {
            let message = format!("fence device {}: {error}", intent.name);
            let events = vec![node_event(
                situation,
                subject.name,
                EventType::Warning,
                Reason::FenceDeviceFailed,
                message,
            )];
            let transaction = without_device(situation, subject, fence);
            let note = Note::DeviceSettled(subject.name.to_owned());
            plan.act(Subject::Fence(subject.name.to_owned()), transaction, events, note);
        }
        (None, _) => await_stranger(situation, subject, fence, intent, plan),
    }
}

/// Works on a node that is closed with a proof while a device is still at work on it: power comes back after a reboot;
/// anything else must have ended before the epoch is opened again.
pub(super) fn plan_closed(
    situation: &Situation<'_>,
    subject: &Subjected<'_>,
    fence: &Versioned<Fence>,
    plan: &mut Plan,
) {
    let Some(intent) = &fence.value.device else { return };
    let devices = devices(situation, subject.name);
    let work = situation.devices.get(subject.name).cloned().unwrap_or_default();
    let powers_on = matches!(fence.value.proof, Some(Proof::Device { .. }));
    match is_ours(situation, fence, &work) {
        Some(sent) if powers_on && work.outcome.is_none() => {
            run(situation, subject, intent, &devices, FencerAction::On, sent, &work, plan);
        }
        Some(_) if work.outcome.is_some() => {
            let events = match &work.outcome {
                Some(FencerOutcome::Failed(error)) => vec![node_event(
                    situation,
                    subject.name,
                    EventType::Warning,
                    Reason::FenceDeviceFailed,
                    format!("fence device {} did not switch it on again: {error}", intent.name),
                )],
                Some(FencerOutcome::Confirmed) | None => Vec::new(),
            };
            let transaction = without_device(situation, subject, fence);
            let note = Note::DeviceSettled(subject.name.to_owned());
            plan.act(Subject::Fence(subject.name.to_owned()), transaction, events, note);
        }
        Some(_) => await_stranger(situation, subject, fence, intent, plan),
        None => {
            let passed = fence.seen + intent.duration_ms;
            let device = devices.iter().find(|device| device.name == intent.name);
            // A leader before this one confirmed it off and did not come to switch it on again.
            if let (true, true, Some(device)) = (powers_on, situation.now.raw >= passed, device)
                && intent.term != situation.term
            {
                intend(situation, subject, fence, device, plan);
                return;
            }
            await_stranger(situation, subject, fence, intent, plan);
        }
    }
}

/// When this process sent the intent that the fence holds now.
fn is_ours(situation: &Situation<'_>, fence: &Versioned<Fence>, work: &DeviceWork) -> Option<Mono> {
    let intent = fence.value.device.as_ref()?;
    let (sent, revision) = work.intended?;
    (intent.term == situation.term && revision == fence.modified).then_some(sent)
}

fn intend(
    situation: &Situation<'_>,
    subject: &Subjected<'_>,
    fence: &Versioned<Fence>,
    device: &FenceDevice,
    plan: &mut Plan,
) {
    let intent =
        DeviceIntent { name: device.name.clone(), duration_ms: duration_ms(device), term: situation.term };
    let value = Fence { device: Some(intent), ..fence.value.clone() };
    let events = vec![node_event(
        situation,
        subject.name,
        EventType::Normal,
        Reason::FenceDeviceStarted,
        format!("fence device {} is started", device.name),
    )];
    let transaction = rewrite(situation, subject, fence, &value);
    let note = Note::DeviceIntent(subject.name.to_owned());
    plan.act(Subject::Fence(subject.name.to_owned()), transaction, events, note);
}

/// Starts the device that was intended, if there is time left to end within the intent.
#[allow(clippy::too_many_arguments, reason = "all of them are facts about one run")]
fn run(
    situation: &Situation<'_>,
    subject: &Subjected<'_>,
    intent: &DeviceIntent,
    devices: &[&FenceDevice],
    action: FencerAction,
    sent: Mono,
    work: &DeviceWork,
    plan: &mut Plan,
) {
    let ends = sent + intent.duration_ms;
    plan.wake(situation, ends, "a fence device must have ended");
    if work.running.is_some() || situation.now.raw >= ends {
        return;
    }
    if let Some(device) = devices.iter().find(|device| device.name == intent.name) {
        plan.runs.push(FencerRun {
            id: 0,
            node: subject.name.to_owned(),
            device: (*device).clone(),
            action,
            limit_ms: ends.since(situation.now.raw),
        });
    }
}

fn confirmed(
    situation: &Situation<'_>,
    subject: &Subjected<'_>,
    fence: &Versioned<Fence>,
    intent: &DeviceIntent,
    devices: &[&FenceDevice],
    plan: &mut Plan,
) {
    let proof = Proof::Device { name: intent.name.clone() };
    let device = devices.iter().find(|device| device.name == intent.name);
    let power_on = device.is_some_and(|device| device.action == FenceAction::Reboot);
    let value = Fence {
        state: FenceState::Fenced,
        proof: Some(proof.clone()),
        device: device.filter(|_| power_on).map(|device| DeviceIntent {
            name: device.name.clone(),
            duration_ms: duration_ms(device),
            term: situation.term,
        }),
        at: situation.now.timestamp(),
        ..fence.value.clone()
    };
    let message = format!("it was fenced: {}", proof.sentence());
    let events =
        vec![node_event(situation, subject.name, EventType::Warning, Reason::FenceDeviceConfirmed, message)];
    let transaction = rewrite(situation, subject, fence, &value);
    let name = subject.name.to_owned();
    let note = if power_on { Note::DeviceIntent(name.clone()) } else { Note::DeviceSettled(name.clone()) };
    plan.act(Subject::Fence(name), transaction, events, note);
}

/// Waits until the recorded duration has passed since this process saw the record; then nobody starts that device any
/// more, and the record goes.
fn await_stranger(
    situation: &Situation<'_>,
    subject: &Subjected<'_>,
    fence: &Versioned<Fence>,
    intent: &DeviceIntent,
    plan: &mut Plan,
) {
    let passed = fence.seen + intent.duration_ms;
    if situation.now.raw < passed {
        plan.wake(situation, passed, "a recorded fence device must have ended");
        let message = format!("fence device {} may still be at work", intent.name);
        plan.wait(Kind::Node, subject.name, Reason::FenceDeviceStarted, message);
        return;
    }
    debug_assert!(fence.value.state != FenceState::Open, "an intent is only recorded on a closed fence");
    let transaction = without_device(situation, subject, fence);
    let note = Note::DeviceSettled(subject.name.to_owned());
    plan.act(Subject::Fence(subject.name.to_owned()), transaction, Vec::new(), note);
}
