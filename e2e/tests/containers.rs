//! Tests of containers as services, with a real podman on each node.

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

/// Runs the container example of the manifests without changes.
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
    let folder = witness.parent().context("program has no directory")?;
    // The image has no libraries, so the host's are mounted.
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

    // Crash: the container starts again on the same node.
    let crashed = process(&first).context("process of the service not found")?;
    crashed.signal(Signal::SIGKILL)?;
    wait_for("another process of it", CEILING, || process(&first).filter(|other| *other != crashed))?;
    assert_eq!(beat(&cluster)?.node, first, "the service moved after a crash");

    // Death of the agent: the container keeps running, and the next agent adopts it.
    let running = process(&first).context("process of the service not found")?;
    let before = cluster.agent_instance(&first)?;
    cluster.machine(&first)?.kill("ha-node-agent")?;
    wait_for("the next agent", CEILING, || cluster.agent_instance(&first).ok().filter(|now| *now != before))?;
    home(&cluster, "")?;
    assert_eq!(process(&first), Some(running), "the container was disturbed");

    // Power cut: the container starts on the other node.
    cluster.power_off(&first)?;
    assert!(!running.is_alive(), "a container survived the power cut");
    let second = home(&cluster, &first)?;
    assert_eq!(beat(&cluster)?.node, second);

    // After its next boot, the first node has no remains of the container, and the service can move back.
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
