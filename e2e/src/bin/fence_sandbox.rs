//! Fence agent for the sandbox's power supply.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use ha_e2e::fence_agent::{FenceAgent, PowerSwitch};
use ha_e2e::power::send_command;

const AGENT: FenceAgent = FenceAgent {
    name: "fence_sandbox",
    description: "Fence agent for the sandbox",
    parameters: &["socket", "plug"],
};

/// A machine behind the power supply.
struct Plug {
    socket: PathBuf,
    machine: String,
}

fn main() -> ExitCode {
    AGENT.main(|attributes| {
        let socket = PathBuf::from(attributes.required("socket")?);
        let machine = attributes.get("plug").or(attributes.get("port")).context("missing attribute plug")?;
        Ok(Plug { socket, machine: machine.to_owned() })
    })
}

impl Plug {
    fn send_command(&self, command: &str) -> Result<String> {
        send_command(&self.socket, command, &self.machine)
    }

    /// Switches the machine and reads its state back, because a fence agent must confirm.
    fn set_power(&self, state: &str) -> Result<()> {
        self.send_command(state)?;
        match self.send_command("status")? {
            now if now == state => Ok(()),
            now => bail!("switch {} {state} failed: state is {now}", self.machine),
        }
    }
}

impl PowerSwitch for Plug {
    fn is_on(&self) -> Result<bool> {
        Ok(self.send_command("status")? != "off")
    }

    fn switch_off(&self) -> Result<()> {
        self.set_power("off")
    }

    fn switch_on(&self) -> Result<()> {
        self.set_power("on")
    }
}
