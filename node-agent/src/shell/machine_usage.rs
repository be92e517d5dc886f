//! Usage of the whole machine, read below a root directory: `/`, or an artificial tree in a test.

use crate::core::{Meter, Sample};
use ha_api_types::time::MonotonicTime;
use std::fs;
use std::path::Path;

/// Unit of `/proc/stat`: hundredths of a second on every architecture of Linux, in microseconds.
const TICK_US: u64 = 10_000;
/// Unit of `/proc/diskstats`: sectors of this size, independent of the disk's own size, bytes.
const SECTOR_BYTES: u64 = 512;
/// Name prefixes of devices that are not disks, or that are layered on disks and would be counted twice.
const EXCLUDED_DEVICE_PREFIXES: [&str; 7] = ["loop", "ram", "dm-", "md", "zram", "sr", "fd"];

/// Returns the usage at the current time `at`; `None` if no figure could be read.
pub(super) fn sample(root: &Path, at: MonotonicTime) -> Option<Sample> {
    let text = |path: &str| fs::read_to_string(root.join(path)).ok();
    let sample = Sample {
        at,
        cpu: text("proc/stat").and_then(|text| busy_us(&text)).map(Meter::Total),
        memory: text("proc/meminfo").and_then(|text| memory_bytes(&text)),
        disk: text("proc/diskstats").map(|text| Meter::Total(disk_bytes(root, &text))),
        network: text("proc/net/dev").map(|text| Meter::Total(network_bytes(root, &text))),
    };
    (sample != Sample { at, ..Sample::default() }).then_some(sample)
}

/// Returns the busy time of all processors, microseconds. The sum includes stolen time, because services cannot use
/// that time either.
fn busy_us(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // The fields are user nice system idle iowait irq softirq steal; user already includes guest time.
    let tick_count = |index: usize| ticks.get(index).copied().unwrap_or(0);
    (ticks.len() >= 4).then(|| {
        (tick_count(0) + tick_count(1) + tick_count(2) + tick_count(5) + tick_count(6) + tick_count(7))
            * TICK_US
    })
}

/// Returns the memory that is not available to a new process, bytes.
fn memory_bytes(meminfo: &str) -> Option<u64> {
    let kibibytes = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some(kibibytes("MemTotal:")?.saturating_sub(kibibytes("MemAvailable:")?) * 1024)
}

/// Returns the bytes read from and written to disks.
fn disk_bytes(root: &Path, diskstats: &str) -> u64 {
    let bytes = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let name = fields.get(2)?;
        // Partitions are not listed in /sys/block.
        let is_whole_disk = root.join("sys/block").join(name).exists();
        if !is_whole_disk || EXCLUDED_DEVICE_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            return None;
        }
        let sectors = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some((sectors(5)? + sectors(9)?) * SECTOR_BYTES)
    };
    diskstats.lines().filter_map(bytes).sum()
}

/// Returns the bytes that network cards received and sent. Without cards (in a network namespace), counts every
/// interface except loopback.
fn network_bytes(root: &Path, dev: &str) -> u64 {
    let lines = dev.lines().filter_map(|line| {
        let (name, counters) = line.trim().split_once(':')?;
        let counters: Vec<u64> = counters.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        Some((name, counters.first()? + counters.get(8)?))
    });
    let interfaces: Vec<(&str, u64)> = lines.filter(|(name, _)| *name != "lo").collect();
    let is_card = |name: &str| root.join("sys/class/net").join(name).join("device").exists();
    let cards: Vec<u64> =
        interfaces.iter().filter(|(name, _)| is_card(name)).map(|(_, bytes)| *bytes).collect();
    if cards.is_empty() { interfaces.iter().map(|(_, bytes)| bytes).sum() } else { cards.iter().sum() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_usage_is_parsed_from_proc() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, text).expect("written");
        };
        let at = MonotonicTime(7);
        assert_eq!(sample(root.path(), at), None);
        write("proc/stat", "cpu  100 20 30 4000 500 6 7 8 90 0\ncpu0 1 1 1 1\n");
        write("proc/meminfo", "MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:  400 kB\n");
        write(
            "proc/diskstats",
            " 8 0 sda 1 0 10 0 1 0 20 0 0 0 0\n 8 1 sda1 1 0 9 0 1 0 19 0 0 0 0\n 7 0 loop0 1 0 5 0 1 0 5 0 0 0 0\n",
        );
        write("sys/block/sda/size", "");
        write("sys/block/loop0/size", "");
        write(
            "proc/net/dev",
            "Inter-|   Receive\n face |bytes packets\n    lo: 5 0 0 0 0 0 0 0 5 0\n  eth0: 100 1 0 0 0 0 0 0 200 1\n br0: 100 1 0 0 0 0 0 0 200 1\n",
        );
        let expected = Sample {
            at,
            cpu: Some(Meter::Total(171 * 10_000)),
            memory: Some(600 * 1024),
            disk: Some(Meter::Total(30 * 512)),
            network: Some(Meter::Total(600)),
        };
        assert_eq!(sample(root.path(), at), Some(expected));
        // Traffic of a bridge on a card is already counted for the card.
        write("sys/class/net/eth0/device/uevent", "");
        assert_eq!(sample(root.path(), at).and_then(|sample| sample.network), Some(Meter::Total(300)));
    }

    #[test]
    fn usage_of_this_machine_is_readable() {
        let read = sample(Path::new("/"), MonotonicTime(1)).expect("Linux");
        assert!(read.cpu.is_some() && read.memory.is_some_and(|bytes| bytes > 0), "{read:?}");
    }
}
