//! The drivers of third parties on this machine: where they lie, and what they say of themselves.

use super::protocol::Description;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// The folders of drivers, and what is known of those in them.
#[derive(Debug)]
pub(super) struct Folders {
    folders: Vec<PathBuf>,
    /// What they said, by their program; good for as long as it was not changed.
    known: Mutex<BTreeMap<PathBuf, (SystemTime, Arc<Description>)>>,
}

impl Folders {
    pub(super) fn new(folders: Vec<PathBuf>) -> Folders {
        Folders { folders, known: Mutex::default() }
    }

    /// The program of a driver: in the first folder that has one.
    pub(super) fn program(&self, name: &str) -> Result<PathBuf, String> {
        let found = self.folders.iter().map(|folder| folder.join(name)).find(|path| is_program(path));
        found.ok_or_else(|| {
            format!(
                "driver {name} is not installed on this node: there is no program {name} in {}",
                self.listed()
            )
        })
    }

    /// The names of all, sorted.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for folder in &self.folders {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if is_program(&entry.path()) {
                    names.extend(entry.file_name().into_string());
                }
            }
        }
        names.sort();
        names.dedup();
        names
    }

    /// The folders, for people.
    pub(super) fn listed(&self) -> String {
        let listed: Vec<String> = self.folders.iter().map(|folder| folder.display().to_string()).collect();
        listed.join(" or ")
    }

    /// What a driver said of itself, if it is still the same program.
    pub(super) fn known(&self, program: &Path) -> Option<Arc<Description>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (read_at, description) = known.get(program)?;
        (changed(program)? == *read_at).then(|| Arc::clone(description))
    }

    /// Remembers it.
    pub(super) fn remember(&self, program: &Path, description: &Arc<Description>) {
        if let Some(changed) = changed(program) {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.insert(program.to_owned(), (changed, Arc::clone(description)));
        }
    }
}

fn is_program(path: &Path) -> bool {
    path.is_file() && nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok()
}

fn changed(program: &Path) -> Option<SystemTime> {
    fs::metadata(program).ok()?.modified().ok()
}
