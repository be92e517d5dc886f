//! Operations on a machine that was fenced by its storage's switch, and its reconnection.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::deeds::{self, AGENT, condition, hactl, signal};
use super::rig::{CEILING, Rig};
use crate::plan::FABRIC;
use crate::wait::{holds_for, wait_for_ok, wait_until};

/// Time for which a machine must stay disconnected: several registrations and checks of the leader.
const PATIENCE: Duration = Duration::from_secs(20);

/// Isolates the machine from the cluster and stops its agent, so the service keeps running.
pub fn leave_to_itself(rig: &mut Rig, node: &str) -> Result<()> {
    deeds::stop_agent(rig, node)?;
    rig.cluster.cut(node)
}

/// Checks that a machine that kept running without its storage is not reconnected on its return, but after its next boot.
pub fn reset(rig: &mut Rig, node: &str) -> Result<()> {
    let before = boot(rig, node)?;
    bring_back(rig, node)?;
    rig.order(node, "system_reset")?;
    rig.ready(node)?;
    ensure!(boot(rig, node)? != before, "{node} was reconnected without a reboot");
    has_storage(rig, node)
}

/// Checks that a machine that kept running without its storage is not reconnected, not even after its next boot, until an
/// operator requests it.
pub fn reset_and_unfence(rig: &mut Rig, node: &str) -> Result<()> {
    bring_back(rig, node)?;
    let before = rig.cluster.node_report(node)?.boot_id;
    rig.order(node, "system_reset")?;
    wait_until(&format!("{node} to register with its next boot"), CEILING, || {
        rig.cluster.node_report(node).is_ok_and(|report| report.boot_id != before)
    })?;
    stays_out(rig, node)?;
    hactl(rig, &["node", "unfence", node, "--yes"])?;
    rig.ready(node)?;
    has_storage(rig, node)
}

/// Checks that the service kept running, then restores agent and link. The machine must stay disconnected.
fn bring_back(rig: &Rig, node: &str) -> Result<()> {
    rig.guest(node)?.run("pgrep -x ha-holder").context("the service did not keep running")?;
    rig.cluster.heal(node)?;
    signal(rig, node, AGENT, "SIGCONT")?;
    stays_out(rig, node)
}

fn stays_out(rig: &Rig, node: &str) -> Result<()> {
    wait_until(&format!("{node} to be reported as FencedOff"), CEILING, || {
        let shown = rig.cluster.object("nodes", node).unwrap_or_default();
        condition(&shown, "Ready").is_some_and(|ready| ready["reason"] == "FencedOff")
    })?;
    holds_for(&format!("{node} stays disconnected"), PATIENCE, || {
        let fence = rig.cluster.etcdctl().get(&rig.cluster.keys().fence(&node.into())).ok().flatten();
        fence.is_some_and(|entry| entry.value["state"] == "Fenced")
    })
}

/// Returns the boot id in a node's fence record.
fn boot(rig: &Rig, node: &str) -> Result<Value> {
    let fence = rig.cluster.etcdctl().get(&rig.cluster.keys().fence(&node.into()))?;
    Ok(fence.with_context(|| format!("{node} has no fence record"))?.value["bootId"].take())
}

fn has_storage(rig: &Rig, node: &str) -> Result<()> {
    let used = format!("mountpoint -q {FABRIC} && touch {FABRIC}/back-on-{node}");
    wait_for_ok(&format!("{node} to have its storage again"), CEILING, || rig.guest(node)?.run(&used))
}
