//! Control groups, one for each service, if the agent can create them on this machine. A process cannot leave its
//! group.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Directory of the cgroup v2 hierarchy in which the agent may create groups.
#[derive(Clone, Debug)]
pub(in crate::driver) struct CgroupRoot {
    path: PathBuf,
}

/// Control group of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::driver) struct ServiceCgroup {
    path: PathBuf,
}

impl CgroupRoot {
    /// Creates a directory below the agent's own group. Returns `None` if there is no writable v2 hierarchy with
    /// support for killing a group (Linux 5.14). `owner` must differ between agents on the same machine.
    pub(in crate::driver) fn make(owner: &str) -> Option<CgroupRoot> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
        let path =
            own_directory(&mounts, &membership)?.join(format!("ha-exec-{:016x}", fnv1a(owner.as_bytes())));
        make_directory(&path).ok()?;
        // The file is missing in a directory outside a cgroup file system, and with an older kernel.
        path.join(KILL_FILE).exists().then_some(CgroupRoot { path })
    }

    /// Removes the groups of services that have ended, and the root directory if it is then empty. Groups with members
    /// stay.
    pub(in crate::driver) fn remove_empty_cgroups(&self) {
        ServiceCgroup::at(self.path.clone()).remove();
    }

    /// Returns the control group of a service.
    pub(in crate::driver) fn service_cgroup(&self, name: &str) -> ServiceCgroup {
        ServiceCgroup { path: self.path.join(name) }
    }
}

const KILL_FILE: &str = "cgroup.kill";
const MEMBERS_FILE: &str = "cgroup.procs";
const EVENTS_FILE: &str = "cgroup.events";
/// The supervisor has its own group, so that a kill of the service's group does not end the supervisor before it has
/// recorded the exit status.
const SUPERVISOR_DIRECTORY: &str = "supervisor";
const SERVICE_DIRECTORY: &str = "service";

impl ServiceCgroup {
    pub(in crate::driver) fn at(path: PathBuf) -> ServiceCgroup {
        ServiceCgroup { path }
    }

    pub(in crate::driver) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the group and its two subgroups.
    pub(in crate::driver) fn make(&self) -> io::Result<()> {
        // Another agent on this node may just have removed the empty root.
        if let Some(root) = self.path.parent() {
            make_directory(root)?;
        }
        make_directory(&self.path)?;
        make_directory(&self.path.join(SUPERVISOR_DIRECTORY))?;
        make_directory(&self.path.join(SERVICE_DIRECTORY))
    }

    /// Moves the calling process to the subgroup for the service's processes.
    pub(in crate::driver) fn join_as_service(&self) -> io::Result<()> {
        fs::write(self.path.join(SERVICE_DIRECTORY).join(MEMBERS_FILE), "0")
    }

    /// Moves the calling process to the subgroup for the supervisor.
    pub(in crate::driver) fn join_as_supervisor(&self) -> io::Result<()> {
        fs::write(self.path.join(SUPERVISOR_DIRECTORY).join(MEMBERS_FILE), "0")
    }

    /// Returns the directory with the counters of the service's processes, without its supervisor.
    pub(in crate::driver) fn counters(&self) -> PathBuf {
        self.path.join(SERVICE_DIRECTORY)
    }

    /// Returns the pids of the service's processes, including those in subgroups that the service created.
    pub(in crate::driver) fn members(&self) -> io::Result<Vec<i32>> {
        let mut pids = Vec::new();
        let mut directories = vec![self.path.join(SERVICE_DIRECTORY)];
        while let Some(directory) = directories.pop() {
            match fs::read_to_string(directory.join(MEMBERS_FILE)) {
                // Zero represents a process outside this pid namespace, which a kill of the group also ends.
                Ok(text) => pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok())),
                Err(error) if is_gone_error(&error) => continue,
                Err(error) => return Err(error),
            }
            directories.extend(subdirectories(&directory));
        }
        Ok(pids)
    }

    /// Returns `true` if the service has processes; `None` if the group does not exist.
    pub(in crate::driver) fn is_populated(&self) -> Option<bool> {
        let events = fs::read_to_string(self.path.join(SERVICE_DIRECTORY).join(EVENTS_FILE)).ok()?;
        events
            .lines()
            .find_map(|line| line.strip_prefix("populated "))
            .map(|populated| populated.trim() == "1")
    }

    /// Kills every process of the service at the same time, even while processes fork.
    pub(in crate::driver) fn kill(&self) -> io::Result<()> {
        match fs::write(self.path.join(SERVICE_DIRECTORY).join(KILL_FILE), "1") {
            Err(error) if is_gone_error(&error) => Ok(()),
            written => written,
        }
    }

    /// Removes the group and its subgroups, except those with members.
    pub(in crate::driver) fn remove(&self) {
        let mut directories = vec![self.path.clone()];
        let mut index = 0;
        while let Some(directory) = directories.get(index).cloned() {
            directories.extend(subdirectories(&directory));
            index += 1;
        }
        for directory in directories.iter().rev() {
            // The group is busy or already removed; both are expected.
            let _ = fs::remove_dir(directory);
        }
    }
}

fn is_gone_error(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(nix::libc::ENODEV)
}

fn make_directory(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn subdirectories(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

/// Returns the path of the calling process's own v2 group.
fn own_directory(mounts: &str, membership: &str) -> Option<PathBuf> {
    let group = Path::new(membership.lines().find_map(|line| line.strip_prefix("0::"))?);
    if group.components().any(|part| part == Component::ParentDir) {
        return None;
    }
    mounts.lines().find_map(|line| {
        let (mount_fields, kind) = line.split_once(" - ")?;
        let fields: Vec<&str> = mount_fields.split(' ').collect();
        let (root, mount) = (fields.get(3)?, fields.get(4)?);
        if kind.split(' ').next() != Some("cgroup2") {
            return None;
        }
        Some(Path::new(mount).join(group.strip_prefix(root).ok()?))
    })
}

/// Returns a hash that is the same in every version of the agent.
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
            own_directory(mounts, membership).as_deref(),
            expected.map(Path::new),
            "{mounts} {membership}"
        );
    }

    #[test]
    fn own_control_group_is_found_under_mount() {
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
