//! The plan of a cluster: number of machines and their settings.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::binaries;
use crate::command::{path_text, tool};
use crate::container;
use crate::init::Program;
use crate::libvirt::host;
use crate::lxc;
use crate::machine::{Machine, Role};
use crate::network::Network;
use crate::podman;
use crate::qemu_nodes::hardware::Hardware;
use crate::qemu_nodes::{disk, qemu};
use crate::registry::Lifetime;
use crate::upgrade;

/// Port for clients of etcd.
pub const ETCD_CLIENT_PORT: u16 = 2379;
/// Port for the peers of an etcd member.
pub const ETCD_PEER_PORT: u16 = 2380;
/// Port of the HTTP API.
pub const API_PORT: u16 = 7443;
/// File in a cluster's directory with the tokens that its controllers accept; absent until a token is created.
pub const TOKEN_FILE: &str = "tokens.yaml";
/// Path on every node of the directory that all nodes share.
pub const SHARED_DIRECTORY: &str = "/srv/shared";
/// Path of the same directory on a whole machine, reached through the fabric.
pub const FABRIC_DIRECTORY: &str = "/srv/fabric";
/// Port of the storage behind the fabric.
pub const STORAGE_PORT: u16 = 564;

/// Number of machines of each kind, and their settings.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each selects one independent part of the machines")]
pub struct Plan {
    /// Directory for data, logs and certificates.
    #[serde(rename = "folder")]
    pub directory: PathBuf,
    /// Condition that ends the cluster.
    pub lifetime: Lifetime,
    /// Number of etcd members.
    pub etcd: u8,
    /// Number of controllers.
    pub controllers: u8,
    /// Number of nodes.
    pub nodes: u8,
    /// `Cluster.spec.timing.profile`.
    pub profile: String,
    /// Hardware of nodes that are whole machines; `None` if nodes are process trees.
    pub hardware: Option<Hardware>,
    /// Systemd units of nodes that are system containers, as name and text; `None` if they are not.
    #[serde(default)]
    pub units: Option<Vec<(String, String)>>,
    /// `true` if nodes that are system containers start without daemons, which the test then installs.
    #[serde(default)]
    pub bare: bool,
    /// Quota of etcd's database, in bytes; `None` for etcd's default.
    pub store_bytes: Option<u64>,
    /// Size of a separate disk for each node's journal, in kilobytes; `None` for no separate disk.
    pub disk_kilobytes: Option<u32>,
    /// `true` if each node has its own podman.
    pub podman: bool,
    /// `true` if each node has its own LXC.
    #[serde(default)]
    pub lxc: bool,
    /// `true` if each node has its own libvirt.
    pub libvirt: bool,
    /// Policies of nodes and controllers as YAML, by name of the machine.
    #[serde(default)]
    pub policies: BTreeMap<String, String>,
    /// Directory of an older build's programs, with which controllers and nodes start until `upgrade::upgrade`. `None` for the
    /// programs of this build.
    #[serde(default)]
    pub old_binaries: Option<PathBuf>,
}

