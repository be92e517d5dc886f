//! Processes that held the stateful service, as recorded on its shared storage.
//!
//! Every process of `ha-holder` appends to its own file in the shared directory while it runs. The file is stored on
//! the host, whose kernel stamps the first and the last write, so no clock of a machine is used. At each write, the
//! process also checks that the storage still names it as the owner. If a second process has started in the meantime,
//! the first records a violation.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

use crate::wait::monotonic_ns;

/// Name of the file with the current owner.
pub const OWNER: &str = "owner";
/// Name of the file to which violations are appended.
pub const VIOLATIONS: &str = "violations";
/// Prefix of the holders' file names; node and process follow.
pub const PREFIX: &str = "holder";

/// One process that held a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageHolder {
    /// Node of the process.
    pub node: String,
    /// Identifier that is unique among the processes of all boots of the node.
    pub process: String,
    /// Time of the first write, on the host's `CLOCK_MONOTONIC`, in nanoseconds.
    pub first_ns: u64,
    /// Time of the last write, on the same clock.
    pub last_ns: u64,
}

/// The record of one service.
#[derive(Debug, Clone)]
pub struct StorageHolders {
    directory: PathBuf,
}

impl StorageHolders {
    /// Returns the record in a directory, which the service creates.
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// Returns all holders, in the order of their first writes.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn all(&self) -> Result<Vec<StorageHolder>> {
        let mut holders = Vec::new();
        if !self.directory.exists() {
            return Ok(holders);
        }
        let clocks = ClockReading::read();
        for entry in fs::read_dir(&self.directory).with_context(|| self.directory.display().to_string())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let mut parts = name.splitn(3, '.');
            let (Some(PREFIX), Some(node), Some(process)) = (parts.next(), parts.next(), parts.next()) else {
                continue;
            };
            let data = entry.metadata()?;
            holders.push(StorageHolder {
                node: node.to_owned(),
                process: process.to_owned(),
                first_ns: clocks
                    .monotonic(data.created().context("file system does not record creation times")?),
                last_ns: clocks.monotonic(data.modified()?),
            });
        }
        holders.sort_by_key(|holder| holder.first_ns);
        Ok(holders)
    }

    /// Returns a description of every pair of processes that held the service at the same time.
    ///
    /// # Errors
    /// Fails if the record cannot be read.
    pub fn violations(&self) -> Result<Vec<String>> {
        let mut violations_found: Vec<String> = overlaps(&self.all()?);
        let noticed = self.directory.join(VIOLATIONS);
        if noticed.exists() {
            violations_found.extend(fs::read_to_string(&noticed)?.lines().map(str::to_owned));
        }
        Ok(violations_found)
    }
}

/// Returns a description of every overlap. Equal times do not count, because a file's time can be early by one tick of the
/// kernel.
fn overlaps(holders: &[StorageHolder]) -> Vec<String> {
    let mut violations_found = Vec::new();
    for (index, one) in holders.iter().enumerate() {
        for other in &holders[index + 1..] {
            let from = one.first_ns.max(other.first_ns);
            let to = one.last_ns.min(other.last_ns);
            if from < to {
                let both_ms = (to - from) / 1_000_000;
                violations_found.push(format!(
                    "{} on {} and {} on {} at the same time for {both_ms} ms",
                    one.process, one.node, other.process, other.node
                ));
            }
        }
    }
    violations_found
}

/// The offset between the clock of file times and the monotonic clock of all other times.
pub(super) struct ClockReading {
    wall: SystemTime,
    monotonic_ns: u64,
}

impl ClockReading {
    pub(super) fn read() -> Self {
        Self { wall: SystemTime::now(), monotonic_ns: monotonic_ns() }
    }

    pub(super) fn monotonic(&self, wall: SystemTime) -> u64 {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        match self.wall.duration_since(wall) {
            Ok(ago) => self.monotonic_ns.saturating_sub(nanoseconds(ago)),
            Err(ahead) => self.monotonic_ns.saturating_add(nanoseconds(ahead.duration())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(node: &str, first_ns: u64, last_ns: u64) -> StorageHolder {
        StorageHolder { node: node.to_owned(), process: "p".to_owned(), first_ns, last_ns }
    }

    fn check(holders: &[StorageHolder], expected: usize) {
        assert_eq!(overlaps(holders).len(), expected, "{holders:?}");
    }

    #[test]
    fn overlapping_holder_intervals_are_found() {
        check(&[holder("a", 10, 20), holder("b", 30, 40)], 0);
        check(&[holder("a", 10, 30), holder("b", 30, 40)], 0);
        check(&[holder("a", 10, 31), holder("b", 30, 40)], 1);
        // The first holder continued after the second and the third had ended.
        check(&[holder("a", 10, 90), holder("b", 30, 40), holder("c", 50, 60)], 2);
        check(&[holder("a", 10, 20), holder("a", 15, 40)], 1);
    }

    #[test]
    fn holder_files_are_parsed_with_times() {
        let directory = tempfile::tempdir().unwrap();
        let before_ns = monotonic_ns();
        fs::write(directory.path().join("holder.node1.boot-7"), "x").unwrap();
        fs::write(directory.path().join(OWNER), "x").unwrap();
        let record = StorageHolders::new(directory.path());
        let holders = record.all().unwrap();
        assert_eq!(
            (holders.len(), holders[0].node.as_str(), holders[0].process.as_str()),
            (1, "node1", "boot-7")
        );
        // The kernel stamps files with the time of its last tick.
        assert!(
            holders[0].first_ns + 20_000_000 >= before_ns && holders[0].first_ns <= monotonic_ns(),
            "{holders:?} {before_ns}"
        );
        assert!(record.violations().unwrap().is_empty());
        fs::write(directory.path().join(VIOLATIONS), "node2 saw node1\n").unwrap();
        assert_eq!(record.violations().unwrap(), ["node2 saw node1"]);
    }
}
