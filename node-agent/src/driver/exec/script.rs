//! Start, stop, monitor and migrate commands: short programs that manage a service which lives on its own.

use super::cgroup::ServiceCgroup;
use super::folder::ServiceFolder;
use super::order::{LaunchFailure, LaunchOrder};
use super::remains::MARK;
use super::supervised::{clear_remains, remains};
use super::{Context, broken, launch, output};
use crate::core::DriverFailure;
use ha_api_types::driver::ExecDriver as ExecSpec;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::Millis;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

/// How a program ended.
pub(super) enum ScriptEnd {
    /// By itself, with what it printed last.
    Ended(ExitStatus, Option<String>),
    /// It took too long and was killed with its process group.
    TimedOut,
    /// It never ran.
    NotLaunched(LaunchFailure),
}

/// What a monitor command exits with when the service does not run; 0: it runs; anything else tells nothing.
const NOT_RUNNING: i32 = 7;

/// For how long after a stop a monitor command may still see the service: a killed process has its pid until process 1
/// takes note of its end.
const AFTERGLOW: Duration = Duration::from_secs(3);
/// How often to ask it meanwhile.
const LOOK: Duration = Duration::from_millis(100);

/// The monitor command tells. A start command of an agent that has ended may still be under way, so *not running* is
/// said only when nothing that a command started is left.
pub(super) async fn probe(context: &Arc<Context>, service: &ServiceDefinition, exec: &ExecSpec) -> Observed {
    let observed = monitor(context, service, exec).await;
    match &observed {
        Observed::Running => context.watches.ensure(context, service, None),
        Observed::Unknown(_) => {}
        Observed::NotRunning => match remains(context, service).await {
            Ok(remains) if remains.is_empty() => {}
            Ok(remains) => {
                let left = remains.describe();
                return Observed::Unknown(format!(
                    "the monitor command says no, but left are processes {left}"
                ));
            }
            Err(failure) => return Observed::Unknown(failure.message),
        },
    }
    observed
}

/// Runs the start command, unless the monitor command says that the service runs.
pub(super) async fn start(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    exec: &ExecSpec,
) -> Result<(), DriverFailure> {
    if monitor(context, service, exec).await != Observed::Running {
        let cgroup = context.cgroups.as_ref().map(|root| root.service(&super::file_name(&service.name)));
        if let Some(cgroup) = &cgroup {
            cgroup.make().map_err(|error| broken("its control group cannot be made", &error))?;
        }
        let run = Run { program: &exec.start, limit_ms: service.timeouts.start_ms(), target: None, cgroup };
        run.expect_success(context, service, exec, "start").await?;
        match monitor(context, service, exec).await {
            Observed::Running => {}
            Observed::NotRunning => {
                return Err(failed(
                    Reason::StartFailed,
                    "after the start command the monitor command says that it does not run",
                ));
            }
            Observed::Unknown(message) => return Err(failed(Reason::StartFailed, &message)),
        }
    }
    context.watches.ensure(context, service, None);
    Ok(())
}

/// Runs the stop command; what outlasts it of the service's processes is killed.
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
    let run = Run { program: &exec.stop, limit_ms: graceful_ms, target: None, cgroup: None };
    let stopped = run.expect_success(context, service, exec, "stop").await;
    if let Err(failure) = &stopped {
        tracing::warn!(
            resource = service.name,
            message = failure.message,
            "the stop command failed: killing"
        );
    }
    confirm_stopped(context, service, exec, stopped.err()).await
}

/// Kills the service's processes, then lets the stop command clear up what is more than processes.
pub(super) async fn kill(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    exec: &ExecSpec,
) -> Result<(), DriverFailure> {
    context.watches.end(&service.name);
    clear_remains(context, service).await?;
    let run = Run { program: &exec.stop, limit_ms: service.timeouts.stop_ms(), target: None, cgroup: None };
    let stopped = run.expect_success(context, service, exec, "stop").await;
    confirm_stopped(context, service, exec, stopped.err()).await
}