impl Plan {
    /// Returns a plan of three machines of each kind with the fast timing profile. The cluster ends with this process.
    pub fn test(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            lifetime: Lifetime::Owner,
            etcd: 3,
            controllers: 3,
            nodes: 3,
            profile: "Fast".to_owned(),
            hardware: None,
            units: None,
            bare: false,
            store_bytes: None,
            disk_kilobytes: None,
            podman: false,
            lxc: false,
            libvirt: false,
            policies: BTreeMap::new(),
            old_binaries: None,
        }
    }

    /// Returns the machines with their daemons, in the order of their starts.
    ///
    /// # Errors
    /// Fails if a program has not been built or is not found.
    pub fn machines(&self, network: &Network, volatile: &Path) -> Result<Vec<Machine>> {
        let layout = Layout { plan: self, network, volatile };
        let mut machines = Vec::new();
        for index in 1..=self.etcd {
            machines.push(layout.etcd(index)?);
        }
        for index in 1..=self.controllers {
            machines.push(layout.controller(index)?);
        }
        if self.hardware.is_some() {
            machines.push(layout.storage());
        }
        for index in 1..=self.nodes {
            machines.push(match &self.hardware {
                None if self.units.is_some() => {
                    container::convert_to_container(&layout.node(index)?, &network.run, &self.directory)?
                }
                None => layout.node(index)?,
                Some(hardware) => layout.metal_node(index, hardware),
            });
        }
        Ok(machines)
    }

    /// Returns the settings for the disk of a node that is a whole machine; `None` for other machines.
    pub fn disk_settings(&self, machine: &Machine, network: &Network) -> Option<disk::Settings> {
        let index = machine.number.checked_sub(FIRST_NODE_NUMBER).filter(|_| machine.role == Role::Node)?;
        Some(disk::Settings {
            watchdog: self.hardware.as_ref()?.watchdog(index),
            endpoints: endpoints(self, network),
            certificates: self.certificates(),
            fabric_address: network.fabric_address(machine.number),
            storage_address: network.fabric_address(STORAGE_NUMBER),
            export: self.shared_directory(),
        })
    }

    /// Returns the daemons of a node that is a system container; `None` for other machines.
    ///
    /// # Errors
    /// Fails if a program has not been built.
    pub fn contained_daemons(
        &self,
        machine: &Machine,
        network: &Network,
        volatile: &Path,
    ) -> Result<Option<Vec<Program>>> {
        let index = machine.number.checked_sub(FIRST_NODE_NUMBER).filter(|_| machine.role == Role::Node);
        let Some(index) = index.filter(|_| self.units.is_some()) else { return Ok(None) };
        if self.bare {
            return Ok(Some(Vec::new()));
        }
        let layout = Layout { plan: self, network, volatile };
        layout.node(index).map(|node| Some(node.programs))
    }

    /// Returns the directory with the certificates.
    pub fn certificates(&self) -> PathBuf {
        self.directory.join("tls")
    }

    /// Returns the directory with the certificates of etcd's peers. They have an authority of their own, because etcd's
    /// users and roles do not apply to the peer port.
    pub fn peer_certificates(&self) -> PathBuf {
        self.certificates().join("peers")
    }

    /// Returns the directory that all nodes share, as a path on the host.
    pub fn shared_directory(&self) -> PathBuf {
        self.directory.join("shared")
    }
}

/// Offsets of the address numbers by role. The first machine of a role has the next number.
const FIRST_ETCD_NUMBER: u8 = 10;
const FIRST_CONTROLLER_NUMBER: u8 = 60;
const FIRST_NODE_NUMBER: u8 = 110;
/// Number of the machine that serves the storage behind the fabric.
const STORAGE_NUMBER: u8 = 200;

struct Layout<'a> {
    plan: &'a Plan,
    network: &'a Network,
    volatile: &'a Path,
}

