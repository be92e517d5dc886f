//! Driver `simulated`: simulated services that consist of timers and files, for trials and tests.

use super::{Driver, DriverFailure, Sample};
use futures::future::BoxFuture;
use ha_api_types::driver::SimulatedDriver as SimulatedSpec;
use ha_api_types::id::{BootId, NodeName, ResourceName};
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::{Millis, MonotonicTime};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Driver `simulated`. A running service is represented by a file. It therefore survives the agent, and a new boot id
/// ends it.
///
/// Live migrations, and failures that are counted for the whole cluster, require a directory that all nodes share.
#[derive(Debug)]
pub struct SimulatedDriver {
    node: NodeName,
    boot_id: BootId,
    shared: PathBuf,
}

/// Simulated state of a service on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct State {
    boot_id: BootId,
    #[serde(rename = "what")]
    service_state: SimulatedState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum SimulatedState {
    /// Nothing runs.
    #[default]
    Stopped,
    /// A start is in progress. A crash of the agent leaves this state, in which the service does not run.
    Starting,
    /// The service runs.
    Running,
    /// The service is expected from the other node.
    Receiving,
    /// The other node has handed the service over; it is paused until it is started.
    Arrived,
}

/// Number of simulated failures so far, in the whole cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Failures {
    starts: u32,
    migrations: u32,
    replacements: u32,
}

impl SimulatedDriver {
    /// Creates the driver of a node. `shared` is a directory that all nodes share; it is created if it does not exist.
    pub fn new(node: NodeName, boot_id: BootId, shared: PathBuf) -> io::Result<SimulatedDriver> {
        fs::create_dir_all(shared.join(node.as_str()))?;
        Ok(SimulatedDriver { node, boot_id, shared })
    }

    /// Returns the path of the file with a service's state on a node. A test may remove the file to end the service.
    pub fn state_file(&self, node: &NodeName, resource: &ResourceName) -> PathBuf {
        self.shared.join(node.as_str()).join(format!("{resource}.json"))
    }

    fn failures_file(&self, resource: &ResourceName) -> PathBuf {
        self.shared.join(format!("{resource}.failures.json"))
    }

    /// Returns the state on this node; a state of an earlier boot counts as stopped.
    fn state(&self, resource: &ResourceName) -> io::Result<SimulatedState> {
        let state: State = read(&self.state_file(&self.node, resource))?;
        Ok(if state.boot_id == self.boot_id { state.service_state } else { SimulatedState::Stopped })
    }

    fn set(&self, resource: &ResourceName, state: SimulatedState) -> io::Result<()> {
        write(
            &self.state_file(&self.node, resource),
            &State { boot_id: self.boot_id.clone(), service_state: state },
        )
    }

    fn fails_here(&self, spec: &SimulatedSpec) -> bool {
        spec.fail_on.is_empty() || spec.fail_on.contains(&self.node)
    }

    async fn simulate_start(&self, service: &ServiceDefinition) -> Result<(), DriverFailure> {
        let spec = spec(service)?;
        if self.state(&service.name).map_err(unreadable)? == SimulatedState::Running {
            return Ok(());
        }
        if spec.missing.contains(&self.node) {
            let message = format!("service is not installed on {}", self.node);
            return Err(DriverFailure {
                class: FailureClass::NeverHere,
                reason: Reason::NotInstalled,
                message,
            });
        }
        if spec.bad_configuration {
            return Err(DriverFailure {
                class: FailureClass::ConfigurationWrong,
                reason: Reason::BadConfiguration,
                message: "configuration of the service is invalid".to_owned(),
            });
        }
        if self.state(&service.name).map_err(unreadable)? == SimulatedState::Arrived {
            return self.set(&service.name, SimulatedState::Running).map_err(unreadable);
        }
        self.set(&service.name, SimulatedState::Starting).map_err(unreadable)?;
        seconds(spec.start_seconds).await;
        let failures_file = self.failures_file(&service.name);
        let mut failures: Failures = read(&failures_file).map_err(unreadable)?;
        if self.fails_here(spec) && failures.starts < spec.start_failures {
            failures.starts += 1;
            write(&failures_file, &failures).map_err(unreadable)?;
            self.set(&service.name, SimulatedState::Stopped).map_err(unreadable)?;
            let message =
                format!("simulated failure of start {} of {}", failures.starts, spec.start_failures);
            return Err(failed(Reason::StartFailed, message));
        }
        write(&failures_file, &Failures { starts: 0, ..failures }).map_err(unreadable)?;
        self.set(&service.name, SimulatedState::Running).map_err(unreadable)
    }

