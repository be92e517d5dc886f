//! The LXC of a node. Its containers belong to the node alone, like on a real machine; control groups are those of the host.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::machine::Machine;
use crate::podman::MOUNT_GROUPS;

/// Names of the control groups that containers of tests leave behind.
const GROUP_PREFIXES: [&str; 2] = ["lxc.payload.ha-e2e-", "lxc.monitor.ha-e2e-"];

/// Returns a name for a container that no other container on the host has.
pub fn container(name: &str) -> String {
    format!("ha-e2e-{name}-{}", std::process::id())
}

/// Returns the directory of a node's containers.
pub fn path(machine: &Machine) -> PathBuf {
    machine.directory.join("lxc")
}

/// Returns a command that creates the directory of containers, mounts control groups, and then runs `command`.
pub fn with_setup(machine: &Machine, command: Vec<String>) -> Vec<String> {
    let script = format!("set -e\nmkdir -p \"$0\"\n{MOUNT_GROUPS}\nexec \"$@\"");
    ["sh".to_owned(), "-c".to_owned(), script, path(machine).to_string_lossy().into_owned()]
        .into_iter()
        .chain(command)
        .collect()
}

/// Writes a container's root file system and its configuration to a directory that all nodes share. `mounts` are directories of
/// the node with their paths in the container.
///
/// # Errors
/// Fails if busybox is missing.
pub fn write(
    directory: &Path,
    directory_in_machine: &Path,
    command: &str,
    mounts: &[(&Path, &str)],
) -> Result<()> {
    let root = directory.join("rootfs");
    for name in ["bin", "dev", "etc", "lib", "lib64", "opt", "proc", "srv", "sys", "tmp", "usr"] {
        fs::create_dir_all(root.join(name))?;
    }
    fs::copy("/usr/bin/busybox", root.join("bin/busybox"))
        .context("/usr/bin/busybox is missing; run ./dev/setup --test")?;
    for name in ["sh", "sleep", "test"] {
        symlink("busybox", root.join("bin").join(name))?;
    }
    let mut text = String::new();
    for (key, value) in [
        ("rootfs.path", format!("dir:{}", directory_in_machine.join("rootfs").display())),
        ("net.0.type", "empty".to_owned()),
        ("apparmor.profile", "unconfined".to_owned()),
        ("pty.max", "16".to_owned()),
        ("signal.halt", "SIGTERM".to_owned()),
        ("init.cmd", command.to_owned()),
        ("environment", "HA_RESOURCE".to_owned()),
        ("environment", "HA_RESOURCE_UID".to_owned()),
        ("environment", "HA_NODE".to_owned()),
    ] {
        writeln!(text, "lxc.{key} = {value}")?;
    }
    for (source, target) in mounts {
        writeln!(text, "lxc.mount.entry = {} {target} none bind,optional 0 0", source.display())?;
    }
    fs::write(directory.join("config"), text)?;
    Ok(())
}

/// Removes the empty control groups of containers after a power cut. A real power cut would end them with the kernel.
pub fn remove_groups() {
    let groups = Path::new("/sys/fs/cgroup");
    let hierarchies = fs::read_dir(groups).into_iter().flatten().flatten().map(|entry| entry.path());
    for hierarchy in hierarchies.chain([groups.to_owned()]) {
        let group_entries = fs::read_dir(hierarchy).into_iter().flatten().flatten();
        for group in group_entries.filter(|group| {
            let name = group.file_name();
            GROUP_PREFIXES.iter().any(|beginning| name.to_string_lossy().starts_with(beginning))
        }) {
            // Control groups in use are skipped.
            let _ = fs::remove_dir(group.path());
        }
    }
}
