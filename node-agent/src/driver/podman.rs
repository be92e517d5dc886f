//! Driver `podman`: containers, managed through the API socket of podman's service.
//!
//! A container outlives the agent and podman's service, because conmon supervises it independently of both. The driver
//! stores no state: podman stores the containers, and labels identify those that the driver created.

mod client;
mod connection;
mod container;
mod definition;
mod exec_processes;
mod failure;
mod frames;
mod health;
mod known_state;
mod lifecycle;
mod stop_evidence;
mod watch;

use super::{Driver, DriverEvent, DriverFailure, LogQuery, LogTail, Sample};
use crate::core::Meter;
use client::Client;
use futures::future::BoxFuture;
use ha_api_types::id::NodeName;
use ha_api_types::record::{LogFailure, Observed};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::{Millis, MonotonicTime};
use ha_runtime::local_values::LocalValues;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;
use watch::Watches;

/// Default path of the socket of podman's own systemd unit.
pub const DEFAULT_SOCKET: &str = "/run/podman/podman.sock";

/// Possible paths of the podman program.
const PODMAN_PROGRAM_FILES: [&str; 3] = ["/usr/bin/podman", "/usr/local/bin/podman", "/bin/podman"];

/// Settings of driver `podman`.
#[derive(Clone, Debug)]
pub struct PodmanSettings {
    /// Name of this node, passed to containers as `HA_NODE`.
    pub node: NodeName,
    /// Locations of the values that containers get from this node.
    pub values: LocalValues,
    /// Path of the socket of podman's service.
    pub socket: PathBuf,
    /// Interval between polls of the running containers, in case an event is missed.
    pub poll_interval: Duration,
}

impl PodmanSettings {
    /// Returns the default settings.
    pub fn new(node: NodeName, values: LocalValues, socket: PathBuf) -> PodmanSettings {
        PodmanSettings { node, values, socket, poll_interval: Duration::from_secs(10) }
    }
}

/// Driver `podman`. Dropping this value ends the monitoring; containers keep running.
#[derive(Debug)]
pub struct PodmanDriver {
    context: Arc<Context>,
    watch: AbortHandle,
}

/// State that all parts of the driver share.
#[derive(Debug)]
struct Context {
    settings: PodmanSettings,
    client: Client,
    events: UnboundedSender<DriverEvent>,
    watches: Watches,
}

impl PodmanDriver {
    /// Creates the driver, which sends changes that it detects to `events`. Must be called in a tokio runtime.
    pub fn new(settings: PodmanSettings, events: UnboundedSender<DriverEvent>) -> PodmanDriver {
        let client = Client::new(settings.socket.clone());
        let context = Arc::new(Context { settings, client, events, watches: Watches::default() });
        // A strong reference in the task would keep the driver alive.
        let watch = tokio::spawn(watch::run(Arc::downgrade(&context))).abort_handle();
        PodmanDriver { context, watch }
    }
}

impl Drop for PodmanDriver {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl Context {
    /// Returns `true` if podman is certainly not on this machine, so that no container of it runs.
    fn is_absent(&self) -> bool {
        !self.client.socket().exists() && !is_installed()
    }
}

fn is_installed() -> bool {
    PODMAN_PROGRAM_FILES.iter().any(|program| Path::new(program).exists())
}

/// Returns the reason for a missing socket as text for a message.
fn no_socket(socket: &Path, is_installed: bool) -> String {
    if is_installed {
        format!("podman API socket {} is missing: run systemctl enable --now podman.socket", socket.display())
    } else {
        "podman is not installed: install the package podman, then run systemctl enable --now podman.socket"
            .to_owned()
    }
}

impl Driver for PodmanDriver {
    fn name(&self) -> &'static str {
        "podman"
    }

    fn noun(&self) -> &'static str {
        "a container"
    }

    fn check_usable(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            let socket = self.context.client.socket();
            if !socket.exists() {
                return Err(no_socket(socket, is_installed()));
            }
            self.context.client.ping().await.map_err(|error| error.to_string())
        })
    }

    fn probe<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Observed> {
        Box::pin(lifecycle::probe(&self.context, service))
    }

    fn start<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(lifecycle::start(&self.context, service))
    }

    fn stop<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        graceful_ms: Millis,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(lifecycle::stop(&self.context, service, graceful_ms))
    }

    fn kill<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(lifecycle::kill(&self.context, service))
    }

    fn measure<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        at: MonotonicTime,
    ) -> BoxFuture<'a, Option<Sample>> {
        Box::pin(async move {
            let podman = service.driver.podman.as_ref()?;
            let name = definition::container_name(service, podman);
            self.context.client.usage(&name).await.ok()?.map(|usage| sample(&usage, at))
        })
    }

    fn read_log<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        query: LogQuery,
    ) -> BoxFuture<'a, Result<LogTail, LogFailure>> {
        Box::pin(async move {
            let podman = service.driver.podman.as_ref();
            let podman =
                podman.ok_or_else(|| LogFailure::Unreadable("spec.driver.podman is missing".to_owned()))?;
            let name = definition::container_name(service, podman);
            let read = self.context.client.log_tail(&name, query).await;
            let read = read.map_err(|error| LogFailure::Unreadable(format!("container {name}: {error}")))?;
            read.ok_or_else(|| LogFailure::NotKept(format!("container {name} does not exist")))
        })
    }
}

fn sample(usage: &client::Usage, at: MonotonicTime) -> Sample {
    Sample {
        at,
        cpu: Some(Meter::Total(usage.cpu_ns / 1000)),
        memory: Some(usage.memory),
        disk: Some(Meter::Total(usage.block_input + usage.block_output)),
        network: usage.network().map(Meter::Total),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_podman_socket_suggests_a_fix() {
        let socket = Path::new("/run/podman/podman.sock");
        let missing = no_socket(socket, true);
        assert!(
            missing.contains("/run/podman/podman.sock") && missing.contains("podman.socket"),
            "{missing}"
        );
        assert!(no_socket(socket, false).contains("install the package podman"));
    }

    #[test]
    fn podman_usage_is_converted_to_units() {
        let usage: client::Usage = serde_json::from_str(
            r#"{"CPUNano":5000,"MemUsage":7,"BlockInput":1,"BlockOutput":2,"NetInput":3,"NetOutput":4}"#,
        )
        .expect("usage");
        let expected = Sample {
            at: MonotonicTime(9),
            cpu: Some(Meter::Total(5)),
            memory: Some(7),
            disk: Some(Meter::Total(3)),
            network: Some(Meter::Total(7)),
        };
        assert_eq!(sample(&usage, MonotonicTime(9)), expected);
    }
}
