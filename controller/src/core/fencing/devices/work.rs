//! State of the device work on a node in this process, and the progress of a recorded intent.

use crate::core::interface::{FencerAction, FencerOutcome, RunId};
use crate::core::plan_input::PlanInput;
use crate::core::world::Versioned;
use ha_api_types::id::Revision;
use ha_api_types::node::FenceDevice;
use ha_api_types::record::{DeviceIntent, Fence};
use ha_api_types::time::{Millis, MonotonicTime};
use std::collections::BTreeMap;

/// State of the device work on one node, in this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceWork {
    /// Intent that this process recorded: the time at which it sent the commit, and the revision at which the fence
    /// now holds the intent. The duration counts from the sending, so it ends no later than other processes assume.
    pub intended: Option<(MonotonicTime, Revision)>,
    /// Revision at which that intent was recorded. Later writes of the fence keep the intent.
    pub recorded: Revision,
    /// The run in progress.
    pub running: Option<RunId>,
    /// Outcome of the last run.
    pub outcome: Option<FencerOutcome>,
    /// Action of the last run.
    pub last_action: Option<FencerAction>,
    /// Device of the last run.
    pub device: String,
    /// Time and error of the last failed Off of each device that has not confirmed Off since.
    pub failed_off: BTreeMap<String, (MonotonicTime, String)>,
    /// Number of consecutive failed runs of the last action. The number selects the next device, and the pause before
    /// it.
    pub failures: u32,
    /// Time at which the last run ended.
    pub ended: MonotonicTime,
}

impl DeviceWork {
    /// Records an intent of this process: the time of sending, and the revision at which it was applied.
    pub(in crate::core) fn record_intent(&mut self, sent: MonotonicTime, revision: Revision) {
        self.intended = Some((sent, revision));
        self.recorded = revision;
        self.running = None;
        self.outcome = None;
    }

    /// Records the revision of a fence that was written while the device keeps working.
    pub(in crate::core) fn update_intent_revision(&mut self, revision: Revision) {
        if let Some((_, known_revision)) = &mut self.intended {
            *known_revision = revision;
        }
    }

    /// Clears the intent, because the fence no longer records it.
    pub(in crate::core) fn clear_intent(&mut self) {
        self.intended = None;
        self.running = None;
        self.outcome = None;
    }

    /// Records the start of a run.
    pub(in crate::core) fn start(&mut self, id: RunId, action: FencerAction, device: &str) {
        self.running = Some(id);
        device.clone_into(&mut self.device);
        if self.last_action.replace(action) != Some(action) {
            self.failures = 0;
        }
    }

    /// Records the end of a run. The outcome of a run that is no longer awaited is ignored.
    pub(in crate::core) fn record_end(&mut self, id: RunId, outcome: FencerOutcome, now: MonotonicTime) {
        if self.running != Some(id) {
            return;
        }
        self.running = None;
        self.ended = now;
        let was_off = self.last_action == Some(FencerAction::Off);
        match &outcome {
            FencerOutcome::Confirmed => {
                self.failures = 0;
                self.failed_off.retain(|device, _| !was_off || *device != self.device);
            }
            FencerOutcome::Failed(error) => {
                self.failures = self.failures.saturating_add(1);
                if was_off {
                    self.failed_off.insert(self.device.clone(), (now, error.clone()));
                }
            }
        }
        self.outcome = Some(outcome);
    }

    /// Returns the number of consecutive failed runs of this action.
    pub(super) fn failures_of(&self, action: FencerAction) -> u32 {
        if self.last_action == Some(action) { self.failures } else { 0 }
    }

    /// Returns the earliest time of the next run of this action: 2 s after a first failure, then 4 s, up to a minute.
    pub(super) fn retry_at(&self, action: FencerAction) -> Option<MonotonicTime> {
        let failures = self.failures_of(action);
        (failures > 0).then(|| self.ended + (1_000_u64 << failures.min(6)).min(60_000))
    }
}

/// Returns the maximum duration of a device's work, in milliseconds: the timeout of each attempt plus the time
/// between attempts.
pub fn duration_ms(device: &FenceDevice) -> Millis {
    (u64::from(device.timeout_seconds) * 1000 + 500) * (u64::from(device.retries) + 1) + 1_000
}

/// Progress of a recorded intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum IntentStage<'a> {
    /// Recorded by this process and not started; the device may start until `ends_at`.
    ToStart { device: &'a FenceDevice, ends_at: MonotonicTime },
    /// Recorded by this process, and in progress.
    Running,
    /// Recorded by this process, and ended with this outcome.
    Ended(FencerOutcome),
    /// Ended with an unknown outcome: another process recorded it and its duration has passed, or its device is no
    /// longer declared.
    Expired,
    /// Recorded by another process, which may run the device until `expires_at`.
    OtherProcess { expires_at: MonotonicTime },
}

impl<'a> IntentStage<'a> {
    pub(super) fn of(
        input: &PlanInput<'_>,
        fence: &Versioned<Fence>,
        intent: &DeviceIntent,
        devices: &[&'a FenceDevice],
        work: &DeviceWork,
    ) -> IntentStage<'a> {
        let now = input.now.monotonic_raw;
        let Some(sent) = own_intent_sent_at(input, fence, work) else {
            let expires_at = fence.first_seen_at + intent.duration_ms;
            return if now < expires_at {
                IntentStage::OtherProcess { expires_at }
            } else {
                IntentStage::Expired
            };
        };
        let device = devices.iter().find(|device| device.name == intent.name);
        let ends_at = sent + intent.duration_ms;
        match (&work.outcome, work.running, device) {
            (Some(outcome), _, _) => IntentStage::Ended(outcome.clone()),
            (None, Some(_), _) => IntentStage::Running,
            (None, None, Some(device)) if now < ends_at => IntentStage::ToStart { device, ends_at },
            // Only this process could start the device, but the time of the intent has passed, or the device is no
            // longer declared.
            (None, None, _) => IntentStage::Expired,
        }
    }
}

/// Returns the time at which this process sent the intent that the fence holds now.
pub(super) fn own_intent_sent_at(
    input: &PlanInput<'_>,
    fence: &Versioned<Fence>,
    work: &DeviceWork,
) -> Option<MonotonicTime> {
    let intent = fence.value.device.as_ref()?;
    let (sent, revision) = work.intended?;
    (intent.term == input.term && revision == fence.mod_revision).then_some(sent)
}
