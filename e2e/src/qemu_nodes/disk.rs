//! The disk that turns the image into a node: programs, units, certificates and addresses, overlaid on the image at boot.

use std::fs::{self, Permissions};
use std::net::Ipv4Addr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::hardware::Watchdog;
use super::qemu;
use crate::binaries;
use crate::command::{run, tool};
use crate::machine::Machine;
use crate::plan::{FABRIC_DIRECTORY, SHARED_DIRECTORY, STORAGE_PORT};

/// Names of the programs on a node.
const PROGRAMS: [&str; 4] = ["ha-node-agent", "ha-exec-shim", "ha-watchdogd", "ha-holder"];
/// Size of the disk, including space for the node's own data.
const IMAGE_SIZE: &str = "512M";

/// Settings of a node that depend on its cluster.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Driver that ha-watchdogd loads.
    pub watchdog: Watchdog,
    /// URLs of the etcd members, separated by commas.
    pub endpoints: String,
    /// Directory with the cluster's certificates.
    pub certificates: PathBuf,
    /// Address of the node on the fabric.
    pub fabric_address: Ipv4Addr,
    /// Address of the storage behind the fabric.
    pub storage_address: Ipv4Addr,
    /// Directory of the storage that the node mounts.
    pub export: PathBuf,
}

/// Creates the disk of a node.
///
/// # Errors
/// Fails if a program has not been built, or if the disk cannot be written.
pub fn make_image(machine: &Machine, settings: &Settings) -> Result<()> {
    let tree = machine.directory.join("disk");
    let overlay = OverlayTree(tree.join("upper"));
    fs::create_dir_all(tree.join("work"))?;
    add_programs(&overlay)?;
    add_units(&overlay, settings.watchdog)?;
    add_identity(&overlay, machine)?;
    add_network(&overlay, machine, settings)?;
    add_storage(&overlay, settings)?;
    add_agent(&overlay, machine, settings)?;
    let (disk, tree_path) = (qemu::disk(machine), tree.display().to_string());
    let disk = disk.display().to_string();
    run(tool("mkfs.ext4"), &["-q", "-F", "-m", "0", "-d", &tree_path, &disk, IMAGE_SIZE])?;
    fs::remove_dir_all(&tree).with_context(|| tree.display().to_string())
}

/// Returns the path of a program on every node.
pub fn installed_path(program: &str) -> String {
    format!("/usr/bin/{program}")
}

