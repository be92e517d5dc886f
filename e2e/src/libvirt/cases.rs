//! Cases of the libvirt suite: operations and faults, and their required outcome.

use anyhow::{Result, bail};
use nix::sys::signal::Signal;
use serde_json::json;

use super::console::GuestLine;
use super::rig::{Rig, STEP_TIMEOUT, patched};
use super::{guest, host};
use crate::plan::SHARED_DIRECTORY;
use crate::wait::{wait_for, wait_until};

/// A case of the suite.
pub struct Case {
    /// Name of the case on the command line.
    pub name: &'static str,
    /// Requirement that the case checks, as a sentence.
    pub requirement: &'static str,
    /// Function that runs the case. It fails if the requirement is not met.
    pub run: fn(&mut Rig) -> Result<()>,
}

/// Names of the cases that `./dev/test` runs.
pub const SHORT: [&str; 1] = ["moves"];

/// All cases.
pub const ALL: [Case; 10] = [
    Case {
        name: "moves",
        requirement: "the guest starts, live-migrates to the other node and back without a restart, and stops",
        run: migrate_there_and_back,
    },
    Case {
        name: "by-hand",
        requirement: "a stop outside hactl and a crash are reported differently; after both, the guest is started again",
        run: stop_by_hand,
    },
    Case {
        name: "file",
        requirement: "the requests in a definition file count on the node",
        run: use_definition_file,
    },
    Case {
        name: "too-slow",
        requirement: "a migration that takes too long is canceled; the guest keeps running on the source",
        run: cancel_slow_migration,
    },
    Case {
        name: "post-copy",
        requirement: "a migration that takes too long changes to post-copy; the guest arrives without a restart",
        run: finish_with_post_copy,
    },
    Case {
        name: "target-killed",
        requirement: "the target fails during the migration: the guest keeps running on the source",
        run: kill_target,
    },
    Case {
        name: "source-killed",
        requirement: "the source fails during the migration: one copy runs after fencing",
        run: kill_source,
    },
    Case {
        name: "source-agent-killed",
        requirement: "the source's agent is killed during the migration: the guest arrives without a restart",
        run: kill_source_agent,
    },
    Case {
        name: "target-agent-killed",
        requirement: "the target's agent is killed during the migration: the guest arrives without a restart",
        run: kill_target_agent,
    },
    Case {
        name: "libvirt-killed",
        requirement: "the source's libvirt is killed during the migration: one copy keeps running",
        run: kill_libvirt,
    },
];

/// Bandwidth of a slow migration. The migration then takes about twenty seconds, long enough for an interruption.
const SLOW_BANDWIDTH_MEBIBYTES: u32 = 4;

fn guest_object() -> String {
    format!("vm:{}", guest::NAME)
}

/// Starts a guest with this spec from scratch, and returns its node. The guest is stopped before its deletion, because deleting a
/// running resource leaves the service running.
fn start_fresh_guest(rig: &Rig, spec: &serde_json::Value) -> Result<String> {
    if rig.cluster.object("resources", guest::NAME).is_some() {
        rig.hactl(&["stop", &guest_object(), "--grace-period", "1s"], 0)?;
    }
    rig.cluster.delete("resources", guest::NAME)?;
    wait_until("the guest to be deleted", STEP_TIMEOUT, || {
        rig.cluster.object("resources", guest::NAME).is_none()
    })?;
    rig.apply_guest(spec)
}

/// Starts a slow migration and returns when it is halfway: source, target, and the guest's last line before it.
fn begin_slow_migration(rig: &Rig) -> Result<(String, String, GuestLine)> {
    let source = start_fresh_guest(rig, &guest::spec(Some(SLOW_BANDWIDTH_MEBIBYTES))?)?;
    let target = rig.other_node(&source)?;
    let line_before = rig.next_line()?;
    rig.start_migration(&target)?;
    rig.wait_until_partly_sent()?;
    Ok((source, target, line_before))
}

fn migrate_there_and_back(rig: &mut Rig) -> Result<()> {
    let source = start_fresh_guest(rig, &guest::spec(None)?)?;
    let target = rig.other_node(&source)?;
    // The node's allocation must include the requests from the definition.
    wait_until("the memory of the guest to count on its node", STEP_TIMEOUT, || {
        let allocated = rig.cluster.object("nodes", &source).unwrap_or_default();
        allocated["status"]["allocated"]["memory"] == format!("{}Mi", guest::MEBIBYTES)
            && allocated["status"]["allocated"]["cpu"] == "1"
    })?;
    for (from, to) in [(&source, &target), (&target, &source)] {
        let line_before = rig.next_line()?;
        rig.hactl(&["migrate", &guest_object(), to], 0)?;
        let line_after = rig.wait_until_continued(&line_before, to)?;
        if line_after.count > line_before.count + 600 {
            bail!(
                "the guest counted from {} to {} during the migration, which is minutes",
                line_before.count,
                line_after.count
            );
        }
        rig.wait_until_gone_from(from)?;
    }
    rig.hactl(&["stop", &guest_object()], 0)?;
    rig.wait_until_gone_from(&source)?;
    let console = std::fs::read_to_string(host::console(rig.cluster.machine(&source)?))?;
    if !console.contains("switching off") {
        bail!("the guest did not power itself off; its last line is {:?}", console.lines().next_back());
    }
    Ok(())
}

