//! Who leads: a pure state machine over a controller's candidate key and the leader key.
//!
//! The candidate key is refreshed by a commit every Ki, which also proves that this process can commit. The leader key
//! lives under a lease; its create revision is the term. FENCING, sections 2 and 9.

mod commits;
mod leadership;
mod readings;
#[cfg(test)]
mod tests;

pub use commits::CommitClock;
pub use leadership::{ElectionView, Leadership};
pub use readings::Readings;

use crate::transaction::{Entry, Guard, LeaseId, Outcome, Transaction};
use ha_api_types::keys::Keys;
use ha_api_types::record::{Candidate, Leader, Revision};
use ha_api_types::time::{Millis, Mono, Now};
use leadership::{candidate_of, leader_of};

/// What the election asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Commit; answered by [`Election::committed`] with the same subject.
    Commit(Subject, Transaction),
    /// Grant a lease; answered by [`Election::lease_granted`].
    GrantLease {
        /// Time to live, seconds.
        ttl_seconds: i64,
    },
    /// Keep the lease alive; answered by [`Election::lease_kept`].
    KeepAlive(LeaseId),
    /// End the lease.
    Revoke(LeaseId),
}

/// Which write of the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The candidate key: created, refreshed, or deleted because its url changed.
    Candidate,
    /// The leader key: created, or a dead predecessor's of the same id deleted.
    Leader,
    /// Both keys given up at a clean shutdown.
    Resign,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    create: Revision,
    modified: Revision,
}

/// The candidate key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Presence {
    /// The store must be read (again) first, at least this reading.
    Unread(u64),
    /// As last read or written; the next refresh is due then.
    Idle { known: Option<Known>, due: Mono },
    /// A refresh of this key is under way.
    Refreshing { known: Option<Known> },
    /// A key that belongs to another url is being deleted.
    Removing,
    /// Given up.
    Gone,
}

/// The leader key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Lead {
    Following,
    /// A lease is being granted, to campaign with.
    Granting,
    /// There is a lease to campaign with.
    Granted {
        lease: LeaseId,
    },
    /// The creation of the leader key is under way.
    Campaigning {
        lease: LeaseId,
    },
    /// Its outcome is not known before this reading.
    Uncertain {
        lease: LeaseId,
        reading: u64,
    },
    Leading {
        lease: LeaseId,
        leadership: Leadership,
        keep_due: Mono,
        keeping: bool,
    },
    /// The key of an earlier process with our id is being deleted.
    Evicting,
    Resigning,
    Done,
}

/// The election as one controller sees it.
///
/// Guarantees: never two processes hold a [`Leadership`] of the same term; one write of each key at a time.
/// Assumptions: nobody else uses this id; views come in order of their revisions.
#[derive(Clone, Debug)]
pub struct Election {
    keys: Keys,
    candidate: Candidate,
    interval_ms: Millis,
    ttl_seconds: i64,
    view: ElectionView,
    /// Whom the leader key of that view names.
    leader: Option<Leader>,
    presence: Presence,
    lead: Lead,
    commits: CommitClock,
    /// A predecessor's leader key was looked for, once, at the first reading.
    looked_for_predecessor: bool,
    shutting_down: bool,
    revoke: Vec<LeaseId>,
    /// The moment before which no lease is asked for again, after a failure.
    retry_at: Mono,
}

impl Election {
    /// A controller that has read nothing yet. `candidate.sequence` counts from 0.
    pub fn new(keys: Keys, candidate: Candidate) -> Election {
        Election {
            keys,
            candidate,
            interval_ms: 1_000,
            ttl_seconds: 5,
            view: ElectionView::default(),
            leader: None,
            presence: Presence::Unread(1),
            lead: Lead::Following,
            commits: CommitClock::default(),
            looked_for_predecessor: false,
            shutting_down: false,
            revoke: Vec::new(),
            retry_at: Mono::default(),
        }
    }

    /// The interval of refreshes (Ki, milliseconds) and the time to live of the next leader lease.
    pub fn set_timings(&mut self, interval_ms: Millis, ttl_seconds: i64) {
        self.interval_ms = interval_ms.max(100);
        self.ttl_seconds = ttl_seconds.max(1);
    }

