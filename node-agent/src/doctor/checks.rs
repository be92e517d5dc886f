//! Checks of a machine's facts; pure, so that a table of machines can test them.

use super::facts::{MachineFacts, PanicSettings, Sleep};
use super::manager::ManagerSettings;
use crate::watchdog::protocol::{Status, fix_for};
use ha_api_types::check::Check;
use ha_api_types::id::NodeName;
use ha_api_types::node_policy::NodePolicy;
use ha_api_types::record::{SOFTDOG_IDENTITY, SleepProtection, WatchdogKind, WatchdogReport};
use ha_api_types::timing::Timings;

/// Facts from outside the machine that affect the checks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckContext {
    /// Name of the node.
    pub node: NodeName,
    /// `true` if the machine is a virtual machine.
    pub is_virtual: bool,
    /// Protection that keeps the machine awake; `None` if the agent does not report it.
    pub sleep_protection: Option<SleepProtection>,
    /// `true` if fencing can be confirmed without the watchdog: by a fence device, or by an operator who accepts the
    /// risk (`Node.spec.fencing`).
    pub has_other_fencing: bool,
    /// Value of `Cluster.spec.fencing.requireTested`.
    pub require_tested: bool,
    /// Policy of the node; `None` if the node allows every service.
    pub policy: Option<NodePolicy>,
    /// Active timings of the cluster.
    pub timings: Timings,
}

/// Returns all checks of a machine, always in the same order.
pub fn run_checks(
    facts: &MachineFacts,
    watchdog: &WatchdogReport,
    watchdog_status: &Status,
    context: &CheckContext,
) -> Vec<Check> {
    let mut checks = vec![check_device(watchdog)];
    if watchdog.kind != WatchdogKind::Simulated {
        checks.push(check_owner(facts));
        checks.push(check_nowayout(watchdog_status));
        let (runtime, reboot) = (ManagerSettings::runtime_problem, ManagerSettings::reboot_problem);
        checks.push(check_systemd_setting(facts, "runtime-watchdog", runtime, "while the machine runs"));
        checks.push(check_systemd_setting(facts, "reboot-watchdog", reboot, "at reboot"));
        checks.push(check_tested(watchdog, context));
    }
    checks.push(check_margin(watchdog, watchdog_status));
    checks.push(check_clock(facts, context));
    checks.push(check_sleep(&facts.sleep, context));
    checks.push(check_panic(&facts.panic));
    checks.push(check_machine(context));
    checks.push(check_policy(context.policy.as_ref()));
    checks
}

fn check_policy(policy: Option<&NodePolicy>) -> Check {
    let name = "node-policy";
    let help = "set policy in /etc/hactl/agent.yaml and restart the agent (docs/concepts/security.md)";
    match policy {
        Some(policy) => Check::ok(name, policy.summary()),
        None => Check::warn(
            name,
            "every service is allowed: users who may edit resources are root on this node",
            help,
        ),
    }
}

fn check_device(watchdog: &WatchdogReport) -> Check {
    let name = "watchdog";
    let description = format!(
        "{} at {}, timeout {} s, {}{}",
        watchdog.identity,
        watchdog.device,
        watchdog.timeout_ms / 1000,
        if watchdog.sliding { "sliding" } else { "fixed" },
        if watchdog.descriptor_retained { "" } else { ", descriptor not retained" },
    );
    let unusable = (!watchdog.problem.is_empty()).then(|| watchdog.problem.clone());
    match (watchdog.kind, unusable) {
        (_, Some(problem)) => Check::fail(name, "watchdog cannot be armed", problem),
        (WatchdogKind::None, None) => Check::fail(
            name,
            "no watchdog reported",
            "check systemctl status ha-watchdogd, and WATCHDOG_MODULE in /etc/hactl/watchdog.env",
        ),
        (WatchdogKind::Simulated, None) => Check::warn(
            name,
            "simulated watchdog, for sandboxes and tests only: this machine is not protected",
            "start ha-watchdogd without --simulated",
        ),
        (WatchdogKind::Kernel, None) if watchdog.identity == SOFTDOG_IDENTITY => Check::warn(
            name,
            format!("{description}: softdog cannot reset a machine whose kernel has stopped"),
            "set WATCHDOG_MODULE to the driver of this machine's hardware in /etc/hactl/watchdog.env, then run systemctl kill ha-watchdogd",
        ),
        (WatchdogKind::Kernel, None) if !watchdog.descriptor_retained => Check::warn(
            name,
            format!("{description}: failovers take longer (hactl timing)"),
            "run ha-watchdogd as its systemd unit does, with FileDescriptorStoreMax=2",
        ),
        (WatchdogKind::Kernel, None) => Check::ok(name, description),
    }
}