fn add_programs(overlay: &OverlayTree) -> Result<()> {
    for name in PROGRAMS {
        let target = overlay.prepare_path(&installed_path(name))?;
        // Debug information is removed, which reduces the size to a tenth.
        let (from, to) = (binaries::workspace_program(name)?, target.display().to_string());
        run(tool("strip"), &["--strip-debug", "-o", &to, &from.display().to_string()])?;
        fs::set_permissions(&target, Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Copies the files of `manifests/` to the paths that their first lines give.
fn add_units(overlay: &OverlayTree, watchdog: Watchdog) -> Result<()> {
    let manifests = binaries::repository().join("manifests");
    for directory in fs::read_dir(manifests.join("systemd"))? {
        let path = directory?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_file() {
            overlay.copy_file(&path, &format!("/usr/lib/systemd/system/{name}"))?;
            continue;
        }
        let parent_directory = match name.as_str() {
            "system.conf.d" | "logind.conf.d" | "sleep.conf.d" => "/usr/lib/systemd",
            _ => "/usr/lib/systemd/system",
        };
        for file in fs::read_dir(&path)? {
            let file = file?.path();
            let file_name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            overlay.copy_file(&file, &format!("{parent_directory}/{name}/{file_name}"))?;
        }
    }
    for unit in ["ha-node-agent.service", "ha-watchdogd.service"] {
        let link = overlay.prepare_path(&format!("/etc/systemd/system/multi-user.target.wants/{unit}"))?;
        symlink(format!("/usr/lib/systemd/system/{unit}"), link)?;
    }
    let shipped = fs::read_to_string(manifests.join("default/ha-watchdogd"))?;
    let module = format!("\nWATCHDOG_MODULE={}\n", watchdog.module());
    overlay.write_file("/etc/default/ha-watchdogd", &(shipped + &module))
}

fn add_identity(overlay: &OverlayTree, machine: &Machine) -> Result<()> {
    let number: u128 = rand::random();
    overlay.write_file("/etc/machine-id", &format!("{number:032x}\n"))?;
    overlay.write_file("/etc/hostname", &format!("{}\n", machine.name))?;
    let console = "[Journal]\nStorage=volatile\nForwardToConsole=yes\nMaxLevelConsole=info\n";
    overlay.write_file("/etc/systemd/journald.conf.d/console.conf", console)
}

fn add_network(overlay: &OverlayTree, machine: &Machine, settings: &Settings) -> Result<()> {
    let device = |name: &str, address: Ipv4Addr| {
        format!(
            "ExecStart=/sbin/ip address replace {address}/24 dev {name}\nExecStart=/sbin/ip link set {name} up\n"
        )
    };
    let unit = format!(
        "[Unit]\nDescription=The addresses\nBefore=network-online.target\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
         ExecStart=/sbin/ip link set lo up\n{}{}",
        device("eth0", machine.address),
        device("eth1", settings.fabric_address)
    );
    overlay.add_unit("metal-network.service", "network-online.target", &unit)
}

/// Declares both mounts of the shared directory: directly from the hypervisor, and through the fabric, which may be closed during
/// the boot.
fn add_storage(overlay: &OverlayTree, settings: &Settings) -> Result<()> {
    let mount =
        format!("shared {SHARED_DIRECTORY} 9p trans=virtio,version=9p2000.L,cache=none,msize=131072 0 0\n");
    overlay.write_file("/etc/fstab", &mount)?;
    for directory in [SHARED_DIRECTORY, FABRIC_DIRECTORY] {
        // Only the directory is created; the file `x` never exists.
        overlay.prepare_path(&format!("{directory}/x"))?;
    }
    let Settings { storage_address, export, .. } = settings;
    let unit = format!(
        "[Unit]\nDescription=Storage behind the fabric\nAfter=metal-network.service\nStartLimitIntervalSec=0\n[Service]\n\
         Type=oneshot\nRemainAfterExit=yes\nRestart=on-failure\nRestartSec=1\nTimeoutStartSec=20\n\
         ExecStart=/bin/mount -t 9p -o trans=tcp,port={STORAGE_PORT},version=9p2000.L,uname=root,access=any,cache=none,aname={} \
         {storage_address} {FABRIC_DIRECTORY}\n",
        export.display()
    );
    overlay.add_unit("metal-storage.service", "multi-user.target", &unit)
}

fn add_agent(overlay: &OverlayTree, machine: &Machine, settings: &Settings) -> Result<()> {
    for (name, file) in [
        ("ca.pem", "ca.pem".to_owned()),
        ("node.pem", format!("{}.pem", machine.name)),
        ("node.key", format!("{}.key", machine.name)),
    ] {
        overlay.copy_file(&settings.certificates.join(file), &format!("/etc/hactl/{name}"))?;
    }
    let lines = [
        format!("node: {}", machine.name),
        format!("etcdEndpoints: [{}]", settings.endpoints),
        "etcdCa: /etc/hactl/ca.pem".to_owned(),
        "etcdCert: /etc/hactl/node.pem".to_owned(),
        "etcdKey: /etc/hactl/node.key".to_owned(),
    ];
    overlay.write_file("/etc/default/ha-node-agent", "NO_COLOR=1\n")?;
    overlay.write_file("/etc/hactl/agent.yaml", &(lines.join("\n") + "\n"))
}

/// A directory that becomes the root of a machine.
struct OverlayTree(PathBuf);

impl OverlayTree {
    /// Returns the path of a machine's file on the host, and creates its directory.
    fn prepare_path(&self, absolute: &str) -> Result<PathBuf> {
        let path = self.0.join(absolute.trim_start_matches('/'));
        let directory = path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        Ok(path)
    }

    fn write_file(&self, absolute: &str, text: &str) -> Result<()> {
        let path = self.prepare_path(absolute)?;
        fs::write(&path, text).with_context(|| path.display().to_string())
    }

    /// Writes a unit of the suite, wanted by `target`.
    fn add_unit(&self, name: &str, target: &str, text: &str) -> Result<()> {
        let path = format!("/etc/systemd/system/{name}");
        self.write_file(&path, text)?;
        let wants_link = self.prepare_path(&format!("/etc/systemd/system/{target}.wants/{name}"))?;
        symlink(&path, &wants_link).with_context(|| wants_link.display().to_string())
    }

    fn copy_file(&self, from: &Path, absolute: &str) -> Result<()> {
        let path = self.prepare_path(absolute)?;
        fs::copy(from, &path).map(|_| ()).with_context(|| from.display().to_string())
    }
}
