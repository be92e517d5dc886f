//! Tests of driver systemd with a real systemd on each node: how hactl manages units, including those that an administrator
//! starts or stops.

#![expect(clippy::print_stdout, reason = "measurements are kept in the suite's log")]

use std::time::Instant;

use anyhow::{Context, Result, bail};
use ha_e2e::binaries::{own, repository};
use ha_e2e::cluster::Cluster;
use ha_e2e::container;
use ha_e2e::plan::{Plan, SHARED};
use ha_e2e::scenario::{CEILING, Scenario};
use ha_e2e::scratch;
use ha_e2e::wait::{wait_for, wait_until};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const NODES: [&str; 2] = ["node1", "node2"];

/// Returns a unit that runs a witness. Resource, unit and record have the same name.
fn witness_unit(name: &str, more: &str) -> Result<(String, String)> {
    let program = own("ha-witness")?;
    let text = format!(
        "[Service]\nExecStart={} --file {SHARED}/{name}\nEnvironment=HA_RESOURCE={name} HA_NODE=%H\n{more}",
        program.display()
    );
    Ok((format!("{name}.service"), text))
}

/// Returns a unit that ignores SIGTERM, leaves a process behind and restarts whenever it ends.
fn stubborn_unit() -> Result<(String, String)> {
    let (name, text) = witness_unit("stubborn", "Restart=always\nRestartSec=0\nKillMode=process\n")?;
    let line = text.lines().find(|line| line.starts_with("ExecStart=")).unwrap_or_default();
    let program = line.trim_start_matches("ExecStart=");
    let script = format!("ExecStart=/bin/sh -c 'trap true TERM; {program} & while :; do sleep 1; done'");
    Ok((name, text.replace(line, &script)))
}

/// Starts two nodes with systemd, one etcd member and one controller. Other tests cover etcd and the controllers.
fn start() -> Result<Scenario> {
    let mut plan = Plan::test(&scratch::folder("systemd")?);
    (plan.etcd, plan.controllers, plan.nodes) = (1, 1, 2);
    plan.units = Some(vec![
        witness_unit("web", "")?,
        witness_unit("at-boot", "[Install]\nWantedBy=multi-user.target\n")?,
        witness_unit("by-hand", "")?,
        stubborn_unit()?,
    ]);
    let cluster = Cluster::start(plan)?;
    let checker = cluster.checker(&["ha-witness"]);
    Ok(Scenario { cluster, checker })
}

/// Runs a command on a node and returns its output.
fn on(scenario: &Scenario, node: &str, command: &[&str]) -> Result<String> {
    container::inside(scenario.cluster.machine(node)?, command).map(|said| said.trim().to_owned())
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
    wait_until(&format!("an event of {resource} with {words:?}"), CEILING, || {
        events(scenario, resource).is_ok_and(|said| said.contains(words))
    })
    .with_context(|| events(scenario, resource).unwrap_or_default())
}

/// Waits for a new process of a service on its node.
fn another(scenario: &Scenario, resource: &str, node: &str, old: i32) -> Result<()> {
    wait_until(&format!("another process of {resource}"), CEILING, || {
        scenario.checker.process(resource, node).is_some_and(|now| now.pid != old && now.is_alive())
    })
}

fn process(scenario: &Scenario, resource: &str, node: &str) -> Result<ha_e2e::process::ProcessId> {
    wait_for(&format!("{resource} on {node}"), CEILING, || scenario.checker.process(resource, node))
}

#[test]
fn units_are_services() -> Result<()> {
    let mut scenario = start()?;
    println!("two nodes with systemd are open");
    a_unit_is_kept_running(&scenario)?;
    what_runs_by_hand_is_found_first(&scenario)?;
    a_unit_enabled_at_boot_is_refused(&scenario)?;
    a_command_becomes_a_unit(&scenario)?;
    nothing_of_a_unit_survives_its_stop(&scenario)?;
    the_example_runs(&scenario)?;
    a_bus_that_was_away_is_found_again(&scenario)?;
    a_shutdown_takes_its_time(&scenario)?;
    a_dead_node_is_recovered(&mut scenario)?;
    scenario.finish()
}

