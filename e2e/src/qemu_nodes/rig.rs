//! A cluster whose nodes are whole machines, with its observers on the host.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use ha_api_types::node::FenceAction;
use serde_json::{Value, json};

use super::case::{Case, Fencing};
use super::guest::GuestAgent;
use super::hardware::{Accelerator, Hardware, Watchdog};
use super::holders::{StorageHolder, StorageHolders};
use super::qmp::{self, EventKind, Monitor};
use super::stalls::{MachineProcesses, Stalls};
use super::{disk, qemu};
use crate::cluster::Cluster;
use crate::machine::Role;
use crate::plan::{Plan, SHARED_DIRECTORY};
use crate::wait::{monotonic_ns, wait_for, wait_until};

/// Longest time for any step of a case. Machines boot in this time, and emulated machines are slow.
pub const STEP_TIMEOUT: Duration = Duration::from_secs(300);

/// Time that services wait for a rebooting machine. An emulated machine needs a minute on a busy host.
const RETURN_GRACE_SECONDS: u32 = 120;

/// A cluster and its observers.
pub struct Rig {
    /// Cluster with whole machines as nodes.
    pub cluster: Cluster,
    /// Hardware of the nodes.
    pub hardware: Hardware,
    /// `true` if the accelerator is fast enough that measured times are checked against their limits.
    pub are_times_checked: bool,
    /// Periods in which the host did not run a machine.
    pub stalls: Stalls,
    monitors: BTreeMap<String, Monitor>,
    machines: MachineProcesses,
}

impl Rig {
    /// Starts a cluster, and waits until its machines are nodes.
    ///
    /// # Errors
    /// Fails if the cluster does not start, or if the plan has no whole machines.
    pub fn start(plan: Plan) -> Result<Self> {
        let hardware = plan.hardware.clone().context("the plan has no whole machines")?;
        let are_times_checked = hardware.accelerator.are_times_checked(&plan.profile);
        let cluster = Cluster::start(plan)?;
        let machines = MachineProcesses::default();
        let monitors = cluster
            .machine_names(Role::Node)
            .into_iter()
            .map(|node| {
                let socket = cluster.machine(&node)?.volatile.join(qemu::MONITOR);
                Ok((node, Monitor::start(&socket)))
            })
            .collect::<Result<_>>()?;
        let rig = Self {
            hardware,
            are_times_checked,
            stalls: Stalls::start(machines.clone()),
            cluster,
            monitors,
            machines,
        };
        for node in rig.nodes() {
            rig.wait_until_ready(&node)?;
        }
        Ok(rig)
    }

    /// Returns the names of all nodes.
    pub fn nodes(&self) -> Vec<String> {
        self.cluster.machine_names(Role::Node)
    }

    /// Returns the first node with a kind of watchdog.
    ///
    /// # Errors
    /// Fails if no node has that kind.
    pub fn node_with_watchdog(&self, watchdog: Watchdog) -> Result<String> {
        let position = self.hardware.watchdogs.iter().position(|other| *other == watchdog);
        let position = position.with_context(|| format!("no node has {}", watchdog.module()))?;
        self.nodes().into_iter().nth(position).context("fewer nodes than watchdogs")
    }

    /// Returns the interface for commands inside a node.
    ///
    /// # Errors
    /// Fails if no node has that name.
    pub fn guest(&self, node: &str) -> Result<GuestAgent> {
        Ok(GuestAgent::new(&self.cluster.machine(node)?.volatile.join(qemu::GUEST)))
    }

    /// Sends a command for a node's machine to the hypervisor.
    ///
    /// # Errors
    /// Fails if the machine is off, or if the command is refused.
    pub fn send_hypervisor_command(&self, node: &str, command: &str) -> Result<()> {
        qmp::execute(&self.cluster.machine(node)?.volatile.join(qemu::CONTROL), command).map(|_| ())
    }

    /// Returns the recorder of a node's events.
    ///
    /// # Errors
    /// Fails if no node has that name.
    pub fn monitor(&self, node: &str) -> Result<&Monitor> {
        self.monitors.get(node).with_context(|| format!("{node} has no monitor"))
    }

    /// Cuts a node's power.
    ///
    /// # Errors
    /// Fails if a process of the node survives.
    pub fn power_off(&mut self, node: &str) -> Result<()> {
        self.cluster.power_off(node)
    }

    /// Switches a node on.
    ///
    /// # Errors
    /// Fails if the node is already on, or does not start.
    pub fn power_on(&mut self, node: &str) -> Result<()> {
        self.cluster.power_on(node)
    }

