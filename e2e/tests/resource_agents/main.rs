//! Tests of driver ocf on whole nodes: the examples, and a database that keeps all committed data and its address when it moves.

#![expect(clippy::print_stdout, reason = "measurements are kept in the suite's log")]

mod database;

use ha_api_types::id::Epoch;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use database::{CLIENT, Database, DependencyChecker, SERVER, Writer};
use ha_api_types::record::{WatchdogKind, WatchdogReport};
use ha_e2e::binaries::repository;
use ha_e2e::cluster::Cluster;
use ha_e2e::container;
use ha_e2e::plan::Plan;
use ha_e2e::process;
use ha_e2e::scenario::{STEP_TIMEOUT, Scenario};
use ha_e2e::scratch;
use ha_e2e::wait::{monotonic_ns, wait_for, wait_until};
use nix::sys::signal::Signal;
use serde_json::json;

const NODES: [&str; 2] = ["node1", "node2"];
const GROUP: [&str; 3] = ["database-address", "database-files", "database"];

/// Starts two nodes with systemd and control groups like real machines, and a client on the network of the examples. One etcd
/// member and one controller suffice, because other tests cover both.
fn start() -> Result<Scenario> {
    let mut plan = Plan::test(&scratch::directory("resource-agents")?);
    (plan.etcd, plan.controllers, plan.nodes) = (1, 1, 2);
    plan.units = Some(Vec::new());
    // Resource agents are shell scripts, and a busy database may use one of two processors. Leases must outlast that.
    "Default".clone_into(&mut plan.profile);
    let cluster = Cluster::start(plan)?;
    cluster.attach_client(CLIENT, "192.0.2.1/24")?;
    for node in NODES {
        add_own_address(&cluster, node)?;
    }
    let checker = cluster.checker(&[SERVER, "busybox"]);
    Ok(Scenario { cluster, checker })
}

/// Adds a node's own address on the network of the examples.
fn add_own_address(cluster: &Cluster, node: &str) -> Result<()> {
    cluster.add_address(node, &format!("192.0.2.1{}/24", node.trim_start_matches("node")))
}

/// Waits until a node that was switched on can run services. Its watchdog daemon may have waited for a processor.
fn wait_for_node(scenario: &Scenario, node: &str) -> Result<()> {
    scenario.cluster.wait_for_nodes()?;
    let (epoch, _) = scenario.epoch_and_fence_state(node)?;
    wait_until(&format!("{node} to have a watchdog"), STEP_TIMEOUT, || {
        scenario.cluster.node_report(node).is_ok_and(|report| {
            let WatchdogReport { kind, problem, .. } = report.watchdog;
            report.epoch == Epoch(epoch) && kind == WatchdogKind::Simulated && problem.is_empty()
        })
    })
}

/// Returns the node of the group, once all its resources are Started on one node.
fn wait_until_group_started(scenario: &Scenario, except: &str) -> Result<String> {
    let status = |name: &str| scenario.object("resources", name).map(|object| object["status"].clone());
    wait_for(&format!("the group on one node, not {except:?}"), STEP_TIMEOUT, || {
        let node = status(GROUP[0])?["node"].as_str().filter(|node| *node != except)?.to_owned();
        let all_started = GROUP.iter().all(|name| {
            status(name).is_some_and(|status| status["state"] == "Started" && status["node"] == node.as_str())
        });
        all_started.then_some(node)
    })
    .with_context(|| {
        let all: Vec<String> = GROUP.iter().map(|name| format!("{name}: {:?}", status(name))).collect();
        format!("{}; logs are in {}", all.join("\n"), scenario.cluster.directory().display())
    })
}

