//! What is done to a machine, and undone, by the cases.

use std::process::Output;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::disk;
use super::rig::{CEILING, Rig};
use crate::machine::Role;
use crate::wait::{monotonic_ns, wait_for_ok, wait_until};

/// The agent's unit.
pub(super) const AGENT: &str = "ha-node-agent.service";
/// The watchdog daemon's unit.
const DAEMON: &str = "ha-watchdogd.service";
/// How long a test of a watchdog may take: a boot, or a wait for the reset that does not come.
const TEST_CEILING: Duration = Duration::from_secs(600);

/// Undoing nothing: the machine returns by itself, or never left.
pub fn nothing(_: &mut Rig, _: &str) -> Result<()> {
    Ok(())
}

/// The agent stands still.
pub fn stop_agent(rig: &mut Rig, node: &str) -> Result<()> {
    signal(rig, node, AGENT, "SIGSTOP")
}

/// The agent is not started again when it dies, until the machine boots anew.
pub fn keep_agent_down(rig: &mut Rig, node: &str) -> Result<()> {
    never_restart(rig, node, AGENT)
}

/// The watchdog daemon is not started again when it dies, until the machine boots anew.
pub fn keep_daemon_down(rig: &mut Rig, node: &str) -> Result<()> {
    never_restart(rig, node, DAEMON)
}

/// The agent dies.
pub fn kill_agent(rig: &mut Rig, node: &str) -> Result<()> {
    signal(rig, node, AGENT, "SIGKILL")
}

/// The watchdog daemon dies. A service manager that starts it again gives it the descriptors that it kept.
pub fn kill_daemon(rig: &mut Rig, node: &str) -> Result<()> {
    signal(rig, node, DAEMON, "SIGKILL")
}

/// The agent dies fifty times in a row, each time as soon as the one started in its place has committed a heartbeat.
pub fn kill_agent_often(rig: &mut Rig, node: &str) -> Result<()> {
    for _ in 0..50 {
        let before = rig.cluster.agent_instance(node)?;
        signal(rig, node, AGENT, "SIGKILL")?;
        wait_until("the next agent's first heartbeat", CEILING, || {
            rig.cluster.agent_instance(node).is_ok_and(|now| now != before)
        })?;
    }
    Ok(())
}

/// The kernel panics.
pub fn panic(rig: &mut Rig, node: &str) -> Result<()> {
    // It never answers, so nothing is waited for; the pause lets the guest agent tell that it began.
    rig.guest(node)?.spawn("sleep 0.2; echo c >/proc/sysrq-trigger").map(|_| ())
}

/// A program with the highest real-time priority takes the processor and never gives it back.
pub fn starve(rig: &mut Rig, node: &str) -> Result<()> {
    rig.guest(node)?
        .spawn(
            "sysctl -q kernel.sched_rt_runtime_us=-1; sleep 0.2; exec chrt -f 99 sh -c 'while :; do :; done'",
        )
        .map(|_| ())
}

/// The hypervisor pauses the machine for longer than W and lets it go on.
pub fn pause(rig: &mut Rig, node: &str) -> Result<()> {
    let report = rig.cluster.node_report(node)?;
    rig.order(node, "stop")?;
    let begin_ns = monotonic_ns();
    let until_ns = begin_ns + (report.wait_ms() + 5_000) * 1_000_000;
    wait_until("a time longer than W", CEILING, || monotonic_ns() > until_ns)?;
    let shown = rig.cluster.object("nodes", node).unwrap_or_default();
    ensure!(shown["status"]["state"] == "Unknown", "{node} is shown as {}", shown["status"]);
    rig.order(node, "cont")
}

/// The hypervisor pauses the machine; its fence device ends it.
pub fn pause_for_good(rig: &mut Rig, node: &str) -> Result<()> {
    rig.order(node, "stop")
}

/// A condition in an object's status.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Every member of the store is cut off for longer than W and a heartbeat's validity, and comes back.
pub fn store_outage(rig: &mut Rig, node: &str) -> Result<()> {
    lose_store(rig, node)?;
    heal_store(rig)
}

/// Every member of the store is cut off, and has been for longer than W and a heartbeat's validity.
pub fn lose_store(rig: &mut Rig, node: &str) -> Result<()> {
    let report = rig.cluster.node_report(node)?;
    for member in rig.cluster.names(Role::Etcd) {
        rig.cluster.cut(&member)?;
    }
    let begin_ns = monotonic_ns();
    let length_ms = report.wait_ms() + report.timings.heartbeat_valid_ms;
    wait_until("a long outage of the store", CEILING, || monotonic_ns() > begin_ns + length_ms * 1_000_000)
}

/// The machine's link, and the store's, come back.
pub fn heal_all(rig: &mut Rig, node: &str) -> Result<()> {
    rig.cluster.heal(node)?;
    heal_store(rig)
}

fn heal_store(rig: &Rig) -> Result<()> {
    rig.cluster.names(Role::Etcd).iter().try_for_each(|member| rig.cluster.heal(member))
}

/// The machine boots again in order.
pub fn reboot(rig: &mut Rig, node: &str) -> Result<()> {
    rig.guest(node)?.spawn("systemctl reboot").map(|_| ())
}

/// The machine switches itself off in order.
pub fn switch_off(rig: &mut Rig, node: &str) -> Result<()> {
    rig.guest(node)?.spawn("systemctl poweroff").map(|_| ())
}

