//! Disarm and arm of the cluster, as an agent follows them (FENCING 10).

use super::AgentCore;
use ha_api_types::cluster::{CLUSTER_NAME, Disarmed};
use ha_api_types::record::Mode;

impl AgentCore {
    /// Returns the mode in which the cluster is disarmed; `None` while this node continues normally. The mode is that
    /// of the operator's order, once the leader has stated that no fencing, recovery or move is in progress.
    pub(super) fn disarm_mode(&self) -> Option<Disarmed> {
        let requested = self.view.cluster().and_then(|cluster| cluster.spec.disarmed);
        let status = self.view.cluster_statuses.get(CLUSTER_NAME);
        let acknowledged = self.node_report().is_some_and(|report| report.mode == Mode::Disarmed);
        let allowed = match status.map(|stored| &stored.value) {
            None => None,
            Some(Some(status)) => status.disarm,
            // The status cannot be read, so the state that this node has acknowledged stays.
            Some(None) => requested.or(Some(Disarmed::Freeze)).filter(|_| acknowledged),
        };
        if self.view.is_cluster_unknown() {
            // Without a readable order, the leader's last status counts, otherwise the state that this node has
            // acknowledged.
            return allowed;
        }
        let requested = requested?;
        (allowed == Some(requested)).then_some(requested)
    }

    /// Returns `true` if the operator has ordered the cluster to be disarmed, even if the leader does not allow it yet.
    pub(super) fn is_to_be_disarmed(&self) -> bool {
        let is_disarm_requested = self.view.cluster().is_some_and(|cluster| cluster.spec.disarmed.is_some());
        is_disarm_requested || (self.view.is_cluster_unknown() && self.disarm_mode().is_some())
    }

    /// Returns `true` if the cluster is disarmed: this node starts, monitors and stops no service.
    pub(super) fn is_disarmed(&self) -> bool {
        self.disarm_mode().is_some()
    }

    /// Returns `true` if the node's report should contain *Disarmed, armed: false*: no worker is running.
    pub(super) fn is_disarming(&self) -> bool {
        let quiet = || {
            self.services
                .values()
                .all(|service| service.running_command.is_none() && service.canceling.is_empty())
        };
        self.is_disarmed() && (self.has_acknowledged_disarm() || quiet())
    }

    /// Returns the Cluster's generation while the cluster is armed, otherwise 0. A probe counts from that generation
    /// on.
    pub(super) fn armed_generation(&self) -> i64 {
        self.view
            .cluster()
            .filter(|cluster| cluster.spec.disarmed.is_none())
            .map_or(0, |cluster| cluster.metadata.generation)
    }
}
