//! Injects faults into a cluster, and undoes them.

use super::kind::{FaultKind, FaultTarget};
use super::schedule::Fault;
use crate::cluster::Cluster;
use crate::machine::Role;
use crate::network::PacketFilter;
use crate::process::ProcessId;
use crate::scenario::Scenario;
use crate::wait::wait_until;
use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

const AGENT: &str = "ha-node-agent";
const WATCHDOG_DAEMON: &str = "ha-watchdogd";
const CONTROLLER: &str = "ha-controller";
const ETCD: &str = "etcd";

/// Bandwidth of a slow link, in kilobytes a second: enough for a heartbeat, but not for a list of all objects.
const SLOW_LINK_KILOBYTES_PER_SECOND: u32 = 10;
/// Packet loss of a lossy link, in percent.
const PACKET_LOSS_PERCENT: u8 = 25;
/// Longest time between a controller's SIGTERM and the start of its next process.
const RESTART_TIMEOUT: Duration = Duration::from_secs(10);
/// Prefix of the keys that fill etcd's database.
const FILLER_PREFIX: &str = "/filler/";

/// An injected fault and its target, for the undo.
#[derive(Debug, Clone)]
pub struct InjectedFault {
    /// The fault.
    pub fault: Fault,
    /// Name of the machine or service. Several names are separated by spaces.
    pub target: String,
}

/// Injects a fault.
///
/// # Errors
/// Fails if the fault is impossible now, for example because the program to kill does not run.
pub fn inject(scenario: &mut Scenario, fault: Fault) -> Result<InjectedFault> {
    let target = target_of(scenario, fault)?;
    let cluster = &mut scenario.cluster;
    match fault.kind {
        FaultKind::PowerCut | FaultKind::MemberPowerCut => {
            if !cluster.machine(&target)?.is_on() {
                bail!("{target} is off");
            }
            cluster.power_off(&target)?;
        }
        FaultKind::LinkCut | FaultKind::ControllerLinkCut | FaultKind::MemberLinkCut => {
            cluster.cut(&target)?;
        }
        FaultKind::SendsNothing => cluster.drop_packets(&target, PacketFilter::Sent)?,
        FaultKind::ReceivesNothing => cluster.drop_packets(&target, PacketFilter::Received)?,
        FaultKind::SlowLink => {
            cluster.drop_packets(&target, PacketFilter::Above(SLOW_LINK_KILOBYTES_PER_SECOND))?;
        }
        FaultKind::LossyLink => cluster.drop_packets(&target, PacketFilter::Percent(PACKET_LOSS_PERCENT))?,
        FaultKind::StoreUnreachable | FaultKind::ControllerWithoutStore => {
            cluster.cut_from(&target, Role::Etcd, false)?;
        }
        FaultKind::StoreUnreachableOneWay => cluster.cut_from(&target, Role::Etcd, true)?,
        FaultKind::ControllersUnreachable => cluster.cut_from(&target, Role::Controller, false)?,
        FaultKind::PeersUnreachable => cluster.cut_from(&target, Role::Node, false)?,
        FaultKind::AllProcessesStopped => signal_all(cluster, &target, Signal::SIGSTOP)?,
        FaultKind::WatchdogPetsRejected => {
            let watchdog = cluster.machine(&target)?.watchdog.context("machine has no watchdog")?;
            watchdog.signal(Signal::SIGUSR1)?;
        }
        FaultKind::AgentKilled => cluster.machine(&target)?.kill(AGENT)?,
        FaultKind::AgentStopped => cluster.machine(&target)?.signal(AGENT, Signal::SIGSTOP)?,
        FaultKind::AgentRestarted => cluster.machine(&target)?.signal(AGENT, Signal::SIGTERM)?,
        FaultKind::AgentDisabled => cluster.machine(&target)?.keep_stopped(AGENT)?,
        FaultKind::WatchdogDaemonKilled => cluster.machine(&target)?.kill(WATCHDOG_DAEMON)?,
        FaultKind::ServiceKilled => {
            let node =
                scenario.checker.machines_running(&target).pop_first().context("service does not run")?;
            let process = scenario.checker.process(&target, &node).context("service does not run")?;
            process.signal(Signal::SIGKILL)?;
        }
        FaultKind::DiskFull => fill_disk(&disk_filler_path(cluster, &target)?)?,
        FaultKind::HeartbeatDeleted => {
            let key = cluster.keys().alive(&target.as_str().into());
            cluster.etcdctl().run(&["del", &key])?;
        }
        FaultKind::LeaseRevoked => {
            let key = cluster.keys().alive(&target.as_str().into());
            let entry = cluster.etcdctl().get(&key)?.context("heartbeat key not found")?;
            cluster.etcdctl().run(&["lease", "revoke", &format!("{:x}", entry.lease)])?;
        }
        FaultKind::ControllerKilled => cluster.machine(&target)?.kill(CONTROLLER)?,
        FaultKind::ControllerStopped => cluster.machine(&target)?.signal(CONTROLLER, Signal::SIGSTOP)?,
        FaultKind::ControllersRestartedInTurn => restart_controllers(cluster)?,
        FaultKind::AllControllersKilled => kill_controllers(cluster)?,
        FaultKind::MemberStopped => cluster.machine(&target)?.signal(ETCD, Signal::SIGSTOP)?,
        FaultKind::StoreLeaderMoved => cluster.etcdctl().move_leader()?,
        FaultKind::StoreLeaderIsolated => {
            let member = cluster.machine(&target)?;
            member.signal(ETCD, Signal::SIGSTOP)?;
            cluster.isolate_member(&target)?;
            member.signal(ETCD, Signal::SIGCONT)?;
        }
        FaultKind::Compaction => cluster.etcdctl().compact()?,
        FaultKind::StoreFull => cluster.etcdctl().fill(FILLER_PREFIX)?,
        FaultKind::AllMembersStopped => {
            for member in cluster.machine_names(Role::Etcd) {
                cluster.machine(&member)?.signal(ETCD, Signal::SIGSTOP)?;
            }
        }
    }
    Ok(InjectedFault { fault, target })
}

