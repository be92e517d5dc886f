//! Operations on a machine that was fenced by its storage's switch, and its reconnection.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::actions::{self, AGENT_UNIT, condition, hactl, signal};
use super::rig::{Rig, STEP_TIMEOUT};
use crate::plan::FABRIC_DIRECTORY;
use crate::wait::{check_holds_for, wait_for_ok, wait_until};

/// Time for which a machine must stay disconnected: several registrations and checks of the leader.
const FENCED_DURATION: Duration = Duration::from_secs(20);

/// Isolates the machine from the cluster and stops its agent, so the service keeps running.
pub fn isolate_with_agent_stopped(rig: &mut Rig, node: &str) -> Result<()> {
    actions::stop_agent(rig, node)?;
    rig.cluster.cut(node)
}

/// Checks that a machine that kept running without its storage is not reconnected on its return, but after its next boot.
pub fn reset(rig: &mut Rig, node: &str) -> Result<()> {
    let boot_before = boot(rig, node)?;
    reconnect_network(rig, node)?;
    rig.send_hypervisor_command(node, "system_reset")?;
    rig.wait_until_ready(node)?;
    ensure!(boot(rig, node)? != boot_before, "{node} was reconnected without a reboot");
    wait_for_storage(rig, node)
}

/// Checks that a machine that kept running without its storage is not reconnected, not even after its next boot, until an
/// operator requests it.
pub fn reset_and_unfence(rig: &mut Rig, node: &str) -> Result<()> {
    reconnect_network(rig, node)?;
    let boot_before = rig.cluster.node_report(node)?.boot_id;
    rig.send_hypervisor_command(node, "system_reset")?;
    wait_until(&format!("{node} to register with its next boot"), STEP_TIMEOUT, || {
        rig.cluster.node_report(node).is_ok_and(|report| report.boot_id != boot_before)
    })?;
    check_stays_fenced(rig, node)?;
    hactl(rig, &["node", "unfence", node, "--yes"])?;
    rig.wait_until_ready(node)?;
    wait_for_storage(rig, node)
}

/// Checks that the service kept running, then restores agent and link. The machine must stay disconnected.
fn reconnect_network(rig: &Rig, node: &str) -> Result<()> {
    rig.guest(node)?.run("pgrep -x ha-holder").context("the service did not keep running")?;
    rig.cluster.heal(node)?;
    signal(rig, node, AGENT_UNIT, "SIGCONT")?;
    check_stays_fenced(rig, node)
}

fn check_stays_fenced(rig: &Rig, node: &str) -> Result<()> {
    wait_until(&format!("{node} to be reported as FencedOff"), STEP_TIMEOUT, || {
        let node_object = rig.cluster.object("nodes", node).unwrap_or_default();
        condition(&node_object, "Ready").is_some_and(|ready| ready["reason"] == "FencedOff")
    })?;
    check_holds_for(&format!("{node} stays disconnected"), FENCED_DURATION, || {
        let fence = rig.cluster.etcdctl().get(&rig.cluster.keys().fence(&node.into())).ok().flatten();
        fence.is_some_and(|entry| entry.value["state"] == "Fenced")
    })
}

/// Returns the boot id in a node's fence record.
fn boot(rig: &Rig, node: &str) -> Result<Value> {
    let fence = rig.cluster.etcdctl().get(&rig.cluster.keys().fence(&node.into()))?;
    Ok(fence.with_context(|| format!("{node} has no fence record"))?.value["bootId"].take())
}

fn wait_for_storage(rig: &Rig, node: &str) -> Result<()> {
    let storage_check_script =
        format!("mountpoint -q {FABRIC_DIRECTORY} && touch {FABRIC_DIRECTORY}/back-on-{node}");
    wait_for_ok(&format!("{node} to have its storage again"), STEP_TIMEOUT, || {
        rig.guest(node)?.run(&storage_check_script)
    })
}
