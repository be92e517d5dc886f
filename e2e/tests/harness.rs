//! Tests of the harness itself, on etcd without controllers and nodes: faults have the described effect, and no remains stay.

use std::time::Duration;

use anyhow::Result;
use ha_e2e::checker::Places;
use ha_e2e::cluster::Cluster;
use ha_e2e::command::{run, tool};
use ha_e2e::machine::Role;
use ha_e2e::plan::Plan;
use ha_e2e::process::ProcessId;
use ha_e2e::scratch;
use ha_e2e::wait::{holds_for, wait_until};
use nix::sys::signal::Signal;

const CEILING: Duration = Duration::from_secs(30);

fn store_only(name: &str) -> Result<Cluster> {
    let mut plan = Plan::test(&scratch::folder(name)?);
    (plan.controllers, plan.nodes) = (0, 0);
    Cluster::start(plan)
}

#[test]
fn faults_of_the_store_do_what_they_say() -> Result<()> {
    let mut cluster = store_only("harness-faults")?;
    let store = cluster.etcdctl();
    store.run(&["put", "/test/a", "{\"n\":1}"])?;
    let entry = store.get("/test/a")?.expect("the key that was put");
    assert_eq!(entry.value["n"], 1);

    // A watch reports changes with their revision.
    let watch = store.watch("/test/")?;
    wait_until("the watch to see a change", CEILING, || {
        // Repeated, because the watch may start after a put.
        store.run(&["put", "/test/b", "2"]).is_ok()
            && watch.changes.try_iter().any(|change| {
                change.key == "/test/b" && change.entry.is_some_and(|seen| seen.revision > entry.revision)
            })
    })?;

    // A member that is isolated from its peers still serves clients, but commits nothing. The others elect another leader.
    let old = cluster.store_leader()?;
    cluster.isolate_member(&old)?;
    wait_until("another etcd leader", CEILING, || cluster.store_leader().is_ok_and(|leader| leader != old))?;
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
    wait_until("the member to commit again", CEILING, || {
        isolated.run(&["put", "/test/a", "{\"n\":2}"]).is_ok()
    })?;

    // A machine without its link.
    cluster.cut(&old)?;
    assert!(isolated.run(&["get", "/test/a", "--consistency=s"]).is_err(), "a machine without link answered");
    cluster.heal(&old)?;
    wait_until("the machine to answer again", CEILING, || isolated.run(&["get", "/test/a"]).is_ok())?;

    // A process that is stopped and continued.
    let process = cluster.machine(&old)?.program("etcd").expect("etcd runs");
    process.signal(Signal::SIGSTOP)?;
    assert!(isolated.run(&["get", "/test/a", "--consistency=s"]).is_err(), "a stopped process answered");
    process.signal(Signal::SIGCONT)?;
    wait_until("the process to answer again", CEILING, || isolated.run(&["get", "/test/a"]).is_ok())?;

    // A killed program is restarted by process 1. A held program is not.
    let machine = cluster.machine(&old)?;
    machine.kill("etcd")?;
    wait_until("etcd to be started again", CEILING, || {
        machine.program("etcd").is_some_and(|new| new != process)
    })?;
    machine.hold("etcd")?;
    holds_for("a held program is not started again", Duration::from_secs(1), || {
        machine.program("etcd").is_none()
    })?;
    machine.release("etcd")?;
    wait_until("etcd to be started after its release", CEILING, || machine.program("etcd").is_some())?;

    // A power cut ends all processes. The next boot has a new boot id and the same machine id.
    let boot = std::fs::read_to_string(cluster.machine(&old)?.boot_id_file())?;
    let identity = std::fs::read_to_string(cluster.machine(&old)?.machine_id_file())?;
    cluster.add_address(&old, "192.0.2.10/24")?;
    cluster.power_off(&old)?;
    assert!(cluster.machine(&old)?.processes().is_empty());
    assert!(cluster.addresses(&old)?.is_empty(), "a machine that is off still has an address");
    cluster.power_on(&old)?;
    let own = format!("{}/24", cluster.machine(&old)?.address);
    assert_eq!(cluster.addresses(&old)?, [own], "a boot has only the machine's own address");
    assert_ne!(std::fs::read_to_string(cluster.machine(&old)?.boot_id_file())?, boot);
    assert_eq!(std::fs::read_to_string(cluster.machine(&old)?.machine_id_file())?, identity);
    wait_until("all members to be healthy", CEILING, || cluster.etcdctl().is_healthy())?;
    cluster.remove()
}

