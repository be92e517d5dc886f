//! Tests of the checks: machines, and the expected results.

use super::*;
use crate::doctor::{ManagerSettings, Owner, TimeDaemon};
use crate::watchdog::protocol::{DeviceFacts, DeviceKind, Name, Privileges};
use ha_api_types::check::Verdict;
use ha_api_types::node_policy::NodePolicy;
use ha_api_types::record::{SleepProtection, WatchdogTest};

/// A machine without problems.
#[derive(Clone)]
struct Machine {
    facts: MachineFacts,
    watchdog: WatchdogReport,
    daemon: Status,
    context: CheckContext,
}

fn healthy_machine() -> Machine {
    let device = DeviceFacts {
        kind: DeviceKind::Kernel,
        identity: Name::new(b"iTCO_wdt"),
        location: Name::new(b"/dev/watchdog0"),
        timeout_seconds: 5,
        smallest_timeout_seconds: 1,
        largest_timeout_seconds: 600,
        sliding: true,
        descriptor_retained: true,
        nowayout: false,
    };
    Machine {
        facts: MachineFacts {
            manager: Some(ManagerSettings {
                runtime_watchdog_sec: "0".to_owned(),
                reboot_watchdog_sec: "off".to_owned(),
            }),
            watchdog_owner: Some(Owner { pid: 7, name: "ha-watchdogd".to_owned() }),
            panic: PanicSettings { panic: Some(10), panic_on_oops: Some(1), ..PanicSettings::default() },
            ..MachineFacts::default()
        },
        watchdog: WatchdogReport {
            tested: true,
            last_test: Some(WatchdogTest { timeout_ms: 5_000, lasted_ms: 2_500, ..WatchdogTest::default() }),
            ..device.report()
        },
        daemon: Status {
            device: Some(device),
            smallest_margin_ms: Some(4_700),
            worst_lateness_ms: Some(3),
            privileges: Privileges { real_time: true, memory_locked: true },
            ..Status::default()
        },
        context: CheckContext {
            node: "node1".into(),
            policy: Some(NodePolicy::default()),
            ..CheckContext::default()
        },
    }
}

fn checks_of(machine: &Machine) -> Vec<Check> {
    run_checks(&machine.facts, &machine.watchdog, &machine.daemon, &machine.context)
}

/// Makes one change to a machine without problems, and expects only this check to report a problem, with these texts.
fn check(change: impl Fn(&mut Machine), name: &str, verdict: Verdict, finding_part: &str, help_part: &str) {
    let mut machine = healthy_machine();
    change(&mut machine);
    let checks = checks_of(&machine);
    let not_ok: Vec<&Check> = checks.iter().filter(|check| check.verdict != Verdict::Ok).collect();
    let expected = usize::from(verdict != Verdict::Ok);
    assert_eq!(not_ok.len(), expected, "{not_ok:?}");
    let check_result = checks.iter().find(|check| check.name == name).expect("the check exists");
    assert_eq!(check_result.verdict, verdict, "{check_result:?}");
    assert!(
        check_result.finding.contains(finding_part) && check_result.help.contains(help_part),
        "{check_result:?}"
    );
    assert_eq!(check_result.help.is_empty(), verdict == Verdict::Ok, "{check_result:?}");
}

#[test]
fn a_healthy_machine_passes_all_twelve_checks() {
    let checks = checks_of(&healthy_machine());
    assert_eq!(checks.len(), 12);
    assert!(checks.iter().all(|check| check.verdict == Verdict::Ok), "{checks:?}");
}

#[test]
fn watchdog_checks_have_expected_verdicts() {
    use Verdict::{Fail, Ok, Warn};
    check(
        |m| m.watchdog.kind = WatchdogKind::None,
        "watchdog",
        Fail,
        "no watchdog reported",
        "systemctl status ha-watchdogd",
    );
    check(|m| m.watchdog.problem = "raise it".to_owned(), "watchdog", Fail, "cannot be armed", "raise it");
    check(
        |m| m.watchdog.identity = SOFTDOG_IDENTITY.to_owned(),
        "watchdog",
        Warn,
        "softdog cannot reset",
        "WATCHDOG_MODULE",
    );
    check(
        |m| m.watchdog.descriptor_retained = false,
        "watchdog",
        Warn,
        "not retained",
        "FileDescriptorStoreMax=2",
    );
    check(|m| m.watchdog.sliding = false, "watchdog", Ok, "fixed", "");
    check(|m| m.facts.watchdog_owner = None, "watchdog-owner", Ok, "no process has", "");
    let owned = |name: &'static str| {
        move |m: &mut Machine| m.facts.watchdog_owner = Some(Owner { pid: 1, name: name.to_owned() })
    };
    check(owned("sbd"), "watchdog-owner", Fail, "process 1 (sbd)", "systemctl disable --now sbd");
    check(owned("systemd"), "watchdog-owner", Fail, "(systemd)", "RuntimeWatchdogSec=0");
    let cannot_stop = |m: &mut Machine| {
        m.daemon.device = m.daemon.device.map(|device| DeviceFacts { nowayout: true, ..device });
    };
    check(cannot_stop, "nowayout", Warn, "cannot be stopped", "nowayout=0");
    check(|m| m.daemon.device = None, "nowayout", Ok, "watchdog is not armed", "");
    check(
        |m| (m.watchdog.tested, m.watchdog.last_test) = (false, None),
        "watchdog-tested",
        Warn,
        "never been tested",
        "hactl node maintenance enable node1 --wait, then hactl node test-watchdog node1",
    );
    check(|_| (), "watchdog-tested", Ok, "within 3 s", "");
    let retimed = |m: &mut Machine| {
        m.watchdog.tested = false;
        m.context.timings.watchdog_timeout_ms = 15_000;
    };
    check(retimed, "watchdog-tested", Warn, "a timeout of 5 s, but 15 s is active", "test-watchdog");
    let required = |m: &mut Machine| {
        m.watchdog.tested = false;
        m.context.require_tested = true;
    };
    check(required, "watchdog-tested", Fail, "requireTested", "hactl node test-watchdog node1");
    check(|m| m.daemon.smallest_margin_ms = None, "watchdog-margin", Ok, "watchdog is not armed", "");
    check(
        |m| m.daemon.smallest_margin_ms = Some(1_200),
        "watchdog-margin",
        Warn,
        "1200 ms",
        "watchdogTimeoutSeconds",
    );
    check(|m| m.daemon.pretimeout_seconds = Some(3), "watchdog-margin", Warn, "3 s", "noop");
    check(|m| m.daemon.privileges.real_time = false, "watchdog-margin", Warn, "real-time", "LimitRTPRIO=99");
}

