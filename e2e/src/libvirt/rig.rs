//! A cluster of two nodes with libvirt, one guest, and the guest's consoles.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::console::{Consoles, GuestLine};
use super::{guest, host};
use crate::cluster::Cluster;
use crate::command::output_text;
use crate::machine::Role;
use crate::plan::Plan;
use crate::process;
use crate::scratch;
use crate::wait::{monotonic_ns, wait_for, wait_until};

/// Longest time for any step of a case.
pub const STEP_TIMEOUT: Duration = Duration::from_secs(180);

/// A cluster under observation.
pub struct Rig {
    /// Cluster with two nodes.
    pub cluster: Cluster,
    /// Lines that the guest has written.
    pub consoles: Consoles,
}

impl Rig {
    /// Starts the cluster without a guest.
    ///
    /// # Errors
    /// Fails if the cluster does not start.
    pub fn start() -> Result<Self> {
        let directory = scratch::directory(&format!("libvirt-{}", monotonic_ns() / 1_000_000_000))?;
        let plan = Plan { etcd: 1, controllers: 1, nodes: 2, libvirt: true, ..Plan::test(&directory) };
        let cluster = Cluster::start(plan)?;
        let files = cluster.machine_names(Role::Node).into_iter().map(|node| {
            let console = host::console(cluster.machine(&node)?);
            Ok((node, console))
        });
        let consoles = Consoles::start_reading(files.collect::<Result<_>>()?);
        Ok(Self { cluster, consoles })
    }

    /// Returns the directory of the run.
    pub fn directory(&self) -> &Path {
        self.cluster.directory()
    }

    /// Applies the guest, and waits until the guest writes its counter to the console. Returns its node.
    ///
    /// # Errors
    /// Fails if the guest does not start.
    pub fn apply_guest(&self, spec: &Value) -> Result<String> {
        self.cluster.apply("resources", guest::NAME, spec)?;
        self.wait_until_started()
    }

    /// Returns the node whose console shows the counter of the guest, once the API reports the resource as Started
    /// there.
    ///
    /// # Errors
    /// Fails if the guest is not Started in time.
    pub fn wait_until_started(&self) -> Result<String> {
        let begin = Instant::now();
        loop {
            let node = wait_for("the guest to be Started", STEP_TIMEOUT, || {
                let status = self.status();
                let state = status["state"].as_str().unwrap_or_default();
                (state == "Started").then(|| status["node"].as_str().map(str::to_owned)).flatten()
            })
            .with_context(|| format!("status of the guest: {}", self.status()))?;
            let line = self.consoles.wait_for_line(&format!("to run on {node}"), |_| true)?;
            if line.node == node {
                return Ok(node);
            }
            if begin.elapsed() > STEP_TIMEOUT {
                bail!("the guest is Started on {node}, but runs on {}", line.node);
            }
        }
    }

    /// Returns the other node.
    ///
    /// # Errors
    /// Fails if no other node exists.
    pub fn other_node(&self, node: &str) -> Result<String> {
        self.cluster
            .machine_names(Role::Node)
            .into_iter()
            .find(|other| other != node)
            .context("no other node found")
    }

    /// Returns the status of the guest's resource, as the API reports it.
    pub fn status(&self) -> Value {
        self.cluster.object("resources", guest::NAME).unwrap_or_default()["status"].take()
    }

    /// Returns the messages of the guest's conditions, in one line.
    pub fn condition_messages(&self) -> String {
        let status = self.status();
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().filter_map(|condition| condition["message"].as_str()).collect::<Vec<_>>().join("; ")
    }

    /// Runs hactl and returns its output.
    ///
    /// # Errors
    /// Fails if the exit status differs from `expected`.
    pub fn hactl(&self, arguments: &[&str], expected: i32) -> Result<String> {
        let output = self.cluster.hactl_with_timeout(STEP_TIMEOUT, arguments)?;
        let text = output_text(&output);
        if output.status.code() != Some(expected) {
            bail!("hactl {}: {}: {text}", arguments.join(" "), output.status);
        }
        Ok(text)
    }

    /// Requests a migration without waiting for it.
    ///
    /// # Errors
    /// Fails if the request is refused.
    pub fn start_migration(&self, target: &str) -> Result<()> {
        self.hactl(&["migrate", &format!("vm:{}", guest::NAME), target, "--no-wait"], 0).map(|_| ())
    }

