//! Tests of the harness itself, on etcd without controllers and nodes: faults have the described effect, and no remains stay.

use std::time::Duration;

use anyhow::Result;
use ha_e2e::checker::MachineNamespaces;
use ha_e2e::cluster::Cluster;
use ha_e2e::command::{run, tool};
use ha_e2e::machine::Role;
use ha_e2e::plan::Plan;
use ha_e2e::process::ProcessId;
use ha_e2e::scratch;
use ha_e2e::wait::{check_holds_for, wait_until};
use nix::sys::signal::Signal;

const STEP_TIMEOUT: Duration = Duration::from_secs(30);

fn start_etcd_only(name: &str) -> Result<Cluster> {
    let mut plan = Plan::test(&scratch::directory(name)?);
    (plan.controllers, plan.nodes) = (0, 0);
    Cluster::start(plan)
}

#[test]
fn injected_etcd_faults_take_effect() -> Result<()> {
    let mut cluster = start_etcd_only("harness-faults")?;
    let store = cluster.etcdctl();
    store.run(&["put", "/test/a", "{\"n\":1}"])?;
    let entry = store.get("/test/a")?.expect("the key that was put");
    assert_eq!(entry.value["n"], 1);

    // A watch reports changes with their revision.
    let watch = store.watch("/test/")?;
    wait_until("the watch to see a change", STEP_TIMEOUT, || {
        // The put is repeated, because the watch may start after an earlier put.
        store.run(&["put", "/test/b", "2"]).is_ok()
            && watch.changes.try_iter().any(|change| {
                change.key == "/test/b"
                    && change.entry.is_some_and(|new_entry| new_entry.revision > entry.revision)
            })
    })?;

    // A member that is isolated from its peers still serves clients, but commits no write. The other members elect
    // another leader.
    let old = cluster.etcd_leader()?;
    cluster.isolate_member(&old)?;
    wait_until("another etcd leader", STEP_TIMEOUT, || {
        cluster.etcd_leader().is_ok_and(|leader| leader != old)
    })?;
    let isolated = ha_e2e::etcd::Etcdctl {
        endpoints: format!("https://{}:2379", cluster.machine(&old)?.address),
        certificates: store.certificates.clone(),
    };
    isolated.run(&["get", "/test/a", "--consistency=s"])?;
    assert!(
        isolated.run(&["put", "/test/a", "lost"]).is_err(),
        "a member without its peers committed a write"
    );
    cluster.heal(&old)?;
    wait_until("the member to commit again", STEP_TIMEOUT, || {
        isolated.run(&["put", "/test/a", "{\"n\":2}"]).is_ok()
    })?;

    // A machine without its link.
    cluster.cut(&old)?;
    assert!(isolated.run(&["get", "/test/a", "--consistency=s"]).is_err(), "a machine without link answered");
    cluster.heal(&old)?;
    wait_until("the machine to answer again", STEP_TIMEOUT, || isolated.run(&["get", "/test/a"]).is_ok())?;

    // A process that is stopped and continued.
    let process = cluster.machine(&old)?.program("etcd").expect("etcd runs");
    process.signal(Signal::SIGSTOP)?;
    assert!(isolated.run(&["get", "/test/a", "--consistency=s"]).is_err(), "a stopped process answered");
    process.signal(Signal::SIGCONT)?;
    wait_until("the process to answer again", STEP_TIMEOUT, || isolated.run(&["get", "/test/a"]).is_ok())?;

    // A killed program is restarted by process 1. A held program is not.
    let machine = cluster.machine(&old)?;
    machine.kill("etcd")?;
    wait_until("etcd to be started again", STEP_TIMEOUT, || {
        machine.program("etcd").is_some_and(|new| new != process)
    })?;
    machine.keep_stopped("etcd")?;
    check_holds_for("a held program is not started again", Duration::from_secs(1), || {
        machine.program("etcd").is_none()
    })?;
    machine.allow_restart("etcd")?;
    wait_until("etcd to be started after its release", STEP_TIMEOUT, || machine.program("etcd").is_some())?;

    // A power cut ends all processes. The next boot has a new boot id and the same machine id.
    let boot = std::fs::read_to_string(cluster.machine(&old)?.boot_id_file())?;
    let identity = std::fs::read_to_string(cluster.machine(&old)?.machine_id_file())?;
    cluster.add_address(&old, "192.0.2.10/24")?;
    cluster.power_off(&old)?;
    assert!(cluster.machine(&old)?.processes().is_empty());
    assert!(cluster.addresses(&old)?.is_empty(), "a machine that is off still has an address");
    cluster.power_on(&old)?;
    let own_network = format!("{}/24", cluster.machine(&old)?.address);
    assert_eq!(cluster.addresses(&old)?, [own_network], "a boot has only the machine's own address");
    assert_ne!(std::fs::read_to_string(cluster.machine(&old)?.boot_id_file())?, boot);
    assert_eq!(std::fs::read_to_string(cluster.machine(&old)?.machine_id_file())?, identity);
    wait_until("all members to be healthy", STEP_TIMEOUT, || cluster.etcdctl().is_healthy())?;
    cluster.remove()
}

