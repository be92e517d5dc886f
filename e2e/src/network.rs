//! The cluster's network: a bridge, a link for each machine, and network faults. Whole machines have a second network, the
//! fabric, through which they reach their storage.
//!
//! As root, every machine has a network namespace with one address. The host has the first address of the bridge, so that
//! kubectl, hactl and a browser can reach the machines. Without root, all machines share the loopback interface, each with its
//! own address, and no link can be cut.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::command::{output, run, tool};

/// Returns a free TCP port of loopback, for programs that share this machine's network.
///
/// # Errors
/// Fails if no port is free.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Addresses and names of one run's network.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Network {
    /// Identifier of the run.
    pub run: String,
    /// Third octet of every address.
    pub slot: u8,
    /// `true` if machines have network namespaces, `false` if they share the loopback interface.
    pub namespaces: bool,
}

/// Name of the fabric's switch, in the namespace of the storage machine.
const SWITCH: &str = "switch";

/// A selection of a machine's packets to drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketFilter {
    /// All packets that the machine sends.
    Sent,
    /// All packets that the machine receives.
    Received,
    /// All packets from or to this TCP port, on either end.
    Port(u16),
    /// All packets that the machine sends to another machine.
    To(Ipv4Addr),
    /// All packets that the machine receives from another machine.
    From(Ipv4Addr),
    /// A random part of the received packets, in percent.
    Percent(u8),
    /// Received packets above this rate, in kilobytes a second.
    Above(u32),
}

impl Network {
    /// Returns the address of the machine with this number (2 to 254).
    ///
    /// 198.18.0.0/15 is reserved for benchmarking networks (RFC 2544), so it should not collide with real networks.
    pub fn address(&self, number: u8) -> Ipv4Addr {
        if self.namespaces {
            Ipv4Addr::new(198, 18, self.slot, number)
        } else {
            // Slots are counted per user, so the clusters of other users need other addresses.
            let user = u8::try_from(nix::unistd::getuid().as_raw() % 250).unwrap_or_default();
            Ipv4Addr::new(127, 1 + user, self.slot, number)
        }
    }

    /// Returns the address of a machine on the fabric.
    pub fn fabric_address(&self, number: u8) -> Ipv4Addr {
        Ipv4Addr::new(198, 19, self.slot, number)
    }

    /// Returns the name of a machine's network namespace.
    pub fn namespace(&self, machine: &str) -> String {
        format!("{}-{machine}", self.run)
    }

    fn bridge(&self) -> String {
        format!("hab{}", self.slot)
    }

    fn link(&self, number: u8) -> String {
        format!("{}{number}", self.link_prefix())
    }

    fn link_prefix(&self) -> String {
        format!("ha{}v", self.slot)
    }

    /// Creates the bridge.
    ///
    /// # Errors
    /// Fails if the kernel refuses. The error contains the output of `ip`.
    pub fn create(&self) -> Result<()> {
        if !self.namespaces {
            return Ok(());
        }
        let bridge = self.bridge();
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        ip(&["address", "add", &format!("{}/24", self.address(1)), "dev", &bridge])?;
        ip(&["link", "set", &bridge, "up"])
    }

