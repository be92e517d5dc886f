//! Leader election: a pure state machine over a controller's candidate, refresh and leader keys.
//!
//! Each process puts its candidate key once, and the key survives restarts. A commit of the refresh key every Ki also
//! proves that this process can commit. The leader key has a lease; its create revision is the term. FENCING, sections
//! 2 and 9.

mod candidate_key;
mod commits;
mod leadership;
mod read_tracker;
#[cfg(test)]
mod tests;

pub use commits::CommitGaps;
pub use leadership::{CandidateKey, ElectionView, Leadership};
pub use read_tracker::{FullReadId, ReadTracker};

use crate::transaction::{Guard, LeaseId, Outcome, Transaction};
use candidate_key::CandidateKeyState;
use ha_api_types::id::{MachineId, Revision, Term};
use ha_api_types::keys::Keys;
use ha_api_types::record::{Candidate, Leader};
use ha_api_types::time::{Millis, MonotonicTime, Now};
use leadership::leader_of;

/// An action that the election requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Commit a transaction; the result goes to [`Election::committed`] with the same kind.
    Commit(WriteKind, Transaction),
    /// Grant a lease; the result goes to [`Election::lease_granted`].
    GrantLease {
        /// Time to live in seconds.
        ttl_seconds: i64,
    },
    /// Keep the lease alive; the result goes to [`Election::lease_kept`].
    KeepAlive(LeaseId),
    /// Revoke the lease.
    Revoke(LeaseId),
}

/// The kind of a write of the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriteKind {
    /// Put of this process's candidate key.
    Candidate,
    /// Put of the refresh key.
    Refresh,
    /// Deletion of the keys of another process with the same id.
    Removal,
    /// Creation of the leader key, its release, or its deletion if an earlier process with the same id left it.
    Leader,
    /// Release of the leader key at a clean shutdown.
    Resign,
}

/// State of this process with regard to the leader key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LeaderState {
    Following,
    /// A lease for a campaign is being granted.
    Granting,
    /// A lease for a campaign is granted.
    Granted {
        lease: LeaseId,
    },
    /// The creation of the leader key is in progress.
    Campaigning {
        lease: LeaseId,
    },
    /// The outcome of the creation is unknown until this read is complete.
    Uncertain {
        lease: LeaseId,
        reading: FullReadId,
    },
    Leading {
        lease: LeaseId,
        leadership: Leadership,
        keep_alive_at: MonotonicTime,
        is_keeping_alive: bool,
    },
    /// The leader key must be released, and the process continues.
    Yielding {
        lease: LeaseId,
        term: Term,
    },
    /// The key of an earlier process with the same id, or the own key, is being deleted.
    Evicting,
    Resigning,
    Done,
}

/// Number of leader leases for which a candidate waits for an older one to campaign (R9.28).
const YIELD_TO_OLDER_LEASES: u64 = 3;
/// Number of leader leases before a leader may yield to an older candidate again (R9.29).
const MIN_YIELD_INTERVAL_LEASES: u64 = 30;

/// The election from the view of one controller.
///
/// Guarantees: two processes do not hold a [`Leadership`] of the same term. Each key has at most one write in progress.
/// A process whose candidate key was put by another process is not leader and has no [`CandidateKey`]. Assumptions: views
/// arrive in the order of their revisions.
#[derive(Clone, Debug)]
pub struct Election {
    keys: Keys,
    candidate: Candidate,
    /// `true` while this process may keep an existing key: no earlier process with this id can be alive, and this
    /// process has not put the key yet.
    may_keep_existing_key: bool,
    interval_ms: Millis,
    valid_ms: Millis,
    ttl_seconds: i64,
    view: ElectionView,
    /// Content of the leader key in that view.
    leader: Option<Leader>,
    candidate_key_state: CandidateKeyState,
    /// Mod revision of the refresh key as last read or written; 0 means absent.
    refresh_revision: Revision,
    leader_state: LeaderState,
    commits: CommitGaps,
    /// Time of the last answer or change that etcd sent to this process.
    heard_at: MonotonicTime,
    /// `true` once the first read was checked for a leader key of an earlier process with this id.
    is_predecessor_checked: bool,
    is_shutting_down: bool,
    leases_to_revoke: Vec<LeaseId>,
    /// Time before which no lease is requested again, after a failure.
    retry_at: MonotonicTime,
    /// Time since which the view has had no leader key; `None` if it has one.
    leaderless_since: Option<MonotonicTime>,
    /// Newest term that this process has released. A view may still contain its key for some time.
    released_term: Term,
    /// Time before which this process does not yield to an older candidate again.
    next_yield_at: MonotonicTime,
}

