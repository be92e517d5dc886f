//! What most end-to-end tests have in common: a whole cluster, a witness that runs as its service, the checker, and a clean end.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ha_api_types::cluster::OnStoreLoss;
use ha_api_types::timing::{TimingSpec, Timings};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::binaries;
use crate::checker::{Checker, Witness};
use crate::cluster::Cluster;
use crate::machine::Role;
use crate::plan::{Plan, SHARED};
use crate::scratch;
use crate::wait::{holds_for, wait_for, wait_until};

/// How long anything may take before a test calls it broken. The product's own bounds are a tenth of it: times belong to
/// the benchmark, tests assert what happens and in which order.
pub const CEILING: Duration = Duration::from_secs(120);

/// The name of the witness service.
pub const WITNESS: &str = "witness";

/// A cluster under observation with one witness running.
pub struct Scenario {
    /// The cluster.
    pub cluster: Cluster,
    /// The outside checker; it samples until the end.
    pub checker: Checker,
}

impl Scenario {
    /// Starts a cluster with the fast timing profile, and the witness on it.
    ///
    /// # Errors
    /// When the cluster or the witness does not come up.
    pub fn start(name: &str) -> Result<Self> {
        Self::start_with(Plan::test(&scratch::folder(name)?))
    }

    /// As [`Scenario::start`], with another plan.
    ///
    /// # Errors
    /// When the cluster or the witness does not come up.
    pub fn start_with(plan: Plan) -> Result<Self> {
        let cluster = Cluster::start(plan)?;
        let checker = cluster.checker(&["ha-witness", "redis-server"]);
        let scenario = Self { cluster, checker };
        scenario.create_witness(WITNESS)?;
        scenario.home(WITNESS)?;
        Ok(scenario)
    }

    /// Creates a witness service.
    ///
    /// # Errors
    /// When the API refuses it.
    pub fn create_witness(&self, name: &str) -> Result<Value> {
        self.apply("resources", name, &witness_spec(name)?)
    }

    /// Creates or changes an object through any controller that answers.
    ///
    /// # Errors
    /// When none accepts it for long.
    pub fn apply(&self, plural: &str, name: &str, spec: &Value) -> Result<Value> {
        self.cluster.apply(plural, name, spec)
    }

    /// An object as any controller that answers gives it.
    pub fn object(&self, plural: &str, name: &str) -> Option<Value> {
        self.cluster.object(plural, name)
    }

    /// The state of a service as the API shows it.
    pub fn state(&self, service: &str) -> String {
        let object = self.object("resources", service).unwrap_or_default();
        object["status"]["state"].as_str().unwrap_or_default().to_owned()
    }

    /// Where a service runs, once it runs in exactly one place and the API says Started there.
    ///
    /// # Errors
    /// When it does not for long.
    pub fn home(&self, service: &str) -> Result<String> {
        self.settled(service, &BTreeSet::new())
    }

    /// Where a service runs, once it runs somewhere else than on `node` and the API says Started there.
    ///
    /// # Errors
    /// When it does not for long.
    pub fn elsewhere(&self, service: &str, node: &str) -> Result<String> {
        self.settled(service, &BTreeSet::from([node.to_owned()]))
    }

    fn settled(&self, service: &str, except: &BTreeSet<String>) -> Result<String> {
        let found = wait_for(&format!("{service} to run, not on {except:?}"), CEILING, || {
            let places = self.checker.places(service);
            let place = places.first().filter(|place| places.len() == 1 && !except.contains(*place))?.clone();
            let status = self.object("resources", service)?["status"].take();
            (status["state"] == "Started" && status["node"] == place.as_str()).then_some(place)
        });
        found.with_context(|| {
            let status = self.object("resources", service).map(|object| object["status"].to_string());
            format!(
                "it is seen in {:?}; its status is {}; logs are in {}",
                self.checker.places(service),
                status.unwrap_or_else(|| "unknown".to_owned()),
                self.cluster.folder().display()
            )
        })
    }

    /// Waits until a service runs nowhere.
    ///
    /// # Errors
    /// When it still runs after long.
    pub fn gone(&self, service: &str) -> Result<()> {
        wait_until(&format!("{service} to run nowhere"), CEILING, || self.checker.places(service).is_empty())
    }

