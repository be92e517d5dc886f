//! Driver `lxc`: system containers, managed with the programs of LXC.
//!
//! A container outlives the agent: its monitor process (`[lxc monitor]`) has its own control group and supervises the
//! container independently of the agent. The driver reads the state from this process. Before it reports a container as
//! stopped, it checks the container's processes in the kernel's view.

mod command;
mod config;
mod container;
mod health;
mod lifecycle;
mod limits;
mod log;
mod processes;
mod tools;
mod watch;

use super::systemd::group::CgroupHierarchies;
use super::{Driver, DriverEvent, DriverFailure, LogQuery, LogTail, Sample};
use container::Container;
use futures::future::BoxFuture;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::record::{LogFailure, Observed};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::{Millis, MonotonicTime};
use ha_runtime::problems::Problems;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use watch::Watches;

/// Default directory of LXC's containers.
pub const DEFAULT_PATH: &str = "/var/lib/lxc";

/// Settings of driver `lxc`.
#[derive(Clone, Debug)]
pub struct LxcSettings {
    /// Name of this node, passed to the hooks of containers as `HA_NODE`.
    pub node: NodeName,
    /// Directory of the containers.
    pub path: PathBuf,
    /// Directory for the output of containers.
    pub directory: PathBuf,
    /// Interval between queries of watched containers.
    pub poll_interval: Duration,
}

impl LxcSettings {
    /// Returns the default settings.
    pub fn new(node: NodeName, path: PathBuf, state_directory: &Path) -> LxcSettings {
        let directory = state_directory.join("lxc");
        LxcSettings { node, path, directory, poll_interval: Duration::from_secs(10) }
    }
}

/// Driver `lxc`. Dropping this value ends the monitoring; containers keep running.
#[derive(Debug)]
pub struct LxcDriver {
    context: Arc<Context>,
}

/// State that all parts of the driver share.
#[derive(Debug)]
struct Context {
    settings: LxcSettings,
    groups: CgroupHierarchies,
    /// Last control group of each container, to find its processes after its monitor was killed.
    last_groups: Mutex<BTreeMap<String, String>>,
    events: UnboundedSender<DriverEvent>,
    watches: Watches,
    /// Reasons why a container must not be run as a service, by resource.
    unsuitable: Problems<ResourceName>,
}

impl LxcDriver {
    /// Creates the driver, which sends changes that it detects to `events`.
    ///
    /// # Errors
    /// Fails if the mounts of this machine cannot be read.
    pub fn new(settings: LxcSettings, events: UnboundedSender<DriverEvent>) -> io::Result<LxcDriver> {
        let context = Context {
            settings,
            groups: CgroupHierarchies::of_mounts()?,
            last_groups: Mutex::default(),
            events,
            watches: Watches::default(),
            unsuitable: Problems::default(),
        };
        Ok(LxcDriver { context: Arc::new(context) })
    }
}

impl Driver for LxcDriver {
    fn name(&self) -> &'static str {
        "lxc"
    }

    fn noun(&self) -> &'static str {
        "an LXC container"
    }

    fn check_usable(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            tools::check_usable().await?;
            let path = &self.context.settings.path;
            if path.is_dir() {
                return Ok(());
            }
            Err(format!(
                "directory {} of containers does not exist: create it, or set --lxc-path",
                path.display()
            ))
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
        Box::pin(lifecycle::stop(&self.context, service, 0))
    }

    fn measure<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        at: MonotonicTime,
    ) -> BoxFuture<'a, Option<Sample>> {
        Box::pin(async move {
            let container = Container::of(&self.context.settings, service)?;
            let init = tools::info(&container).await.ok()?.pid?;
            let context = Arc::clone(&self.context);
            // Reading files may block.
            let read = move || limits::usage(&context.groups, init, at);
            tokio::task::spawn_blocking(read).await.ok().flatten()
        })
    }

    fn read_log<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        query: LogQuery,
    ) -> BoxFuture<'a, Result<LogTail, LogFailure>> {
        Box::pin(log::read(&self.context, service, query))
    }
}