impl Election {
    /// Creates the election of a controller that has not read etcd yet. `candidate.sequence` counts from 0.
    ///
    /// `is_only_process` is `true` if no earlier process with this id can be alive, because this process holds the
    /// exclusive lock of its state directory.
    pub fn new(keys: Keys, candidate: Candidate, is_only_process: bool) -> Election {
        Election {
            keys,
            candidate,
            may_keep_existing_key: is_only_process,
            interval_ms: 1_000,
            valid_ms: 6_000,
            ttl_seconds: 5,
            view: ElectionView::default(),
            leader: None,
            candidate_key_state: CandidateKeyState::Unread { reading: FullReadId(1), own: None },
            refresh_revision: Revision(0),
            leader_state: LeaderState::Following,
            commits: CommitGaps::default(),
            heard_at: MonotonicTime::default(),
            is_predecessor_checked: false,
            is_shutting_down: false,
            leases_to_revoke: Vec::new(),
            retry_at: MonotonicTime::default(),
            leaderless_since: None,
            released_term: Term::default(),
            next_yield_at: MonotonicTime::default(),
        }
    }

    /// Sets the interval of refreshes (Ki), the lifetime of a refresh (Th), and the time to live of the next leader
    /// lease.
    pub fn set_timings(&mut self, interval_ms: Millis, valid_ms: Millis, ttl_seconds: i64) {
        self.interval_ms = interval_ms.max(100);
        self.valid_ms = valid_ms.max(100);
        self.ttl_seconds = ttl_seconds.max(1);
    }

    /// Returns the leadership as long as it is not known to be lost.
    pub fn leadership(&self) -> Option<&Leadership> {
        match &self.leader_state {
            LeaderState::Leading { leadership, .. } => Some(leadership),
            LeaderState::Following
            | LeaderState::Granting
            | LeaderState::Granted { .. }
            | LeaderState::Campaigning { .. }
            | LeaderState::Uncertain { .. }
            | LeaderState::Yielding { .. }
            | LeaderState::Evicting
            | LeaderState::Resigning
            | LeaderState::Done => None,
        }
    }

    /// Returns this process's candidate key, once the key exists, and while no other value is seen in the key.
    pub fn candidate_key(&self) -> Option<CandidateKey> {
        self.candidate_key_state.own()
    }

    /// Returns the machine of another process that refreshes this candidate's key. This process then only serves the
    /// API.
    pub fn duplicate(&self) -> Option<&MachineId> {
        self.candidate_key_state.duplicate()
    }

    /// Returns the times at which this process committed.
    pub fn commits(&self) -> &CommitGaps {
        &self.commits
    }

    /// Returns `true` if a shutdown is complete.
    pub fn is_done(&self) -> bool {
        self.leader_state == LeaderState::Done
    }

    /// Returns `true` once a clean shutdown was requested.
    pub fn is_shutting_down(&self) -> bool {
        self.is_shutting_down
    }

    /// Starts a clean shutdown: the leader key is released, the candidate key stays (R9.16).
    pub fn shut_down(&mut self) {
        self.is_shutting_down = true;
    }

    /// Releases the leader key for an older candidate, unless this process did so less than 30 leader leases ago
    /// (R9.29). Returns `true` if the key is released.
    pub fn yield_to_older(&mut self, now: &Now) -> bool {
        if now.monotonic_raw < self.next_yield_at || self.leadership().is_none() {
            return false;
        }
        self.next_yield_at = now.monotonic_raw + MIN_YIELD_INTERVAL_LEASES * self.lease_ms();
        self.give_up_leadership();
        true
    }

