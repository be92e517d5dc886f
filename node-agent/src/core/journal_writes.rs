//! Writes of the journal: one at a time, with the services that wait for each (FENCING, section 6).

use super::effect::{Effect, JournalWriteId, Level};
use super::service::Step;
use super::{AgentCore, Now};
use ha_api_types::id::Revision;
use ha_api_types::time::{Millis, MonotonicTime};

/// Delay before the journal is written again after a failed write.
const RETRY_DELAY_MS: Millis = 5_000;

/// Progress of the journal's writes.
#[derive(Clone, Debug, Default)]
pub(super) struct JournalWrites {
    dirty: bool,
    pending_write: Option<JournalWriteId>,
    /// Number of the write that will carry changes from now on.
    next: u64,
    /// The newest write that ended, and its result.
    ended: Option<(u64, Result<(), String>)>,
    retry_at: Option<MonotonicTime>,
}

impl AgentCore {
    /// Marks the journal to be written.
    pub(super) fn mark_journal_changed(&mut self) {
        self.journal_writes.dirty = true;
        self.changed = true;
    }

    /// Records the incarnation of the followed data. If an operator ordered the node to follow the data
    /// (`ordered_by_operator`), the node has not registered there yet, so the stored registration is discarded.
    pub(super) fn follow_incarnation(&mut self, incarnation: String, ordered_by_operator: bool) {
        if ordered_by_operator {
            self.journal.request = None;
            self.journal.revision = Revision(0);
            self.highest_revision = Revision(0);
        }
        if self.journal.incarnation.as_ref() != Some(&incarnation) {
            self.journal.incarnation = Some(incarnation);
            self.mark_journal_changed();
        }
    }

    /// Returns the write that will carry the current content of the journal.
    pub(super) fn journal_next_write(&self) -> JournalWriteId {
        JournalWriteId(self.journal_writes.next)
    }

    /// Returns the result of the write; `None` while it has not ended.
    pub(super) fn journal_result(&self, write: JournalWriteId) -> Option<Result<(), String>> {
        let (ended, result) = self.journal_writes.ended.as_ref()?;
        (*ended >= write.0).then(|| result.clone())
    }

    pub(super) fn on_journal_written(&mut self, now: &Now, id: JournalWriteId, result: Result<(), String>) {
        if self.journal_writes.pending_write != Some(id) {
            return;
        }
        self.journal_writes.pending_write = None;
        if let Err(message) = &result {
            let is_known =
                matches!(&self.journal_writes.ended, Some((_, Err(previous))) if previous == message);
            if !is_known {
                self.log(Level::Error, format!("cannot write the journal: {message}"));
            }
            self.journal_writes.dirty = true;
            self.journal_writes.retry_at = Some(now.monotonic_raw + RETRY_DELAY_MS);
        }
        self.journal_writes.ended = Some((id.0, result));
        self.changed = true;
    }

    /// Writes the journal if it has changed.
    pub(super) fn advance_journal_writes(&mut self, now: &Now) {
        if !self.journal_writes.dirty || self.journal_writes.pending_write.is_some() {
            return;
        }
        if self.journal_writes.retry_at.is_some_and(|at| now.monotonic_raw < at) && !self.journal_is_awaited()
        {
            return;
        }
        self.journal_writes.retry_at = None;
        self.journal_writes.dirty = false;
        let id = JournalWriteId(self.journal_writes.next);
        self.journal_writes.next += 1;
        self.journal_writes.pending_write = Some(id);
        self.effects.push_back(Effect::WriteJournal { id, journal: Box::new(self.journal.clone()) });
    }

    pub(super) fn journal_due_at(&self) -> Option<MonotonicTime> {
        self.journal_writes
            .retry_at
            .filter(|_| self.journal_writes.dirty && self.journal_writes.pending_write.is_none())
    }

    /// Returns `true` if a service waits for the journal's next write.
    fn journal_is_awaited(&self) -> bool {
        let next = self.journal_next_write();
        self.services.values().any(
            |service| matches!(&service.step, Step::Journal { pending_write: Some(write), .. } if *write == next),
        )
    }
}
