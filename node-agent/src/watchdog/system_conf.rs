//! Whether the service manager's configuration leaves the watchdog to ha-watchdogd.
//!
//! It reads systemd's files and asks nobody, so that it never waits for a service manager that hangs.

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
    if !root.join("run/systemd/system").is_dir() {
        return Vec::new();
    }
    let settings = settings(root);
    let value =
        |(name, default): (&str, &str)| settings.get(name).cloned().unwrap_or_else(|| default.to_owned());
    let mut problems = Vec::new();
    let (runtime, reboot) = (value(RUNTIME), value(REBOOT));
    let mend = "in /etc/systemd/system.conf.d/50-ha-watchdogd.conf, then systemctl daemon-reexec";
    if !is_off(&runtime) {
        problems.push(format!(
            "systemd pets the watchdog itself (RuntimeWatchdogSec={runtime}): set RuntimeWatchdogSec=0 {mend}"
        ));
    }
    if !is_off(&reboot) {
        problems.push(format!(
            "systemd gives the watchdog {reboot} at reboot, so a machine that hangs on its way down is reset late: set RebootWatchdogSec=0 {mend}"
        ));
    }
    problems
}

/// The last value of each setting, in systemd's order: the main file, then the drop-ins by name.
fn settings(root: &Path) -> BTreeMap<String, String> {
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

fn is_off(value: &str) -> bool {
    value == "off" || value.trim_end_matches(|unit: char| unit.is_ascii_alphabetic() || unit == ' ') == "0"
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