    /// Leadership, while it is not known to be lost.
    pub fn leadership(&self) -> Option<&Leadership> {
        match &self.lead {
            Lead::Leading { leadership, .. } => Some(leadership),
            Lead::Following
            | Lead::Granting
            | Lead::Granted { .. }
            | Lead::Campaigning { .. }
            | Lead::Uncertain { .. }
            | Lead::Evicting
            | Lead::Resigning
            | Lead::Done => None,
        }
    }

    /// The create revision of this controller's candidate key (its `joinedGeneration`), once it exists.
    pub fn joined(&self) -> Option<Revision> {
        match &self.presence {
            Presence::Idle { known, .. } | Presence::Refreshing { known } => known.map(|known| known.create),
            Presence::Unread(_) | Presence::Removing | Presence::Gone => None,
        }
    }

    /// When this process committed.
    pub fn commits(&self) -> &CommitClock {
        &self.commits
    }

    /// Whether a shutdown has been completed.
    pub fn is_done(&self) -> bool {
        self.lead == Lead::Done
    }

    /// Whether a shutdown was asked for.
    pub fn is_shutting_down(&self) -> bool {
        self.shutting_down
    }

    /// Begins a clean shutdown: both keys are given up, in one transaction.
    pub fn shut_down(&mut self) {
        self.shutting_down = true;
    }

    /// A newer view of the two keys; `readings` says which readings are in.
    pub fn observe(&mut self, now: &Now, view: ElectionView, readings: &Readings) {
        if view.revision < self.view.revision {
            return;
        }
        if self.view.leader != view.leader {
            self.leader = view.leader.as_ref().map(leader_of);
        }
        self.view = view;
        if let Presence::Unread(reading) = self.presence
            && readings.is_answered(reading)
        {
            self.presence = Presence::Idle { known: self.view.candidate.as_ref().map(known), due: now.raw };
        }
        match &self.lead {
            Lead::Leading { lease, leadership, .. } => {
                let same =
                    self.view.leader.as_ref().is_some_and(|entry| entry.create_revision == leadership.term);
                if self.view.revision >= leadership.term && !same {
                    self.revoke.push(*lease);
                    self.lead = Lead::Following;
                }
            }
            Lead::Uncertain { lease, reading } => {
                let (lease, reading) = (*lease, *reading);
                if !self.adopt_own_key(now) && readings.is_answered(reading) {
                    // It may still be applied late: ending its lease settles that.
                    self.revoke.push(lease);
                    self.lead = Lead::Following;
                }
            }
            Lead::Following => {
                self.adopt_own_key(now);
            }
            Lead::Granting
            | Lead::Granted { .. }
            | Lead::Campaigning { .. }
            | Lead::Evicting
            | Lead::Resigning
            | Lead::Done => {}
        }
    }

    /// Takes over leadership from a key that this very process wrote, whatever was said about that write.
    fn adopt_own_key(&mut self, now: &Now) -> bool {
        let (Some(entry), Some(leader)) = (&self.view.leader, &self.leader) else { return false };
        if leader.instance != self.candidate.instance {
            return false;
        }
        let leadership = Leadership { key: self.keys.leader(), term: entry.create_revision };
        self.lead = Lead::Leading { lease: entry.lease, leadership, keep_due: now.raw, keeping: false };
        true
    }

    /// The outcome of a commit that [`Step::Commit`] asked for.
    pub fn committed(&mut self, now: &Now, subject: Subject, outcome: &Outcome, readings: &mut Readings) {
        if outcome.applied().is_some() {
            self.commits.applied(now.raw);
        }
        match subject {
            Subject::Candidate => self.candidate_committed(now, outcome, readings),
            Subject::Leader => self.leader_committed(now, outcome, readings),
            Subject::Resign => {
                // A conflict means that the keys are not ours any more; an unknown outcome is settled by the lease.
                self.lead = Lead::Done;
                self.presence = Presence::Gone;
            }
        }
    }

    fn candidate_committed(&mut self, now: &Now, outcome: &Outcome, readings: &mut Readings) {
        self.presence = match (&self.presence, outcome) {
            (Presence::Refreshing { known }, Outcome::Applied(revision)) => {
                let create = known.map_or(*revision, |known| known.create);
                Presence::Idle {
                    known: Some(Known { create, modified: *revision }),
                    due: now.raw + self.interval_ms,
                }
            }
            (Presence::Removing, Outcome::Applied(_)) => Presence::Idle { known: None, due: now.raw },
            (Presence::Refreshing { known }, Outcome::Refused(_) | Outcome::LeaseNotFound) => {
                Presence::Idle { known: *known, due: now.raw + self.interval_ms }
            }
            _ => Presence::Unread(readings.ask()),
        };
    }

