//! A container, and its state as derived from LXC's answer and the kernel's processes.

use super::processes::{self, LxcProcess};
use super::tools::{self, ToolError};
use super::{Context, LxcSettings, config};
use crate::driver::program::process::{ProcessIdentity, ProcessStatus};
use crate::driver::systemd::group::describe;
use ha_api_types::driver::LxcDriver as LxcSpec;
use ha_api_types::resource::ServiceDefinition;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

/// Container that a service's definition describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Container {
    pub(super) name: String,
    /// Directory of all containers.
    pub(super) path: PathBuf,
    /// Configuration file, if it is not the file in the container's directory.
    pub(super) config: Option<PathBuf>,
}

/// One run of a container. Every start begins a new run, including a restart from inside the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// First process of the container.
    pub(super) init: ProcessIdentity,
    pub(super) is_frozen: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ContainerState {
    /// The container runs or is frozen, so it holds its data.
    Runs(Run),
    /// No process of the container and no monitor runs.
    Ended,
    /// The container has no configuration on this node, and does not run.
    Undefined,
    /// The container is between two states, with a description.
    Changing(String),
    /// The container's monitor has ended, but these processes of the container still run.
    Orphaned(Vec<i32>),
}

impl Container {
    /// Returns the container of a service; `None` if the definition does not name one.
    pub(super) fn of(settings: &LxcSettings, service: &ServiceDefinition) -> Option<Container> {
        let spec: &LxcSpec = service.driver.lxc.as_ref()?;
        (!spec.container.is_empty()).then(|| Container {
            name: spec.container.clone(),
            path: settings.path.clone(),
            config: (!spec.config.is_empty()).then(|| PathBuf::from(&spec.config)),
        })
    }

    pub(super) fn directory(&self) -> PathBuf {
        self.path.join(&self.name)
    }

    pub(super) fn config_file(&self) -> PathBuf {
        self.config.clone().unwrap_or_else(|| self.directory().join("config"))
    }

    fn is_defined(&self) -> bool {
        self.config_file().exists()
    }
}

/// Queries a container.
pub(super) async fn query_state(
    context: &Arc<Context>,
    container: &Container,
) -> Result<ContainerState, ToolError> {
    match tools::info(container).await {
        Ok(info) if info.is_running() => {
            if let Some(run) = read_run(info.pid, info.state != "RUNNING") {
                record_init_process(context, container, run.init.pid);
                return Ok(ContainerState::Runs(run));
            }
            return Ok(ContainerState::Changing("ending".to_owned()));
        }
        Ok(info) if info.state != "STOPPED" => {
            return Ok(ContainerState::Changing(info.state.to_lowercase()));
        }
        // Without an answer from LXC, the kernel's view decides. LXC reports no state for a container with an invalid
        // configuration.
        Ok(_) | Err(ToolError::Missing(_) | ToolError::Failed(..)) => {}
        Err(error @ (ToolError::Broken(..) | ToolError::TimedOut { .. })) => return Err(error),
    }
    let search_failed = |error: io::Error| ToolError::Broken("the search for processes of LXC", error);
    let (context, container) = (Arc::clone(context), container.clone());
    // Reading all of /proc may take a long time.
    let search = tokio::task::spawn_blocking(move || state_from_processes(&context, &container));
    search.await.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(search_failed)
}

fn state_from_processes(context: &Context, container: &Container) -> io::Result<ContainerState> {
    if let Some(monitor) = monitors(container)?.first() {
        // A container that restarts itself, or whose hooks run, has no state for a moment.
        return Ok(ContainerState::Changing(format!(
            "ending or starting (monitor process {})",
            monitor.process.pid
        )));
    }
    let mut pids = Vec::new();
    for group in control_groups(context, container)? {
        pids.extend(context.groups.members(&group)?.into_iter().filter(|pid| *pid > 0));
    }
    if !pids.is_empty() {
        return Ok(ContainerState::Orphaned(pids));
    }
    Ok(if container.is_defined() { ContainerState::Ended } else { ContainerState::Undefined })
}

fn read_run(pid: Option<i32>, is_frozen: bool) -> Option<Run> {
    let status = ProcessStatus::read(pid?).ok()?.filter(|status| !status.ended)?;
    Some(Run { init: status.identity, is_frozen })
}

/// Returns the running monitors of a container.
pub(super) fn monitors(container: &Container) -> io::Result<Vec<LxcProcess>> {
    Ok(processes::all()?.into_iter().filter(|process| process.is_monitor_of(container)).collect())
}

/// Returns the control groups with processes of a container whose monitor does not run.
pub(super) fn control_groups(context: &Context, container: &Container) -> io::Result<Vec<String>> {
    let configured = config::Settings::read(&container.config_file()).ok();
    let configured = configured.and_then(|settings| settings.group());
    let last = context.last_groups.lock().unwrap_or_else(PoisonError::into_inner);
    let last = last.get(&container.name).cloned();
    processes::orphaned_groups(&context.groups, container, configured, last)
}

fn record_init_process(context: &Context, container: &Container, init: i32) {
    if let Some(group) = processes::group_of(init) {
        let mut last = context.last_groups.lock().unwrap_or_else(PoisonError::into_inner);
        last.insert(container.name.clone(), group);
    }
}

/// Returns processes without a monitor as text for a message.
pub(super) fn orphans_message(container: &str, pids: &[i32]) -> String {
    format!("monitor of container {container} has ended, but {} remain", describe(pids))
}
