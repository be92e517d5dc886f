//! One control group per service, where this machine lets the agent make them: nothing in it can escape.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// A folder of the cgroup v2 hierarchy in which the agent may make groups.
#[derive(Clone, Debug)]
pub(in crate::driver) struct CgroupRoot {
    path: PathBuf,
}

/// The group of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::driver) struct ServiceCgroup {
    path: PathBuf,
}

impl CgroupRoot {
    /// Makes a folder below the agent's own group; `None` where there is no writable v2 hierarchy that can kill
    /// (Linux 5.14). `owner` must differ between agents that share a machine.
    pub(in crate::driver) fn make(owner: &str) -> Option<CgroupRoot> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
        let path =
            own_folder(&mounts, &membership)?.join(format!("ha-exec-{:016x}", fnv1a(owner.as_bytes())));
        make_folder(&path).ok()?;
        // A folder that is only a folder (no cgroup file system) or an older kernel has no such file.
        path.join(KILL).exists().then_some(CgroupRoot { path })
    }

    /// Removes the groups of services that have ended, and it too if none is left. What has members stays.
    pub(in crate::driver) fn tidy(&self) {
        ServiceCgroup::at(self.path.clone()).remove();
    }

    /// The group of a service.
    pub(in crate::driver) fn service(&self, name: &str) -> ServiceCgroup {
        ServiceCgroup { path: self.path.join(name) }
    }
}

const KILL: &str = "cgroup.kill";
const MEMBERS: &str = "cgroup.procs";
const EVENTS: &str = "cgroup.events";
/// The supervisor has a group of its own, so that killing the service leaves it to keep the exit status.
const SUPERVISOR: &str = "supervisor";
const SERVICE: &str = "service";

impl ServiceCgroup {
    /// The group in this folder.
    pub(in crate::driver) fn at(path: PathBuf) -> ServiceCgroup {
        ServiceCgroup { path }
    }

    /// Its folder.
    pub(in crate::driver) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it.
    pub(in crate::driver) fn make(&self) -> io::Result<()> {
        // Another agent of this node may have removed the root as empty just now.
        if let Some(root) = self.path.parent() {
            make_folder(root)?;
        }
        make_folder(&self.path)?;
        make_folder(&self.path.join(SUPERVISOR))?;
        make_folder(&self.path.join(SERVICE))
    }

    /// Puts the calling process into the part for the service's processes.
    pub(in crate::driver) fn join_as_service(&self) -> io::Result<()> {
        fs::write(self.path.join(SERVICE).join(MEMBERS), "0")
    }

    /// Puts the calling process into the part for the supervisor.
    pub(in crate::driver) fn join_as_supervisor(&self) -> io::Result<()> {
        fs::write(self.path.join(SUPERVISOR).join(MEMBERS), "0")
    }

    /// The folder whose counters are those of the service's processes, without its supervisor.
    pub(in crate::driver) fn counters(&self) -> PathBuf {
        self.path.join(SERVICE)
    }

    /// The service's processes, also those in groups that it made itself.
    pub(in crate::driver) fn members(&self) -> io::Result<Vec<i32>> {
        let mut pids = Vec::new();
        let mut folders = vec![self.path.join(SERVICE)];
        while let Some(folder) = folders.pop() {
            match fs::read_to_string(folder.join(MEMBERS)) {
                // Zero is a process that this pid namespace cannot see; killing the group reaches it all the same.
                Ok(text) => pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok())),
                Err(error) if gone(&error) => continue,
                Err(error) => return Err(error),
            }
            folders.extend(subfolders(&folder));
        }
        Ok(pids)
    }

    /// Whether the service has processes; `None`: the group does not exist.
    pub(in crate::driver) fn is_populated(&self) -> Option<bool> {
        let events = fs::read_to_string(self.path.join(SERVICE).join(EVENTS)).ok()?;
        events
            .lines()
            .find_map(|line| line.strip_prefix("populated "))
            .map(|populated| populated.trim() == "1")
    }

    /// Kills every process of the service at once, also while they fork.
    pub(in crate::driver) fn kill(&self) -> io::Result<()> {
        match fs::write(self.path.join(SERVICE).join(KILL), "1") {
            Err(error) if gone(&error) => Ok(()),
            written => written,
        }
    }

    /// Removes it; what still has members stays.
    pub(in crate::driver) fn remove(&self) {
        let mut folders = vec![self.path.clone()];
        let mut index = 0;
        while let Some(folder) = folders.get(index).cloned() {
            folders.extend(subfolders(&folder));
            index += 1;
        }
        for folder in folders.iter().rev() {
            // Busy or gone already: nothing to do about either.
            let _ = fs::remove_dir(folder);
        }
    }
}

fn gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(nix::libc::ENODEV)
}

fn make_folder(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn subfolders(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// Where the process's own v2 group is mounted.
fn own_folder(mounts: &str, membership: &str) -> Option<PathBuf> {
    let group = Path::new(membership.lines().find_map(|line| line.strip_prefix("0::"))?);
    if group.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let fields: Vec<&str> = place.split(' ').collect();
        let (root, mount) = (fields.get(3)?, fields.get(4)?);
        if kind.split(' ').next() != Some("cgroup2") {
            return None;
        }
        Some(Path::new(mount).join(group.strip_prefix(root).ok()?))
    })
}

/// A short name for a long one; the same in every version of the agent.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mounts: &str, membership: &str, expected: Option<&str>) {
        assert_eq!(
            own_folder(mounts, membership).as_deref(),
            expected.map(Path::new),
            "{mounts} {membership}"
        );
    }

    #[test]
    fn the_own_group_is_found_where_it_is_mounted() {
        let unified = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        check(unified, "0::/system.slice/agent.service\n", Some("/sys/fs/cgroup/system.slice/agent.service"));
        check(unified, "0::/\n", Some("/sys/fs/cgroup"));
        let hybrid = "31 30 0:9 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      32 30 0:8 / /sys/fs/cgroup/unified rw shared:3 - cgroup2 none rw\n";
        check(hybrid, "2:cpu:/a\n0::/b\n", Some("/sys/fs/cgroup/unified/b"));
        check(hybrid, "2:cpu:/a\n", None);
        check(unified, "0::/../other\n", None);
        check("30 23 0:26 /machine /sys/fs/cgroup rw - cgroup2 none rw\n", "0::/other\n", None);
        check("1 2 0:1 / /proc rw - proc proc rw\n", "0::/\n", None);
    }
}