/// Moves it live: exit 0 says that it runs on the target and not here.
pub(super) async fn migrate(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    exec: &ExecSpec,
    target: &str,
) -> Result<(), DriverFailure> {
    context.watches.end(&service.name);
    let limit_ms = service.timeouts.migrate_ms();
    let run = Run { program: &exec.migrate, limit_ms, target: Some(target), cgroup: None };
    run.expect_success(context, service, exec, "migrate").await?;
    clear_remains(context, service).await
}

/// Whether the monitor command says for certain that the service does not run.
pub(super) async fn says_not_running(
    context: &Context,
    service: &ServiceDefinition,
    exec: &ExecSpec,
) -> bool {
    monitor(context, service, exec).await == Observed::NotRunning
}

/// Asks the monitor command.
pub(super) async fn monitor(context: &Context, service: &ServiceDefinition, exec: &ExecSpec) -> Observed {
    if exec.monitor.is_empty() {
        return Observed::Unknown("it has no monitor command".to_owned());
    }
    let run =
        Run { program: &exec.monitor, limit_ms: service.timeouts.monitor_ms(), target: None, cgroup: None };
    match run.run(context, service, exec).await {
        Ok(ScriptEnd::Ended(status, said)) => match status.code() {
            Some(0) => Observed::Running,
            Some(NOT_RUNNING) => Observed::NotRunning,
            Some(_) | None => {
                Observed::Unknown(format!("the monitor command: {}{}", describe(status), said_last(said)))
            }
        },
        Ok(ScriptEnd::TimedOut) => Observed::Unknown("the monitor command did not end in time".to_owned()),
        Ok(ScriptEnd::NotLaunched(failure)) => Observed::Unknown(failure.message),
        Err(error) => Observed::Unknown(format!("the monitor command cannot be run: {error}")),
    }
}

/// After a stop: nothing that the commands started may be left, and the monitor command must agree.
async fn confirm_stopped(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    exec: &ExecSpec,
    stop: Option<DriverFailure>,
) -> Result<(), DriverFailure> {
    clear_remains(context, service).await?;
    let until = Instant::now() + AFTERGLOW;
    let seen = loop {
        match monitor(context, service, exec).await {
            Observed::NotRunning => return Ok(()),
            Observed::Running if Instant::now() < until => sleep(LOOK).await,
            Observed::Running => break "the monitor command says that it still runs".to_owned(),
            Observed::Unknown(message) => break message,
        }
    };
    let why = stop.map_or_else(String::new, |failure| format!("{}; ", failure.message));
    Err(failed(Reason::StopFailed, &format!("{why}{seen}")))
}

/// One run of a program.
pub(super) struct Run<'a> {
    pub(super) program: &'a [String],
    pub(super) limit_ms: Millis,
    /// `HA_TARGET`.
    pub(super) target: Option<&'a str>,
    /// The group that what it starts shall live in.
    pub(super) cgroup: Option<ServiceCgroup>,
}

