//! A running cluster: its start, its reopening by a later command, and its removal.

mod access;
mod clients;
mod faults;

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ha_api_types::keys::Keys;
use ha_api_types::kind::Kind;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::binaries;
use crate::certificates::Authority;
use crate::checker::{DoubleRunChecker, MachineNamespaces, WitnessFile};
use crate::command::{run, tool};
use crate::container;
use crate::machine::{Machine, Role};
use crate::network::Network;
use crate::plan::Plan;
use crate::process::ProcessId;
use crate::qemu_nodes::{disk, qemu};
use crate::registry::{self, Lifetime, RunRecord};
use crate::upgrade;
use crate::wait::wait_until;

/// Longest time for a part to start. Two busy cores and an unoptimized build are slow.
const STEP_TIMEOUT: Duration = Duration::from_secs(90);

/// Longest time for whole machines to boot and register. Emulated machines on a busy host are even slower.
const VIRTUAL_MACHINE_TIMEOUT: Duration = Duration::from_secs(300);

/// Facts about a running cluster that a later command needs, stored in the cluster's directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct State {
    plan: Plan,
    network: Network,
    machines: Vec<Machine>,
}

/// A running cluster. With [`Lifetime::Owner`] it ends when this value is dropped.
pub struct Cluster {
    state: State,
    record: RunRecord,
    machine_namespaces: MachineNamespaces,
    children: Vec<Child>,
    /// `true` if the cluster ends when this value is dropped.
    is_removed_on_drop: bool,
}

impl Cluster {
    /// Starts all machines and waits until the leader has admitted every node. First removes the remains of earlier runs.
    ///
    /// # Errors
    /// Fails if a part does not start. Everything started is removed then, and the logs stay in the plan's directory.
    pub fn start(plan: Plan) -> Result<Self> {
        let mut cluster = Self::create_layout(plan)?;
        let directory = cluster.directory().to_owned();
        cluster
            .start_machines()
            .with_context(|| format!("cluster did not start; logs are in {}", directory.display()))?;
        cluster.is_removed_on_drop = cluster.record.lifetime == Lifetime::Owner;
        Ok(cluster)
    }

    /// Creates the network, the certificates and the directories. Starts no process.
    fn create_layout(plan: Plan) -> Result<Self> {
        registry::remove_orphaned_runs(remove)?;
        if let Some(record) = registry::find(&plan.directory)? {
            bail!(
                "a cluster already runs in {} (run {}): stop it with ./dev/down",
                plan.directory.display(),
                record.run
            );
        }
        if plan.directory.exists() {
            fs::remove_dir_all(&plan.directory).with_context(|| plan.directory.display().to_string())?;
        }
        fs::create_dir_all(plan.shared_directory()).with_context(|| plan.directory.display().to_string())?;
        let namespaces = nix::unistd::getuid().is_root();
        let record = registry::register(&plan.directory, plan.lifetime, namespaces)?;
        let network = Network { run: record.run.clone(), slot: record.slot, namespaces };
        let machines = plan.machines(&network, &record.volatile_directory())?;
        let cluster = Self {
            state: State { plan, network, machines },
            record,
            machine_namespaces: MachineNamespaces::default(),
            children: Vec::new(),
            // Until the whole cluster is up, a failure removes the parts that started.
            is_removed_on_drop: true,
        };
        cluster.state.network.create()?;
        let authority = Authority::create(&cluster.state.plan.certificates())?;
        authority.issue("admin", "hactl:admin", &[])?;
        authority.issue("root", "etcd", &[])?;
        let peer_authority = Authority::create(&cluster.state.plan.peer_certificates())?;
        cluster.mount_disks()?;
        for machine in &cluster.state.machines {
            let settings = cluster.state.plan.disk_settings(machine, &cluster.state.network);
            cluster.attach(machine, settings.is_some())?;
            let organization = match machine.role {
                Role::Etcd => Some("etcd"),
                Role::Controller => Some("hactl:controller"),
                Role::Node => Some("hactl:node"),
                // The storage accepts every client that reaches it, so only the fabric can lock a machine out.
                Role::Storage => None,
            };
            if let Some(organization) = organization {
                authority.issue(&machine.name, organization, &[machine.address.into()])?;
            }
            if machine.role == Role::Etcd {
                peer_authority.issue(&machine.name, "etcd", &[machine.address.into()])?;
            }
            if let Some(settings) = settings {
                disk::make_image(machine, &settings)?;
            }
            let State { plan, network, .. } = &cluster.state;
            if let Some(daemons) =
                plan.contained_daemons(machine, network, &cluster.record.volatile_directory())?
            {
                container::write_overlay(machine, &daemons, plan.units.as_deref().unwrap_or_default())?;
            }
        }
        if cluster.state.plan.controllers > 0 {
            cluster.write_client_configurations()?;
        }
        Ok(cluster)
    }

