//! Whether the service manager's configuration leaves the watchdog to ha-watchdogd.
//!
//! It reads systemd's files and asks nobody, so that it never waits for a service manager that hangs.

use super::protocol::Refusal;
use crate::doctor::ManagerSettings;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Where systemd looks, the strongest first.
const FOLDERS: [&str; 4] = ["etc/systemd", "run/systemd", "usr/local/lib/systemd", "usr/lib/systemd"];

/// The setting that pets the watchdog while the machine runs, and what it is if nobody sets it.
const RUNTIME: (&str, &str) = ("RuntimeWatchdogSec", "0");

/// The setting that arms the watchdog anew at reboot, and what it is if nobody sets it.
const REBOOT: (&str, &str) = ("RebootWatchdogSec", "10min");

/// What of systemd's configuration takes the watchdog away from ha-watchdogd, one sentence each with the
/// line that mends it. `root` is `/`, or a folder in a test.
///
/// # Caveats
/// It says what the files say; a change counts after `systemctl daemon-reexec`.
pub fn problems(root: &Path) -> Vec<String> {
    let settings = settings(root);
    let problems =
        settings.iter().flat_map(|settings| [settings.runtime_problem(), settings.reboot_problem()]);
    problems.flatten().map(|(seen, help)| format!("{seen}: {help}")).collect()
}

/// Why the device may not be opened while systemd uses the watchdog too.
pub fn refusal(root: &Path) -> Option<Refusal> {
    let settings = settings(root)?;
    let (runtime, reboot) = (settings.runtime_problem().is_some(), settings.reboot_problem().is_some());
    (runtime || reboot).then_some(Refusal::SharedWithManager { runtime, reboot })
}

/// systemd's own watchdogs as its files set them; `None` where systemd does not run.
pub fn settings(root: &Path) -> Option<ManagerSettings> {
    if !root.join("run/systemd/system").is_dir() {
        return None;
    }
    let set = set_values(root);
    let value = |(name, default): (&str, &str)| set.get(name).cloned().unwrap_or_else(|| default.to_owned());
    Some(ManagerSettings { runtime: value(RUNTIME), reboot: value(REBOOT) })
}

/// The last value of each setting, in systemd's order: the main file, then the drop-ins by name.
fn set_values(root: &Path) -> BTreeMap<String, String> {
    let folders = || FOLDERS.iter().map(|folder| root.join(folder));
    let main = folders().map(|folder| folder.join("system.conf")).find(|file| file.exists());
    let mut drop_ins: BTreeMap<std::ffi::OsString, PathBuf> = BTreeMap::new();
    for folder in folders() {
        for entry in std::fs::read_dir(folder.join("system.conf.d")).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "conf") {
                // A file in a stronger folder hides one of the same name.
                drop_ins.entry(entry.file_name()).or_insert_with(|| entry.path());
            }
        }
    }
    let mut settings = BTreeMap::new();
    for file in main.into_iter().chain(drop_ins.into_values()) {
        for line in std::fs::read_to_string(file).unwrap_or_default().lines() {
            let Some((name, value)) = line.split_once('=') else { continue };
            let name = match name.trim() {
                "ShutdownWatchdogSec" => REBOOT.0,
                name => name,
            };
            if [RUNTIME.0, REBOOT.0].contains(&name) {
                // Set to nothing: back to the default.
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
        let found = problems(root.path());
        assert_eq!(found.len(), expected.len(), "{files:?}: {found:?}");
        for (problem, part) in found.iter().zip(expected) {
            assert!(problem.contains(part), "{problem}");
        }
        let shared =
            |setting: &str| found.iter().any(|problem| problem.contains(&format!("set {setting}=0")));
        let (runtime, reboot) = (shared("RuntimeWatchdogSec"), shared("RebootWatchdogSec"));
        let refused = Refusal::SharedWithManager { runtime, reboot };
        assert_eq!(refusal(root.path()), (runtime || reboot).then_some(refused));
    }

    const RUNNING: (&str, &str) = ("run/systemd/system/any", "");

    #[test]
    fn says_who_else_uses_the_watchdog() {
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
        // The drop-in of the later name wins, and one in /etc hides its namesake in /usr/lib.
        let vendor = ("usr/lib/systemd/system.conf.d/50-ha-watchdogd.conf", "RuntimeWatchdogSec=20s\n");
        check(&[RUNNING, shipped, vendor], &[]);
        check(&[RUNNING, shipped, ("run/systemd/system.conf.d/60-x.conf", "RebootWatchdogSec=off\n")], &[]);
        check(
            &[RUNNING, shipped, ("usr/lib/systemd/system.conf.d/60-x.conf", "RuntimeWatchdogSec=1min\n")],
            &["1min"],
        );
    }
}
