//! A store that was restored from a backup: nothing that the backup says of nodes and services is believed (FENCING, section 10).
//!
//! While the marker stands, what was written before it is old: a node counts as empty or dead only by what was heard of it since,
//! nothing is assigned for the longest W, and then every resource is looked for on every node. `hactl restore` has deleted the
//! assignments, heartbeats and reports, so what of those is there is new.

use super::health::NodeTable;
use super::plan::{Note, Plan, Subject, cluster_event};
use super::situation::Situation;
use super::world::World;
use ha_api_types::cluster::CLUSTER_NAME;
use ha_api_types::event::EventType;
use ha_api_types::kind::Kind;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FenceState, Mode, Revision, rest_ms};
use ha_api_types::time::Mono;
use ha_store::{Guard, Transaction};

impl World {
    /// Whether what was written at this revision is of the backup, and the marker still stands.
    pub fn is_old(&self, modified: Revision) -> bool {
        self.restored.as_ref().is_some_and(|marker| modified <= marker.modified)
    }

    /// Whether nothing was heard of a node since the store was restored: neither has its agent said anything under its epoch, nor
    /// has its fence changed. What the backup says of it proves nothing.
    pub fn is_unheard(&self, node: &str) -> bool {
        let fence = self.fences.get(node);
        fence.is_some_and(|fence| self.is_old(fence.modified)) && !self.speaks(node)
    }

    /// Whether a node's agent has said something under the epoch of its fence; another machine that registers under its name
    /// says nothing of it.
    fn speaks(&self, node: &str) -> bool {
        let report = self.node_reports.get(node).map(|report| &report.value);
        report.zip(self.fences.get(node)).is_some_and(|(report, fence)| {
            report.mode != Mode::Registering
                && report.epoch == fence.value.epoch
                && report.machine_id == fence.value.machine_id
        })
    }
}

/// What an operator can do about such a node.
pub(super) fn unheard(name: &str) -> String {
    format!(
        "it has not been heard since the store was restored from a backup, so services may run there that the backup does not \
         know of: start its agent, or confirm it off with hactl node confirm-fenced {name}"
    )
}

/// Until when nothing is assigned: the longest W from when this process saw the marker. It begins anew after a gap of this
/// process's own commits, in which it may have let nodes go on (FENCING, section 9).
pub(super) fn rests_until(situation: &Situation<'_>) -> Option<Mono> {
    let marker = situation.world.restored.as_ref()?;
    let seen = marker.seen;
    let timings = situation.world.timings();
    let since = situation.commits.restart_of(seen, timings.heartbeat_valid_ms / 2).unwrap_or(seen);
    Some(since + rest_ms(&timings, &marker.value)).filter(|until| situation.now.raw < *until)
}

/// Says what the end of it waits for, and removes the marker once nothing in the store is the backup's word any more.
pub(super) fn plan(situation: &Situation<'_>, nodes: &NodeTable, plan: &mut Plan) {
    let world = situation.world;
    let Some(marker) = &world.restored else { return };
    let mut is_over = true;
    if let Some(until) = rests_until(situation) {
        is_over = false;
        plan.wake(situation, until, "a machine that was cut off from the restored store has reset");
        let message = format!(
            "{}: nothing is assigned for {} s, so that a machine that is cut off has been reset by its watchdog",
            Reason::StoreRestored.sentence(),
            rest_ms(&world.timings(), &marker.value).div_ceil(1000)
        );
        plan.wait(Kind::Cluster, CLUSTER_NAME, Reason::StoreRestored, message);
    }
    for name in nodes.keys().filter(|name| world.nodes.contains_key(*name) && !is_accounted(world, name)) {
        is_over = false;
        if world.is_unheard(name) {
            plan.wait(Kind::Node, name, Reason::StoreRestored, unheard(name));
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
    let message = "the restored store counts again: every node was heard since, or is confirmed off";
    let told = cluster_event(situation, EventType::Normal, Reason::StoreRestored, message);
    plan.act(Subject::Restored, transaction, vec![told], Note::None);
}

/// Whether what the store says of a node was all said since the restore: by its agent, or by a closed epoch and its proof.
fn is_accounted(world: &World, name: &str) -> bool {
    let Some(fence) = world.fences.get(name) else { return true };
    match fence.value.state {
        FenceState::Open => world.speaks(name),
        FenceState::Fencing => false,
        FenceState::Fenced | FenceState::Closed => !world.is_old(fence.modified),
    }
}
