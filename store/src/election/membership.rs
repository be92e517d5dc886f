//! The candidate key of this process: kept across restarts, abandoned if another process holds it, refreshed every Ki
//! (R9.10 to R9.19).

use super::leadership::candidate_of;
use super::{Election, Membership, Readings, Step, Subject};
use crate::transaction::{Entry, Guard, Outcome, Transaction};
use ha_api_types::id::Revision;
use ha_api_types::record::Refresh;
use ha_api_types::time::{Mono, Now};

/// State of the candidate key from the view of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// The key must be read first, at least by this read. Until then, `own` is its last known state.
    Unread { reading: u64, own: Option<Membership> },
    /// The key is to be put: over that of an earlier process that cannot be alive (`kept`), or because it is absent.
    Unjoined { kept: Option<(Revision, Revision)>, due: Mono },
    /// The put is in progress.
    Joining { kept: Option<(Revision, Revision)> },
    /// The key belongs to this process; the next refresh is due at `due`.
    Own { own: Membership, due: Mono },
    /// A refresh is in progress.
    Refreshing { own: Membership },
    /// Another process wrote the key. This process deletes the key once it has not changed for Th.
    Foreign { machine: String, revisions: (Revision, Revision), since: Mono, is_refreshed: bool },
    /// The keys of the other process are being deleted.
    Removing,
}

impl Presence {
    pub(super) fn own(&self) -> Option<Membership> {
        match self {
            Presence::Unread { own, .. } => *own,
            Presence::Own { own, .. } | Presence::Refreshing { own } => Some(*own),
            Presence::Unjoined { .. }
            | Presence::Joining { .. }
            | Presence::Foreign { .. }
            | Presence::Removing => None,
        }
    }

    pub(super) fn duplicate(&self) -> Option<&str> {
        match self {
            Presence::Foreign { machine, is_refreshed: true, .. } => Some(machine),
            Presence::Foreign { .. }
            | Presence::Unread { .. }
            | Presence::Unjoined { .. }
            | Presence::Joining { .. }
            | Presence::Own { .. }
            | Presence::Refreshing { .. }
            | Presence::Removing => None,
        }
    }

    /// Returns `true` if the key is known not to belong to this process.
    pub(super) fn is_lost(&self) -> bool {
        self.own().is_none()
    }
}

impl Election {
    /// Processes the candidate key of a newer view.
    pub(super) fn observe_membership(&mut self, now: &Now, readings: &Readings) {
        if self.view.revision >= self.refreshed {
            self.refreshed = self.view.refresh.as_ref().map_or(Revision(0), |entry| entry.mod_revision);
        }
        let seen = self.view.candidate.as_ref().map(|entry| entry.mod_revision);
        let is_other = |own: &Membership| self.view.revision >= own.revision && seen != Some(own.revision);
        match &mut self.presence {
            Presence::Own { own, .. }
            | Presence::Refreshing { own }
            | Presence::Unread { own: Some(own), .. }
                if is_other(own) =>
            {
                self.presence = self.settled(now);
            }
            Presence::Unread { reading, own: None } if readings.is_answered(*reading) => {
                self.presence = self.settled(now);
            }
            Presence::Unread { reading, own: Some(own) } if readings.is_answered(*reading) => {
                self.presence = Presence::Own { own: *own, due: now.raw };
            }
            Presence::Foreign { revisions, since, is_refreshed, .. } => {
                let found = self.view.candidate.as_ref().map(|entry| (entry.mod_revision, self.refreshed));
                match found {
                    None => self.presence = Presence::Unjoined { kept: None, due: now.raw },
                    Some(found) if *revisions != found => {
                        (*revisions, *since, *is_refreshed) = (found, now.raw, true);
                    }
                    Some(_) => {}
                }
            }
            Presence::Unjoined { .. } => self.presence = self.settled(now),
            Presence::Own { .. }
            | Presence::Refreshing { .. }
            | Presence::Unread { .. }
            | Presence::Joining { .. }
            | Presence::Removing => {}
        }
    }

    /// Returns the state of the candidate key in the view.
    fn settled(&mut self, now: &Now) -> Presence {
        let Some(entry) = &self.view.candidate else {
            return Presence::Unjoined { kept: None, due: now.raw };
        };
        let found = candidate_of(entry);
        if found.instance == self.candidate.instance {
            self.may_keep = false;
            return Presence::Own { own: membership_of(entry), due: now.raw };
        }
        let is_own = found.url == self.candidate.url
            && found.machine == self.candidate.machine
            && !found.machine.is_empty();
        if is_own && self.may_keep {
            let kept = Some((entry.create_revision, entry.mod_revision));
            return Presence::Unjoined { kept, due: now.raw };
        }
        let revisions = (entry.mod_revision, self.refreshed);
        Presence::Foreign { machine: found.machine, revisions, since: now.raw, is_refreshed: false }
    }

