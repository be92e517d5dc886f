//! Driver `external`: executables of third parties that speak a small JSON protocol (docs/external.md).
//!
//! One is run once for everything that it is asked. What it leaves running is found again by its control group and by a mark in
//! its environment, as with driver `exec`.

mod drivers;
mod protocol;
mod service;
mod watch;

use super::program::{ProgramSettings, Programs};
use super::watches::Watches;
use super::{Driver, DriverEvent, DriverFailure, Sample};
use drivers::Folders;
use futures::future::BoxFuture;
use ha_api_types::driver::{DriverKind, ExternalDriver as ExternalSpec};
use ha_api_types::record::Observed;
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::{Millis, Mono};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// Where and how the driver works.
#[derive(Clone, Debug)]
pub struct ExternalSettings {
    /// Where and how the drivers run.
    pub programs: ProgramSettings,
    /// Where they lie; the first folder that has one of a name wins.
    pub folders: Vec<PathBuf>,
    /// How often a running service is asked for, beside what its driver tells by itself.
    pub monitor_interval: Duration,
}

/// Where drivers lie by default.
pub const DEFAULT_FOLDERS: &str = "/usr/local/lib/hactl/drivers:/usr/lib/hactl/drivers";

/// The driver. Dropping it stops watching; services go on.
#[derive(Debug)]
pub struct ExternalDriver {
    context: Arc<Context>,
}

/// What every part of the driver needs.
#[derive(Debug)]
struct Context {
    programs: Programs,
    folders: Folders,
    monitor_interval: Duration,
    events: UnboundedSender<DriverEvent>,
    watches: Watches<(String, ExternalSpec)>,
}

impl ExternalDriver {
    /// Makes the driver; what it notices by itself goes to `events`.
    ///
    /// # Errors
    /// When its folder in the state directory cannot be made.
    pub fn new(
        settings: ExternalSettings,
        events: UnboundedSender<DriverEvent>,
    ) -> io::Result<ExternalDriver> {
        let context = Context {
            programs: Programs::new(settings.programs, "external")?,
            folders: Folders::new(settings.folders),
            monitor_interval: settings.monitor_interval,
            events,
            watches: Watches::default(),
        };
        Ok(ExternalDriver { context: Arc::new(context) })
    }

    /// The file with what the service's driver printed on its standard error.
    pub fn log(&self, resource: &str) -> PathBuf {
        self.context.programs.folder_of(resource).log()
    }
}

impl Driver for ExternalDriver {
    fn name(&self) -> &'static str {
        "external"
    }

    fn able(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { self.serves().await.map(|_| ()) })
    }

    fn serves(&self) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(async {
            self.context.programs.able()?;
            let names = self.context.folders.names();
            if names.is_empty() {
                return Err(format!("there are no drivers in {}", self.context.folders.listed()));
            }
            let mut able = Vec::new();
            let mut unable = Vec::new();
            for name in names {
                match self.context.description(&name).await {
                    Ok(_) => able.push(format!("{}:{name}", DriverKind::External)),
                    Err(why) => unable.push(format!("{name}: {why}")),
                }
            }
            if able.is_empty() {
                return Err(unable.join("; "));
            }
            for why in unable {
                tracing::info!(why, "this node cannot serve the driver");
            }
            Ok(able)
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
        source: &'a str,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move { self.context.arrive(service, source).await })
    }

    fn migrate<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        target: &'a str,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move { self.context.migrate(service, target).await })
    }

    fn end_migration<'a>(
        &'a self,
        service: &'a ServiceDefinition,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(self.context.programs.end_migration(service))
    }

    fn measure<'a>(&'a self, service: &'a ServiceDefinition, at: Mono) -> BoxFuture<'a, Option<Sample>> {
        Box::pin(async move { self.context.measure(service, at).await })
    }
}
