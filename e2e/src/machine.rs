//! A machine of the cluster: power, programs and processes.

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
use crate::init::{InitSpec, Program};
use crate::network::Network;
use crate::process::{self, ProcessId};
use crate::wait::{wait_for, wait_until};

const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// The purpose of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Member of etcd.
    Etcd,
    /// Replica of the controller.
    Controller,
    /// Node that runs services.
    Node,
    /// Server of the storage behind the fabric.
    Storage,
}

/// One machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Name and host name.
    pub name: String,
    /// Purpose of the machine.
    pub role: Role,
    /// Last octet of the address.
    pub number: u8,
    /// Address on the cluster's network.
    pub address: Ipv4Addr,
    /// Directory that survives a power cut, for data, logs and identity.
    #[serde(rename = "folder")]
    pub directory: PathBuf,
    /// Directory that does not survive a power cut, for sockets and pid files.
    pub volatile: PathBuf,
    /// Daemons of the machine.
    pub programs: Vec<Program>,
    /// Directories that appear at another path on this machine, source first.
    pub bind_mounts: Vec<(PathBuf, PathBuf)>,
    /// Process on the host that holds the process tree; `None` while the power is off.
    pub holder: Option<ProcessId>,
    /// Process 1 of the tree, with its process id on the host; `None` while the power is off.
    pub init: Option<ProcessId>,
    /// Simulated watchdog of a node, which runs outside the tree; `None` for other machines.
    pub watchdog: Option<ProcessId>,
}

impl Machine {
    /// Returns `true` if process 1 of the machine runs.
    pub fn is_on(&self) -> bool {
        self.init.is_some_and(|init| init.is_alive())
    }

    /// Returns the path of a program's log.
    pub fn log(&self, program: &str) -> PathBuf {
        self.directory.join("log").join(format!("{program}.log"))
    }

