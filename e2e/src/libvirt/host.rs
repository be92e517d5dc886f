//! The libvirt of a node.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use crate::command::tool;
use crate::machine::Machine;

/// Name of libvirt's program on a node.
pub const PROGRAM: &str = "libvirtd";
/// Path of a guest's console on the guest's node.
pub const CONSOLE: &str = "/var/lib/libvirt/hactl-console.log";

/// Mounts the node's own directories over libvirt's, once a boot, and then executes libvirtd.
///
/// libvirtd requires no password, because the network belongs to the test. Machines that share a kernel cannot share control
/// groups or device nodes, so both are disabled.
const SCRIPT: &str = r#"
own=$1 volatile=$2 names=$3 uuid=$4 daemon=$5
set -e
if ! mountpoint -q /etc/libvirt; then
  mkdir -p "$own/etc" "$own/var" "$own/log" "$own/cache" "$volatile" /run/libvirt /var/lib/libvirt /var/log/libvirt /var/cache/libvirt
  cp -a /etc/libvirt/. "$own/etc/"
  printf '%s\n' 'listen_tls = 0' 'listen_tcp = 1' 'listen_addr = "0.0.0.0"' 'auth_tcp = "none"' 'auth_unix_rw = "none"' \
    'unix_sock_group = "root"' "host_uuid = \"$uuid\"" >"$own/etc/libvirtd.conf"
  printf '%s\n' 'user = "root"' 'group = "root"' 'security_driver = "none"' 'cgroup_controllers = []' 'namespaces = []' \
    'stdio_handler = "file"' 'dynamic_ownership = 0' 'remember_owner = 0' >"$own/etc/qemu.conf"
  printf '%s\n' "$names" >"$own/hosts"
  mount --bind "$own/hosts" /etc/hosts
  mount --bind "$volatile" /run/libvirt
  mount --bind "$own/var" /var/lib/libvirt
  mount --bind "$own/log" /var/log/libvirt
  mount --bind "$own/cache" /var/cache/libvirt
  mount --bind "$own/etc" /etc/libvirt
fi
exec "$daemon" --listen --pid-file /run/libvirt/libvirtd.pid
"#;

/// Waits until libvirt responds, then executes a program. An agent probes its drivers when it starts, and not again soon.
const WAIT: &str = r#"until virsh -q -c qemu:///system uri >/dev/null 2>&1; do sleep 0.1; done; exec "$@""#;

/// Returns the command that starts a node's libvirt. `names` lists all nodes with their addresses.
pub fn command(machine: &Machine, index: u8, names: &[(String, Ipv4Addr)]) -> Vec<String> {
    let hosts: Vec<String> = names.iter().map(|(name, address)| format!("{address} {name}")).collect();
    [
        "sh".to_owned(),
        "-c".to_owned(),
        SCRIPT.to_owned(),
        PROGRAM.to_owned(),
        libvirt_directory(machine).to_string_lossy().into_owned(),
        machine.volatile.join("libvirt").to_string_lossy().into_owned(),
        format!("127.0.0.1 localhost\n{}", hosts.join("\n")),
        format!("1111111{index}-2222-3333-4444-55555555555{index}"),
        tool(PROGRAM),
    ]
    .to_vec()
}

/// Returns a command that starts once the node's libvirt responds.
pub fn after_libvirt(command: Vec<String>) -> Vec<String> {
    ["sh", "-c", WAIT, "wait"].map(str::to_owned).into_iter().chain(command).collect()
}

/// Returns the path of a node's console file on the host.
pub fn console(machine: &Machine) -> PathBuf {
    let inside = Path::new(CONSOLE).strip_prefix("/var/lib/libvirt").unwrap_or(Path::new(CONSOLE));
    libvirt_directory(machine).join("var").join(inside)
}

fn libvirt_directory(machine: &Machine) -> PathBuf {
    machine.directory.join("libvirt")
}
