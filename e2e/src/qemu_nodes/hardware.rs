//! Hardware of the nodes' machines: the image, the accelerator and the watchdogs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::binaries;
use crate::command::tool;
use crate::wait::wait_for;

/// Longest time for a probing machine to power off. A working machine takes a second.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// The hardware of all nodes of a cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hardware {
    /// Directory with `kernel`, `initrd` and `root.ext4`, created by `dev/lib/metal.sh`.
    pub image: PathBuf,
    /// Accelerator of all machines.
    pub accelerator: Accelerator,
    /// Watchdogs, assigned to the nodes in turn.
    pub watchdogs: Vec<Watchdog>,
}

/// A watchdog, by its kernel driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Watchdog {
    /// Timer of the kernel.
    Softdog,
    /// Intel's 6300ESB, emulated. It resets the machine regardless of the state of the kernel.
    I6300esb,
}

impl Watchdog {
    /// Returns the name of the kernel module.
    pub fn module(self) -> &'static str {
        match self {
            Watchdog::Softdog => "softdog",
            Watchdog::I6300esb => "i6300esb",
        }
    }
}

/// A way to run machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Accelerator {
    /// The processor's virtualization.
    Kvm,
    /// Emulation, which is about thirty times slower.
    Emulation,
}

impl Accelerator {
    /// Returns QEMU's name of the accelerator.
    pub fn name(self) -> &'static str {
        match self {
            Accelerator::Kvm => "kvm",
            Accelerator::Emulation => "tcg",
        }
    }

    /// Returns `true` if machines with this accelerator are fast enough for the times of a profile.
    pub fn are_times_checked(self, profile: &str) -> bool {
        self == Accelerator::Kvm || profile == "Conservative"
    }

    /// Returns KVM if a machine with the image's kernel runs with it, else emulation. The device node is not sufficient evidence:
    /// inside a virtual machine it may exist without working.
    ///
    /// # Errors
    /// Fails if QEMU cannot be started.
    pub fn probe(image: &Path) -> Result<Self> {
        if !Path::new("/dev/kvm").exists() {
            return Ok(Accelerator::Emulation);
        }
        let mut machine = Command::new(tool("qemu-system-x86_64"))
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35,accel=kvm"])
            .args(["-cpu", "host,-arch-capabilities", "-m", "256", "-no-reboot"])
            .arg("-kernel")
            .arg(image.join("kernel"))
            .arg("-initrd")
            .arg(image.join("initrd"))
            .args(["-append", "quiet hactl.probe"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start qemu-system-x86_64")?;
        let exit_status =
            wait_for("the probing machine", PROBE_TIMEOUT, || machine.try_wait().ok().flatten());
        // Both calls fail only if the process has already ended, which is the goal.
        let _ = machine.kill();
        let _ = machine.wait();
        Ok(match exit_status {
            Ok(status) if status.success() => Accelerator::Kvm,
            Ok(_) | Err(_) => Accelerator::Emulation,
        })
    }
}

impl Hardware {
    /// Returns the hardware of three nodes. The second has the emulated hardware watchdog, the others the kernel's timer.
    ///
    /// # Errors
    /// Fails if the image has not been built, or if QEMU cannot be started.
    pub fn find() -> Result<Self> {
        let image = binaries::metal_image()?;
        let accelerator = Accelerator::probe(&image)?;
        let watchdogs = vec![Watchdog::Softdog, Watchdog::I6300esb, Watchdog::Softdog];
        Ok(Self { image, accelerator, watchdogs })
    }

    /// Returns the watchdog of a node. `index` starts at 1.
    pub fn watchdog(&self, index: u8) -> Watchdog {
        let watchdog_index = usize::from(index.saturating_sub(1)) % self.watchdogs.len().max(1);
        self.watchdogs.get(watchdog_index).copied().unwrap_or(Watchdog::Softdog)
    }
}