    async fn simulate_stop(
        &self,
        service: &ServiceDefinition,
        length_seconds: u32,
    ) -> Result<(), DriverFailure> {
        let spec = spec(service)?;
        if self.state(&service.name).map_err(unreadable)? == SimulatedState::Stopped {
            return Ok(());
        }
        seconds(length_seconds).await;
        if spec.stop_fails && self.fails_here(spec) {
            return Err(failed(Reason::StopFailed, "simulated failure of a stop".to_owned()));
        }
        self.set(&service.name, SimulatedState::Stopped).map_err(unreadable)
    }

    async fn simulate_migration(
        &self,
        service: &ServiceDefinition,
        target: &NodeName,
    ) -> Result<(), DriverFailure> {
        let spec = spec(service)?;
        if !spec.live {
            return Err(failed(Reason::MoveFailed, "service cannot be live-migrated".to_owned()));
        }
        let target_file = self.state_file(target, &service.name);
        let receiver: State = read(&target_file).map_err(unreadable)?;
        if receiver.service_state != SimulatedState::Receiving {
            let message = format!("{target} does not wait for the service in {}", target_file.display());
            return Err(failed(Reason::MoveFailed, message));
        }
        seconds(spec.migrate_seconds).await;
        let failures_file = self.failures_file(&service.name);
        let mut failures: Failures = read(&failures_file).map_err(unreadable)?;
        if self.fails_here(spec) && failures.migrations < spec.migrate_failures {
            failures.migrations += 1;
            write(&failures_file, &failures).map_err(unreadable)?;
            let message = format!(
                "simulated failure of migration {} of {}",
                failures.migrations, spec.migrate_failures
            );
            return Err(failed(Reason::MoveFailed, message));
        }
        write(&failures_file, &Failures { migrations: 0, ..failures }).map_err(unreadable)?;
        // The service stops on this node before it starts on the target, so it does not run on both nodes.
        self.set(&service.name, SimulatedState::Stopped).map_err(unreadable)?;
        let state_after = if spec.gated { SimulatedState::Arrived } else { SimulatedState::Running };
        write(&target_file, &State { service_state: state_after, ..receiver }).map_err(unreadable)
    }
}

impl SimulatedDriver {
    async fn simulate_replacement(&self, service: &ServiceDefinition) -> Result<(), DriverFailure> {
        let spec = spec(service)?;
        if !spec.replaces_secondary {
            let message = "secondary of a running service cannot be replaced".to_owned();
            return Err(failed(Reason::ReplaceFailed, message));
        }
        seconds(spec.replace_seconds).await;
        let failures_file = self.failures_file(&service.name);
        let mut failures: Failures = read(&failures_file).map_err(unreadable)?;
        let fails = self.fails_here(spec) && failures.replacements < spec.replace_failures;
        failures.replacements = if fails { failures.replacements + 1 } else { 0 };
        write(&failures_file, &failures).map_err(unreadable)?;
        if fails {
            let (replacement_count, failure_limit) = (failures.replacements, spec.replace_failures);
            return Err(failed(
                Reason::ReplaceFailed,
                format!("simulated failure of replacement {replacement_count} of {failure_limit}"),
            ));
        }
        Ok(())
    }
}

impl Driver for SimulatedDriver {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn check_usable(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    fn probe<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Observed> {
        Box::pin(async move {
            match self.state(&service.name) {
                Ok(SimulatedState::Running | SimulatedState::Arrived) => Observed::Running,
                Ok(SimulatedState::Stopped | SimulatedState::Starting | SimulatedState::Receiving) => {
                    Observed::NotRunning
                }
                Err(error) => Observed::Unknown(format!("state file of the service: {error}")),
            }
        })
    }

    fn start<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(self.simulate_start(service))
    }

