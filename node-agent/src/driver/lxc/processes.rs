//! The processes of containers in the kernel's view, independent of the answers of LXC.

use super::command::{Invocation, Role};
use super::container::Container;
use crate::driver::program::process::{ProcessIdentity, ProcessStatus};
use crate::driver::systemd::group::CgroupHierarchies;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Beginning of the name of the control group with a container's processes.
pub(super) const PAYLOAD: &str = "lxc.payload.";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LxcProcess {
    pub(super) process: ProcessIdentity,
    pub(super) invocation: Invocation,
}

/// Returns all running processes of LXC on this machine.
pub(super) fn all() -> io::Result<Vec<LxcProcess>> {
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // An ended process has no command line.
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let Some(invocation) = Invocation::parse(&line) else { continue };
        if let Some(status) = ProcessStatus::read(pid)?.filter(|status| !status.ended && is_of_node(pid)) {
            processes.push(LxcProcess { process: status.identity, invocation });
        }
    }
    Ok(processes)
}

/// Returns `true` if a process runs as root and outside of containers. Other processes are not trusted, because every
/// process can choose its title.
fn is_of_node(pid: i32) -> bool {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/pid")).ok();
    let is_root = fs::metadata(format!("/proc/{pid}")).is_ok_and(|directory| directory.uid() == 0);
    is_root
        && namespace(&pid.to_string())
            .is_some_and(|process_namespace| namespace("self") == Some(process_namespace))
}

impl LxcProcess {
    /// Returns `true` if the process is the monitor of this container.
    pub(super) fn is_monitor_of(&self, container: &Container) -> bool {
        self.invocation.role == Role::Monitor && self.is_of(container)
    }

    /// Returns `true` if the process is a program that ends this container.
    pub(super) fn stops(&self, container: &Container) -> bool {
        self.invocation.role == Role::Stopper && self.is_of(container)
    }

    fn is_of(&self, container: &Container) -> bool {
        let path = self.invocation.path.as_deref().unwrap_or(Path::new(super::DEFAULT_PATH));
        self.invocation.name == container.name && is_same_directory(path, &container.path)
    }
}

fn is_same_directory(left: &Path, right: &Path) -> bool {
    // The comparison of components ignores a final slash.
    left == right
        || left.canonicalize().is_ok_and(|left| right.canonicalize().is_ok_and(|right| left == right))
}

/// Returns the control groups with processes of this container, whose monitor does not run.
///
/// The names are the same for containers in all directories. A group whose first process is the child of a monitor
/// belongs to the container of that monitor.
pub(super) fn orphaned_groups(
    groups: &CgroupHierarchies,
    container: &Container,
    configured: Option<String>,
    last: Option<String>,
) -> io::Result<Vec<String>> {
    let mut candidate_groups: Vec<String> = groups
        .top_level_groups()
        .iter()
        .filter_map(|group| group.strip_prefix(PAYLOAD))
        .filter(|owner| is_group_of(&container.name, owner, |other| container.path.join(other).is_dir()))
        .map(|owner| format!("/{PAYLOAD}{owner}"))
        .chain(configured)
        .chain(last)
        .collect();
    candidate_groups.sort_unstable();
    candidate_groups.dedup();
    let mut orphaned = Vec::new();
    let mut monitors = None;
    for group in candidate_groups {
        // Zero stands for a process outside this pid namespace, which belongs to another machine.
        let pids: Vec<i32> = groups.members(&group)?.into_iter().filter(|pid| *pid > 0).collect();
        if pids.is_empty() {
            continue;
        }
        let monitors = match &monitors {
            Some(monitors) => monitors,
            None => monitors.insert(all()?),
        };
        let is_child = |pid: &i32| {
            let parent = ProcessStatus::read(*pid).ok().flatten().map(|status| status.parent);
            monitors
                .iter()
                .any(|other| other.invocation.role == Role::Monitor && Some(other.process.pid) == parent)
        };
        if !pids.iter().any(is_child) {
            orphaned.push(group);
        }
    }
    Ok(orphaned)
}

/// Returns `true` if a group with this owner in its name belongs to the container. LXC appends a number to a name that
/// is already used. A name with a number can also be the name of another container.
fn is_group_of(name: &str, owner: &str, exists: impl Fn(&str) -> bool) -> bool {
    let number = owner.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
    let is_numbered =
        number.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()));
    owner == name || (is_numbered && !exists(owner))
}

/// Returns the control group of a container, from the content of `/proc/PID/cgroup` of its first process.
pub(super) fn group_in(text: &str) -> Option<String> {
    let group_of_hierarchy = |kind: &str| {
        text.lines().find_map(|line| line.split_once(':')?.1.strip_prefix(kind)?.strip_prefix(':'))
    };
    let group = group_of_hierarchy("")
        .filter(|group| *group != "/")
        .or_else(|| group_of_hierarchy("name=systemd"))?;
    if let Some(start) = group.find(PAYLOAD) {
        // A service manager in the container moves itself to a subgroup.
        let end = group[start..].find('/').map_or(group.len(), |length| start + length);
        return Some(group[..end].to_owned());
    }
    let group = group.strip_suffix("/init.scope").unwrap_or(group);
    (group != "/" && !group.is_empty()).then(|| group.to_owned())
}

/// Returns the control group of a container by the pid of its first process.
pub(super) fn group_of(init: i32) -> Option<String> {
    group_in(&fs::read_to_string(format!("/proc/{init}/cgroup")).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_control_groups_are_recognized() {
        let check = |owner: &str, expected: bool| {
            assert_eq!(
                is_group_of("web", owner, |other_container| other_container == "web-2"),
                expected,
                "{owner}"
            );
        };
        check("web", true);
        check("web-1", true);
        check("web-2", false);
        for other_container in ["web-", "web-a", "web1", "we", "web.1", "web-1-1"] {
            check(other_container, false);
        }
    }

    #[test]
    fn control_group_is_read_from_init_process() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(group_in(text).as_deref(), expected, "{text}");
        };
        check("0::/lxc.payload.web\n", Some("/lxc.payload.web"));
        check("0::/lxc.payload.web-1/init.scope\n", Some("/lxc.payload.web-1"));
        check("0::/user.slice/lxc.payload.web/a/b\n", Some("/user.slice/lxc.payload.web"));
        check("2:cpu:/lxc.payload.web\n1:name=systemd:/lxc.payload.web/x\n0::/\n", Some("/lxc.payload.web"));
        check("2:cpu:/lxc.payload.web\n0::/lxc.payload.web\n", Some("/lxc.payload.web"));
        check("0::/lxc/101/ns\n", Some("/lxc/101/ns"));
        check("0::/lxc/101/init.scope\n", Some("/lxc/101"));
        check("0::/\n", None);
        check("0::/init.scope\n", None);
        check("", None);
    }
}