    fn give_up_leadership(&mut self) {
        if let LeaderState::Leading { lease, leadership, .. } = &self.leader_state {
            let (lease, term) = (*lease, leadership.term);
            self.released_term = term;
            self.leader_state = LeaderState::Yielding { lease, term };
        }
    }

    /// Processes a newer view of the election's keys; `read_tracker` shows which reads are complete.
    pub fn observe(&mut self, now: &Now, view: ElectionView, read_tracker: &ReadTracker) {
        if view.revision < self.view.revision {
            return;
        }
        if view.revision > self.view.revision {
            self.heard_at = now.monotonic_raw;
        }
        if self.view.leader != view.leader {
            self.leader = view.leader.as_ref().map(leader_of);
        }
        self.view = view;
        match (&self.view.leader, self.leaderless_since) {
            (Some(_), _) => self.leaderless_since = None,
            (None, None) => self.leaderless_since = Some(now.monotonic_raw),
            (None, Some(_)) => {}
        }
        self.observe_candidate_key(now, read_tracker);
        match &self.leader_state {
            LeaderState::Leading { lease, leadership, .. } => {
                let is_same = self
                    .view
                    .leader
                    .as_ref()
                    .is_some_and(|entry| Term::created_at(entry.create_revision) == leadership.term);
                if self.view.revision >= leadership.term.revision() && !is_same {
                    self.leases_to_revoke.push(*lease);
                    self.leader_state = LeaderState::Following;
                } else if self.candidate_key_state.is_lost() {
                    self.give_up_leadership();
                }
            }
            LeaderState::Uncertain { lease, reading } => {
                let (lease, reading) = (*lease, *reading);
                if !self.adopt_own_key(now) && read_tracker.is_complete(reading) {
                    // The creation may still be applied late. After its lease is revoked, this is no longer possible.
                    self.leases_to_revoke.push(lease);
                    self.leader_state = LeaderState::Following;
                }
            }
            LeaderState::Following => {
                self.adopt_own_key(now);
            }
            LeaderState::Granting
            | LeaderState::Granted { .. }
            | LeaderState::Campaigning { .. }
            | LeaderState::Yielding { .. }
            | LeaderState::Evicting
            | LeaderState::Resigning
            | LeaderState::Done => {}
        }
    }

    /// Takes over the leadership of a leader key that this process wrote, regardless of the reported outcome of that
    /// write. Returns `true` if the leadership was taken over.
    fn adopt_own_key(&mut self, now: &Now) -> bool {
        let (Some(entry), Some(leader)) = (&self.view.leader, &self.leader) else { return false };
        let term = Term::created_at(entry.create_revision);
        if leader.instance != self.candidate.instance || term <= self.released_term {
            return false;
        }
        let leadership = Leadership { key: self.keys.leader(), term };
        self.leader_state = LeaderState::Leading {
            lease: entry.lease,
            leadership,
            keep_alive_at: now.monotonic_raw,
            is_keeping_alive: false,
        };
        true
    }

    /// Processes the outcome of a commit that [`Step::Commit`] requested.
    pub fn on_committed(
        &mut self,
        now: &Now,
        kind: WriteKind,
        outcome: &Outcome,
        read_tracker: &mut ReadTracker,
    ) {
        if outcome.applied().is_some() {
            self.commits.record_commit(now.monotonic_raw);
        }
        match outcome {
            Outcome::Applied(_) | Outcome::Conflict(_) | Outcome::LeaseNotFound | Outcome::Refused(_) => {
                self.heard_at = now.monotonic_raw;
            }
            Outcome::Unknown(_) => {}
        }
        match kind {
            WriteKind::Candidate => self.on_candidate_committed(now, outcome, read_tracker),
            WriteKind::Refresh => self.on_refresh_committed(now, outcome, read_tracker),
            WriteKind::Removal => self.on_removal_committed(now, outcome, read_tracker),
            WriteKind::Leader => self.on_leader_committed(now, outcome, read_tracker),
            WriteKind::Resign => {
                // A conflict means that another process has the key. After an unknown outcome, the key expires with its
                // lease.
                self.leader_state = LeaderState::Done;
            }
        }
    }