/// A crash and a manual stop must be distinguished, and both must be repaired.
fn a_unit_is_kept_running(scenario: &Scenario) -> Result<()> {
    scenario.apply("resources", "web", &unit("web"))?;
    let home = scenario.home("web")?;

    let victim = process(scenario, "web", &home)?;
    victim.signal(Signal::SIGKILL)?;
    another(scenario, "web", &home, victim.pid)?;
    let beats = scenario.witness("web").beats()?;
    let gap =
        beats.windows(2).find(|pair| pair[0].pid != pair[1].pid).context("fewer than two processes wrote")?;
    println!("killed: wrote again after {} ms", (gap[1].at_ns - gap[0].at_ns) / 1_000_000);
    wait_for_event(scenario, "web", "main process was killed by signal 9")?;
    // The agent must have seen the restart. A stop during the start would count as a failed start.
    wait_for_event(scenario, "web", "Restarted")?;

    let stopped = process(scenario, "web", &home)?;
    on(scenario, &home, &["systemctl", "stop", "web"])?;
    another(scenario, "web", &home, stopped.pid)?;
    wait_for_event(scenario, "web", "stopped outside hactl")?;
    assert_eq!(scenario.home("web")?, home, "the service moved after a crash or a kill");

    // With the requested state Stopped, a manual start must be followed by a stop.
    let wanted = |state: &str| {
        let mut spec = unit("web");
        spec["state"] = json!(state);
        scenario.apply("resources", "web", &spec)
    };
    wanted("Stopped")?;
    scenario.gone("web")?;
    on(scenario, &home, &["systemctl", "start", "web"])?;
    wait_for_event(scenario, "web", "started outside hactl")?;
    scenario.gone("web")?;
    wanted("Started")?;
    scenario.home("web").map(|_| ())
}

/// A copy that an administrator runs on a node must be adopted there, before the service starts elsewhere.
fn what_runs_by_hand_is_found_first(scenario: &Scenario) -> Result<()> {
    on(scenario, "node2", &["systemctl", "start", "by-hand"])?;
    let running = process(scenario, "by-hand", "node2")?;
    // The service prefers the other node, but must stay where it runs.
    scenario.apply("groups", "first", &json!({"nodes": {"node1": 2, "node2": 1}, "nofailback": true}))?;
    let mut spec = unit("by-hand");
    spec["group"] = json!("first");
    scenario.apply("resources", "by-hand", &spec)?;
    assert_eq!(scenario.home("by-hand")?, "node2");
    assert_eq!(process(scenario, "by-hand", "node2")?, running, "the service was restarted");
    wait_for_event(scenario, "by-hand", "node2")?;
    let started = scenario.checker.timeline().started_on("by-hand", "node1", 0);
    assert_eq!(started, None, "the service was started on node1");
    Ok(())
}

fn a_unit_enabled_at_boot_is_refused(scenario: &Scenario) -> Result<()> {
    for node in NODES {
        on(scenario, node, &["systemctl", "enable", "--quiet", "at-boot"])?;
    }
    scenario.apply("resources", "at-boot", &unit("at-boot"))?;
    wait_until("at-boot to be in Error", CEILING, || {
        scenario
            .cluster
            .object("resources", "at-boot")
            .is_some_and(|object| object["status"]["state"] == "Error")
    })?;
    let output = scenario.cluster.hactl(&["why", "at-boot"])?;
    let why = String::from_utf8_lossy(&output.stdout).into_owned();
    for words in
        ["at-boot.service is enabled at boot", "systemctl disable at-boot.service", "disableAtBoot: true"]
    {
        assert!(why.contains(words), "{words:?} is missing:\n{why}");
    }
    assert!(scenario.checker.places("at-boot").is_empty());
    scenario.cluster.delete("resources", "at-boot")?;
    wait_until("at-boot to be deleted", CEILING, || {
        scenario.cluster.object("resources", "at-boot").is_none()
    })?;

    let mut spec = unit("at-boot");
    spec["driver"]["systemd"]["disableAtBoot"] = json!(true);
    scenario.apply("resources", "at-boot", &spec)?;
    scenario.home("at-boot")?;
    for node in NODES {
        // `is-enabled` fails for a disabled unit, so ignore its exit status.
        let said = on(scenario, node, &["sh", "-c", "systemctl is-enabled at-boot || true"])?;
        assert_eq!(said, "disabled", "on {node}");
    }
    Ok(())
}

fn a_command_becomes_a_unit(scenario: &Scenario) -> Result<()> {
    let spec = json!({"driver": {"systemd": {
        "command": [own("ha-witness")?, "--file", format!("{SHARED}/transient")],
        "limits": {"cpu": "500m", "memory": "64Mi", "tasks": 20},
    }}, "timeouts": {"stopSeconds": 20}});
    scenario.apply("resources", "transient", &spec)?;
    let home = scenario.home("transient")?;
    let properties = "MemoryMax,CPUQuotaPerSecUSec,TasksMax,Slice,Transient";
    let said = on(scenario, &home, &["systemctl", "show", "-p", properties, "hactl-transient"])?;
    let mut lines: Vec<&str> = said.lines().collect();
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
    let victim = process(scenario, "transient", &home)?;
    victim.signal(Signal::SIGKILL)?;
    another(scenario, "transient", &home, victim.pid)?;
    wait_for_event(scenario, "transient", "main process was killed by signal 9")
}