    pub(super) fn candidate_committed(&mut self, now: &Now, outcome: &Outcome, readings: &mut Readings) {
        let Presence::Joining { kept } = self.presence else { return };
        self.presence = match outcome {
            Outcome::Applied(revision) => {
                self.may_keep = false;
                let joined = kept.map_or(*revision, |(created, _)| created);
                let own = Membership { joined, revision: *revision };
                Presence::Own { own, due: now.raw }
            }
            Outcome::Refused(_) | Outcome::LeaseNotFound => {
                Presence::Unjoined { kept, due: now.raw + self.interval_ms }
            }
            Outcome::Conflict(_) | Outcome::Unknown(_) => {
                Presence::Unread { reading: readings.ask(), own: None }
            }
        };
    }

    pub(super) fn refresh_committed(&mut self, now: &Now, outcome: &Outcome, readings: &mut Readings) {
        if let Outcome::Applied(revision) = outcome {
            self.refreshed = self.refreshed.max(*revision);
        }
        let Presence::Refreshing { own } = self.presence else { return };
        self.presence = match outcome {
            Outcome::Applied(_) | Outcome::Refused(_) | Outcome::LeaseNotFound => {
                Presence::Own { own, due: now.raw + self.interval_ms }
            }
            Outcome::Conflict(_) | Outcome::Unknown(_) => {
                Presence::Unread { reading: readings.ask(), own: Some(own) }
            }
        };
    }

    pub(super) fn removal_committed(&mut self, now: &Now, outcome: &Outcome, readings: &mut Readings) {
        if self.presence != Presence::Removing {
            return;
        }
        self.presence = match outcome {
            Outcome::Applied(_) => Presence::Unjoined { kept: None, due: now.raw },
            Outcome::Conflict(_) | Outcome::Unknown(_) | Outcome::Refused(_) | Outcome::LeaseNotFound => {
                Presence::Unread { reading: readings.ask(), own: None }
            }
        };
    }

    /// Returns the next write of the candidate or refresh key.
    pub(super) fn poll_membership(&mut self, now: &Now) -> Option<Step> {
        let candidate = self.keys.candidate(&self.candidate.id);
        let refresh = self.keys.refresh(&self.candidate.id);
        match &self.presence {
            Presence::Unjoined { kept, due } if now.raw >= *due => {
                let guard = kept.map_or(Guard::Absent, |(_, modified)| Guard::Unchanged(modified));
                let value = serde_json::to_vec(&self.candidate).unwrap_or_default();
                self.presence = Presence::Joining { kept: *kept };
                Some(Step::Commit(Subject::Candidate, Transaction::new().put(candidate, guard, value)))
            }
            Presence::Own { own, due } if now.raw >= *due => {
                let own = *own;
                self.candidate.sequence += 1;
                let value =
                    Refresh { instance: self.candidate.instance.clone(), sequence: self.candidate.sequence };
                let value = serde_json::to_vec(&value).unwrap_or_default();
                let transaction = Transaction::new()
                    .put(refresh, self.refresh_guard(), value)
                    .guard(candidate, Guard::Unchanged(own.revision));
                self.presence = Presence::Refreshing { own };
                Some(Step::Commit(Subject::Refresh, transaction))
            }
            Presence::Foreign { revisions: (modified, _), since, .. }
                if now.raw >= *since + self.valid_ms =>
            {
                let removal = Transaction::new().delete(candidate, Guard::Unchanged(*modified));
                let transaction = match self.refresh_guard() {
                    Guard::Absent => removal.guard(refresh, Guard::Absent),
                    guard @ (Guard::Unchanged(_) | Guard::Created(_)) => removal.delete(refresh, guard),
                };
                self.presence = Presence::Removing;
                Some(Step::Commit(Subject::Removal, transaction))
            }
            Presence::Own { .. }
            | Presence::Foreign { .. }
            | Presence::Unread { .. }
            | Presence::Unjoined { .. }
            | Presence::Joining { .. }
            | Presence::Refreshing { .. }
            | Presence::Removing => None,
        }
    }

    fn refresh_guard(&self) -> Guard {
        if self.refreshed == Revision(0) { Guard::Absent } else { Guard::Unchanged(self.refreshed) }
    }

    pub(super) fn membership_deadline(&self) -> Option<(Mono, &'static str)> {
        match &self.presence {
            Presence::Own { due, .. } => Some((*due, "refresh the candidate")),
            Presence::Foreign { since, .. } => {
                Some((*since + self.valid_ms, "delete the candidate key of another process"))
            }
            Presence::Unjoined { due, .. } => Some((*due, "put the candidate key")),
            Presence::Unread { .. }
            | Presence::Joining { .. }
            | Presence::Refreshing { .. }
            | Presence::Removing => None,
        }
    }
}

fn membership_of(entry: &Entry) -> Membership {
    Membership { joined: entry.create_revision, revision: entry.mod_revision }
}
