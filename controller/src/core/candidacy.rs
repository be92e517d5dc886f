//! The election of the leader. Its core is separate from the planner, because a long plan must not delay refreshes and
//! keep-alives.
//!
//! The election reports its state to the planner ([`ElectionState`]). The planner sends the facts that only its view
//! contains ([`ElectionInputs`]).

use super::interface::{CommitId, Config, Effect, FullReadId, Input};
use super::world::ClusterView;
use ha_api_types::id::{ControllerId, MachineId, Revision};
use ha_api_types::keys::Keys;
use ha_api_types::protocol::Protocol;
use ha_api_types::record::Candidate;
use ha_api_types::time::{Millis, MonotonicTime, Now};
use ha_store::election::{
    CandidateKey, CommitGaps, Election, ElectionView, Leadership, ReadTracker, Step, WriteKind,
};
use ha_store::{Change, Entry};
use std::collections::{BTreeMap, VecDeque};

/// First id of this core's commits and reads; the planner uses lower ids.
pub(super) const FIRST_ELECTION_ID: u64 = 1 << 62;

/// State of the election, as reported to the planner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElectionState {
    /// Leadership, while it is not known to be lost.
    pub leadership: Option<Leadership>,
    /// This process's own candidate key; `None` while it is not committed.
    pub candidate_key: Option<CandidateKey>,
    /// Times of this process's commits.
    pub commits: CommitGaps,
    /// Machine of another process that refreshes this controller's keys; `None` if there is no such process.
    pub duplicate: Option<MachineId>,
    /// Number of times that this process resigned in favor of an older controller.
    pub yields: u32,
    /// `true` if a shutdown was requested.
    pub is_ending: bool,
}

/// Facts that the election needs from the planner's view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionInputs {
    /// Longest interval between commits of this process, in milliseconds.
    pub interval_ms: Millis,
    /// Time in milliseconds for which a refresh is valid (Th).
    pub valid_ms: Millis,
    /// TTL of the next leader lease, in seconds.
    pub lease_seconds: i64,
    /// Time until which an older controller has precedence as leader (R9.28); `None` if none has.
    pub yields_until: Option<MonotonicTime>,
    /// `true` if an older controller may act on the silence of a node, and this leader may not: the leader resigns if
    /// allowed (R9.29).
    pub yields_now: bool,
}

impl ElectionInputs {
    pub(super) fn of(cluster_view: &ClusterView, yields_until: Option<MonotonicTime>) -> ElectionInputs {
        let timings = cluster_view.timings();
        ElectionInputs {
            interval_ms: cluster_view.commit_interval_ms(),
            valid_ms: timings.heartbeat_valid_ms,
            lease_seconds: timings.leader_lease_seconds(),
            yields_until,
            yields_now: false,
        }
    }
}

/// The core of the election.
#[derive(Debug)]
pub struct Candidacy {
    keys: Keys,
    id: ControllerId,
    now: Now,
    election: Election,
    read_tracker: ReadTracker,
    view: ElectionView,
    commits: BTreeMap<CommitId, WriteKind>,
    next_commit: u64,
    effects: VecDeque<Effect>,
    reported: ElectionState,
    yields: u32,
    has_ended: bool,
}

impl Candidacy {
    /// Creates a candidate without any observation. Its first effect is a read.
    pub fn new(config: &Config) -> Candidacy {
        let keys = Keys::new(&config.cluster);
        let candidate = Candidate {
            id: config.id.clone(),
            url: config.url.clone(),
            protocol: Protocol::CURRENT,
            version: config.version.clone(),
            instance: config.instance.clone(),
            machine: config.machine.clone(),
            sequence: 0,
        };
        Candidacy {
            election: Election::new(keys.clone(), candidate, config.is_only_process),
            keys,
            id: config.id.clone(),
            now: Now::default(),
            read_tracker: ReadTracker::default(),
            view: ElectionView::default(),
            commits: BTreeMap::new(),
            next_commit: FIRST_ELECTION_ID,
            effects: VecDeque::new(),
            reported: ElectionState::default(),
            yields: 0,
            has_ended: false,
        }
    }

    /// Returns the keys that the election must observe.
    pub fn keys(config: &Config) -> [String; 3] {
        let keys = Keys::new(&config.cluster);
        [keys.leader(), keys.candidate(&config.id), keys.refresh(&config.id)]
    }

