//! Resource usage of a service, from the counters of its control group, as far as the kernel provides them, or from its
//! processes if there is no group.

use super::Programs;
use super::cgroup::ServiceCgroup;
use crate::core::Meter;
use crate::driver::Sample;
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::MonotonicTime;
use std::fs;
use std::path::Path;

/// Returns the resource usage of a service; `None` if it cannot be measured.
pub(in crate::driver) fn of_service(
    programs: &Programs,
    service: &ServiceDefinition,
    at: MonotonicTime,
) -> Option<Sample> {
    let search = programs.search(service);
    // The last group is the one recorded at the launch, which contains the processes.
    let of_group = search.cgroups.iter().rev().find_map(|cgroup| sample(cgroup, at));
    let supervisor = search.record.map(|record| record.supervisor);
    of_group.or_else(|| {
        let supervisor = supervisor.filter(|supervisor| supervisor.is_alive().unwrap_or(false))?;
        of_processes(Path::new("/proc"), supervisor.pid, at)
    })
}

/// Returns the resource usage of a control group; `None` if the group does not exist.
///
/// CPU time is counted in every group. Memory and disk I/O are counted only if their controllers are enabled.
/// Otherwise, memory is the anonymous memory of the processes, and disk I/O is omitted.
fn sample(cgroup: &ServiceCgroup, at: MonotonicTime) -> Option<Sample> {
    of_group(&cgroup.counters(), || cgroup.members().ok(), at)
}

/// Returns the usage of any v2 group, as [`sample`] does; `members` returns the processes of the group.
pub(in crate::driver) fn of_group(
    directory: &Path,
    members: impl FnOnce() -> Option<Vec<i32>>,
    at: MonotonicTime,
) -> Option<Sample> {
    let cpu = field(&fs::read_to_string(directory.join("cpu.stat")).ok()?, "usage_usec")?;
    let own_memory =
        || Some(members()?.into_iter().filter_map(|pid| anonymous_memory(Path::new("/proc"), pid)).sum());
    Some(Sample {
        at,
        cpu: Some(Meter::Total(cpu)),
        memory: working_set(directory).or_else(own_memory),
        disk: fs::read_to_string(directory.join("io.stat")).ok().map(|text| Meter::Total(disk_bytes(&text))),
        // The kernel does not count network traffic of a control group.
        network: None,
    })
}

/// Duration of a tick in `/proc/PID/stat`, in microseconds: Linux uses 100 ticks per second on all architectures.
const TICK_US: u64 = 10_000;

/// Returns the resource usage of a supervisor's descendants, for machines without control groups.
///
/// Returns `None` if there are no descendants, or if the kernel does not list children (`CONFIG_PROC_CHILDREN`).
/// Orphaned processes become children of the supervisor, so they are included. The CPU time of an ended process is
/// added to that of its parent. If the sum still decreases, it counts as a counter that was reset.
fn of_processes(proc: &Path, supervisor: i32, at: MonotonicTime) -> Option<Sample> {
    let mut pids = children(proc, supervisor)?;
    let (mut ticks, mut memory) = (cpu_ticks(proc, supervisor)?.1, 0);
    let mut next_index = 0;
    while let Some(pid) = pids.get(next_index).copied() {
        next_index += 1;
        pids.extend(children(proc, pid).unwrap_or_default());
        ticks += cpu_ticks(proc, pid).map_or(0, |(process_ticks, child_ticks)| process_ticks + child_ticks);
        memory += anonymous_memory(proc, pid).unwrap_or(0);
    }
    (!pids.is_empty()).then_some(Sample {
        at,
        cpu: Some(Meter::Total(ticks * TICK_US)),
        memory: Some(memory),
        disk: None,
        network: None,
    })
}