/// Undoes a lasting fault.
///
/// # Errors
/// Fails if the undo is impossible. The cluster then stays broken.
pub fn undo(scenario: &mut Scenario, injected: &InjectedFault) -> Result<()> {
    let cluster = &mut scenario.cluster;
    let target = injected.target.as_str();
    match injected.fault.kind {
        FaultKind::PowerCut | FaultKind::MemberPowerCut => cluster.power_on(target),
        FaultKind::LinkCut
        | FaultKind::ControllerLinkCut
        | FaultKind::MemberLinkCut
        | FaultKind::SendsNothing
        | FaultKind::ReceivesNothing
        | FaultKind::SlowLink
        | FaultKind::LossyLink
        | FaultKind::StoreUnreachable
        | FaultKind::StoreUnreachableOneWay
        | FaultKind::ControllersUnreachable
        | FaultKind::PeersUnreachable
        | FaultKind::ControllerWithoutStore
        | FaultKind::StoreLeaderIsolated => cluster.heal(target),
        FaultKind::AllProcessesStopped => signal_all(cluster, target, Signal::SIGCONT),
        FaultKind::WatchdogPetsRejected => {
            match cluster.machine(target)?.watchdog.filter(ProcessId::is_alive) {
                Some(watchdog) => watchdog.signal(Signal::SIGUSR2),
                None => Ok(()),
            }
        }
        FaultKind::AgentStopped => resume_program(cluster, target, AGENT),
        FaultKind::ControllerStopped => resume_program(cluster, target, CONTROLLER),
        FaultKind::MemberStopped => resume_program(cluster, target, ETCD),
        FaultKind::AgentDisabled => cluster.machine(target)?.allow_restart(AGENT),
        FaultKind::DiskFull => {
            let path = disk_filler_path(cluster, target)?;
            std::fs::remove_file(&path).with_context(|| path.display().to_string())
        }
        FaultKind::AllControllersKilled => kill_controllers(cluster),
        FaultKind::StoreFull => cluster.etcdctl().free_space(FILLER_PREFIX),
        FaultKind::AllMembersStopped => cluster
            .machine_names(Role::Etcd)
            .iter()
            .try_for_each(|member| resume_program(cluster, member, ETCD)),
        FaultKind::AgentKilled
        | FaultKind::AgentRestarted
        | FaultKind::WatchdogDaemonKilled
        | FaultKind::ServiceKilled
        | FaultKind::HeartbeatDeleted
        | FaultKind::LeaseRevoked
        | FaultKind::ControllerKilled
        | FaultKind::ControllersRestartedInTurn
        | FaultKind::StoreLeaderMoved
        | FaultKind::Compaction => Ok(()),
    }
}

