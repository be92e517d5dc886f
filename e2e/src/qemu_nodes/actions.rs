//! Faults and other operations on machines that several cases use, and their reversal.

use std::process::Output;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::disk;
use super::rig::{Rig, STEP_TIMEOUT};
use crate::machine::Role;
use crate::wait::{monotonic_ns, wait_for_ok, wait_until};

pub(super) const AGENT_UNIT: &str = "ha-node-agent.service";
const DAEMON_UNIT: &str = "ha-watchdogd.service";
/// Longest time for a test of a watchdog, including the boot or the wait for a reset that does not come.
const WATCHDOG_TEST_TIMEOUT: Duration = Duration::from_secs(600);

/// Does nothing. The machine returns automatically, or it did not fail.
pub fn do_nothing(_: &mut Rig, _: &str) -> Result<()> {
    Ok(())
}

/// Stops the agent with SIGSTOP.
pub fn stop_agent(rig: &mut Rig, node: &str) -> Result<()> {
    signal(rig, node, AGENT_UNIT, "SIGSTOP")
}

/// Prevents a restart of the agent until the machine's next boot.
pub fn keep_agent_down(rig: &mut Rig, node: &str) -> Result<()> {
    disable_restart(rig, node, AGENT_UNIT)
}

/// Prevents a restart of the watchdog daemon until the machine's next boot.
pub fn keep_daemon_down(rig: &mut Rig, node: &str) -> Result<()> {
    disable_restart(rig, node, DAEMON_UNIT)
}

/// Kills the agent with SIGKILL. The service manager may restart it.
pub fn kill_agent(rig: &mut Rig, node: &str) -> Result<()> {
    signal(rig, node, AGENT_UNIT, "SIGKILL")
}

/// Kills the watchdog daemon. A service manager that restarts it passes it the file descriptors that were stored.
pub fn kill_daemon(rig: &mut Rig, node: &str) -> Result<()> {
    signal(rig, node, DAEMON_UNIT, "SIGKILL")
}

/// Kills the agent fifty times, each time as soon as its successor has committed a heartbeat.
pub fn kill_agent_often(rig: &mut Rig, node: &str) -> Result<()> {
    for _ in 0..50 {
        let agent_before = rig.cluster.agent_instance(node)?;
        signal(rig, node, AGENT_UNIT, "SIGKILL")?;
        wait_until("the next agent's first heartbeat", STEP_TIMEOUT, || {
            rig.cluster.agent_instance(node).is_ok_and(|now| now != agent_before)
        })?;
    }
    Ok(())
}

/// Causes a kernel panic.
pub fn cause_kernel_panic(rig: &mut Rig, node: &str) -> Result<()> {
    // The command never returns, so the test does not wait for it. The pause allows the guest agent to report the start.
    rig.guest(node)?.spawn("sleep 0.2; echo c >/proc/sysrq-trigger").map(|_| ())
}

/// Starts a program with the highest real-time priority that uses the processor permanently.
pub fn starve_processor(rig: &mut Rig, node: &str) -> Result<()> {
    rig.guest(node)?
        .spawn(
            "sysctl -q kernel.sched_rt_runtime_us=-1; sleep 0.2; exec chrt -f 99 sh -c 'while :; do :; done'",
        )
        .map(|_| ())
}

/// Pauses the machine through the hypervisor for longer than W, then continues it.
pub fn pause(rig: &mut Rig, node: &str) -> Result<()> {
    let report = rig.cluster.node_report(node)?;
    rig.send_hypervisor_command(node, "stop")?;
    let begin_ns = monotonic_ns();
    let until_ns = begin_ns + (report.fencing_delay_ms() + 5_000) * 1_000_000;
    wait_until("a time longer than W", STEP_TIMEOUT, || monotonic_ns() > until_ns)?;
    let node_object = rig.cluster.object("nodes", node).unwrap_or_default();
    ensure!(node_object["status"]["state"] == "Unknown", "state of {node} is {}", node_object["status"]);
    rig.send_hypervisor_command(node, "cont")
}