impl Layout<'_> {
    fn etcd(&self, index: u8) -> Result<Machine> {
        let (name, address) = (format!("etcd{index}"), self.network.address(FIRST_ETCD_NUMBER + index));
        let peers: Vec<String> = (1..=self.plan.etcd)
            .map(|peer| {
                format!(
                    "etcd{peer}=https://{}:{ETCD_PEER_PORT}",
                    self.network.address(FIRST_ETCD_NUMBER + peer)
                )
            })
            .collect();
        let client = format!("https://{address}:{ETCD_CLIENT_PORT}");
        let peer = format!("https://{address}:{ETCD_PEER_PORT}");
        let data = self.plan.directory.join("machines").join(&name).join("data");
        let peer_certificates = self.plan.peer_certificates();
        let mut command = vec![path_text(&binaries::etcd()?)];
        command.extend(flags(&[
            ("name", &name),
            ("data-dir", &path_text(&data)),
            ("listen-client-urls", &client),
            ("advertise-client-urls", &client),
            ("listen-peer-urls", &peer),
            ("initial-advertise-peer-urls", &peer),
            ("initial-cluster", &peers.join(",")),
            ("initial-cluster-token", &self.network.run),
            ("auto-compaction-mode", "periodic"),
            ("auto-compaction-retention", "5m"),
            ("cert-file", &self.certificate(&name)),
            ("key-file", &self.key(&name)),
            ("trusted-ca-file", &self.certificate("ca")),
            ("peer-cert-file", &path_text(&peer_certificates.join(format!("{name}.pem")))),
            ("peer-key-file", &path_text(&peer_certificates.join(format!("{name}.key")))),
            ("peer-trusted-ca-file", &path_text(&peer_certificates.join("ca.pem"))),
            ("log-level", "warn"),
        ]));
        command.extend(["--client-cert-auth", "--peer-client-cert-auth"].map(str::to_owned));
        command.extend(self.plan.store_bytes.map(|bytes| format!("--quota-backend-bytes={bytes}")));
        // A power cut in this suite ends processes, not the kernel, so written data is not lost. With fsync, a slow disk would
        // dominate the times.
        command.push("--unsafe-no-fsync".to_owned());
        Ok(self.machine(&name, Role::Etcd, FIRST_ETCD_NUMBER + index, vec![program("etcd", command)]))
    }

    /// Returns the path of a machine's program in this build. With `old_binaries`, returns a script that runs the older program
    /// until the upgrade.
    fn program_path(&self, machine: &str, name: &str) -> Result<PathBuf> {
        match &self.plan.old_binaries {
            Some(old) => upgrade::write_script(&self.plan.directory, machine, name, old),
            None => binaries::workspace_program(name),
        }
    }

    fn controller(&self, index: u8) -> Result<Machine> {
        let (name, address) =
            (format!("controller{index}"), self.network.address(FIRST_CONTROLLER_NUMBER + index));
        let machine = self.machine(&name, Role::Controller, FIRST_CONTROLLER_NUMBER + index, Vec::new());
        let fence_agents = binaries::workspace_program("fence_sandbox")?;
        let mut command = vec![path_text(&self.program_path(&name, "ha-controller")?)];
        command.extend(self.store_flags(&name));
        command.extend(flags(&[
            ("id", &name),
            ("state-dir", &path_text(&machine.state())),
            ("machine", &name),
            ("listen", &format!("{address}:{API_PORT}")),
            ("advertise-url", &format!("https://{address}:{API_PORT}")),
            ("tls-cert", &self.certificate(&name)),
            ("tls-key", &self.key(&name)),
            ("client-ca", &self.certificate("ca")),
            ("authorization", "Roles"),
            ("socket", &path_text(&api_socket(&machine))),
            ("client-crl", &self.certificate("crl")),
            ("token-file", &path_text(&self.plan.directory.join(TOKEN_FILE))),
            ("audit-log", &path_text(&audit_log(&machine))),
            ("fence-agent-path", &path_text(fence_agents.parent().unwrap_or(&fence_agents))),
        ]));
        if let Some(policy) = self.plan.policies.get(&name) {
            command.extend(flags(&[("policy", policy)]));
        }
        Ok(Machine { programs: vec![program("ha-controller", command)], ..machine })
    }

    fn node(&self, index: u8) -> Result<Machine> {
        let (name, address) = (format!("node{index}"), self.network.address(FIRST_NODE_NUMBER + index));
        let mut machine = self.machine(&name, Role::Node, FIRST_NODE_NUMBER + index, Vec::new());
        let socket = machine.volatile.join("watchdogd.sock");
        let mut watchdog = vec![path_text(&self.program_path(&name, "ha-watchdogd")?)];
        watchdog.extend(flags(&[
            ("socket", &path_text(&socket)),
            ("simulated", &path_text(&simulated_watchdog_socket(&machine))),
        ]));
        let mut agent = vec![path_text(&self.program_path(&name, "ha-node-agent")?)];
        agent.extend(self.store_flags(&name));
        agent.extend(flags(&[
            ("node", &name),
            ("state-dir", &path_text(&machine.state())),
            ("simulated-dir", &path_text(&self.plan.directory.join("simulated"))),
            ("boot-id-file", &path_text(&machine.boot_id_file())),
            ("machine-id-file", &path_text(&machine.machine_id_file())),
            ("watchdog-socket", &path_text(&socket)),
            // The agent must never use the socket of the host.
            ("podman-socket", &path_text(&podman::socket(&machine))),
            ("admin-listen", &format!("{}:7444", self.admin_address(address))),
        ]));
        if let Some(policy) = self.plan.policies.get(&name) {
            agent.extend(flags(&[("policy", policy)]));
        }
        machine.programs = vec![program("ha-watchdogd", watchdog)];
        if self.plan.podman {
            let archive = podman::archive(&self.plan.directory.join(&name))?;
            machine.programs.push(podman::program(&machine, &archive));
            agent = podman::with_setup(&machine, agent);
        }
        if self.plan.lxc {
            agent.extend(flags(&[("lxc-path", &path_text(&lxc::path(&machine)))]));
            agent = lxc::with_setup(&machine, agent);
        }
        if self.plan.libvirt {
            let names: Vec<(String, Ipv4Addr)> = (1..=self.plan.nodes)
                .map(|index| (format!("node{index}"), self.network.address(FIRST_NODE_NUMBER + index)))
                .collect();
            machine.programs.push(program(host::PROGRAM, host::command(&machine, index, &names)));
            agent = host::after_libvirt(agent);
        }
        machine.programs.push(program("ha-node-agent", agent));
        machine.bind_mounts = vec![(self.plan.shared_directory(), PathBuf::from(SHARED_DIRECTORY))];
        Ok(machine)
    }

    /// Returns the machine that serves the storage. It is a separate file server, so a write that passed the fabric is
    /// immediately in the host's files.
    fn storage(&self) -> Machine {
        let address = self.network.fabric_address(STORAGE_NUMBER);
        let machine = self.machine("storage", Role::Storage, STORAGE_NUMBER, Vec::new());
        // The server rejects clients without a host name, and no name service exists.
        let names = (1..=self.plan.nodes)
            .map(|index| format!("{} node{index}", self.network.fabric_address(FIRST_NODE_NUMBER + index)));
        let script = r#"printf '%s\n' "$1" >"$0" && mount --bind "$0" /etc/hosts && shift && exec "$@""#;
        let hosts = path_text(&machine.directory.join("hosts"));
        let mut command =
            ["sh", "-c", script, &hosts, &names.collect::<Vec<_>>().join("\n")].map(str::to_owned).to_vec();
        command.push(tool("diod"));
        command.extend(flags(&[
            ("listen", &format!("{address}:{STORAGE_PORT}")),
            ("export", &path_text(&self.plan.shared_directory())),
            ("config-file", "/dev/null"),
            ("logdest", "stderr"),
        ]));
        command.extend(["--foreground", "--no-auth", "--no-userdb"].map(str::to_owned));
        Machine { address, programs: vec![program("diod", command)], ..machine }
    }

    fn metal_node(&self, index: u8, hardware: &Hardware) -> Machine {
        let name = format!("node{index}");
        let mut machine = self.machine(&name, Role::Node, FIRST_NODE_NUMBER + index, Vec::new());
        let command =
            qemu::command(hardware, hardware.watchdog(index), &machine, &self.plan.shared_directory());
        machine.programs = vec![program(qemu::PROGRAM, command)];
        machine
    }

    /// Returns loopback, which each namespace has for itself, or without namespaces the machine's own address.
    fn admin_address(&self, address: Ipv4Addr) -> Ipv4Addr {
        if self.network.namespaces { Ipv4Addr::LOCALHOST } else { address }
    }

    fn machine(&self, name: &str, role: Role, number: u8, programs: Vec<Program>) -> Machine {
        Machine {
            name: name.to_owned(),
            role,
            number,
            address: self.network.address(number),
            directory: self.plan.directory.join("machines").join(name),
            volatile: self.volatile.join(name),
            programs,
            bind_mounts: Vec::new(),
            holder: None,
            init: None,
            watchdog: None,
        }
    }

    /// Returns the flags by which a daemon reaches etcd.
    fn store_flags(&self, name: &str) -> Vec<String> {
        flags(&[
            ("etcd-endpoints", &endpoints(self.plan, self.network)),
            ("cluster", "default"),
            ("etcd-ca", &self.certificate("ca")),
            ("etcd-cert", &self.certificate(name)),
            ("etcd-key", &self.key(name)),
        ])
    }

    fn certificate(&self, name: &str) -> String {
        path_text(&self.plan.certificates().join(format!("{name}.pem")))
    }

    fn key(&self, name: &str) -> String {
        path_text(&self.plan.certificates().join(format!("{name}.key")))
    }
}

/// Returns the Unix socket of a controller's API.
pub fn api_socket(machine: &Machine) -> PathBuf {
    machine.volatile.join("api.sock")
}

/// Returns the audit log of a controller.
pub fn audit_log(machine: &Machine) -> PathBuf {
    machine.state().join("audit.jsonl")
}

/// Returns the socket of a node's simulated watchdog.
pub fn simulated_watchdog_socket(machine: &Machine) -> PathBuf {
    machine.volatile.join("watchdog-standin.sock")
}

/// Returns the URLs of the etcd members, separated by commas.
pub fn endpoints(plan: &Plan, network: &Network) -> String {
    let members: Vec<String> = (1..=plan.etcd)
        .map(|index| format!("https://{}:{ETCD_CLIENT_PORT}", network.address(FIRST_ETCD_NUMBER + index)))
        .collect();
    members.join(",")
}

fn program(name: &str, command: Vec<String>) -> Program {
    Program { name: name.to_owned(), command, environment: [("NO_COLOR".to_owned(), "1".to_owned())].into() }
}

fn flags(pairs: &[(&str, &str)]) -> Vec<String> {
    pairs.iter().flat_map(|(name, value)| [format!("--{name}"), (*value).to_owned()]).collect()
}
