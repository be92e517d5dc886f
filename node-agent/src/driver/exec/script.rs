//! Services that are managed by start, stop, monitor and migrate commands.

use super::{Context, watch};
use crate::core::DriverFailure;
use crate::driver::program::cgroup::ServiceCgroup;
use crate::driver::program::run::{End, Output, Run, describe};
use crate::driver::program::{failed, io_failure};
use ha_api_types::driver::ExecDriver as ExecSpec;
use ha_api_types::id::NodeName;
use ha_api_types::reason::Reason;
use ha_api_types::record::Observed;
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::Millis;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Exit status of a monitor command for a service that does not run. Status 0 means that the service runs; any other
/// status is unknown.
const NOT_RUNNING_EXIT_STATUS: i32 = 7;

/// Time after a stop during which a monitor command may still report the service as running. A killed process keeps its
/// pid until process 1 reaps it.
const REAP_GRACE: Duration = Duration::from_secs(3);
/// Interval between runs of the monitor command during that time.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Reports the result of the monitor command.
///
/// A start command of an earlier agent may still be in progress. The result is therefore `NotRunning` only if no
/// process remains that a command started.
pub(super) async fn probe(context: &Arc<Context>, service: &ServiceDefinition, exec: &ExecSpec) -> Observed {
    let observed = monitor(context, service, exec).await;
    match &observed {
        Observed::Running => watch::ensure_watched(context, service, None),
        Observed::Remnant(_) | Observed::Unknown(_) => {}
        Observed::NotRunning => match context.programs.leftover_processes(service).await {
            Ok(leftovers) if leftovers.has_no_service_processes() => {}
            Ok(leftovers) => {
                let process_list = leftovers.describe();
                return Observed::Unknown(format!(
                    "monitor command reports not running, but processes remain: {process_list}"
                ));
            }
            Err(failure) => return Observed::Unknown(failure.message),
        },
    }
    observed
}

/// Runs the start command, unless the monitor command reports that the service runs.
pub(super) async fn start(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    exec: &ExecSpec,
) -> Result<(), DriverFailure> {
    if monitor(context, service, exec).await != Observed::Running {
        let cgroup = context
            .programs
            .make_cgroup(&service.name)
            .map_err(|error| io_failure("cannot create the control group of the service", &error))?;
        let run = Command {
            program: &exec.start,
            limit_ms: service.timeouts.start_ms(),
            target: None,
            cgroup,
            requires_values: true,
        };
        run.expect_success(context, service, exec, "start").await?;
        match monitor(context, service, exec).await {
            Observed::Running => {}
            Observed::NotRunning => {
                return Err(failed(
                    Reason::StartFailed,
                    "monitor command reports that the service does not run after the start command",
                ));
            }
            Observed::Remnant(message) | Observed::Unknown(message) => {
                return Err(failed(Reason::StartFailed, &message));
            }
        }
    }
    watch::ensure_watched(context, service, None);
    Ok(())
}

/// Runs the stop command, then kills the remaining processes of the service.
pub(super) async fn stop(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    exec: &ExecSpec,
    graceful_ms: Millis,
) -> Result<(), DriverFailure> {
    context.watches.end(&service.name);
    if graceful_ms == 0 {
        return kill(context, service, exec).await;
    }
    let run = Command {
        program: &exec.stop,
        limit_ms: graceful_ms,
        target: None,
        cgroup: None,
        requires_values: false,
    };
    let stopped = run.expect_success(context, service, exec, "stop").await;
    if let Err(failure) = &stopped {
        tracing::warn!(
            resource = service.name.as_str(),
            why = failure.message,
            "stop command failed, killing the service"
        );
    }
    confirm_stopped(context, service, exec, stopped.err()).await
}

/// Kills the service's processes, then runs the stop command, which removes other parts of the service.
pub(super) async fn kill(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    exec: &ExecSpec,
) -> Result<(), DriverFailure> {
    context.watches.end(&service.name);
    context.programs.kill_leftovers(service).await?;
    let run = Command {
        program: &exec.stop,
        limit_ms: service.timeouts.stop_ms(),
        target: None,
        cgroup: None,
        requires_values: false,
    };
    let stopped = run.expect_success(context, service, exec, "stop").await;
    confirm_stopped(context, service, exec, stopped.err()).await
}

/// Live-migrates the service. Exit status 0 means that the service runs on the target and not here.
pub(super) async fn migrate(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    exec: &ExecSpec,
    target: &NodeName,
) -> Result<(), DriverFailure> {
    context.watches.end(&service.name);
    let limit_ms = service.timeouts.migrate_ms();
    let run = Command {
        program: &exec.migrate,
        limit_ms,
        target: Some(target),
        cgroup: None,
        requires_values: true,
    };
    run.expect_success(context, service, exec, "migrate").await?;
    context.programs.kill_leftovers(service).await
}