fn nothing_of_a_unit_survives_its_stop(scenario: &Scenario) -> Result<()> {
    let mut spec = unit("stubborn");
    spec["timeouts"]["stopSeconds"] = json!(1);
    scenario.apply("resources", "stubborn", &spec)?;
    let home = scenario.home("stubborn")?;
    spec["state"] = json!("Stopped");
    scenario.apply("resources", "stubborn", &spec)?;
    wait_until("stubborn to be reported as stopped", CEILING, || {
        let object = scenario.cluster.object("resources", "stubborn");
        object.is_some_and(|object| object["status"]["state"] == "Stopped")
    })?;
    let group = "/sys/fs/cgroup/system.slice/stubborn.service";
    let left = on(scenario, &home, &["sh", "-c", &format!("cat {group}/cgroup.procs 2>&1 || true")])?;
    assert!(left.contains("No such file"), "left in its control group: {left}");
    scenario.gone("stubborn")
}

/// Applies the example of `manifests/examples` without changes: a packaged unit and a command.
fn the_example_runs(scenario: &Scenario) -> Result<()> {
    let file = repository().join("manifests/examples/drivers/unit.yaml");
    let file = file.to_string_lossy();
    let output = scenario.cluster.hactl(&["apply", "-f", &file, "--wait", "--timeout", "60s"])?;
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    let output = scenario.cluster.hactl(&["delete", "--stop", "-f", &file, "--wait"])?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Once D-Bus is available again, the agent must detect a change that happened during the outage.
fn a_bus_that_was_away_is_found_again(scenario: &Scenario) -> Result<()> {
    let home = scenario.home("by-hand")?;
    // The socket is moved away, because systemd would start another daemon for the next client.
    let end = "mv /run/dbus/system_bus_socket /run/dbus/gone && kill -9 $(pidof dbus-daemon)";
    on(scenario, &home, &["sh", "-c", end])?;
    let victim = process(scenario, "by-hand", &home)?;
    victim.signal(Signal::SIGKILL)?;
    wait_until("the end of by-hand", CEILING, || !victim.is_alive())?;
    on(scenario, &home, &["mv", "/run/dbus/gone", "/run/dbus/system_bus_socket"])?;
    another(scenario, "by-hand", &home, victim.pid)?;
    wait_for_event(scenario, "by-hand", "main process was killed by signal 9")
}

/// A shutdown must end the agent before the units. The agent's own stops of the units must not wait for the shutdown.
fn a_shutdown_takes_its_time(scenario: &Scenario) -> Result<()> {
    let home = scenario.home("web")?;
    let before = on(scenario, &home, &["systemctl", "show", "--value", "-p", "Before", "web"])?;
    assert!(before.contains("ha-node-agent.service"), "web is ordered before {before} only");
    let by_hand = || events(scenario, "web").map(|said| said.matches("stopped outside hactl").count());
    let earlier = by_hand()?;
    let begin = Instant::now();
    // systemd may end before it responds.
    let _ = on(scenario, &home, &["systemctl", "poweroff"]);
    let away = scenario.elsewhere("web", &home)?;
    assert_eq!(by_hand()?, earlier, "the shutdown was reported as a stop outside hactl");
    println!("powered off: runs on {away} after {} ms", begin.elapsed().as_millis());
    let log = std::fs::read_to_string(scenario.cluster.machine(&home)?.log("ha-node-agent"))?;
    if !log.contains("shutdown") {
        bail!("the agent on {home} did not leave cleanly");
    }
    // The program that holds the container starts it again after a power-off.
    scenario.cluster.learn_container(&home)?;
    scenario.cluster.wait_for_nodes()
}

fn a_dead_node_is_recovered(scenario: &mut Scenario) -> Result<()> {
    let home = scenario.home("web")?;
    let (epoch, _) = scenario.fence(&home)?;
    let begin = Instant::now();
    scenario.cluster.power_off(&home)?;
    let away = scenario.elsewhere("web", &home)?;
    println!("killed with its node: runs on {away} after {} ms", begin.elapsed().as_millis());
    let (closed, state) = scenario.fence(&home)?;
    assert!(closed > epoch, "the epoch of the dead node was not closed: {closed}");
    assert_eq!(state, "Fenced");
    Ok(())
}
