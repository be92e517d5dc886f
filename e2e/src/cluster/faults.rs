//! Faults of a cluster's machines: power, links and packets.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::{Cluster, STEP_TIMEOUT};
use crate::binaries;
use crate::container;
use crate::lxc;
use crate::machine::{Machine, Role, append};
use crate::network::PacketFilter;
use crate::plan::{ETCD_PEER_PORT, simulated_watchdog_socket};
use crate::podman;
use crate::process::ProcessId;
use crate::wait::wait_until;

impl Cluster {
    /// Switches a machine on, with a new boot id. A node gets a new simulated watchdog.
    ///
    /// # Errors
    /// Fails if the machine is already on, or does not start.
    pub fn power_on(&mut self, name: &str) -> Result<()> {
        let network = self.state.network.clone();
        if self.has_address(self.machine(name)?) {
            network.replace_addresses(name, self.machine(name)?.number)?;
        }
        let machine = self.machine_mut(name)?;
        let child = machine.power_on(&network)?;
        let (holder, init) = (machine.holder, machine.init);
        self.children.push(child);
        self.record.processes.extend(holder);
        self.record.processes.extend(init);
        // The record is saved before the next step can fail, so that a later command finds the processes even after a
        // kill.
        self.record.save()?;
        // A whole machine has its own watchdog.
        if self.machine(name)?.role == Role::Node && self.state.plan.hardware.is_none() {
            let init = init.context("machine is on but has no first process")?;
            self.start_watchdog(name, init)?;
        }
        let machine = self.machine(name)?;
        if let Some(init) = machine.first_process() {
            self.machine_namespaces.add(init, name)?;
        }
        machine.allow_start()?;
        self.register_container_namespace(name)?;
        self.save()
    }

    /// Records the pid namespace in which a system container runs its services. Each boot of the container creates a new one.
    ///
    /// # Errors
    /// Fails if the container does not boot.
    pub fn register_container_namespace(&self, name: &str) -> Result<()> {
        let machine = self.machine(name)?;
        if machine.role == Role::Node && self.state.plan.units.is_some() {
            self.machine_namespaces.add(container::systemd_process(machine)?, name)?;
        }
        Ok(())
    }

    /// Starts the simulated watchdog outside the node's process tree.
    fn start_watchdog(&mut self, name: &str, init: ProcessId) -> Result<()> {
        let machine = self.machine(name)?;
        let socket = simulated_watchdog_socket(machine);
        let log = append(&machine.log("watchdog-standin-output"))?;
        let child = Command::new(binaries::workspace_program("ha-watchdog-standin")?)
            .arg("--socket")
            .arg(&socket)
            .args(["--kill-pid", &init.pid.to_string()])
            .args(
                self.state
                    .network
                    .remove_addresses_command(name)
                    .map(|command| format!("--exec-on-expiry={command}")),
            )
            .arg("--log")
            .arg(machine.log("watchdog-standin"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start ha-watchdog-standin")?;
        let watchdog = ProcessId::of(i32::try_from(child.id())?);
        self.children.push(child);
        self.machine_mut(name)?.watchdog = watchdog;
        self.record.processes.extend(watchdog);
        self.record.save()?;
        wait_until(&format!("the watchdog of {name}"), STEP_TIMEOUT, || socket.exists())
    }

    /// Cuts a machine's power.
    ///
    /// # Errors
    /// Fails if a process of the machine survives.
    pub fn power_off(&mut self, name: &str) -> Result<()> {
        let machine = self.machine_mut(name)?;
        machine.power_off()?;
        podman::remove_groups(machine);
        lxc::remove_groups();
        self.remove_addresses(name)?;
        self.reap_children();
        self.save()
    }

    /// Shuts a machine down cleanly.
    ///
    /// # Errors
    /// Fails if a process of the machine survives.
    pub fn shut_down(&mut self, name: &str) -> Result<()> {
        self.machine_mut(name)?.shut_down()?;
        self.remove_addresses(name)?;
        self.reap_children();
        self.save()
    }

    /// Removes a machine's addresses when its power ends.
    fn remove_addresses(&self, name: &str) -> Result<()> {
        if self.has_address(self.machine(name)?) { self.state.network.remove_addresses(name) } else { Ok(()) }
    }

    /// Returns `true` if the machine's address belongs to its network namespace, not to the guest inside it.
    fn has_address(&self, machine: &Machine) -> bool {
        match machine.role {
            Role::Etcd | Role::Controller => true,
            Role::Node => self.state.plan.hardware.is_none(),
            Role::Storage => false,
        }
    }

    /// Takes a machine's link down.
    ///
    /// # Errors
    /// Fails without namespaces.
    pub fn cut(&self, name: &str) -> Result<()> {
        self.state.network.cut(self.machine(name)?.number)
    }

    /// Removes every network fault of a machine.
    ///
    /// # Errors
    /// Fails without namespaces.
    pub fn heal(&self, name: &str) -> Result<()> {
        self.state.network.heal(name, self.machine(name)?.number)
    }

    /// Drops the packets of a machine that match `filter`.
    ///
    /// # Errors
    /// Fails without namespaces.
    pub fn drop_packets(&self, name: &str, filter: PacketFilter) -> Result<()> {
        self.machine(name)?;
        self.state.network.drop_packets(name, filter)
    }

    /// Drops all packets that a machine sends to the machines of a role. Unless `one_way`, also drops the packets from
    /// those machines.
    ///
    /// # Errors
    /// Fails without namespaces.
    pub fn cut_from(&self, name: &str, role: Role, one_way: bool) -> Result<()> {
        for other in self.machine_names(role).into_iter().filter(|other| other != name) {
            let address = self.state.network.address(self.machine(&other)?.number);
            self.drop_packets(name, PacketFilter::To(address))?;
            if !one_way {
                self.drop_packets(name, PacketFilter::From(address))?;
            }
        }
        Ok(())
    }

    /// Isolates an etcd member from its peers; its clients still reach it.
    ///
    /// # Errors
    /// Fails without namespaces.
    pub fn isolate_member(&self, name: &str) -> Result<()> {
        self.drop_packets(name, PacketFilter::Port(ETCD_PEER_PORT))
    }
}
