//! Driver `exec`: programs; either a supervised foreground process, or start, stop and monitor commands.
//!
//! Between the agent and a supervised process stands a supervisor (`ha-exec-shim`), so that the agent may end and the
//! service goes on: the next agent finds it by the record in the service's folder. The supervisor adopts whatever the
//! service's processes leave behind, and ends only when nothing is left.

mod order;
mod replace;
mod script;
mod supervised;
mod supervisor;
mod watch;

use super::program::{LAUNCH, ProgramSettings, Programs, launch, measure};
use super::{Driver, DriverEvent, DriverFailure, Sample};
use futures::future::BoxFuture;
use ha_api_types::driver::ExecDriver as ExecSpec;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::{Millis, Mono};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use watch::Watches;

/// Where and how the driver works.
#[derive(Clone, Debug)]
pub struct ExecSettings {
    /// Where and how its programs run.
    pub programs: ProgramSettings,
    /// How often a running service's monitor command is asked.
    pub monitor_interval: Duration,
    /// Whether the services' output also goes to the journal of systemd.
    pub journal: bool,
}

impl ExecSettings {
    /// The usual settings.
    pub fn new(programs: ProgramSettings) -> ExecSettings {
        ExecSettings {
            programs,
            monitor_interval: Duration::from_secs(10),
            journal: ha_runtime::journal::has_standard_error(),
        }
    }
}

/// The driver. Dropping it stops watching; services go on.
#[derive(Debug)]
pub struct ExecDriver {
    context: Arc<Context>,
}

/// What every part of the driver needs.
#[derive(Debug)]
struct Context {
    programs: Programs,
    monitor_interval: Duration,
    journal: bool,
    events: UnboundedSender<DriverEvent>,
    watches: Watches,
}

impl ExecDriver {
    /// Makes the driver; what it notices by itself goes to `events`.
    ///
    /// # Errors
    /// When its folder in the state directory cannot be made.
    pub fn new(settings: ExecSettings, events: UnboundedSender<DriverEvent>) -> io::Result<ExecDriver> {
        Ok(ExecDriver {
            context: Arc::new(Context {
                programs: Programs::new(settings.programs, "exec")?,
                monitor_interval: settings.monitor_interval,
                journal: settings.journal,
                events,
                watches: Watches::default(),
            }),
        })
    }

    /// The file with what the service printed.
    pub fn log(&self, resource: &str) -> PathBuf {
        self.context.programs.folder_of(resource).log()
    }

    /// How the service's main process ended last, as its supervisor noted it, also while no agent ran; `None`: it never
    /// did, or it runs.
    pub fn last_ending(&self, resource: &str) -> Option<String> {
        let folder = self.context.programs.folder_of(resource);
        let record = folder.record().ok()??;
        folder.ending(&record).ok()?.map(|ending| ending.message)
    }
}

/// What a definition asks for.
enum Mode<'a> {
    Supervised(&'a ExecSpec),
    Scripts(&'a ExecSpec),
    /// Nothing that could be started; what runs of an earlier definition is found and stopped all the same.
    Neither,
}

fn mode(service: &ServiceDefinition) -> Mode<'_> {
    match &service.driver.exec {
        Some(exec) if !exec.command.is_empty() => Mode::Supervised(exec),
        Some(exec) if !exec.start.is_empty() => Mode::Scripts(exec),
        Some(_) | None => Mode::Neither,
    }
}

/// Nothing to start.
fn nothing_given() -> DriverFailure {
    DriverFailure {
        class: FailureClass::ConfigurationWrong,
        reason: Reason::BadConfiguration,
        message: "spec.driver.exec has neither command nor start".to_owned(),
    }
}

impl Driver for ExecDriver {
    fn name(&self) -> &'static str {
        "exec"
    }

    fn able(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { self.context.programs.able() })
    }

    fn probe<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Observed> {
        Box::pin(async move {
            match mode(service) {
                Mode::Supervised(_) | Mode::Neither => supervised::probe(&self.context, service).await,
                Mode::Scripts(exec) => script::probe(&self.context, service, exec).await,
            }
        })
    }

    fn start<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move {
            match mode(service) {
                Mode::Supervised(exec) => supervised::start(&self.context, service, exec).await,
                Mode::Scripts(exec) => script::start(&self.context, service, exec).await,
                Mode::Neither => Err(nothing_given()),
            }
        })
    }

    fn stop<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        graceful_ms: Millis,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move {
            replace::end(&self.context, service).await?;
            match mode(service) {
                Mode::Supervised(exec) => {
                    supervised::stop(&self.context, service, &exec.stop, graceful_ms).await
                }
                Mode::Scripts(exec) => script::stop(&self.context, service, exec, graceful_ms).await,
                Mode::Neither => supervised::stop(&self.context, service, &[], graceful_ms).await,
            }
        })
    }

    fn kill<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move {
            let killed = async {
                match mode(service) {
                    Mode::Supervised(_) | Mode::Neither => supervised::kill(&self.context, service).await,
                    Mode::Scripts(exec) => script::kill(&self.context, service, exec).await,
                }
            };
            let (killed, ended) = futures::join!(killed, replace::end(&self.context, service));
            killed.and(ended)
        })
    }

    fn receive<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>> {
        // The migrate command of the source brings the service; nothing is prepared here.
        Box::pin(async move {
            match mode(service) {
                Mode::Supervised(_) | Mode::Scripts(_) => Ok(()),
                Mode::Neither => Err(nothing_given()),
            }
        })
    }

    fn migrate<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        target: &'a str,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move {
            match mode(service) {
                Mode::Scripts(exec) if !exec.migrate.is_empty() => {
                    script::migrate(&self.context, service, exec, target).await
                }
                Mode::Supervised(_) | Mode::Scripts(_) | Mode::Neither => Err(DriverFailure {
                    class: FailureClass::RetryHere,
                    reason: Reason::MoveFailed,
                    message: "it has no migrate command beside start and stop, so it cannot move live"
                        .to_owned(),
                }),
            }
        })
    }

    fn end_migration<'a>(
        &'a self,
        service: &'a ServiceDefinition,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(self.context.programs.end_migration(service))
    }

    fn replace_secondary<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        present: &'a str,
        node: &'a str,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(replace::replace(&self.context, service, present, node))
    }

    fn end_replacement<'a>(
        &'a self,
        service: &'a ServiceDefinition,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(replace::end(&self.context, service))
    }

    fn measure<'a>(&'a self, service: &'a ServiceDefinition, at: Mono) -> BoxFuture<'a, Option<Sample>> {
        Box::pin(async move {
            let (context, service) = (Arc::clone(&self.context), service.clone());
            // Reading files may block.
            let read = move || measure::of_service(&context.programs, &service, at);
            tokio::task::spawn_blocking(read).await.ok().flatten()
        })
    }
}

/// The first argument that makes the shim a supervisor.
const SUPERVISE: &str = "supervise";

/// What `ha-exec-shim` does: it is this driver's half that outlives the agent.
///
/// # Errors
/// When it was not started by the driver, or the kernel refuses what it needs.
pub fn shim(role: Option<&str>) -> io::Result<()> {
    match role {
        Some(SUPERVISE) => supervisor::run(),
        Some(LAUNCH) => launch::run(),
        Some(_) | None => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "this program is started by ha-node-agent and does nothing by hand",
        )),
    }
}
