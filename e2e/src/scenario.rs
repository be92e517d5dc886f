//! Common parts of most end-to-end tests: a cluster, a witness as its service, the checker, and a clean end.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::command::output_text;
use anyhow::{Context, Result, bail, ensure};
use ha_api_types::cluster::OnEtcdLoss;
use ha_api_types::timing::{TimingSpec, Timings};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::binaries;
use crate::checker::{DoubleRunChecker, WitnessFile};
use crate::cluster::Cluster;
use crate::machine::Role;
use crate::plan::{Plan, SHARED_DIRECTORY};
use crate::scratch;
use crate::wait::{check_holds_for, wait_for, wait_until};

/// Longest time for any step of a test. The product's own limits are a tenth of it: the benchmark measures times, tests check
/// only the events and their order.
pub const STEP_TIMEOUT: Duration = Duration::from_secs(120);

/// Name of the witness service.
pub const WITNESS: &str = "witness";

/// A cluster under observation with one witness running.
pub struct Scenario {
    /// Cluster of the scenario.
    pub cluster: Cluster,
    /// Outside checker, which samples until the end.
    pub checker: DoubleRunChecker,
}

/// A command of hactl that has not ended.
pub struct RunningHactl {
    child: Child,
    stderr: BufReader<ChildStderr>,
    messages: String,
}

impl RunningHactl {
    /// Returns the id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end, and returns the exit status and all messages.
    ///
    /// # Errors
    /// Fails if the messages cannot be read.
    pub fn finish(mut self) -> Result<(Option<i32>, String)> {
        self.stderr.read_to_string(&mut self.messages)?;
        Ok((self.child.wait()?.code(), self.messages))
    }
}

impl Scenario {
    /// Starts a cluster with the fast timing profile and a witness.
    ///
    /// # Errors
    /// Fails if the cluster or the witness does not start.
    pub fn start(name: &str) -> Result<Self> {
        Self::start_with(Plan::test(&scratch::directory(name)?))
    }

    /// Behaves like [`Scenario::start`], with another plan.
    ///
    /// # Errors
    /// Fails if the cluster or the witness does not start.
    pub fn start_with(plan: Plan) -> Result<Self> {
        let cluster = Cluster::start(plan)?;
        let checker = cluster.checker(&["ha-witness", "redis-server"]);
        let scenario = Self { cluster, checker };
        scenario.create_witness(WITNESS)?;
        scenario.wait_until_started(WITNESS)?;
        Ok(scenario)
    }

