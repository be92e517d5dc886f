//! Driver `external`: executables of other projects that use a small JSON protocol (docs/external.md).
//!
//! Each request runs the executable once. As with driver `exec`, the processes that it leaves running are found by
//! their control group and by a mark in their environment.

mod drivers;
mod protocol;
mod service;
mod watch;

use super::program::{ProgramSettings, Programs};
use super::watches::Watches;
use super::{Driver, DriverEvent, DriverFailure, LogQuery, LogTail, Sample, log};
use drivers::DriverDirectories;
use futures::future::BoxFuture;
use ha_api_types::driver::{DriverKind, ExternalDriver as ExternalSpec};
use ha_api_types::id::NodeName;
use ha_api_types::record::{LogFailure, Observed};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::{Millis, MonotonicTime};
use ha_runtime::problems::Problems;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// Settings of driver `external`.
#[derive(Clone, Debug)]
pub struct ExternalSettings {
    /// Settings of the programs that the driver runs.
    pub programs: ProgramSettings,
    /// Directories of external drivers; for each name, the first directory that contains it is used.
    pub directories: Vec<PathBuf>,
    /// Interval between probes of a running service, in addition to the events that its driver reports.
    pub monitor_interval: Duration,
}

/// Default directories of external drivers, separated by colons.
pub const DEFAULT_DIRECTORIES: &str = "/usr/local/lib/hactl/drivers:/usr/lib/hactl/drivers";

/// Driver `external`. Dropping this value ends the monitoring; services keep running.
#[derive(Debug)]
pub struct ExternalDriver {
    context: Arc<Context>,
}

/// State that all parts of the driver share.
#[derive(Debug)]
struct Context {
    programs: Programs,
    directories: DriverDirectories,
    monitor_interval: Duration,
    events: UnboundedSender<DriverEvent>,
    watches: Watches<(String, ExternalSpec)>,
    /// The drivers that this node cannot serve, with the reason.
    unusable: Problems<String>,
}

impl ExternalDriver {
    /// Creates the driver, which sends changes that it detects to `events`.
    ///
    /// # Errors
    /// Fails if the driver's directory in the state directory cannot be created.
    pub fn new(
        settings: ExternalSettings,
        events: UnboundedSender<DriverEvent>,
    ) -> io::Result<ExternalDriver> {
        let context = Context {
            programs: Programs::new(settings.programs, "external")?,
            directories: DriverDirectories::new(settings.directories),
            monitor_interval: settings.monitor_interval,
            events,
            watches: Watches::default(),
            unusable: Problems::default(),
        };
        Ok(ExternalDriver { context: Arc::new(context) })
    }

    /// Returns the path of the file with the standard error output of the service's driver.
    pub fn log(&self, resource: &str) -> PathBuf {
        self.context.programs.directory_of(resource).log()
    }
}

impl Driver for ExternalDriver {
    fn name(&self) -> &'static str {
        "external"
    }

    fn check_usable(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { self.published_capabilities().await.map(|_| ()) })
    }

    fn published_capabilities(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(async {
            self.context.programs.check_usable()?;
            let names = self.context.directories.names();
            if names.is_empty() {
                return Err(format!("no external drivers in {}", self.context.directories.joined_paths()));
            }
            let mut usable = Vec::new();
            let mut unusable = BTreeMap::new();
            for name in names {
                match self.context.description(&name).await {
                    Ok(_) => usable.push(format!("{}:{name}", DriverKind::External)),
                    Err(cause) => drop(unusable.insert(name, cause)),
                }
            }
            if usable.is_empty() {
                let descriptions = unusable.iter().map(|(name, cause)| format!("{name}: {cause}"));
                return Err(descriptions.collect::<Vec<_>>().join("; "));
            }
            for (name, cause) in self.context.unusable.update(unusable) {
                tracing::info!(driver = name, why = cause, "driver is not available on this node");
            }
            Ok(usable)
        })
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
        Box::pin(async move { self.context.measure(service, at).await })
    }

    fn read_log<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        query: LogQuery,
    ) -> BoxFuture<'a, Result<LogTail, LogFailure>> {
        Box::pin(log::of_programs(&self.context.programs, &service.name, query))
    }
}
