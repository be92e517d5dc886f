//! A machine of the cluster: power, programs, and the processes that belong to it.

use std::fs::{self, File, OpenOptions};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::command::tool;
use crate::init::{Program, Spec};
use crate::network::Network;
use crate::process::{self, ProcessId};
use crate::wait::{wait_for, wait_until};

const CEILING: Duration = Duration::from_secs(30);

/// What a machine is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// A member of the store.
    Etcd,
    /// A replica of the controller.
    Controller,
    /// A node that runs services.
    Node,
    /// What serves the storage that is behind the fabric.
    Storage,
}

/// One machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Its name, which is its host name too.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// The last number of its address.
    pub number: u8,
    /// Its address.
    pub address: Ipv4Addr,
    /// What survives a power cut: data, logs, identity.
    pub folder: PathBuf,
    /// What does not: sockets, process numbers.
    pub volatile: PathBuf,
    /// Its daemons.
    pub programs: Vec<Program>,
    /// Folders that appear elsewhere on this machine, source first.
    pub binds: Vec<(PathBuf, PathBuf)>,
    /// The process outside that holds the tree, while the power is on.
    pub holder: Option<ProcessId>,
    /// Process 1 of the tree, by its number outside.
    pub init: Option<ProcessId>,
    /// The stand-in for a hardware watchdog, outside the tree.
    pub watchdog: Option<ProcessId>,
}

impl Machine {
    /// Whether its process 1 runs.
    pub fn is_on(&self) -> bool {
        self.init.is_some_and(|init| init.is_alive())
    }

    /// Where a program's output goes.
    pub fn log(&self, program: &str) -> PathBuf {
        self.folder.join("log").join(format!("{program}.log"))
    }

