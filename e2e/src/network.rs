//! The cluster's network: a bridge, one link a machine, and the ways to cut it. Whole machines have a second one, the fabric,
//! behind which storage is.
//!
//! As root every machine has a network namespace with one address; the host has the first address of the bridge, so that
//! kubectl, hactl and a browser reach the machines. Without root all machines share the loopback interface,
//! each with an address of its own, and nothing can be cut.

use std::net::Ipv4Addr;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::command::{output, run, tool};

/// The addresses and names of one run's network.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Network {
    /// The run that it belongs to.
    pub run: String,
    /// The third number of every address.
    pub slot: u8,
    /// Whether machines have network namespaces; otherwise they share the loopback interface.
    pub namespaces: bool,
}

/// The switch of the fabric, in the namespace of the machine that has the storage.
const SWITCH: &str = "switch";

/// Which packets of a machine are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drop {
    /// What it sends.
    Sent,
    /// What it receives.
    Received,
    /// What it sends to, and receives from, a TCP port, whichever end has it.
    Port(u16),
    /// What it sends to another machine.
    To(Ipv4Addr),
    /// What it receives from another machine.
    From(Ipv4Addr),
    /// So many percent of what it receives, by chance.
    Percent(u8),
    /// What it receives above so many kilobytes a second.
    Above(u32),
}

impl Network {
    /// The address of the machine with this number (2 to 254).
    ///
    /// 198.18.0.0/15 is set aside for testing networks (RFC 2544), so it collides with nobody's own.
    pub fn address(&self, number: u8) -> Ipv4Addr {
        if self.namespaces {
            Ipv4Addr::new(198, 18, self.slot, number)
        } else {
            // Slots are counted for each user, so another user's clusters must have other addresses.
            let user = u8::try_from(nix::unistd::getuid().as_raw() % 250).unwrap_or_default();
            Ipv4Addr::new(127, 1 + user, self.slot, number)
        }
    }

    /// The address of the machine with this number on the fabric.
    pub fn fabric_address(&self, number: u8) -> Ipv4Addr {
        Ipv4Addr::new(198, 19, self.slot, number)
    }

    /// The name of a machine's network namespace.
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

    /// Makes the bridge.
    ///
    /// # Errors
    /// When the kernel refuses, with its words.
    pub fn create(&self) -> Result<()> {
        if !self.namespaces {
            return Ok(());
        }
        let bridge = self.bridge();
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        ip(&["address", "add", &format!("{}/24", self.address(1)), "dev", &bridge])?;
        ip(&["link", "set", &bridge, "up"])
    }

    /// Makes a machine's namespace and joins it to the bridge.
    ///
    /// # Errors
    /// When the kernel refuses, with its words.
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

    /// Gives a machine that boots its own address and no other: what its programs add, a boot takes away.
    ///
    /// # Errors
    /// When the kernel refuses, with its words.
    pub fn boot(&self, machine: &str, number: u8) -> Result<()> {
        if !self.namespaces {
            return Ok(());
        }
        self.shut(machine)?;
        let address = format!("{}/24", self.address(number));
        ip(&["-n", &self.namespace(machine), "address", "add", &address, "dev", "eth0"])
    }

    /// Takes all addresses from a machine that is off: the namespace is still there, and would answer for them.
    ///
    /// # Errors
    /// When the kernel refuses, with its words.
    pub fn shut(&self, machine: &str) -> Result<()> {
        if !self.namespaces {
            return Ok(());
        }
        ip(&["-4", "-n", &self.namespace(machine), "address", "flush", "dev", "eth0"])
    }

    /// What a watchdog of this machine does beside killing its processes, as a shell command; see [`Network::shut`].
    pub fn shut_command(&self, machine: &str) -> Option<String> {
        let namespace = self.namespace(machine);
        self.namespaces.then(|| format!("{} -4 -n {namespace} address flush dev eth0", tool("ip")))
    }

    /// Makes a namespace for the machine whose storage is reached through the fabric, with the fabric's switch in it.
    ///
    /// # Errors
    /// When the kernel refuses, with its words.
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

    /// Makes a namespace for a machine that is whole, and joins two network devices in it to what is outside: the first to the
    /// bridge, the second to a port of the fabric's switch, which has the machine's name.
    ///
    /// # Errors
    /// When the kernel refuses, with its words.
    pub fn attach_whole(&self, machine: &str, number: u8, taps: [&str; 2], storage: &str) -> Result<()> {
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
            self.plug(machine, &format!("plug{index}"), [port, tap])?;
        }
        Ok(())
    }

    /// Joins a machine's network device to a link of its namespace.
    fn plug(&self, machine: &str, plug: &str, [link, tap]: [&str; 2]) -> Result<()> {
        let namespace = self.namespace(machine);
        let inside = |arguments: &[&str]| ip(&[&["-n", namespace.as_str()], arguments].concat());
        inside(&["link", "add", plug, "type", "bridge"])?;
        inside(&["tuntap", "add", tap, "mode", "tap"])?;
        for port in [link, tap] {
            inside(&["link", "set", port, "master", plug, "up"])?;
        }
        inside(&["link", "set", plug, "up"])
    }

    /// Takes the machine's link down: nothing gets in or out, connections hang.
    ///
    /// # Errors
    /// Without namespaces, or when the kernel refuses.
    pub fn cut(&self, number: u8) -> Result<()> {
        self.require_namespaces()?;
        ip(&["link", "set", &self.link(number), "down"])
    }

    /// Undoes every cut and drop of a machine.
    ///
    /// # Errors
    /// Without namespaces, or when the kernel refuses.
    pub fn heal(&self, machine: &str, number: u8) -> Result<()> {
        self.require_namespaces()?;
        ip(&["link", "set", &self.link(number), "up"])?;
        self.in_namespace(machine, &[&tool("nft"), "flush", "ruleset"])
    }

    /// Drops some of a machine's packets, silently, until [`Network::heal`].
    ///
    /// # Errors
    /// Without namespaces, or when the kernel refuses.
    pub fn drop(&self, machine: &str, what: Drop) -> Result<()> {
        self.require_namespaces()?;
        let (hooks, rule): (&[&str], String) = match what {
            Drop::Sent => (&["output"], "oifname eth0 drop".to_owned()),
            Drop::Received => (&["input"], "iifname eth0 drop".to_owned()),
            Drop::To(address) => (&["output"], format!("ip daddr {address} drop")),
            Drop::From(address) => (&["input"], format!("ip saddr {address} drop")),
            Drop::Percent(percent) => {
                (&["input"], format!("iifname eth0 numgen random mod 100 < {percent} drop"))
            }
            Drop::Above(kilobytes) => {
                (&["input"], format!("iifname eth0 limit rate over {kilobytes} kbytes/second drop"))
            }
            Drop::Port(port) => {
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

    /// Removes the bridge and every namespace of the run; what is gone already is no error.
    ///
    /// # Errors
    /// When something of the run is still there afterwards.
    pub fn remove(&self) -> Result<()> {
        if !self.namespaces {
            return Ok(());
        }
        // A namespace lives on for minutes after its deletion while the kernel still retries to close its connections, so its
        // link is taken out of the way by name.
        let links = run(tool("ip"), &["-oneline", "link", "show", "type", "veth"])?;
        let ours = self.link_prefix();
        for link in links.lines().filter_map(|line| line.split_whitespace().nth(1)?.split('@').next()) {
            if link.starts_with(&ours) {
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
            bail!("this cluster runs on the loopback interface, which cannot be cut; start it as root");
        }
        Ok(())
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    run(tool("ip"), arguments).map(|_| ())
}
