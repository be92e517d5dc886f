//! The candidate key of this process: kept across restarts, abandoned if another process holds it, refreshed every Ki
//! (R9.10 to R9.19).

use super::leadership::candidate_of;
use super::{CandidateKey, Election, FullReadId, ReadTracker, Step, WriteKind};
use crate::transaction::{Entry, Guard, Outcome, Transaction};
use ha_api_types::id::{MachineId, Revision};
use ha_api_types::record::Refresh;
use ha_api_types::time::{MonotonicTime, Now};

/// State of the candidate key from the view of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CandidateKeyState {
    /// The key must first be read, by this read or a later one. Until then, `own` is its last known state.
    Unread { reading: FullReadId, own: Option<CandidateKey> },
    /// This process must put the key: over the key of an earlier process that cannot be alive (`kept`), or because the key is
    /// absent.
    Unjoined { kept: Option<(Revision, Revision)>, due: MonotonicTime },
    /// The put is in progress.
    Joining { kept: Option<(Revision, Revision)> },
    /// The key belongs to this process; the next refresh is due at `due`.
    Own { own: CandidateKey, due: MonotonicTime },
    /// A refresh is in progress.
    Refreshing { own: CandidateKey },
    /// Another process wrote the key. This process deletes the key once it has not changed for Th.
    Foreign { machine: MachineId, revisions: (Revision, Revision), since: MonotonicTime, is_refreshed: bool },
    /// The keys of the other process are being deleted.
    Removing,
}

impl CandidateKeyState {
    pub(super) fn own(&self) -> Option<CandidateKey> {
        match self {
            CandidateKeyState::Unread { own, .. } => *own,
            CandidateKeyState::Own { own, .. } | CandidateKeyState::Refreshing { own } => Some(*own),
            CandidateKeyState::Unjoined { .. }
            | CandidateKeyState::Joining { .. }
            | CandidateKeyState::Foreign { .. }
            | CandidateKeyState::Removing => None,
        }
    }

    pub(super) fn duplicate(&self) -> Option<&MachineId> {
        match self {
            CandidateKeyState::Foreign { machine, is_refreshed: true, .. } => Some(machine),
            CandidateKeyState::Foreign { .. }
            | CandidateKeyState::Unread { .. }
            | CandidateKeyState::Unjoined { .. }
            | CandidateKeyState::Joining { .. }
            | CandidateKeyState::Own { .. }
            | CandidateKeyState::Refreshing { .. }
            | CandidateKeyState::Removing => None,
        }
    }

    /// Returns `true` if the key is known not to belong to this process.
    pub(super) fn is_lost(&self) -> bool {
        self.own().is_none()
    }
}

impl Election {
    /// Processes the candidate key of a newer view.
    pub(super) fn observe_candidate_key(&mut self, now: &Now, read_tracker: &ReadTracker) {
        if self.view.revision >= self.refresh_revision {
            self.refresh_revision =
                self.view.refresh.as_ref().map_or(Revision(0), |entry| entry.mod_revision);
        }
        let seen_revision = self.view.candidate.as_ref().map(|entry| entry.mod_revision);
        let is_other =
            |own: &CandidateKey| self.view.revision >= own.revision && seen_revision != Some(own.revision);
        match &mut self.candidate_key_state {
            CandidateKeyState::Own { own, .. }
            | CandidateKeyState::Refreshing { own }
            | CandidateKeyState::Unread { own: Some(own), .. }
                if is_other(own) =>
            {
                self.candidate_key_state = self.resolve_candidate_state(now);
            }
            CandidateKeyState::Unread { reading, own: None } if read_tracker.is_complete(*reading) => {
                self.candidate_key_state = self.resolve_candidate_state(now);
            }
            CandidateKeyState::Unread { reading, own: Some(own) } if read_tracker.is_complete(*reading) => {
                self.candidate_key_state = CandidateKeyState::Own { own: *own, due: now.monotonic_raw };
            }
            CandidateKeyState::Foreign { revisions, since, is_refreshed, .. } => {
                let candidate_revisions =
                    self.view.candidate.as_ref().map(|entry| (entry.mod_revision, self.refresh_revision));
                match candidate_revisions {
                    None => {
                        self.candidate_key_state =
                            CandidateKeyState::Unjoined { kept: None, due: now.monotonic_raw }
                    }
                    Some(candidate_revisions) if *revisions != candidate_revisions => {
                        (*revisions, *since, *is_refreshed) = (candidate_revisions, now.monotonic_raw, true);
                    }
                    Some(_) => {}
                }
            }
            CandidateKeyState::Unjoined { .. } => {
                self.candidate_key_state = self.resolve_candidate_state(now);
            }
            CandidateKeyState::Own { .. }
            | CandidateKeyState::Refreshing { .. }
            | CandidateKeyState::Unread { .. }
            | CandidateKeyState::Joining { .. }
            | CandidateKeyState::Removing => {}
        }
    }

