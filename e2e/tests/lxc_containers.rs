//! Tests of LXC containers as services, with real containers on each node.

use std::path::Path;

use anyhow::{Context, Result};
use ha_e2e::binaries;
use ha_e2e::cluster::Cluster;
use ha_e2e::container_survival;
use ha_e2e::lxc;
use ha_e2e::plan::{Plan, SHARED_DIRECTORY};
use ha_e2e::scratch;
use serde_json::json;

const SERVICE: &str = "box";

#[test]
fn an_lxc_container_is_restarted_adopted_and_recovered_elsewhere() -> Result<()> {
    let plan = Plan { nodes: 2, lxc: true, ..Plan::test(&scratch::directory("lxc")?) };
    let mut cluster = Cluster::start(plan)?;
    let witness = binaries::workspace_program("ha-witness")?;
    let programs = witness.parent().context("program has no directory")?;
    let shared = Path::new(SHARED_DIRECTORY);
    // The root file system has no libraries, so the host's are mounted.
    let mounts = [
        (Path::new("/usr"), "usr"),
        (Path::new("/lib"), "lib"),
        (Path::new("/lib64"), "lib64"),
        (shared, "srv"),
        (programs, "opt"),
    ];
    let command = format!("/opt/ha-witness --file /srv/{SERVICE}");
    lxc::write(&cluster.shared_directory().join("box.lxc"), &shared.join("box.lxc"), &command, &mounts)?;
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
    container_survival::check_survival(&mut cluster, SERVICE)?;
    cluster.remove()
}
