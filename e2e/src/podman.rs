//! The podman of a node. Its images, containers and socket belong to the node alone, like on a real machine.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::command::{path_text, run};
use crate::init::Program;
use crate::machine::Machine;

/// Name of the image on every node with podman. Its root file system contains only busybox, and it replaces the public image of
/// that name.
pub const IMAGE: &str = "docker.io/library/busybox:1";
/// Name of podman's program on a machine.
pub const PROGRAM: &str = "podman";

/// Name of podman's settings file, next to the archive.
const SETTINGS_FILE_NAME: &str = "containers.conf";

/// Shell commands that mount control groups, which a network namespace hides.
pub(crate) const MOUNT_GROUPS: &str = r#"
groups=/sys/fs/cgroup
mount -t tmpfs tmpfs $groups
if grep -qv '^0::' /proc/self/cgroup; then
  while IFS=: read -r _ names _; do
    directory=$groups/${names#name=}
    case $names in
      '') mkdir $groups/unified; mount -t cgroup2 cgroup2 $groups/unified ;;
      name=*) mkdir "$directory"; mount -t cgroup -o "none,$names" cgroup "$directory" ;;
      *) mkdir "$directory"; mount -t cgroup -o "$names" cgroup "$directory" ;;
    esac
  done </proc/self/cgroup
else
  mount -t cgroup2 cgroup2 $groups
fi
"#;

/// Imports the image and serves podman's API.
const SCRIPT: &str = r#"
socket=$1 archive=$2 image=$3
shift 3
"$@" image exists "$image" || "$@" import --quiet "$archive" "$image"
exec "$@" system service --time=0 "unix://$socket"
"#;

/// Returns the socket of a node's podman.
pub fn socket(machine: &Machine) -> PathBuf {
    machine.volatile.join("podman.sock")
}

/// Returns podman's API service as a program of a machine. `archive` is the result of [`archive`].
pub fn program(machine: &Machine, archive: &Path) -> Program {
    let script = format!("set -e\n{MOUNT_GROUPS}\n{SCRIPT}");
    let mut command = ["sh", "-c", &script, "podman"].map(str::to_owned).to_vec();
    command.extend([path_text(&socket(machine)), path_text(archive), IMAGE.to_owned(), "podman".to_owned()]);
    for (flag, directory) in [
        ("--root", root(machine)),
        // A boot must remove these directories.
        ("--runroot", machine.volatile.join("podman-run")),
        ("--tmpdir", machine.volatile.join("podman-tmp")),
    ] {
        command.extend([flag.to_owned(), path_text(&directory)]);
    }
    command.extend(
        ["--runtime=runc", "--cgroup-manager=cgroupfs", "--events-backend=file", "--storage-driver=vfs"]
            .map(str::to_owned),
    );
    let settings = ("CONTAINERS_CONF".to_owned(), path_text(&archive.with_file_name(SETTINGS_FILE_NAME)));
    Program { name: PROGRAM.to_owned(), command, environment: [settings].into() }
}

/// Returns a command that starts once podman's socket exists, like a unit that depends on a socket unit.
pub fn with_setup(machine: &Machine, command: Vec<String>) -> Vec<String> {
    let wait_script = r#"while [ ! -S "$0" ]; do sleep 0.05; done; exec "$@""#;
    let socket = socket(machine).to_string_lossy().into_owned();
    ["sh".to_owned(), "-c".to_owned(), wait_script.to_owned(), socket].into_iter().chain(command).collect()
}

fn root(machine: &Machine) -> PathBuf {
    machine.directory.join("podman")
}

/// Creates the archive of the image's root file system in a directory, with podman's settings next to it. The image's empty
/// directories are mount points.
///
/// # Errors
/// Fails if busybox or tar is missing.
pub fn archive(directory: &Path) -> Result<PathBuf> {
    let files = directory.join("image");
    for name in ["bin", "dev", "etc", "lib", "lib64", "proc", "srv", "sys", "tmp", "usr"] {
        fs::create_dir_all(files.join(name))?;
    }
    fs::copy("/usr/bin/busybox", files.join("bin/busybox"))
        .context("/usr/bin/busybox is missing; run ./dev/setup --test")?;
    for name in ["httpd", "sh", "sleep", "test", "wget"] {
        symlink("busybox", files.join("bin").join(name))?;
    }
    // A sandbox may not be allowed to raise limits as far as podman's defaults.
    fs::write(
        directory.join(SETTINGS_FILE_NAME),
        "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n",
    )?;
    let archive = directory.join("image.tar");
    run("tar", &[Path::new("-C"), &files, Path::new("-cf"), &archive, Path::new(".")])?;
    Ok(archive)
}

/// Removes the empty control groups of containers after a power cut. A real power cut would end them with the kernel.
pub fn remove_groups(machine: &Machine) {
    let containers = fs::read_dir(root(machine).join("vfs-containers"));
    for container in containers.into_iter().flatten().flatten() {
        let name = format!("libpod-{}", container.file_name().to_string_lossy());
        let groups = Path::new("/sys/fs/cgroup");
        let hierarchies = fs::read_dir(groups).into_iter().flatten().flatten().map(|entry| entry.path());
        for hierarchy in hierarchies.chain([groups.to_owned()]) {
            // Control groups that are missing or in use are skipped.
            for part in [name.clone(), format!("{name}/container"), name.replace("libpod-", "libpod-conmon-")]
            {
                let _ = fs::remove_dir(hierarchy.join("libpod_parent").join(part));
            }
        }
    }
}