    fn stop<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        graceful_ms: Millis,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move {
            let length_seconds = if graceful_ms == 0 { 0 } else { spec(service)?.stop_seconds };
            self.simulate_stop(service, length_seconds).await
        })
    }

    fn kill<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(self.simulate_stop(service, 0))
    }

    fn receive<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move {
            match self.state(&service.name).map_err(unreadable)? {
                SimulatedState::Running | SimulatedState::Arrived => Ok(()),
                SimulatedState::Stopped | SimulatedState::Starting | SimulatedState::Receiving => {
                    self.set(&service.name, SimulatedState::Receiving).map_err(unreadable)
                }
            }
        })
    }

    fn migrate<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        target: &'a NodeName,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(self.simulate_migration(service, target))
    }

    fn confirm_no_incoming_copy<'a>(
        &'a self,
        service: &'a ServiceDefinition,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move {
            if !spec(service)?.gated {
                let message = "incoming migration cannot be rejected".to_owned();
                return Err(DriverFailure {
                    class: FailureClass::NeverHere,
                    ..failed(Reason::MoveFailed, message)
                });
            }
            match self.state(&service.name).map_err(unreadable)? {
                SimulatedState::Stopped | SimulatedState::Starting => Ok(()),
                SimulatedState::Receiving | SimulatedState::Arrived => {
                    self.set(&service.name, SimulatedState::Stopped).map_err(unreadable)
                }
                SimulatedState::Running => {
                    Err(failed(Reason::MoveFailed, "service runs on this node".to_owned()))
                }
            }
        })
    }

    fn replace_secondary<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        _: Option<&'a NodeName>,
        _: &'a NodeName,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(self.simulate_replacement(service))
    }

    /// Returns `None`: a simulated service uses no resources, so its requests count.
    fn measure<'a>(&'a self, _: &'a ServiceDefinition, _: MonotonicTime) -> BoxFuture<'a, Option<Sample>> {
        Box::pin(async { None })
    }
}

fn spec(service: &ServiceDefinition) -> Result<&SimulatedSpec, DriverFailure> {
    service.driver.simulated.as_ref().ok_or_else(|| DriverFailure {
        class: FailureClass::ConfigurationWrong,
        reason: Reason::BadConfiguration,
        message: "spec.driver.simulated is missing".to_owned(),
    })
}

async fn seconds(length: u32) {
    tokio::time::sleep(Duration::from_secs(u64::from(length))).await;
}

fn failed(reason: Reason, message: String) -> DriverFailure {
    DriverFailure { class: FailureClass::RetryHere, reason, message }
}

#[expect(clippy::needless_pass_by_value, reason = "given to map_err")]
fn unreadable(error: io::Error) -> DriverFailure {
    failed(Reason::StartFailed, format!("state file of the service: {error}"))
}

fn read<T: DeserializeOwned + Default>(path: &PathBuf) -> io::Result<T> {
    match fs::read(path) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        Err(error) => Err(error),
    }
}