    fn leader_committed(&mut self, now: &Now, outcome: &Outcome, readings: &mut Readings) {
        self.lead = match (&self.lead, outcome) {
            (Lead::Campaigning { lease }, Outcome::Applied(revision)) => Lead::Leading {
                lease: *lease,
                leadership: Leadership { key: self.keys.leader(), term: *revision },
                keep_due: now.raw + self.keep_interval_ms(),
                keeping: false,
            },
            (Lead::Campaigning { lease }, Outcome::Unknown(_)) => {
                Lead::Uncertain { lease: *lease, reading: readings.ask() }
            }
            (
                Lead::Campaigning { lease },
                Outcome::Conflict(_) | Outcome::Refused(_) | Outcome::LeaseNotFound,
            ) => {
                self.revoke.push(*lease);
                self.retry_at = now.raw + 500;
                readings.ask();
                Lead::Following
            }
            (Lead::Evicting, _) => {
                readings.ask();
                Lead::Following
            }
            (other, _) => other.clone(),
        };
    }

    /// The answer to [`Step::GrantLease`].
    pub fn lease_granted(&mut self, now: &Now, lease: Option<LeaseId>) {
        match (&self.lead, lease) {
            (Lead::Granting, Some(lease)) => self.lead = Lead::Granted { lease },
            (Lead::Granting, None) => {
                self.lead = Lead::Following;
                self.retry_at = now.raw + 500;
            }
            (_, Some(lease)) => self.revoke.push(lease),
            (_, None) => {}
        }
    }

    /// The answer to [`Step::KeepAlive`]. A lease that is gone costs leadership only once the key is seen to be gone:
    /// until then every write says for itself whether it is still allowed.
    pub fn lease_kept(&mut self, now: &Now, kept: LeaseId, alive: bool, readings: &mut Readings) {
        let interval_ms = self.keep_interval_ms();
        if let Lead::Leading { lease, keep_due, keeping, .. } = &mut self.lead
            && *lease == kept
        {
            *keeping = false;
            *keep_due = now.raw + if alive { interval_ms } else { 500 };
            if !alive {
                readings.ask();
            }
        }
    }

    fn keep_interval_ms(&self) -> Millis {
        u64::try_from(self.ttl_seconds).unwrap_or(1) * 1000 / 3
    }

    /// The next thing to do, if any; to be called until it gives `None`.
    pub fn poll(&mut self, now: &Now) -> Option<Step> {
        if let Some(lease) = self.revoke.pop() {
            return Some(Step::Revoke(lease));
        }
        if self.shutting_down {
            return self.poll_shutdown();
        }
        self.poll_candidate(now).or_else(|| self.poll_leader(now))
    }

    fn poll_candidate(&mut self, now: &Now) -> Option<Step> {
        let Presence::Idle { known, due } = self.presence else { return None };
        if now.raw < due {
            return None;
        }
        let key = self.keys.candidate(&self.candidate.id);
        if let (Some(found), Some(known)) = (self.view.candidate.as_ref(), known)
            && found.mod_revision == known.modified
            && candidate_of(found).url != self.candidate.url
        {
            // The key belongs to id and url; another url is another candidate with its own joined generation.
            self.presence = Presence::Removing;
            let transaction = Transaction::new().delete(key, Guard::Unchanged(known.modified));
            return Some(Step::Commit(Subject::Candidate, transaction));
        }
        self.candidate.sequence += 1;
        let guard = known.map_or(Guard::Absent, |known| Guard::Unchanged(known.modified));
        let value = serde_json::to_vec(&self.candidate).unwrap_or_default();
        self.presence = Presence::Refreshing { known };
        Some(Step::Commit(Subject::Candidate, Transaction::new().put(key, guard, value)))
    }

