//! Suspends of machines: requests to systemd, which refuses them, and suspends that bypass the protection.

use anyhow::{Result, ensure};
use ha_api_types::record::SleepProtection;

use super::qmp::EventKind;
use super::rig::{Rig, STEP_TIMEOUT};
use crate::wait::{monotonic_ns, wait_until};

/// Requests a suspend from the service manager, and checks that the service manager refuses.
pub fn request_suspend(rig: &mut Rig, node: &str) -> Result<()> {
    let protection = rig.cluster.node_report(node)?.sleep_protection;
    ensure!(
        protection == Some(SleepProtection::Masked),
        "{node} is not protected by the package's settings, but by {protection:?}"
    );
    rig.guest(node)?.run("! systemctl suspend")
}

/// Checks that the machine has not been suspended since its boot.
pub fn check_never_suspended(rig: &mut Rig, node: &str) -> Result<()> {
    rig.guest(node)?.run("grep -qx 0 /sys/power/suspend_stats/success")
}

/// Suspends the machine to memory for longer than W, then wakes it.
pub fn suspend_and_wake(rig: &mut Rig, node: &str) -> Result<()> {
    let report = rig.cluster.node_report(node)?;
    suspend(rig, node)?;
    let until_ns = monotonic_ns() + (report.fencing_delay_ms() + 5_000) * 1_000_000;
    wait_until("a time longer than W", STEP_TIMEOUT, || monotonic_ns() > until_ns)?;
    let node_object = rig.cluster.object("nodes", node).unwrap_or_default();
    ensure!(node_object["status"]["state"] == "Unknown", "{node} is shown as {}", node_object["status"]);
    rig.send_hypervisor_command(node, "system_wakeup")
}

/// Suspends the machine to memory directly through the kernel, so settings of the service manager do not apply.
pub fn suspend(rig: &mut Rig, node: &str) -> Result<()> {
    let begin_ns = monotonic_ns();
    write_sleep_state(rig, node, "mem")?;
    let monitor = rig.monitor(node)?;
    wait_until(&format!("{node} to be suspended"), STEP_TIMEOUT, || {
        monitor.first(EventKind::Suspended, begin_ns).is_some()
    })
}

/// Suspends the machine to idle, so that the chipset keeps its power. Nothing wakes the machine.
pub fn suspend_to_idle(rig: &mut Rig, node: &str) -> Result<()> {
    write_sleep_state(rig, node, "freeze")
}

/// Resets a machine that was suspended, because the hypervisor's emulated storage does not survive a suspend.
pub fn reset(rig: &mut Rig, node: &str) -> Result<()> {
    rig.send_hypervisor_command(node, "system_reset")?;
    rig.wait_until_ready(node)
}

fn write_sleep_state(rig: &Rig, node: &str, state: &str) -> Result<()> {
    // The response arrives after the wake-up, so the test does not wait for it. The pause allows the guest agent to report the start.
    rig.guest(node)?.spawn(&format!("sleep 0.2; echo {state} >/sys/power/state")).map(|_| ())
}
