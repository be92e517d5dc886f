//! Tests of driver ocf on whole nodes: the examples, and a database that keeps all committed data and its address when it moves.

#![expect(clippy::print_stdout, reason = "measurements are kept in the suite's log")]

mod database;

use ha_api_types::id::Epoch;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use database::{CLIENT, Database, Order, SERVER, Writer};
use ha_api_types::record::{WatchdogKind, WatchdogReport};
use ha_e2e::binaries::repository;
use ha_e2e::cluster::Cluster;
use ha_e2e::container;
use ha_e2e::plan::Plan;
use ha_e2e::process;
use ha_e2e::scenario::{CEILING, Scenario};
use ha_e2e::scratch;
use ha_e2e::wait::{monotonic_ns, wait_for, wait_until};
use nix::sys::signal::Signal;
use serde_json::json;

const NODES: [&str; 2] = ["node1", "node2"];
const GROUP: [&str; 3] = ["database-address", "database-files", "database"];

/// Starts two nodes with systemd and control groups like real machines, and a client on the network of the examples. One etcd
/// member and one controller suffice, because other tests cover both.
fn start() -> Result<Scenario> {
    let mut plan = Plan::test(&scratch::folder("resource-agents")?);
    (plan.etcd, plan.controllers, plan.nodes) = (1, 1, 2);
    plan.units = Some(Vec::new());
    // Resource agents are shell scripts, and a busy database may use one of two processors. Leases must outlast that.
    "Default".clone_into(&mut plan.profile);
    let cluster = Cluster::start(plan)?;
    cluster.attach_client(CLIENT, "192.0.2.1/24")?;
    for node in NODES {
        own_address(&cluster, node)?;
    }
    let checker = cluster.checker(&[SERVER, "busybox"]);
    Ok(Scenario { cluster, checker })
}

/// Adds a node's own address on the network of the examples.
fn own_address(cluster: &Cluster, node: &str) -> Result<()> {
    cluster.add_address(node, &format!("192.0.2.1{}/24", node.trim_start_matches("node")))
}

/// Waits until a node that was switched on can run services. Its watchdog daemon may have waited for a processor.
fn wait_for_node(scenario: &Scenario, node: &str) -> Result<()> {
    scenario.cluster.wait_for_nodes()?;
    let (epoch, _) = scenario.fence(node)?;
    wait_until(&format!("{node} to have a watchdog"), CEILING, || {
        scenario.cluster.node_report(node).is_ok_and(|report| {
            let WatchdogReport { kind, problem, .. } = report.watchdog;
            report.epoch == Epoch(epoch) && kind == WatchdogKind::Simulated && problem.is_empty()
        })
    })
}

fn hactl(scenario: &Scenario, arguments: &[&str]) -> Result<String> {
    let output = scenario.cluster.hactl_within(CEILING, arguments)?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "hactl {arguments:?}: {said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(said)
}

/// Returns the node of the group, once all its resources are Started on one node.
fn home(scenario: &Scenario, except: &str) -> Result<String> {
    let status = |name: &str| scenario.object("resources", name).map(|object| object["status"].clone());
    wait_for(&format!("the group on one node, not {except:?}"), CEILING, || {
        let node = status(GROUP[0])?["node"].as_str().filter(|node| *node != except)?.to_owned();
        let settled = GROUP.iter().all(|name| {
            status(name).is_some_and(|status| status["state"] == "Started" && status["node"] == node.as_str())
        });
        settled.then_some(node)
    })
    .with_context(|| {
        let all: Vec<String> = GROUP.iter().map(|name| format!("{name}: {:?}", status(name))).collect();
        format!("{}; logs are in {}", all.join("\n"), scenario.cluster.folder().display())
    })
}

