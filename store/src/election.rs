//! Who leads: a pure state machine over a controller's candidate, refresh and leader keys.
//!
//! The candidate key is put once by each process and survives restarts. The refresh key is committed every Ki, which also
//! proves that this process can commit. The leader key lives under a lease; its create revision is the term. FENCING,
//! sections 2 and 9.

mod commits;
mod leadership;
mod membership;
mod readings;
#[cfg(test)]
mod tests;

pub use commits::CommitClock;
pub use leadership::{ElectionView, Leadership, Membership};
pub use readings::Readings;

use crate::transaction::{Guard, LeaseId, Outcome, Transaction};
use ha_api_types::keys::Keys;
use ha_api_types::record::{Candidate, Leader, Revision};
use ha_api_types::time::{Millis, Mono, Now};
use leadership::leader_of;
use membership::Presence;

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
    /// The candidate key, put by this process.
    Candidate,
    /// The refresh key.
    Refresh,
    /// The keys of another process of this id, deleted.
    Removal,
    /// The leader key: created, given up, or a dead predecessor's of the same id deleted.
    Leader,
    /// The leader key given up at a clean shutdown.
    Resign,
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
    /// The leader key is to be given up, without an end of the process.
    Yielding {
        lease: LeaseId,
        term: Revision,
    },
    /// The key of an earlier process with our id, or the own key, is being deleted.
    Evicting,
    Resigning,
    Done,
}

/// How many leader leases a candidate waits for an older one to campaign (R9.28).
const PATIENCE_LEASES: u64 = 3;
/// How many leader leases pass before a leader yields to an older candidate again (R9.29).
const YIELD_PAUSE_LEASES: u64 = 30;

/// The election as one controller sees it.
///
/// Guarantees: never two processes hold a [`Leadership`] of the same term; one write of each key at a time; a process whose
/// candidate key was put by another process neither leads nor has a [`Membership`].
/// Assumptions: views come in order of their revisions.
#[derive(Clone, Debug)]
pub struct Election {
    keys: Keys,
    candidate: Candidate,
    /// An earlier process of this id cannot be alive, and this one has not put the key yet: the key may be kept.
    may_keep: bool,
    interval_ms: Millis,
    valid_ms: Millis,
    ttl_seconds: i64,
    view: ElectionView,
    /// Whom the leader key of that view names.
    leader: Option<Leader>,
    presence: Presence,
    /// The refresh key as it was last read or written; 0: absent.
    refreshed: Revision,
    lead: Lead,
    commits: CommitClock,
    /// A predecessor's leader key was looked for, once, at the first reading.
    looked_for_predecessor: bool,
    shutting_down: bool,
    revoke: Vec<LeaseId>,
    /// The moment before which no lease is asked for again, after a failure.
    retry_at: Mono,
    /// Since when the view has shown no leader.
    leaderless_since: Option<Mono>,
    /// The newest term that this process gave up: its key may still be seen for a while.
    given_up: Revision,
    /// The moment before which this process does not yield to an older candidate again.
    yields_again_at: Mono,
}

impl Election {
    /// A controller that has read nothing yet. `candidate.sequence` counts from 0. `is_only_process`: no earlier process of
    /// this id can be alive, as this process holds the exclusive lock of its state directory.
    pub fn new(keys: Keys, candidate: Candidate, is_only_process: bool) -> Election {
        Election {
            keys,
            candidate,
            may_keep: is_only_process,
            interval_ms: 1_000,
            valid_ms: 6_000,
            ttl_seconds: 5,
            view: ElectionView::default(),
            leader: None,
            presence: Presence::Unread { reading: 1, own: None },
            refreshed: 0,
            lead: Lead::Following,
            commits: CommitClock::default(),
            looked_for_predecessor: false,
            shutting_down: false,
            revoke: Vec::new(),
            retry_at: Mono::default(),
            leaderless_since: None,
            given_up: 0,
            yields_again_at: Mono::default(),
        }
    }