    /// Returns the state of the candidate key in the view.
    fn resolve_candidate_state(&mut self, now: &Now) -> CandidateKeyState {
        let Some(entry) = &self.view.candidate else {
            return CandidateKeyState::Unjoined { kept: None, due: now.monotonic_raw };
        };
        let stored_candidate = candidate_of(entry);
        if stored_candidate.instance == self.candidate.instance {
            self.may_keep_existing_key = false;
            return CandidateKeyState::Own { own: candidate_key_of(entry), due: now.monotonic_raw };
        }
        let is_own = stored_candidate.url == self.candidate.url
            && stored_candidate.machine == self.candidate.machine
            && !stored_candidate.machine.is_empty();
        if is_own && self.may_keep_existing_key {
            let kept = Some((entry.create_revision, entry.mod_revision));
            return CandidateKeyState::Unjoined { kept, due: now.monotonic_raw };
        }
        let revisions = (entry.mod_revision, self.refresh_revision);
        CandidateKeyState::Foreign {
            machine: stored_candidate.machine,
            revisions,
            since: now.monotonic_raw,
            is_refreshed: false,
        }
    }

    pub(super) fn on_candidate_committed(
        &mut self,
        now: &Now,
        outcome: &Outcome,
        read_tracker: &mut ReadTracker,
    ) {
        let CandidateKeyState::Joining { kept } = self.candidate_key_state else { return };
        self.candidate_key_state = match outcome {
            Outcome::Applied(revision) => {
                self.may_keep_existing_key = false;
                let joined = kept.map_or(*revision, |(created, _)| created);
                let own = CandidateKey { joined, revision: *revision };
                CandidateKeyState::Own { own, due: now.monotonic_raw }
            }
            Outcome::Refused(_) | Outcome::LeaseNotFound => {
                CandidateKeyState::Unjoined { kept, due: now.monotonic_raw + self.interval_ms }
            }
            Outcome::Conflict(_) | Outcome::Unknown(_) => {
                CandidateKeyState::Unread { reading: read_tracker.request(), own: None }
            }
        };
    }

    pub(super) fn on_refresh_committed(
        &mut self,
        now: &Now,
        outcome: &Outcome,
        read_tracker: &mut ReadTracker,
    ) {
        if let Outcome::Applied(revision) = outcome {
            self.refresh_revision = self.refresh_revision.max(*revision);
        }
        let CandidateKeyState::Refreshing { own } = self.candidate_key_state else { return };
        self.candidate_key_state = match outcome {
            Outcome::Applied(_) | Outcome::Refused(_) | Outcome::LeaseNotFound => {
                CandidateKeyState::Own { own, due: now.monotonic_raw + self.interval_ms }
            }
            Outcome::Conflict(_) | Outcome::Unknown(_) => {
                CandidateKeyState::Unread { reading: read_tracker.request(), own: Some(own) }
            }
        };
    }

