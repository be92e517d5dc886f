//! Reader of a machine's facts below a root directory: `/`, or an artificial tree in a test.
//!
//! The reader runs no programs and does not call the service manager, so a hung program or service manager cannot block
//! the reader.

use super::facts::{MachineFacts, Owner, PanicSettings, Sleep, TimeDaemon};
use crate::watchdog::system_conf;
use std::path::{Path, PathBuf};

/// Default limit of chronyd, in parts per million.
const CHRONY_SLEW_PPM: f64 = 83_333.333;

/// Limit of the kernel's clock discipline, which all other daemons use, in parts per million.
const KERNEL_SLEW_PPM: u64 = 500;

/// Bit of `bootstatus` for a reset by the watchdog (`WDIOF_CARDRESET`).
const CARD_RESET_FLAG: u32 = 0x20;

/// systemd's targets for sleep.
const SLEEP_TARGETS: [&str; 4] =
    ["sleep.target", "suspend.target", "hibernate.target", "hybrid-sleep.target"];

/// Reads all facts of the machine. `previous_owner` is the owner of the watchdog device in the last reading. While this
/// process is still the owner, the descriptors of other processes are not searched.
pub fn read_machine_facts(root: &Path, previous_owner: Option<&Owner>) -> MachineFacts {
    let processes = processes(root);
    MachineFacts {
        manager: system_conf::settings(root),
        watchdog_owner: watchdog_owner(root, &processes, previous_owner),
        time_daemons: time_daemons(root, &processes),
        sleep: read_sleep(root),
        panic: PanicSettings {
            panic: number(root, "panic"),
            panic_on_oops: number(root, "panic_on_oops"),
            hung_task_panic: number(root, "hung_task_panic"),
            softlockup_panic: number(root, "softlockup_panic"),
            hardlockup_panic: number(root, "hardlockup_panic"),
        },
        crash_records: names(&root.join("sys/fs/pstore")),
        was_reset_by_watchdog: was_reset(root),
    }
}

struct Process {
    pid: u32,
    name: String,
    directory: PathBuf,
}

fn processes(root: &Path) -> Vec<Process> {
    let directory = root.join("proc");
    let mut processes_found: Vec<Process> = names(&directory)
        .into_iter()
        .filter_map(|name| {
            let pid = name.parse().ok()?;
            let directory = directory.join(name);
            let name = text(&directory.join("comm"))?;
            Some(Process { pid, name, directory })
        })
        .collect();
    processes_found.sort_by_key(|process| process.pid);
    processes_found
}

impl Process {
    fn is_owner(&self, owner: &Owner) -> bool {
        self.pid == owner.pid && self.name == owner.name
    }

    fn holds_watchdog(&self) -> bool {
        let descriptors = std::fs::read_dir(self.directory.join("fd")).into_iter().flatten().flatten();
        descriptors
            .filter_map(|entry| std::fs::read_link(entry.path()).ok())
            .any(|target| target.to_string_lossy().starts_with("/dev/watchdog"))
    }
}

/// Returns the first process that has a watchdog device open, and `ha-watchdogd` only if no other process has one.
///
/// Descriptors are searched only if sysfs and `previous_owner` do not determine the owner, because a large machine has
/// a hundred thousand of them.
fn watchdog_owner(root: &Path, processes: &[Process], previous_owner: Option<&Owner>) -> Option<Owner> {
    match active_devices(root) {
        // An open device is active, because opening starts it. If its owner has stopped the device but keeps it open,
        // the daemon reports the device as busy.
        Some(0) => return None,
        // A device has one owner. Process 1 is excluded, because the service manager only keeps a copy of the
        // descriptor, and the owner may have changed.
        Some(1) => {
            let still_owner = previous_owner.filter(|previous_owner| {
                previous_owner.pid != 1
                    && processes
                        .iter()
                        .any(|process| process.is_owner(previous_owner) && process.holds_watchdog())
            });
            if let Some(previous_owner) = still_owner {
                return Some(previous_owner.clone());
            }
        }
        Some(_) | None => {}
    }
    let mut owners: Vec<&Process> = processes.iter().filter(|process| process.holds_watchdog()).collect();
    // The service manager keeps a copy of our descriptor in its store, but does not pet the watchdog.
    let is_watchdog_daemon = |process: &Process| process.name == "ha-watchdogd";
    if owners.iter().any(|process| is_watchdog_daemon(process)) {
        owners.retain(|process| process.pid != 1);
    }
    owners.sort_by_key(|process| (is_watchdog_daemon(process), process.pid));
    owners.first().map(|process| Owner { pid: process.pid, name: process.name.clone() })
}

/// Returns the number of running watchdog devices; `None` if the kernel does not report the state of each.
fn active_devices(root: &Path) -> Option<usize> {
    let directory = root.join("sys/class/watchdog");
    let devices = names(&directory);
    let states: Vec<String> =
        devices.iter().map(|name| text(&directory.join(name).join("state"))).collect::<Option<_>>()?;
    // A device whose driver does not use the kernel's watchdog core is not listed.
    (!states.is_empty()).then(|| states.iter().filter(|state| *state != "inactive").count())
}

