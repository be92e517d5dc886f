//! The registry of runs on this host. Each run has an identifier, a slot (which determines its addresses) and an owner.
//!
//! The record of a run outlives a killed owner, so the next start can find and remove its remains. Only runs without an
//! owner are removed: the owner has ended and, unless the owner was a test, so have all processes of the machines.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::process::ProcessId;

/// Largest number of runs at the same time. The slot is the third octet of their addresses.
const SLOT_COUNT: u8 = 250;

/// The condition that ends a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lifetime {
    /// The run ends when its owner ends, for any reason.
    Owner,
    /// The run continues until a command ends it, like the sandbox.
    UntilStopped,
}

/// The record of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunRecord {
    /// Identifier that is unique on this host, used in names of namespaces and directories.
    pub run: String,
    /// Third octet of the run's addresses, and part of its interface names.
    pub slot: u8,
    /// Condition that ends the run.
    pub lifetime: Lifetime,
    /// Process that started the run.
    pub owner: ProcessId,
    /// Directory with data, logs and certificates.
    #[serde(rename = "folder")]
    pub directory: PathBuf,
    /// Processes outside the machines' trees, and the processes that hold the trees.
    pub processes: Vec<ProcessId>,
    /// `true` if the run created network namespaces and a bridge.
    pub namespaces: bool,
}

impl RunRecord {
    /// Returns the directory for files that do not survive a reboot: sockets and pid files. The path is short, because socket
    /// paths are limited.
    pub fn volatile_directory(&self) -> PathBuf {
        registry_directory().join(&self.run)
    }

    fn path(&self) -> PathBuf {
        self.volatile_directory().join("record.json")
    }

    /// Writes the record atomically.
    ///
    /// # Errors
    /// Fails if the directory is not writable.
    pub fn save(&self) -> Result<()> {
        let path = self.path();
        let next = path.with_extension("next");
        fs::write(&next, serde_json::to_vec_pretty(self)?).with_context(|| next.display().to_string())?;
        fs::rename(&next, &path).with_context(|| path.display().to_string())
    }

    /// Returns `true` if the run can be removed.
    fn has_exited(&self) -> bool {
        if self.owner.is_alive() {
            return false;
        }
        match self.lifetime {
            Lifetime::Owner => true,
            Lifetime::UntilStopped => !self.processes.iter().any(ProcessId::is_alive),
        }
    }