    /// Creates a machine's namespace and connects it to the bridge.
    ///
    /// # Errors
    /// Fails if the kernel refuses. The error contains the output of `ip`.
    pub fn attach(&self, machine: &str, number: u8) -> Result<()> {
        if !self.namespaces {
            return Ok(());
        }
        let (namespace, link, bridge) = (self.namespace(machine), self.link(number), self.bridge());
        ip(&["netns", "add", &namespace])?;
        ip(&["link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &namespace])?;
        ip(&["link", "set", &link, "master", &bridge, "up"])?;
        ip(&["-n", &namespace, "address", "add", &format!("{}/24", self.address(number)), "dev", "eth0"])?;
        ip(&["-n", &namespace, "link", "set", "eth0", "up"])?;
        ip(&["-n", &namespace, "link", "set", "lo", "up"])
    }

    /// Gives a booting machine its own address and removes all other addresses, like a real boot.
    ///
    /// # Errors
    /// Fails if the kernel refuses. The error contains the output of `ip`.
    pub fn replace_addresses(&self, machine: &str, number: u8) -> Result<()> {
        if !self.namespaces {
            return Ok(());
        }
        self.remove_addresses(machine)?;
        let address = format!("{}/24", self.address(number));
        ip(&["-n", &self.namespace(machine), "address", "add", &address, "dev", "eth0"])
    }

    /// Removes all addresses of a machine that is off. Otherwise the namespace, which still exists, would respond for them.
    ///
    /// # Errors
    /// Fails if the kernel refuses. The error contains the output of `ip`.
    pub fn remove_addresses(&self, machine: &str) -> Result<()> {
        if !self.namespaces {
            return Ok(());
        }
        ip(&["-4", "-n", &self.namespace(machine), "address", "flush", "dev", "eth0"])
    }

    /// Returns the shell command by which a simulated watchdog removes the machine's addresses; see [`Network::shut`].
    pub fn remove_addresses_command(&self, machine: &str) -> Option<String> {
        let namespace = self.namespace(machine);
        self.namespaces.then(|| format!("{} -4 -n {namespace} address flush dev eth0", tool("ip")))
    }

    /// Creates the namespace of the storage machine, with the fabric's switch in it.
    ///
    /// # Errors
    /// Fails without namespaces, or if the kernel refuses.
    pub fn attach_storage(&self, machine: &str, number: u8) -> Result<()> {
        self.require_namespaces()?;
        let namespace = self.namespace(machine);
        let address = format!("{}/24", self.fabric_address(number));
        ip(&["netns", "add", &namespace])?;
        ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
        ip(&["-n", &namespace, "link", "add", SWITCH, "type", "bridge"])?;
        ip(&["-n", &namespace, "address", "add", &address, "dev", SWITCH])?;
        ip(&["-n", &namespace, "link", "set", SWITCH, "up"])
    }

    /// Creates a namespace for a whole machine and connects its two network devices. The first leads to the bridge. The second
    /// leads to the port of the fabric's switch with the machine's name.
    ///
    /// # Errors
    /// Fails without namespaces, or if the kernel refuses.
    pub fn attach_virtual_machine(
        &self,
        machine: &str,
        number: u8,
        taps: [&str; 2],
        storage: &str,
    ) -> Result<()> {
        self.require_namespaces()?;
        let (namespace, link, bridge) = (self.namespace(machine), self.link(number), self.bridge());
        let switch = self.namespace(storage);
        ip(&["netns", "add", &namespace])?;
        ip(&["link", "add", &link, "type", "veth", "peer", "name", "eth0", "netns", &namespace])?;
        ip(&["link", "set", &link, "master", &bridge, "up"])?;
        ip(&[
            "-n", &switch, "link", "add", machine, "type", "veth", "peer", "name", "eth1", "netns",
            &namespace,
        ])?;
        ip(&["-n", &switch, "link", "set", machine, "master", SWITCH, "up"])?;
        for (index, (port, tap)) in ["eth0", "eth1"].into_iter().zip(taps).enumerate() {
            self.connect_tap(machine, &format!("plug{index}"), [port, tap])?;
        }
        Ok(())
    }

    /// Connects a machine's network device to a link of its namespace.
    fn connect_tap(&self, machine: &str, bridge: &str, [link, tap]: [&str; 2]) -> Result<()> {
        let namespace = self.namespace(machine);
        let ip_inside = |arguments: &[&str]| ip(&[&["-n", namespace.as_str()], arguments].concat());
        ip_inside(&["link", "add", bridge, "type", "bridge"])?;
        ip_inside(&["tuntap", "add", tap, "mode", "tap"])?;
        for port in [link, tap] {
            ip_inside(&["link", "set", port, "master", bridge, "up"])?;
        }
        ip_inside(&["link", "set", bridge, "up"])
    }

    /// Takes the machine's link down. No packet passes, and connections hang.
    ///
    /// # Errors
    /// Fails without namespaces, or if the kernel refuses.
    pub fn cut(&self, number: u8) -> Result<()> {
        self.require_namespaces()?;
        ip(&["link", "set", &self.link(number), "down"])
    }

    /// Removes every network fault of a machine.
    ///
    /// # Errors
    /// Fails without namespaces, or if the kernel refuses.
    pub fn heal(&self, machine: &str, number: u8) -> Result<()> {
        self.require_namespaces()?;
        ip(&["link", "set", &self.link(number), "up"])?;
        self.in_namespace(machine, &[&tool("nft"), "flush", "ruleset"])
    }

    /// Drops the packets of a machine that match `filter`, until [`Network::heal`].
    ///
    /// # Errors
    /// Fails without namespaces, or if the kernel refuses.
    pub fn drop_packets(&self, machine: &str, filter: PacketFilter) -> Result<()> {
        self.require_namespaces()?;
        let (hooks, rule): (&[&str], String) = match filter {
            PacketFilter::Sent => (&["output"], "oifname eth0 drop".to_owned()),
            PacketFilter::Received => (&["input"], "iifname eth0 drop".to_owned()),
            PacketFilter::To(address) => (&["output"], format!("ip daddr {address} drop")),
            PacketFilter::From(address) => (&["input"], format!("ip saddr {address} drop")),
            PacketFilter::Percent(percent) => {
                (&["input"], format!("iifname eth0 numgen random mod 100 < {percent} drop"))
            }
            PacketFilter::Above(kilobytes) => {
                (&["input"], format!("iifname eth0 limit rate over {kilobytes} kbytes/second drop"))
            }
            PacketFilter::Port(port) => {
                (&["input", "output"], format!("tcp dport {port} drop; tcp sport {port} drop"))
            }
        };
        let mut program = vec!["add table inet hactl".to_owned()];
        for hook in hooks {
            program.push(format!("add chain inet hactl {hook} {{ type filter hook {hook} priority 0; }}"));
            program.extend(rule.split("; ").map(|part| format!("add rule inet hactl {hook} {part}")));
        }
        self.in_namespace(machine, &[&tool("nft"), &program.join("\n")])
    }

    fn in_namespace(&self, machine: &str, command: &[&str]) -> Result<()> {
        let namespace = self.namespace(machine);
        let mut arguments = vec!["netns", "exec", namespace.as_str()];
        arguments.extend(command);
        ip(&arguments)
    }

    /// Removes the bridge and all namespaces of the run, as far as they exist.
    ///
    /// # Errors
    /// Fails if a part of the network cannot be removed.
    pub fn remove(&self) -> Result<()> {
        if !self.namespaces {
            return Ok(());
        }
        // A deleted namespace remains for minutes while the kernel retries to close its connections. Its link is therefore
        // deleted by name.
        let links = run(tool("ip"), &["-oneline", "link", "show", "type", "veth"])?;
        let own_prefix = self.link_prefix();
        for link in links.lines().filter_map(|line| line.split_whitespace().nth(1)?.split('@').next()) {
            if link.starts_with(&own_prefix) {
                ip(&["link", "delete", link])?;
            }
        }
        let listed = run(tool("ip"), &["netns", "list"])?;
        let prefix = format!("{}-", self.run);
        for namespace in listed.lines().filter_map(|line| line.split_whitespace().next()) {
            if namespace.starts_with(&prefix) {
                ip(&["netns", "delete", namespace])?;
            }
        }
        let bridge = self.bridge();
        if output(tool("ip"), &["link", "show", &bridge])?.status.success() {
            ip(&["link", "delete", &bridge])?;
        }
        Ok(())
    }

    fn require_namespaces(&self) -> Result<()> {
        if !self.namespaces {
            bail!("cluster runs on the loopback interface, which cannot be cut: start it as root");
        }
        Ok(())
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    run(tool("ip"), arguments).map(|_| ())
}
