//! Cases of the libvirt suite: operations and faults, and their required outcome.

use anyhow::{Result, bail};
use nix::sys::signal::Signal;
use serde_json::json;

use super::console::Said;
use super::rig::{CEILING, Rig, patched};
use super::{guest, host};
use crate::plan::SHARED;
use crate::wait::{wait_for, wait_until};

/// A case of the suite.
pub struct Case {
    /// Name of the case on the command line.
    pub name: &'static str,
    /// Requirement that the case checks, as a sentence.
    pub holds: &'static str,
    /// Function that runs the case. It fails if the requirement is not met.
    pub run: fn(&mut Rig) -> Result<()>,
}

/// Names of the cases that `./dev/test` runs.
pub const SHORT: [&str; 1] = ["moves"];

/// All cases.
pub const ALL: [Case; 10] = [
    Case {
        name: "moves",
        holds: "the guest starts, live-migrates to the other node and back without a restart, and stops",
        run: moves,
    },
    Case {
        name: "by-hand",
        holds: "a stop outside hactl and a crash are reported differently; after both, the guest is started again",
        run: by_hand,
    },
    Case { name: "file", holds: "the requests in a definition file count on the node", run: file },
    Case {
        name: "too-slow",
        holds: "a migration that takes too long is canceled; the guest keeps running on the source",
        run: too_slow,
    },
    Case {
        name: "post-copy",
        holds: "a migration that takes too long changes to post-copy; the guest arrives without a restart",
        run: post_copy,
    },
    Case {
        name: "target-killed",
        holds: "the target fails during the migration: the guest keeps running on the source",
        run: target_killed,
    },
    Case {
        name: "source-killed",
        holds: "the source fails during the migration: one copy runs after fencing",
        run: source_killed,
    },
    Case {
        name: "source-agent-killed",
        holds: "the source's agent is killed during the migration: the guest arrives without a restart",
        run: source_agent_killed,
    },
    Case {
        name: "target-agent-killed",
        holds: "the target's agent is killed during the migration: the guest arrives without a restart",
        run: target_agent_killed,
    },
    Case {
        name: "libvirt-killed",
        holds: "the source's libvirt is killed during the migration: one copy keeps running",
        run: libvirt_killed,
    },
];

/// Bandwidth that makes a migration take about twenty seconds, long enough to interrupt it.
const SLOW_MEBIBYTES: u32 = 4;

fn name() -> String {
    format!("vm:{}", guest::NAME)
}

/// Starts a guest with this spec from scratch, and returns its node. The guest is stopped before its deletion, because deleting a
/// running resource leaves the service running.
fn fresh(rig: &Rig, spec: &serde_json::Value) -> Result<String> {
    if rig.cluster.object("resources", guest::NAME).is_some() {
        rig.hactl(&["stop", &name(), "--grace-period", "1s"], 0)?;
    }
    rig.cluster.delete("resources", guest::NAME)?;
    wait_until("the guest to be deleted", CEILING, || {
        rig.cluster.object("resources", guest::NAME).is_none()
    })?;
    rig.guest(spec)
}

/// Starts a slow migration and returns when it is half-way: source, target, and the guest's last line before it.
fn half_way(rig: &Rig) -> Result<(String, String, Said)> {
    let source = fresh(rig, &guest::spec(Some(SLOW_MEBIBYTES))?)?;
    let target = rig.other(&source)?;
    let before = rig.now()?;
    rig.begin_move(&target)?;
    rig.half_way()?;
    Ok((source, target, before))
}

fn moves(rig: &mut Rig) -> Result<()> {
    let source = fresh(rig, &guest::spec(None)?)?;
    let target = rig.other(&source)?;
    // The node's allocation must include the requests from the definition.
    wait_until("its memory to count on its node", CEILING, || {
        let allocated = rig.cluster.object("nodes", &source).unwrap_or_default();
        allocated["status"]["allocated"]["memory"] == format!("{}Mi", guest::MEBIBYTES)
            && allocated["status"]["allocated"]["cpu"] == "1"
    })?;
    for (from, to) in [(&source, &target), (&target, &source)] {
        let before = rig.now()?;
        rig.hactl(&["migrate", &name(), to], 0)?;
        let after = rig.goes_on(&before, to)?;
        if after.count > before.count + 600 {
            bail!(
                "the guest counted from {} to {} during the migration, which is minutes",
                before.count,
                after.count
            );
        }
        rig.gone_from(from)?;
    }
    rig.hactl(&["stop", &name()], 0)?;
    rig.gone_from(&source)?;
    let console = std::fs::read_to_string(host::console(rig.cluster.machine(&source)?))?;
    if !console.contains("switching off") {
        bail!("the guest did not power itself off; its last line is {:?}", console.lines().next_back());
    }
    Ok(())
}

