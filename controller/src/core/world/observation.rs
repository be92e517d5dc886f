//! When each node and each candidate was last heard, on this process's own clock. Followers observe too.

use super::World;
use ha_api_types::record::{FenceState, Revision};
use ha_api_types::time::{Millis, Mono};

/// What a process knows of a node's heartbeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// `o` of FENCING, section 5: when `alive` was last seen to change, or when the node was first seen at all.
    pub since: Mono,
    /// The revision of that change; `None`: no heartbeat was seen.
    pub revision: Option<Revision>,
    /// The epoch whose opening was observed.
    opened: Option<(u64, Option<Revision>)>,
}

/// What a process knows of a candidate's refreshes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refreshed {
    /// When one of its keys was last seen to change, or when they were first seen at all.
    pub since: Mono,
    /// A change was seen; otherwise the keys may be of any age.
    pub is_seen: bool,
}

impl World {
    /// A candidate's candidate or refresh key was seen with another revision: builds from before `refresh/<id>` put the
    /// candidate key every Ki.
    pub(super) fn observe_refresh(&mut self, id: &str, is_change: bool, now: Mono) {
        let known = self.refreshed.get(id).is_some_and(|known| known.is_seen);
        self.refreshed.insert(id.to_owned(), Refreshed { since: now, is_seen: known || is_change });
    }

    /// A heartbeat was seen. Returns whether it came so late that the node may have been taken for silent.
    pub(super) fn observe_heartbeat(&mut self, node: &str, revision: Revision, now: Mono) -> bool {
        let valid_ms = self.heartbeat_valid_ms(node);
        match self.observations.get_mut(node) {
            Some(known) if known.revision == Some(revision) => false,
            Some(known) => {
                let late = known.revision.is_none() || now.since(known.since) >= valid_ms;
                known.since = now;
                known.revision = Some(revision);
                late
            }
            None => {
                let observation = Observation { since: now, revision: Some(revision), opened: None };
                self.observations.insert(node.to_owned(), observation);
                true
            }
        }
    }

    /// This process has granted a node's agent not to declare it dead: that counts as a heartbeat, from now.
    pub(in crate::core) fn observe_hold(&mut self, node: &str, now: Mono) {
        if let Some(known) = self.observations.get_mut(node) {
            known.since = now;
        }
    }

    /// Th of a node, milliseconds: what it committed itself; the cluster's while it has committed nothing.
    pub fn heartbeat_valid_ms(&self, node: &str) -> Millis {
        self.node_reports.get(node).map_or_else(
            || self.timings().heartbeat_valid_ms,
            |report| report.value.timings.heartbeat_valid_ms,
        )
    }

    /// A fence was seen: a node that was just admitted has the time of a first heartbeat from now.
    pub(super) fn observe_fence(&mut self, node: &str, now: Mono) {
        let Some(fence) = self.fences.get(node) else { return };
        let open =
            (fence.value.state == FenceState::Open).then_some((fence.value.epoch, fence.value.request));
        let known = self.observations.entry(node.to_owned()).or_insert(Observation {
            since: now,
            revision: None,
            opened: None,
        });
        if open.is_some() && known.opened != open {
            known.opened = open;
            known.since = now;
        }
    }
}
