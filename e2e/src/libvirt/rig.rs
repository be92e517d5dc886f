//! A cluster of two nodes with libvirt, one guest, and its consoles.

use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::console::{Consoles, Said};
use super::{guest, host};
use crate::cluster::Cluster;
use crate::machine::Role;
use crate::plan::Plan;
use crate::process;
use crate::scratch;
use crate::wait::{monotonic_ns, wait_for, wait_until};

/// How long anything may take before it is broken.
pub const CEILING: Duration = Duration::from_secs(180);

/// The cluster under observation.
pub struct Rig {
    /// The cluster.
    pub cluster: Cluster,
    /// What the guest says.
    pub consoles: Consoles,
}

impl Rig {
    /// Starts the cluster; the guest is not there yet.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start() -> Result<Self> {
        let folder = scratch::folder(&format!("libvirt-{}", monotonic_ns() / 1_000_000_000))?;
        let plan = Plan { etcd: 1, controllers: 1, nodes: 2, libvirt: true, ..Plan::test(&folder) };
        let cluster = Cluster::start(plan)?;
        let files = cluster.names(Role::Node).into_iter().map(|node| {
            let console = host::console(cluster.machine(&node)?);
            Ok((node, console))
        });
        let consoles = Consoles::read(files.collect::<Result<_>>()?);
        Ok(Self { cluster, consoles })
    }

    /// The run's folder.
    pub fn folder(&self) -> &Path {
        self.cluster.folder()
    }

    /// Applies the guest, and waits until it runs and counts; gives its node.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn guest(&self, spec: &Value) -> Result<String> {
        self.cluster.apply("resources", guest::NAME, spec)?;
        self.home()
    }

    /// Where the guest counts, once the API says Started there.
    ///
    /// # Errors
    /// When it does not for long.
    pub fn home(&self) -> Result<String> {
        let begin = Instant::now();
        loop {
            let node = wait_for("the guest to be Started", CEILING, || {
                let status = self.status();
                let state = status["state"].as_str().unwrap_or_default();
                (state == "Started").then(|| status["node"].as_str().map(str::to_owned)).flatten()
            })
            .with_context(|| format!("its status is {}", self.status()))?;
            let said = self.consoles.wait(&format!("to count on {node}"), |_| true)?;
            if said.node == node {
                return Ok(node);
            }
            if begin.elapsed() > CEILING {
                bail!("it is Started on {node}, and counts on {}", said.node);
            }
        }
    }

    /// The node that is not this one.
    ///
    /// # Errors
    /// When there is none.
    pub fn other(&self, node: &str) -> Result<String> {
        self.cluster.names(Role::Node).into_iter().find(|other| other != node).context("there are two nodes")
    }

    /// The guest's status as the API shows it.
    pub fn status(&self) -> Value {
        self.cluster.object("resources", guest::NAME).unwrap_or_default()["status"].take()
    }

    /// What its conditions say, in a line.
    pub fn told(&self) -> String {
        let status = self.status();
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().filter_map(|condition| condition["message"].as_str()).collect::<Vec<_>>().join("; ")
    }

    /// Runs hactl to its end.
    ///
    /// # Errors
    /// When its exit status is another one.
    pub fn hactl(&self, arguments: &[&str], expected: i32) -> Result<String> {
        let output = self.cluster.hactl_within(CEILING, arguments)?;
        let text = printed(&output);
        if output.status.code() != Some(expected) {
            bail!("hactl {}: {}: {text}", arguments.join(" "), output.status);
        }
        Ok(text)
    }

    /// Asks for a move and does not wait; gives the request's name.
    ///
    /// # Errors
    /// When it is refused.
    pub fn begin_move(&self, target: &str) -> Result<()> {
        self.hactl(&["migrate", &format!("vm:{}", guest::NAME), target, "--no-wait"], 0).map(|_| ())
    }

    /// Waits until a part of the memory is on its way: half-way.
    ///
    /// # Errors
    /// When it does not get there; it must be slow enough.
    pub fn half_way(&self) -> Result<String> {
        wait_for("the move to be half-way", CEILING, || {
            let told = self.told();
            let percent = told.split(" % sent").next()?.rsplit(' ').next()?.parse::<u32>().ok()?;
            (percent >= 10 && told.contains(" % sent")).then_some(told)
        })
        .with_context(|| format!("its conditions say: {}", self.told()))
    }

    /// Waits until the guest says something on this node, in the same boot, with a higher number.
    ///
    /// # Errors
    /// When it does not.
    pub fn goes_on(&self, before: &Said, node: &str) -> Result<Said> {
        self.consoles.wait(&format!("to go on from {} on {node}", before.count), |said| {
            said.node == node && said.boot == before.boot && said.count > before.count
        })
    }

    /// What the guest says now.
    ///
    /// # Errors
    /// When it says nothing.
    pub fn now(&self) -> Result<Said> {
        self.consoles.wait("to count", |_| true)
    }

    /// Runs virsh on a node.
    ///
    /// # Errors
    /// When it fails.
    pub fn virsh(&self, node: &str, arguments: &[&str]) -> Result<String> {
        let machine = self.cluster.machine(node)?;
        let init = machine.init.context("the node is on")?;
        let pid = init.pid.to_string();
        let mut all =
            vec!["--target", pid.as_str(), "--mount", "--net", "--pid", "--uts", "--ipc", "virsh", "-q"];
        all.extend(arguments);
        crate::command::run("nsenter", &all)
    }

    /// The QEMU processes on a node.
    pub fn qemus(&self, node: &str) -> Vec<process::ProcessId> {
        let Ok(machine) = self.cluster.machine(node) else { return Vec::new() };
        let is_qemu = |pid: i32| {
            std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|text| String::from_utf8_lossy(&text).contains(&format!("guest={}", guest::NAME)))
        };
        machine.processes().into_iter().filter(|process| is_qemu(process.pid)).collect()
    }

    /// Waits until nothing of the guest is on a node.
    ///
    /// # Errors
    /// When something stays.
    pub fn gone_from(&self, node: &str) -> Result<()> {
        wait_until(&format!("nothing of the guest to be left on {node}"), CEILING, || {
            self.qemus(node).is_empty()
                && self.virsh(node, &["list", "--all", "--name"]).is_ok_and(|text| text.trim().is_empty())
        })
    }

    /// Switches a node on, and waits until it is open for services.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn power_on(&mut self, node: &str) -> Result<()> {
        self.cluster.power_on(node)?;
        self.cluster.wait_for_nodes()
    }

    /// The events of the guest.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn events(&self) -> Result<String> {
        self.hactl(&["events", "--for", &format!("resource/{}", guest::NAME)], 0)
    }

    /// Waits until an event says this.
    ///
    /// # Errors
    /// When none does.
    pub fn event(&self, text: &str) -> Result<()> {
        wait_until(&format!("an event with {text:?}"), CEILING, || {
            self.events().is_ok_and(|events| events.contains(text))
        })
        .with_context(|| self.events().unwrap_or_default())
    }

    /// Ends the run: the guest never ran twice, and everything is removed.
    ///
    /// # Errors
    /// When it did, or something is left.
    pub fn finish(self) -> Result<()> {
        let Self { cluster, consoles } = self;
        consoles.finish().with_context(|| format!("logs are in {}", cluster.folder().display()))?;
        cluster.remove()
    }
}

/// As a merge patch of the spec.
pub fn patched(mut spec: Value, patch: &Value) -> Value {
    merge(&mut spec, patch);
    spec
}

fn merge(value: &mut Value, patch: &Value) {
    match (value, patch) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (name, change) in changes {
                merge(fields.entry(name.clone()).or_insert(json!(null)), change);
            }
        }
        (value, patch) => *value = patch.clone(),
    }
}

fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