    /// Starts the tree with a new boot id. Its programs wait for [`Machine::go`].
    ///
    /// # Errors
    /// When it is on already, or the tree cannot be started.
    pub fn power_on(&mut self, network: &Network) -> Result<Child> {
        if self.is_on() {
            bail!("{} is on already", self.name);
        }
        self.prepare()?;
        let mut command = if network.namespaces {
            let mut command = Command::new(tool("ip"));
            command.args(["netns", "exec", &network.namespace(&self.name), &tool("unshare")]);
            command
        } else {
            let mut command = Command::new(tool("unshare"));
            command.args(["--user", "--map-root-user"]);
            command
        };
        let log = append(&self.log("init"))?;
        let child = command
            .args(["--pid", "--mount", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"])
            .arg(crate::binaries::own("ha-sandbox")?)
            .arg("init")
            .arg(self.folder.join("init.json"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("{} could not be started", self.name))?;
        let holder = i32::try_from(child.id())?;
        self.holder = ProcessId::of(holder);
        let init = wait_for(
            &format!("process 1 of {} ({})", self.name, self.log("init").display()),
            CEILING,
            || {
                process::children_of(holder)
                    .into_iter()
                    .find(|child| process::pid_inside(child.pid) == Some(1))
            },
        )?;
        self.init = Some(init);
        Ok(child)
    }

    /// Writes what a booting machine finds: process 1's list, an empty volatile folder, a new boot id.
    fn prepare(&self) -> Result<()> {
        for folder in ["log", "state", "data"] {
            fs::create_dir_all(self.folder.join(folder))?;
        }
        if self.volatile.exists() {
            fs::remove_dir_all(&self.volatile).with_context(|| self.volatile.display().to_string())?;
        }
        fs::create_dir_all(&self.volatile).with_context(|| self.volatile.display().to_string())?;
        fs::write(self.boot_id_file(), format!("{}\n", random_id()))?;
        if !self.machine_id_file().exists() {
            fs::write(self.machine_id_file(), format!("{}\n", random_id().replace('-', "")))?;
        }
        let spec = Spec {
            machine: self.name.clone(),
            volatile: self.volatile.clone(),
            logs: self.folder.join("log"),
            binds: self.binds.clone(),
            programs: self.programs.clone(),
        };
        let path = self.folder.join("init.json");
        fs::write(&path, serde_json::to_vec_pretty(&spec)?).with_context(|| path.display().to_string())
    }

    /// Lets the programs start.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn go(&self) -> Result<()> {
        File::create(self.volatile.join("go"))
            .map(|_| ())
            .with_context(|| self.volatile.display().to_string())
    }

    /// Cuts the power: everything in the tree is gone at once.
    ///
    /// # Errors
    /// When something of the tree is still there after a while.
    pub fn power_off(&mut self) -> Result<()> {
        let namespace = self.namespace();
        if let Some(init) = self.init {
            init.signal(Signal::SIGKILL)?;
        }
        wait_until(&format!("the end of everything on {}", self.name), CEILING, || {
            !self.is_on() && namespace.is_none_or(|namespace| process::in_namespace(namespace).is_empty())
        })?;
        self.end_outside()
    }

    /// Switches off in order: the programs are asked to end, the last one first.
    ///
    /// # Errors
    /// When something of the tree is still there after a minute and a half.
    pub fn shut_down(&mut self) -> Result<()> {
        if let Some(init) = self.init {
            init.signal(Signal::SIGTERM)?;
        }
        wait_until(&format!("the orderly end of {}", self.name), Duration::from_secs(90), || !self.is_on())?;
        self.end_outside()
    }

    /// Ends what belongs to the machine but is outside its tree.
    fn end_outside(&mut self) -> Result<()> {
        for outside in [self.holder.take(), self.watchdog.take()].into_iter().flatten() {
            outside.signal(Signal::SIGKILL)?;
        }
        self.init = None;
        Ok(())
    }

    /// The inode of the tree's pid namespace; `None` while the power is off.
    pub fn namespace(&self) -> Option<u64> {
        self.init.filter(ProcessId::is_alive).and_then(|init| init.pid_namespace())
    }

    /// Everything that runs on the machine.
    pub fn processes(&self) -> Vec<ProcessId> {
        self.namespace().map(process::in_namespace).unwrap_or_default()
    }

    /// The process of one of its programs, by its number outside; `None` while it is dead.
    pub fn program(&self, name: &str) -> Option<ProcessId> {
        let inside: i32 =
            fs::read_to_string(self.volatile.join(format!("{name}.pid"))).ok()?.trim().parse().ok()?;
        self.processes().into_iter().find(|process| process::pid_inside(process.pid) == Some(inside))
    }

    /// Sends a signal to one of its programs.
    ///
    /// # Errors
    /// When the program does not run.
    pub fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        let process = self.program(name).with_context(|| format!("{name} does not run on {}", self.name))?;
        process.signal(signal)
    }

    /// Kills a program; process 1 starts it again unless it is held.
    ///
    /// # Errors
    /// When it does not run, or survives.
    pub fn kill(&self, name: &str) -> Result<()> {
        let process = self.program(name).with_context(|| format!("{name} does not run on {}", self.name))?;
        process.signal(Signal::SIGKILL)?;
        wait_until(&format!("the end of {name} on {}", self.name), CEILING, || !process.is_alive())
    }

    /// Kills a program and leaves it dead until [`Machine::release`].
    ///
    /// # Errors
    /// When it survives.
    pub fn hold(&self, name: &str) -> Result<()> {
        File::create(self.hold_file(name))?;
        if self.program(name).is_some() { self.kill(name) } else { Ok(()) }
    }

    /// Lets a held program start again.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn release(&self, name: &str) -> Result<()> {
        let path = self.hold_file(name);
        if path.exists() {
            fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    fn hold_file(&self, name: &str) -> PathBuf {
        self.volatile.join(format!("{name}.hold"))
    }

    /// Where its agent keeps its journal.
    pub fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// What the agent reads as the boot id.
    pub fn boot_id_file(&self) -> PathBuf {
        self.folder.join("boot-id")
    }

    /// What the agent reads as the machine id.
    pub fn machine_id_file(&self) -> PathBuf {
        self.folder.join("machine-id")
    }
}

/// A file that programs append their output to.
///
/// # Errors
/// When it cannot be opened.
pub fn append(path: &Path) -> Result<File> {
    OpenOptions::new().create(true).append(true).open(path).with_context(|| path.display().to_string())
}

/// A random identifier in the form that the kernel gives its boot id.
fn random_id() -> String {
    let number: u128 = rand::random();
    let text = format!("{number:032x}");
    format!("{}-{}-{}-{}-{}", &text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..])
}
