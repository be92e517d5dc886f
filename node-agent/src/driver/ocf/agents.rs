//! The agents of this machine: where they lie, and what they say of themselves.

use super::request::STATE_FOLDER;
use ha_api_types::ocf::{AgentMetadata, AgentName, agents_folder};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// The agents of this machine.
#[derive(Debug)]
pub(super) struct Agents {
    pub(super) root: PathBuf,
    pub(super) run: PathBuf,
    /// What they said, by their program; good for as long as it was not changed.
    known: Mutex<BTreeMap<PathBuf, (SystemTime, Arc<AgentMetadata>)>>,
}

impl Agents {
    pub(super) fn new(root: PathBuf, run: PathBuf) -> Agents {
        Agents { root, run, known: Mutex::default() }
    }

    /// Whether there are any.
    pub(super) fn able(&self) -> Result<(), String> {
        let folder = agents_folder(&self.root);
        let is_there = fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some());
        if is_there {
            Ok(())
        } else {
            Err(format!("there are no resource agents in {}: install resource-agents", folder.display()))
        }
    }

    /// The program of an agent; otherwise why there is none.
    pub(super) fn program(&self, name: &AgentName) -> Result<PathBuf, String> {
        let program = name.program(&self.root);
        match nix::unistd::access(&program, nix::unistd::AccessFlags::X_OK) {
            Ok(()) => Ok(program),
            Err(error) => {
                Err(format!("{name} is not installed on this node: {}: {}", program.display(), error.desc()))
            }
        }
    }

    /// Makes the folder of the agents' state, which they take for granted.
    pub(super) fn make_state_folder(&self) -> io::Result<()> {
        fs::create_dir_all(self.run.join(STATE_FOLDER))
    }

    /// What an agent said of itself, if it is still the same program.
    pub(super) fn known(&self, program: &Path) -> Option<Arc<AgentMetadata>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (read_at, metadata) = known.get(program)?;
        (changed(program)? == *read_at).then(|| Arc::clone(metadata))
    }

    /// Remembers it.
    pub(super) fn remember(&self, program: &Path, metadata: &Arc<AgentMetadata>) {
        if let Some(changed) = changed(program) {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(program.to_owned(), (changed, Arc::clone(metadata)));
        }
    }
}

fn changed(program: &Path) -> Option<SystemTime> {
    fs::metadata(program).ok()?.modified().ok()
}
