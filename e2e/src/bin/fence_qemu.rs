//! Fence agent for machines that QEMU runs. `off` ends the machine's process through its monitor and prevents its restart.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use ha_e2e::fence_agent::{Agent, Power};
use ha_e2e::qemu_nodes::qmp;
use ha_e2e::wait::wait_until;

const AGENT: Agent = Agent {
    name: "fence_qemu",
    description: "Fence agent for machines of the metal suite",
    parameters: &["monitor", "hold"],
};
/// Longest time for a machine's process to end or to respond. The device's own timeout is shorter.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// The QEMU process of a machine.
struct Process {
    /// Socket of the process's monitor.
    monitor: PathBuf,
    /// File that prevents a start of the process while it exists.
    hold: PathBuf,
}

fn main() -> ExitCode {
    AGENT.main(|attributes| {
        Ok(Process {
            monitor: attributes.required("monitor")?.into(),
            hold: attributes.required("hold")?.into(),
        })
    })
}

impl Process {
    /// Returns `true` if the process accepts connections. A killed process leaves its socket behind, but does not accept.
    fn is_running(&self) -> bool {
        UnixStream::connect(&self.monitor).is_ok()
    }
}

impl Power for Process {
    fn is_on(&self) -> Result<bool> {
        Ok(self.is_running())
    }

    fn off(&self) -> Result<()> {
        File::create(&self.hold).with_context(|| self.hold.display().to_string())?;
        if self.is_running() {
            qmp::execute(&self.monitor, "quit")?;
        }
        wait_until("the end of the machine's process", STEP_TIMEOUT, || !self.is_running())
    }

    fn on(&self) -> Result<()> {
        if self.hold.exists() {
            fs::remove_file(&self.hold).with_context(|| self.hold.display().to_string())?;
        }
        wait_until("the machine's process", STEP_TIMEOUT, || self.is_running())
    }
}