    /// Applies an input, and ignores the planner's inputs.
    pub fn handle(&mut self, now: &Now, input: Input) {
        self.now = now.clone();
        match input {
            Input::Synced { entries, revision, answers } => {
                self.read_tracker.complete(FullReadId(answers.0.saturating_sub(FIRST_ELECTION_ID)));
                if revision >= self.view.revision {
                    (self.view.leader, self.view.candidate, self.view.refresh) = (None, None, None);
                    for entry in entries {
                        self.put(entry);
                    }
                    self.view.revision = revision;
                }
                self.observe();
            }
            Input::Changed { changes, revision } => {
                for change in changes {
                    match change {
                        Change::Put(entry) if entry.mod_revision > self.view.revision => self.put(entry),
                        Change::Delete { key, revision } if revision > self.view.revision => {
                            self.remove(&key);
                        }
                        Change::Put(_) | Change::Delete { .. } => {}
                    }
                }
                self.advance_revision(revision);
            }
            Input::Progress(revision) => self.advance_revision(revision),
            Input::Committed { id, outcome } => {
                if let Some(kind) = self.commits.remove(&id) {
                    self.election.on_committed(now, kind, &outcome, &mut self.read_tracker);
                }
            }
            Input::LeaseGranted { result } => self.election.on_lease_granted(now, result.ok()),
            Input::LeaseKept { lease, result } => {
                self.election.on_lease_kept(now, lease, result.is_ok(), &mut self.read_tracker);
            }
            Input::ElectionInputs(inputs) => {
                self.election.set_timings(inputs.interval_ms, inputs.valid_ms, inputs.lease_seconds);
                self.view.yields_until = inputs.yields_until;
                if inputs.yields_now && self.election.yield_to_older(now) {
                    self.yields += 1;
                }
                self.observe();
            }
            Input::Shutdown => self.election.shut_down(),
            Input::Tick
            | Input::ElectionState(_)
            | Input::FencerDone { .. }
            | Input::HoldRequested { .. }
            | Input::Delivered { .. } => {}
        }
    }

    /// Returns the next effect. After one or several inputs, call this function until it returns `None`.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        if self.effects.is_empty() && !self.has_ended {
            self.advance();
        }
        self.effects.pop_front()
    }

    /// Returns the time on `now.monotonic_raw` at which to send [`Input::Tick`], and the reason.
    pub fn deadline(&self) -> Option<(MonotonicTime, &'static str)> {
        if self.has_ended { None } else { self.election.deadline() }
    }

    fn advance(&mut self) {
        while let Some(step) = self.election.poll(&self.now) {
            let effect = match step {
                Step::Commit(kind, transaction) => {
                    let id = CommitId(self.next_commit);
                    self.next_commit += 1;
                    self.commits.insert(id, kind);
                    Effect::Commit { id, transaction }
                }
                Step::GrantLease { ttl_seconds } => Effect::GrantLease { ttl_seconds },
                Step::KeepAlive(lease) => Effect::KeepAlive { lease },
                Step::Revoke(lease) => Effect::Revoke { lease },
            };
            self.effects.push_back(effect);
        }
        if !self.is_reported() {
            let election_state = ElectionState {
                leadership: self.election.leadership().cloned(),
                candidate_key: self.election.candidate_key(),
                commits: self.election.commits().clone(),
                duplicate: self.election.duplicate().cloned(),
                yields: self.yields,
                is_ending: self.election.is_shutting_down(),
            };
            self.reported = election_state.clone();
            self.effects.push_back(Effect::ReportElection(Box::new(election_state)));
        }
        if self.election.is_done() {
            self.has_ended = true;
            self.effects.push_back(Effect::Ended);
        } else if let Some(id) = self.read_tracker.begin() {
            self.effects.push_back(Effect::Refresh { id: FullReadId(FIRST_ELECTION_ID + id.0) });
        }
    }

    /// Returns `true` if the planner knows the present state of the election.
    fn is_reported(&self) -> bool {
        let ElectionState { leadership, candidate_key, commits, duplicate, yields, is_ending } =
            &self.reported;
        leadership.as_ref() == self.election.leadership()
            && *candidate_key == self.election.candidate_key()
            && commits == self.election.commits()
            && duplicate.as_ref() == self.election.duplicate()
            && *yields == self.yields
            && *is_ending == self.election.is_shutting_down()
    }

    fn advance_revision(&mut self, revision: Revision) {
        self.view.revision = self.view.revision.max(revision);
        self.observe();
    }

    fn observe(&mut self) {
        // Before the first read, no key is known to be absent.
        if self.view.revision > Revision(0) {
            self.election.observe(&self.now, self.view.clone(), &self.read_tracker);
        }
    }

    fn put(&mut self, entry: Entry) {
        if let Some(slot) = self.own_key_entry(&entry.key) {
            *slot = Some(entry);
        }
    }

    fn remove(&mut self, key: &str) {
        if let Some(slot) = self.own_key_entry(key) {
            *slot = None;
        }
    }

    fn own_key_entry(&mut self, key: &str) -> Option<&mut Option<Entry>> {
        if key == self.keys.leader() {
            return Some(&mut self.view.leader);
        }
        if key == self.keys.candidate(&self.id) {
            return Some(&mut self.view.candidate);
        }
        (key == self.keys.refresh(&self.id)).then_some(&mut self.view.refresh)
    }
}