/// The kernel gives the number of an ended pid namespace to the next namespace. A process of another cluster must not
/// count as a process of a machine that has lost its power.
#[test]
fn an_ended_namespace_identifies_no_later_process() -> Result<()> {
    let boot = || -> Result<(std::process::Child, ProcessId)> {
        let unshared = std::process::Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child", "sleep", "600"])
            .stderr(std::process::Stdio::null())
            .spawn()?;
        let outside = ProcessId::own()?.pid_namespace();
        let mut first = None;
        wait_until("the first process of the namespace", STEP_TIMEOUT, || {
            let path = format!("/proc/{0}/task/{0}/children", unshared.id());
            let children = std::fs::read_to_string(path).unwrap_or_default();
            let child = children.split_whitespace().next().and_then(|pid| pid.parse().ok());
            first = child.and_then(ProcessId::of).filter(|child| child.pid_namespace() != outside);
            first.is_some()
        })?;
        Ok((unshared, first.expect("the process that was waited for")))
    };
    let namespaces = MachineNamespaces::default();
    let (mut unshared, init) = boot()?;
    namespaces.add(init, "controller1")?;
    assert_eq!(namespaces.machine_of(init).as_deref(), Some("controller1"));
    init.signal(Signal::SIGKILL)?;
    unshared.wait()?;
    // The kernel frees the number some milliseconds after the end of the namespace.
    for _ in 0..20 {
        let (mut unshared, later) = boot()?;
        let machine = namespaces.machine_of(later);
        later.signal(Signal::SIGKILL)?;
        unshared.wait()?;
        assert_eq!(machine, None);
    }
    Ok(())
}

#[test]
fn a_removed_cluster_leaves_nothing() -> Result<()> {
    let cluster = start_etcd_only("harness-removal")?;
    let directory = cluster.directory().to_owned();
    let processes: Vec<_> = cluster
        .machine_names(Role::Etcd)
        .iter()
        .flat_map(|name| cluster.machine(name).map(ha_e2e::machine::Machine::processes).unwrap_or_default())
        .collect();
    assert!(processes.len() >= 6, "a first process and a member on each of three machines: {processes:?}");
    let namespace = format!("{}-", cluster.run_name());
    assert!(run(tool("ip"), &["netns", "list"])?.contains(&namespace));
    cluster.remove()?;
    assert!(!run(tool("ip"), &["netns", "list"])?.contains(&namespace));
    assert!(processes.iter().all(|process| !process.is_alive()));
    assert!(!directory.exists());
    Ok(())
}

/// Variable that is set for the process that [`machines_of_a_killed_owner_are_removed`] starts and kills.
const OWNER: &str = "HA_E2E_OWNER";

#[test]
fn owner_that_is_killed() -> Result<()> {
    if std::env::var_os(OWNER).is_none() {
        return Ok(());
    }
    let _cluster = start_etcd_only("harness-owner")?;
    loop {
        std::thread::park();
    }
}

#[test]
fn machines_of_a_killed_owner_are_removed() -> Result<()> {
    let mut owner = std::process::Command::new(std::env::current_exe()?)
        .args(["--exact", "owner_that_is_killed"])
        .env(OWNER, "1")
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()?;
    let directory = scratch::build_directory()?.join("e2e").join(format!("harness-owner-{}", owner.id()));
    wait_until("the other process's cluster", STEP_TIMEOUT, || {
        Cluster::open(&directory).is_ok_and(|cluster| cluster.etcdctl().is_healthy())
    })?;
    let other = Cluster::open(&directory)?;
    let processes: Vec<_> = other
        .machine_names(Role::Etcd)
        .iter()
        .flat_map(|name| other.machine(name).map(ha_e2e::machine::Machine::processes).unwrap_or_default())
        .collect();
    assert!(processes.len() >= 6, "{processes:?}");
    owner.kill()?;
    owner.wait()?;
    assert!(
        processes.iter().all(ha_e2e::process::ProcessId::is_alive),
        "the machines outlive a killed owner"
    );

    let cluster = start_etcd_only("harness-after-owner")?;
    assert!(processes.iter().all(|process| !process.is_alive()));
    let namespace = format!("{}-", other.run_name());
    assert!(!run(tool("ip"), &["netns", "list"])?.contains(&namespace));
    assert!(Cluster::open(&directory).is_err(), "the ended run is still registered");
    std::fs::remove_dir_all(&directory)?;
    cluster.remove()
}
