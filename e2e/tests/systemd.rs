//! Tests of driver systemd with a real systemd on each node: how hactl manages units, including those that an administrator
//! starts or stops.

#![expect(clippy::print_stdout, reason = "measurements are kept in the suite's log")]

use std::time::Instant;

use anyhow::{Context, Result, bail};
use ha_e2e::binaries::{repository, workspace_program};
use ha_e2e::cluster::Cluster;
use ha_e2e::container;
use ha_e2e::plan::{Plan, SHARED_DIRECTORY};
use ha_e2e::scenario::{STEP_TIMEOUT, Scenario};
use ha_e2e::scratch;
use ha_e2e::wait::{wait_for, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const NODES: [&str; 2] = ["node1", "node2"];

/// Returns a unit that runs a witness. Resource, unit and record have the same name.
fn witness_unit(name: &str, lines: &str) -> Result<(String, String)> {
    let program = workspace_program("ha-witness")?;
    let text = format!(
        "[Service]\nExecStart={} --file {SHARED_DIRECTORY}/{name}\nEnvironment=HA_RESOURCE={name} HA_NODE=%H\n{lines}",
        program.display()
    );
    Ok((format!("{name}.service"), text))
}

/// Returns a unit that ignores SIGTERM, leaves a process behind and restarts whenever it ends.
fn unit_that_ignores_stop() -> Result<(String, String)> {
    let (name, text) = witness_unit("stubborn", "Restart=always\nRestartSec=0\nKillMode=process\n")?;
    let line = text.lines().find(|line| line.starts_with("ExecStart=")).unwrap_or_default();
    let program = line.trim_start_matches("ExecStart=");
    let script = format!("ExecStart=/bin/sh -c 'trap true TERM; {program} & while :; do sleep 1; done'");
    Ok((name, text.replace(line, &script)))
}

/// Starts two nodes with systemd, one etcd member and one controller. Other tests cover etcd and the controllers.
fn start() -> Result<Scenario> {
    let mut plan = Plan::test(&scratch::directory("systemd")?);
    (plan.etcd, plan.controllers, plan.nodes) = (1, 1, 2);
    plan.units = Some(vec![
        witness_unit("web", "")?,
        witness_unit("at-boot", "[Install]\nWantedBy=multi-user.target\n")?,
        witness_unit("by-hand", "")?,
        unit_that_ignores_stop()?,
    ]);
    let cluster = Cluster::start(plan)?;
    let checker = cluster.checker(&["ha-witness"]);
    Ok(Scenario { cluster, checker })
}

/// Runs a command on a node and returns its output.
fn run_on(scenario: &Scenario, node: &str, command: &[&str]) -> Result<String> {
    container::run_inside(scenario.cluster.machine(node)?, command)
        .map(|output_text| output_text.trim().to_owned())
}

fn unit(name: &str) -> Value {
    // The limit is longer than any wait of the tests, so a service ends because of the stop request and not because of the limit.
    json!({"driver": {"systemd": {"unit": name}}, "timeouts": {"stopSeconds": 600}})
}

fn events(scenario: &Scenario, resource: &str) -> Result<String> {
    let output = scenario.cluster.hactl(&["events", "--for", &format!("resource/{resource}")])?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn wait_for_event(scenario: &Scenario, resource: &str, words: &str) -> Result<()> {
    wait_until(&format!("an event of {resource} with {words:?}"), STEP_TIMEOUT, || {
        events(scenario, resource).is_ok_and(|output_text| output_text.contains(words))
    })
    .with_context(|| events(scenario, resource).unwrap_or_default())
}

/// Waits for a new process of a service on its node.
fn wait_for_new_process(scenario: &Scenario, resource: &str, node: &str, old: i32) -> Result<()> {
    wait_until(&format!("another process of {resource}"), STEP_TIMEOUT, || {
        scenario.checker.process(resource, node).is_some_and(|now| now.pid != old && now.is_alive())
    })
}

fn process(scenario: &Scenario, resource: &str, node: &str) -> Result<ha_e2e::process::ProcessId> {
    wait_for(&format!("{resource} on {node}"), STEP_TIMEOUT, || scenario.checker.process(resource, node))
}

#[test]
fn systemd_units_run_as_services() -> Result<()> {
    let mut scenario = start()?;
    println!("two nodes with systemd are open");
    check_restarts(&scenario)?;
    check_accepted_changes(&scenario)?;
    check_adoption_of_manual_copy(&scenario)?;
    check_refusal_of_enabled_unit(&scenario)?;
    check_transient_unit(&scenario)?;
    check_stop_ends_all_processes(&scenario)?;
    check_example(&scenario)?;
    check_bus_outage(&scenario)?;
    check_shutdown(&scenario)?;
    check_recovery(&mut scenario)?;
    scenario.finish()
}

/// A crash and a manual stop must be distinguished, and both must be repaired.
fn check_restarts(scenario: &Scenario) -> Result<()> {
    scenario.apply("resources", "web", &unit("web"))?;
    let active_node = scenario.wait_until_started("web")?;

    let killed = process(scenario, "web", &active_node)?;
    killed.signal(Signal::SIGKILL)?;
    wait_for_new_process(scenario, "web", &active_node, killed.pid)?;
    let lines = scenario.witness("web").lines()?;
    let gap =
        lines.windows(2).find(|pair| pair[0].pid != pair[1].pid).context("fewer than two processes wrote")?;
    println!("killed: wrote again after {} ms", (gap[1].at_ns - gap[0].at_ns) / 1_000_000);
    wait_for_event(scenario, "web", "main process was killed by signal 9")?;
    // The agent must have seen the restart. A stop during the start would count as a failed start.
    wait_for_event(scenario, "web", "Restarted")?;

    let stopped = process(scenario, "web", &active_node)?;
    run_on(scenario, &active_node, &["systemctl", "stop", "web"])?;
    wait_for_new_process(scenario, "web", &active_node, stopped.pid)?;
    wait_for_event(scenario, "web", "stopped outside hactl")?;
    assert_eq!(scenario.wait_until_started("web")?, active_node, "the service moved after a crash or a kill");

    // With the requested state Stopped, a manual start must be followed by a stop.
    let set_state = |state: &str| {
        let mut spec = unit("web");
        spec["state"] = json!(state);
        scenario.apply("resources", "web", &spec)
    };
    set_state("Stopped")?;
    scenario.wait_until_stopped("web")?;
    run_on(scenario, &active_node, &["systemctl", "start", "web"])?;
    wait_for_event(scenario, "web", "started outside hactl")?;
    scenario.wait_until_stopped("web")?;
    set_state("Started")?;
    scenario.wait_until_started("web").map(|_| ())
}

/// With `externalStop: Accept`, the requested state must follow `systemctl stop` and `systemctl start`, and a crash must
/// still be repaired.
fn check_accepted_changes(scenario: &Scenario) -> Result<()> {
    let active_node = scenario.wait_until_started("web")?;
    let mut spec = unit("web");
    spec["externalStop"] = json!("Accept");
    scenario.apply("resources", "web", &spec)?;
    let wait_for_state = |state: &str| {
        wait_until(&format!("web to be requested and {state}"), STEP_TIMEOUT, || {
            let object = scenario.cluster.object("resources", "web").unwrap_or_default();
            object["spec"]["state"] == state && object["status"]["state"] == state
        })
    };

    run_on(scenario, &active_node, &["systemctl", "stop", "web"])?;
    wait_for_state("Stopped")?;
    scenario.wait_until_stopped("web")?;
    wait_for_event(scenario, "web", "requested state is now Stopped (externalStop: Accept)")?;

    run_on(scenario, &active_node, &["systemctl", "start", "web"])?;
    let started = process(scenario, "web", &active_node)?;
    wait_for_state("Started")?;
    assert_eq!(process(scenario, "web", &active_node)?, started, "the service was restarted");

    started.signal(Signal::SIGKILL)?;
    wait_for_new_process(scenario, "web", &active_node, started.pid)?;
    wait_for_state("Started")?;
    scenario.apply("resources", "web", &unit("web"))?;
    assert_eq!(scenario.wait_until_started("web")?, active_node);
    Ok(())
}

/// A copy that an administrator runs on a node must be adopted there, before the service starts elsewhere.
fn check_adoption_of_manual_copy(scenario: &Scenario) -> Result<()> {
    run_on(scenario, "node2", &["systemctl", "start", "by-hand"])?;
    let running = process(scenario, "by-hand", "node2")?;
    // The service prefers the other node, but must stay where it runs.
    scenario.apply("groups", "first", &json!({"nodes": {"node1": 2, "node2": 1}, "nofailback": true}))?;
    let mut spec = unit("by-hand");
    spec["group"] = json!("first");
    scenario.apply("resources", "by-hand", &spec)?;
    assert_eq!(scenario.wait_until_started("by-hand")?, "node2");
    assert_eq!(process(scenario, "by-hand", "node2")?, running, "the service was restarted");
    wait_for_event(scenario, "by-hand", "node2")?;
    let started = scenario.checker.timeline().started_on("by-hand", "node1", 0);
    assert_eq!(started, None, "the service was started on node1");
    Ok(())
}

fn check_refusal_of_enabled_unit(scenario: &Scenario) -> Result<()> {
    for node in NODES {
        run_on(scenario, node, &["systemctl", "enable", "--quiet", "at-boot"])?;
    }
    scenario.apply("resources", "at-boot", &unit("at-boot"))?;
    wait_until("at-boot to be in Error", STEP_TIMEOUT, || {
        scenario
            .cluster
            .object("resources", "at-boot")
            .is_some_and(|object| object["status"]["state"] == "Error")
    })?;
    let output = scenario.cluster.hactl(&["why", "at-boot"])?;
    let explanation = String::from_utf8_lossy(&output.stdout).into_owned();
    for words in
        ["at-boot.service is enabled at boot", "systemctl disable at-boot.service", "disableAtBoot: true"]
    {
        assert!(explanation.contains(words), "{words:?} is missing:\n{explanation}");
    }
    assert!(scenario.checker.machines_running("at-boot").is_empty());
    scenario.cluster.delete("resources", "at-boot")?;
    wait_until("at-boot to be deleted", STEP_TIMEOUT, || {
        scenario.cluster.object("resources", "at-boot").is_none()
    })?;

    let mut spec = unit("at-boot");
    spec["driver"]["systemd"]["disableAtBoot"] = json!(true);
    scenario.apply("resources", "at-boot", &spec)?;
    scenario.wait_until_started("at-boot")?;
    for node in NODES {
        // `is-enabled` fails for a disabled unit, so ignore its exit status.
        let output_text = run_on(scenario, node, &["sh", "-c", "systemctl is-enabled at-boot || true"])?;
        assert_eq!(output_text, "disabled", "on {node}");
    }
    Ok(())
}

fn check_transient_unit(scenario: &Scenario) -> Result<()> {
    let spec = json!({"driver": {"systemd": {
        "command": [workspace_program("ha-witness")?, "--file", format!("{SHARED_DIRECTORY}/transient")],
        "limits": {"cpu": "500m", "memory": "64Mi", "tasks": 20},
    }}, "timeouts": {"stopSeconds": 20}});
    scenario.apply("resources", "transient", &spec)?;
    let active_node = scenario.wait_until_started("transient")?;
    let properties = "MemoryMax,CPUQuotaPerSecUSec,TasksMax,Slice,Transient";
    let output_text =
        run_on(scenario, &active_node, &["systemctl", "show", "-p", properties, "hactl-transient"])?;
    let mut lines: Vec<&str> = output_text.lines().collect();
    lines.sort_unstable();
    let expected = [
        "CPUQuotaPerSecUSec=500ms",
        "MemoryMax=67108864",
        "Slice=hactl.slice",
        "TasksMax=20",
        "Transient=yes",
    ];
    assert_eq!(lines, expected);

    // The transient unit vanishes with its process and must be created again.
    let killed = process(scenario, "transient", &active_node)?;
    killed.signal(Signal::SIGKILL)?;
    wait_for_new_process(scenario, "transient", &active_node, killed.pid)?;
    wait_for_event(scenario, "transient", "main process was killed by signal 9")
}

fn check_stop_ends_all_processes(scenario: &Scenario) -> Result<()> {
    let mut spec = unit("stubborn");
    spec["timeouts"]["stopSeconds"] = json!(1);
    scenario.apply("resources", "stubborn", &spec)?;
    let active_node = scenario.wait_until_started("stubborn")?;
    spec["state"] = json!("Stopped");
    scenario.apply("resources", "stubborn", &spec)?;
    wait_until("stubborn to be reported as stopped", STEP_TIMEOUT, || {
        let object = scenario.cluster.object("resources", "stubborn");
        object.is_some_and(|object| object["status"]["state"] == "Stopped")
    })?;
    let group = "/sys/fs/cgroup/system.slice/stubborn.service";
    let remaining =
        run_on(scenario, &active_node, &["sh", "-c", &format!("cat {group}/cgroup.procs 2>&1 || true")])?;
    assert!(remaining.contains("No such file"), "left in its control group: {remaining}");
    scenario.wait_until_stopped("stubborn")
}

/// Applies the example of `manifests/examples` without changes: a packaged unit and a command.
fn check_example(scenario: &Scenario) -> Result<()> {
    let file = repository().join("manifests/examples/drivers/unit.yaml");
    let file = file.to_string_lossy();
    let output = scenario.cluster.hactl(&["apply", "-f", &file, "--wait", "--timeout", "60s"])?;
    let output_text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{output_text}");
    let output = scenario.cluster.hactl(&["delete", "--stop", "-f", &file, "--wait"])?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Once D-Bus is available again, the agent must detect a change that happened during the outage.
fn check_bus_outage(scenario: &Scenario) -> Result<()> {
    let active_node = scenario.wait_until_started("by-hand")?;
    // The socket is moved away, because systemd would start another daemon for the next client.
    let stop_bus = "mv /run/dbus/system_bus_socket /run/dbus/gone && kill -9 $(pidof dbus-daemon)";
    run_on(scenario, &active_node, &["sh", "-c", stop_bus])?;
    let killed = process(scenario, "by-hand", &active_node)?;
    killed.signal(Signal::SIGKILL)?;
    wait_until("the end of by-hand", STEP_TIMEOUT, || !killed.is_alive())?;
    run_on(scenario, &active_node, &["mv", "/run/dbus/gone", "/run/dbus/system_bus_socket"])?;
    wait_for_new_process(scenario, "by-hand", &active_node, killed.pid)?;
    wait_for_event(scenario, "by-hand", "main process was killed by signal 9")
}

/// A shutdown must end the agent before the units. The agent's own stops of the units must not wait for the shutdown.
fn check_shutdown(scenario: &Scenario) -> Result<()> {
    let active_node = scenario.wait_until_started("web")?;
    let before = run_on(scenario, &active_node, &["systemctl", "show", "--value", "-p", "Before", "web"])?;
    assert!(before.contains("ha-node-agent.service"), "web is ordered before {before} only");
    let count_manual_stops =
        || events(scenario, "web").map(|output_text| output_text.matches("stopped outside hactl").count());
    let earlier = count_manual_stops()?;
    let begin = Instant::now();
    // systemd may end before it responds.
    let _ = run_on(scenario, &active_node, &["systemctl", "poweroff"]);
    let new_node = scenario.wait_until_moved_from("web", &active_node)?;
    assert_eq!(count_manual_stops()?, earlier, "the shutdown was reported as a stop outside hactl");
    println!("powered off: runs on {new_node} after {} ms", begin.elapsed().as_millis());
    let log = std::fs::read_to_string(scenario.cluster.machine(&active_node)?.log("ha-node-agent"))?;
    if !log.contains("shutdown") {
        bail!("the agent on {active_node} did not leave cleanly");
    }
    // The program that holds the container starts it again after a power-off.
    scenario.cluster.register_container_namespace(&active_node)?;
    scenario.cluster.wait_for_nodes()
}

fn check_recovery(scenario: &mut Scenario) -> Result<()> {
    let active_node = scenario.wait_until_started("web")?;
    let (epoch, _) = scenario.epoch_and_fence_state(&active_node)?;
    let begin = Instant::now();
    scenario.cluster.power_off(&active_node)?;
    let new_node = scenario.wait_until_moved_from("web", &active_node)?;
    println!("killed with its node: runs on {new_node} after {} ms", begin.elapsed().as_millis());
    let (closed, state) = scenario.epoch_and_fence_state(&active_node)?;
    assert!(closed > epoch, "the epoch of the dead node was not closed: {closed}");
    assert_eq!(state, "Fenced");
    Ok(())
}
