//! Resource limits of a container, and its usage.

use super::processes::group_of;
use crate::core::Meter;
use crate::driver::Sample;
use crate::driver::program::measure;
use crate::driver::systemd::group::CgroupHierarchies;
use ha_api_types::driver::Limits;
use ha_api_types::time::MonotonicTime;
use std::fs;
use std::path::Path;

/// Period of the CPU limit, in microseconds.
const PERIOD_US: i128 = 100_000;

/// Returns the settings of LXC for these limits, with a pure cgroup v2 hierarchy or with v1 hierarchies.
pub(super) fn settings(limits: &Limits, is_v2: bool) -> Vec<String> {
    let mut arguments = Vec::new();
    if let Some(memory) = limits.memory {
        let key = if is_v2 { "lxc.cgroup2.memory.max" } else { "lxc.cgroup.memory.limit_in_bytes" };
        arguments.push(format!("{key}={}", memory.units()));
    }
    if let Some(cpu) = limits.cpu {
        let quota = cpu.milli() * PERIOD_US / 1000;
        if is_v2 {
            arguments.push(format!("lxc.cgroup2.cpu.max={quota} {PERIOD_US}"));
        } else {
            arguments.push(format!("lxc.cgroup.cpu.cfs_period_us={PERIOD_US}"));
            arguments.push(format!("lxc.cgroup.cpu.cfs_quota_us={quota}"));
        }
    }
    if let Some(tasks) = limits.tasks {
        let key = if is_v2 { "lxc.cgroup2.pids.max" } else { "lxc.cgroup.pids.max" };
        arguments.push(format!("{key}={tasks}"));
    }
    arguments
}

/// Returns `true` if this machine has only a cgroup v2 hierarchy.
pub(super) fn is_v2() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

/// Returns the usage of a container, by the pid of its first process.
pub(super) fn usage(groups: &CgroupHierarchies, init: i32, at: MonotonicTime) -> Option<Sample> {
    let group = group_of(init)?;
    let directory = groups.usage_directory(&group)?;
    let mut sample = measure::of_group(&directory, || groups.members(&group).ok(), at)?;
    // With the network of the node, the counters would be those of the whole node.
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let init = init.to_string();
    if namespace(&init)
        .is_some_and(|container_namespace| namespace("self").is_some_and(|node| node != container_namespace))
    {
        sample.network =
            fs::read_to_string(format!("/proc/{init}/net/dev")).ok().map(|text| Meter::Total(bytes(&text)));
    }
    Some(sample)
}

/// Returns the bytes received and sent on all interfaces except loopback, from the content of `/proc/net/dev`.
fn bytes(text: &str) -> u64 {
    let of_line = |line: &str| {
        let (interface, numbers) = line.split_once(':')?;
        let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        (interface.trim() != "lo").then_some(numbers.first()? + numbers.get(8)?)
    };
    text.lines().filter_map(of_line).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn limits_become_lxc_settings() {
        let check = |limits: Value, is_v2: bool, expected: &[&str]| {
            let limits: Limits = serde_json::from_value(limits).unwrap();
            assert_eq!(settings(&limits, is_v2), expected, "{limits:?}");
        };
        check(json!({}), true, &[]);
        let all_limits = json!({"cpu": "1500m", "memory": "64Mi", "tasks": 50});
        check(
            all_limits.clone(),
            true,
            &[
                "lxc.cgroup2.memory.max=67108864",
                "lxc.cgroup2.cpu.max=150000 100000",
                "lxc.cgroup2.pids.max=50",
            ],
        );
        check(
            all_limits,
            false,
            &[
                "lxc.cgroup.memory.limit_in_bytes=67108864",
                "lxc.cgroup.cpu.cfs_period_us=100000",
                "lxc.cgroup.cpu.cfs_quota_us=150000",
                "lxc.cgroup.pids.max=50",
            ],
        );
    }

    #[test]
    fn network_bytes_of_all_interfaces_are_summed() {
        let text = "Inter-|   Receive                |  Transmit\n \
                    face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets\n    \
                    lo:     100       1    0    0    0     0          0         0      100       1 0 0 0 0 0 0\n  \
                    eth0:    1000       9    0    0    0     0          0         0       50       9 0 0 0 0 0 0\n  \
                    eth1: 3 9 0 0 0 0 0 0 4 9 0 0 0 0 0 0\n";
        assert_eq!(bytes(text), 1057);
        assert_eq!(bytes(""), 0);
    }
}
