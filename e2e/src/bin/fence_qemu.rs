//! Fence agent for machines that QEMU runs. `off` ends the machine's process through its monitor and prevents its restart.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use ha_e2e::fence_agent::{FenceAgent, PowerSwitch};
use ha_e2e::qemu_nodes::qmp;
use ha_e2e::wait::wait_until;

const AGENT: FenceAgent = FenceAgent {
    name: "fence_qemu",
    description: "Fence agent for machines of the metal suite",
    parameters: &["monitor", "hold"],
};
/// Longest time for a machine's process to end or to respond. The device's own timeout is shorter.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// The QEMU process of a machine.
struct QemuProcess {
    /// Socket of the process's monitor.
    monitor_socket: PathBuf,
    /// File that prevents a start of the process while it exists.
    hold_file: PathBuf,
}

fn main() -> ExitCode {
    AGENT.main(|attributes| {
        Ok(QemuProcess {
            monitor_socket: attributes.required("monitor")?.into(),
            hold_file: attributes.required("hold")?.into(),
        })
    })
}

impl QemuProcess {
    /// Returns `true` if the process accepts connections. A killed process leaves its socket behind, but does not accept.
    fn is_running(&self) -> bool {
        UnixStream::connect(&self.monitor_socket).is_ok()
    }
}

impl PowerSwitch for QemuProcess {
    fn is_on(&self) -> Result<bool> {
        Ok(self.is_running())
    }

    fn switch_off(&self) -> Result<()> {
        File::create(&self.hold_file).with_context(|| self.hold_file.display().to_string())?;
        if self.is_running() {
            qmp::execute(&self.monitor_socket, "quit")?;
        }
        wait_until("the end of the machine's process", STEP_TIMEOUT, || !self.is_running())
    }

    fn switch_on(&self) -> Result<()> {
        if self.hold_file.exists() {
            fs::remove_file(&self.hold_file).with_context(|| self.hold_file.display().to_string())?;
        }
        wait_until("the machine's process", STEP_TIMEOUT, || self.is_running())
    }
}