/// The machine switches itself off in order and is soon switched on again.
pub fn switch_off_and_on(rig: &mut Rig, node: &str) -> Result<()> {
    switch_off(rig, node)?;
    switch_on(rig, node)
}

/// A machine that switched itself off, or whose fence device did, is switched on.
pub fn switch_on(rig: &mut Rig, node: &str) -> Result<()> {
    let monitor = rig.monitor(node)?;
    wait_until(&format!("{node} to be off"), CEILING, || monitor.is_off())?;
    rig.power_off(node)?;
    rig.power_on(node)
}

/// The node goes into maintenance.
pub fn begin_maintenance(rig: &mut Rig, node: &str) -> Result<()> {
    hactl(rig, &["node", "maintenance", "enable", node])
}

/// The node comes back from maintenance, and what left it for that too.
pub fn end_maintenance(rig: &mut Rig, node: &str) -> Result<()> {
    hactl(rig, &["node", "maintenance", "disable", node, "--wait", "--timeout", "170s"])
}

/// All services leave the node for maintenance.
pub fn empty(rig: &mut Rig, node: &str) -> Result<()> {
    hactl(rig, &["node", "maintenance", "enable", node, "--wait", "--timeout", "170s"])
}

/// The node's watchdog is tested and passes, which the machine's next boot remembers.
pub fn test_watchdog(rig: &mut Rig, node: &str) -> Result<()> {
    let output = tested(rig, node)?;
    ensure!(output.status.success(), "the test was not passed: {}", String::from_utf8_lossy(&output.stderr));
    let shown = rig.cluster.hactl(&["node", "watchdog", node])?;
    let shown = String::from_utf8_lossy(&shown.stdout);
    ensure!(shown.contains("it reset the machine"), "the test is not remembered: {shown}");
    Ok(())
}

/// The node's watchdog is tested and does not reset the machine, so that it counts no more.
pub fn fail_watchdog_test(rig: &mut Rig, node: &str) -> Result<()> {
    let output = tested(rig, node)?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1), "a test that fails ended with {}: {told}", output.status);
    let shown = rig.cluster.object("nodes", node).unwrap_or_default();
    let counts_no_more = condition(&shown, "Watchdog")
        .is_some_and(|watchdog| watchdog["status"] == "False" && watchdog["reason"] == "WatchdogFailed");
    ensure!(counts_no_more, "{told}, and yet the watchdog counts: {}", shown["status"]);
    Ok(())
}

fn tested(rig: &Rig, node: &str) -> Result<Output> {
    rig.cluster.hactl_within(TEST_CEILING, &["node", "test-watchdog", node, "--yes", "--timeout", "10m"])
}

/// softdog is told not to reboot, until it is loaded anew.
pub fn deafen_softdog(rig: &mut Rig, node: &str) -> Result<()> {
    load_softdog(rig, node, "soft_noboot=1")
}

/// softdog is loaded as it is meant to be, passes a test, and services come back.
pub fn cure_softdog(rig: &mut Rig, node: &str) -> Result<()> {
    load_softdog(rig, node, "")?;
    test_watchdog(rig, node)?;
    end_maintenance(rig, node)
}

fn load_softdog(rig: &Rig, node: &str, settings: &str) -> Result<()> {
    let guest = rig.guest(node)?;
    // The kernel keeps a driver whose device is open.
    wait_for_ok("softdog to be released", CEILING, || guest.run("modprobe -r softdog"))?;
    guest.run(&format!("modprobe softdog {settings}"))
}

/// The agent's program is replaced and restarted, as a package does.
pub fn upgrade_agent(rig: &mut Rig, node: &str) -> Result<()> {
    upgrade(rig, node, "ha-node-agent", AGENT, "systemctl restart")
}

/// The watchdog daemon's program is replaced and restarted, as a package does.
pub fn upgrade_daemon(rig: &mut Rig, node: &str) -> Result<()> {
    // Its unit refuses to be stopped or restarted by hand.
    upgrade(rig, node, "ha-watchdogd", DAEMON, "systemctl kill")
}

fn upgrade(rig: &mut Rig, node: &str, program: &str, unit: &str, restart: &str) -> Result<()> {
    let path = disk::installed(program);
    rig.guest(node)?.run(&format!(
        "before=$(systemctl show -P MainPID {unit}) && cp {path} {path}.new && mv {path}.new {path} && \
         {restart} {unit} && for i in $(seq 100); do now=$(systemctl show -P MainPID {unit}); \
         [ $now != $before ] && [ $now != 0 ] && exit 0; sleep 0.1; done; exit 1"
    ))
}

/// Sends a signal to the one process that a unit is about.
pub(super) fn signal(rig: &Rig, node: &str, unit: &str, signal: &str) -> Result<()> {
    rig.guest(node)?.run(&format!("systemctl kill --kill-whom=main --signal={signal} {unit}"))
}

/// Below /run, so that the next boot knows nothing of it.
fn never_restart(rig: &Rig, node: &str, unit: &str) -> Result<()> {
    let folder = format!("/run/systemd/system/{unit}.d");
    rig.guest(node)?.run(&format!(
        "mkdir -p {folder} && printf '[Service]\\nRestart=no\\n' >{folder}/never.conf && systemctl daemon-reload"
    ))
}

/// Runs hactl, which must succeed.
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