    fn poll_leader(&mut self, now: &Now) -> Option<Step> {
        match &mut self.lead {
            Lead::Following => {
                if self.view.revision == 0 || self.joined().is_none() || now.raw < self.retry_at {
                    return None;
                }
                let first = !std::mem::replace(&mut self.looked_for_predecessor, true);
                match (&self.view.leader, &self.leader) {
                    (None, _) => {
                        self.lead = Lead::Granting;
                        Some(Step::GrantLease { ttl_seconds: self.ttl_seconds })
                    }
                    (Some(entry), Some(leader)) if first && leader.id == self.candidate.id => {
                        let guard = Guard::Unchanged(entry.mod_revision);
                        self.lead = Lead::Evicting;
                        let transaction = Transaction::new().delete(self.keys.leader(), guard);
                        Some(Step::Commit(Subject::Leader, transaction))
                    }
                    (Some(_), _) => None,
                }
            }
            Lead::Granted { lease } => {
                let lease = *lease;
                if self.view.leader.is_some() {
                    self.lead = Lead::Following;
                    return Some(Step::Revoke(lease));
                }
                let leader = Leader {
                    id: self.candidate.id.clone(),
                    url: self.candidate.url.clone(),
                    instance: self.candidate.instance.clone(),
                    since: now.timestamp(),
                };
                let value = serde_json::to_vec(&leader).unwrap_or_default();
                self.lead = Lead::Campaigning { lease };
                let transaction =
                    Transaction::new().put_leased(self.keys.leader(), Guard::Absent, value, lease);
                Some(Step::Commit(Subject::Leader, transaction))
            }
            Lead::Leading { lease, keep_due, keeping, .. } => {
                if *keeping || now.raw < *keep_due {
                    return None;
                }
                *keeping = true;
                Some(Step::KeepAlive(*lease))
            }
            Lead::Granting
            | Lead::Campaigning { .. }
            | Lead::Uncertain { .. }
            | Lead::Evicting
            | Lead::Resigning
            | Lead::Done => None,
        }
    }

    fn poll_shutdown(&mut self) -> Option<Step> {
        match &self.lead {
            // Their answers come first.
            Lead::Granting
            | Lead::Campaigning { .. }
            | Lead::Uncertain { .. }
            | Lead::Evicting
            | Lead::Resigning
            | Lead::Done => return None,
            Lead::Granted { lease } => {
                let lease = *lease;
                self.lead = Lead::Following;
                return Some(Step::Revoke(lease));
            }
            Lead::Following | Lead::Leading { .. } => {}
        }
        let mut transaction = Transaction::new();
        match &self.presence {
            Presence::Refreshing { .. } | Presence::Removing => return None,
            Presence::Idle { known: Some(known), .. } => {
                transaction = transaction
                    .delete(self.keys.candidate(&self.candidate.id), Guard::Unchanged(known.modified));
            }
            Presence::Idle { known: None, .. } | Presence::Unread(_) | Presence::Gone => {}
        }
        if let Lead::Leading { lease, leadership, .. } = &self.lead {
            transaction = transaction.delete(leadership.key.clone(), Guard::Created(leadership.term));
            self.revoke.push(*lease);
        }
        if transaction.writes().is_empty() {
            self.lead = Lead::Done;
            return self.revoke.pop().map(Step::Revoke);
        }
        self.lead = Lead::Resigning;
        Some(Step::Commit(Subject::Resign, transaction))
    }

    /// When to call [`Election::poll`] again, and why.
    pub fn deadline(&self) -> Option<(Mono, &'static str)> {
        let candidate = match &self.presence {
            Presence::Idle { due, .. } => Some((*due, "refresh the candidate key")),
            Presence::Unread(_) | Presence::Refreshing { .. } | Presence::Removing | Presence::Gone => None,
        };
        let leader = match &self.lead {
            Lead::Leading { keep_due, keeping: false, .. } => {
                Some((*keep_due, "keep the leader lease alive"))
            }
            Lead::Following if self.view.leader.is_none() && self.view.revision > 0 => {
                Some((self.retry_at, "campaign again"))
            }
            Lead::Following
            | Lead::Leading { .. }
            | Lead::Granting
            | Lead::Granted { .. }
            | Lead::Campaigning { .. }
            | Lead::Uncertain { .. }
            | Lead::Evicting
            | Lead::Resigning
            | Lead::Done => None,
        };
        candidate.into_iter().chain(leader).min()
    }
}

fn known(entry: &Entry) -> Known {
    Known { create: entry.create_revision, modified: entry.mod_revision }
}