impl Run<'_> {
    async fn expect_success(
        self,
        context: &Context,
        service: &ServiceDefinition,
        exec: &ExecSpec,
        what: &str,
    ) -> Result<(), DriverFailure> {
        let reason = match what {
            "stop" => Reason::StopFailed,
            "migrate" => Reason::MoveFailed,
            _ => Reason::StartFailed,
        };
        match self.run(context, service, exec).await {
            Ok(ScriptEnd::Ended(status, _)) if status.success() => Ok(()),
            Ok(ScriptEnd::Ended(status, said)) => {
                Err(failed(reason, &format!("the {what} command: {}{}", describe(status), said_last(said))))
            }
            Ok(ScriptEnd::TimedOut) => Err(failed(
                Reason::TimedOut,
                &format!("the {what} command did not end in time and was killed"),
            )),
            Ok(ScriptEnd::NotLaunched(failure)) => Err(failure.to_driver_failure()),
            Err(error) => Err(broken(&format!("the {what} command cannot be run"), &error)),
        }
    }

    /// Runs it. When this is dropped before its end, the program and its process group are killed.
    pub(super) async fn run(
        self,
        context: &Context,
        service: &ServiceDefinition,
        exec: &ExecSpec,
    ) -> io::Result<ScriptEnd> {
        let folder = context.folder_of(&service.name);
        let log = open_log(&folder, context.settings.log_bytes_max)?;
        let from = output::end(&folder.log());
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(&context.settings.shim);
        command
            .arg(super::LAUNCH)
            .env_clear()
            .envs(context.environment(service, exec, self.target))
            .stdin(OwnedFd::from(theirs))
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .kill_on_drop(true);
        let mut group = Group { child: command.spawn()? };
        // Its copy of our end's peer must go, or the end of the answer is never seen.
        drop(command);
        let order = LaunchOrder {
            program: self.program.to_vec(),
            working_directory: working_directory(exec),
            user: exec.user.clone(),
            cgroup: self.cgroup.map(|cgroup| cgroup.path().to_owned()),
            supervisor: None,
        };
        let whole = async {
            if let Some(failure) = launch::give_order(ours, &order).await? {
                return Ok(ScriptEnd::NotLaunched(failure));
            }
            let status = group.child.wait().await?;
            Ok(ScriptEnd::Ended(status, output::last_line(&folder.log(), from)))
        };
        let ended = tokio::time::timeout(Duration::from_millis(self.limit_ms), whole).await;
        ended.unwrap_or(Ok(ScriptEnd::TimedOut))
    }
}

/// The log, for what a program prints. A full or broken disk costs the output: a stop must be possible all the same.
fn open_log(folder: &ServiceFolder, bytes_max: u64) -> io::Result<File> {
    let log = folder.make().and_then(|()| {
        output::rotate_in_place(&folder.log(), bytes_max)?;
        output::open(&folder.log())
    });
    log.or_else(|error| {
        tracing::warn!(log = %folder.log().display(), %error, "output is lost");
        File::options().write(true).open("/dev/null")
    })
}

/// A program in a process group of its own, killed with the group unless it was waited for.
struct Group {
    child: Child,
}

impl Drop for Group {
    fn drop(&mut self) {
        // The number is the child's for as long as it was not waited for.
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()) {
            let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

impl Context {
    /// What a program of the service sees, and nothing else.
    pub(super) fn environment(
        &self,
        service: &ServiceDefinition,
        exec: &ExecSpec,
        target: Option<&str>,
    ) -> Vec<(String, String)> {
        let mut variables = std::collections::BTreeMap::from([("PATH".to_owned(), PATH.to_owned())]);
        variables.extend(exec.environment.clone());
        let folder = self.folder_of(&service.name).path().display().to_string();
        let own = [
            ("HA_RESOURCE", service.name.as_str()),
            ("HA_RESOURCE_UID", &service.uid),
            ("HA_NODE", &self.settings.node),
            (MARK, &folder),
        ];
        let own = own.into_iter().chain(target.map(|target| ("HA_TARGET", target)));
        variables.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
        variables.into_iter().collect()
    }
}

/// Where programs are looked for unless the resource says otherwise.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where the programs run.
pub(super) fn working_directory(exec: &ExecSpec) -> PathBuf {
    exec.working_directory.as_deref().unwrap_or("/").into()
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// `: what it printed last`.
pub(super) fn said_last(said: Option<String>) -> String {
    said.map_or_else(String::new, |line| format!(": {line}"))
}

/// A failure that may pass.
pub(super) fn failed(reason: Reason, message: &str) -> DriverFailure {
    DriverFailure { class: FailureClass::RetryHere, reason, message: message.to_owned() }
}