    /// The interval of refreshes (Ki), how long a refresh is good for (Th), and the time to live of the next leader lease.
    pub fn set_timings(&mut self, interval_ms: Millis, valid_ms: Millis, ttl_seconds: i64) {
        self.interval_ms = interval_ms.max(100);
        self.valid_ms = valid_ms.max(100);
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
            | Lead::Yielding { .. }
            | Lead::Evicting
            | Lead::Resigning
            | Lead::Done => None,
        }
    }

    /// This process's candidate key, once it exists and for as long as no other value is seen there.
    pub fn membership(&self) -> Option<Membership> {
        self.presence.own()
    }

    /// The machine of another process that refreshes this candidate's key: this process only serves the API.
    pub fn duplicate(&self) -> Option<&str> {
        self.presence.duplicate()
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

    /// Begins a clean shutdown: the leader key is given up, the candidate key stays (R9.16).
    pub fn shut_down(&mut self) {
        self.shutting_down = true;
    }

    /// Gives the leader key up for an older candidate, unless this process did so less than thirty leader leases ago
    /// (R9.29). Returns whether it does.
    pub fn yield_to_older(&mut self, now: &Now) -> bool {
        if now.raw < self.yields_again_at || self.leadership().is_none() {
            return false;
        }
        self.yields_again_at = now.raw + YIELD_PAUSE_LEASES * self.lease_ms();
        self.give_up_leadership();
        true
    }

    fn give_up_leadership(&mut self) {
        if let Lead::Leading { lease, leadership, .. } = &self.lead {
            let (lease, term) = (*lease, leadership.term);
            self.given_up = term;
            self.lead = Lead::Yielding { lease, term };
        }
    }

    /// A newer view of the election's keys; `readings` says which readings are in.
    pub fn observe(&mut self, now: &Now, view: ElectionView, readings: &Readings) {
        if view.revision < self.view.revision {
            return;
        }
        if self.view.leader != view.leader {
            self.leader = view.leader.as_ref().map(leader_of);
        }
        self.view = view;
        match (&self.view.leader, self.leaderless_since) {
            (Some(_), _) => self.leaderless_since = None,
            (None, None) => self.leaderless_since = Some(now.raw),
            (None, Some(_)) => {}
        }
        self.observe_membership(now, readings);
        match &self.lead {
            Lead::Leading { lease, leadership, .. } => {
                let same =
                    self.view.leader.as_ref().is_some_and(|entry| entry.create_revision == leadership.term);
                if self.view.revision >= leadership.term && !same {
                    self.revoke.push(*lease);
                    self.lead = Lead::Following;
                } else if self.presence.is_lost() {
                    self.give_up_leadership();
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
            | Lead::Yielding { .. }
            | Lead::Evicting
            | Lead::Resigning
            | Lead::Done => {}
        }
    }

    /// Takes over leadership from a key that this very process wrote, whatever was said about that write.
    fn adopt_own_key(&mut self, now: &Now) -> bool {
        let (Some(entry), Some(leader)) = (&self.view.leader, &self.leader) else { return false };
        if leader.instance != self.candidate.instance || entry.create_revision <= self.given_up {
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
            Subject::Refresh => self.refresh_committed(now, outcome, readings),
            Subject::Removal => self.removal_committed(now, outcome, readings),
            Subject::Leader => self.leader_committed(now, outcome, readings),
            Subject::Resign => {
                // A conflict means that the key is not ours any more; an unknown outcome is settled by the lease.
                self.lead = Lead::Done;
            }
        }
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

    fn lease_ms(&self) -> Millis {
        u64::try_from(self.ttl_seconds).unwrap_or(1) * 1000
    }

    fn keep_interval_ms(&self) -> Millis {
        self.lease_ms() / 3
    }

    /// When this candidate may campaign, while the view shows no leader: at once, unless an older candidate is to lead
    /// (R9.28).
    fn campaigns_at(&self) -> Mono {
        let limit = self.leaderless_since.unwrap_or_default() + PATIENCE_LEASES * self.lease_ms();
        self.view.yields_until.map_or(self.retry_at, |until| until.min(limit).max(self.retry_at))
    }

    /// The next thing to do, if any; to be called until it gives `None`.
    pub fn poll(&mut self, now: &Now) -> Option<Step> {
        if let Some(lease) = self.revoke.pop() {
            return Some(Step::Revoke(lease));
        }
        if self.shutting_down {
            return self.poll_shutdown();
        }
        self.poll_membership(now).or_else(|| self.poll_leader(now))
    }

    fn poll_leader(&mut self, now: &Now) -> Option<Step> {
        match &mut self.lead {
            Lead::Following => {
                if self.view.revision == 0 || self.membership().is_none() || now.raw < self.campaigns_at() {
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
            Lead::Yielding { lease, term } => {
                let transaction = Transaction::new().delete(self.keys.leader(), Guard::Created(*term));
                self.revoke.push(*lease);
                self.lead = Lead::Evicting;
                Some(Step::Commit(Subject::Leader, transaction))
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
            Lead::Granting
            | Lead::Campaigning { .. }
            | Lead::Uncertain { .. }
            | Lead::Evicting
            | Lead::Resigning
            | Lead::Done => None,
            Lead::Granted { lease } => {
                let lease = *lease;
                self.lead = Lead::Following;
                Some(Step::Revoke(lease))
            }
            Lead::Following => {
                self.lead = Lead::Done;
                None
            }
            Lead::Leading { lease, leadership: Leadership { term, .. }, .. }
            | Lead::Yielding { lease, term } => {
                let transaction = Transaction::new().delete(self.keys.leader(), Guard::Created(*term));
                self.revoke.push(*lease);
                self.lead = Lead::Resigning;
                Some(Step::Commit(Subject::Resign, transaction))
            }
        }
    }

    /// When to call [`Election::poll`] again, and why.
    pub fn deadline(&self) -> Option<(Mono, &'static str)> {
        let leader = match &self.lead {
            Lead::Leading { keep_due, keeping: false, .. } => {
                Some((*keep_due, "keep the leader lease alive"))
            }
            Lead::Following if self.view.leader.is_none() && self.membership().is_some() => {
                Some((self.campaigns_at(), "campaign again"))
            }
            Lead::Following
            | Lead::Leading { .. }
            | Lead::Granting
            | Lead::Granted { .. }
            | Lead::Campaigning { .. }
            | Lead::Uncertain { .. }
            | Lead::Yielding { .. }
            | Lead::Evicting
            | Lead::Resigning
            | Lead::Done => None,
        };
        self.membership_deadline().into_iter().chain(leader).min()
    }
}
