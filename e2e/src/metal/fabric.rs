//! What is done to a machine that its storage's switch fences, and how it is let in again.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::deeds::{self, AGENT, condition, hactl, signal};
use super::rig::{CEILING, Rig};
use crate::plan::FABRIC;
use crate::wait::{holds_for, wait_for_ok, wait_until};

/// How long a machine is watched not to be let in: several registrations and looks of the leader.
const PATIENCE: Duration = Duration::from_secs(20);

/// The machine is cut off the cluster, and its agent stands still: what it runs, it runs on.
pub fn leave_to_itself(rig: &mut Rig, node: &str) -> Result<()> {
    deeds::stop_agent(rig, node)?;
    rig.cluster.cut(node)
}

/// A machine that ran on without its storage is not let in when it is back, but its next boot is.
pub fn reset(rig: &mut Rig, node: &str) -> Result<()> {
    let before = boot(rig, node)?;
    bring_back(rig, node)?;
    rig.order(node, "system_reset")?;
    rig.ready(node)?;
    ensure!(boot(rig, node)? != before, "{node} is let in, but was not booted anew");
    has_storage(rig, node)
}

/// A machine that ran on without its storage is not let in when it is back, nor is its next boot, until an operator says so.
pub fn reset_and_unfence(rig: &mut Rig, node: &str) -> Result<()> {
    bring_back(rig, node)?;
    let before = rig.cluster.node_report(node)?.boot_id;
    rig.order(node, "system_reset")?;
    wait_until(&format!("{node} to ask to be let in with its next boot"), CEILING, || {
        rig.cluster.node_report(node).is_ok_and(|report| report.boot_id != before)
    })?;
    stays_out(rig, node)?;
    hactl(rig, &["node", "unfence", node, "--yes"])?;
    rig.ready(node)?;
    has_storage(rig, node)
}

/// The machine did run on; its agent and its link are back, and it stays out.
fn bring_back(rig: &Rig, node: &str) -> Result<()> {
    rig.guest(node)?.run("pgrep -x ha-holder").context("the service there did not run on")?;
    rig.cluster.heal(node)?;
    signal(rig, node, AGENT, "SIGCONT")?;
    stays_out(rig, node)
}

fn stays_out(rig: &Rig, node: &str) -> Result<()> {
    wait_until(&format!("{node} to be shown as fenced off"), CEILING, || {
        let shown = rig.cluster.object("nodes", node).unwrap_or_default();
        condition(&shown, "Ready").is_some_and(|ready| ready["reason"] == "FencedOff")
    })?;
    holds_for(&format!("{node} stays fenced off"), PATIENCE, || {
        let fence = rig.cluster.etcdctl().get(&rig.cluster.keys().fence(node)).ok().flatten();
        fence.is_some_and(|entry| entry.value["state"] == "Fenced")
    })
}

/// The boot that a node's fence names.
fn boot(rig: &Rig, node: &str) -> Result<Value> {
    let fence = rig.cluster.etcdctl().get(&rig.cluster.keys().fence(node))?;
    Ok(fence.with_context(|| format!("{node} has no fence"))?.value["bootId"].take())
}

fn has_storage(rig: &Rig, node: &str) -> Result<()> {
    let used = format!("mountpoint -q {FABRIC} && touch {FABRIC}/back-on-{node}");
    wait_for_ok(&format!("{node} to have its storage again"), CEILING, || rig.guest(node)?.run(&used))
}
