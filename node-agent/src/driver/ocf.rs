//! Driver `ocf`: resource agents of the Open Cluster Framework, such as those of ClusterLabs' `resource-agents`.
//!
//! A resource agent is a program that is run once for each action and answers by its exit status. The processes that
//! its start leaves running are found by their control group and by a mark in their environment, as with driver
//! `exec`.

mod agents;
mod outcome;
mod request;
mod service;
mod watch;

use super::program::{ProgramSettings, Programs, measure};
use super::watches::Watches;
use super::{Driver, DriverEvent, DriverFailure, LogQuery, LogTail, Sample, log};
use agents::Agents;
use futures::future::BoxFuture;
use ha_api_types::driver::OcfDriver as OcfSpec;
use ha_api_types::id::NodeName;
use ha_api_types::record::{LogFailure, Observed};
use ha_api_types::resource::{ServiceDefinition, TimeoutsSpec};
use ha_api_types::time::{Millis, MonotonicTime};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;

/// Settings of driver `ocf`.
#[derive(Clone, Debug)]
pub struct OcfSettings {
    /// Settings of the programs that the driver runs.
    pub programs: ProgramSettings,
    /// Root directory of the resource agents (`OCF_ROOT`).
    pub root: PathBuf,
    /// Directory for the resource agents' state that does not outlive a boot (`HA_VARRUN`). Nodes on the same machine
    /// must not share it.
    pub run: PathBuf,
}

/// Driver `ocf`. Dropping this value ends the monitoring; services keep running.
#[derive(Debug)]
pub struct OcfDriver {
    context: Arc<Context>,
}

/// State that all parts of the driver share.
#[derive(Debug)]
struct Context {
    programs: Programs,
    agents: Agents,
    events: UnboundedSender<DriverEvent>,
    watches: Watches<(String, OcfSpec)>,
}

impl OcfDriver {
    /// Creates the driver, which sends changes that it detects to `events`.
    ///
    /// # Errors
    /// Fails if the driver's directory in the state directory cannot be created.
    pub fn new(settings: OcfSettings, events: UnboundedSender<DriverEvent>) -> io::Result<OcfDriver> {
        let context = Context {
            programs: Programs::new(settings.programs, "ocf")?,
            agents: Agents::new(settings.root, settings.run),
            events,
            watches: Watches::default(),
        };
        Ok(OcfDriver { context: Arc::new(context) })
    }

    /// Returns the path of the file with the output of the service's resource agent.
    pub fn log(&self, resource: &str) -> PathBuf {
        self.context.programs.directory_of(resource).log()
    }
}

impl Driver for OcfDriver {
    fn name(&self) -> &'static str {
        "ocf"
    }

    fn check_usable(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            self.context.programs.check_usable()?;
            self.context.agents.check_usable()
        })
    }

    fn timeouts<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, TimeoutsSpec> {
        Box::pin(async { self.context.timeouts(service).await })
    }

    fn probe<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Observed> {
        Box::pin(async { self.context.probe(service).await })
    }

    fn start<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async { self.context.start(service).await })
    }

    fn stop<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        graceful_ms: Millis,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move { self.context.stop(service, graceful_ms).await })
    }

    fn kill<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async { self.context.kill(service).await })
    }

    fn receive<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async { self.context.receive(service).await })
    }

    fn arrive<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        source: &'a NodeName,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move { self.context.arrive(service, source).await })
    }

    fn migrate<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        target: &'a NodeName,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move { self.context.migrate(service, target).await })
    }

    fn end_migration<'a>(
        &'a self,
        service: &'a ServiceDefinition,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(self.context.programs.end_migration(service))
    }

    fn measure<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        at: MonotonicTime,
    ) -> BoxFuture<'a, Option<Sample>> {
        Box::pin(async move {
            let (context, service) = (Arc::clone(&self.context), service.clone());
            // Reading files may block.
            let read = move || measure::of_service(&context.programs, &service, at);
            tokio::task::spawn_blocking(read).await.ok().flatten()
        })
    }

    fn read_log<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        query: LogQuery,
    ) -> BoxFuture<'a, Result<LogTail, LogFailure>> {
        Box::pin(log::of_programs(&self.context.programs, &service.name, query))
    }
}
