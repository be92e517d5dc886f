//! Driver `systemd`: units of the node's service manager, managed over D-Bus.
//!
//! systemd supervises the units. The driver requests jobs, receives signals about changes, and reads the unit's control
//! group to find the processes that are actually left. A unit is either a unit of the node, or a transient unit that is
//! created from a command.

mod boot;
mod bus;
pub(super) mod group;
mod manager;
mod shutdown_order;
mod start;
mod state;
mod stop;
mod transient;
mod verdict;
mod watch;

use super::program::measure;
use super::watches::Watches;
use super::{Driver, DriverEvent, DriverFailure, LogQuery, LogTail, Sample, log};
use bus::{Bus, BusError};
use futures::future::BoxFuture;
use group::{CgroupHierarchies, describe};
use ha_api_types::driver::SystemdDriver as SystemdSpec;
use ha_api_types::id::{NodeName, ResourceName};
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, LogFailure, Observed};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::{Millis, MonotonicTime};
use ha_runtime::problems::Problems;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, sleep};
use verdict::{RunState, run_state};

/// Time that a unit may spend stopping before a probe reports an unknown state.
const MAX_TRANSITION: Duration = Duration::from_secs(3);
/// Interval between queries during that time.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Settings of driver `systemd`.
#[derive(Clone, Debug)]
pub struct SystemdSettings {
    /// Name of this node, passed to units as `HA_NODE`.
    pub node: NodeName,
    /// Path of the socket of the system bus.
    pub system_bus: PathBuf,
}

impl SystemdSettings {
    /// Returns the default settings.
    pub fn new(node: NodeName) -> SystemdSettings {
        SystemdSettings { node, system_bus: "/run/dbus/system_bus_socket".into() }
    }
}

/// Driver `systemd`. Dropping this value ends the monitoring; units keep running.
#[derive(Debug)]
pub struct SystemdDriver {
    context: Arc<Context>,
}

/// State that all parts of the driver share.
#[derive(Debug)]
struct Context {
    settings: SystemdSettings,
    bus: Bus,
    groups: CgroupHierarchies,
    /// Last control group of each unit, to kill its processes while systemd does not answer.
    last_groups: Mutex<BTreeMap<String, String>>,
    events: UnboundedSender<DriverEvent>,
    watches: Watches<()>,
    /// Reasons why a unit must not be run as a service because the boot starts it, by resource.
    boot_starts: Problems<ResourceName>,
}

impl SystemdDriver {
    /// Creates the driver, which sends changes that it detects to `events`.
    ///
    /// # Errors
    /// Fails if the mounts of this machine cannot be read.
    pub fn new(settings: SystemdSettings, events: UnboundedSender<DriverEvent>) -> io::Result<SystemdDriver> {
        let bus = Bus::new(settings.system_bus.clone());
        let context = Context {
            settings,
            bus,
            groups: CgroupHierarchies::of_mounts()?,
            last_groups: Mutex::default(),
            events,
            watches: Watches::default(),
            boot_starts: Problems::default(),
        };
        Ok(SystemdDriver { context: Arc::new(context) })
    }
}

impl Driver for SystemdDriver {
    fn name(&self) -> &'static str {
        "systemd"
    }

    fn noun(&self) -> &'static str {
        "a systemd unit"
    }

    fn check_usable(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            process_one_is_systemd()?;
            self.context.bus.session().await.map(|_| ()).map_err(|error| {
                format!("{error}: install the package dbus for the system bus, and run the agent as root")
            })
        })
    }

    fn probe<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Observed> {
        Box::pin(async move {
            match spec(service) {
                // Without its own systemd, this machine has no units.
                Ok(spec) if process_one_is_systemd().is_ok() => self.context.probe(service, spec).await,
                Ok(_) | Err(_) => Observed::NotRunning,
            }
        })
    }

    fn start<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move { start::start(&self.context, service, spec(service)?).await })
    }

    fn stop<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        graceful_ms: Millis,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move {
            if process_one_is_systemd().is_err() {
                return Ok(());
            }
            stop::stop(&self.context, service, spec(service)?, graceful_ms).await
        })
    }

    fn kill<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move {
            if process_one_is_systemd().is_err() {
                return Ok(());
            }
            stop::kill(&self.context, service, spec(service)?).await
        })
    }

    fn measure<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        at: MonotonicTime,
    ) -> BoxFuture<'a, Option<Sample>> {
        Box::pin(async move {
            let unit = spec(service).ok()?.unit_name(&service.name);
            let group = self.context.bus.session().await.ok()?.control_group(&unit).await.ok()?;
            let context = Arc::clone(&self.context);
            // Reading files may block.
            let read = move || {
                let directory = context.groups.usage_directory(&group)?;
                measure::of_group(&directory, || context.groups.members(&group).ok(), at)
            };
            tokio::task::spawn_blocking(read).await.ok().flatten()
        })
    }

    fn read_log<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        query: LogQuery,
    ) -> BoxFuture<'a, Result<LogTail, LogFailure>> {
        Box::pin(async move {
            process_one_is_systemd().map_err(LogFailure::Unreadable)?;
            let spec = spec(service).map_err(|failure| LogFailure::Unreadable(failure.message))?;
            let arguments = log::journal_arguments(&spec.unit_name(&service.name), query);
            log::of_program("journalctl", &arguments, query).await
        })
    }
}

