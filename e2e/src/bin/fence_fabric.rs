//! Fence agent for the fabric of the metal suite. `off` closes a machine's switch port: the machine keeps running without its
//! storage.

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use ha_e2e::command::{run, tool};
use ha_e2e::fence_agent::{FenceAgent, PowerSwitch};

const AGENT: FenceAgent = FenceAgent {
    name: "fence_fabric",
    description: "Fence agent for the fabric of the metal suite",
    parameters: &["switch", "plug"],
};

/// A port of a switch.
struct Port {
    /// Network namespace of the switch.
    switch: String,
    /// Link that represents the port.
    port: String,
}

fn main() -> ExitCode {
    AGENT.main(|attributes| {
        Ok(Port { switch: attributes.required("switch")?.into(), port: attributes.required("plug")?.into() })
    })
}

impl Port {
    fn ip_link(&self, action: &str, more_arguments: &[&str]) -> Result<String> {
        let common_arguments = ["-n", &self.switch, "-oneline", "link", action, "dev", &self.port];
        run(tool("ip"), &[&common_arguments, more_arguments].concat())
    }

    /// Switches the port and reads its state back, because a fence agent must confirm.
    fn set_port_state(&self, state: &str) -> Result<()> {
        self.ip_link("set", &[state])?;
        ensure!(self.is_on()? == (state == "up"), "switch port {} failed: state is not {state}", self.port);
        Ok(())
    }
}

/// Returns `true` if the output of `ip` shows that a link is up: `2: node1@if3: <BROADCAST,UP,…> …`.
fn is_up(output: &str) -> Result<bool> {
    let flags = output.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
    let (flags, _) = flags.with_context(|| format!("no flags in the output of ip: {output}"))?;
    Ok(flags.split(',').any(|flag| flag == "UP"))
}

impl PowerSwitch for Port {
    /// Returns the requested state of the port, whether or not a machine is connected to it.
    fn is_on(&self) -> Result<bool> {
        is_up(&self.ip_link("show", &[])?)
    }

    fn switch_off(&self) -> Result<()> {
        self.set_port_state("down")
    }

    fn switch_on(&self) -> Result<()> {
        self.set_port_state("up")
    }
}

#[cfg(test)]
mod tests {
    use super::is_up;

    fn check(output: &str, expected: Option<bool>) {
        assert_eq!(is_up(output).ok(), expected, "{output}");
    }

    #[test]
    fn fabric_port_is_open_if_link_is_up() {
        check("3: node1@if2: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 master switch", Some(true));
        // No machine is connected, but the port is open.
        check("3: node1@if2: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 master switch", Some(true));
        check("3: node1@if2: <BROADCAST,MULTICAST> mtu 1500 master switch state DOWN", Some(false));
        check("3: node1@if2: <BROADCAST,LOWER_UP> mtu 1500", Some(false));
        check("", None);
    }
}
