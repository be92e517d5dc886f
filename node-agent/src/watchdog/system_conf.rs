//! Checks whether the service manager's configuration leaves the watchdog to ha-watchdogd.
//!
//! The checks read only systemd's files, so a service manager that hangs cannot block them.

use super::protocol::Refusal;
use crate::doctor::ManagerSettings;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The directories of systemd's configuration, highest precedence first.
const CONFIGURATION_DIRECTORIES: [&str; 4] =
    ["etc/systemd", "run/systemd", "usr/local/lib/systemd", "usr/lib/systemd"];

/// Kinds of sleep: the setting that allows each, and the target that begins it.
const SLEEP_SETTINGS: [(&str, &str); 4] = [
    ("AllowSuspend", "suspend.target"),
    ("AllowHibernation", "hibernate.target"),
    ("AllowHybridSleep", "hybrid-sleep.target"),
    ("AllowSuspendThenHibernate", "suspend-then-hibernate.target"),
];

/// The setting that makes systemd pet the watchdog while the machine runs, and its default.
const RUNTIME_WATCHDOG_SETTING: (&str, &str) = ("RuntimeWatchdogSec", "0");

/// The setting that makes systemd arm the watchdog again at reboot, and its default.
const REBOOT_WATCHDOG_SETTING: (&str, &str) = ("RebootWatchdogSec", "10min");

/// Returns the settings of systemd that conflict with ha-watchdogd, one sentence each with the suggested fix. `root` is
/// `/`, or a directory in a test.
///
/// # Caveats
/// The result is based on the files; a change takes effect only after `systemctl daemon-reexec`.
pub fn problems(root: &Path) -> Vec<String> {
    let settings = settings(root);
    let problems =
        settings.iter().flat_map(|settings| [settings.runtime_problem(), settings.reboot_problem()]);
    problems.flatten().map(|(finding, help)| format!("{finding}: {help}")).collect()
}

/// Returns a refusal to open the device if systemd also uses the watchdog.
pub fn refusal(root: &Path) -> Option<Refusal> {
    let settings = settings(root)?;
    let (runtime, reboot) = (settings.runtime_problem().is_some(), settings.reboot_problem().is_some());
    (runtime || reboot).then_some(Refusal::SharedWithManager { runtime, reboot })
}

/// Returns systemd's own watchdog settings from its files; `None` if systemd does not run.
pub fn settings(root: &Path) -> Option<ManagerSettings> {
    if !root.join("run/systemd/system").is_dir() {
        return None;
    }
    let configured = configured_values(root);
    let value =
        |(name, default): (&str, &str)| configured.get(name).cloned().unwrap_or_else(|| default.to_owned());
    Some(ManagerSettings {
        runtime_watchdog_sec: value(RUNTIME_WATCHDOG_SETTING),
        reboot_watchdog_sec: value(REBOOT_WATCHDOG_SETTING),
    })
}

/// Returns `true` if the service manager cannot put this machine to sleep: its targets are masked, or its settings
/// forbid every kind of sleep.
pub fn is_sleep_disabled(root: &Path) -> bool {
    if !root.join("run/systemd/system").is_dir() {
        return false;
    }
    let is_masked = |target: &str| {
        ["etc", "run"].iter().any(|location| {
            let path = root.join(location).join("systemd/system").join(target);
            std::fs::read_link(path).is_ok_and(|link_target| link_target == Path::new("/dev/null"))
        })
    };
    if is_masked("sleep.target") {
        // Every kind of sleep requires this target.
        return true;
    }
    let configured = values_of(root, "sleep.conf", &SLEEP_SETTINGS.map(|(setting, _)| setting));
    SLEEP_SETTINGS.iter().all(|(setting, target)| {
        is_masked(target) || configured.get(*setting).is_some_and(|value| is_negative(value))
    })
}

fn is_negative(value: &str) -> bool {
    ["no", "n", "false", "f", "off", "0"].iter().any(|no| value.eq_ignore_ascii_case(no))
}

/// Returns the last value of each setting, in systemd's order: the main file, then the drop-ins by name.
fn configured_values(root: &Path) -> BTreeMap<String, String> {
    values_of(root, "system.conf", &[RUNTIME_WATCHDOG_SETTING.0, REBOOT_WATCHDOG_SETTING.0])
}

