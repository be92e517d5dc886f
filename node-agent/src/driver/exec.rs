//! Driver `exec`: services that are programs, either one supervised foreground process, or start, stop and monitor
//! commands.
//!
//! A supervisor (`ha-exec-shim`) runs between the agent and a supervised process, so that the service keeps running
//! when the agent ends. The next agent finds the service by the record in the service's directory. The supervisor
//! adopts orphaned processes of the service, and ends only when no such process remains.

mod replace;
mod request;
mod script;
mod supervised;
mod supervisor;
mod watch;

use super::program::{LAUNCH, ProgramSettings, Programs, launch, measure};
use super::{Driver, DriverEvent, DriverFailure, LogQuery, LogTail, Sample, log};
use futures::future::BoxFuture;
use ha_api_types::driver::ExecDriver as ExecSpec;
use ha_api_types::id::NodeName;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, LogFailure, Observed};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::{Millis, MonotonicTime};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use watch::Watches;

/// Settings of driver `exec`.
#[derive(Clone, Debug)]
pub struct ExecSettings {
    /// Settings of the programs that the driver runs.
    pub programs: ProgramSettings,
    /// Interval between runs of a running service's monitor command.
    pub monitor_interval: Duration,
    /// `true` if the services' output is also sent to the systemd journal.
    pub journal: bool,
}

impl ExecSettings {
    /// Returns the default settings; the services' output goes to the journal if the agent's standard error does.
    pub fn new(programs: ProgramSettings) -> ExecSettings {
        ExecSettings {
            programs,
            monitor_interval: Duration::from_secs(10),
            journal: ha_runtime::journal::has_standard_error(),
        }
    }
}

/// Driver `exec`. Dropping this value ends the monitoring; services keep running.
#[derive(Debug)]
pub struct ExecDriver {
    context: Arc<Context>,
}

/// State that all parts of the driver share.
#[derive(Debug)]
struct Context {
    programs: Programs,
    monitor_interval: Duration,
    journal: bool,
    events: UnboundedSender<DriverEvent>,
    watches: Watches,
}

impl ExecDriver {
    /// Creates the driver, which sends changes that it detects to `events`.
    ///
    /// # Errors
    /// Fails if the driver's directory in the state directory cannot be created.
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

    /// Returns the path of the service's log file.
    pub fn log(&self, resource: &str) -> PathBuf {
        self.context.programs.directory_of(resource).log()
    }

    /// Returns how the service's main process last ended, as recorded by its supervisor, even if no agent ran at that
    /// time. `None` if the process is running or has never ended.
    pub fn last_exit(&self, resource: &str) -> Option<String> {
        let directory = self.context.programs.directory_of(resource);
        let record = directory.record().ok()??;
        directory.recorded_exit(&record).ok()?.map(|exit| exit.message)
    }
}

/// The two ways in which a definition can describe a service.
enum ExecMode<'a> {
    Supervised(&'a ExecSpec),
    Scripts(&'a ExecSpec),
    /// No command to start. Processes that an earlier definition has started are still found and stopped.
    NoCommand,
}

fn exec_mode(service: &ServiceDefinition) -> ExecMode<'_> {
    match &service.driver.exec {
        Some(exec) if !exec.command.is_empty() => ExecMode::Supervised(exec),
        Some(exec) if !exec.start.is_empty() => ExecMode::Scripts(exec),
        Some(_) | None => ExecMode::NoCommand,
    }
}

fn missing_command() -> DriverFailure {
    DriverFailure {
        class: FailureClass::ConfigurationWrong,
        reason: Reason::BadConfiguration,
        message: "spec.driver.exec requires command or start".to_owned(),
    }
}

impl Driver for ExecDriver {
    fn name(&self) -> &'static str {
        "exec"
    }

    fn check_usable(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { self.context.programs.check_usable() })
    }

    fn probe<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Observed> {
        Box::pin(async move {
            match exec_mode(service) {
                ExecMode::Supervised(_) | ExecMode::NoCommand => {
                    supervised::probe(&self.context, service).await
                }
                ExecMode::Scripts(exec) => script::probe(&self.context, service, exec).await,
            }
        })
    }

    fn start<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move {
            match exec_mode(service) {
                ExecMode::Supervised(exec) => supervised::start(&self.context, service, exec).await,
                ExecMode::Scripts(exec) => script::start(&self.context, service, exec).await,
                ExecMode::NoCommand => Err(missing_command()),
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
            match exec_mode(service) {
                ExecMode::Supervised(exec) => {
                    supervised::stop(&self.context, service, &exec.stop, graceful_ms).await
                }
                ExecMode::Scripts(exec) => script::stop(&self.context, service, exec, graceful_ms).await,
                ExecMode::NoCommand => supervised::stop(&self.context, service, &[], graceful_ms).await,
            }
        })
    }

    fn kill<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move {
            let killed = async {
                match exec_mode(service) {
                    ExecMode::Supervised(_) | ExecMode::NoCommand => {
                        supervised::kill(&self.context, service).await
                    }
                    ExecMode::Scripts(exec) => script::kill(&self.context, service, exec).await,
                }
            };
            let (killed, ended) = futures::join!(killed, replace::end(&self.context, service));
            killed.and(ended)
        })
    }

    fn receive<'a>(&'a self, service: &'a ServiceDefinition) -> BoxFuture<'a, Result<(), DriverFailure>> {
        // The source's migrate command transfers the service; this node needs no preparation.
        Box::pin(async move {
            match exec_mode(service) {
                ExecMode::Supervised(_) | ExecMode::Scripts(_) => Ok(()),
                ExecMode::NoCommand => Err(missing_command()),
            }
        })
    }

    fn migrate<'a>(
        &'a self,
        service: &'a ServiceDefinition,
        target: &'a NodeName,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(async move {
            match exec_mode(service) {
                ExecMode::Scripts(exec) if !exec.migrate.is_empty() => {
                    script::migrate(&self.context, service, exec, target).await
                }
                ExecMode::Supervised(_) | ExecMode::Scripts(_) | ExecMode::NoCommand => Err(DriverFailure {
                    class: FailureClass::RetryHere,
                    reason: Reason::MoveFailed,
                    message: "spec.driver.exec has no migrate command in addition to start and stop, so the service cannot be live-migrated"
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
        current_secondary: Option<&'a NodeName>,
        node: &'a NodeName,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(replace::replace(&self.context, service, current_secondary, node))
    }

    fn end_replacement<'a>(
        &'a self,
        service: &'a ServiceDefinition,
    ) -> BoxFuture<'a, Result<(), DriverFailure>> {
        Box::pin(replace::end(&self.context, service))
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

/// First argument of `ha-exec-shim` that makes it a supervisor.
const SUPERVISE_ARGUMENT: &str = "supervise";

/// Runs `ha-exec-shim`, the part of this driver that outlives the agent.
///
/// # Errors
/// Fails if the program was not started by the driver, or if a system call fails.
pub fn shim(role: Option<&str>) -> io::Result<()> {
    match role {
        Some(SUPERVISE_ARGUMENT) => supervisor::run(),
        Some(LAUNCH) => launch::run(),
        Some(_) | None => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "this program is started by ha-node-agent and cannot be used manually",
        )),
    }
}
