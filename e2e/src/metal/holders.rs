//! Who held the stateful service, as its shared storage recorded it.
//!
//! Every process of `ha-holder` appends to a file of its own in the shared folder for as long as it runs. That file lies on the
//! host, whose kernel stamps its first and its last write; no clock of a machine is asked. Each process also checks at every
//! write that the storage still names it as the owner: a second one that has started meanwhile is recorded as a violation.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

use crate::wait::monotonic_ns;

/// The file that names the present owner.
pub const OWNER: &str = "owner";
/// What the violations are appended to.
pub const VIOLATIONS: &str = "violations";
/// What files of holders begin with; node and process follow.
pub const PREFIX: &str = "holder";

/// One process that held a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its node.
    pub node: String,
    /// Distinguishes it from every other process on that node, also of other boots.
    pub process: String,
    /// Its first write, on the host's `CLOCK_MONOTONIC`.
    pub first_ns: u64,
    /// Its last write.
    pub last_ns: u64,
}

/// The record of one service.
#[derive(Debug, Clone)]
pub struct Holders {
    folder: PathBuf,
}

impl Holders {
    /// The record in a folder, which the service makes.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// All of them, in the order of their first writes.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn all(&self) -> Result<Vec<Holder>> {
        let mut found = Vec::new();
        if !self.folder.exists() {
            return Ok(found);
        }
        let clocks = Clocks::read();
        for entry in fs::read_dir(&self.folder).with_context(|| self.folder.display().to_string())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let mut parts = name.splitn(3, '.');
            let (Some(PREFIX), Some(node), Some(process)) = (parts.next(), parts.next(), parts.next()) else {
                continue;
            };
            let data = entry.metadata()?;
            found.push(Holder {
                node: node.to_owned(),
                process: process.to_owned(),
                first_ns: clocks
                    .monotonic(data.created().context("this file system keeps no time of creation")?),
                last_ns: clocks.monotonic(data.modified()?),
            });
        }
        found.sort_by_key(|holder| holder.first_ns);
        Ok(found)
    }

    /// Every pair that held the service at the same time, in words.
    ///
    /// # Errors
    /// When the record cannot be read.
    pub fn violations(&self) -> Result<Vec<String>> {
        let mut found: Vec<String> = overlaps(&self.all()?);
        let noticed = self.folder.join(VIOLATIONS);
        if noticed.exists() {
            found.extend(fs::read_to_string(&noticed)?.lines().map(str::to_owned));
        }
        Ok(found)
    }
}

/// Two times that are the same: a file's may be as much too early as the kernel's tick is long, so they prove nothing.
fn overlaps(holders: &[Holder]) -> Vec<String> {
    let mut found = Vec::new();
    for (index, one) in holders.iter().enumerate() {
        for other in &holders[index + 1..] {
            let from = one.first_ns.max(other.first_ns);
            let to = one.last_ns.min(other.last_ns);
            if from < to {
                let both_ms = (to - from) / 1_000_000;
                found.push(format!(
                    "{} on {} and {} on {} at once for {both_ms} ms",
                    one.process, one.node, other.process, other.node
                ));
            }
        }
    }
    found
}

/// The offset between the clock that files are stamped with and the one that everything else is measured on.
pub(super) struct Clocks {
    wall: SystemTime,
    monotonic_ns: u64,
}

impl Clocks {
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

    fn holder(node: &str, first_ns: u64, last_ns: u64) -> Holder {
        Holder { node: node.to_owned(), process: "p".to_owned(), first_ns, last_ns }
    }

    fn check(holders: &[Holder], expected: usize) {
        assert_eq!(overlaps(holders).len(), expected, "{holders:?}");
    }

    #[test]
    fn two_at_once_are_found() {
        check(&[holder("a", 10, 20), holder("b", 30, 40)], 0);
        check(&[holder("a", 10, 30), holder("b", 30, 40)], 0);
        check(&[holder("a", 10, 31), holder("b", 30, 40)], 1);
        // One that began first, and went on after the other was gone again.
        check(&[holder("a", 10, 90), holder("b", 30, 40), holder("c", 50, 60)], 2);
        check(&[holder("a", 10, 20), holder("a", 15, 40)], 1);
    }

    #[test]
    fn files_are_read_with_their_times() {
        let folder = tempfile::tempdir().unwrap();
        let before = monotonic_ns();
        fs::write(folder.path().join("holder.node1.boot-7"), "x").unwrap();
        fs::write(folder.path().join(OWNER), "x").unwrap();
        let record = Holders::new(folder.path());
        let all = record.all().unwrap();
        assert_eq!((all.len(), all[0].node.as_str(), all[0].process.as_str()), (1, "node1", "boot-7"));
        // The kernel stamps files with the time of its last tick.
        assert!(
            all[0].first_ns + 20_000_000 >= before && all[0].first_ns <= monotonic_ns(),
            "{all:?} {before}"
        );
        assert!(record.violations().unwrap().is_empty());
        fs::write(folder.path().join(VIOLATIONS), "node2 saw node1\n").unwrap();
        assert_eq!(record.violations().unwrap(), ["node2 saw node1"]);
    }
}