#[test]
fn a_database_fails_over_with_its_address_and_files() -> Result<()> {
    let mut scenario = start()?;
    the_web_group_runs(&scenario)?;
    copies_on_two_nodes_are_found_first(&scenario)?;

    let database = Database::create(&scenario.cluster)?;
    let order = Order::watch();
    let begin = Instant::now();
    hactl(&scenario, &["apply", "-f", &database.example(&scenario.cluster)?, "--wait", "--timeout", "90s"])?;
    let first = home(&scenario, "")?;
    println!("applied: all of it runs on {first} after {} ms", begin.elapsed().as_millis());
    database.ask(&scenario.cluster, "create table entries (number bigint primary key)")?;
    let writer = Writer::start(&scenario.cluster, &database);

    let second = a_power_cut_loses_nothing(&mut scenario, &writer, &first)?;
    scenario.cluster.power_on(&first)?;
    own_address(&scenario.cluster, &first)?;
    wait_for_node(&scenario, &first)?;
    a_move_stops_and_starts_in_order(&scenario, &writer, &second, &first)?;
    let servers = order.finish()?;
    assert!(servers.len() >= 3, "one each after the start, the power cut and the move: {servers:?}");

    what_is_broken_is_repaired_in_place(&scenario, &database, &writer, &first)?;
    let committed = writer.finish()?;
    let found = database.entries(&scenario.cluster)?;
    let lost: Vec<&u64> = committed.iter().filter(|number| !found.contains(number)).collect();
    println!("{} rows were committed, {} found", committed.len(), found.len());
    assert!(lost.is_empty(), "committed and lost: {lost:?}");
    hactl(&scenario, &["delete", "--stop", "-f", &database.example(&scenario.cluster)?, "--wait"])?;
    scenario.finish()
}

/// Applies the web group of `manifests/examples` without changes. The client must be able to read the page at the group's
/// address.
fn the_web_group_runs(scenario: &Scenario) -> Result<()> {
    let pages = scenario.cluster.shared().join("pages");
    fs::create_dir(&pages)?;
    fs::write(pages.join("index.html"), "hello")?;
    let file = repository().join("manifests/examples/drivers/web-group.yaml");
    let file = file.to_string_lossy();
    hactl(scenario, &["apply", "-f", &file, "--wait", "--timeout", "90s"])?;
    let fetch = ["curl", "--silent", "--max-time", "10", "http://192.0.2.20/index.html"];
    let page = scenario.cluster.as_client(CLIENT, &fetch)?;
    assert_eq!(String::from_utf8_lossy(&page.stdout), "hello");
    hactl(scenario, &["delete", "--stop", "-f", &file, "--wait"]).map(|_| ())
}

/// Creates a resource whose address exists on both nodes. The agents must not start it before the error is cleared.
fn copies_on_two_nodes_are_found_first(scenario: &Scenario) -> Result<()> {
    const BY_HAND: &str = "192.0.2.30/24";
    let has_it = |node: &&str| {
        scenario.cluster.addresses(node).is_ok_and(|found| found.iter().any(|one| one == BY_HAND))
    };
    for node in NODES {
        scenario.cluster.add_address(node, BY_HAND)?;
    }
    let spec = json!({"driver": {"ocf": {"agent": "heartbeat:IPaddr2",
        "parameters": {"ip": "192.0.2.30", "cidr_netmask": "24"}}}});
    scenario.apply("resources", "twice", &spec)?;
    wait_until("twice to be in Error", CEILING, || scenario.state("twice") == "Error")?;
    let why = hactl(scenario, &["why", "twice"])?;
    for words in NODES.into_iter().chain(["MultipleActive"]) {
        assert!(why.contains(words), "{words:?} is missing:\n{why}");
    }
    assert!(NODES.iter().all(has_it), "a copy was stopped on one of the nodes");
    for node in NODES {
        let log = scenario.cluster.machine(node)?.state().join("ocf/twice/output.log");
        let said = fs::read_to_string(&log).unwrap_or_default();
        assert!(!said.contains("start"), "the service was started on {node}:\n{said}");
    }
    hactl(scenario, &["clear-error", "twice"])?;
    wait_until("twice to run once", CEILING, || {
        scenario.state("twice") == "Started" && NODES.iter().filter(|node| has_it(node)).count() == 1
    })?;
    hactl(scenario, &["delete", "--stop", "resource", "twice", "--wait"])?;
    assert!(!NODES.iter().any(has_it), "a copy remains on a node");
    Ok(())
}