/// The kernel gives the number of an ended pid namespace to the next one. A process of another cluster must not count as one
/// of a machine that has lost its power.
#[test]
fn a_namespace_that_ended_names_no_later_process() -> Result<()> {
    let boot = || -> Result<(std::process::Child, ProcessId)> {
        let unshared = std::process::Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child", "sleep", "600"])
            .stderr(std::process::Stdio::null())
            .spawn()?;
        let outside = ProcessId::own()?.pid_namespace();
        let mut first = None;
        wait_until("the first process of the namespace", CEILING, || {
            let path = format!("/proc/{0}/task/{0}/children", unshared.id());
            let children = std::fs::read_to_string(path).unwrap_or_default();
            let child = children.split_whitespace().next().and_then(|pid| pid.parse().ok());
            first = child.and_then(ProcessId::of).filter(|child| child.pid_namespace() != outside);
            first.is_some()
        })?;
        Ok((unshared, first.expect("the process that was waited for")))
    };
    let places = Places::default();
    let (mut unshared, init) = boot()?;
    places.add(init, "controller1")?;
    assert_eq!(places.machine_of(init).as_deref(), Some("controller1"));
    init.signal(Signal::SIGKILL)?;
    unshared.wait()?;
    // The kernel frees the number some milliseconds after the end of the namespace.
    for _ in 0..20 {
        let (mut unshared, later) = boot()?;
        let machine = places.machine_of(later);
        later.signal(Signal::SIGKILL)?;
        unshared.wait()?;
        assert_eq!(machine, None);
    }
    Ok(())
}

#[test]
fn nothing_is_left_behind() -> Result<()> {
    let cluster = store_only("harness-removal")?;
    let folder = cluster.folder().to_owned();
    let processes: Vec<_> = cluster
        .names(Role::Etcd)
        .iter()
        .flat_map(|name| cluster.machine(name).map(ha_e2e::machine::Machine::processes).unwrap_or_default())
        .collect();
    assert!(processes.len() >= 6, "a first process and a member on each of three machines: {processes:?}");
    let namespace = format!("{}-", cluster.run());
    assert!(run(tool("ip"), &["netns", "list"])?.contains(&namespace));
    cluster.remove()?;
    assert!(!run(tool("ip"), &["netns", "list"])?.contains(&namespace));
    assert!(processes.iter().all(|process| !process.is_alive()));
    assert!(!folder.exists());
    Ok(())
}

/// Variable that is set for the process that [`what_a_killed_owner_left_is_swept`] starts and kills.
const OWNER: &str = "HA_E2E_OWNER";

#[test]
fn owner_that_is_killed() -> Result<()> {
    if std::env::var_os(OWNER).is_none() {
        return Ok(());
    }
    let _cluster = store_only("harness-owner")?;
    loop {
        std::thread::park();
    }
}

#[test]
fn what_a_killed_owner_left_is_swept() -> Result<()> {
    let mut owner = std::process::Command::new(std::env::current_exe()?)
        .args(["--exact", "owner_that_is_killed"])
        .env(OWNER, "1")
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()?;
    let folder = scratch::build_folder()?.join("e2e").join(format!("harness-owner-{}", owner.id()));
    wait_until("the other process's cluster", CEILING, || {
        Cluster::open(&folder).is_ok_and(|cluster| cluster.etcdctl().is_healthy())
    })?;
    let other = Cluster::open(&folder)?;
    let processes: Vec<_> = other
        .names(Role::Etcd)
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

    let cluster = store_only("harness-after-owner")?;
    assert!(processes.iter().all(|process| !process.is_alive()));
    let namespace = format!("{}-", other.run());
    assert!(!run(tool("ip"), &["netns", "list"])?.contains(&namespace));
    assert!(Cluster::open(&folder).is_err(), "the ended run is still registered");
    std::fs::remove_dir_all(&folder)?;
    cluster.remove()
}
