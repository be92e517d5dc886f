//! Writes in progress: one per key, batched into few transactions, and sent separately if one write delays the other
//! writes.

use super::interface::{CommitId, FullReadId};
use super::plan::{Action, OnApplied, Plan, Subject};
use super::world::ClusterView;
use ha_api_types::event::Event;
use ha_api_types::id::{NodeName, ResourceName, Revision};
use ha_api_types::record::FenceState;
use ha_api_types::time::{Millis, MonotonicTime};
use ha_store::election::{Leadership, ReadTracker};
use ha_store::{Outcome, Transaction};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of batches in progress; additional batches would only wait at etcd.
const MAX_BATCHES: usize = 16;
/// Pause after etcd refused a write, in milliseconds.
const REFUSED_PAUSE_MS: Millis = 1_000;
/// Maximum pause after consecutive conflicts, in milliseconds.
const CONFLICT_PAUSE_MS: Millis = 1_000;

/// One transaction in progress.
#[derive(Clone, Debug)]
struct Batch {
    actions: Vec<BatchedAction>,
    sent: MonotonicTime,
}

#[derive(Clone, Debug)]
struct BatchedAction {
    subject: Subject,
    events: Vec<Event>,
    on_applied: OnApplied,
}

/// Reason why a subject is not planned now.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WriteState {
    /// The write is in progress.
    Sent,
    /// The write was applied, and the view must show this revision first.
    Until(Revision),
    /// The outcome was a conflict or is unknown, and etcd must be read again first.
    Reading(FullReadId),
    /// Pause until this time, because etcd refused the write, or it conflicted repeatedly.
    Pause(MonotonicTime),
}

/// Returns the revisions of a node's fence and heartbeat. The revisions show whether an earlier write to the fence can
/// still be applied.
fn fence_and_heartbeat_revisions(
    cluster_view: &ClusterView,
    node: &NodeName,
) -> (Revision, Option<Revision>) {
    let fence = cluster_view.fences.get(node).map_or(Revision::default(), |fence| fence.mod_revision);
    (fence, cluster_view.alive.get(node).map(|alive| alive.mod_revision))
}

/// Result of an answered batch for the core.
#[derive(Clone, Debug, Default)]
pub(super) struct CommitResult {
    /// Events to emit.
    pub(super) events: Vec<Event>,
    /// `on_applied` of each applied action, with the time of sending and the revision.
    pub(super) applied: Vec<(OnApplied, MonotonicTime, Revision)>,
    /// Error of etcd if it refused the batch.
    pub(super) refused: Option<String>,
}

/// All unfinished writes of the planner.
#[derive(Clone, Debug, Default)]
pub(super) struct Writes {
    batches: BTreeMap<CommitId, Batch>,
    busy: BTreeMap<Subject, WriteState>,
    /// Subjects whose last batched write conflicted. The next writes about these subjects are sent alone, so that a
    /// conflicting write does not delay other writes.
    send_alone: BTreeSet<Subject>,
    conflicts: BTreeMap<Subject, u32>,
    /// Nodes that an unknown commit may have closed, with the fence's revision before it.
    possibly_closed: BTreeMap<NodeName, Revision>,
    /// Fences that an unknown commit may have written: the revisions of fence and heartbeat before the commit. Once
    /// one of the two has changed, the commit can no longer be applied.
    fences_with_unknown_write: BTreeMap<NodeName, (Revision, Option<Revision>)>,
    /// Nodes that services will use once the writes in progress are seen.
    pending_uses: BTreeMap<ResourceName, (Subject, BTreeSet<NodeName>)>,
}

impl Writes {
    /// Returns the subjects that must not be planned.
    pub(super) fn subjects_in_flight(&self) -> BTreeSet<Subject> {
        self.busy.keys().cloned().collect()
    }

    /// Returns the nodes that services will use.
    pub(super) fn pending_uses(&self) -> BTreeMap<ResourceName, BTreeSet<NodeName>> {
        self.pending_uses.iter().map(|(name, (_, used_nodes))| (name.clone(), used_nodes.clone())).collect()
    }

    /// Returns the nodes that an unknown commit may have closed. The planner must allow for both outcomes.
    pub(super) fn possibly_closed(&self) -> BTreeSet<NodeName> {
        self.possibly_closed.keys().cloned().collect()
    }

    /// Returns `true` if a write of this process may close a node's epoch, or has closed it.
    pub(super) fn may_close(&self, node: &NodeName) -> bool {
        let is_of_fence =
            |member: &BatchedAction| matches!(&member.subject, Subject::Fence(name) if name == node);
        self.fences_with_unknown_write.contains_key(node)
            || self.batches.values().any(|batch| batch.actions.iter().any(is_of_fence))
    }

    /// Returns `true` if a batch has this id.
    pub(super) fn contains(&self, id: CommitId) -> bool {
        self.batches.contains_key(&id)
    }

    /// Frees subjects whose wait has ended. Returns `true` if a subject became free.
    pub(super) fn release_finished(
        &mut self,
        cluster_view: &ClusterView,
        read_tracker: &ReadTracker,
        now: MonotonicTime,
    ) -> bool {
        let before = self.busy.len();
        self.busy.retain(|_, busy| match busy {
            WriteState::Sent => true,
            WriteState::Until(revision) => cluster_view.revision < *revision,
            WriteState::Reading(reading) => !read_tracker.is_complete(*reading),
            WriteState::Pause(until) => now < *until,
        });
        let busy = &self.busy;
        self.pending_uses.retain(|_, (subject, _)| busy.contains_key(subject));
        self.possibly_closed.retain(|node, revision| {
            cluster_view
                .fences
                .get(node)
                .is_some_and(|fence| fence.value.state == FenceState::Open && fence.mod_revision == *revision)
        });
        self.fences_with_unknown_write
            .retain(|node, before| *before == fence_and_heartbeat_revisions(cluster_view, node));
        self.busy.len() != before
    }

