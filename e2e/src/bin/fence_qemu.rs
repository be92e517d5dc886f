//! A fence agent for machines that QEMU runs. Off ends the machine's process through its monitor and keeps it from being
//! started.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use ha_e2e::fence_agent::{Agent, Power};
use ha_e2e::metal::qmp;
use ha_e2e::wait::wait_until;

const AGENT: Agent = Agent {
    name: "fence_qemu",
    description: "Fence agent for machines of the metal suite",
    parameters: &["monitor", "hold"],
};
/// How long a machine's process may take to end or to answer; the device's own timeout is shorter.
const CEILING: Duration = Duration::from_secs(60);

/// The process that is a machine.
struct Process {
    /// Its monitor's socket.
    monitor: PathBuf,
    /// The file that keeps it from being started.
    hold: PathBuf,
}

fn main() -> ExitCode {
    AGENT.main(|attributes| {
        Ok(Process { monitor: attributes.needed("monitor")?.into(), hold: attributes.needed("hold")?.into() })
    })
}

impl Process {
    /// The socket stays when its process is killed, but then nobody accepts.
    fn runs(&self) -> bool {
        UnixStream::connect(&self.monitor).is_ok()
    }
}

impl Power for Process {
    fn is_on(&self) -> Result<bool> {
        Ok(self.runs())
    }

    fn off(&self) -> Result<()> {
        File::create(&self.hold).with_context(|| self.hold.display().to_string())?;
        if self.runs() {
            qmp::execute(&self.monitor, "quit")?;
        }
        wait_until("the end of the machine's process", CEILING, || !self.runs())
    }

    fn on(&self) -> Result<()> {
        if self.hold.exists() {
            fs::remove_file(&self.hold).with_context(|| self.hold.display().to_string())?;
        }
        wait_until("the machine's process", CEILING, || self.runs())
    }
}
