//! Output of the guest's consoles on all nodes, and the check that the guest never ran on two nodes.
//!
//! Each line of the guest contains an identifier of its boot and a counter. After a migration, the counter continues on another
//! node's console. A guest that runs twice shows the same count on two nodes. A guest that starts again too early shows two boots
//! in turns.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::background::BackgroundThread;
use crate::wait::{monotonic_ns, wait_for};

/// Time between two reads of the consoles.
const READ_INTERVAL: Duration = Duration::from_millis(50);
/// Longest time for a guest to boot or to continue. Emulated guests on a busy host are slow.
const STEP_TIMEOUT: Duration = Duration::from_secs(120);

/// A line that a guest wrote to its console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestLine {
    /// Time of the read on `CLOCK_MONOTONIC`, in nanoseconds.
    pub at_ns: u64,
    /// Node on which the guest wrote the line.
    pub node: String,
    /// Identifier of the guest's boot.
    pub boot: String,
    /// Counter of the guest.
    pub count: u64,
}

/// A reader of all consoles in the background.
pub struct Consoles {
    shared: Arc<Mutex<Vec<GuestLine>>>,
    background: BackgroundThread,
}

impl Consoles {
    /// Starts to read. The files need not exist yet.
    pub fn start_reading(files: Vec<(String, PathBuf)>) -> Self {
        let shared: Arc<Mutex<Vec<GuestLine>>> = Arc::default();
        let background = BackgroundThread::start({
            let shared = Arc::clone(&shared);
            move |stop| {
                let mut read = vec![0; files.len()];
                while !stop.is_requested() {
                    // All files are read together: lines of one round have no order among the nodes.
                    let texts: Vec<String> = files
                        .iter()
                        .map(|(_, path)| fs::read(path).map(lossy_text).unwrap_or_default())
                        .collect();
                    let at_ns = monotonic_ns();
                    for (index, text) in texts.iter().enumerate() {
                        let complete_length =
                            text.rfind('\n').map_or(0, |complete_length| complete_length + 1);
                        let new = text.get(read[index]..complete_length).unwrap_or_default();
                        let lines = new.lines().filter_map(|line| parse(line, &files[index].0, at_ns));
                        locked(&shared).extend(lines);
                        read[index] = complete_length.max(read[index]);
                    }
                    thread::sleep(READ_INTERVAL);
                }
            }
        });
        Self { shared, background }
    }

    /// Returns the last line of any guest.
    pub fn last_line(&self) -> Option<GuestLine> {
        locked(&self.shared).last().cloned()
    }

    /// Waits for a new line of a guest that matches.
    ///
    /// # Errors
    /// Fails if no line matches in time. The error contains the last line.
    pub fn wait_for_line(
        &self,
        expectation: &str,
        matches: impl Fn(&GuestLine) -> bool,
    ) -> Result<GuestLine> {
        let from = locked(&self.shared).len();
        let matching_line = wait_for(&format!("the guest: {expectation}"), STEP_TIMEOUT, || {
            locked(&self.shared).iter().skip(from).find(|line| matches(line)).cloned()
        });
        matching_line
            .map_err(|error| error.context(format!("last line of the guest: {:?}", self.last_line())))
    }

    /// Stops reading and checks all lines.
    ///
    /// # Errors
    /// Fails if a guest ever ran on two nodes.
    pub fn finish(mut self) -> Result<()> {
        self.background.end();
        let lines = locked(&self.shared).clone();
        match find_double_run(&lines) {
            Some(problem) => bail!("the guest ran twice: {problem}"),
            None => Ok(()),
        }
    }
}

fn locked(shared: &Mutex<Vec<GuestLine>>) -> MutexGuard<'_, Vec<GuestLine>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lossy_text(bytes: Vec<u8>) -> String {
    // One character for each byte, so that positions in the file do not change.
    bytes.into_iter().map(|byte| if byte.is_ascii() { char::from(byte) } else { '?' }).collect()
}

/// Parses `boot 1a2b3c4d count 17`. Returns `None` for any other line, such as one that a migration cut.
fn parse(line: &str, node: &str, at_ns: u64) -> Option<GuestLine> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["boot", boot, "count", count] if boot.len() == 8 => {
            let count = count.parse().ok()?;
            Some(GuestLine { at_ns, node: node.to_owned(), boot: (*boot).to_owned(), count })
        }
        _ => None,
    }
}

/// Describes how a guest ran twice; `None` if it did not.
fn find_double_run(lines: &[GuestLine]) -> Option<String> {
    let mut nodes: BTreeMap<(&str, u64), BTreeSet<&str>> = BTreeMap::new();
    for line in lines {
        nodes.entry((&line.boot, line.count)).or_default().insert(&line.node);
    }
    if let Some(((boot, count), nodes)) = nodes.iter().find(|(_, nodes)| nodes.len() > 1) {
        return Some(format!("boot {boot} wrote {count} on {nodes:?}"));
    }
    // A guest may migrate back to an earlier node in the same boot. Once another boot has written, the earlier boot
    // must not write again.
    let mut ended_boots: BTreeSet<&str> = BTreeSet::new();
    let mut current_line: Option<&GuestLine> = None;
    for line in lines {
        if ended_boots.contains(line.boot.as_str()) {
            return Some(format!("{line:?} after {current_line:?}"));
        }
        ended_boots.extend(
            current_line.map(|previous_line| previous_line.boot.as_str()).filter(|boot| *boot != line.boot),
        );
        current_line = Some(line);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &[(&str, &str, u64)], expected: bool) {
        let lines: Vec<GuestLine> = lines
            .iter()
            .map(|(node, boot, count)| GuestLine {
                at_ns: 0,
                node: (*node).to_owned(),
                boot: (*boot).to_owned(),
                count: *count,
            })
            .collect();
        assert_eq!(find_double_run(&lines).is_some(), expected, "{lines:?}: {:?}", find_double_run(&lines));
    }

    #[test]
    fn migrations_and_double_runs_are_distinguished() {
        check(&[("n1", "a", 1), ("n1", "a", 2), ("n2", "a", 3), ("n1", "b", 1)], false);
        check(&[("n1", "a", 1), ("n2", "a", 2), ("n1", "a", 3), ("n2", "b", 1), ("n2", "b", 2)], false);
        check(&[("n1", "a", 1), ("n1", "a", 2), ("n2", "a", 2)], true);
        check(&[("n1", "a", 1), ("n2", "b", 1), ("n1", "a", 2)], true);
        assert_eq!(parse("boot 1a2b3c4d count 17", "n1", 5).map(|line| line.count), Some(17));
        assert_eq!(parse("boot 1a2b3c4d coun", "n1", 5), None);
    }
}
