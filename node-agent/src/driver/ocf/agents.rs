//! The resource agents installed on this node: their programs and their metadata.

use super::request::STATE_FOLDER;
use ha_api_types::ocf::{AgentMetadata, AgentName, agents_folder};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// Resource agents of this node, with a cache of their metadata.
#[derive(Debug)]
pub(super) struct Agents {
    pub(super) root: PathBuf,
    pub(super) run: PathBuf,
    /// Metadata of each resource agent, with its program's modification time; valid until that time changes.
    known: Mutex<BTreeMap<PathBuf, (SystemTime, Arc<AgentMetadata>)>>,
}

impl Agents {
    pub(super) fn new(root: PathBuf, run: PathBuf) -> Agents {
        Agents { root, run, known: Mutex::default() }
    }

    /// Checks whether any resource agent is installed. The error is the reason for a message.
    pub(super) fn able(&self) -> Result<(), String> {
        let folder = agents_folder(&self.root);
        let is_there = fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some());
        if is_there {
            Ok(())
        } else {
            Err(format!("no resource agents in {}: install the package resource-agents", folder.display()))
        }
    }

    /// Returns the program of a resource agent. The error is the reason why it cannot be run.
    pub(super) fn program(&self, name: &AgentName) -> Result<PathBuf, String> {
        let program = name.program(&self.root);
        match nix::unistd::access(&program, nix::unistd::AccessFlags::X_OK) {
            Ok(()) => Ok(program),
            Err(error) => {
                Err(format!("{name} is not installed on this node: {}: {}", program.display(), error.desc()))
            }
        }
    }

    /// Creates the directory for the resource agents' state, because the agents expect that it exists.
    pub(super) fn make_state_folder(&self) -> io::Result<()> {
        fs::create_dir_all(self.run.join(STATE_FOLDER))
    }

    /// Returns the cached metadata of a resource agent if its program has not changed since.
    pub(super) fn known(&self, program: &Path) -> Option<Arc<AgentMetadata>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (read_at, metadata) = known.get(program)?;
        (changed(program)? == *read_at).then(|| Arc::clone(metadata))
    }

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