#[test]
fn a_database_fails_over_with_its_address_and_files() -> Result<()> {
    let mut scenario = start()?;
    check_web_group(&scenario)?;
    check_duplicate_copies(&scenario)?;

    let database = Database::create(&scenario.cluster)?;
    let dependency_checker = DependencyChecker::watch();
    let begin = Instant::now();
    scenario.hactl(&["apply", "-f", &database.example(&scenario.cluster)?, "--wait", "--timeout", "90s"])?;
    let first = wait_until_group_started(&scenario, "")?;
    println!("applied: all of it runs on {first} after {} ms", begin.elapsed().as_millis());
    database.run_statement(&scenario.cluster, "create table entries (number bigint primary key)")?;
    let writer = Writer::start(&scenario.cluster, &database);

    let second = check_power_cut(&mut scenario, &writer, &first)?;
    scenario.cluster.power_on(&first)?;
    add_own_address(&scenario.cluster, &first)?;
    wait_for_node(&scenario, &first)?;
    check_move(&scenario, &writer, &second, &first)?;
    let servers = dependency_checker.finish()?;
    assert!(servers.len() >= 3, "one each after the start, the power cut and the move: {servers:?}");

    check_repair_in_place(&scenario, &database, &writer, &first)?;
    let committed = writer.finish()?;
    let stored = database.entries(&scenario.cluster)?;
    let lost_numbers: Vec<&u64> = committed.iter().filter(|number| !stored.contains(number)).collect();
    println!("{} rows were committed, {} found", committed.len(), stored.len());
    assert!(lost_numbers.is_empty(), "committed and lost: {lost_numbers:?}");
    scenario.hactl(&["delete", "--stop", "-f", &database.example(&scenario.cluster)?, "--wait"])?;
    scenario.finish()
}

/// Applies the web group of `manifests/examples` without changes. The client must be able to read the page at the group's
/// address.
fn check_web_group(scenario: &Scenario) -> Result<()> {
    let pages = scenario.cluster.shared_directory().join("pages");
    fs::create_dir(&pages)?;
    fs::write(pages.join("index.html"), "hello")?;
    let file = repository().join("manifests/examples/drivers/web-group.yaml");
    let file = file.to_string_lossy();
    scenario.hactl(&["apply", "-f", &file, "--wait", "--timeout", "90s"])?;
    let fetch = ["curl", "--silent", "--max-time", "10", "http://192.0.2.20/index.html"];
    let page = scenario.cluster.run_as_client(CLIENT, &fetch)?;
    assert_eq!(String::from_utf8_lossy(&page.stdout), "hello");
    scenario.hactl(&["delete", "--stop", "-f", &file, "--wait"]).map(|_| ())
}

/// Creates a resource whose address exists on both nodes. The agents must not start it before the error is cleared.
fn check_duplicate_copies(scenario: &Scenario) -> Result<()> {
    const MANUAL_ADDRESS: &str = "192.0.2.30/24";
    let has_address = |node: &&str| {
        scenario
            .cluster
            .addresses(node)
            .is_ok_and(|addresses| addresses.iter().any(|address| address == MANUAL_ADDRESS))
    };
    for node in NODES {
        scenario.cluster.add_address(node, MANUAL_ADDRESS)?;
    }
    let spec = json!({"driver": {"ocf": {"agent": "heartbeat:IPaddr2",
        "parameters": {"ip": "192.0.2.30", "cidr_netmask": "24"}}}});
    scenario.apply("resources", "twice", &spec)?;
    wait_until("twice to be in Error", STEP_TIMEOUT, || scenario.state("twice") == "Error")?;
    let explanation = scenario.hactl(&["why", "twice"])?;
    for words in NODES.into_iter().chain(["MultipleActive"]) {
        assert!(explanation.contains(words), "{words:?} is missing:\n{explanation}");
    }
    assert!(NODES.iter().all(has_address), "a copy was stopped on one of the nodes");
    for node in NODES {
        let log = scenario.cluster.machine(node)?.state().join("ocf/twice/output.log");
        let output_text = fs::read_to_string(&log).unwrap_or_default();
        assert!(!output_text.contains("start"), "the service was started on {node}:\n{output_text}");
    }
    scenario.hactl(&["clear-error", "twice"])?;
    wait_until("twice to run once", STEP_TIMEOUT, || {
        scenario.state("twice") == "Started" && NODES.iter().filter(|node| has_address(node)).count() == 1
    })?;
    scenario.hactl(&["delete", "--stop", "resource", "twice", "--wait"])?;
    assert!(!NODES.iter().any(has_address), "a copy remains on a node");
    Ok(())
}