    /// Deletes the record of the run.
    fn delete(&self) -> Result<()> {
        let directory = self.volatile_directory();
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| directory.display().to_string())
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Registers a new run in a free slot.
///
/// # Errors
/// Fails if the registry is not writable, or if all slots are in use.
pub fn register(directory: &Path, lifetime: Lifetime, namespaces: bool) -> Result<RunRecord> {
    let _lock = lock()?;
    let used_slots: BTreeSet<u8> = records()?.iter().map(|record| record.slot).collect();
    let Some(slot) = (1..=SLOT_COUNT).find(|slot| !used_slots.contains(slot)) else {
        bail!(
            "all {SLOT_COUNT} cluster slots of this machine are in use; see {}",
            registry_directory().display()
        );
    };
    let owner = ProcessId::own()?;
    let record = RunRecord {
        run: format!("h{slot}-{}", owner.pid),
        slot,
        lifetime,
        owner,
        directory: directory.to_owned(),
        processes: Vec::new(),
        namespaces,
    };
    fs::create_dir_all(record.volatile_directory())
        .with_context(|| record.volatile_directory().display().to_string())?;
    record.save()?;
    Ok(record)
}

/// Removes a run through `remove`, and deletes its record.
///
/// Another process may remove the run as well, because its owner has ended. Only one of them does so: the names of a removed run
/// may already belong to another run.
///
/// # Errors
/// Fails if the run cannot be removed.
pub fn remove_run(record: &RunRecord, remove: impl FnOnce(&RunRecord) -> Result<()>) -> Result<()> {
    let _lock = lock()?;
    if !record.path().exists() {
        return Ok(());
    }
    remove(record)?;
    record.delete()
}

/// Removes the remains of runs without an owner through `remove`, and returns the runs' identifiers.
///
/// # Errors
/// Fails if the registry cannot be read, or if a run cannot be removed.
pub fn remove_orphaned_runs(remove: impl Fn(&RunRecord) -> Result<()>) -> Result<Vec<String>> {
    let _lock = lock()?;
    let mut swept = Vec::new();
    for record in records()?.into_iter().filter(RunRecord::has_exited) {
        remove(&record)?;
        record.delete()?;
        swept.push(record.run);
    }
    Ok(swept)
}

/// Returns the record of the run whose data is in `directory`.
///
/// # Errors
/// Fails if the registry cannot be read.
pub fn find(directory: &Path) -> Result<Option<RunRecord>> {
    Ok(records()?.into_iter().find(|record| record.directory == directory))
}

/// Returns the directory of the registry. It is empty after a reboot, like the set of processes.
fn registry_directory() -> PathBuf {
    let user = nix::unistd::getuid();
    if user.is_root() {
        return PathBuf::from("/run/hactl-sandbox");
    }
    std::env::var_os("XDG_RUNTIME_DIR").map_or_else(
        || PathBuf::from(format!("/tmp/hactl-sandbox-{user}")),
        |directory| PathBuf::from(directory).join("hactl-sandbox"),
    )
}

fn lock() -> Result<Flock<File>> {
    let directory = registry_directory();
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(&directory)
        .with_context(|| directory.display().to_string())?;
    let path = directory.join("lock");
    let file = File::create(&path).with_context(|| path.display().to_string())?;
    Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, error)| anyhow::Error::from(error).context(path.display().to_string()))
}

fn records() -> Result<Vec<RunRecord>> {
    let directory = registry_directory();
    if !directory.is_dir() {
        return Ok(Vec::new());
    }
    let mut records_found = Vec::new();
    for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path().join("record.json");
        // The owner may remove its run during this loop, and a run that is being created has no record yet.
        let Ok(text) = fs::read(&path) else { continue };
        records_found.push(serde_json::from_slice(&text).with_context(|| path.display().to_string())?);
    }
    Ok(records_found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(owner_alive: bool, lifetime: Lifetime, process_alive: bool) -> RunRecord {
        let own_process = ProcessId::own().unwrap();
        let ended_process = ProcessId { start_ticks: 1, ..own_process };
        RunRecord {
            run: "test".into(),
            slot: 1,
            lifetime,
            owner: if owner_alive { own_process } else { ended_process },
            directory: PathBuf::new(),
            processes: vec![if process_alive { own_process } else { ended_process }],
            namespaces: false,
        }
    }

    #[test]
    fn a_run_is_removed_once() {
        let directory = tempfile::tempdir().unwrap();
        let record = register(directory.path(), Lifetime::Owner, false).unwrap();
        let removals = std::cell::Cell::new(0);
        let remove = |_: &RunRecord| {
            removals.set(removals.get() + 1);
            Ok(())
        };
        remove_run(&record, remove).unwrap();
        assert!(!record.volatile_directory().exists());
        remove_run(&record, remove).unwrap();
        assert_eq!(removals.get(), 1, "the names of the run may belong to another run now");
    }

    #[test]
    fn registry_removes_only_dead_runs() {
        assert!(!record(true, Lifetime::Owner, false).has_exited());
        assert!(
            record(false, Lifetime::Owner, true).has_exited(),
            "a killed test leaves processes that nobody needs"
        );
        assert!(
            !record(false, Lifetime::UntilStopped, true).has_exited(),
            "a sandbox outlives the command that made it"
        );
        assert!(record(false, Lifetime::UntilStopped, false).has_exited());
    }
}