/// Pauses the machine through the hypervisor until its fence device switches it off.
pub fn pause_until_fenced(rig: &mut Rig, node: &str) -> Result<()> {
    rig.send_hypervisor_command(node, "stop")
}

/// Returns a condition of an object's status.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Isolates all etcd members for longer than W plus Th, then reconnects them.
pub fn cause_etcd_outage(rig: &mut Rig, node: &str) -> Result<()> {
    isolate_etcd(rig, node)?;
    reconnect_etcd(rig)
}

/// Isolates all etcd members and waits for W plus Th.
pub fn isolate_etcd(rig: &mut Rig, node: &str) -> Result<()> {
    let report = rig.cluster.node_report(node)?;
    for member in rig.cluster.machine_names(Role::Etcd) {
        rig.cluster.cut(&member)?;
    }
    let begin_ns = monotonic_ns();
    let duration_ms = report.fencing_delay_ms() + report.timings.heartbeat_valid_ms;
    wait_until("a long etcd outage", STEP_TIMEOUT, || monotonic_ns() > begin_ns + duration_ms * 1_000_000)
}

/// Restores the links of the machine and of all etcd members.
pub fn heal_all(rig: &mut Rig, node: &str) -> Result<()> {
    rig.cluster.heal(node)?;
    reconnect_etcd(rig)
}

fn reconnect_etcd(rig: &Rig) -> Result<()> {
    rig.cluster.machine_names(Role::Etcd).iter().try_for_each(|member| rig.cluster.heal(member))
}

/// Reboots the machine cleanly.
pub fn reboot(rig: &mut Rig, node: &str) -> Result<()> {
    rig.guest(node)?.spawn("systemctl reboot").map(|_| ())
}

/// Shuts the machine down cleanly, from inside.
pub fn switch_off(rig: &mut Rig, node: &str) -> Result<()> {
    rig.guest(node)?.spawn("systemctl poweroff").map(|_| ())
}

/// Shuts the machine down cleanly and switches it on again.
pub fn switch_off_and_on(rig: &mut Rig, node: &str) -> Result<()> {
    switch_off(rig, node)?;
    switch_on(rig, node)
}

/// Switches on a machine that has shut down, or that its fence device has switched off.
pub fn switch_on(rig: &mut Rig, node: &str) -> Result<()> {
    let monitor = rig.monitor(node)?;
    wait_until(&format!("{node} to be off"), STEP_TIMEOUT, || monitor.is_off())?;
    rig.power_off(node)?;
    rig.power_on(node)
}

/// Enables maintenance of the node.
pub fn begin_maintenance(rig: &mut Rig, node: &str) -> Result<()> {
    hactl(rig, &["node", "maintenance", "enable", node])
}

/// Disables maintenance and waits until the services that had moved away are back.
pub fn end_maintenance(rig: &mut Rig, node: &str) -> Result<()> {
    hactl(rig, &["node", "maintenance", "disable", node, "--wait", "--timeout", "170s"])
}

/// Enables maintenance and waits until all services have moved away.
pub fn drain(rig: &mut Rig, node: &str) -> Result<()> {
    hactl(rig, &["node", "maintenance", "enable", node, "--wait", "--timeout", "170s"])
}

/// Tests the node's watchdog. The test must pass, and hactl must report its result after the machine's next boot.
pub fn test_watchdog(rig: &mut Rig, node: &str) -> Result<()> {
    let output = run_watchdog_test(rig, node)?;
    ensure!(output.status.success(), "watchdog test failed: {}", String::from_utf8_lossy(&output.stderr));
    let output_text = rig.cluster.hactl(&["node", "watchdog", node])?;
    let output_text = String::from_utf8_lossy(&output_text.stdout);
    ensure!(
        output_text.contains("reset with a timeout"),
        "hactl node watchdog does not show the test: {output_text}"
    );
    Ok(())
}