/// Replaces a file atomically.
fn write(path: &PathBuf, content: &impl Serialize) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, serde_json::to_vec(content)?)?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ha_api_types::driver::DriverSpec;
    use ha_api_types::resource::{Resource, ServiceDefinition};

    fn service(change: impl FnOnce(&mut SimulatedSpec)) -> ServiceDefinition {
        let mut spec =
            SimulatedSpec { start_seconds: 0, stop_seconds: 0, migrate_seconds: 0, ..Default::default() };
        change(&mut spec);
        let mut resource = Resource::default();
        resource.metadata.name = "pretended".to_owned();
        resource.spec.driver = DriverSpec { simulated: Some(spec), ..DriverSpec::default() };
        ServiceDefinition::of(&resource)
    }

    fn node(shared: &tempfile::TempDir, name: &str, boot_id: &str) -> SimulatedDriver {
        SimulatedDriver::new(name.into(), boot_id.into(), shared.path().to_owned()).unwrap()
    }

    #[tokio::test]
    async fn simulated_service_runs_until_stop_or_boot() {
        let shared = tempfile::tempdir().unwrap();
        let service = service(|_| {});
        node(&shared, "node1", "a").start(&service).await.unwrap();
        assert_eq!(
            node(&shared, "node1", "a").probe(&service).await,
            Observed::Running,
            "survives the agent"
        );
        assert_eq!(node(&shared, "node1", "b").probe(&service).await, Observed::NotRunning, "not a boot");
        assert_eq!(node(&shared, "node2", "a").probe(&service).await, Observed::NotRunning);
        let driver = node(&shared, "node1", "a");
        driver.stop(&service, 1000).await.unwrap();
        assert_eq!(driver.probe(&service).await, Observed::NotRunning);
    }

    #[tokio::test]
    async fn simulated_starts_fail_as_configured() {
        let shared = tempfile::tempdir().unwrap();
        let (first_node, second_node) = (node(&shared, "node1", "a"), node(&shared, "node2", "a"));
        let failing = service(|spec| spec.start_failures = 2);
        assert_eq!(first_node.start(&failing).await.unwrap_err().class, FailureClass::RetryHere);
        assert_eq!(second_node.start(&failing).await.unwrap_err().reason, Reason::StartFailed);
        second_node.start(&failing).await.unwrap();
        second_node.kill(&failing).await.unwrap();
        assert!(second_node.start(&failing).await.is_err(), "a success counts afresh");
        let elsewhere = service(|spec| {
            spec.start_failures = 9;
            spec.fail_on = vec!["node2".into()];
            spec.missing = vec!["node3".into()];
        });
        first_node.start(&elsewhere).await.unwrap();
        let missing = node(&shared, "node3", "a").start(&elsewhere).await.unwrap_err();
        assert_eq!((missing.class, missing.reason), (FailureClass::NeverHere, Reason::NotInstalled));
        let misconfigured = service(|spec| spec.bad_configuration = true);
        let failed = second_node.start(&misconfigured).await.unwrap_err();
        assert_eq!(
            (failed.class, failed.reason),
            (FailureClass::ConfigurationWrong, Reason::BadConfiguration)
        );
    }

    #[tokio::test]
    async fn failed_simulated_stop_leaves_service_running() {
        let shared = tempfile::tempdir().unwrap();
        let driver = node(&shared, "node1", "a");
        let service = service(|spec| spec.stop_fails = true);
        driver.start(&service).await.unwrap();
        assert_eq!(driver.stop(&service, 1000).await.unwrap_err().reason, Reason::StopFailed);
        assert!(driver.kill(&service).await.is_err());
        assert_eq!(driver.probe(&service).await, Observed::Running);
    }

    #[tokio::test]
    async fn simulated_replacement_succeeds_or_fails_as_configured() {
        let shared = tempfile::tempdir().unwrap();
        let driver = node(&shared, "node1", "a");
        let service = service(|spec| {
            spec.replace_seconds = 0;
            spec.replace_failures = 1;
        });
        driver.start(&service).await.unwrap();
        let failed =
            driver.replace_secondary(&service, Some(&"node2".into()), &"node3".into()).await.unwrap_err();
        assert_eq!(failed.reason, Reason::ReplaceFailed);
        driver.end_replacement(&service).await.unwrap();
        driver.replace_secondary(&service, Some(&"node2".into()), &"node3".into()).await.unwrap();
        assert_eq!(driver.probe(&service).await, Observed::Running);
    }

    #[tokio::test]
    async fn simulated_migration_needs_a_receiving_target() {
        let shared = tempfile::tempdir().unwrap();
        let (source, target) = (node(&shared, "node1", "a"), node(&shared, "node2", "b"));
        let service = service(|spec| spec.migrate_failures = 1);
        source.start(&service).await.unwrap();
        assert!(source.migrate(&service, &"node2".into()).await.is_err(), "nobody waits");
        target.receive(&service).await.unwrap();
        assert_eq!(target.probe(&service).await, Observed::NotRunning);
        assert!(source.migrate(&service, &"node2".into()).await.is_err(), "the first fails");
        assert_eq!(source.probe(&service).await, Observed::Running);
        source.migrate(&service, &"node2".into()).await.unwrap();
        assert_eq!(source.probe(&service).await, Observed::NotRunning);
        assert_eq!(target.probe(&service).await, Observed::Running);
        target.start(&service).await.unwrap();
        assert_eq!(target.probe(&service).await, Observed::Running);
    }

    #[tokio::test]
    async fn closed_reception_blocks_migration_if_gated() {
        let shared = tempfile::tempdir().unwrap();
        for gated in [true, false] {
            let (source, target) = (node(&shared, "node1", "a"), node(&shared, "node2", "b"));
            let service = service(|spec| spec.gated = gated);
            source.start(&service).await.unwrap();
            target.receive(&service).await.unwrap();
            assert_eq!(target.confirm_no_incoming_copy(&service).await.is_ok(), gated);
            assert_eq!(source.migrate(&service, &"node2".into()).await.is_err(), gated);
            source.kill(&service).await.unwrap();
            target.kill(&service).await.unwrap();
        }
    }
}
