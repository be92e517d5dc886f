//! The times of this process's commits. They determine whether this process may draw conclusions from missing
//! heartbeats.

use ha_api_types::time::{Millis, MonotonicTime};

/// Record of the pauses between a process's own applied commits.
///
/// While a process cannot commit, possibly no process can. The absence of events in that time is therefore not proof
/// (FENCING, section 5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitGaps {
    last_commit_at: Option<MonotonicTime>,
    /// End and length of each pause, newest last.
    pauses: Vec<(MonotonicTime, Millis)>,
}

/// Pauses shorter than this are irrelevant: Th/2 is longer for every valid timing.
const MIN_PAUSE_MS: Millis = 150;
/// Maximum number of recorded pauses. If there are more, the newest are kept, because the latest pause determines the
/// restart of an observation.
const MAX_PAUSES: usize = 4096;

impl CommitGaps {
    /// Records that a commit of this process was applied; the answer arrived at `now`.
    pub fn record_commit(&mut self, now: MonotonicTime) {
        if self.last_commit_at.is_none() {
            // Before the first commit of this process, possibly no process could commit. Earlier observations therefore
            // start again now.
            self.pauses.push((now, Millis::MAX));
        }
        if let Some(last_commit_at) = self.last_commit_at {
            let length = now.since(last_commit_at);
            if length > MIN_PAUSE_MS {
                // A longer pause with a later end makes shorter earlier pauses irrelevant.
                while self.pauses.last().is_some_and(|(_, shorter_ms)| *shorter_ms <= length) {
                    self.pauses.pop();
                }
                self.pauses.push((now, length));
                if self.pauses.len() > MAX_PAUSES {
                    self.pauses.remove(0);
                }
            }
        }
        self.last_commit_at = Some(now);
    }

    /// Returns the time at which an observation that began at `since` must start again: the end of the last pause
    /// longer than `longest_ms`. `None` if the observation remains valid.
    pub fn restart_time_of(&self, since: MonotonicTime, longest_ms: Millis) -> Option<MonotonicTime> {
        self.last_pause(since, longest_ms).map(|(_, end)| end)
    }

    /// Returns begin and end of the last pause longer than `longest_ms` that ended after `since`. A pause before the
    /// first commit begins at 0.
    pub fn last_pause(
        &self,
        since: MonotonicTime,
        longest_ms: Millis,
    ) -> Option<(MonotonicTime, MonotonicTime)> {
        self.pauses
            .iter()
            .rev()
            .find(|(end, length)| *length > longest_ms && *end > since)
            .map(|(end, length)| (MonotonicTime(end.0.saturating_sub(*length)), *end))
    }

    /// Returns `true` if this process has ever committed.
    pub fn has_committed(&self) -> bool {
        self.last_commit_at.is_some()
    }

    /// Returns `true` if this process has committed within the last `longest_ms`.
    pub fn is_current(&self, now: MonotonicTime, longest_ms: Millis) -> bool {
        self.last_commit_at.is_some_and(|last_commit_at| now.since(last_commit_at) <= longest_ms)
    }
}
