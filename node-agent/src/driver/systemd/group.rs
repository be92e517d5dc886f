//! The control group of a unit in the kernel's view: systemd reports the intended state, the kernel the actual
//! processes.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A cgroup hierarchy in which systemd has groups for its units.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    /// Directory of the hierarchy that is mounted.
    root: PathBuf,
    /// Mount point.
    mount: PathBuf,
    /// `true` for a v2 hierarchy, which also counts resource usage.
    has_usage_counters: bool,
}

/// Cgroup hierarchies of this machine that contain the groups of units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::driver) struct CgroupHierarchies {
    hierarchies: Vec<Hierarchy>,
}

impl CgroupHierarchies {
    /// Returns the hierarchies among the mounts that this process sees.
    pub(in crate::driver) fn of_mounts() -> io::Result<CgroupHierarchies> {
        Ok(CgroupHierarchies::of(&fs::read_to_string("/proc/self/mountinfo")?))
    }

    fn of(mounts: &str) -> CgroupHierarchies {
        let hierarchies = mounts.lines().filter_map(|line| {
            let (mount_part, file_system_part) = line.split_once(" - ")?;
            let (mount_fields, file_system_fields): (Vec<&str>, Vec<&str>) =
                (mount_part.split(' ').collect(), file_system_part.split(' ').collect());
            let has_usage_counters = match *file_system_fields.first()? {
                "cgroup2" => true,
                "cgroup" if file_system_fields.last()?.split(',').any(|option| option == "name=systemd") => {
                    false
                }
                _ => return None,
            };
            Some(Hierarchy {
                root: mount_fields.get(3)?.into(),
                mount: mount_fields.get(4)?.into(),
                has_usage_counters,
            })
        });
        CgroupHierarchies { hierarchies: hierarchies.collect() }
    }

    /// Returns the existing directories of a group, those with counters first.
    fn directories(&self, group: &str) -> Vec<(PathBuf, bool)> {
        let mut directories_found: Vec<(PathBuf, bool)> = self
            .hierarchies
            .iter()
            .filter_map(|hierarchy| {
                let relative_path = Path::new(group).strip_prefix(&hierarchy.root).ok()?;
                Some((hierarchy.mount.join(relative_path), hierarchy.has_usage_counters))
            })
            .filter(|(directory, _)| directory.is_dir())
            .collect();
        directories_found.sort_by_key(|(_, has_usage_counters)| !has_usage_counters);
        directories_found
    }

    /// Returns the directory with the counters of a group.
    pub(in crate::driver) fn usage_directory(&self, group: &str) -> Option<PathBuf> {
        if group.is_empty() {
            return None;
        }
        self.directories(group)
            .into_iter()
            .find(|(_, has_usage_counters)| *has_usage_counters)
            .map(|(directory, _)| directory)
    }