    fn on_leader_committed(&mut self, now: &Now, outcome: &Outcome, read_tracker: &mut ReadTracker) {
        self.leader_state = match (&self.leader_state, outcome) {
            (LeaderState::Campaigning { lease }, Outcome::Applied(revision)) => LeaderState::Leading {
                lease: *lease,
                leadership: Leadership { key: self.keys.leader(), term: Term::created_at(*revision) },
                keep_alive_at: now.monotonic_raw + self.keep_interval_ms(),
                is_keeping_alive: false,
            },
            (LeaderState::Campaigning { lease }, Outcome::Unknown(_)) => {
                LeaderState::Uncertain { lease: *lease, reading: read_tracker.request() }
            }
            (
                LeaderState::Campaigning { lease },
                Outcome::Conflict(_) | Outcome::Refused(_) | Outcome::LeaseNotFound,
            ) => {
                self.leases_to_revoke.push(*lease);
                self.retry_at = now.monotonic_raw + 500;
                read_tracker.request();
                LeaderState::Following
            }
            (LeaderState::Evicting, _) => {
                read_tracker.request();
                LeaderState::Following
            }
            (other, _) => other.clone(),
        };
    }

    /// Processes the result of [`Step::GrantLease`].
    pub fn on_lease_granted(&mut self, now: &Now, lease: Option<LeaseId>) {
        match (&self.leader_state, lease) {
            (LeaderState::Granting, Some(lease)) => self.leader_state = LeaderState::Granted { lease },
            (LeaderState::Granting, None) => {
                self.leader_state = LeaderState::Following;
                self.retry_at = now.monotonic_raw + 500;
            }
            (_, Some(lease)) => self.leases_to_revoke.push(lease),
            (_, None) => {}
        }
    }

    /// Processes the result of [`Step::KeepAlive`]. An expired lease ends the leadership only once the key is known to
    /// be deleted. Until then, the guard of each write decides whether it is still permitted.
    pub fn on_lease_kept(&mut self, now: &Now, kept: LeaseId, alive: bool, read_tracker: &mut ReadTracker) {
        let interval_ms = self.keep_interval_ms();
        if alive {
            self.heard_at = now.monotonic_raw;
        }
        if let LeaderState::Leading { lease, keep_alive_at, is_keeping_alive, .. } = &mut self.leader_state
            && *lease == kept
        {
            *is_keeping_alive = false;
            *keep_alive_at = now.monotonic_raw + if alive { interval_ms } else { 500 };
            if !alive {
                read_tracker.request();
            }
        }
    }

    fn lease_ms(&self) -> Millis {
        u64::try_from(self.ttl_seconds).unwrap_or(1) * 1000
    }

    fn keep_interval_ms(&self) -> Millis {
        self.lease_ms() / 3
    }

    /// Returns the time at which this candidate may campaign while the view shows no leader: immediately, unless an
    /// older candidate has precedence (R9.28).
    fn campaign_time(&self) -> MonotonicTime {
        let limit = self.leaderless_since.unwrap_or_default() + YIELD_TO_OLDER_LEASES * self.lease_ms();
        self.view.yields_until.map_or(self.retry_at, |until| until.min(limit).max(self.retry_at))
    }

    /// Returns the next action, if any. The caller repeats the call until it returns `None`.
    pub fn poll(&mut self, now: &Now) -> Option<Step> {
        if let Some(lease) = self.leases_to_revoke.pop() {
            return Some(Step::Revoke(lease));
        }
        if self.is_shutting_down {
            return self.poll_shutdown();
        }
        self.poll_candidate_key(now).or_else(|| self.poll_leader(now))
    }