    pub(super) fn on_removal_committed(
        &mut self,
        now: &Now,
        outcome: &Outcome,
        read_tracker: &mut ReadTracker,
    ) {
        if self.candidate_key_state != CandidateKeyState::Removing {
            return;
        }
        self.candidate_key_state = match outcome {
            Outcome::Applied(_) => CandidateKeyState::Unjoined { kept: None, due: now.monotonic_raw },
            Outcome::Conflict(_) | Outcome::Unknown(_) | Outcome::Refused(_) | Outcome::LeaseNotFound => {
                CandidateKeyState::Unread { reading: read_tracker.request(), own: None }
            }
        };
    }

    /// Returns the next write of the candidate or refresh key.
    pub(super) fn poll_candidate_key(&mut self, now: &Now) -> Option<Step> {
        match &self.candidate_key_state {
            CandidateKeyState::Unjoined { kept, due } if now.monotonic_raw >= *due => {
                let guard = kept.map_or(Guard::Absent, |(_, modified)| Guard::Unchanged(modified));
                let value = serde_json::to_vec(&self.candidate).unwrap_or_default();
                let candidate = self.keys.candidate(&self.candidate.id);
                self.candidate_key_state = CandidateKeyState::Joining { kept: *kept };
                Some(Step::Commit(WriteKind::Candidate, Transaction::new().put(candidate, guard, value)))
            }
            CandidateKeyState::Own { own, due } if now.monotonic_raw >= *due => {
                let own = *own;
                let candidate = self.keys.candidate(&self.candidate.id);
                let refresh = self.keys.refresh(&self.candidate.id);
                self.candidate.sequence += 1;
                let value =
                    Refresh { instance: self.candidate.instance.clone(), sequence: self.candidate.sequence };
                let value = serde_json::to_vec(&value).unwrap_or_default();
                let transaction = Transaction::new()
                    .put(refresh, self.refresh_guard(), value)
                    .guard(candidate, Guard::Unchanged(own.revision));
                self.candidate_key_state = CandidateKeyState::Refreshing { own };
                Some(Step::Commit(WriteKind::Refresh, transaction))
            }
            CandidateKeyState::Foreign { revisions: (modified, _), since, .. }
                if now.monotonic_raw >= *since + self.valid_ms =>
            {
                let candidate = self.keys.candidate(&self.candidate.id);
                let refresh = self.keys.refresh(&self.candidate.id);
                let removal = Transaction::new().delete(candidate, Guard::Unchanged(*modified));
                let transaction = match self.refresh_guard() {
                    Guard::Absent => removal.guard(refresh, Guard::Absent),
                    guard @ (Guard::Unchanged(_) | Guard::Created(_)) => removal.delete(refresh, guard),
                };
                self.candidate_key_state = CandidateKeyState::Removing;
                Some(Step::Commit(WriteKind::Removal, transaction))
            }
            CandidateKeyState::Own { .. }
            | CandidateKeyState::Foreign { .. }
            | CandidateKeyState::Unread { .. }
            | CandidateKeyState::Unjoined { .. }
            | CandidateKeyState::Joining { .. }
            | CandidateKeyState::Refreshing { .. }
            | CandidateKeyState::Removing => None,
        }
    }

    fn refresh_guard(&self) -> Guard {
        if self.refresh_revision == Revision(0) {
            Guard::Absent
        } else {
            Guard::Unchanged(self.refresh_revision)
        }
    }

    pub(super) fn candidate_key_deadline(&self) -> Option<(MonotonicTime, &'static str)> {
        match &self.candidate_key_state {
            CandidateKeyState::Own { due, .. } => Some((*due, "refresh the candidate")),
            CandidateKeyState::Foreign { since, .. } => {
                Some((*since + self.valid_ms, "delete the candidate key of another process"))
            }
            CandidateKeyState::Unjoined { due, .. } => Some((*due, "put the candidate key")),
            CandidateKeyState::Unread { .. }
            | CandidateKeyState::Joining { .. }
            | CandidateKeyState::Refreshing { .. }
            | CandidateKeyState::Removing => None,
        }
    }
}

fn candidate_key_of(entry: &Entry) -> CandidateKey {
    CandidateKey { joined: entry.create_revision, revision: entry.mod_revision }
}