    /// Checks that for `duration` nothing happens to a service: the same processes, the same assignment.
    ///
    /// # Errors
    /// As soon as something does.
    pub fn undisturbed(&self, service: &str, duration: Duration) -> Result<()> {
        let home = self.home(service)?;
        let process = self.checker.process(service, &home);
        let assignment = self.action(service)?;
        holds_for(&format!("{service} stays as it is on {home}"), duration, || {
            self.checker.places(service) == BTreeSet::from([home.clone()])
                && self.checker.process(service, &home) == process
        })?;
        let now = self.action(service)?;
        if now != assignment {
            bail!("{service} got the assignment {now} instead of {assignment} while nothing was to happen");
        }
        Ok(())
    }

    /// The actionUid of a service's assignment.
    ///
    /// # Errors
    /// When there is none for long.
    pub fn action(&self, service: &str) -> Result<String> {
        let key = self.cluster.keys().assignment(service);
        wait_for(&format!("an assignment of {service}"), CEILING, || {
            let entry = self.cluster.etcdctl().get(&key).ok()??;
            entry.value["actionUid"].as_str().map(str::to_owned)
        })
    }

    /// The epoch and state of a node's fence.
    ///
    /// # Errors
    /// When the store does not give it for long.
    pub fn fence(&self, node: &str) -> Result<(u64, String)> {
        let key = self.cluster.keys().fence(node);
        wait_for(&format!("the fence of {node}"), CEILING, || {
            let entry = self.cluster.etcdctl().get(&key).ok()??;
            Some((entry.value["epoch"].as_u64()?, entry.value["state"].as_str()?.to_owned()))
        })
    }

    /// Sets what nodes do while the whole store is away, and timings; every node has committed both.
    ///
    /// # Errors
    /// When the API refuses them, or a node does not commit them for long.
    pub fn on_store_loss(&self, policy: OnStoreLoss, timing: &Value) -> Result<()> {
        let cluster = self.apply(
            "clusters",
            "default",
            &json!({"fencing": {"onStoreLoss": policy}, "timing": timing}),
        )?;
        let timing: TimingSpec = serde_json::from_value(cluster["spec"]["timing"].clone())?;
        let timings = Timings::from(&timing);
        self.cluster.names(Role::Node).iter().try_for_each(|node| {
            wait_until(&format!("{node} to commit {policy:?}"), CEILING, || {
                self.cluster
                    .node_report(node)
                    .is_ok_and(|report| report.on_store_loss == policy && report.timings == timings)
            })
        })
    }

    /// Freezes every member of the store for a while, which is what an outage of all of it looks like to its clients.
    ///
    /// # Errors
    /// When a member has no process, and what `during` says.
    pub fn store_outage(&self, duration: Duration, during: impl FnOnce() -> Result<()>) -> Result<()> {
        let members = self.cluster.names(Role::Etcd);
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

    /// The record of a witness.
    pub fn witness(&self, name: &str) -> Witness {
        self.cluster.witness(name)
    }

    /// Ends the test: never two held, for the checker and for every witness; then everything is removed.
    ///
    /// # Errors
    /// When never two was broken, or something is left.
    pub fn finish(self) -> Result<()> {
        let Self { cluster, checker } = self;
        checker.finish().with_context(|| format!("logs are in {}", cluster.folder().display()))?;
        for entry in std::fs::read_dir(cluster.shared())? {
            let path = entry?.path();
            // A witness's record has no extension; its lock has.
            if path.is_file() && path.extension().is_none() {
                Witness::new(&path)
                    .check()
                    .with_context(|| format!("logs are in {}", cluster.folder().display()))?;
            }
        }
        cluster.remove()
    }
}

/// The spec of a witness that keeps its record in the shared folder under its own name.
///
/// # Errors
/// When the witness program has not been built.
pub fn witness_spec(name: &str) -> Result<Value> {
    let program = binaries::own("ha-witness")?;
    Ok(json!({
        "driver": {"exec": {"command": [program, "--file", format!("{SHARED}/{name}")]}},
        "timeouts": {"stopSeconds": 5},
    }))
}