#[test]
fn a_node_without_policy_is_reported() {
    let finding = "users who may edit resources are root on this node";
    check(
        |machine| machine.context.policy = None,
        "node-policy",
        Verdict::Warn,
        finding,
        "/etc/hactl/agent.yaml",
    );
    check(|_| {}, "node-policy", Verdict::Ok, "root: no", "");
}

#[test]
fn a_simulated_watchdog_skips_the_device_checks() {
    let mut machine = healthy_machine();
    machine.watchdog.kind = WatchdogKind::Simulated;
    machine.facts.manager = Some(ManagerSettings {
        runtime_watchdog_sec: "30".to_owned(),
        reboot_watchdog_sec: "10min".to_owned(),
    });
    let checks = checks_of(&machine);
    let not_ok: Vec<&str> =
        checks.iter().filter(|check| check.verdict != Verdict::Ok).map(|check| check.name.as_str()).collect();
    assert_eq!(not_ok, ["watchdog"]);
}

#[test]
fn machine_checks_have_expected_verdicts() {
    use Verdict::{Fail, Ok, Warn};
    let manager = |runtime: &'static str, reboot: &'static str| {
        move |m: &mut Machine| {
            m.facts.manager = Some(ManagerSettings {
                runtime_watchdog_sec: runtime.to_owned(),
                reboot_watchdog_sec: reboot.to_owned(),
            });
        }
    };
    check(manager("30s", "0"), "runtime-watchdog", Fail, "RuntimeWatchdogSec=30s", "RuntimeWatchdogSec=0");
    check(manager("0", "10min"), "reboot-watchdog", Fail, "10min at reboot", "RebootWatchdogSec=0");
    check(|m| m.facts.manager = None, "reboot-watchdog", Ok, "does not run", "");
    let slews = |slew_ppm| {
        move |m: &mut Machine| {
            let fix = "maxslewrate 500 in /etc/chrony/chrony.conf";
            m.facts.time_daemons = vec![TimeDaemon { name: "chronyd".to_owned(), slew_ppm, fix }];
        }
    };
    check(
        slews(83_333),
        "clock-slew",
        Warn,
        "8.3333 %, timing.clockRateErrorPercent is 0.1",
        "maxslewrate 500",
    );
    check(slews(500), "clock-slew", Ok, "0.05 %", "");
    let sleeps = |open: &'static [&'static str]| {
        move |m: &mut Machine| {
            m.facts.sleep.states = vec!["mem".to_owned()];
            m.facts.sleep.open_targets = open.iter().map(|target| (*target).to_owned()).collect();
        }
    };
    check(
        sleeps(&["sleep.target", "suspend.target"]),
        "sleep",
        Warn,
        "can sleep (mem)",
        "systemctl mask sleep.target",
    );
    check(sleeps(&["suspend.target"]), "sleep", Ok, "masked", "");
    let protected = |protection: SleepProtection, other_fencing: bool| {
        move |m: &mut Machine| {
            m.context.sleep_protection = Some(protection);
            m.context.has_other_fencing = other_fencing;
        }
    };
    check(protected(SleepProtection::NotNeeded, false), "sleep", Ok, "cannot sleep", "");
    check(protected(SleepProtection::Masked, false), "sleep", Ok, "disabled in systemd", "");
    check(protected(SleepProtection::Inhibitor, false), "sleep", Ok, "inhibitor", "");
    check(
        protected(SleepProtection::None, false),
        "sleep",
        Fail,
        "missed heartbeats do not confirm a failure",
        "systemctl mask sleep.target",
    );
    check(
        protected(SleepProtection::None, true),
        "sleep",
        Warn,
        "no inhibitor keeps it awake",
        "systemctl mask",
    );
    check(
        |m| m.facts.panic.panic = Some(0),
        "panic",
        Warn,
        "kernel.panic=0",
        "add kernel.panic=10 to /etc/sysctl.d",
    );
    check(
        |m| m.facts.panic.panic_on_oops = Some(0),
        "panic",
        Warn,
        "keeps running after an oops",
        "kernel.panic_on_oops=1",
    );
    check(
        |m| m.facts.panic.hung_task_panic = Some(1),
        "panic",
        Warn,
        "slow disk can cause a panic",
        "kernel.hung_task_panic=0",
    );
    check(
        |m| m.context.is_virtual = true,
        "machine",
        Fail,
        "hypervisor",
        "trustWatchdogOnVirtualMachine=true",
    );
    let covered = |m: &mut Machine| {
        m.context.is_virtual = true;
        m.context.has_other_fencing = true;
    };
    check(covered, "machine", Ok, "virtual machine, with", "");
}