    /// Connects a machine to its networks.
    fn attach(&self, machine: &Machine, is_virtual_machine: bool) -> Result<()> {
        let network = &self.state.network;
        match machine.role {
            Role::Storage => network.attach_storage(&machine.name, machine.number),
            Role::Etcd | Role::Controller | Role::Node if !is_virtual_machine => {
                network.attach(&machine.name, machine.number)
            }
            Role::Etcd | Role::Controller | Role::Node => {
                let storage = self.machine_names(Role::Storage);
                let storage =
                    storage.first().context("whole machines require the storage behind the fabric")?;
                network.attach_virtual_machine(&machine.name, machine.number, qemu::TAPS, storage)
            }
        }
    }

    /// Mounts a small disk for each node's journal, if the plan requires it.
    fn mount_disks(&self) -> Result<()> {
        let Some(kilobytes) = self.state.plan.disk_kilobytes else { return Ok(()) };
        for machine in self.state.machines.iter().filter(|machine| machine.role == Role::Node) {
            mount_disk(&machine.state(), kilobytes)?;
        }
        Ok(())
    }

    fn start_machines(&mut self) -> Result<()> {
        for name in self.machine_names(Role::Storage).into_iter().chain(self.machine_names(Role::Etcd)) {
            self.power_on(&name)?;
        }
        if self.state.plan.etcd > 0 {
            wait_until("etcd to be healthy", STEP_TIMEOUT, || self.etcdctl().is_healthy())?;
        }
        if self.state.plan.controllers == 0 {
            return self.save();
        }
        self.enable_etcd_authentication()?;
        for name in self.machine_names(Role::Controller) {
            self.power_on(&name)?;
        }
        for name in self.machine_names(Role::Controller) {
            let api = self.api(&name)?;
            wait_until(&format!("{name} to be ready"), STEP_TIMEOUT, || api.is_ready())?;
        }
        self.configure()?;
        for name in self.machine_names(Role::Node) {
            self.power_on(&name)?;
        }
        self.wait_for_nodes()
    }

