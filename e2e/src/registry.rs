//! Which runs exist on this machine: each has an identifier, a slot (its network numbers), and an owner.
//!
//! A run's record outlives a killed owner, so the next start finds what was left and removes it. Only runs that are dead
//! are touched: those whose owner and whose machines are all gone, or whose owner was a test that is gone.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::process::ProcessId;

/// How many runs can exist at once: the third number of their addresses.
const SLOTS: u8 = 250;

/// Whether a run ends with the process that started it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lifetime {
    /// It ends with its owner, however the owner ends.
    Owner,
    /// It goes on until somebody ends it, as the sandbox does.
    UntilStopped,
}

/// What is known of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// Distinguishes the run from every other on this machine: in names of namespaces and folders.
    pub run: String,
    /// The third number of the run's addresses, and part of its interface names.
    pub slot: u8,
    /// Whether the run ends with its owner.
    pub lifetime: Lifetime,
    /// The process that started it.
    pub owner: ProcessId,
    /// Where its data, logs and certificates are.
    pub folder: PathBuf,
    /// Processes outside every machine's tree, and the holders of the machines' trees.
    pub processes: Vec<ProcessId>,
    /// Whether this run made network namespaces and a bridge.
    pub namespaces: bool,
}

impl Record {
    /// The folder for what does not survive a reboot: sockets, process numbers. Its path is short, as sockets need.
    pub fn volatile(&self) -> PathBuf {
        base().join(&self.run)
    }

    /// Writes the record; readers see the old or the new one.
    ///
    /// # Errors
    /// When the folder is not writable.
    pub fn save(&self) -> Result<()> {
        let path = self.volatile().join("record.json");
        let next = path.with_extension("next");
        fs::write(&next, serde_json::to_vec_pretty(self)?).with_context(|| next.display().to_string())?;
        fs::rename(&next, &path).with_context(|| path.display().to_string())
    }

    /// Whether nobody needs this run any more.
    fn is_dead(&self) -> bool {
        if self.owner.is_alive() {
            return false;
        }
        match self.lifetime {
            Lifetime::Owner => true,
            Lifetime::UntilStopped => !self.processes.iter().any(ProcessId::is_alive),
        }
    }

    /// Forgets the run.
    ///
    /// # Errors
    /// When its folder cannot be removed.
    pub fn remove(&self) -> Result<()> {
        let folder = self.volatile();
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| folder.display().to_string())
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Registers a new run under a slot that no other has.
///
/// # Errors
/// When the registry cannot be written or all slots are taken.
pub fn register(folder: &Path, lifetime: Lifetime, namespaces: bool) -> Result<Record> {
    let _lock = lock()?;
    let used: BTreeSet<u8> = records()?.iter().map(|record| record.slot).collect();
    let Some(slot) = (1..=SLOTS).find(|slot| !used.contains(slot)) else {
        bail!("all {SLOTS} slots for clusters on this machine are taken; see {}", base().display());
    };
    let owner = ProcessId::own()?;
    let record = Record {
        run: format!("h{slot}-{}", owner.pid),
        slot,
        lifetime,
        owner,
        folder: folder.to_owned(),
        processes: Vec::new(),
        namespaces,
    };
    fs::create_dir_all(record.volatile()).with_context(|| record.volatile().display().to_string())?;
    record.save()?;
    Ok(record)
}

/// Removes from the machine what dead runs left behind, through `remove`, and gives their names.
///
/// # Errors
/// When the registry cannot be read or something cannot be removed.
pub fn sweep(remove: impl Fn(&Record) -> Result<()>) -> Result<Vec<String>> {
    let _lock = lock()?;
    let mut swept = Vec::new();
    for record in records()?.into_iter().filter(Record::is_dead) {
        remove(&record)?;
        record.remove()?;
        swept.push(record.run);
    }
    Ok(swept)
}

/// The record of the run that keeps its data in `folder`.
///
/// # Errors
/// When the registry cannot be read.
pub fn find(folder: &Path) -> Result<Option<Record>> {
    Ok(records()?.into_iter().find(|record| record.folder == folder))
}

/// Where records are kept: a place that is empty after a reboot, as the processes are.
fn base() -> PathBuf {
    let user = nix::unistd::getuid();
    if user.is_root() {
        return PathBuf::from("/run/hactl-sandbox");
    }
    std::env::var_os("XDG_RUNTIME_DIR").map_or_else(
        || PathBuf::from(format!("/tmp/hactl-sandbox-{user}")),
        |folder| PathBuf::from(folder).join("hactl-sandbox"),
    )
}

fn lock() -> Result<Flock<File>> {
    let folder = base();
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(&folder)
        .with_context(|| folder.display().to_string())?;
    let path = folder.join("lock");
    let file = File::create(&path).with_context(|| path.display().to_string())?;
    Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, error)| anyhow::Error::from(error).context(path.display().to_string()))
}

fn records() -> Result<Vec<Record>> {
    let folder = base();
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path().join("record.json");
        // A run may be removed by its owner while this reads; a folder without a record is one in the making.
        let Ok(text) = fs::read(&path) else { continue };
        found.push(serde_json::from_slice(&text).with_context(|| path.display().to_string())?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(owner_alive: bool, lifetime: Lifetime, process_alive: bool) -> Record {
        let own = ProcessId::own().unwrap();
        let gone = ProcessId { start_ticks: 1, ..own };
        Record {
            run: "test".into(),
            slot: 1,
            lifetime,
            owner: if owner_alive { own } else { gone },
            folder: PathBuf::new(),
            processes: vec![if process_alive { own } else { gone }],
            namespaces: false,
        }
    }

    #[test]
    fn only_dead_runs_are_swept() {
        assert!(!record(true, Lifetime::Owner, false).is_dead());
        assert!(
            record(false, Lifetime::Owner, true).is_dead(),
            "a killed test leaves processes that nobody needs"
        );
        assert!(
            !record(false, Lifetime::UntilStopped, true).is_dead(),
            "a sandbox outlives the command that made it"
        );
        assert!(record(false, Lifetime::UntilStopped, false).is_dead());
    }
}
