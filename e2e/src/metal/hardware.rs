//! What the nodes' machines are made of: the image, the way of running it, and their watchdogs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::binaries;
use crate::command::tool;
use crate::wait::wait_for;

/// How long a machine may take to switch itself off in the probe; a working one takes a second.
const PROBE_CEILING: Duration = Duration::from_secs(10);

/// The hardware of all nodes of a cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hardware {
    /// The folder with `kernel`, `initrd` and `root.ext4` that `dev/lib/metal.sh` makes.
    pub image: PathBuf,
    /// How machines are run.
    pub accelerator: Accelerator,
    /// The watchdog of each node in turn.
    pub watchdogs: Vec<Watchdog>,
}

/// A watchdog as the kernel drives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Watchdog {
    /// A timer of the kernel.
    Softdog,
    /// Intel's 6300ESB, emulated: it resets the machine whatever its kernel does.
    I6300esb,
}

impl Watchdog {
    /// The kernel's module.
    pub fn module(self) -> &'static str {
        match self {
            Watchdog::Softdog => "softdog",
            Watchdog::I6300esb => "i6300esb",
        }
    }
}

/// How machines are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Accelerator {
    /// By the processor.
    Kvm,
    /// By a program: some thirty times slower.
    Emulation,
}

impl Accelerator {
    /// The name that QEMU and people know it by.
    pub fn name(self) -> &'static str {
        match self {
            Accelerator::Kvm => "kvm",
            Accelerator::Emulation => "tcg",
        }
    }

    /// Whether the times of this profile can be asked of machines run so.
    pub fn times_count(self, profile: &str) -> bool {
        self == Accelerator::Kvm || profile == "Conservative"
    }

    /// KVM if a machine with the image's kernel runs with it, else emulation. A device node proves nothing: inside a
    /// virtual machine it may be there and not work.
    ///
    /// # Errors
    /// When QEMU cannot be started.
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
            .context("qemu-system-x86_64 could not be started")?;
        let ended = wait_for("the probing machine", PROBE_CEILING, || machine.try_wait().ok().flatten());
        // Both fail only for a process that has ended, which is what is wanted.
        let _ = machine.kill();
        let _ = machine.wait();
        Ok(match ended {
            Ok(status) if status.success() => Accelerator::Kvm,
            Ok(_) | Err(_) => Accelerator::Emulation,
        })
    }
}

impl Hardware {
    /// Three nodes of which the second has the emulated hardware watchdog and the others the kernel's own.
    ///
    /// # Errors
    /// When the image has not been made, or QEMU cannot be started.
    pub fn find() -> Result<Self> {
        let image = binaries::metal_image()?;
        let accelerator = Accelerator::probe(&image)?;
        let watchdogs = vec![Watchdog::Softdog, Watchdog::I6300esb, Watchdog::Softdog];
        Ok(Self { image, accelerator, watchdogs })
    }

    /// The watchdog of the node with this number, counted from 1.
    pub fn watchdog(&self, index: u8) -> Watchdog {
        let place = usize::from(index.saturating_sub(1)) % self.watchdogs.len().max(1);
        self.watchdogs.get(place).copied().unwrap_or(Watchdog::Softdog)
    }
}
