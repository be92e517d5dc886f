//! Driver `systemd`: units of the node's service manager, spoken to over D-Bus.
//!
//! systemd supervises; the driver asks it by jobs, hears of changes by its signals, and looks into the unit's control group for what is
//! really left. A unit is either one of the node's or a transient one that is made of a command line.

mod boot;
mod bus;
mod group;
mod manager;
mod order;
mod start;
mod state;
mod stop;
mod transient;
mod verdict;
mod watch;

use super::program::measure;
use super::watches::Watches;
use super::{Driver, DriverEvent, DriverFailure, Sample};
use bus::{Bus, BusError};
use futures::future::BoxFuture;
use group::{Groups, describe};
use ha_api_types::driver::SystemdDriver as SystemdSpec;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::{Millis, Mono};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, sleep};
use verdict::{Standing, standing};

/// How long a unit may be on its way down before a probe says that it cannot tell.
const TRANSITION: Duration = Duration::from_secs(3);
/// How often to look meanwhile.
const LOOK: Duration = Duration::from_millis(50);

/// Where and how the driver works.
#[derive(Clone, Debug)]
pub struct SystemdSettings {
    /// This node's name: `HA_NODE`.
    pub node: String,
    /// The socket of the system bus.
    pub system_bus: PathBuf,
}

impl SystemdSettings {
    /// The usual settings.
    pub fn new(node: String) -> SystemdSettings {
        SystemdSettings { node, system_bus: "/run/dbus/system_bus_socket".into() }
    }
}

/// The driver. Dropping it stops watching; units go on.
#[derive(Debug)]
pub struct SystemdDriver {
    context: Arc<Context>,
}

/// What every part of the driver needs.
#[derive(Debug)]
struct Context {
    settings: SystemdSettings,
    bus: Bus,
    groups: Groups,
    /// The control group that each unit had last: to kill what is in it while systemd does not answer.
    last_groups: Mutex<BTreeMap<String, String>>,
    events: UnboundedSender<DriverEvent>,
    watches: Watches<()>,
}

impl SystemdDriver {
    /// Makes the driver; what it notices by itself goes to `events`.
    ///
    /// # Errors
    /// When this machine's mounts cannot be read.
    pub fn new(settings: SystemdSettings, events: UnboundedSender<DriverEvent>) -> io::Result<SystemdDriver> {
        let bus = Bus::new(settings.system_bus.clone());
        let context = Context {
            settings,
            bus,
            groups: Groups::here()?,
            last_groups: Mutex::default(),
            events,
            watches: Watches::default(),
        };
        Ok(SystemdDriver { context: Arc::new(context) })
    }
}

impl Driver for SystemdDriver {
    fn name(&self) -> &'static str {
        "systemd"
    }

    fn able(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            process_one_is_systemd()?;
            self.context.bus.session().await.map(|_| ()).map_err(|error| {
                format!("{error}: the package dbus makes the system bus, and the agent must run as root")
            })
        })
    }

    fn probe<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Observed> {
        Box::pin(async move {
            match spec(service) {
                // Without a systemd of its own this machine has no units; nor has what names none.
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

    fn receive<'a>(&'a self, _service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async { Err(cannot_move()) })
    }

    fn migrate<'a>(
        &'a self,
        _service: &'a ServiceDefinition,
        _target: &'a str,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async { Err(cannot_move()) })
    }

    fn measure<'a>(&'a self, service: &'a ServiceDefinition, at: Mono) -> BoxFuture<'a, Option<Sample>> {
        Box::pin(async move {
            let unit = spec(service).ok()?.unit_name(&service.name);
            let group = self.context.bus.session().await.ok()?.group(&unit).await.ok()?;
            let context = Arc::clone(&self.context);
            // Reading files may block.
            let read = move || {
                let folder = context.groups.counters(&group)?;
                measure::of_group(&folder, || context.groups.members(&group).ok(), at)
            };
            tokio::task::spawn_blocking(read).await.ok().flatten()
        })
    }
}

impl Context {
    async fn probe(self: &Arc<Self>, service: &ServiceDefinition, spec: &SystemdSpec) -> Observed {
        let unit = spec.unit_name(&service.name);
        match self.look(service, spec, &unit).await {
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

    async fn look(
        &self,
        service: &ServiceDefinition,
        spec: &SystemdSpec,
        unit: &str,
    ) -> Result<Observed, BusError> {
        let session = self.bus.session().await?;
        let until = Instant::now() + TRANSITION;
        let (mut state, mut standing_now);
        loop {
            state = session.unit(unit).await?;
            standing_now = standing(&state);
            if standing_now != Standing::Ending || Instant::now() > until {
                break;
            }
            sleep(LOOK).await;
        }
        self.remember_group(unit, &state.group);
        if spec.command.is_empty() {
            self.mind_the_boot(&session, service, spec, unit, &state).await;
        }
        Ok(match standing_now {
            Standing::Running => Observed::Running,
            Standing::Ending | Standing::Unclear => Observed::Unknown(format!("{unit} is {}", state.words)),
            Standing::Ended => match self.groups.members(&self.group_of(unit)) {
                Ok(pids) if pids.is_empty() => Observed::NotRunning,
                Ok(pids) => Observed::Unknown(format!("{unit} has ended, left are {}", describe(&pids))),
                Err(error) => {
                    Observed::Unknown(format!("the control group of {unit} cannot be read: {error}"))
                }
            },
        })
    }

    /// A node that is only asked whether the unit runs may start it at its next boot, where nobody could hold it back in time.
    async fn mind_the_boot(
        &self,
        session: &bus::Session,
        service: &ServiceDefinition,
        spec: &SystemdSpec,
        unit: &str,
        state: &state::UnitState,
    ) {
        let starters = async {
            let found = boot::starters(session, unit, state).await?;
            if spec.disable_at_boot { boot::disable(session, unit, found).await } else { Ok(found) }
        };
        match starters.await {
            Ok(left) => {
                if let Some(failure) = boot::refusal(&left, spec.disable_at_boot) {
                    tracing::warn!(resource = service.name, "on this node {}", failure.message);
                }
            }
            Err(error) => {
                tracing::warn!(resource = service.name, unit, %error, "it is not known whether the boot starts it");
            }
        }
    }

    fn remember_group(&self, unit: &str, group: &str) {
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

/// Whether this machine's units are those of a systemd that can be asked. A systemd that only shares the kernel, as that of
/// the host of a container, is another machine's.
fn process_one_is_systemd() -> Result<(), String> {
    let name = std::fs::read_to_string("/proc/1/comm").unwrap_or_default();
    if name.trim_end() != "systemd" || !Path::new("/run/systemd/system").is_dir() {
        return Err(format!("process 1 of this machine is {:?}, not systemd", name.trim_end()));
    }
    Ok(())
}

fn broken(error: &BusError) -> DriverFailure {
    DriverFailure { class: FailureClass::RetryHere, reason: Reason::StartFailed, message: error.to_string() }
}

fn cannot_move() -> DriverFailure {
    DriverFailure {
        class: FailureClass::RetryHere,
        reason: Reason::MoveFailed,
        message: "a unit cannot move live".to_owned(),
    }
}
