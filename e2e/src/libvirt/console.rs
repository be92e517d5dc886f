//! What guests say on their consoles, node by node, and whether one ever ran on two nodes.
//!
//! A guest says which boot of it is speaking, and counts. Where it moved, another node's console goes on with the next number; where it
//! ran twice, the same number stands on two; where it was started anew too early, two boots speak by turns.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::background::Background;
use crate::wait::{monotonic_ns, wait_for};

/// Time from one look to the next.
const PERIOD: Duration = Duration::from_millis(50);
/// How long a guest may take to boot or to go on. Emulated guests on a busy host are slow.
const CEILING: Duration = Duration::from_secs(120);

/// What a guest said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// When it was read.
    pub at_ns: u64,
    /// On which node's console.
    pub node: String,
    /// Which boot of the guest.
    pub boot: String,
    /// Its number.
    pub count: u64,
}

/// Reads all consoles in the background.
pub struct Consoles {
    shared: Arc<Mutex<Vec<Said>>>,
    background: Background,
}

impl Consoles {
    /// Begins to read; the files need not exist yet.
    pub fn read(files: Vec<(String, PathBuf)>) -> Self {
        let shared: Arc<Mutex<Vec<Said>>> = Arc::default();
        let background = Background::start({
            let shared = Arc::clone(&shared);
            move |stop| {
                let mut read = vec![0; files.len()];
                while !stop.is_asked() {
                    // All at one moment: what is read in one round is not ordered among the nodes.
                    let texts: Vec<String> =
                        files.iter().map(|(_, path)| fs::read(path).map(lossy).unwrap_or_default()).collect();
                    let at_ns = monotonic_ns();
                    for (index, text) in texts.iter().enumerate() {
                        let end = text.rfind('\n').map_or(0, |end| end + 1);
                        let new = text.get(read[index]..end).unwrap_or_default();
                        let said = new.lines().filter_map(|line| parse(line, &files[index].0, at_ns));
                        locked(&shared).extend(said);
                        read[index] = end.max(read[index]);
                    }
                    thread::sleep(PERIOD);
                }
            }
        });
        Self { shared, background }
    }

    /// What was said last.
    pub fn last(&self) -> Option<Said> {
        locked(&self.shared).last().cloned()
    }

    /// Waits until a guest says something new that fits.
    ///
    /// # Errors
    /// When it does not for long; what it said last is in the error.
    pub fn wait(&self, what: &str, fits: impl Fn(&Said) -> bool) -> Result<Said> {
        let from = locked(&self.shared).len();
        let found = wait_for(&format!("the guest: {what}"), CEILING, || {
            locked(&self.shared).iter().skip(from).find(|said| fits(said)).cloned()
        });
        found.map_err(|error| error.context(format!("it said last {:?}", self.last())))
    }

    /// Ends reading, and checks all that was read.
    ///
    /// # Errors
    /// When a guest ever ran on two nodes.
    pub fn finish(mut self) -> Result<()> {
        self.background.end();
        let said = locked(&self.shared).clone();
        match twice(&said) {
            Some(problem) => bail!("never two is broken: {problem}"),
            None => Ok(()),
        }
    }
}

fn locked(shared: &Mutex<Vec<Said>>) -> MutexGuard<'_, Vec<Said>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lossy(bytes: Vec<u8>) -> String {
    // One character a byte, so that places in the file stay what they are.
    bytes.into_iter().map(|byte| if byte.is_ascii() { char::from(byte) } else { '?' }).collect()
}

/// `boot 1a2b3c4d count 17`; a line that was cut by a move is none.
fn parse(line: &str, node: &str, at_ns: u64) -> Option<Said> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["boot", boot, "count", count] if boot.len() == 8 => {
            let count = count.parse().ok()?;
            Some(Said { at_ns, node: node.to_owned(), boot: (*boot).to_owned(), count })
        }
        _ => None,
    }
}

/// How a guest ran twice, if it did.
fn twice(said: &[Said]) -> Option<String> {
    let mut nodes: BTreeMap<(&str, u64), BTreeSet<&str>> = BTreeMap::new();
    for one in said {
        nodes.entry((&one.boot, one.count)).or_default().insert(&one.node);
    }
    if let Some(((boot, count), nodes)) = nodes.iter().find(|(_, nodes)| nodes.len() > 1) {
        return Some(format!("boot {boot} said {count} on {nodes:?}"));
    }
    // It may come back to a node. Of two boots, the second speaks only when the first is over.
    let mut over: BTreeSet<&str> = BTreeSet::new();
    let mut speaks: Option<&Said> = None;
    for one in said {
        if over.contains(one.boot.as_str()) {
            return Some(format!("{one:?} after {speaks:?}"));
        }
        over.extend(speaks.map(|before| before.boot.as_str()).filter(|boot| *boot != one.boot));
        speaks = Some(one);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: &[(&str, &str, u64)], expected: bool) {
        let said: Vec<Said> = lines
            .iter()
            .map(|(node, boot, count)| Said {
                at_ns: 0,
                node: (*node).to_owned(),
                boot: (*boot).to_owned(),
                count: *count,
            })
            .collect();
        assert_eq!(twice(&said).is_some(), expected, "{lines:?}: {:?}", twice(&said));
    }

    #[test]
    fn one_that_moved_and_one_that_ran_twice() {
        check(&[("n1", "a", 1), ("n1", "a", 2), ("n2", "a", 3), ("n1", "b", 1)], false);
        check(&[("n1", "a", 1), ("n2", "a", 2), ("n1", "a", 3), ("n2", "b", 1), ("n2", "b", 2)], false);
        check(&[("n1", "a", 1), ("n1", "a", 2), ("n2", "a", 2)], true);
        check(&[("n1", "a", 1), ("n2", "b", 1), ("n1", "a", 2)], true);
        assert_eq!(parse("boot 1a2b3c4d count 17", "n1", 5).map(|said| said.count), Some(17));
        assert_eq!(parse("boot 1a2b3c4d coun", "n1", 5), None);
    }
}