/// Tests the node's watchdog. The test must fail, and the watchdog must then no longer be trusted.
pub fn fail_watchdog_test(rig: &mut Rig, node: &str) -> Result<()> {
    let output = run_watchdog_test(rig, node)?;
    let error_output = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(1),
        "watchdog test must fail, but hactl exited with {}: {error_output}",
        output.status
    );
    let node_object = rig.cluster.object("nodes", node).unwrap_or_default();
    let is_distrusted = condition(&node_object, "Fenceable")
        .is_some_and(|watchdog| watchdog["status"] == "False" && watchdog["reason"] == "WatchdogFailed");
    ensure!(
        is_distrusted,
        "watchdog is trusted after a failed test ({error_output}): {}",
        node_object["status"]
    );
    Ok(())
}

fn run_watchdog_test(rig: &Rig, node: &str) -> Result<Output> {
    rig.cluster.hactl_with_timeout(
        WATCHDOG_TEST_TIMEOUT,
        &["node", "test-watchdog", node, "--yes", "--timeout", "10m"],
    )
}

/// Reloads softdog with an option that prevents resets.
pub fn disable_softdog_resets(rig: &mut Rig, node: &str) -> Result<()> {
    load_softdog(rig, node, "soft_noboot=1")
}

/// Reloads softdog with its defaults, tests it and ends the maintenance.
pub fn restore_softdog(rig: &mut Rig, node: &str) -> Result<()> {
    load_softdog(rig, node, "")?;
    test_watchdog(rig, node)?;
    end_maintenance(rig, node)
}

/// Loads softdog again with these options. The watchdog daemon also loads the driver when it finds none, so the options are
/// written where every loader reads them. They are below `/run`, so the next boot does not have them.
fn load_softdog(rig: &Rig, node: &str, options: &str) -> Result<()> {
    let guest = rig.guest(node)?;
    guest.run(&format!(
        "mkdir -p /run/modprobe.d && echo 'options softdog {options}' >/run/modprobe.d/softdog.conf"
    ))?;
    // The kernel cannot unload a driver while its device is open.
    wait_for_ok("softdog to be released", STEP_TIMEOUT, || guest.run("modprobe -r softdog"))?;
    guest.run("modprobe softdog")
}

/// Replaces the agent's program and restarts it, like a package upgrade.
pub fn upgrade_agent(rig: &mut Rig, node: &str) -> Result<()> {
    upgrade(rig, node, "ha-node-agent", AGENT_UNIT, "systemctl restart")
}

/// Replaces the watchdog daemon's program and restarts it, like a package upgrade.
pub fn upgrade_daemon(rig: &mut Rig, node: &str) -> Result<()> {
    // The unit refuses a manual stop or restart.
    upgrade(rig, node, "ha-watchdogd", DAEMON_UNIT, "systemctl kill")
}

fn upgrade(rig: &mut Rig, node: &str, program: &str, unit: &str, restart: &str) -> Result<()> {
    let path = disk::installed_path(program);
    rig.guest(node)?.run(&format!(
        "before=$(systemctl show -P MainPID {unit}) && cp {path} {path}.new && mv {path}.new {path} && \
         {restart} {unit} && for i in $(seq 100); do now=$(systemctl show -P MainPID {unit}); \
         [ $now != $before ] && [ $now != 0 ] && exit 0; sleep 0.1; done; exit 1"
    ))
}

/// Sends a signal to the main process of a unit.
pub(super) fn signal(rig: &Rig, node: &str, unit: &str, signal: &str) -> Result<()> {
    rig.guest(node)?.run(&format!("systemctl kill --kill-whom=main --signal={signal} {unit}"))
}

/// Prevents restarts of a unit. The setting is below `/run`, so the next boot does not have it.
fn disable_restart(rig: &Rig, node: &str, unit: &str) -> Result<()> {
    let directory = format!("/run/systemd/system/{unit}.d");
    rig.guest(node)?.run(&format!(
        "mkdir -p {directory} && printf '[Service]\\nRestart=no\\n' >{directory}/never.conf && systemctl daemon-reload"
    ))
}

/// Runs hactl; the command must succeed.
pub(super) fn hactl(rig: &Rig, arguments: &[&str]) -> Result<()> {
    let output = rig.cluster.hactl(arguments)?;
    ensure!(
        output.status.success(),
        "hactl {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