    /// Starts the process tree with a new boot id. Its programs wait for [`Machine::go`].
    ///
    /// # Errors
    /// Fails if the machine is already on, or if the tree cannot be started.
    pub fn power_on(&mut self, network: &Network) -> Result<Child> {
        if self.is_on() {
            bail!("{} is already on", self.name);
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
            .arg(crate::binaries::workspace_program("ha-sandbox")?)
            .arg("init")
            .arg(self.directory.join("init.json"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", self.name))?;
        let holder = i32::try_from(child.id())?;
        self.holder = ProcessId::of(holder);
        let init = wait_for(
            &format!("process 1 of {} ({})", self.name, self.log("init").display()),
            STEP_TIMEOUT,
            || {
                process::children_of(holder)
                    .into_iter()
                    .find(|child| process::pid_in_namespace(child.pid) == Some(1))
            },
        )?;
        self.init = Some(init);
        Ok(child)
    }

    /// Writes the files for a boot: process 1's configuration, an empty volatile directory and a new boot id.
    fn prepare(&self) -> Result<()> {
        for directory in ["log", "state", "data"] {
            fs::create_dir_all(self.directory.join(directory))?;
        }
        if self.volatile.exists() {
            fs::remove_dir_all(&self.volatile).with_context(|| self.volatile.display().to_string())?;
        }
        fs::create_dir_all(&self.volatile).with_context(|| self.volatile.display().to_string())?;
        fs::write(self.boot_id_file(), format!("{}\n", random_id()))?;
        if !self.machine_id_file().exists() {
            fs::write(self.machine_id_file(), format!("{}\n", random_id().replace('-', "")))?;
        }
        let spec = InitSpec {
            machine: self.name.clone(),
            volatile: self.volatile.clone(),
            logs: self.directory.join("log"),
            bind_mounts: self.bind_mounts.clone(),
            programs: self.programs.clone(),
        };
        let path = self.directory.join("init.json");
        fs::write(&path, serde_json::to_vec_pretty(&spec)?).with_context(|| path.display().to_string())
    }

    /// Allows the programs to start.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn allow_start(&self) -> Result<()> {
        File::create(self.volatile.join("go"))
            .map(|_| ())
            .with_context(|| self.volatile.display().to_string())
    }

    /// Cuts the power: all processes of the tree are killed at the same time.
    ///
    /// # Errors
    /// Fails if a process of the tree still exists after 30 s.
    pub fn power_off(&mut self) -> Result<()> {
        let namespace = self.namespace();
        if let Some(init) = self.init {
            init.signal(Signal::SIGKILL)?;
        }
        wait_until(&format!("the end of everything on {}", self.name), STEP_TIMEOUT, || {
            !self.is_on()
                && namespace.is_none_or(|namespace| process::processes_in_namespace(namespace).is_empty())
        })?;
        self.kill_outside_processes()
    }

    /// Shuts the machine down cleanly: process 1 stops the programs in reverse order.
    ///
    /// # Errors
    /// Fails if process 1 still runs after 90 s.
    pub fn shut_down(&mut self) -> Result<()> {
        if let Some(init) = self.init {
            init.signal(Signal::SIGTERM)?;
        }
        wait_until(&format!("a clean shutdown of {}", self.name), Duration::from_secs(90), || !self.is_on())?;
        self.kill_outside_processes()
    }

    /// Ends the machine's processes outside the tree.
    fn kill_outside_processes(&mut self) -> Result<()> {
        for outside in [self.holder.take(), self.watchdog.take()].into_iter().flatten() {
            outside.signal(Signal::SIGKILL)?;
        }
        self.init = None;
        Ok(())
    }

    /// Returns process 1 of the machine; `None` while the power is off.
    pub fn first_process(&self) -> Option<ProcessId> {
        self.init.filter(ProcessId::is_alive)
    }

    /// Returns the inode of the tree's pid namespace; `None` while the power is off.
    pub fn namespace(&self) -> Option<u64> {
        self.first_process().and_then(|init| init.pid_namespace())
    }

    /// Returns all processes of the machine; empty while the power is off.
    pub fn processes(&self) -> Vec<ProcessId> {
        self.namespace().map(process::processes_in_namespace).unwrap_or_default()
    }

    /// Returns the process of a program, with its process id on the host; `None` while the program does not run.
    pub fn program(&self, name: &str) -> Option<ProcessId> {
        let inside: i32 =
            fs::read_to_string(self.volatile.join(format!("{name}.pid"))).ok()?.trim().parse().ok()?;
        self.processes().into_iter().find(|process| process::pid_in_namespace(process.pid) == Some(inside))
    }

    /// Sends a signal to a program.
    ///
    /// # Errors
    /// Fails if the program does not run.
    pub fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        let process = self.program(name).with_context(|| format!("{name} does not run on {}", self.name))?;
        process.signal(signal)
    }

    /// Kills a program. Process 1 restarts it unless it is held.
    ///
    /// # Errors
    /// Fails if the program does not run, or survives.
    pub fn kill(&self, name: &str) -> Result<()> {
        let process = self.program(name).with_context(|| format!("{name} does not run on {}", self.name))?;
        process.signal(Signal::SIGKILL)?;
        wait_until(&format!("the end of {name} on {}", self.name), STEP_TIMEOUT, || !process.is_alive())
    }

    /// Kills a program and prevents its restart until [`Machine::allow_restart`].
    ///
    /// # Errors
    /// Fails if the program survives.
    pub fn keep_stopped(&self, name: &str) -> Result<()> {
        File::create(self.hold_file(name))?;
        if self.program(name).is_some() { self.kill(name) } else { Ok(()) }
    }

    /// Allows a held program to start again.
    ///
    /// # Errors
    /// Fails if the hold file cannot be removed.
    pub fn allow_restart(&self, name: &str) -> Result<()> {
        let path = self.hold_file(name);
        if path.exists() {
            fs::remove_file(&path).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    fn hold_file(&self, name: &str) -> PathBuf {
        self.volatile.join(format!("{name}.hold"))
    }

    /// Returns the directory of the agent's journal.
    pub fn state(&self) -> PathBuf {
        self.directory.join("state")
    }

    /// Returns the file that the agent reads as the boot id.
    pub fn boot_id_file(&self) -> PathBuf {
        self.directory.join("boot-id")
    }

    /// Returns the file that the agent reads as the machine id.
    pub fn machine_id_file(&self) -> PathBuf {
        self.directory.join("machine-id")
    }
}

/// Opens a file for appending, and creates it if necessary.
///
/// # Errors
/// Fails if the file cannot be opened.
pub fn append(path: &Path) -> Result<File> {
    OpenOptions::new().create(true).append(true).open(path).with_context(|| path.display().to_string())
}

/// Returns a random identifier in the format of the kernel's boot id.
fn random_id() -> String {
    let number: u128 = rand::random();
    let text = format!("{number:032x}");
    format!("{}-{}-{}-{}-{}", &text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_boot_has_a_new_boot_id() {
        let directory = tempfile::tempdir().unwrap();
        let machine = Machine {
            name: "node1".to_owned(),
            role: Role::Node,
            number: 1,
            address: Ipv4Addr::LOCALHOST,
            directory: directory.path().join("machine"),
            volatile: directory.path().join("volatile"),
            programs: Vec::new(),
            bind_mounts: Vec::new(),
            holder: None,
            init: None,
            watchdog: None,
        };
        let boot = || {
            machine.prepare().unwrap();
            let read = |path: PathBuf| fs::read_to_string(path).unwrap();
            (read(machine.boot_id_file()), read(machine.machine_id_file()))
        };
        let ((boot_id, machine_id), (next_boot_id, next_machine_id)) = (boot(), boot());
        assert_ne!(boot_id, next_boot_id);
        assert_eq!(machine_id, next_machine_id);
    }
}