fn check_owner(facts: &MachineFacts) -> Check {
    let name = "watchdog-owner";
    match &facts.watchdog_owner {
        None => Check::ok(name, "no process has the device open: watchdog is not armed"),
        Some(owner) if owner.name == "ha-watchdogd" => {
            Check::ok(name, format!("ha-watchdogd (process {})", owner.pid))
        }
        Some(owner) => Check::fail(
            name,
            format!("process {} ({}) holds the watchdog device", owner.pid, owner.name),
            fix_for(&owner.name),
        ),
    }
}

fn check_nowayout(watchdog_status: &Status) -> Check {
    let name = "nowayout";
    match watchdog_status.device {
        Some(device) if device.nowayout => Check::warn(
            name,
            "device cannot be stopped after it was started, so stopping ha-watchdogd resets the machine",
            "load the driver with nowayout=0 (/etc/modprobe.d/)",
        ),
        Some(_) => Check::ok(name, "device can be stopped (magic close)"),
        None => Check::ok(name, "watchdog is not armed"),
    }
}

/// Checks that systemd does not use the watchdog in the phase `when`.
fn check_systemd_setting(
    facts: &MachineFacts,
    name: &str,
    problem: fn(&ManagerSettings) -> Option<(String, String)>,
    phase: &str,
) -> Check {
    match facts.manager.as_ref().map(problem) {
        Some(Some((finding, help))) => Check::fail(name, finding, help),
        Some(None) => Check::ok(name, format!("systemd does not use the watchdog {phase}")),
        None => Check::ok(name, "systemd does not run on this machine"),
    }
}

fn check_tested(watchdog: &WatchdogReport, context: &CheckContext) -> Check {
    let name = "watchdog-tested";
    let node = &context.node;
    let help = format!(
        "run hactl node maintenance enable {node} --wait, then hactl node test-watchdog {node} (resets the machine)"
    );
    let finding = match &watchdog.last_test {
        Some(test) if watchdog.tested => {
            let seconds = test.lasted_ms.div_ceil(1000);
            return Check::ok(
                name,
                format!("watchdog reset this machine in a test ({}, within {seconds} s)", test.at),
            );
        }
        Some(test) => format!(
            "watchdog was tested with a timeout of {} s, but {} s is active",
            test.timeout_ms / 1000,
            context.timings.watchdog_timeout_ms / 1000
        ),
        None => "watchdog has never been tested on this machine".to_owned(),
    };
    if context.require_tested {
        Check::fail(name, format!("{finding}; Cluster.spec.fencing.requireTested requires a test"), help)
    } else {
        Check::warn(name, finding, help)
    }
}

fn check_margin(watchdog: &WatchdogReport, watchdog_status: &Status) -> Check {
    let name = "watchdog-margin";
    if let Some(seconds) = watchdog_status.pretimeout_seconds.filter(|seconds| *seconds > 0) {
        return Check::warn(
            name,
            format!(
                "the watchdog driver's pretimeout of {seconds} s cannot be disabled and acts before the deadline"
            ),
            "select the governor noop: echo noop > /sys/class/watchdog/watchdog0/pretimeout_governor",
        );
    }
    if !(watchdog_status.privileges.real_time && watchdog_status.privileges.memory_locked) {
        return Check::warn(
            name,
            "ha-watchdogd has no real-time priority or no locked memory: an overloaded machine may be reset unnecessarily",
            "run ha-watchdogd as its systemd unit does (LimitRTPRIO=99, LimitMEMLOCK=infinity)",
        );
    }
    let Some(margin_ms) = watchdog_status.smallest_margin_ms else {
        return Check::ok(name, "watchdog is not armed");
    };
    let lateness_ms = watchdog_status.worst_lateness_ms.unwrap_or(0);
    let finding =
        format!("minimum watchdog margin {margin_ms} ms, maximum scheduling delay {lateness_ms} ms");
    if u64::from(margin_ms) * 4 < watchdog.timeout_ms {
        let help = "increase Cluster.spec.timing.watchdogTimeoutSeconds (failovers take longer, see hactl timing), or reduce the load of this machine";
        Check::warn(name, finding, help)
    } else {
        Check::ok(name, finding)
    }
}