fn stop_by_hand(rig: &mut Rig) -> Result<()> {
    let node = start_fresh_guest(rig, &patched(guest::spec(None)?, &json!({"maxRestart": 9})))?;
    let check_restart = |rig: &Rig, line_before: &GuestLine, event: &str| {
        rig.consoles.wait_for_line("to start again", |line| line.boot != line_before.boot)?;
        rig.wait_for_event(event)?;
        rig.wait_until_started().map(|_| ())
    };
    let line_before = rig.next_line()?;
    rig.virsh(&node, &["destroy", "--domain", guest::NAME])?;
    check_restart(rig, &line_before, "stopped outside hactl (domain was destroyed with libvirt tools)")?;
    let line_before = rig.next_line()?;
    for qemu in rig.qemus(&node) {
        qemu.signal(Signal::SIGKILL)?;
    }
    check_restart(rig, &line_before, "Service exited: QEMU exited unexpectedly")?;
    let line_before = rig.next_line()?;
    rig.virsh(&node, &["shutdown", "--domain", guest::NAME, "--mode", "acpi"])?;
    check_restart(
        rig,
        &line_before,
        "stopped outside hactl (virtual machine was asked to shut down, as with \"virsh shutdown\")",
    )?;
    check_accepted_stops(rig, &node)
}

/// With `externalStop: Accept`, clean stops with virsh set the requested state to Stopped, and a start with virsh sets it
/// to Started. A killed QEMU is still a crash.
fn check_accepted_stops(rig: &Rig, node: &str) -> Result<()> {
    rig.hactl(&["set", &guest_object(), "externalStop=Accept"], 0)?;
    let file = format!("{}-by-hand.xml", guest::NAME);
    std::fs::write(rig.cluster.shared_directory().join(&file), guest::definition()?)?;
    let wait_for_requested_state = |rig: &Rig, state: &str| {
        wait_until(&format!("the requested state to be {state}"), STEP_TIMEOUT, || {
            let object = rig.cluster.object("resources", guest::NAME).unwrap_or_default();
            object["spec"]["state"] == state && object["status"]["state"] == state
        })
    };
    let stops: [&[&str]; 2] = [&["shutdown", "--mode", "acpi", "--domain"], &["destroy", "--domain"]];
    for stop in stops {
        rig.wait_until_continued(&rig.next_line()?, node)?;
        rig.virsh(node, &[stop, &[guest::NAME]].concat())?;
        wait_for_requested_state(rig, "Stopped")?;
        rig.wait_until_gone_from(node)?;
        rig.wait_for_event("requested state is now Stopped (externalStop: Accept)")?;
        rig.virsh(node, &["create", "--file", &format!("{SHARED_DIRECTORY}/{file}")])?;
        wait_for_requested_state(rig, "Started")?;
    }
    let line_before = rig.next_line()?;
    for qemu in rig.qemus(node) {
        qemu.signal(Signal::SIGKILL)?;
    }
    rig.consoles.wait_for_line("to start again after a crash", |line| line.boot != line_before.boot)?;
    wait_for_requested_state(rig, "Started")
}

fn use_definition_file(rig: &mut Rig) -> Result<()> {
    let name = format!("{}.xml", guest::NAME);
    std::fs::write(rig.cluster.shared_directory().join(&name), guest::definition()?)?;
    let spec = patched(
        guest::spec(None)?,
        &json!({"driver": {"libvirt": {"xml": "", "domain": guest::NAME, "definition": format!("{SHARED_DIRECTORY}/{name}")}}}),
    );
    let node = start_fresh_guest(rig, &spec)?;
    let target = rig.other_node(&node)?;
    let line_before = rig.next_line()?;
    rig.hactl(&["migrate", &format!("vm:{}", guest::NAME), &target], 0)?;
    rig.wait_until_continued(&line_before, &target)?;
    wait_until("the memory of the guest to count on its node", STEP_TIMEOUT, || {
        let allocated = rig.cluster.object("nodes", &target).unwrap_or_default();
        allocated["status"]["allocated"]["memory"] == format!("{}Mi", guest::MEBIBYTES)
    })
}

