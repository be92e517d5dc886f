//! Tests of containers as services, with a real podman on each node.

use std::fs;

use anyhow::{Context, Result, ensure};
use ha_e2e::binaries;
use ha_e2e::cluster::Cluster;
use ha_e2e::container_survival;
use ha_e2e::plan::{Plan, SHARED_DIRECTORY};
use ha_e2e::podman;
use ha_e2e::scenario::STEP_TIMEOUT;
use ha_e2e::scratch;
use serde_json::json;

const SERVICE: &str = "box";

/// Runs the container example of the manifests without changes.
fn example(cluster: &Cluster) -> Result<()> {
    fs::write(cluster.shared_directory().join("index.html"), "hello")?;
    let file = binaries::repository().join("manifests/examples/drivers/container.yaml");
    let hactl = |arguments: &[&str]| -> Result<()> {
        let output = cluster.hactl_with_timeout(STEP_TIMEOUT, arguments)?;
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
    let plan = Plan { nodes: 2, podman: true, ..Plan::test(&scratch::directory("containers")?) };
    let mut cluster = Cluster::start(plan)?;
    example(&cluster)?;
    let witness = binaries::workspace_program("ha-witness")?;
    let directory = witness.parent().context("program has no directory")?;
    // The image has no libraries, so the host's are mounted.
    let mounts: Vec<_> = ["/usr", "/lib", "/lib64"]
        .map(|directory| json!({"source": directory, "target": directory, "readOnly": true}))
        .into_iter()
        .chain([
            json!({"source": SHARED_DIRECTORY, "target": "/srv"}),
            json!({"source": directory, "target": "/opt", "readOnly": true}),
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
    container_survival::check_survival(&mut cluster, SERVICE)?;
    cluster.remove()
}