/// Returns `true` if the monitor command reports with certainty that the service does not run.
pub(super) async fn is_confirmed_stopped(
    context: &Context,
    service: &ServiceDefinition,
    exec: &ExecSpec,
) -> bool {
    monitor(context, service, exec).await == Observed::NotRunning
}

/// Runs the monitor command.
pub(super) async fn monitor(context: &Context, service: &ServiceDefinition, exec: &ExecSpec) -> Observed {
    if exec.monitor.is_empty() {
        return Observed::Unknown("spec.driver.exec has no monitor command".to_owned());
    }
    let run = Command {
        program: &exec.monitor,
        limit_ms: service.timeouts.monitor_ms(),
        target: None,
        cgroup: None,
        requires_values: false,
    };
    match run.run(context, service, exec).await {
        Ok(End::Ended(ended)) => match ended.status.code() {
            Some(0) => Observed::Running,
            Some(NOT_RUNNING_EXIT_STATUS) => Observed::NotRunning,
            Some(_) | None => Observed::Unknown(format!(
                "monitor command failed: {}{}",
                describe(ended.status),
                ended.last_line_suffix()
            )),
        },
        Ok(End::TimedOut) => Observed::Unknown("monitor command timed out".to_owned()),
        Ok(End::NotLaunched(failure)) => Observed::Unknown(failure.message),
        Err(error) => Observed::Unknown(format!("cannot run the monitor command: {error}")),
    }
}

/// Confirms a stop: no process that the commands started may remain, and the monitor command must agree.
async fn confirm_stopped(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    exec: &ExecSpec,
    stop: Option<DriverFailure>,
) -> Result<(), DriverFailure> {
    context.programs.kill_leftovers(service).await?;
    let deadline = Instant::now() + REAP_GRACE;
    let problem = loop {
        match monitor(context, service, exec).await {
            Observed::NotRunning => return Ok(()),
            Observed::Running if Instant::now() < deadline => sleep(POLL_INTERVAL).await,
            Observed::Running => break "monitor command reports that the service still runs".to_owned(),
            Observed::Remnant(message) | Observed::Unknown(message) => break message,
        }
    };
    let stop_failure = stop.map_or_else(String::new, |failure| format!("{}; ", failure.message));
    Err(failed(Reason::StopFailed, &format!("{stop_failure}{problem}")))
}

/// One run of a command.
pub(super) struct Command<'a> {
    pub(super) program: &'a [String],
    pub(super) limit_ms: Millis,
    /// Value of `HA_TARGET`.
    pub(super) target: Option<&'a str>,
    /// Control group for the processes that the command starts.
    pub(super) cgroup: Option<ServiceCgroup>,
    /// `true` if the command does not run without all values from the node. A stop must not depend on them.
    pub(super) requires_values: bool,
}

impl Command<'_> {
    async fn expect_success(
        self,
        context: &Context,
        service: &ServiceDefinition,
        exec: &ExecSpec,
        command_name: &str,
    ) -> Result<(), DriverFailure> {
        let reason = match command_name {
            "stop" => Reason::StopFailed,
            "migrate" => Reason::MoveFailed,
            _ => Reason::StartFailed,
        };
        match self.run(context, service, exec).await {
            Ok(End::Ended(ended)) if ended.status.success() => Ok(()),
            Ok(End::Ended(ended)) => {
                let exit_text = describe(ended.status);
                Err(failed(
                    reason,
                    &format!("{command_name} command failed: {exit_text}{}", ended.last_line_suffix()),
                ))
            }
            Ok(End::TimedOut) => {
                Err(failed(Reason::TimedOut, &format!("{command_name} command timed out and was killed")))
            }
            Ok(End::NotLaunched(failure)) => Err(failure.to_driver_failure()),
            Err(error) => Err(io_failure(&format!("cannot run the {command_name} command"), &error)),
        }
    }

    /// Runs the command. Dropping the future before its end kills the program and its process group.
    pub(super) async fn run(
        self,
        context: &Context,
        service: &ServiceDefinition,
        exec: &ExecSpec,
    ) -> io::Result<End> {
        let values = &context.programs.settings.values;
        let variables = if self.requires_values {
            values.resolve(&exec.environment)?
        } else {
            values.resolve_available(&exec.environment)
        };
        let mut environment = context.programs.environment(service, &variables, self.target);
        if self.target.is_some() {
            environment.push(context.programs.migration_mark(service));
        }
        let run = Run {
            program: self.program,
            environment,
            working_directory: working_directory(exec),
            user: exec.user.clone(),
            cgroup: self.cgroup,
            input: None,
            output: Output::Log,
            killed_with_agent: false,
        };
        context.programs.run(&service.name, run, self.limit_ms).await
    }
}

pub(super) fn working_directory(exec: &ExecSpec) -> PathBuf {
    exec.working_directory.as_deref().unwrap_or("/").into()
}
