//! The resource agents installed on this node: their programs and their metadata.

use super::request::STATE_DIRECTORY;
use ha_api_types::ocf::{AgentMetadata, AgentName, agents_directory};
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
    cache: Mutex<BTreeMap<PathBuf, (SystemTime, Arc<AgentMetadata>)>>,
}

impl Agents {
    pub(super) fn new(root: PathBuf, run: PathBuf) -> Agents {
        Agents { root, run, cache: Mutex::default() }
    }

    /// Checks whether any resource agent is installed. The error contains the reason as text for a message.
    pub(super) fn check_usable(&self) -> Result<(), String> {
        let directory = agents_directory(&self.root);
        let is_installed = fs::read_dir(&directory).is_ok_and(|mut entries| entries.next().is_some());
        if is_installed {
            Ok(())
        } else {
            Err(format!("no resource agents in {}: install the package resource-agents", directory.display()))
        }
    }

    /// Returns the program of a resource agent. The error contains the reason if the program cannot be run.
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
    pub(super) fn make_state_directory(&self) -> io::Result<()> {
        fs::create_dir_all(self.run.join(STATE_DIRECTORY))
    }

    /// Returns the cached metadata of a resource agent if its program has not changed since.
    pub(super) fn cached_metadata(&self, program: &Path) -> Option<Arc<AgentMetadata>> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let (read_at, metadata) = cache.get(program)?;
        (modification_time(program)? == *read_at).then(|| Arc::clone(metadata))
    }

    pub(super) fn cache_metadata(&self, program: &Path, metadata: &Arc<AgentMetadata>) {
        if let Some(modified_at) = modification_time(program) {
            let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            cache.insert(program.to_owned(), (modified_at, Arc::clone(metadata)));
        }
    }
}

fn modification_time(program: &Path) -> Option<SystemTime> {
    fs::metadata(program).ok()?.modified().ok()
}