/// Returns the last value of each setting in any of systemd's configuration files.
fn values_of(root: &Path, file_name: &str, setting_names: &[&str]) -> BTreeMap<String, String> {
    let directories = || CONFIGURATION_DIRECTORIES.iter().map(|directory| root.join(directory));
    let main = directories().map(|directory| directory.join(file_name)).find(|file| file.exists());
    let mut drop_ins: BTreeMap<std::ffi::OsString, PathBuf> = BTreeMap::new();
    for directory in directories() {
        for entry in
            std::fs::read_dir(directory.join(format!("{file_name}.d"))).into_iter().flatten().flatten()
        {
            if entry.path().extension().is_some_and(|extension| extension == "conf") {
                // A file in a directory of higher precedence hides a file of the same name in other directories.
                drop_ins.entry(entry.file_name()).or_insert_with(|| entry.path());
            }
        }
    }
    let mut settings = BTreeMap::new();
    for file in main.into_iter().chain(drop_ins.into_values()) {
        for line in std::fs::read_to_string(file).unwrap_or_default().lines() {
            let Some((name, value)) = line.split_once('=') else { continue };
            let name = match name.trim() {
                "ShutdownWatchdogSec" => REBOOT_WATCHDOG_SETTING.0,
                name => name,
            };
            if setting_names.contains(&name) {
                // An empty value restores the default.
                match value.trim() {
                    "" => settings.remove(name),
                    value => settings.insert(name.to_owned(), value.to_owned()),
                };
            }
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let problems_found = problems(root.path());
        assert_eq!(problems_found.len(), expected.len(), "{files:?}: {problems_found:?}");
        for (problem, part) in problems_found.iter().zip(expected) {
            assert!(problem.contains(part), "{problem}");
        }
        let shared = |setting: &str| {
            problems_found.iter().any(|problem| problem.contains(&format!("set {setting}=0")))
        };
        let (runtime, reboot) = (shared("RuntimeWatchdogSec"), shared("RebootWatchdogSec"));
        let refused = Refusal::SharedWithManager { runtime, reboot };
        assert_eq!(refusal(root.path()), (runtime || reboot).then_some(refused));
    }

    #[test]
    fn sleep_is_off_only_if_fully_disabled() {
        let shipped = (
            "usr/lib/systemd/sleep.conf.d/50-hactl.conf",
            include_str!("../../../manifests/systemd/sleep.conf.d/50-hactl.conf"),
        );
        let check = |files: &[(&str, &str)], masked: &[&str], expected: bool| {
            let root = tempfile::tempdir().unwrap();
            for (path, text) in files {
                let path = root.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            for target in masked {
                let link = root.path().join("etc/systemd/system").join(target);
                std::fs::create_dir_all(link.parent().unwrap()).unwrap();
                std::os::unix::fs::symlink("/dev/null", link).unwrap();
            }
            assert_eq!(is_sleep_disabled(root.path()), expected, "{files:?} {masked:?}");
        };
        check(&[RUNNING], &[], false);
        check(&[shipped], &[], false);
        check(&[RUNNING, shipped], &[], true);
        check(&[RUNNING], &["sleep.target"], true);
        check(&[RUNNING], &["suspend.target", "hibernate.target", "hybrid-sleep.target"], false);
        check(
            &[RUNNING, shipped, ("etc/systemd/sleep.conf.d/90-mine.conf", "AllowSuspend=yes\n")],
            &[],
            false,
        );
        check(
            &[RUNNING, shipped, ("etc/systemd/sleep.conf.d/90-mine.conf", "AllowSuspend=yes\n")],
            &["suspend.target"],
            true,
        );
    }

    const RUNNING: (&str, &str) = ("run/systemd/system/any", "");

    #[test]
    fn systemd_watchdog_settings_are_detected() {
        let shipped = (
            "etc/systemd/system.conf.d/50-ha-watchdogd.conf",
            include_str!("../../../manifests/systemd/system.conf.d/50-ha-watchdogd.conf"),
        );
        check(&[], &[]);
        check(&[RUNNING], &["10min at reboot"]);
        check(&[RUNNING, shipped], &[]);
        check(
            &[
                RUNNING,
                ("etc/systemd/system.conf", "[Manager]\nRuntimeWatchdogSec=30\n#RebootWatchdogSec=0\n"),
            ],
            &["RuntimeWatchdogSec=30", "10min"],
        );
        check(&[RUNNING, ("etc/systemd/system.conf", "[Manager]\nShutdownWatchdogSec = 0s\n")], &[]);
        // The drop-in with the later name applies. A drop-in in /etc hides the file of the same name in /usr/lib.
        let vendor = ("usr/lib/systemd/system.conf.d/50-ha-watchdogd.conf", "RuntimeWatchdogSec=20s\n");
        check(&[RUNNING, shipped, vendor], &[]);
        check(&[RUNNING, shipped, ("run/systemd/system.conf.d/60-x.conf", "RebootWatchdogSec=off\n")], &[]);
        check(
            &[RUNNING, shipped, ("usr/lib/systemd/system.conf.d/60-x.conf", "RuntimeWatchdogSec=1min\n")],
            &["1min"],
        );
    }
}