    /// Waits until a node's machine responds and the node's epoch is open for this boot.
    ///
    /// # Errors
    /// Fails if the machine does not respond or the epoch is not open in time.
    pub fn wait_until_ready(&self, node: &str) -> Result<()> {
        let machine = self.cluster.machine(node)?;
        let process =
            wait_for(&format!("the machine of {node}"), STEP_TIMEOUT, || machine.program(qemu::PROGRAM))?;
        self.machines.set(node, process);
        let guest = self.guest(node)?;
        wait_until(&format!("{node} to answer commands"), STEP_TIMEOUT, || guest.is_responsive())?;
        let expected = "/proc/sys/kernel/random/boot_id";
        let note = format!("boot-of-{node}");
        guest.run(&format!("cat {expected} >{SHARED_DIRECTORY}/{note}"))?;
        let boot = std::fs::read_to_string(self.cluster.shared_directory().join(note))?;
        let key = self.cluster.keys().fence(&node.into());
        wait_until(&format!("{node} to be open for services"), STEP_TIMEOUT, || {
            let entry = self.cluster.etcdctl().get(&key).ok().flatten();
            entry.is_some_and(|entry| entry.value["state"] == "Open" && entry.value["bootId"] == boot.trim())
        })
    }

    /// Applies the settings that a case needs for the cluster and its nodes. They replace those of an earlier case.
    ///
    /// # Errors
    /// Fails if the API refuses a setting, or if a node does not adopt it.
    pub fn configure(&self, node: &str, case: &Case) -> Result<()> {
        let settings = json!({"shutdownPolicy": case.shutdown_policy, "fencing": {"onEtcdLoss": case.on_etcd_loss},
            "timing": {"nodeReturnGracePeriodSeconds": RETURN_GRACE_SECONDS}});
        self.cluster.apply("clusters", "default", &settings)?;
        for other in self.nodes() {
            let fencing = if other == node { case.fencing } else { Fencing::FencingDelay };
            let (unfenced, devices) = match fencing {
                Fencing::FencingDelay => (true, json!([])),
                Fencing::Impossible => (false, json!([])),
                Fencing::Device => (false, json!([self.hypervisor_fence_device(&other)?])),
                Fencing::Fabric(action) => (false, json!([self.fabric_fence_device(&other, action)?])),
            };
            let spec = json!({"fencing": {"trustWatchdogOnVirtualMachine": unfenced, "devices": devices}});
            self.cluster.apply("nodes", &other, &spec)?;
            wait_until(&format!("{other} to commit {:?}", case.on_etcd_loss), STEP_TIMEOUT, || {
                let report = self.cluster.node_report(&other);
                report.is_ok_and(|report| report.on_etcd_loss == case.on_etcd_loss)
            })?;
        }
        Ok(())
    }

    /// Returns the fence device that ends a node's machine.
    fn hypervisor_fence_device(&self, node: &str) -> Result<Value> {
        let volatile = &self.cluster.machine(node)?.volatile;
        Ok(json!({"name": "hypervisor", "kind": "Power", "action": "Off", "timeoutSeconds": 30,
            "parts": [{"agent": "fence_qemu", "attributes": {"monitor": volatile.join(qemu::FENCE_MONITOR),
                "hold": volatile.join(format!("{}.hold", qemu::PROGRAM))}}]}))
    }

    /// Returns the fence device that closes a node's port of the fabric.
    fn fabric_fence_device(&self, node: &str, action: FenceAction) -> Result<Value> {
        let storage = self.cluster.machine_names(Role::Storage);
        let switch = self.cluster.namespace(storage.first().context("cluster has no storage machine")?);
        Ok(
            json!({"name": "fabric", "kind": "Fabric", "action": action, "coversStorage": true, "timeoutSeconds": 30,
            "parts": [{"agent": "fence_fabric", "attributes": {"switch": switch, "plug": node}}]}),
        )
    }

    /// Creates the stateful service on `node`, without failback, and waits until it runs there and the node is armed. The
    /// service's storage is below `storage` on the machines.
    ///
    /// # Errors
    /// Fails if the API refuses an object, or if the service does not start on `node`.
    pub fn create_service(&self, name: &str, node: &str, storage: &str) -> Result<()> {
        let mut priorities: BTreeMap<String, u8> = self.nodes().into_iter().map(|other| (other, 1)).collect();
        priorities.insert(node.to_owned(), 2);
        self.cluster.apply("groups", name, &json!({"nodes": priorities, "nofailback": true}))?;
        let command = [disk::installed_path("ha-holder"), "--folder".to_owned(), format!("{storage}/{name}")];
        let spec =
            json!({"group": name, "driver": {"exec": {"command": command}}, "timeouts": {"stopSeconds": 10}});
        self.cluster.apply("resources", name, &spec)?;
        wait_until(&format!("{name} to run on {node}, which is armed"), STEP_TIMEOUT, || {
            self.runs_on(name).as_deref() == Some(node)
                && self.cluster.node_report(node).is_ok_and(|report| report.armed)
        })
    }

