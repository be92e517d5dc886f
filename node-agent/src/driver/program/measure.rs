//! What a service uses, read from the counters of its control group, as far as the kernel keeps them; without a group, of its
//! processes.

use super::Programs;
use super::cgroup::ServiceCgroup;
use crate::core::Meter;
use crate::driver::Sample;
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::Mono;
use std::fs;
use std::path::Path;

/// What a service uses; `None`: it cannot be told.
pub(in crate::driver) fn of_service(
    programs: &Programs,
    service: &ServiceDefinition,
    at: Mono,
) -> Option<Sample> {
    let search = programs.search(service);
    // The group that was recorded at the launch comes last, and is the one that it is in.
    let of_group = search.cgroups.iter().rev().find_map(|cgroup| sample(cgroup, at));
    let supervisor = search.record.map(|record| record.supervisor);
    of_group.or_else(|| {
        let supervisor = supervisor.filter(|supervisor| supervisor.is_alive().unwrap_or(false))?;
        of_processes(Path::new("/proc"), supervisor.pid, at)
    })
}

/// What the processes in a control group use; `None`: the group does not exist.
///
/// Processor time is counted in every group. Memory and disks are counted only where the controllers are switched on for it;
/// without, memory is what its processes have for themselves, and disks are left out.
fn sample(cgroup: &ServiceCgroup, at: Mono) -> Option<Sample> {
    of_group(&cgroup.counters(), || cgroup.members().ok(), at)
}

/// As [`sample`], of any group of version 2; `members`: the processes in it.
pub(in crate::driver) fn of_group(
    folder: &Path,
    members: impl FnOnce() -> Option<Vec<i32>>,
    at: Mono,
) -> Option<Sample> {
    let cpu = field(&fs::read_to_string(folder.join("cpu.stat")).ok()?, "usage_usec")?;
    let own_memory =
        || Some(members()?.into_iter().filter_map(|pid| anonymous(Path::new("/proc"), pid)).sum());
    Some(Sample {
        at,
        cpu: Some(Meter::Total(cpu)),
        memory: working_set(folder).or_else(own_memory),
        disk: fs::read_to_string(folder.join("io.stat")).ok().map(|text| Meter::Total(disk_bytes(&text))),
        // The kernel counts no packets of a control group.
        network: None,
    })
}

/// `/proc/PID/stat` counts in hundredths of a second on every architecture that has Linux.
const TICK_US: u64 = 10_000;

/// What the processes use that a supervisor has begotten, where the agent may make no groups; `None`: there are none, or this
/// kernel does not tell children (`CONFIG_PROC_CHILDREN`).
///
/// Those who lose their parents become the supervisor's children, so none is missed. The time of one that has ended is its
/// parent's; should the sum fall nevertheless, it is taken for a counter that starts anew.
fn of_processes(proc: &Path, supervisor: i32, at: Mono) -> Option<Sample> {
    let mut pids = children(proc, supervisor)?;
    let (mut ticks, mut memory) = (times(proc, supervisor)?.1, 0);
    let mut next = 0;
    while let Some(pid) = pids.get(next).copied() {
        next += 1;
        pids.extend(children(proc, pid).unwrap_or_default());
        ticks += times(proc, pid).map_or(0, |(own, ended)| own + ended);
        memory += anonymous(proc, pid).unwrap_or(0);
    }
    (!pids.is_empty()).then_some(Sample {
        at,
        cpu: Some(Meter::Total(ticks * TICK_US)),
        memory: Some(memory),
        disk: None,
        network: None,
    })
}

