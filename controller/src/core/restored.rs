//! Restore of etcd from a backup: the leader uses no statement of the backup about nodes and services (FENCING, section
//! 10).
//!
//! While the marker exists, records from before it are old. A node counts as empty or dead only by evidence since the
//! restore. Nothing is assigned for the longest W, and then every resource is probed on every node. `hactl restore`
//! has deleted assignments, heartbeats and reports, so existing ones are new.

use super::health::NodeTable;
use super::plan::{Note, Plan, Subject, cluster_event};
use super::situation::Situation;
use super::world::World;
use ha_api_types::cluster::CLUSTER_NAME;
use ha_api_types::event::EventType;
use ha_api_types::id::{NodeName, Revision};
use ha_api_types::kind::Kind;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FenceState, Mode, rest_ms};
use ha_api_types::time::Mono;
use ha_store::{Guard, Transaction};

impl World {
    /// Returns `true` if a record at this revision comes from the backup and the marker still exists.
    pub fn is_old(&self, modified: Revision) -> bool {
        self.restored.as_ref().is_some_and(|marker| modified <= marker.modified)
    }

    /// Returns `true` if nothing is known about a node since the restore. Its agent has not reported under its epoch,
    /// and its fence has not changed. The statements of the backup about the node prove nothing.
    pub fn has_no_evidence(&self, node: &NodeName) -> bool {
        let fence = self.fences.get(node);
        fence.is_some_and(|fence| self.is_old(fence.modified)) && !self.has_reported(node)
    }

    /// Returns `true` if a node's agent has reported under the epoch of its fence. A different machine that registers
    /// under the node's name is no evidence.
    fn has_reported(&self, node: &NodeName) -> bool {
        let report = self.node_reports.get(node).map(|report| &report.value);
        report.zip(self.fences.get(node)).is_some_and(|(report, fence)| {
            report.mode != Mode::Registering
                && report.epoch == fence.value.epoch
                && report.machine_id == fence.value.machine_id
        })
    }
}

/// Returns the operator's options for such a node.
pub(super) fn unheard(name: &str) -> String {
    format!(
        "Node has been unreachable since etcd was restored from a backup, and may run services that are not in the \
         backup. Start its agent, or power the node off and run hactl node confirm-fenced {name}"
    )
}

/// Returns the time until which nothing is assigned: the longest W after this process saw the marker. The time
/// restarts after a gap in this process's own commits, in which it may have granted hold to nodes (FENCING, section
/// 9).
pub(super) fn rests_until(situation: &Situation<'_>) -> Option<Mono> {
    let marker = situation.world.restored.as_ref()?;
    let seen = marker.seen;
    let timings = situation.world.timings();
    let since = situation.commits.restart_of(seen, timings.heartbeat_valid_ms / 2).unwrap_or(seen);
    Some(since + rest_ms(&timings, &marker.value)).filter(|until| situation.now.raw < *until)
}

/// Reports the condition that the end of the restore waits for. Removes the marker once no record in etcd depends on
/// the backup.
pub(super) fn plan(situation: &Situation<'_>, nodes: &NodeTable, plan: &mut Plan) {
    let world = situation.world;
    let Some(marker) = &world.restored else { return };
    let mut is_over = true;
    if let Some(until) = rests_until(situation) {
        is_over = false;
        plan.wake(situation, until, "a machine that is isolated from the restored etcd has been reset");
        let message = format!(
            "{}: no service is scheduled for {} s, until watchdogs have reset isolated machines",
            Reason::EtcdRestored.sentence(),
            rest_ms(&world.timings(), &marker.value).div_ceil(1000)
        );
        plan.wait(Kind::Cluster, CLUSTER_NAME, Reason::EtcdRestored, message);
    }
    for name in nodes.keys().filter(|name| world.nodes.contains_key(*name) && !is_accounted(world, name)) {
        is_over = false;
        if world.has_no_evidence(name) {
            plan.wait(Kind::Node, name, Reason::EtcdRestored, unheard(name));
        }
    }
    let waits_for_services = world
        .resources
        .keys()
        .any(|name| world.resource_statuses.get(name).is_none_or(|status| world.is_old(status.modified)));
    let waits_for_operations = world
        .operations
        .iter()
        .any(|(name, operation)| world.is_old(operation.modified) && !world.has_ended(name));
    if !is_over || waits_for_services || waits_for_operations {
        return;
    }
    let transaction = Transaction::new().delete(world.keys.restored(), Guard::Unchanged(marker.modified));
    let message =
        "Restore of etcd completed: every node has been reachable since, or is confirmed powered off";
    let told = cluster_event(situation, EventType::Normal, Reason::EtcdRestored, message);
    plan.act(Subject::Restored, transaction, vec![told], Note::None);
}

/// Returns `true` if everything about a node was recorded since the restore: by its agent, or by a closed epoch with
/// its proof.
fn is_accounted(world: &World, name: &NodeName) -> bool {
    let Some(fence) = world.fences.get(name) else { return true };
    match fence.value.state {
        FenceState::Open => world.has_reported(name),
        FenceState::Fencing => false,
        FenceState::Fenced | FenceState::Closed => !world.is_old(fence.modified),
    }
}