fn target_of(scenario: &Scenario, fault: Fault) -> Result<String> {
    let cluster = &scenario.cluster;
    let machine_of_role =
        |role: Role| cluster.machine_names(role).into_iter().nth(fault.target).context("machine not found");
    match fault.kind.target() {
        FaultTarget::Node => machine_of_role(Role::Node),
        FaultTarget::Controller => machine_of_role(Role::Controller),
        FaultTarget::Member => machine_of_role(Role::Etcd),
        FaultTarget::Controllers => Ok(cluster.machine_names(Role::Controller).join(" ")),
        FaultTarget::Store if fault.kind == FaultKind::StoreLeaderIsolated => cluster.etcd_leader(),
        FaultTarget::Store => Ok("store".to_owned()),
        FaultTarget::Service => Ok(super::campaign::service_name(fault.target)),
    }
}

/// Continues a stopped program, if it still runs. A program that died with its machine has no stopped process.
fn resume_program(cluster: &Cluster, machine: &str, program: &str) -> Result<()> {
    match cluster.machine(machine)?.program(program) {
        Some(process) => process.signal(Signal::SIGCONT),
        None => Ok(()),
    }
}

/// Sends a signal to all processes of a machine. Process 1 comes first, so that it starts no other process in the
/// meantime.
fn signal_all(cluster: &Cluster, machine: &str, signal: Signal) -> Result<()> {
    let machine = cluster.machine(machine)?;
    let mut processes = machine.processes();
    processes.sort_by_key(|process| Some(*process) != machine.init);
    // A process may have ended since the list was made.
    processes.iter().filter(|process| process.is_alive()).try_for_each(|process| process.signal(signal))
}

/// Restarts the controllers one at a time, each by SIGTERM.
fn restart_controllers(cluster: &Cluster) -> Result<()> {
    for controller in cluster.machine_names(Role::Controller) {
        let machine = cluster.machine(&controller)?;
        let Some(process_before) = machine.program(CONTROLLER) else { continue };
        process_before.signal(Signal::SIGTERM)?;
        wait_until(&format!("another process of {controller}"), RESTART_TIMEOUT, || {
            machine.program(CONTROLLER).is_some_and(|process| process != process_before)
        })?;
    }
    Ok(())
}

fn kill_controllers(cluster: &Cluster) -> Result<()> {
    for controller in cluster.machine_names(Role::Controller) {
        let machine = cluster.machine(&controller)?;
        // A controller that its service manager is restarting has no process to kill.
        if machine.program(CONTROLLER).is_some() {
            machine.kill(CONTROLLER)?;
        }
    }
    Ok(())
}

fn disk_filler_path(cluster: &Cluster, node: &str) -> Result<PathBuf> {
    Ok(cluster.machine(node)?.state().join("filler"))
}

/// Writes until the disk is full.
fn fill_disk(path: &PathBuf) -> Result<()> {
    let mut file = File::create(path).with_context(|| path.display().to_string())?;
    // Large blocks, then single bytes, so that no space remains even for a short line.
    for size in [1 << 16, 1] {
        let block = vec![0; size];
        while file.write_all(&block).is_ok() {}
    }
    Ok(())
}