fn check_clock(facts: &MachineFacts, context: &CheckContext) -> Check {
    let name = "clock-slew";
    let tolerated_ppm = context.timings.clock_rate_error_ppm;
    let percent = |ppm: u64| ppm as f64 / 10_000.0;
    let Some(worst) = facts.time_daemons.iter().max_by_key(|daemon| daemon.slew_ppm) else {
        return Check::ok(name, "no time daemon runs, so the clock is not slewed");
    };
    let finding = format!("{} may slew the clock by {} %", worst.name, percent(worst.slew_ppm));
    if worst.slew_ppm <= tolerated_ppm {
        return Check::ok(name, finding);
    }
    let problem = format!(
        "{finding}, timing.clockRateErrorPercent is {}: services may be stopped unnecessarily",
        percent(tolerated_ppm)
    );
    Check::warn(name, problem, worst.fix)
}

fn check_sleep(sleep: &Sleep, context: &CheckContext) -> Check {
    let name = "sleep";
    let help = "run systemctl mask sleep.target suspend.target hibernate.target hybrid-sleep.target suspend-then-hibernate.target";
    match context.sleep_protection {
        Some(SleepProtection::NotNeeded) => return Check::ok(name, "this machine cannot sleep"),
        Some(SleepProtection::Masked) => return Check::ok(name, "sleep is disabled in systemd"),
        Some(SleepProtection::Inhibitor) => {
            return Check::ok(name, "agent holds an inhibitor that keeps this machine awake");
        }
        Some(SleepProtection::None) if context.has_other_fencing => {
            return Check::warn(name, "this machine can sleep, and no inhibitor keeps it awake", help);
        }
        Some(SleepProtection::None) => {
            let finding = "this machine can sleep, and no inhibitor keeps it awake: missed heartbeats do not confirm a failure, so its services are not recovered";
            return Check::fail(name, finding, help);
        }
        None => {}
    }
    if sleep.states.is_empty() {
        return Check::ok(name, "this machine cannot sleep");
    }
    let masks_all_sleep = !sleep.open_targets.iter().any(|target| target == "sleep.target");
    if masks_all_sleep || sleep.open_targets.is_empty() {
        return Check::ok(name, "systemd's sleep targets are masked");
    }
    Check::warn(
        name,
        format!(
            "this machine can sleep ({}), and a sleeping node is fenced: the agent prevents sleep only while the watchdog is armed",
            sleep.states.join(", ")
        ),
        help,
    )
}

fn check_panic(settings: &PanicSettings) -> Check {
    let name = "panic";
    let mut problems = Vec::new();
    let mut lines = Vec::new();
    if settings.panic == Some(0) {
        problems.push(
            "kernel.panic=0: the machine does not reboot after a kernel panic, and softdog cannot reset it",
        );
        lines.push("kernel.panic=10");
    }
    if settings.panic_on_oops == Some(0) {
        problems.push("kernel.panic_on_oops=0: the kernel keeps running after an oops");
        lines.push("kernel.panic_on_oops=1");
    }
    if settings.hung_task_panic.is_some_and(|value| value != 0) {
        problems.push("kernel.hung_task_panic is enabled: a slow disk can cause a panic");
        lines.push("kernel.hung_task_panic=0");
    }
    let setting_text = |value: Option<i64>| value.map_or("-".to_owned(), |value| value.to_string());
    if problems.is_empty() {
        return Check::ok(
            name,
            format!(
                "panic={}, panic_on_oops={}, hung_task_panic={}, softlockup_panic={}, hardlockup_panic={}",
                setting_text(settings.panic),
                setting_text(settings.panic_on_oops),
                setting_text(settings.hung_task_panic),
                setting_text(settings.softlockup_panic),
                setting_text(settings.hardlockup_panic),
            ),
        );
    }
    let help =
        format!("add {} to /etc/sysctl.d/50-hactl.conf, then run sysctl --system", lines.join(" and "));
    Check::warn(name, problems.join("; "), help)
}

fn check_machine(context: &CheckContext) -> Check {
    let name = "machine";
    match (context.is_virtual, context.has_other_fencing) {
        (false, _) => Check::ok(name, "physical machine"),
        (true, true) => {
            Check::ok(name, "virtual machine, with a fence device or trustWatchdogOnVirtualMachine")
        }
        (true, false) => Check::fail(
            name,
            "virtual machine: its hypervisor can pause it together with its clock. Missed heartbeats do not confirm a failure, so its services are not recovered",
            format!(
                "configure the fence agent of the hypervisor for node {} (spec.fencing.devices), or accept that services can run twice after a pause: hactl set node/{} fencing.trustWatchdogOnVirtualMachine=true",
                context.node, context.node
            ),
        ),
    }
}

#[cfg(test)]
mod tests;
