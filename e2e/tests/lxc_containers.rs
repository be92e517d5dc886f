//! Tests of LXC containers as services, with real containers on each node.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ha_e2e::binaries;
use ha_e2e::checker::Beat;
use ha_e2e::cluster::Cluster;
use ha_e2e::lxc;
use ha_e2e::plan::{Plan, SHARED};
use ha_e2e::process::ProcessId;
use ha_e2e::scenario::CEILING;
use ha_e2e::scratch;
use ha_e2e::wait::{monotonic_ns, wait_for};
use nix::sys::signal::Signal;
use serde_json::json;

const SERVICE: &str = "box";

/// Returns the node of the service, once the API reports it as Started there.
fn home(cluster: &Cluster, except: &str) -> Result<String> {
    let status = || cluster.object("resources", SERVICE).map(|object| object["status"].clone());
    wait_for(&format!("{SERVICE} to be started, not on {except:?}"), CEILING, || {
        let status = status()?;
        let node = status["node"].as_str().filter(|node| *node != except)?;
        (status["state"] == "Started").then(|| node.to_owned())
    })
    .with_context(|| {
        format!("status of the service: {:?}; logs are in {}", status(), cluster.folder().display())
    })
}

/// Returns the next line of the witness in the container.
fn beat(cluster: &Cluster) -> Result<Beat> {
    let now = monotonic_ns();
    wait_for("a sign of life", CEILING, || cluster.witness(SERVICE).first_after(now))
}

/// Returns the witness's process on a node, with its process id on the host.
fn process(node: &str) -> Option<ProcessId> {
    let variables = [format!("HA_RESOURCE={SERVICE}"), format!("HA_NODE={node}")];
    let entries = fs::read_dir("/proc").ok()?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        // The monitor of the container has the same variables.
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let has = |text: &String| environment.split(|byte| *byte == 0).any(|entry| entry == text.as_bytes());
        command.starts_with(b"/opt/ha-witness") && variables.iter().all(has)
    })
    .find_map(ProcessId::of)
}

#[test]
fn an_lxc_container_is_restarted_adopted_and_recovered_elsewhere() -> Result<()> {
    let plan = Plan { nodes: 2, lxc: true, ..Plan::test(&scratch::folder("lxc")?) };
    let mut cluster = Cluster::start(plan)?;
    let witness = binaries::own("ha-witness")?;
    let programs = witness.parent().context("program has no directory")?;
    let shared = Path::new(SHARED);
    // The root file system has no libraries, so the host's are mounted.
    let mounts = [
        (Path::new("/usr"), "usr"),
        (Path::new("/lib"), "lib"),
        (Path::new("/lib64"), "lib64"),
        (shared, "srv"),
        (programs, "opt"),
    ];
    let command = format!("/opt/ha-witness --file /srv/{SERVICE}");
    lxc::write(&cluster.shared().join("box.lxc"), &shared.join("box.lxc"), &command, &mounts)?;
    cluster.apply(
        "resources",
        SERVICE,
        &json!({
            "driver": {"lxc": {
                "container": lxc::container(SERVICE), "config": shared.join("box.lxc/config"),
                "limits": {"memory": "256Mi"},
                "healthCheck": {"command": ["/bin/test", "-s", format!("/srv/{SERVICE}")], "intervalSeconds": 1},
            }},
            "timeouts": {"stopSeconds": 5},
        }),
    )?;
    let first = home(&cluster, "")?;
    assert_eq!(beat(&cluster)?.node, first);
    println!("started on {first}");

    // Crash: the container starts again on the same node.
    let crashed = process(&first).context("process of the service not found")?;
    crashed.signal(Signal::SIGKILL)?;
    wait_for("another process of it", CEILING, || process(&first).filter(|other| *other != crashed))?;
    assert_eq!(beat(&cluster)?.node, first, "the service moved after a crash");
    println!("restarted after a crash on {first}");

    // Death of the agent: the container keeps running, and the next agent adopts it.
    let running = process(&first).context("process of the service not found")?;
    let before = cluster.agent_instance(&first)?;
    cluster.machine(&first)?.kill("ha-node-agent")?;
    wait_for("the next agent", CEILING, || cluster.agent_instance(&first).ok().filter(|now| *now != before))?;
    home(&cluster, "")?;
    assert_eq!(process(&first), Some(running), "the container was disturbed");
    println!("adopted by the next agent on {first}");

    // Power cut: the container starts on the other node.
    cluster.power_off(&first)?;
    assert!(!running.is_alive(), "a container survived the power cut");
    let second = home(&cluster, &first)?;
    assert_eq!(beat(&cluster)?.node, second);
    println!("recovered on {second}");

    // After its next boot, the first node has no remains of the container, and the service can move back.
    cluster.power_on(&first)?;
    cluster.wait_for_nodes()?;
    let moved = cluster.hactl_within(Duration::from_secs(120), &["relocate", SERVICE, &first])?;
    ensure!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stderr));
    assert_eq!(home(&cluster, &second)?, first);
    assert_eq!(beat(&cluster)?.node, first);
    assert_eq!(process(&second), None);
    println!("relocated to {first}");

    cluster.witness(SERVICE).check()?;
    for node in [first, second] {
        cluster.power_off(&node)?;
    }
    cluster.remove()
}
