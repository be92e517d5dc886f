//! Restore of etcd from a backup: the leader does not use records of nodes and services from the backup (FENCING,
//! section 10).
//!
//! While the marker exists, records from before it are old. A node counts as empty or dead only by evidence since the
//! restore. For the longest W, the leader assigns no service. Then it probes every resource on every node.
//! `hactl restore` has deleted assignments, heartbeats and reports, so all existing assignments, heartbeats and reports
//! are new.

use super::health::NodeTable;
use super::plan::{OnApplied, Plan, Subject, cluster_event};
use super::plan_input::PlanInput;
use super::world::ClusterView;
use ha_api_types::cluster::CLUSTER_NAME;
use ha_api_types::event::EventType;
use ha_api_types::id::{NodeName, Revision};
use ha_api_types::kind::Kind;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FenceState, Mode, quiet_period_ms};
use ha_api_types::time::MonotonicTime;
use ha_store::{Guard, Transaction};

impl ClusterView {
    /// Returns `true` if a record at this revision comes from the backup and the marker still exists.
    pub fn is_from_backup(&self, mod_revision: Revision) -> bool {
        self.restored.as_ref().is_some_and(|marker| mod_revision <= marker.mod_revision)
    }

    /// Returns `true` if no record about a node is newer than the restore: its agent has not reported under its epoch,
    /// and its fence has not changed. The records of the node in the backup are not proof.
    pub fn is_known_only_from_backup(&self, node: &NodeName) -> bool {
        let fence = self.fences.get(node);
        fence.is_some_and(|fence| self.is_from_backup(fence.value.proven_at(fence.mod_revision)))
            && !self.has_reported(node)
    }

    /// Returns `true` if a node's agent has reported under the epoch of its fence. A different machine that registers
    /// under the node's name is not evidence.
    fn has_reported(&self, node: &NodeName) -> bool {
        let report = self.node_reports.get(node).map(|report| &report.value);
        report.zip(self.fences.get(node)).is_some_and(|(report, fence)| {
            report.mode != Mode::Registering
                && report.epoch == fence.value.epoch
                && report.machine_id == fence.value.machine_id
        })
    }
}

/// Returns the text that states what an operator can do about a node that has been unreachable since the restore.
pub(super) fn unreachable_since_restore(name: &str) -> String {
    format!(
        "Node has been unreachable since etcd was restored from a backup, and may run services that are not in the \
         backup. Start its agent, or power the node off and run hactl node confirm-fenced {name}"
    )
}

/// Returns the time until which the leader assigns no service: the longest W after this process saw the marker. The
/// time restarts after a gap in this process's own commits, in which it may have granted hold to nodes (FENCING,
/// section 9).
pub(super) fn assignments_paused_until(input: &PlanInput<'_>) -> Option<MonotonicTime> {
    let marker = input.cluster_view.restored.as_ref()?;
    let seen_at = marker.first_seen_at;
    let timings = input.cluster_view.timings();
    let since = input.commit_gaps.restart_time_of(seen_at, timings.heartbeat_valid_ms / 2).unwrap_or(seen_at);
    Some(since + quiet_period_ms(&timings, &marker.value)).filter(|until| input.now.monotonic_raw < *until)
}

/// Reports the condition that the end of the restore waits for. Removes the marker once no record in etcd depends on
/// the backup.
pub(super) fn plan(input: &PlanInput<'_>, nodes: &NodeTable, plan: &mut Plan) {
    let cluster_view = input.cluster_view;
    let Some(marker) = &cluster_view.restored else { return };
    let mut is_over = true;
    if let Some(paused_until) = assignments_paused_until(input) {
        is_over = false;
        plan.wake_at(input, paused_until, "a machine that is isolated from the restored etcd has been reset");
        let message = format!(
            "{}: no service is scheduled for {} s, until watchdogs have reset isolated machines",
            Reason::EtcdRestored.sentence(),
            quiet_period_ms(&cluster_view.timings(), &marker.value).div_ceil(1000)
        );
        plan.add_wait(Kind::Cluster, CLUSTER_NAME, Reason::EtcdRestored, message);
    }
    for name in nodes
        .keys()
        .filter(|name| cluster_view.nodes.contains_key(*name) && !is_accounted_for(cluster_view, name))
    {
        is_over = false;
        if cluster_view.is_known_only_from_backup(name) {
            plan.add_wait(Kind::Node, name, Reason::EtcdRestored, unreachable_since_restore(name));
        }
    }
    let waits_for_services = cluster_view.resources.keys().any(|name| {
        cluster_view
            .resource_statuses
            .get(name)
            .is_none_or(|status| cluster_view.is_from_backup(status.mod_revision))
    });
    let waits_for_operations = cluster_view.operations.iter().any(|(name, operation)| {
        cluster_view.is_from_backup(operation.mod_revision) && !cluster_view.has_ended(name)
    });
    if !is_over || waits_for_services || waits_for_operations {
        return;
    }
    let transaction =
        Transaction::new().delete(cluster_view.keys.restore_marker(), Guard::Unchanged(marker.mod_revision));
    let message =
        "Restore of etcd completed: every node has been reachable since, or is confirmed powered off";
    let event = cluster_event(input, EventType::Normal, Reason::EtcdRestored, message);
    plan.add_action(Subject::Restored, transaction, vec![event], OnApplied::None);
}

/// Returns `true` if the state of a node was recorded after the restore: by its agent, or by a closed epoch with its
/// proof.
fn is_accounted_for(cluster_view: &ClusterView, name: &NodeName) -> bool {
    let Some(fence) = cluster_view.fences.get(name) else { return true };
    match fence.value.state {
        FenceState::Open => cluster_view.has_reported(name),
        FenceState::Fencing => false,
        FenceState::Fenced | FenceState::Closed => {
            !cluster_view.is_from_backup(fence.value.proven_at(fence.mod_revision))
        }
    }
}