    /// Enables authentication in etcd, with a user for each controller and each node.
    fn enable_etcd_authentication(&self) -> Result<()> {
        let certificates = self.state.plan.certificates();
        let file = |name: &str| certificates.join(name).to_string_lossy().into_owned();
        let programs =
            binaries::etcdctl()?.parent().context("etcdctl has no directory")?.to_string_lossy().into_owned();
        let output = self.hactl_without_connection(&[
            "store",
            "secure",
            "--yes",
            "--etcd-endpoints",
            &self.etcdctl().endpoints,
            "--etcd-ca",
            &file("ca.pem"),
            "--etcd-cert",
            &file("root.pem"),
            "--etcd-key",
            &file("root.key"),
            "--controller",
            &self.machine_names(Role::Controller).join(","),
            "--node",
            &self.machine_names(Role::Node).join(","),
            "--programs",
            &programs,
        ])?;
        ensure!(output.status.success(), "hactl store secure: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Applies the cluster's settings and its nodes, as an operator would before the nodes start.
    fn configure(&self) -> Result<()> {
        let api = self.api("controller1")?;
        let apply = |kind: Kind, mut object: Value| {
            upgrade::use_names_of_old_build(kind, &mut object);
            api.apply(kind.plural(), &object)
        };
        apply(
            Kind::Cluster,
            json!({"apiVersion": "hactl.io/v1", "kind": "Cluster", "metadata": {"name": "default"},
                "spec": {"timing": {"profile": self.state.plan.profile}, "fencing": {"allowSimulatedWatchdog": true}}}),
        )?;
        for name in self.machine_names(Role::Node) {
            // The namespaces of this host cannot be paused individually, so W is valid proof even if the host is
            // virtual.
            apply(
                Kind::Node,
                json!({"apiVersion": "hactl.io/v1", "kind": "Node", "metadata": {"name": name},
                    "spec": {"fencing": {"trustWatchdogOnVirtualMachine": true}}}),
            )?;
        }
        Ok(())
    }

    /// Waits until the epoch of every powered-on node is open.
    ///
    /// # Errors
    /// Fails if the epoch of a node is not open in time.
    pub fn wait_for_nodes(&self) -> Result<()> {
        for machine in
            self.state.machines.iter().filter(|machine| machine.role == Role::Node && machine.is_on())
        {
            let key = self.keys().fence(&machine.name.as_str().into());
            let timeout =
                if self.state.plan.hardware.is_some() { VIRTUAL_MACHINE_TIMEOUT } else { STEP_TIMEOUT };
            wait_until(&format!("{} to be open for services", machine.name), timeout, || {
                self.etcdctl().get(&key).ok().flatten().is_some_and(|entry| entry.value["state"] == "Open")
            })?;
        }
        Ok(())
    }

    /// Returns the cluster that runs in a directory.
    ///
    /// # Errors
    /// Fails if no cluster runs in the directory.
    pub fn open(directory: &Path) -> Result<Self> {
        let Some(record) = registry::find(directory)? else {
            bail!("no cluster runs in {}: start one with ./dev/up", directory.display());
        };
        let path = directory.join("cluster.json");
        let text = fs::read(&path).with_context(|| path.display().to_string())?;
        let state: State = serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
        let machine_namespaces = MachineNamespaces::default();
        for machine in &state.machines {
            if let Some(init) = machine.first_process() {
                machine_namespaces.add(init, &machine.name)?;
            }
        }
        Ok(Self { state, record, machine_namespaces, children: Vec::new(), is_removed_on_drop: false })
    }

    /// Ends the cluster and removes all of it from this machine, including its directory.
    ///
    /// # Errors
    /// Fails if a part cannot be removed.
    pub fn remove(mut self) -> Result<()> {
        self.end_processes()?;
        self.is_removed_on_drop = false;
        let directory = self.directory().to_owned();
        fs::remove_dir_all(&directory).with_context(|| directory.display().to_string())
    }

    /// Returns the identifier of the run, which is part of the name of everything that the run created.
    pub fn run_name(&self) -> &str {
        &self.record.run
    }

    /// Returns the directory of the run.
    pub fn directory(&self) -> &Path {
        &self.state.plan.directory
    }

    /// Returns the directory of the run's sockets, which is removed with the run.
    pub fn volatile_directory(&self) -> PathBuf {
        self.record.volatile_directory()
    }

    /// Returns the path of the shared directory on the host.
    pub fn shared_directory(&self) -> PathBuf {
        self.state.plan.shared_directory()
    }

    /// Returns the witness that writes to `file` in the shared directory.
    pub fn witness(&self, file: &str) -> WitnessFile {
        WitnessFile::new(&self.shared_directory().join(file))
    }

    /// Returns the layout of the cluster's keys in etcd.
    pub fn keys(&self) -> Keys {
        Keys::new("default")
    }

    /// Returns the names of all machines with a role.
    pub fn machine_names(&self, role: Role) -> Vec<String> {
        self.state
            .machines
            .iter()
            .filter(|machine| machine.role == role)
            .map(|machine| machine.name.clone())
            .collect()
    }

    /// Returns a machine by name.
    ///
    /// # Errors
    /// Fails if no machine has that name. The error lists the existing names.
    pub fn machine(&self, name: &str) -> Result<&Machine> {
        self.state.machines.iter().find(|machine| machine.name == name).with_context(|| {
            let names: Vec<&str> = self.state.machines.iter().map(|machine| machine.name.as_str()).collect();
            format!("machine {name} not found; machines: {}", names.join(", "))
        })
    }

    /// Returns the address at which machines reach services outside the cluster.
    pub fn host_address(&self) -> Ipv4Addr {
        self.state.network.address(1)
    }

    /// Returns the name of a machine's network namespace.
    pub fn namespace(&self, name: &str) -> String {
        self.state.network.namespace(name)
    }

    fn machine_mut(&mut self, name: &str) -> Result<&mut Machine> {
        self.machine(name)?;
        self.state.machines.iter_mut().find(|machine| machine.name == name).context("machine not found")
    }

    /// Starts a checker of this cluster; see [`DoubleRunChecker`].
    pub fn checker(&self, programs: &[&str]) -> DoubleRunChecker {
        DoubleRunChecker::start(self.machine_namespaces.clone(), programs)
    }

    /// Ends every process of the run, removes its network and deletes its record. The directory stays.
    fn end_processes(&mut self) -> Result<()> {
        self.add_recorded_processes()?;
        let outcome = registry::remove_run(&self.record, remove);
        self.reap_children();
        outcome
    }

    /// Adds the processes that other commands have started in this cluster since it was opened.
    fn add_recorded_processes(&mut self) -> Result<()> {
        if let Some(recorded) = registry::find(self.directory())? {
            self.record.processes.extend(recorded.processes);
        }
        self.record.processes.sort();
        self.record.processes.dedup();
        self.record.processes.retain(ProcessId::is_alive);
        Ok(())
    }

    fn save(&mut self) -> Result<()> {
        self.add_recorded_processes()?;
        self.record.save()?;
        let path = self.directory().join("cluster.json");
        let next = path.with_extension("next");
        fs::write(&next, serde_json::to_vec_pretty(&self.state)?)
            .with_context(|| next.display().to_string())?;
        fs::rename(&next, &path).with_context(|| path.display().to_string())
    }

    /// Collects the exit status of ended children, so that no zombies stay.
    fn reap_children(&mut self) {
        self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
}

impl Drop for Cluster {
    /// Ends a cluster whose lifetime is that of its owner. The directory stays: an owner that does not call [`Cluster::remove`]
    /// has failed, and its logs are needed.
    fn drop(&mut self) {
        if self.is_removed_on_drop {
            // The next start removes the remains.
            let _ = self.end_processes();
        }
    }
}

/// Ends every process of a run and removes its network.
fn remove(record: &RunRecord) -> Result<()> {
    for process in &record.processes {
        process.signal(Signal::SIGKILL)?;
    }
    wait_until(&format!("the end of every process of run {}", record.run), STEP_TIMEOUT, || {
        !record.processes.iter().any(ProcessId::is_alive)
    })?;
    unmount_disks(&record.directory)?;
    if record.namespaces {
        container::remove_groups(&record.run)?;
    }
    Network { run: record.run.clone(), slot: record.slot, namespaces: record.namespaces }.remove()
}

/// Mounts an empty small disk that tests can fill: a tmpfs file system below a run's directory, found by that path. Like
/// a real disk, it outlives the machine that uses it; it is removed with the run.
///
/// # Errors
/// Fails if the kernel refuses, for example without root.
fn mount_disk(directory: &Path, kilobytes: u32) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let size = format!("size={kilobytes}k,mode=755");
    run(tool("mount"), &["-t", "tmpfs", "-o", &size, "hactl-disk", &directory.to_string_lossy()]).map(|_| ())
}

/// Unmounts every disk below a run's directory, if any.
///
/// # Errors
/// Fails if a disk cannot be unmounted.
fn unmount_disks(directory: &Path) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("/proc/self/mounts")?;
    for path in mounted_below(&mounts, directory) {
        run(tool("umount"), &[path.to_string_lossy().as_ref()])?;
    }
    Ok(())
}

/// Returns the mount points of this suite's disks below `directory`. `mounts` is the kernel's list: device, mount
/// point, type and so on, separated by spaces. A space in a name is written `\040`.
fn mounted_below(mounts: &str, directory: &Path) -> Vec<PathBuf> {
    let mount_points = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (device, mount_point) = (fields.next()?, fields.next()?);
        (device == "hactl-disk").then(|| PathBuf::from(mount_point.replace("\\040", " ")))
    });
    mount_points.filter(|mount_point| mount_point.starts_with(directory)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_journal_disks_of_run_are_found() {
        let mounts = "hactl-disk /t/run\\0401/state tmpfs rw 0 0\ntmpfs /t/run\\0401/other tmpfs rw 0 0\n\
            hactl-disk /t/run2/state tmpfs rw 0 0\n";
        assert_eq!(mounted_below(mounts, Path::new("/t/run 1")), [PathBuf::from("/t/run 1/state")]);
    }
}
