//! Faults of a hardware watchdog whose driver is unbound while it is armed, and their repair.

use std::time::Duration;

use anyhow::Result;

use super::actions::{AGENT_UNIT, condition};
use super::rig::{Rig, STEP_TIMEOUT};
use crate::plan::SHARED_DIRECTORY;
use crate::wait::{check_holds_for, monotonic_ns, wait_until};

/// Sysfs directory of the machines' only hardware watchdog driver. It contains a link for each device, named by its address.
const DRIVER_DIRECTORY: &str = "/sys/bus/pci/drivers/i6300ESB timer";
/// File with the address of the unbound device. It is below `/run`, so the next boot does not have it.
const ADDRESS_FILE: &str = "/run/unbound";

/// Unbinds the driver and waits until the node has committed that its watchdog failed.
pub fn unbind_and_wait_for_failure(rig: &mut Rig, node: &str) -> Result<()> {
    rig.guest(node)?.run(&unbind_script())?;
    wait_for_committed_failure(rig, node)?;
    wait_until(&format!("{node} to be reported with a failed watchdog"), STEP_TIMEOUT, || {
        fenceable_condition(rig, node) == Some(("False".to_owned(), "WatchdogFailed".to_owned()))
    })
}

/// Takes the machine's link down and unbinds the driver. The node cannot commit the failure.
pub fn cut_and_unbind(rig: &mut Rig, node: &str) -> Result<()> {
    rig.cluster.cut(node)?;
    rig.guest(node)?.run(&unbind_script())
}

/// Behaves like [`cut_and_unbind`], and stops the agent with SIGSTOP, so only the watchdog daemon
/// can reset the machine.
pub fn unbind_with_agent_stopped(rig: &mut Rig, node: &str) -> Result<()> {
    rig.cluster.cut(node)?;
    let stop_agent = format!("systemctl kill --kill-whom=main --signal=SIGSTOP {AGENT_UNIT}");
    rig.guest(node)?.run(&format!("{} && {stop_agent}", unbind_script()))
}

/// Keeps the empty node running for longer than any deadline, then binds the driver again and checks that the watchdog guards a
/// service.
pub fn check_failed_and_rebind(rig: &mut Rig, node: &str) -> Result<()> {
    let wait_duration = Duration::from_millis(rig.cluster.node_report(node)?.fencing_delay_ms());
    check_holds_for(&format!("{node} commits that its watchdog failed"), wait_duration, || {
        rig.cluster.node_report(node).is_ok_and(|report| report.watchdog_failed)
    })?;
    rebind_and_verify(rig, node)
}

/// Restores the link, waits until the node has committed the failure, then binds the driver again.
pub fn heal_and_rebind(rig: &mut Rig, node: &str) -> Result<()> {
    rig.cluster.heal(node)?;
    wait_for_committed_failure(rig, node)?;
    rebind_and_verify(rig, node)
}

/// Binds the driver again and checks that the watchdog is trusted and guards another service.
fn rebind_and_verify(rig: &Rig, node: &str) -> Result<()> {
    rig.guest(node)?.run(&format!("cat {ADDRESS_FILE} >'{DRIVER_DIRECTORY}/bind'"))?;
    wait_until(&format!("{node} to commit that its watchdog accepts renewals"), STEP_TIMEOUT, || {
        rig.cluster.node_report(node).is_ok_and(|report| !report.watchdog_failed)
    })?;
    wait_until(&format!("{node} to be reported with a trusted watchdog"), STEP_TIMEOUT, || {
        fenceable_condition(rig, node).is_some_and(|(status, _)| status == "True")
    })?;
    let service = format!("guarded-again-{}", monotonic_ns());
    rig.create_service(&service, node, SHARED_DIRECTORY)?;
    rig.delete_service(&service)
}

/// Returns a script that unbinds the driver. The kernel keeps the open device, which rejects pets, but removes its name.
fn unbind_script() -> String {
    format!(
        "cd '{DRIVER_DIRECTORY}' && ls -d 0000:* >{ADDRESS_FILE} && cat {ADDRESS_FILE} >unbind && test ! -e /sys/class/watchdog/watchdog0"
    )
}

fn wait_for_committed_failure(rig: &Rig, node: &str) -> Result<()> {
    wait_until(&format!("{node} to commit that its watchdog failed"), STEP_TIMEOUT, || {
        rig.cluster.node_report(node).is_ok_and(|report| report.watchdog_failed)
    })
}

/// Returns status and reason of a node's condition Fenceable.
fn fenceable_condition(rig: &Rig, node: &str) -> Option<(String, String)> {
    let node_object = rig.cluster.object("nodes", node)?;
    let fenceable = condition(&node_object, "Fenceable")?;
    let text = |field: &str| fenceable[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason")))
}
