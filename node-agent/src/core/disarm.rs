//! Disarm and arm as an agent follows them (SEMANTICS 8, FENCING 10).

use super::AgentCore;
use ha_api_types::cluster::{CLUSTER_NAME, Disarmed};
use ha_api_types::record::Mode;

impl AgentCore {
    /// How the cluster is disarmed: as the operator wants it, once the leader has said that nothing is being fenced,
    /// recovered or moved any more. Until then this node goes on as before.
    pub(super) fn disarmed(&self) -> Option<Disarmed> {
        let wanted = self.view.cluster().and_then(|cluster| cluster.spec.disarmed);
        let status = self.view.cluster_statuses.get(CLUSTER_NAME);
        let acknowledged = self.node_report().is_some_and(|report| report.mode == Mode::Disarmed);
        let allowed = match status.map(|stored| &stored.value) {
            None => None,
            Some(Some(status)) => status.disarm,
            // The status cannot be read: what this node has acknowledged stays so.
            Some(None) => wanted.or(Some(Disarmed::Freeze)).filter(|_| acknowledged),
        };
        if self.view.is_cluster_unknown() {
            // The leader's last word stands, or what this node has acknowledged.
            return allowed;
        }
        let wanted = wanted?;
        (allowed == Some(wanted)).then_some(wanted)
    }

    /// Whether the operator wants the cluster disarmed, whether or not that may be done yet.
    pub(super) fn is_to_be_disarmed(&self) -> bool {
        let wants = self.view.cluster().is_some_and(|cluster| cluster.spec.disarmed.is_some());
        wants || (self.view.is_cluster_unknown() && self.disarmed().is_some())
    }

    /// Whether the cluster is disarmed: nothing is begun, watched or ended here.
    pub(super) fn is_disarmed(&self) -> bool {
        self.disarmed().is_some()
    }

    /// Whether *Disarmed, armed: false* is to stand in the node's report: no worker is under way any more.
    pub(super) fn lays_down_arms(&self) -> bool {
        let quiet =
            || self.services.values().all(|service| service.task.is_none() && service.cancelling.is_empty());
        self.is_disarmed() && (self.has_acknowledged_disarm() || quiet())
    }

    /// The Cluster's generation while it is armed, else 0: a probe counts for the time from that arming on.
    pub(super) fn armed_generation(&self) -> i64 {
        self.view
            .cluster()
            .filter(|cluster| cluster.spec.disarmed.is_none())
            .map_or(0, |cluster| cluster.metadata.generation)
    }
}