/// Returns the children of all threads of a process.
fn children(proc: &Path, pid: i32) -> Option<Vec<i32>> {
    let mut pids = Vec::new();
    for task in fs::read_dir(proc.join(pid.to_string()).join("task")).ok()? {
        let text = fs::read_to_string(task.ok()?.path().join("children")).ok()?;
        pids.extend(text.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    Some(pids)
}

/// Returns the CPU time in ticks of the process, and of its children that have ended.
fn cpu_ticks(proc: &Path, pid: i32) -> Option<(u64, u64)> {
    let text = fs::read(proc.join(pid.to_string()).join("stat")).ok()?;
    // The name in brackets may contain any character, so the numbers are read after the last bracket.
    let text = String::from_utf8_lossy(&text).into_owned();
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    // Field 14 of the file is the twelfth after the name.
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some((number(11)? + number(12)?, number(13)? + number(14)?))
}

/// Returns the number of a line `name number`.
fn field(text: &str, name: &str) -> Option<u64> {
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
    text.lines().find_map(value)
}

/// Returns the memory without inactive caches, which the kernel reclaims first.
fn working_set(directory: &Path) -> Option<u64> {
    let current: u64 = fs::read_to_string(directory.join("memory.current")).ok()?.trim().parse().ok()?;
    let stat = fs::read_to_string(directory.join("memory.stat")).unwrap_or_default();
    Some(current.saturating_sub(field(&stat, "inactive_file").unwrap_or(0)))
}

/// Returns the anonymous and shared memory of a process in bytes.
fn anonymous_memory(proc: &Path, pid: i32) -> Option<u64> {
    let status = fs::read_to_string(proc.join(pid.to_string()).join("status")).ok()?;
    let kibibytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some((kibibytes("RssAnon:")? + kibibytes("RssShmem:").unwrap_or(0)) * 1024)
}

/// Returns the bytes read and written on all devices. I/O on a stacked device is also counted on the device below.
fn disk_bytes(text: &str) -> u64 {
    let bytes = |line: &str| {
        let pairs = line.split_whitespace().filter_map(|word| word.split_once('='));
        pairs
            .filter(|(name, _)| *name == "rbytes" || *name == "wbytes")
            .filter_map(|(_, value)| value.parse::<u64>().ok())
            .sum::<u64>()
    };
    text.lines().map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks a directory with these files. It is not a real control group, so it has no members.
    fn check(files: &[(&str, &str)], expected: Option<Sample>) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let cgroup = ServiceCgroup::at(directory.path().to_owned());
        fs::create_dir_all(cgroup.counters()).expect("made");
        for (name, text) in files {
            fs::write(cgroup.counters().join(name), text).expect("written");
        }
        assert_eq!(sample(&cgroup, MonotonicTime(5)), expected, "{files:?}");
    }

    #[test]
    fn control_group_counters_are_parsed() {
        check(&[], None);
        let cpu = ("cpu.stat", "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n");
        let cpu_only =
            Sample { at: MonotonicTime(5), cpu: Some(Meter::Total(1_500_000)), ..Sample::default() };
        check(&[cpu, ("cgroup.procs", "")], Some(Sample { memory: Some(0), ..cpu_only }));
        let memory = ("memory.current", "5000000\n");
        check(&[cpu, memory], Some(Sample { memory: Some(5_000_000), ..cpu_only }));
        let stat = ("memory.stat", "anon 10\ninactive_file_x 7\ninactive_file 1000000\n");
        check(&[cpu, memory, stat], Some(Sample { memory: Some(4_000_000), ..cpu_only }));
        let io =
            ("io.stat", "8:0 rbytes=100 wbytes=20 rios=1 wios=1 dbytes=7 dios=0\n8:16 rbytes=3 wbytes=0\n");
        let complete_sample = Sample { memory: Some(5_000_000), disk: Some(Meter::Total(123)), ..cpu_only };
        check(&[cpu, memory, io], Some(complete_sample));
        check(&[("cpu.stat", "user_usec 1\n")], None);
    }

    #[test]
    fn usage_without_control_group_sums_processes() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let process = |pid: i32, threads: &[(i32, &str)], stat: &str, status: &str| {
            let path = directory.path().join(pid.to_string());
            for (thread, children) in threads {
                let task = path.join("task").join(thread.to_string());
                fs::create_dir_all(&task).expect("made");
                fs::write(task.join("children"), children).expect("written");
            }
            fs::write(path.join("stat"), stat).expect("written");
            fs::write(path.join("status"), status).expect("written");
        };
        let read = || of_processes(directory.path(), 10, MonotonicTime(5));
        assert_eq!(read(), None);
        let stat = |name: &str, cpu_ticks: &str| {
            format!("1 ({name}) S 1 1 1 0 -1 0 0 0 0 0 {cpu_ticks} 20 0 1 0 9 9 9\n")
        };
        process(10, &[(10, "")], &stat("shim", "1000 1000 3 4"), "RssAnon: 900 kB\n");
        assert_eq!(read(), None, "the service has ended");
        process(10, &[(10, "20 ")], &stat("shim", "1000 1000 3 4"), "RssAnon: 900 kB\n");
        process(
            20,
            &[(20, ""), (21, "30 31 ")],
            &stat("a) b (c", "10 20 1 2"),
            "RssAnon: 100 kB\nRssShmem: 1 kB\n",
        );
        process(30, &[(30, "")], &stat("worker", "100 200 0 0"), "RssAnon: 10 kB\n");
        // Process 31 has ended in the meantime: it is not counted, but the others are.
        let expected = Sample {
            at: MonotonicTime(5),
            cpu: Some(Meter::Total(340 * TICK_US)),
            memory: Some(111 * 1024),
            ..Sample::default()
        };
        assert_eq!(read(), Some(expected));
    }

    #[test]
    fn process_memory_is_parsed() {
        let pid = i32::try_from(std::process::id()).expect("a pid");
        assert!(anonymous_memory(Path::new("/proc"), pid).is_some_and(|bytes| bytes > 0));
        assert_eq!(anonymous_memory(Path::new("/proc"), -1), None);
    }
}
