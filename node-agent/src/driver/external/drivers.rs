//! The external drivers installed on this node: their executables and their descriptions.

use super::protocol::Description;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// Directories of external drivers, with a cache of the drivers' descriptions.
#[derive(Debug)]
pub(super) struct DriverDirectories {
    directories: Vec<PathBuf>,
    /// Description of each driver and the program's modification time at which it was read; valid until that time
    /// changes.
    cache: Mutex<BTreeMap<PathBuf, (SystemTime, Arc<Description>)>>,
}

impl DriverDirectories {
    pub(super) fn new(directories: Vec<PathBuf>) -> DriverDirectories {
        DriverDirectories { directories, cache: Mutex::default() }
    }

    /// Returns the driver's program, from the first directory that contains one.
    pub(super) fn program(&self, name: &str) -> Result<PathBuf, String> {
        let program_file =
            self.directories.iter().map(|directory| directory.join(name)).find(|path| is_program(path));
        program_file.ok_or_else(|| {
            format!(
                "driver {name} is not installed on this node: no program {name} in {}",
                self.joined_paths()
            )
        })
    }

    /// Returns the sorted names of all drivers.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for directory in &self.directories {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                if is_program(&entry.path()) {
                    names.extend(entry.file_name().into_string());
                }
            }
        }
        names.sort();
        names.dedup();
        names
    }

    /// Returns the directories as text for messages.
    pub(super) fn joined_paths(&self) -> String {
        let listed: Vec<String> =
            self.directories.iter().map(|directory| directory.display().to_string()).collect();
        listed.join(" or ")
    }

    /// Returns the cached description of a driver if its program has not changed since.
    pub(super) fn cached_description(&self, program: &Path) -> Option<Arc<Description>> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let (read_at, description) = cache.get(program)?;
        (modification_time(program)? == *read_at).then(|| Arc::clone(description))
    }

    pub(super) fn cache_description(&self, program: &Path, description: &Arc<Description>) {
        if let Some(modified_at) = modification_time(program) {
            let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
            cache.insert(program.to_owned(), (modified_at, Arc::clone(description)));
        }
    }
}

fn is_program(path: &Path) -> bool {
    path.is_file() && nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok()
}

fn modification_time(program: &Path) -> Option<SystemTime> {
    fs::metadata(program).ok()?.modified().ok()
}