fn by_hand(rig: &mut Rig) -> Result<()> {
    let node = fresh(rig, &patched(guest::spec(None)?, &json!({"maxRestart": 9})))?;
    let anew = |rig: &Rig, before: &Said, event: &str| {
        rig.consoles.wait("to start again", |said| said.boot != before.boot)?;
        rig.event(event)?;
        rig.home().map(|_| ())
    };
    let before = rig.now()?;
    rig.virsh(&node, &["destroy", "--domain", guest::NAME])?;
    anew(rig, &before, "stopped outside hactl (domain was destroyed with libvirt tools)")?;
    let before = rig.now()?;
    for qemu in rig.qemus(&node) {
        qemu.signal(Signal::SIGKILL)?;
    }
    anew(rig, &before, "Service exited: QEMU exited unexpectedly")?;
    let before = rig.now()?;
    rig.virsh(&node, &["shutdown", "--domain", guest::NAME, "--mode", "acpi"])?;
    anew(rig, &before, "stopped outside hactl (guest was asked to shut down, as with \"virsh shutdown\")")?;
    accepted(rig, &node)
}

/// With `externalStop: Accept`, clean stops with virsh set the requested state to Stopped, and a start with virsh sets it
/// to Started. A killed QEMU is still a crash.
fn accepted(rig: &Rig, node: &str) -> Result<()> {
    rig.hactl(&["set", &name(), "externalStop=Accept"], 0)?;
    let file = format!("{}-by-hand.xml", guest::NAME);
    std::fs::write(rig.cluster.shared().join(&file), guest::definition()?)?;
    let requested = |rig: &Rig, state: &str| {
        wait_until(&format!("the requested state to be {state}"), CEILING, || {
            let object = rig.cluster.object("resources", guest::NAME).unwrap_or_default();
            object["spec"]["state"] == state && object["status"]["state"] == state
        })
    };
    let stops: [&[&str]; 2] = [&["shutdown", "--mode", "acpi", "--domain"], &["destroy", "--domain"]];
    for stop in stops {
        rig.goes_on(&rig.now()?, node)?;
        rig.virsh(node, &[stop, &[guest::NAME]].concat())?;
        requested(rig, "Stopped")?;
        rig.gone_from(node)?;
        rig.event("requested state is now Stopped (externalStop: Accept)")?;
        rig.virsh(node, &["create", "--file", &format!("{SHARED}/{file}")])?;
        requested(rig, "Started")?;
    }
    let before = rig.now()?;
    for qemu in rig.qemus(node) {
        qemu.signal(Signal::SIGKILL)?;
    }
    rig.consoles.wait("to start again after a crash", |said| said.boot != before.boot)?;
    requested(rig, "Started")
}

fn file(rig: &mut Rig) -> Result<()> {
    let name = format!("{}.xml", guest::NAME);
    std::fs::write(rig.cluster.shared().join(&name), guest::definition()?)?;
    let spec = patched(
        guest::spec(None)?,
        &json!({"driver": {"libvirt": {"xml": "", "domain": guest::NAME, "definition": format!("{SHARED}/{name}")}}}),
    );
    let node = fresh(rig, &spec)?;
    let target = rig.other(&node)?;
    let before = rig.now()?;
    rig.hactl(&["migrate", &format!("vm:{}", guest::NAME), &target], 0)?;
    rig.goes_on(&before, &target)?;
    wait_until("its memory to count on its node", CEILING, || {
        let allocated = rig.cluster.object("nodes", &target).unwrap_or_default();
        allocated["status"]["allocated"]["memory"] == format!("{}Mi", guest::MEBIBYTES)
    })
}