    /// Waits until at least 10 % of the guest's memory has been sent. Returns the conditions' messages.
    ///
    /// # Errors
    /// Fails if the migration does not send that much in time, or finishes before it is observed.
    pub fn wait_until_partly_sent(&self) -> Result<String> {
        wait_for("10 % of the guest's memory to be sent", STEP_TIMEOUT, || {
            let messages = self.condition_messages();
            let percent = messages.split(" % sent").next()?.rsplit(' ').next()?.parse::<u32>().ok()?;
            (percent >= 10 && messages.contains(" % sent")).then_some(messages)
        })
        .with_context(|| format!("conditions of the guest: {}", self.condition_messages()))
    }

    /// Waits for a line on this node from the same boot with a higher counter.
    ///
    /// # Errors
    /// Fails if no such line appears in time.
    pub fn wait_until_continued(&self, line_before: &GuestLine, node: &str) -> Result<GuestLine> {
        self.consoles.wait_for_line(&format!("to continue from {} on {node}", line_before.count), |line| {
            line.node == node && line.boot == line_before.boot && line.count > line_before.count
        })
    }

    /// Returns the next line of the guest.
    ///
    /// # Errors
    /// Fails if the guest writes nothing.
    pub fn next_line(&self) -> Result<GuestLine> {
        self.consoles.wait_for_line("to write a line", |_| true)
    }

    /// Runs virsh on a node.
    ///
    /// # Errors
    /// Fails if virsh fails.
    pub fn virsh(&self, node: &str, arguments: &[&str]) -> Result<String> {
        let machine = self.cluster.machine(node)?;
        let init = machine.init.context("node is off")?;
        let pid = init.pid.to_string();
        let mut command_arguments =
            vec!["--target", pid.as_str(), "--mount", "--net", "--pid", "--uts", "--ipc", "virsh", "-q"];
        command_arguments.extend(arguments);
        crate::command::run("nsenter", &command_arguments)
    }

    /// Returns the guest's QEMU processes on a node.
    pub fn qemus(&self, node: &str) -> Vec<process::ProcessId> {
        let Ok(machine) = self.cluster.machine(node) else { return Vec::new() };
        let is_qemu = |pid: i32| {
            std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|text| String::from_utf8_lossy(&text).contains(&format!("guest={}", guest::NAME)))
        };
        machine.processes().into_iter().filter(|process| is_qemu(process.pid)).collect()
    }

    /// Waits until no process or domain of the guest remains on a node.
    ///
    /// # Errors
    /// Fails if a process or domain remains.
    pub fn wait_until_gone_from(&self, node: &str) -> Result<()> {
        wait_until(&format!("nothing of the guest to be left on {node}"), STEP_TIMEOUT, || {
            self.qemus(node).is_empty()
                && self.virsh(node, &["list", "--all", "--name"]).is_ok_and(|text| text.trim().is_empty())
        })
    }

    /// Switches a node on and waits until its epoch is open.
    ///
    /// # Errors
    /// Fails if the node does not start.
    pub fn power_on(&mut self, node: &str) -> Result<()> {
        self.cluster.power_on(node)?;
        self.cluster.wait_for_nodes()
    }

    /// Returns the events of the guest, as hactl prints them.
    ///
    /// # Errors
    /// Fails if the events cannot be read.
    pub fn events(&self) -> Result<String> {
        self.hactl(&["events", "--for", &format!("resource/{}", guest::NAME)], 0)
    }

    /// Waits for an event that contains a text.
    ///
    /// # Errors
    /// Fails if no such event appears in time.
    pub fn wait_for_event(&self, text: &str) -> Result<()> {
        wait_until(&format!("an event with {text:?}"), STEP_TIMEOUT, || {
            self.events().is_ok_and(|events| events.contains(text))
        })
        .with_context(|| self.events().unwrap_or_default())
    }

    /// Checks that the guest never ran twice, and removes the cluster.
    ///
    /// # Errors
    /// Fails if the guest ran twice, or a part of the cluster cannot be removed.
    pub fn finish(self) -> Result<()> {
        let Self { cluster, consoles } = self;
        consoles.finish().with_context(|| format!("logs are in {}", cluster.directory().display()))?;
        cluster.remove()
    }
}

/// Returns a spec with a merge patch applied.
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