/// The children of all threads of a process.
fn children(proc: &Path, pid: i32) -> Option<Vec<i32>> {
    let mut found = Vec::new();
    for task in fs::read_dir(proc.join(pid.to_string()).join("task")).ok()? {
        let text = fs::read_to_string(task.ok()?.path().join("children")).ok()?;
        found.extend(text.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
    }
    Some(found)
}

/// Ticks on processors: its own, and those of its children that have ended.
fn times(proc: &Path, pid: i32) -> Option<(u64, u64)> {
    let text = fs::read(proc.join(pid.to_string()).join("stat")).ok()?;
    // The program's name may hold anything, also brackets and blanks: the numbers come after the last bracket.
    let text = String::from_utf8_lossy(&text).into_owned();
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    // Field 14 of the file is the twelfth after the name.
    let at = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some((at(11)? + at(12)?, at(13)? + at(14)?))
}

/// What a line of the form `name number` says.
fn field(text: &str, name: &str) -> Option<u64> {
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
    text.lines().find_map(value)
}

/// Memory without the caches that have not been used lately: those are given up when another needs the room.
fn working_set(folder: &Path) -> Option<u64> {
    let current: u64 = fs::read_to_string(folder.join("memory.current")).ok()?.trim().parse().ok()?;
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    Some(current.saturating_sub(field(&stat, "inactive_file").unwrap_or(0)))
}

/// What a process has in memory that is no copy of a file.
fn anonymous(proc: &Path, pid: i32) -> Option<u64> {
    let status = fs::read_to_string(proc.join(pid.to_string()).join("status")).ok()?;
    let kibibytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some((kibibytes("RssAnon:")? + kibibytes("RssShmem:").unwrap_or(0)) * 1024)
}

/// Bytes read and written over all devices; one that lies on another is counted with it.
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

    /// A control group with these files; as in one that is no real group, nobody can be its member.
    fn check(files: &[(&str, &str)], expected: Option<Sample>) {
        let folder = tempfile::tempdir().expect("a folder");
        let cgroup = ServiceCgroup::at(folder.path().to_owned());
        fs::create_dir_all(cgroup.counters()).expect("made");
        for (name, text) in files {
            fs::write(cgroup.counters().join(name), text).expect("written");
        }
        assert_eq!(sample(&cgroup, Mono(5)), expected, "{files:?}");
    }

    #[test]
    fn what_the_kernel_counts_is_read() {
        check(&[], None);
        let cpu = ("cpu.stat", "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n");
        let least = Sample { at: Mono(5), cpu: Some(Meter::Total(1_500_000)), ..Sample::default() };
        check(&[cpu, ("cgroup.procs", "")], Some(Sample { memory: Some(0), ..least }));
        let memory = ("memory.current", "5000000\n");
        check(&[cpu, memory], Some(Sample { memory: Some(5_000_000), ..least }));
        let stat = ("memory.stat", "anon 10\ninactive_file_x 7\ninactive_file 1000000\n");
        check(&[cpu, memory, stat], Some(Sample { memory: Some(4_000_000), ..least }));
        let io =
            ("io.stat", "8:0 rbytes=100 wbytes=20 rios=1 wios=1 dbytes=7 dios=0\n8:16 rbytes=3 wbytes=0\n");
        let all = Sample { memory: Some(5_000_000), disk: Some(Meter::Total(123)), ..least };
        check(&[cpu, memory, io], Some(all));
        check(&[("cpu.stat", "user_usec 1\n")], None);
    }

    #[test]
    fn without_a_group_processes_are_added_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let process = |pid: i32, threads: &[(i32, &str)], stat: &str, status: &str| {
            let path = folder.path().join(pid.to_string());
            for (thread, children) in threads {
                let task = path.join("task").join(thread.to_string());
                fs::create_dir_all(&task).expect("made");
                fs::write(task.join("children"), children).expect("written");
            }
            fs::write(path.join("stat"), stat).expect("written");
            fs::write(path.join("status"), status).expect("written");
        };
        let read = || of_processes(folder.path(), 10, Mono(5));
        assert_eq!(read(), None);
        let stat =
            |name: &str, times: &str| format!("1 ({name}) S 1 1 1 0 -1 0 0 0 0 0 {times} 20 0 1 0 9 9 9\n");
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
        // 31 has ended since: it is not counted, and nothing else is held up by it.
        let expected = Sample {
            at: Mono(5),
            cpu: Some(Meter::Total(340 * TICK_US)),
            memory: Some(111 * 1024),
            ..Sample::default()
        };
        assert_eq!(read(), Some(expected));
    }

    #[test]
    fn a_processs_own_memory_is_read() {
        let pid = i32::try_from(std::process::id()).expect("a pid");
        assert!(anonymous(Path::new("/proc"), pid).is_some_and(|bytes| bytes > 0));
        assert_eq!(anonymous(Path::new("/proc"), -1), None);
    }
}
