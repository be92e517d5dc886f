//! Times at which this process last observed each node and each candidate, on its own clock. Followers observe too.

use super::ClusterView;
use ha_api_types::id::{ControllerId, Epoch, NodeName, Revision};
use ha_api_types::record::FenceState;
use ha_api_types::time::{Millis, MonotonicTime};

/// Observation of a node's heartbeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// `o` of FENCING, section 5: time of the last observed change of `alive`, or of the first observation of the
    /// node.
    pub since: MonotonicTime,
    /// Revision of that change; `None` if no heartbeat was seen.
    pub revision: Option<Revision>,
    /// `true` if this process saw a heartbeat change; otherwise the node's last heartbeat may be of any age.
    pub has_changed: bool,
    /// Epoch and request of the last observed opening.
    opened: Option<(Epoch, Option<Revision>)>,
}

/// Observation of a candidate's refreshes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefreshObservation {
    /// Time of the last observed change of the candidate's keys, or of their first observation.
    pub since: MonotonicTime,
    /// `true` if a change was seen; otherwise the keys may be of any age.
    pub has_changed: bool,
}

impl ClusterView {
    /// Observes a new revision of a candidate or refresh key. Versions without `refresh/<id>` put the candidate key
    /// every Ki.
    pub(super) fn observe_refresh(&mut self, id: &ControllerId, is_change: bool, now: MonotonicTime) {
        let has_changed = self.refreshed.get(id).is_some_and(|observation| observation.has_changed);
        self.refreshed
            .insert(id.to_owned(), RefreshObservation { since: now, has_changed: has_changed || is_change });
    }

    /// Observes a heartbeat. Returns `true` if it was so late that the node may have counted as silent.
    pub(super) fn observe_heartbeat(
        &mut self,
        node: &NodeName,
        revision: Revision,
        now: MonotonicTime,
    ) -> bool {
        let valid_ms = self.heartbeat_valid_ms(node);
        match self.observations.get_mut(node) {
            Some(observation) if observation.revision == Some(revision) => false,
            Some(observation) => {
                let is_late = observation.revision.is_none() || now.since(observation.since) >= valid_ms;
                observation.has_changed |= observation.revision.is_some();
                observation.since = now;
                observation.revision = Some(revision);
                is_late
            }
            None => {
                let observation =
                    Observation { since: now, revision: Some(revision), has_changed: false, opened: None };
                self.observations.insert(node.to_owned(), observation);
                true
            }
        }
    }

    /// Records that this process granted hold to a node's agent, which counts as a heartbeat at this time.
    pub(in crate::core) fn observe_hold(&mut self, node: &NodeName, now: MonotonicTime) {
        if let Some(observation) = self.observations.get_mut(node) {
            observation.since = now;
        }
    }

    /// Returns Th of a node in milliseconds: the committed value, or that of the cluster if the node has committed
    /// none.
    pub fn heartbeat_valid_ms(&self, node: &NodeName) -> Millis {
        self.node_reports.get(node).map_or_else(
            || self.timings().heartbeat_valid_ms,
            |report| report.value.timings.heartbeat_valid_ms,
        )
    }

    /// Returns the longest interval in milliseconds between commits of a controller: the shortest heartbeat interval (Ki)
    /// of the cluster and of the nodes with an open epoch.
    ///
    /// The silence of a node is evidence only if the leader's commits have no gap longer than half of the node's Th (R5.8).
    /// A node that was lost before it read a slower profile keeps its own Th.
    pub fn commit_interval_ms(&self) -> Millis {
        let is_open = |node: &NodeName| {
            self.fences.get(node).is_some_and(|fence| fence.value.state == FenceState::Open)
        };
        let reports = self.node_reports.iter().filter(|(node, _)| is_open(node));
        let intervals = reports.map(|(_, report)| report.value.timings.heartbeat_interval_ms);
        intervals.fold(self.timings().heartbeat_interval_ms, Millis::min)
    }

    /// Observes a fence. The time in which a newly admitted node must send its first heartbeat begins now.
    pub(super) fn observe_fence(&mut self, node: &NodeName, now: MonotonicTime) {
        let Some(fence) = self.fences.get(node) else { return };
        let open =
            (fence.value.state == FenceState::Open).then_some((fence.value.epoch, fence.value.request));
        let observation = self.observations.entry(node.to_owned()).or_insert(Observation {
            since: now,
            revision: None,
            has_changed: false,
            opened: None,
        });
        if open.is_some() && observation.opened != open {
            observation.opened = open;
            observation.since = now;
        }
    }
}