/// Cuts the power of the node while a client writes. The group must start on the other node, and the client must continue at the
/// same address.
fn a_power_cut_loses_nothing(scenario: &mut Scenario, writer: &Writer, first: &str) -> Result<String> {
    writer.wait_for_commit_after(monotonic_ns())?;
    let (epoch, _) = scenario.fence(first)?;
    let cut = monotonic_ns();
    scenario.cluster.power_off(first)?;
    let off = monotonic_ns();
    let committed = writer.wait_for_commit_after(off)?;
    let second = home(scenario, first)?;
    let (closed, state) = scenario.fence(first)?;
    assert!(closed > epoch, "the epoch of the dead node was not closed: {closed}");
    assert_eq!(state, "Fenced");
    println!("power cut: the client commits again after {} ms", (committed - cut) / 1_000_000);
    Ok(second)
}

/// Moves the group cleanly. The move must leave nothing on the old node, and the client must be able to commit on the new one.
fn a_move_stops_and_starts_in_order(
    scenario: &Scenario,
    writer: &Writer,
    from: &str,
    to: &str,
) -> Result<()> {
    let begin = monotonic_ns();
    hactl(scenario, &["relocate", "database", to])?;
    assert_eq!(home(scenario, from)?, to);
    let changes = scenario.checker.timeline();
    let ended = changes.ended_on("database", from, begin).context("no end of the database was recorded")?;
    let committed = writer.wait_for_commit_after(ended)?;
    println!("moved: stopped for {} ms", (committed - ended) / 1_000_000);
    let namespace = container::process_one(scenario.cluster.machine(from)?)?.pid_namespace();
    let mut left = process::in_namespace(namespace.context("systemd is still running")?);
    left.retain(|left| process::program(left.pid).as_deref() == Some(SERVER));
    assert!(left.is_empty(), "left on {from}: {left:?}");
    let address = format!("{}/24", database::ADDRESS);
    assert!(!scenario.cluster.addresses(from)?.contains(&address), "{from} still has the address");
    Ok(())
}

/// Kills the server's main process, then removes the address. Both must be detected and repaired automatically on the same node.
fn what_is_broken_is_repaired_in_place(
    scenario: &Scenario,
    database: &Database,
    writer: &Writer,
    node: &str,
) -> Result<()> {
    let action = |name: &str| scenario.action(name);
    let before = GROUP.map(action).into_iter().collect::<Result<Vec<_>>>()?;
    let server = scenario.checker.process("database", node).context("process of the database not found")?;
    let (mut client, worker) = database.keep_busy(&scenario.cluster)?;
    let begin = Instant::now();
    server.signal(Signal::SIGKILL)?;
    wait_until("another server", CEILING, || {
        scenario.checker.process("database", node).is_some_and(|now| now != server && now.is_alive())
    })?;
    println!("server killed: another one runs after {} ms", begin.elapsed().as_millis());
    // The worker has no time to notice the end of its parent, and its environment does not show its resource.
    assert!(!worker.is_alive(), "a process of the killed server still runs next to the new server");
    client.wait()?;
    assert_eq!(home(scenario, "")?, node);
    writer.wait_for_commit_after(monotonic_ns())?;

    let address = format!("{}/24", database::ADDRESS);
    let begin = Instant::now();
    scenario.cluster.remove_address(node, &address)?;
    let is_there = || scenario.cluster.addresses(node).is_ok_and(|found| found.contains(&address));
    wait_until("the address to be configured again", CEILING, is_there)?;
    println!("address taken away: it is back after {} ms", begin.elapsed().as_millis());
    writer.wait_for_commit_after(monotonic_ns())?;
    assert_eq!(home(scenario, "")?, node);
    wait_until("both restarts to be reported", Duration::from_secs(30), || {
        ["database", "database-address"].iter().all(|name| {
            hactl(scenario, &["events", "--for", &format!("resource/{name}")])
                .is_ok_and(|said| said.contains("Restarted"))
        })
    })?;
    let after = GROUP.map(action).into_iter().collect::<Result<Vec<_>>>()?;
    assert_eq!(before, after, "a restart in place received another assignment");
    Ok(())
}