    /// Runs hactl, and returns its standard output.
    ///
    /// # Errors
    /// Fails if hactl cannot be started or does not succeed.
    pub fn hactl(&self, arguments: &[&str]) -> Result<String> {
        let output = self.cluster.hactl_with_timeout(STEP_TIMEOUT, arguments)?;
        ensure!(output.status.success(), "hactl {}: {}", arguments.join(" "), output_text(&output));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts hactl, and returns as soon as its messages contain this text.
    ///
    /// # Errors
    /// Fails if hactl cannot be started, or ends before.
    pub fn start_hactl_until(&self, arguments: &[&str], text: &str) -> Result<RunningHactl> {
        let mut child = Command::new(self.cluster.directory().join("hactl"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut stderr = BufReader::new(child.stderr.take().context("a pipe")?);
        let mut messages = String::new();
        while !messages.contains(text) {
            ensure!(
                stderr.read_line(&mut messages)? > 0,
                "hactl {arguments:?} ended before {text:?}: {messages}"
            );
        }
        Ok(RunningHactl { child, stderr, messages })
    }

    /// Creates a witness service.
    ///
    /// # Errors
    /// Fails if the API refuses the service.
    pub fn create_witness(&self, name: &str) -> Result<Value> {
        self.apply("resources", name, &witness_spec(name)?)
    }

    /// Creates or changes an object through the first controller that accepts the request.
    ///
    /// # Errors
    /// Fails if no controller accepts the request in time.
    pub fn apply(&self, plural: &str, name: &str, spec: &Value) -> Result<Value> {
        self.cluster.apply(plural, name, spec)
    }

    /// Returns an object from the first controller that responds with it.
    pub fn object(&self, plural: &str, name: &str) -> Option<Value> {
        self.cluster.object(plural, name)
    }

    /// Returns the state of a service, as the API reports it.
    pub fn state(&self, service: &str) -> String {
        let object = self.object("resources", service).unwrap_or_default();
        object["status"]["state"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns the node of a service, once it runs on exactly one node and the API reports it as Started there.
    ///
    /// # Errors
    /// Fails if the service is not Started in time.
    pub fn wait_until_started(&self, service: &str) -> Result<String> {
        self.wait_until_running_except(service, &BTreeSet::new())
    }

    /// Returns the node of a service, once it runs on exactly one node other than `node` and the API reports it as Started there.
    ///
    /// # Errors
    /// Fails if the service is not Started in time.
    pub fn wait_until_moved_from(&self, service: &str, node: &str) -> Result<String> {
        self.wait_until_running_except(service, &BTreeSet::from([node.to_owned()]))
    }

    fn wait_until_running_except(&self, service: &str, except: &BTreeSet<String>) -> Result<String> {
        let running = wait_for(&format!("{service} to run, not on {except:?}"), STEP_TIMEOUT, || {
            let machines = self.checker.machines_running(service);
            let node =
                machines.first().filter(|node| machines.len() == 1 && !except.contains(*node))?.clone();
            let status = self.object("resources", service)?["status"].take();
            (status["state"] == "Started" && status["node"] == node.as_str()).then_some(node)
        });
        running.with_context(|| {
            let status = self.object("resources", service).map(|object| object["status"].to_string());
            format!(
                "service runs on {:?}; its status is {}; logs are in {}",
                self.checker.machines_running(service),
                status.unwrap_or_else(|| "unknown".to_owned()),
                self.cluster.directory().display()
            )
        })
    }

    /// Waits until a service runs on no node.
    ///
    /// # Errors
    /// Fails if the service still runs after the limit.
    pub fn wait_until_stopped(&self, service: &str) -> Result<()> {
        wait_until(&format!("{service} to run nowhere"), STEP_TIMEOUT, || {
            self.checker.machines_running(service).is_empty()
        })
    }

    /// Checks for `duration` that a service keeps its process and its assignment.
    ///
    /// # Errors
    /// Fails if the service changes.
    pub fn check_undisturbed(&self, service: &str, duration: Duration) -> Result<()> {
        let active_node = self.wait_until_started(service)?;
        let process = self.checker.process(service, &active_node);
        let assignment = self.action_uid(service)?;
        check_holds_for(&format!("{service} keeps its process on {active_node}"), duration, || {
            self.checker.machines_running(service) == BTreeSet::from([active_node.clone()])
                && self.checker.process(service, &active_node) == process
        })?;
        let now = self.action_uid(service)?;
        if now != assignment {
            bail!("assignment of {service} changed from {assignment} to {now} without a cause");
        }
        Ok(())
    }

    /// Returns the actionUid of a service's assignment.
    ///
    /// # Errors
    /// Fails if no assignment appears in time.
    pub fn action_uid(&self, service: &str) -> Result<String> {
        let key = self.cluster.keys().assignment(&service.into());
        wait_for(&format!("an assignment of {service}"), STEP_TIMEOUT, || {
            let entry = self.cluster.etcdctl().get(&key).ok()??;
            entry.value["actionUid"].as_str().map(str::to_owned)
        })
    }

    /// Returns the epoch and the state of a node's fence record.
    ///
    /// # Errors
    /// Fails if etcd does not return the record in time.
    pub fn epoch_and_fence_state(&self, node: &str) -> Result<(u64, String)> {
        let key = self.cluster.keys().fence(&node.into());
        wait_for(&format!("the fence of {node}"), STEP_TIMEOUT, || {
            let entry = self.cluster.etcdctl().get(&key).ok()??;
            Some((entry.value["epoch"].as_u64()?, entry.value["state"].as_str()?.to_owned()))
        })
    }

    /// Sets the behavior of nodes during an etcd outage, and timings. Waits until every node has committed both.
    ///
    /// # Errors
    /// Fails if the API refuses the settings, or if a node does not commit them in time.
    pub fn set_on_etcd_loss(&self, policy: OnEtcdLoss, timing: &Value) -> Result<()> {
        let cluster =
            self.apply("clusters", "default", &json!({"fencing": {"onEtcdLoss": policy}, "timing": timing}))?;
        let timing: TimingSpec = serde_json::from_value(cluster["spec"]["timing"].clone())?;
        let timings = Timings::from(&timing);
        self.cluster.machine_names(Role::Node).iter().try_for_each(|node| {
            wait_until(&format!("{node} to commit {policy:?}"), STEP_TIMEOUT, || {
                self.cluster
                    .node_report(node)
                    .is_ok_and(|report| report.on_etcd_loss == policy && report.timings == timings)
            })
        })
    }

    /// Stops all etcd members (SIGSTOP) for a while. For their clients, this is an outage of etcd.
    ///
    /// # Errors
    /// Fails if a member does not run, or if `during` fails.
    pub fn with_etcd_outage(&self, duration: Duration, during: impl FnOnce() -> Result<()>) -> Result<()> {
        let members = self.cluster.machine_names(Role::Etcd);
        for member in &members {
            self.cluster.machine(member)?.signal("etcd", Signal::SIGSTOP)?;
        }
        let begin = Instant::now();
        let outcome = during();
        thread::sleep(duration.saturating_sub(begin.elapsed()));
        for member in &members {
            self.cluster.machine(member)?.signal("etcd", Signal::SIGCONT)?;
        }
        outcome
    }

    /// Returns the witness with this name.
    pub fn witness(&self, name: &str) -> WitnessFile {
        self.cluster.witness(name)
    }

    /// Ends the test. Checks with the checker and every witness that no service ran twice, then removes the cluster.
    ///
    /// # Errors
    /// Fails if a service ran twice, or if a part of the cluster cannot be removed.
    pub fn finish(self) -> Result<()> {
        let Self { cluster, checker } = self;
        checker.finish().with_context(|| format!("logs are in {}", cluster.directory().display()))?;
        for entry in std::fs::read_dir(cluster.shared_directory())? {
            let path = entry?.path();
            // The record of a witness has no file name extension; its lock has one.
            if path.is_file() && path.extension().is_none() {
                WitnessFile::new(&path)
                    .check_one_writer_at_a_time()
                    .with_context(|| format!("logs are in {}", cluster.directory().display()))?;
            }
        }
        cluster.remove()
    }
}

/// Returns the spec of a witness that writes its record to the shared directory, under its own name.
///
/// # Errors
/// Fails if the witness program has not been built.
pub fn witness_spec(name: &str) -> Result<Value> {
    let program = binaries::workspace_program("ha-witness")?;
    Ok(json!({
        "driver": {"exec": {"command": [program, "--file", format!("{SHARED_DIRECTORY}/{name}")]}},
        "timeouts": {"stopSeconds": 5},
    }))
}