fn time_daemons(root: &Path, processes: &[Process]) -> Vec<TimeDaemon> {
    let daemon_of = |process: &Process| match process.name.as_str() {
        "chronyd" => Some(TimeDaemon {
            name: process.name.clone(),
            slew_ppm: chrony_slew_ppm(root),
            fix: "add maxslewrate 500 to /etc/chrony/chrony.conf, then run systemctl restart chrony",
        }),
        // The kernel cuts process names to 15 characters.
        "ntpd" | "systemd-timesyn" => {
            Some(TimeDaemon { name: process.name.clone(), slew_ppm: KERNEL_SLEW_PPM, fix: "" })
        }
        _ => None,
    };
    let mut daemons: Vec<TimeDaemon> = processes.iter().filter_map(daemon_of).collect();
    daemons.dedup_by(|left, right| left.name == right.name);
    daemons
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the range first")]
fn chrony_slew_ppm(root: &Path) -> u64 {
    let main = ["etc/chrony/chrony.conf", "etc/chrony.conf"].map(|path| root.join(path));
    let mut files: Vec<PathBuf> = main.into_iter().filter(|path| path.exists()).collect();
    let directory = root.join("etc/chrony/conf.d");
    let mut file_names = names(&directory);
    file_names.sort();
    files.extend(
        file_names
            .into_iter()
            .map(|name| directory.join(name))
            .filter(|path| path.extension().is_some_and(|extension| extension == "conf")),
    );
    let set = files.iter().filter_map(|path| text(path)).flat_map(|text| {
        let of_line = |line: &str| {
            let mut words = line.split_whitespace();
            let is_setting = words.next()?.eq_ignore_ascii_case("maxslewrate");
            words.next()?.parse::<f64>().ok().filter(|_| is_setting)
        };
        text.lines().filter_map(of_line).collect::<Vec<f64>>()
    });
    set.last().unwrap_or(CHRONY_SLEW_PPM).round().clamp(0.0, 1e6) as u64
}

fn read_sleep(root: &Path) -> Sleep {
    let states = text(&root.join("sys/power/state")).unwrap_or_default();
    let is_masked = |target: &&&str| {
        ["etc/systemd/system", "run/systemd/system"].iter().any(|directory| {
            std::fs::read_link(root.join(directory).join(target))
                .is_ok_and(|link| link == Path::new("/dev/null"))
        })
    };
    Sleep {
        states: states.split_whitespace().map(str::to_owned).collect(),
        open_targets: SLEEP_TARGETS
            .iter()
            .filter(|target| !is_masked(target))
            .map(|target| (*target).to_owned())
            .collect(),
    }
}

fn was_reset(root: &Path) -> bool {
    let directory = root.join("sys/class/watchdog");
    let status = |name: String| text(&directory.join(name).join("bootstatus"))?.parse::<u32>().ok();
    names(&directory).into_iter().filter_map(status).any(|bits| bits & CARD_RESET_FLAG != 0)
}

fn number(root: &Path, name: &str) -> Option<i64> {
    text(&root.join("proc/sys/kernel").join(name))?.parse().ok()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn text(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree(files: &[(&str, &str)], links: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let with_parent = |path: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            path
        };
        for (path, text) in files {
            std::fs::write(with_parent(path), text).unwrap();
        }
        for (path, target) in links {
            symlink(target, with_parent(path)).unwrap();
        }
        root
    }

    #[test]
    fn empty_file_system_yields_default_facts() {
        let root = tree(&[], &[]);
        let all_open = SLEEP_TARGETS.map(str::to_owned).to_vec();
        let sleep = Sleep { states: Vec::new(), open_targets: all_open };
        assert_eq!(read_machine_facts(root.path(), None), MachineFacts { sleep, ..MachineFacts::default() });
    }

    #[test]
    fn watchdog_owner_is_searched_only_if_unknown() {
        // A search finds process 1 first.
        let check = |states: &[&str], previous_owner: Option<(u32, &str)>, expected: Option<u32>| {
            let states: Vec<(String, &str)> = states
                .iter()
                .enumerate()
                .map(|(index, state)| (format!("sys/class/watchdog/watchdog{index}/state"), *state))
                .collect();
            let mut files: Vec<(&str, &str)> = vec![
                ("proc/1/comm", "systemd"),
                ("proc/7/comm", "sbd"),
                ("proc/9/comm", "wd"),
                ("proc/8/comm", "cat"),
            ];
            files.extend(states.iter().map(|(path, state)| (path.as_str(), *state)));
            let device = "/dev/watchdog0";
            let root =
                tree(&files, &[("proc/1/fd/9", device), ("proc/7/fd/3", device), ("proc/9/fd/3", device)]);
            let previous_owner = previous_owner.map(|(pid, name)| Owner { pid, name: name.to_owned() });
            let owner = read_machine_facts(root.path(), previous_owner.as_ref()).watchdog_owner;
            assert_eq!(owner.map(|owner| owner.pid), expected, "{states:?}, {previous_owner:?}");
        };
        check(&["inactive\n"], None, None);
        check(&["inactive\n"], Some((9, "wd")), None);
        check(&["active\n"], Some((9, "wd")), Some(9));
        check(&["inactive\n", "active\n"], Some((9, "wd")), Some(9));
        // The known process has closed the device, is another process with the same pid, keeps only a copy, or may not
        // be the only owner.
        check(&["active\n"], None, Some(1));
        check(&["active\n"], Some((8, "cat")), Some(1));
        check(&["active\n"], Some((9, "other")), Some(1));
        check(&["active\n"], Some((1, "systemd")), Some(1));
        check(&["active\n", "active\n"], Some((9, "wd")), Some(1));
        check(&[], Some((9, "wd")), Some(1));
    }

    #[test]
    fn watchdog_owner_is_found_by_open_descriptor() {
        let check = |holders: &[(&str, &str, &str)], expected: Option<(u32, &str)>| {
            let comm: Vec<(String, &str)> =
                holders.iter().map(|(pid, name, _)| (format!("proc/{pid}/comm"), *name)).collect();
            let descriptors: Vec<(String, &str)> =
                holders.iter().map(|(pid, _, target)| (format!("proc/{pid}/fd/5"), *target)).collect();
            let files: Vec<(&str, &str)> = comm.iter().map(|(path, text)| (path.as_str(), *text)).collect();
            let links: Vec<(&str, &str)> =
                descriptors.iter().map(|(path, target)| (path.as_str(), *target)).collect();
            let owner = read_machine_facts(tree(&files, &links).path(), None).watchdog_owner;
            assert_eq!(
                owner,
                expected.map(|(pid, name)| Owner { pid, name: name.to_owned() }),
                "{holders:?}"
            );
        };
        check(&[("9", "cat\n", "/dev/null")], None);
        check(&[("9", "sbd\n", "/dev/watchdog")], Some((9, "sbd")));
        check(&[("1", "systemd\n", "/dev/watchdog0")], Some((1, "systemd")));
        // The service manager keeps our descriptor in its store.
        let watchdog_daemon = ("80", "ha-watchdogd\n", "/dev/watchdog0");
        check(&[("1", "systemd\n", "/dev/watchdog0"), watchdog_daemon], Some((80, "ha-watchdogd")));
        check(&[watchdog_daemon, ("90", "watchdog\n", "/dev/watchdog1")], Some((90, "watchdog")));
    }

    #[test]
    fn time_daemon_and_its_limit_are_detected() {
        let check = |files: &[(&str, &str)], expected: &[(&str, u64)]| {
            let facts = read_machine_facts(tree(files, &[]).path(), None);
            let daemons: Vec<(&str, u64)> =
                facts.time_daemons.iter().map(|daemon| (daemon.name.as_str(), daemon.slew_ppm)).collect();
            assert_eq!(daemons, expected, "{files:?}");
        };
        let chrony = ("proc/44/comm", "chronyd\n");
        check(&[], &[]);
        check(&[chrony], &[("chronyd", 83_333)]);
        check(
            &[chrony, ("etc/chrony/chrony.conf", "# maxslewrate 1\npool x\nmaxslewrate 500\n")],
            &[("chronyd", 500)],
        );
        check(
            &[
                chrony,
                ("etc/chrony.conf", "maxslewrate 500"),
                ("etc/chrony/conf.d/a.conf", "MaxSlewRate 2000.4"),
                ("etc/chrony/conf.d/ignored", "maxslewrate 9"),
            ],
            &[("chronyd", 2_000)],
        );
        check(
            &[("proc/9/comm", "systemd-timesyn\n"), ("proc/10/comm", "ntpd\n")],
            &[("systemd-timesyn", 500), ("ntpd", 500)],
        );
    }

    #[test]
    fn sleep_panic_and_last_reset_are_detected() {
        let root = tree(
            &[
                ("sys/power/state", "freeze mem\n"),
                ("proc/sys/kernel/panic", "0\n"),
                ("proc/sys/kernel/panic_on_oops", "1\n"),
                ("proc/sys/kernel/hung_task_panic", "x\n"),
                ("sys/class/watchdog/watchdog0/bootstatus", "32\n"),
                ("sys/fs/pstore/dmesg-efi-1", "oops"),
            ],
            &[
                ("etc/systemd/system/sleep.target", "/dev/null"),
                ("run/systemd/system/suspend.target", "/elsewhere"),
            ],
        );
        let facts = read_machine_facts(root.path(), None);
        assert_eq!(facts.sleep.states, ["freeze", "mem"]);
        assert_eq!(facts.sleep.open_targets, SLEEP_TARGETS[1..]);
        assert_eq!(
            (facts.panic.panic, facts.panic.panic_on_oops, facts.panic.hung_task_panic),
            (Some(0), Some(1), None)
        );
        assert!(facts.was_reset_by_watchdog);
        assert_eq!(facts.crash_records, ["dmesg-efi-1"]);
    }
}
