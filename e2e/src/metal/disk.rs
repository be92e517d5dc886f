//! The disk that makes a machine a node: programs, units, certificates, addresses, laid over the image at boot.

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
use crate::plan::{FABRIC, SHARED, STORAGE_PORT};

/// Programs that a node has.
const PROGRAMS: [&str; 4] = ["ha-node-agent", "ha-exec-shim", "ha-watchdogd", "ha-holder"];
/// Room for what a node writes.
const SIZE: &str = "512M";

/// What a node has to know of its cluster.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The driver that ha-watchdogd is told to load.
    pub watchdog: Watchdog,
    /// The store's addresses, separated by commas.
    pub endpoints: String,
    /// The folder with the cluster's certificates.
    pub certificates: PathBuf,
    /// Its address on the fabric.
    pub fabric_address: Ipv4Addr,
    /// Where the storage behind the fabric is.
    pub storage_address: Ipv4Addr,
    /// The folder that is asked for there.
    pub export: PathBuf,
}

/// Makes the disk of a node.
///
/// # Errors
/// When a program has not been built, or the disk cannot be written.
pub fn make(machine: &Machine, settings: &Settings) -> Result<()> {
    let tree = machine.folder.join("disk");
    let upper = Tree(tree.join("upper"));
    fs::create_dir_all(tree.join("work"))?;
    programs(&upper)?;
    units(&upper, settings.watchdog)?;
    identity(&upper, machine)?;
    network(&upper, machine, settings)?;
    storage(&upper, settings)?;
    agent(&upper, machine, settings)?;
    let (disk, tree_path) = (qemu::disk(machine), tree.display().to_string());
    let disk = disk.display().to_string();
    run(tool("mkfs.ext4"), &["-q", "-F", "-m", "0", "-d", &tree_path, &disk, SIZE])?;
    fs::remove_dir_all(&tree).with_context(|| tree.display().to_string())
}

/// Where a program is on every node.
pub fn installed(program: &str) -> String {
    format!("/usr/bin/{program}")
}

fn programs(upper: &Tree) -> Result<()> {
    for name in PROGRAMS {
        let target = upper.path(&installed(name))?;
        // Without what only a debugger reads: a tenth of the size.
        let (from, to) = (binaries::own(name)?, target.display().to_string());
        run(tool("strip"), &["--strip-debug", "-o", &to, &from.display().to_string()])?;
        fs::set_permissions(&target, Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// The very files of `manifests/`, where their first lines say they belong.
fn units(upper: &Tree, watchdog: Watchdog) -> Result<()> {
    let manifests = binaries::repository().join("manifests");
    for folder in fs::read_dir(manifests.join("systemd"))? {
        let path = folder?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_file() {
            upper.copy(&path, &format!("/usr/lib/systemd/system/{name}"))?;
            continue;
        }
        let place = match name.as_str() {
            "system.conf.d" | "logind.conf.d" | "sleep.conf.d" => "/usr/lib/systemd",
            _ => "/usr/lib/systemd/system",
        };
        for file in fs::read_dir(&path)? {
            let file = file?.path();
            let within = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            upper.copy(&file, &format!("{place}/{name}/{within}"))?;
        }
    }
    for unit in ["ha-node-agent.service", "ha-watchdogd.service"] {
        let link = upper.path(&format!("/etc/systemd/system/multi-user.target.wants/{unit}"))?;
        symlink(format!("/usr/lib/systemd/system/{unit}"), link)?;
    }
    let shipped = fs::read_to_string(manifests.join("default/ha-watchdogd"))?;
    let module = format!("\nWATCHDOG_MODULE={}\n", watchdog.module());
    upper.write("/etc/default/ha-watchdogd", &(shipped + &module))
}

fn identity(upper: &Tree, machine: &Machine) -> Result<()> {
    let number: u128 = rand::random();
    upper.write("/etc/machine-id", &format!("{number:032x}\n"))?;
    upper.write("/etc/hostname", &format!("{}\n", machine.name))?;
    let console = "[Journal]\nStorage=volatile\nForwardToConsole=yes\nMaxLevelConsole=info\n";
    upper.write("/etc/systemd/journald.conf.d/console.conf", console)
}

fn network(upper: &Tree, machine: &Machine, settings: &Settings) -> Result<()> {
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
    upper.unit("metal-network.service", "network-online.target", &unit)
}

/// The shared folder, twice: as the hypervisor gives it, and through the fabric, which may be closed while the machine boots.
fn storage(upper: &Tree, settings: &Settings) -> Result<()> {
    let mount = format!("shared {SHARED} 9p trans=virtio,version=9p2000.L,cache=none,msize=131072 0 0\n");
    upper.write("/etc/fstab", &mount)?;
    for folder in [SHARED, FABRIC] {
        // The file is never made, the folder for it is.
        upper.path(&format!("{folder}/x"))?;
    }
    let Settings { storage_address, export, .. } = settings;
    let unit = format!(
        "[Unit]\nDescription=Storage behind the fabric\nAfter=metal-network.service\nStartLimitIntervalSec=0\n[Service]\n\
         Type=oneshot\nRemainAfterExit=yes\nRestart=on-failure\nRestartSec=1\nTimeoutStartSec=20\n\
         ExecStart=/bin/mount -t 9p -o trans=tcp,port={STORAGE_PORT},version=9p2000.L,uname=root,access=any,cache=none,aname={} \
         {storage_address} {FABRIC}\n",
        export.display()
    );
    upper.unit("metal-storage.service", "multi-user.target", &unit)
}

fn agent(upper: &Tree, machine: &Machine, settings: &Settings) -> Result<()> {
    for (name, file) in [
        ("ca.pem", "ca.pem".to_owned()),
        ("node.pem", format!("{}.pem", machine.name)),
        ("node.key", format!("{}.key", machine.name)),
    ] {
        upper.copy(&settings.certificates.join(file), &format!("/etc/hactl/{name}"))?;
    }
    let lines = [
        format!("node: {}", machine.name),
        format!("etcdEndpoints: [{}]", settings.endpoints),
        "etcdCa: /etc/hactl/ca.pem".to_owned(),
        "etcdCert: /etc/hactl/node.pem".to_owned(),
        "etcdKey: /etc/hactl/node.key".to_owned(),
    ];
    upper.write("/etc/default/ha-node-agent", "NO_COLOR=1\n")?;
    upper.write("/etc/hactl/agent.yaml", &(lines.join("\n") + "\n"))
}

/// A folder that becomes the root of a machine.
struct Tree(PathBuf);

impl Tree {
    /// Where a file of the machine is written, its folder being there.
    fn path(&self, absolute: &str) -> Result<PathBuf> {
        let path = self.0.join(absolute.trim_start_matches('/'));
        let folder = path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        Ok(path)
    }

    fn write(&self, absolute: &str, text: &str) -> Result<()> {
        let path = self.path(absolute)?;
        fs::write(&path, text).with_context(|| path.display().to_string())
    }

    /// A unit of the suite's own, which `target` wants.
    fn unit(&self, name: &str, target: &str, text: &str) -> Result<()> {
        let path = format!("/etc/systemd/system/{name}");
        self.write(&path, text)?;
        let wanted = self.path(&format!("/etc/systemd/system/{target}.wants/{name}"))?;
        symlink(&path, &wanted).with_context(|| wanted.display().to_string())
    }

    fn copy(&self, from: &Path, absolute: &str) -> Result<()> {
        let path = self.path(absolute)?;
        fs::copy(from, &path).map(|_| ()).with_context(|| from.display().to_string())
    }
}