fn too_slow(rig: &mut Rig) -> Result<()> {
    let spec = patched(guest::spec(Some(SLOW_MEBIBYTES))?, &json!({"timeouts": {"migrateSeconds": 6}}));
    let source = fresh(rig, &spec)?;
    let target = rig.other(&source)?;
    let before = rig.now()?;
    let said = rig.hactl(&["migrate", &name(), &target], 1)?;
    if !said.contains("canceled after 6 s") {
        bail!("the output does not name the limit: {said}");
    }
    rig.goes_on(&before, &source)?;
    rig.gone_from(&target)?;
    let job = rig.virsh(&source, &["domjobinfo", "--domain", guest::NAME])?;
    if !job.contains("None") {
        bail!("libvirt still has a migration job: {job}");
    }
    Ok(())
}

fn post_copy(rig: &mut Rig) -> Result<()> {
    let migration = json!({"postCopyAfterSeconds": 3, "maxDowntimeSeconds": 0.2});
    let spec = patched(
        guest::spec(Some(SLOW_MEBIBYTES))?,
        &json!({"driver": {"libvirt": {"migration": migration}}}),
    );
    let source = fresh(rig, &spec)?;
    let target = rig.other(&source)?;
    let before = rig.now()?;
    rig.hactl(&["migrate", &name(), &target], 0)?;
    rig.goes_on(&before, &target)?;
    rig.gone_from(&source)?;
    // libvirt itself must report the change to post-copy.
    let log = std::fs::read_to_string(rig.cluster.machine(&source)?.log("ha-node-agent"))?;
    if !log.contains("changed a migration to post-copy") {
        bail!("the guest arrived without a change to post-copy: {log}");
    }
    Ok(())
}

fn target_killed(rig: &mut Rig) -> Result<()> {
    let (source, target, before) = half_way(rig)?;
    rig.cluster.power_off(&target)?;
    rig.goes_on(&before, &source)?;
    wait_until("the guest to be Started on the source", CEILING, || {
        let status = rig.status();
        status["state"] == "Started" && status["node"] == source.as_str() && rig.qemus(&source).len() == 1
    })?;
    rig.goes_on(&rig.now()?, &source)?;
    rig.power_on(&target)?;
    rig.gone_from(&target)
}

fn source_killed(rig: &mut Rig) -> Result<()> {
    let (source, target, before) = half_way(rig)?;
    rig.cluster.power_off(&source)?;
    let after = rig.consoles.wait("to run after fencing", |said| said.node == target)?;
    if after.boot == before.boot {
        bail!("an incompletely migrated guest kept running: {before:?}, {after:?}");
    }
    let fence = rig.cluster.etcdctl().get(&rig.cluster.keys().fence(&source.as_str().into()))?;
    let state = fence.map(|fence| fence.value["state"].to_string()).unwrap_or_default();
    if state != "\"Fenced\"" {
        bail!("{source} was not fenced before the guest started on {target}: {state}");
    }
    wait_for("one copy", CEILING, || (rig.qemus(&target).len() == 1).then_some(()))?;
    rig.power_on(&source)?;
    rig.gone_from(&source)?;
    rig.home().map(|_| ())
}

fn source_agent_killed(rig: &mut Rig) -> Result<()> {
    let (source, target, before) = half_way(rig)?;
    rig.cluster.machine(&source)?.kill("ha-node-agent")?;
    rig.goes_on(&before, &target)?;
    rig.gone_from(&source)?;
    rig.home().map(|_| ())
}

fn target_agent_killed(rig: &mut Rig) -> Result<()> {
    let (source, target, before) = half_way(rig)?;
    rig.cluster.machine(&target)?.kill("ha-node-agent")?;
    rig.goes_on(&before, &target)?;
    rig.gone_from(&source)?;
    rig.home().map(|_| ())
}

fn libvirt_killed(rig: &mut Rig) -> Result<()> {
    let (source, target, before) = half_way(rig)?;
    rig.cluster.machine(&source)?.kill(host::PROGRAM)?;
    rig.consoles
        .wait("to continue counting", |said| said.boot == before.boot && said.count > before.count)?;
    wait_until("the guest to be Started", CEILING, || rig.status()["state"] == "Started")?;
    let home = rig.home()?;
    rig.goes_on(&before, &home)?;
    rig.gone_from(if home == source { &target } else { &source })
}