    /// Returns the pids of the processes in a group and its subgroups.
    ///
    /// # Errors
    /// Fails if the group cannot be read, or no mounted hierarchy contains it, so that its members are unknown.
    pub(in crate::driver) fn members(&self, group: &str) -> io::Result<Vec<i32>> {
        let mut pids = Vec::new();
        // The root group contains the processes of all units.
        if group.is_empty() || group == "/" {
            return Ok(pids);
        }
        if !self.hierarchies.iter().any(|hierarchy| Path::new(group).starts_with(&hierarchy.root)) {
            let message = format!("no mounted cgroup hierarchy contains {group}");
            return Err(io::Error::other(message));
        }
        let mut directories: Vec<PathBuf> =
            self.directories(group).into_iter().map(|(directory, _)| directory).collect();
        while let Some(directory) = directories.pop() {
            match fs::read_to_string(directory.join("cgroup.procs")) {
                Ok(text) => pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok())),
                // The group was removed in the meantime, or is a threaded group, whose processes are listed in its
                // parent.
                Err(error) if is_ignorable(&error) => {}
                Err(error) => return Err(error),
            }
            let Ok(entries) = fs::read_dir(&directory) else { continue };
            directories.extend(entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()));
        }
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// Returns the names of the groups directly below the root of any hierarchy.
    pub(in crate::driver) fn top_level_groups(&self) -> Vec<String> {
        let entries = self.hierarchies.iter().filter_map(|hierarchy| fs::read_dir(&hierarchy.mount).ok());
        let directories = entries.flat_map(Iterator::flatten).filter(|entry| entry.path().is_dir());
        let mut names: Vec<String> =
            directories.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Kills all processes in a group, without systemd.
    pub(in crate::driver) fn kill(&self, group: &str) -> io::Result<()> {
        for pid in self.members(group)? {
            // Zero represents a process outside this pid namespace, and kill(0) would kill the agent's own process
            // group.
            if pid > 0 {
                // The process may have ended in the meantime. The caller checks again.
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        Ok(())
    }
}

fn is_ignorable(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || matches!(error.raw_os_error(), Some(nix::libc::ENODEV | nix::libc::EOPNOTSUPP))
}

/// Returns the pids as text for a message.
pub(in crate::driver) fn describe(pids: &[i32]) -> String {
    let pid_texts: Vec<String> = pids.iter().take(5).map(ToString::to_string).collect();
    let ellipsis = if pids.len() > 5 { " …" } else { "" };
    format!("processes {}{ellipsis}", pid_texts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_group_hierarchies_are_found() {
        let check = |mounts: &str, expected: &[(&str, &str, bool)]| {
            let hierarchies = CgroupHierarchies::of(mounts).hierarchies;
            let hierarchies: Vec<(&str, &str, bool)> = hierarchies
                .iter()
                .map(|hierarchy| {
                    (
                        hierarchy.root.to_str().unwrap(),
                        hierarchy.mount.to_str().unwrap(),
                        hierarchy.has_usage_counters,
                    )
                })
                .collect();
            assert_eq!(hierarchies, expected, "{mounts}");
        };
        check(
            "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
            &[("/", "/sys/fs/cgroup", true)],
        );
        check(
            "31 30 0:9 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
             32 30 0:8 / /sys/fs/cgroup/unified rw shared:3 - cgroup2 none rw\n\
             33 30 0:7 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n",
            &[("/", "/sys/fs/cgroup/systemd", false), ("/", "/sys/fs/cgroup/unified", true)],
        );
        check("1 2 0:1 / /proc rw - proc proc rw\n", &[]);
    }

    #[test]
    fn group_members_include_all_child_groups() {
        let directory = tempfile::tempdir().unwrap();
        let mount = directory.path().to_str().unwrap();
        let unit = directory.path().join("system.slice/web.service");
        fs::create_dir_all(unit.join("worker")).unwrap();
        fs::write(unit.join("cgroup.procs"), "7\n5\n").unwrap();
        fs::write(unit.join("worker/cgroup.procs"), "9\n7\n").unwrap();
        fs::write(directory.path().join("cgroup.procs"), "1\n").unwrap();
        let groups = CgroupHierarchies::of(&format!("1 2 0:1 / {mount} rw - cgroup2 none rw\n"));
        assert_eq!(groups.members("/system.slice/web.service").unwrap(), [5, 7, 9]);
        assert_eq!(groups.members("/system.slice/gone.service").unwrap(), Vec::<i32>::new());
        assert_eq!(groups.members("").unwrap(), Vec::<i32>::new());
        assert_eq!(groups.usage_directory("/system.slice/web.service"), Some(unit));
        assert_eq!((groups.usage_directory("/gone"), groups.usage_directory("")), (None, None));
        let other_hierarchies =
            CgroupHierarchies::of(&format!("1 2 0:1 /machine {mount} rw - cgroup2 none rw\n"));
        // A group that is not visible in any mount may still have processes.
        let problem = other_hierarchies.members("/system.slice/web.service").unwrap_err().to_string();
        assert!(problem.contains("/system.slice/web.service"), "{problem}");
        assert_eq!(other_hierarchies.members("").unwrap(), Vec::<i32>::new());
    }

    #[test]
    fn long_process_lists_are_abbreviated() {
        assert_eq!(describe(&[1, 2]), "processes 1, 2");
        assert_eq!(describe(&[1, 2, 3, 4, 5, 6]), "processes 1, 2, 3, 4, 5 …");
    }
}
