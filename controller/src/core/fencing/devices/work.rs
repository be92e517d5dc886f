//! What this process knows of the device work on a node, and how far a recorded intent has come.

use crate::core::interface::{FencerAction, FencerOutcome, RunId};
use crate::core::situation::Situation;
use crate::core::world::Versioned;
use ha_api_types::node::FenceDevice;
use ha_api_types::record::{DeviceIntent, Fence, Revision};
use ha_api_types::time::{Millis, Mono};

/// What this process knows of the device work on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceWork {
    /// The intent that this process recorded: when it sent the commit, and the revision at which the fence holds it now.
    /// Its duration counts from the sending, so it ends no later than any other process takes it to end.
    pub intended: Option<(Mono, Revision)>,
    /// The run under way.
    pub running: Option<RunId>,
    /// What became of the last run.
    pub outcome: Option<FencerOutcome>,
    /// What the last run was told to do.
    pub told: Option<FencerAction>,
    /// Runs of that kind that failed in a row; they choose the next device, and the pause before it.
    pub failures: u32,
    /// When the last run ended.
    pub ended: Mono,
}

impl DeviceWork {
    /// An intent of this process was recorded: sent then, applied at this revision.
    pub(in crate::core) fn intend(&mut self, sent: Mono, revision: Revision) {
        self.intended = Some((sent, revision));
        self.running = None;
        self.outcome = None;
    }

    /// The fence was rewritten while the device goes on.
    pub(in crate::core) fn carry(&mut self, revision: Revision) {
        if let Some((_, held)) = &mut self.intended {
            *held = revision;
        }
    }

    /// The intent is no longer recorded.
    pub(in crate::core) fn settle(&mut self) {
        self.intended = None;
        self.running = None;
        self.outcome = None;
    }

    /// A run was started.
    pub(in crate::core) fn start(&mut self, id: RunId, action: FencerAction) {
        self.running = Some(id);
        if self.told.replace(action) != Some(action) {
            self.failures = 0;
        }
    }

    /// A run has ended; one that is not waited for any more says nothing.
    pub(in crate::core) fn end(&mut self, id: RunId, outcome: FencerOutcome, now: Mono) {
        if self.running != Some(id) {
            return;
        }
        self.running = None;
        self.ended = now;
        match &outcome {
            FencerOutcome::Confirmed => self.failures = 0,
            FencerOutcome::Failed(_) => self.failures = self.failures.saturating_add(1),
        }
        self.outcome = Some(outcome);
    }

    /// Failed runs in a row that were told to do this.
    pub(super) fn failures_of(&self, action: FencerAction) -> u32 {
        if self.told == Some(action) { self.failures } else { 0 }
    }

    /// When the next run may be told to do this: 2 s after a first failure, then 4 s, … up to a minute.
    pub(super) fn resumes(&self, action: FencerAction) -> Option<Mono> {
        let failures = self.failures_of(action);
        (failures > 0).then(|| self.ended + (1_000_u64 << failures.min(6)).min(60_000))
    }
}

/// What a device's work may take in all, milliseconds: each attempt its timeout, and a second for what lies between.
pub fn duration_ms(device: &FenceDevice) -> Millis {
    (u64::from(device.timeout_seconds) * 1000 + 500) * (u64::from(device.retries) + 1) + 1_000
}

/// How far a recorded intent has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage<'a> {
    /// Ours, and not begun: it may run until then.
    ToStart { device: &'a FenceDevice, ends: Mono },
    /// Ours, and at work.
    AtWork,
    /// Ours, with what came of it.
    Ended(FencerOutcome),
    /// It is over and nobody knows what came of it: another process recorded it and its duration has passed, or its
    /// device is not declared any more.
    Passed,
    /// Another process recorded it, and may be at work until then.
    Foreign { passes: Mono },
}

impl<'a> Stage<'a> {
    pub(super) fn of(
        situation: &Situation<'_>,
        fence: &Versioned<Fence>,
        intent: &DeviceIntent,
        devices: &[&'a FenceDevice],
        work: &DeviceWork,
    ) -> Stage<'a> {
        let now = situation.now.raw;
        let Some(sent) = sent_by_us(situation, fence, work) else {
            let passes = fence.seen + intent.duration_ms;
            return if now < passes { Stage::Foreign { passes } } else { Stage::Passed };
        };
        let device = devices.iter().find(|device| device.name == intent.name);
        let ends = sent + intent.duration_ms;
        match (&work.outcome, work.running, device) {
            (Some(outcome), _, _) => Stage::Ended(outcome.clone()),
            (None, Some(_), _) => Stage::AtWork,
            (None, None, Some(device)) if now < ends => Stage::ToStart { device, ends },
            // Only we could start it, and we do not.
            (None, None, _) => Stage::Passed,
        }
    }
}

/// When this process sent the intent that the fence holds now.
pub(super) fn sent_by_us(
    situation: &Situation<'_>,
    fence: &Versioned<Fence>,
    work: &DeviceWork,
) -> Option<Mono> {
    let intent = fence.value.device.as_ref()?;
    let (sent, revision) = work.intended?;
    (intent.term == situation.term && revision == fence.modified).then_some(sent)
}