/// Cuts the power of the node while a client writes. The group must start on the other node, and the client must continue at the
/// same address.
fn check_power_cut(scenario: &mut Scenario, writer: &Writer, first: &str) -> Result<String> {
    writer.wait_for_commit_after(monotonic_ns())?;
    let (epoch, _) = scenario.epoch_and_fence_state(first)?;
    let cut = monotonic_ns();
    scenario.cluster.power_off(first)?;
    let power_off_time = monotonic_ns();
    let committed = writer.wait_for_commit_after(power_off_time)?;
    let second = wait_until_group_started(scenario, first)?;
    let (closed, state) = scenario.epoch_and_fence_state(first)?;
    assert!(closed > epoch, "the epoch of the dead node was not closed: {closed}");
    assert_eq!(state, "Fenced");
    println!("power cut: the client commits again after {} ms", (committed - cut) / 1_000_000);
    Ok(second)
}

/// Moves the group cleanly. The old node must then have no process and no address of the group, and the client must be
/// able to commit on the new node.
fn check_move(scenario: &Scenario, writer: &Writer, from: &str, to: &str) -> Result<()> {
    let begin = monotonic_ns();
    scenario.hactl(&["relocate", "database", to])?;
    assert_eq!(wait_until_group_started(scenario, from)?, to);
    let changes = scenario.checker.timeline();
    let ended = changes.ended_on("database", from, begin).context("no end of the database was recorded")?;
    let committed = writer.wait_for_commit_after(ended)?;
    println!("moved: stopped for {} ms", (committed - ended) / 1_000_000);
    let namespace = container::systemd_process(scenario.cluster.machine(from)?)?.pid_namespace();
    let mut remaining = process::processes_in_namespace(namespace.context("systemd is still running")?);
    remaining.retain(|remaining| process::program_name(remaining.pid).as_deref() == Some(SERVER));
    assert!(remaining.is_empty(), "left on {from}: {remaining:?}");
    let address = format!("{}/24", database::ADDRESS);
    assert!(!scenario.cluster.addresses(from)?.contains(&address), "{from} still has the address");
    Ok(())
}

/// Kills the server's main process, then removes the address. Both must be detected and repaired automatically on the same node.
fn check_repair_in_place(
    scenario: &Scenario,
    database: &Database,
    writer: &Writer,
    node: &str,
) -> Result<()> {
    let action = |name: &str| scenario.action_uid(name);
    let before = GROUP.map(action).into_iter().collect::<Result<Vec<_>>>()?;
    let server = scenario.checker.process("database", node).context("process of the database not found")?;
    let (mut client, worker) = database.keep_busy(&scenario.cluster)?;
    let begin = Instant::now();
    server.signal(Signal::SIGKILL)?;
    wait_until("another server", STEP_TIMEOUT, || {
        scenario.checker.process("database", node).is_some_and(|now| now != server && now.is_alive())
    })?;
    println!("server killed: another one runs after {} ms", begin.elapsed().as_millis());
    // The worker has no time to detect the end of its parent, and its environment does not show its resource.
    assert!(!worker.is_alive(), "a process of the killed server still runs next to the new server");
    client.wait()?;
    assert_eq!(wait_until_group_started(scenario, "")?, node);
    writer.wait_for_commit_after(monotonic_ns())?;

    let address = format!("{}/24", database::ADDRESS);
    let begin = Instant::now();
    scenario.cluster.remove_address(node, &address)?;
    let is_there = || scenario.cluster.addresses(node).is_ok_and(|addresses| addresses.contains(&address));
    wait_until("the address to be configured again", STEP_TIMEOUT, is_there)?;
    println!("address taken away: it is back after {} ms", begin.elapsed().as_millis());
    writer.wait_for_commit_after(monotonic_ns())?;
    assert_eq!(wait_until_group_started(scenario, "")?, node);
    wait_until("both restarts to be reported", Duration::from_secs(30), || {
        ["database", "database-address"].iter().all(|name| {
            scenario
                .hactl(&["events", "--for", &format!("resource/{name}")])
                .is_ok_and(|output_text| output_text.contains("Restarted"))
        })
    })?;
    let after = GROUP.map(action).into_iter().collect::<Result<Vec<_>>>()?;
    assert_eq!(before, after, "a restart in place received another assignment");
    Ok(())
}