    /// Returns the end of the earliest pause.
    pub(super) fn deadline(&self) -> Option<MonotonicTime> {
        self.busy
            .values()
            .filter_map(|busy| match busy {
                WriteState::Pause(until) => Some(*until),
                WriteState::Sent | WriteState::Until(_) | WriteState::Reading(_) => None,
            })
            .min()
    }

    /// Sends a plan's actions in transactions with the leader's guard. Each fence is sent in a separate transaction, so
    /// that no other write delays it. Actions beyond the limit are planned again later.
    pub(super) fn send(
        &mut self,
        plan: &mut Plan,
        leadership: &Leadership,
        now: MonotonicTime,
        mut next_id: impl FnMut() -> CommitId,
    ) -> Vec<(CommitId, Transaction)> {
        let mut groups: Vec<(Transaction, Vec<BatchedAction>, bool)> = Vec::new();
        for action in std::mem::take(&mut plan.actions) {
            let Action { subject, transaction, events, on_applied } = action;
            let signed = leadership.sign(transaction);
            if self.busy.contains_key(&subject) || !signed.fits() {
                continue;
            }
            let must_be_alone = matches!(subject, Subject::Fence(_)) || self.send_alone.remove(&subject);
            let member = BatchedAction { subject, events, on_applied };
            let open = groups.last_mut().filter(|(_, _, closed)| !closed && !must_be_alone);
            if let Some((joined, members, _)) = open
                && let Some(more) = joined.join(&signed)
            {
                *joined = more;
                members.push(member);
                continue;
            }
            if self.batches.len() + groups.len() >= MAX_BATCHES {
                break;
            }
            groups.push((signed, vec![member], must_be_alone));
        }
        groups
            .into_iter()
            .map(|(transaction, actions, _)| {
                let id = next_id();
                for member in &actions {
                    self.busy.insert(member.subject.clone(), WriteState::Sent);
                    if let (Subject::Service(name), OnApplied::Uses(used_nodes)) =
                        (&member.subject, &member.on_applied)
                    {
                        self.pending_uses.insert(name.clone(), (member.subject.clone(), used_nodes.clone()));
                    }
                }
                self.batches.insert(id, Batch { actions, sent: now });
                (id, transaction)
            })
            .collect()
    }

    pub(super) fn handle_answer(
        &mut self,
        id: CommitId,
        outcome: &Outcome,
        cluster_view: &ClusterView,
        read_tracker: &mut ReadTracker,
        now: MonotonicTime,
    ) -> CommitResult {
        let mut answered = CommitResult::default();
        let Some(batch) = self.batches.remove(&id) else { return answered };
        let joined = batch.actions.len() > 1;
        for member in batch.actions {
            let BatchedAction { subject, events, on_applied } = member;
            let busy = match outcome {
                Outcome::Applied(revision) => {
                    self.conflicts.remove(&subject);
                    answered.events.extend(events);
                    answered.applied.push((on_applied, batch.sent, *revision));
                    WriteState::Until(*revision)
                }
                Outcome::Conflict(_) | Outcome::LeaseNotFound => {
                    if joined {
                        self.send_alone.insert(subject.clone());
                        WriteState::Reading(read_tracker.request())
                    } else {
                        self.handle_conflict(&subject, read_tracker, now)
                    }
                }
                Outcome::Unknown(_) => {
                    if let OnApplied::ClosesOnSilence(node) = on_applied
                        && let Some(fence) = cluster_view.fences.get(&node)
                    {
                        self.possibly_closed.insert(node, fence.mod_revision);
                    }
                    if let Subject::Fence(node) = &subject {
                        self.fences_with_unknown_write
                            .insert(node.clone(), fence_and_heartbeat_revisions(cluster_view, node));
                    }
                    WriteState::Reading(read_tracker.request())
                }
                Outcome::Refused(message) => {
                    answered.refused = Some(message.clone());
                    if joined {
                        self.send_alone.insert(subject.clone());
                    }
                    WriteState::Pause(now + REFUSED_PAUSE_MS)
                }
            };
            self.busy.insert(subject, busy);
        }
        answered
    }

    /// Handles a conflict of a single write: another read precedes the next plan of its object, and several conflicts
    /// also delay that plan.
    fn handle_conflict(
        &mut self,
        subject: &Subject,
        read_tracker: &mut ReadTracker,
        now: MonotonicTime,
    ) -> WriteState {
        let count = self.conflicts.entry(subject.clone()).or_default();
        *count = count.saturating_add(1);
        let reading = read_tracker.request();
        if *count < 5 {
            WriteState::Reading(reading)
        } else {
            WriteState::Pause(now + (50_u64 << (*count).min(10)).min(CONFLICT_PAUSE_MS))
        }
    }

    /// Handles the end of leadership. Each write in progress has been applied or will conflict, and no plan depends on
    /// it.
    pub(super) fn end_leadership(&mut self) {
        self.busy.retain(|_, busy| *busy == WriteState::Sent);
        self.send_alone.clear();
        self.conflicts.clear();
    }
}