    /// Stops and deletes a service and its group, but keeps its record. Without the stop, the service would keep running during
    /// the next case.
    ///
    /// # Errors
    /// Fails if the service does not stop, or cannot be deleted.
    pub fn delete_service(&self, name: &str) -> Result<()> {
        self.cluster.apply("resources", name, &json!({"state": "Stopped"}))?;
        wait_until(&format!("{name} to be stopped"), STEP_TIMEOUT, || {
            self.cluster
                .object("resources", name)
                .is_some_and(|object| object["status"]["state"] == "Stopped")
                && self.current_holders(name).is_empty()
        })?;
        self.cluster.delete("resources", name)?;
        wait_until(&format!("{name} to be deleted"), STEP_TIMEOUT, || {
            self.cluster.object("resources", name).is_none()
        })?;
        self.cluster.delete("groups", name)
    }

    /// Returns the record on a service's shared storage.
    pub fn holders(&self, service: &str) -> StorageHolders {
        StorageHolders::new(&self.cluster.shared_directory().join(service))
    }

    /// Returns the holders of a service that have written within the last second.
    pub fn current_holders(&self, service: &str) -> Vec<StorageHolder> {
        let now_ns = monotonic_ns();
        let holders_of_service = self.holders(service).all().unwrap_or_default();
        holders_of_service.into_iter().filter(|holder| holder.last_ns + 1_000_000_000 > now_ns).collect()
    }

    /// Waits until a service has exactly one holder, and returns it.
    ///
    /// # Errors
    /// Fails if the service has no holder or several holders for too long.
    pub fn holder(&self, service: &str) -> Result<StorageHolder> {
        let since_ns = monotonic_ns();
        wait_for(&format!("{service} to have one holder"), STEP_TIMEOUT, || {
            let mut holders_of_service = self.holders(service).all().unwrap_or_default();
            holders_of_service.retain(|holder| holder.last_ns > since_ns);
            if holders_of_service.len() == 1 { holders_of_service.pop() } else { None }
        })
    }

    /// Returns the node on which a service runs. The API and the service's only holder must agree.
    pub fn runs_on(&self, service: &str) -> Option<String> {
        let status = self.cluster.object("resources", service)?["status"].take();
        let holding = self.current_holders(service);
        match holding.as_slice() {
            [one] if status["state"] == "Started" && status["node"] == one.node.as_str() => {
                Some(one.node.clone())
            }
            _ => None,
        }
    }

    /// Returns the nodes other than `node` that were reset after `after_ns`. No such reset is allowed.
    pub fn other_resets(&self, node: &str, after_ns: u64) -> Vec<String> {
        let other_monitors = self.monitors.iter().filter(|(other, _)| *other != node);
        other_monitors
            .filter(|(_, monitor)| monitor.first(EventKind::Reset, after_ns).is_some())
            .map(|(other, _)| other.clone())
            .collect()
    }

    /// Returns a description of the longest stall after `after_ns`, if it is longer than `limit_ms`.
    pub fn stall_reason(&self, after_ns: u64, limit_ms: u64) -> Option<String> {
        let stall = self.stalls.longest(after_ns).filter(|stall| stall.duration_ms > limit_ms)?;
        Some(format!("{} did not run for {} ms", stall.machine, stall.duration_ms))
    }

    /// Returns the delays that the environment adds to the protocol's times: for a commit and for the start of a process, in
    /// milliseconds.
    pub fn slowness_ms(&self) -> (u64, u64) {
        match self.hardware.accelerator {
            Accelerator::Kvm => (100, 1_000),
            Accelerator::Emulation => (500, 3_000),
        }
    }

    /// Returns the directory with all logs.
    pub fn directory(&self) -> PathBuf {
        self.cluster.directory().to_owned()
    }

    /// Removes the cluster.
    ///
    /// # Errors
    /// Fails if a part of the cluster cannot be removed.
    pub fn finish(self) -> Result<()> {
        drop(self.monitors);
        self.cluster.remove()
    }
}