    fn poll_leader(&mut self, now: &Now) -> Option<Step> {
        // A leader whose requests reach etcd, but which receives no answers, cannot lead. Its keep-alives must not
        // prevent another candidate from leading (R2.9).
        let hears_etcd = now.monotonic_raw.since(self.heard_at) <= self.lease_ms();
        match &mut self.leader_state {
            LeaderState::Following => {
                if self.view.revision == Revision(0)
                    || self.candidate_key().is_none()
                    || now.monotonic_raw < self.campaign_time()
                {
                    return None;
                }
                let first = !std::mem::replace(&mut self.is_predecessor_checked, true);
                match (&self.view.leader, &self.leader) {
                    (None, _) => {
                        self.leader_state = LeaderState::Granting;
                        Some(Step::GrantLease { ttl_seconds: self.ttl_seconds })
                    }
                    (Some(entry), Some(leader)) if first && leader.id == self.candidate.id => {
                        let guard = Guard::Unchanged(entry.mod_revision);
                        self.leader_state = LeaderState::Evicting;
                        let transaction = Transaction::new().delete(self.keys.leader(), guard);
                        Some(Step::Commit(WriteKind::Leader, transaction))
                    }
                    (Some(_), _) => None,
                }
            }
            LeaderState::Granted { lease } => {
                let lease = *lease;
                if self.view.leader.is_some() {
                    self.leader_state = LeaderState::Following;
                    return Some(Step::Revoke(lease));
                }
                let leader = Leader {
                    id: self.candidate.id.clone(),
                    url: self.candidate.url.clone(),
                    instance: self.candidate.instance.clone(),
                    since: now.timestamp(),
                };
                let value = serde_json::to_vec(&leader).unwrap_or_default();
                self.leader_state = LeaderState::Campaigning { lease };
                let transaction =
                    Transaction::new().put_leased(self.keys.leader(), Guard::Absent, value, lease);
                Some(Step::Commit(WriteKind::Leader, transaction))
            }
            LeaderState::Leading { lease, keep_alive_at, is_keeping_alive, .. } => {
                if *is_keeping_alive || now.monotonic_raw < *keep_alive_at {
                    return None;
                }
                if !hears_etcd {
                    *keep_alive_at = now.monotonic_raw + 500;
                    return None;
                }
                *is_keeping_alive = true;
                Some(Step::KeepAlive(*lease))
            }
            LeaderState::Yielding { lease, term } => {
                let transaction =
                    Transaction::new().delete(self.keys.leader(), Guard::Created(term.revision()));
                self.leases_to_revoke.push(*lease);
                self.leader_state = LeaderState::Evicting;
                Some(Step::Commit(WriteKind::Leader, transaction))
            }
            LeaderState::Granting
            | LeaderState::Campaigning { .. }
            | LeaderState::Uncertain { .. }
            | LeaderState::Evicting
            | LeaderState::Resigning
            | LeaderState::Done => None,
        }
    }

    fn poll_shutdown(&mut self) -> Option<Step> {
        match &self.leader_state {
            LeaderState::Granting
            | LeaderState::Campaigning { .. }
            | LeaderState::Uncertain { .. }
            | LeaderState::Evicting
            | LeaderState::Resigning
            | LeaderState::Done => None,
            LeaderState::Granted { lease } => {
                let lease = *lease;
                self.leader_state = LeaderState::Following;
                Some(Step::Revoke(lease))
            }
            LeaderState::Following => {
                self.leader_state = LeaderState::Done;
                None
            }
            LeaderState::Leading { lease, leadership: Leadership { term, .. }, .. }
            | LeaderState::Yielding { lease, term } => {
                let transaction =
                    Transaction::new().delete(self.keys.leader(), Guard::Created(term.revision()));
                self.leases_to_revoke.push(*lease);
                self.leader_state = LeaderState::Resigning;
                Some(Step::Commit(WriteKind::Resign, transaction))
            }
        }
    }

    /// Returns the time at which [`Election::poll`] must be called again, and why.
    pub fn deadline(&self) -> Option<(MonotonicTime, &'static str)> {
        let leader = match &self.leader_state {
            LeaderState::Leading { keep_alive_at, is_keeping_alive: false, .. } => {
                Some((*keep_alive_at, "keep the leader lease alive"))
            }
            LeaderState::Following if self.view.leader.is_none() && self.candidate_key().is_some() => {
                Some((self.campaign_time(), "campaign again"))
            }
            LeaderState::Following
            | LeaderState::Leading { .. }
            | LeaderState::Granting
            | LeaderState::Granted { .. }
            | LeaderState::Campaigning { .. }
            | LeaderState::Uncertain { .. }
            | LeaderState::Yielding { .. }
            | LeaderState::Evicting
            | LeaderState::Resigning
            | LeaderState::Done => None,
        };
        self.candidate_key_deadline().into_iter().chain(leader).min()
    }
}
