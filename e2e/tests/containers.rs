//! Containers as services: a real podman on each node.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ha_e2e::binaries;
use ha_e2e::checker::Beat;
use ha_e2e::cluster::Cluster;
use ha_e2e::plan::{Plan, SHARED};
use ha_e2e::podman;
use ha_e2e::process::ProcessId;
use ha_e2e::scenario::CEILING;
use ha_e2e::scratch;
use ha_e2e::wait::{monotonic_ns, wait_for};
use nix::sys::signal::Signal;
use serde_json::json;

const SERVICE: &str = "box";

/// Where it runs, once the API says Started there.
fn home(cluster: &Cluster, except: &str) -> Result<String> {
    let status = || cluster.object("resources", SERVICE).map(|object| object["status"].clone());
    wait_for(&format!("{SERVICE} to be started, not on {except:?}"), CEILING, || {
        let status = status()?;
        let node = status["node"].as_str().filter(|node| *node != except)?;
        (status["state"] == "Started").then(|| node.to_owned())
    })
    .with_context(|| format!("its status is {:?}; logs are in {}", status(), cluster.folder().display()))
}

/// The first line of the witness in the container after now.
fn beat(cluster: &Cluster) -> Result<Beat> {
    let now = monotonic_ns();
    wait_for("a sign of life", CEILING, || cluster.witness(SERVICE).first_after(now))
}

/// The witness's process on a node, by its number outside.
fn process(node: &str) -> Option<ProcessId> {
    let resource = format!("HA_RESOURCE={SERVICE}");
    let node = format!("HA_NODE={node}");
    let entries = fs::read_dir("/proc").ok()?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let has = |text: &str| environment.split(|byte| *byte == 0).any(|entry| entry == text.as_bytes());
        has(&resource) && has(&node)
    })
    .find_map(ProcessId::of)
}

/// The example runs as it stands.
fn example(cluster: &Cluster) -> Result<()> {
    fs::write(cluster.shared().join("index.html"), "hello")?;
    let file = binaries::repository().join("manifests/examples/drivers/container.yaml");
    let hactl = |arguments: &[&str]| -> Result<()> {
        let output = cluster.hactl_within(CEILING, arguments)?;
        ensure!(output.status.success(), "hactl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    };
    hactl(&["apply", "-f", &file.to_string_lossy(), "--wait"])?;
    hactl(&["wait", "resource/web", "--for=state=Started", "--timeout", "60s"])?;
    hactl(&["delete", "resource", "web"])?;
    Ok(())
}

#[test]
fn a_container_is_restarted_after_a_crash_and_recovered_elsewhere_after_a_power_cut() -> Result<()> {
    let plan = Plan { nodes: 2, podman: true, ..Plan::test(&scratch::folder("containers")?) };
    let mut cluster = Cluster::start(plan)?;
    example(&cluster)?;
    let witness = binaries::own("ha-witness")?;
    let folder = witness.parent().context("a program is in a folder")?;
    // The image has no libraries: those of this machine are mounted.
    let mounts: Vec<_> = ["/usr", "/lib", "/lib64"]
        .map(|folder| json!({"source": folder, "target": folder, "readOnly": true}))
        .into_iter()
        .chain([
            json!({"source": SHARED, "target": "/srv"}),
            json!({"source": folder, "target": "/opt", "readOnly": true}),
        ])
        .collect();
    cluster.apply(
        "resources",
        SERVICE,
        &json!({
            "driver": {"podman": {
                "image": podman::IMAGE, "command": ["/opt/ha-witness", "--file", format!("/srv/{SERVICE}")],
                "mounts": mounts, "network": "host",
                "healthCheck": {"command": ["/bin/sh", "-c", format!("test -s /srv/{SERVICE}")], "intervalSeconds": 1},
            }},
            "timeouts": {"stopSeconds": 5},
        }),
    )?;
    let first = home(&cluster, "")?;
    assert_eq!(beat(&cluster)?.node, first);

    // A crash: another process of it on the same node.
    let crashed = process(&first).context("its process was not found")?;
    crashed.signal(Signal::SIGKILL)?;
    wait_for("another process of it", CEILING, || process(&first).filter(|other| *other != crashed))?;
    assert_eq!(beat(&cluster)?.node, first, "a crash is no reason to move");

    // The agent dies: the container goes on, and the next agent adopts it.
    let running = process(&first).context("its process was not found")?;
    let before = cluster.agent_instance(&first)?;
    cluster.machine(&first)?.kill("ha-node-agent")?;
    wait_for("the next agent", CEILING, || cluster.agent_instance(&first).ok().filter(|now| *now != before))?;
    home(&cluster, "")?;
    assert_eq!(process(&first), Some(running), "the container was disturbed");

    // A power cut: it runs on the other node.
    cluster.power_off(&first)?;
    assert!(!running.is_alive(), "a container survived the power cut");
    let second = home(&cluster, &first)?;
    assert_eq!(beat(&cluster)?.node, second);

    // Nothing of it is left on the node when that is back, and a move takes it there.
    cluster.power_on(&first)?;
    cluster.wait_for_nodes()?;
    let moved = cluster.hactl_within(Duration::from_secs(120), &["relocate", SERVICE, &first])?;
    assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stderr));
    assert_eq!(home(&cluster, &second)?, first);
    assert_eq!(beat(&cluster)?.node, first);
    assert_eq!(process(&second), None);

    cluster.witness(SERVICE).check()?;
    for node in [first, second] {
        cluster.power_off(&node)?;
    }
    cluster.remove()
}
