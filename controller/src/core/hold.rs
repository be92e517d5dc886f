//! Hold: an agent that cannot commit asks every controller not to declare its node dead (FENCING, section 9).

use super::Controller;
use ha_api_types::id::NodeName;
use ha_api_types::record::{FenceState, HoldAnswer, HoldRequest, Leader};
use ha_api_types::time::MonotonicTime;

impl Controller {
    /// Answers an agent. A grant counts as an observation of the node at this time.
    pub(super) fn answer_hold(&mut self, node: &NodeName, request: &HoldRequest) -> HoldAnswer {
        let now = self.now.monotonic_raw;
        if let Some(reason) = self.hold_refusal(node, request, now) {
            return HoldAnswer { granted: false, reason };
        }
        self.cluster_view.observe_hold(node, now);
        self.is_dirty = true;
        HoldAnswer { granted: true, reason: String::new() }
    }

    /// Returns why this controller may not, or need not, grant hold to a node. The controller grants hold only if the
    /// request names it, and if it has read etcd since its start but cannot commit either. No declaration against the
    /// node may be committed or possibly committed.
    fn hold_refusal(&self, node: &NodeName, request: &HoldRequest, now: MonotonicTime) -> Option<String> {
        if request.candidate != self.config.id {
            return Some(format!(
                "request is for controller {}, but this is {}: each controller needs its own URL",
                request.candidate, self.config.id
            ));
        }
        if self.election_state.is_ending {
            return Some("this controller is shutting down".to_owned());
        }
        if self.cluster_view.revision.is_zero() {
            return Some("this controller has not read etcd since it started".to_owned());
        }
        if self.election_state.candidate_key.is_none() {
            return Some(format!(
                "candidate key of {} belongs to another process, or is not written yet",
                self.config.id
            ));
        }
        let commits = &self.election_state.commits;
        if !commits.has_committed() {
            return Some("this controller has not committed to etcd since it started".to_owned());
        }
        // Two intervals, because an attempt that began one Ki ago has had its full time limit (Ki).
        if commits.is_current(now, 2 * self.cluster_view.timings().heartbeat_interval_ms) {
            return Some("this controller can reach etcd, but the node cannot".to_owned());
        }
        let leader: Option<Leader> =
            self.cluster_view.leader.as_ref().and_then(|entry| serde_json::from_slice(&entry.value).ok());
        if leader.is_some_and(|leader| leader.id == self.config.id && leader.instance != self.config.instance)
        {
            return Some(
                "leader key belongs to an earlier process of this controller, whose writes may still be applied".to_owned(),
            );
        }
        let Some(fence) = self.cluster_view.fences.get(node).map(|fence| &fence.value) else {
            return Some(format!("no registration of {node} is known"));
        };
        let is_same_registration = fence.state == FenceState::Open
            && fence.epoch == request.epoch
            && fence.boot_id == request.boot_id;
        if !is_same_registration {
            return Some(format!(
                "request is for registration {} of {node}, but registration {} is {}",
                request.epoch,
                fence.epoch,
                fence.state.name()
            ));
        }
        if self.writes.may_close(node) {
            return Some(format!("a revocation of the registration of {node} was sent and may be applied"));
        }
        None
    }
}