fn cancel_slow_migration(rig: &mut Rig) -> Result<()> {
    let spec =
        patched(guest::spec(Some(SLOW_BANDWIDTH_MEBIBYTES))?, &json!({"timeouts": {"migrateSeconds": 6}}));
    let source = start_fresh_guest(rig, &spec)?;
    let target = rig.other_node(&source)?;
    let line_before = rig.next_line()?;
    let output_text = rig.hactl(&["migrate", &guest_object(), &target], 1)?;
    if !output_text.contains("canceled after 6 s") {
        bail!("the output does not name the limit: {output_text}");
    }
    rig.wait_until_continued(&line_before, &source)?;
    rig.wait_until_gone_from(&target)?;
    let job = rig.virsh(&source, &["domjobinfo", "--domain", guest::NAME])?;
    if !job.contains("None") {
        bail!("libvirt still has a migration job: {job}");
    }
    Ok(())
}

fn finish_with_post_copy(rig: &mut Rig) -> Result<()> {
    let migration = json!({"postCopyAfterSeconds": 3, "maxDowntimeSeconds": 0.2});
    let spec = patched(
        guest::spec(Some(SLOW_BANDWIDTH_MEBIBYTES))?,
        &json!({"driver": {"libvirt": {"migration": migration}}}),
    );
    let source = start_fresh_guest(rig, &spec)?;
    let target = rig.other_node(&source)?;
    let line_before = rig.next_line()?;
    rig.hactl(&["migrate", &guest_object(), &target], 0)?;
    rig.wait_until_continued(&line_before, &target)?;
    rig.wait_until_gone_from(&source)?;
    // libvirt itself must report the change to post-copy.
    let log = std::fs::read_to_string(rig.cluster.machine(&source)?.log("ha-node-agent"))?;
    if !log.contains("switched a migration to post-copy") {
        bail!("the guest arrived without a change to post-copy: {log}");
    }
    Ok(())
}

fn kill_target(rig: &mut Rig) -> Result<()> {
    let (source, target, line_before) = begin_slow_migration(rig)?;
    rig.cluster.power_off(&target)?;
    rig.wait_until_continued(&line_before, &source)?;
    wait_until("the guest to be Started on the source", STEP_TIMEOUT, || {
        let status = rig.status();
        status["state"] == "Started" && status["node"] == source.as_str() && rig.qemus(&source).len() == 1
    })?;
    rig.wait_until_continued(&rig.next_line()?, &source)?;
    rig.power_on(&target)?;
    rig.wait_until_gone_from(&target)
}

fn kill_source(rig: &mut Rig) -> Result<()> {
    let (source, target, line_before) = begin_slow_migration(rig)?;
    rig.cluster.power_off(&source)?;
    let line_after = rig.consoles.wait_for_line("to run after fencing", |line| line.node == target)?;
    if line_after.boot == line_before.boot {
        bail!("an incompletely migrated guest kept running: {line_before:?}, {line_after:?}");
    }
    let fence = rig.cluster.etcdctl().get(&rig.cluster.keys().fence(&source.as_str().into()))?;
    let state = fence.map(|fence| fence.value["state"].to_string()).unwrap_or_default();
    if state != "\"Fenced\"" {
        bail!("{source} was not fenced before the guest started on {target}: {state}");
    }
    wait_for("one copy", STEP_TIMEOUT, || (rig.qemus(&target).len() == 1).then_some(()))?;
    rig.power_on(&source)?;
    rig.wait_until_gone_from(&source)?;
    rig.wait_until_started().map(|_| ())
}

fn kill_source_agent(rig: &mut Rig) -> Result<()> {
    let (source, target, line_before) = begin_slow_migration(rig)?;
    rig.cluster.machine(&source)?.kill("ha-node-agent")?;
    rig.wait_until_continued(&line_before, &target)?;
    rig.wait_until_gone_from(&source)?;
    rig.wait_until_started().map(|_| ())
}

fn kill_target_agent(rig: &mut Rig) -> Result<()> {
    let (source, target, line_before) = begin_slow_migration(rig)?;
    rig.cluster.machine(&target)?.kill("ha-node-agent")?;
    rig.wait_until_continued(&line_before, &target)?;
    rig.wait_until_gone_from(&source)?;
    rig.wait_until_started().map(|_| ())
}

fn kill_libvirt(rig: &mut Rig) -> Result<()> {
    let (source, target, line_before) = begin_slow_migration(rig)?;
    rig.cluster.machine(&source)?.kill(host::PROGRAM)?;
    rig.consoles.wait_for_line("to continue counting", |line| {
        line.boot == line_before.boot && line.count > line_before.count
    })?;
    wait_until("the guest to be Started", STEP_TIMEOUT, || rig.status()["state"] == "Started")?;
    let active_node = rig.wait_until_started()?;
    rig.wait_until_continued(&line_before, &active_node)?;
    rig.wait_until_gone_from(if active_node == source { &target } else { &source })
}
