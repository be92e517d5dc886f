//! The course of a test with a witness in a container, for every container driver: a crash, the death of the agent, a
//! power cut, and a move back.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use crate::checker::WitnessLine;
use crate::cluster::Cluster;
use crate::process::ProcessId;
use crate::scenario::STEP_TIMEOUT;
use crate::wait::{monotonic_ns, wait_for};

/// Returns the node of the service, once the API reports it as Started there.
fn wait_until_started(cluster: &Cluster, service: &str, except: &str) -> Result<String> {
    let status = || cluster.object("resources", service).map(|object| object["status"].clone());
    wait_for(&format!("{service} to be started, not on {except:?}"), STEP_TIMEOUT, || {
        let status = status()?;
        let node = status["node"].as_str().filter(|node| *node != except)?;
        (status["state"] == "Started").then(|| node.to_owned())
    })
    .with_context(|| {
        format!("status of the service: {:?}; logs are in {}", status(), cluster.directory().display())
    })
}

/// Returns the next line of the witness in the container.
fn next_witness_line(cluster: &Cluster, service: &str) -> Result<WitnessLine> {
    let now = monotonic_ns();
    wait_for("a sign of life", STEP_TIMEOUT, || cluster.witness(service).first_line_after(now))
}

/// Returns the witness's process on a node, with its process id on the host. The monitor of a container can have the same
/// variables, so the command counts too.
fn witness_process(service: &str, node: &str) -> Option<ProcessId> {
    let variables = [format!("HA_RESOURCE={service}"), format!("HA_NODE={node}")];
    let entries = fs::read_dir("/proc").ok()?;
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let has_entry =
            |text: &String| environment.split(|byte| *byte == 0).any(|entry| entry == text.as_bytes());
        command.starts_with(b"/opt/ha-witness") && variables.iter().all(has_entry)
    })
    .find_map(ProcessId::of)
}

/// Tests a service in a container, a witness that runs as `/opt/ha-witness`: causes failures on two nodes, and checks
/// after each that exactly one copy runs where it must.
///
/// # Errors
/// Fails if a part of the cluster does not respond, or if an expected event does not happen in time.
///
/// # Panics
/// Panics if the service runs on a wrong node, or was disturbed.
pub fn check_survival(cluster: &mut Cluster, service: &str) -> Result<()> {
    let first_node = wait_until_started(cluster, service, "")?;
    assert_eq!(next_witness_line(cluster, service)?.node, first_node);

    // Crash: the container starts again on the same node.
    let crashed = witness_process(service, &first_node).context("process of the service not found")?;
    crashed.signal(Signal::SIGKILL)?;
    wait_for("another process of it", STEP_TIMEOUT, || {
        witness_process(service, &first_node).filter(|other| *other != crashed)
    })?;
    assert_eq!(next_witness_line(cluster, service)?.node, first_node, "the service moved after a crash");

    // Death of the agent: the container keeps running, and the next agent adopts it.
    let running = witness_process(service, &first_node).context("process of the service not found")?;
    let agent_before = cluster.agent_instance(&first_node)?;
    cluster.machine(&first_node)?.kill("ha-node-agent")?;
    wait_for("the next agent", STEP_TIMEOUT, || {
        cluster.agent_instance(&first_node).ok().filter(|now| *now != agent_before)
    })?;
    wait_until_started(cluster, service, "")?;
    assert_eq!(witness_process(service, &first_node), Some(running), "the container was disturbed");

    // Power cut: the container starts on the other node.
    cluster.power_off(&first_node)?;
    assert!(!running.is_alive(), "a container survived the power cut");
    let second_node = wait_until_started(cluster, service, &first_node)?;
    assert_eq!(next_witness_line(cluster, service)?.node, second_node);

    // After its next boot, the first node has no remains of the container, and the service can move back.
    cluster.power_on(&first_node)?;
    cluster.wait_for_nodes()?;
    // The agent reports its watchdog once the daemon has connected, which can be after the registration.
    wait_for("the watchdog of the first node", STEP_TIMEOUT, || {
        let node = cluster.object("nodes", &first_node)?;
        (node["status"]["watchdog"]["kind"] == "Simulated").then_some(())
    })?;
    let relocate_output =
        cluster.hactl_with_timeout(Duration::from_secs(120), &["relocate", service, &first_node])?;
    ensure!(relocate_output.status.success(), "{}", String::from_utf8_lossy(&relocate_output.stderr));
    assert_eq!(wait_until_started(cluster, service, &second_node)?, first_node);
    assert_eq!(next_witness_line(cluster, service)?.node, first_node);
    assert_eq!(witness_process(service, &second_node), None);

    cluster.witness(service).check_one_writer_at_a_time()?;
    for node in [first_node, second_node] {
        cluster.power_off(&node)?;
    }
    Ok(())
}