impl Context {
    async fn probe(self: &Arc<Self>, service: &ServiceDefinition, spec: &SystemdSpec) -> Observed {
        let unit = spec.unit_name(&service.name);
        match self.query_state(service, spec, &unit).await {
            Ok(observed) => {
                match observed {
                    Observed::Running => watch::begin(self, service, &unit, true),
                    Observed::NotRunning => watch::begin(self, service, &unit, false),
                    Observed::Remnant(_) | Observed::Unknown(_) => {}
                }
                observed
            }
            Err(error) => Observed::Unknown(error.to_string()),
        }
    }

    async fn query_state(
        &self,
        service: &ServiceDefinition,
        spec: &SystemdSpec,
        unit: &str,
    ) -> Result<Observed, BusError> {
        let session = self.bus.session().await?;
        let deadline = Instant::now() + MAX_TRANSITION;
        let (mut state, mut current_run_state);
        loop {
            state = session.unit(unit).await?;
            current_run_state = run_state(&state);
            if current_run_state != RunState::Ending || Instant::now() > deadline {
                break;
            }
            sleep(POLL_INTERVAL).await;
        }
        self.cache_control_group(unit, &state.group);
        if spec.command.is_empty() {
            self.check_boot_start(&session, service, spec, unit, &state).await;
        }
        Ok(match current_run_state {
            RunState::Running => Observed::Running,
            RunState::Ending | RunState::Unclear => {
                Observed::Unknown(format!("{unit} is {}", state.description))
            }
            RunState::Ended => match self.groups.members(&self.group_of(unit)) {
                Ok(pids) if pids.is_empty() => Observed::NotRunning,
                Ok(pids) => Observed::Unknown(format!("{unit} has stopped, but {} remain", describe(&pids))),
                Err(error) => Observed::Unknown(format!("cannot read the control group of {unit}: {error}")),
            },
        })
    }

    /// Checks whether the boot starts the unit. If so, disables that start if configured, otherwise logs a warning.
    /// Even a node that is only probed could start the unit at its next boot, before the agent can prevent the start.
    async fn check_boot_start(
        &self,
        session: &bus::Session,
        service: &ServiceDefinition,
        spec: &SystemdSpec,
        unit: &str,
        state: &state::UnitState,
    ) {
        let automatic_starts = async {
            let starts_found = boot::automatic_starts(session, unit, state).await?;
            if spec.disable_at_boot {
                boot::disable(session, unit, starts_found).await
            } else {
                Ok(starts_found)
            }
        };
        let problem = match automatic_starts.await {
            Ok(enabled_units) => {
                boot::refusal(&enabled_units, spec.disable_at_boot).map(|failure| failure.message)
            }
            Err(error) => Some(format!("cannot determine whether {unit} is started at boot: {error}")),
        };
        if self.boot_starts.record(&service.name, problem.clone())
            && let Some(cause) = problem
        {
            tracing::warn!(resource = service.name.as_str(), why = cause, "cannot run the unit as a service");
        }
    }

    fn cache_control_group(&self, unit: &str, group: &str) {
        if !group.is_empty() {
            let mut last = self.last_groups.lock().unwrap_or_else(PoisonError::into_inner);
            last.insert(unit.to_owned(), group.to_owned());
        }
    }

    fn group_of(&self, unit: &str) -> String {
        let last = self.last_groups.lock().unwrap_or_else(PoisonError::into_inner);
        last.get(unit).cloned().unwrap_or_default()
    }
}

fn spec(service: &ServiceDefinition) -> Result<&SystemdSpec, DriverFailure> {
    service.driver.systemd.as_ref().ok_or_else(|| DriverFailure {
        class: FailureClass::ConfigurationWrong,
        reason: Reason::BadConfiguration,
        message: "spec.driver.systemd is missing".to_owned(),
    })
}

/// Checks that this machine has its own systemd. A systemd that only shares the kernel, such as that of a container's
/// host, belongs to another machine.
fn process_one_is_systemd() -> Result<(), String> {
    let name = std::fs::read_to_string("/proc/1/comm").unwrap_or_default();
    if name.trim_end() != "systemd" || !Path::new("/run/systemd/system").is_dir() {
        return Err(format!("process 1 of this machine is {:?}, not systemd", name.trim_end()));
    }
    Ok(())
}

fn bus_failure(error: &BusError) -> DriverFailure {
    DriverFailure { class: FailureClass::RetryHere, reason: Reason::StartFailed, message: error.to_string() }
}
