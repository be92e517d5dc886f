//! Suspending machines: by systemd, which refuses it, or past the protection.

use anyhow::{Result, ensure};
use ha_api_types::record::SleepProtection;

use super::qmp::What;
use super::rig::{CEILING, Rig};
use crate::wait::{monotonic_ns, wait_until};

/// Asks the service manager to suspend the machine, and checks that it refuses.
pub fn ask(rig: &mut Rig, node: &str) -> Result<()> {
    let protection = rig.cluster.node_report(node)?.sleep_protection;
    ensure!(
        protection == Some(SleepProtection::Masked),
        "{node} is not protected by the package's settings, but by {protection:?}"
    );
    rig.guest(node)?.run("! systemctl suspend")
}

/// Checks that the machine has not been suspended since its boot.
pub fn never_slept(rig: &mut Rig, node: &str) -> Result<()> {
    rig.guest(node)?.run("grep -qx 0 /sys/power/suspend_stats/success")
}

/// Suspends the machine to memory for longer than W, then wakes it.
pub fn force(rig: &mut Rig, node: &str) -> Result<()> {
    let report = rig.cluster.node_report(node)?;
    force_for_good(rig, node)?;
    let until_ns = monotonic_ns() + (report.wait_ms() + 5_000) * 1_000_000;
    wait_until("a time longer than W", CEILING, || monotonic_ns() > until_ns)?;
    let shown = rig.cluster.object("nodes", node).unwrap_or_default();
    ensure!(shown["status"]["state"] == "Unknown", "{node} is shown as {}", shown["status"]);
    rig.order(node, "system_wakeup")
}

/// Suspends the machine to memory directly through the kernel, so settings of the service manager do not apply.
pub fn force_for_good(rig: &mut Rig, node: &str) -> Result<()> {
    let begin_ns = monotonic_ns();
    sleep(rig, node, "mem")?;
    let monitor = rig.monitor(node)?;
    wait_until(&format!("{node} to be suspended"), CEILING, || {
        monitor.first(What::Suspended, begin_ns).is_some()
    })
}

/// Suspends the machine to idle, so that the chipset keeps its power. Nothing wakes the machine.
pub fn force_to_idle(rig: &mut Rig, node: &str) -> Result<()> {
    sleep(rig, node, "freeze")
}

/// Resets a machine that was suspended, because the hypervisor's emulated storage does not survive a suspend.
pub fn reset(rig: &mut Rig, node: &str) -> Result<()> {
    rig.order(node, "system_reset")?;
    rig.ready(node)
}

fn sleep(rig: &Rig, node: &str, state: &str) -> Result<()> {
    // The response arrives after the wake-up, so the test does not wait for it. The pause allows the guest agent to report the start.
    rig.guest(node)?.spawn(&format!("sleep 0.2; echo {state} >/sys/power/state")).map(|_| ())
}
