//! The agent's side of a supervised foreground process: probe, start or adopt, stop, kill.

use super::order::{Report, SupervisorOrder};
use super::script::{self, Command, working_directory};
use super::{Context, SUPERVISE, watch};
use crate::core::DriverFailure;
use crate::driver::program::clearing::{KILLING, LOOK, search_beside};
use crate::driver::program::folder::Lock;
use crate::driver::program::order::{LaunchFailure, LaunchOrder, Record};
use crate::driver::program::remains::{Remains, SUPERVISOR_MARK};
use crate::driver::program::run::End;
use crate::driver::program::{broken, failed, output};
use ha_api_types::driver::ExecDriver as ExecSpec;
use ha_api_types::reason::Reason;
use ha_api_types::record::Observed;
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::Millis;
use ha_runtime::reconcile::Backoff;
use rustix::process::Signal;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Time after the start before which the end of a process counts as a failed start.
const SETTLING: Duration = Duration::from_millis(100);
/// Time that a supervisor may spend starting or cleaning up before a probe reports an unknown state.
const TRANSITION: Duration = Duration::from_secs(3);
/// First and longest delay before the monitor command runs again while the service becomes ready; the delay doubles
/// each time.
const READINESS: (Duration, Duration) = (Duration::from_millis(25), Duration::from_secs(1));

/// State of a service on this node.
enum Standing {
    /// No process of the service is left, and the lock that was taken prevents a new one.
    Empty(Lock),
    /// The main process and its supervisor are alive.
    Running(Record),
    /// A supervisor is starting the service, or is cleaning up after it.
    Changing,
    /// The supervisor is gone, but other processes of the service are left.
    Remains(Remains),
}

/// Reports whether the service runs, and starts watching it if so.
pub(super) async fn probe(context: &Arc<Context>, service: &ServiceDefinition) -> Observed {
    let until = Instant::now() + TRANSITION;
    loop {
        match context.standing(service).await {
            Ok(Standing::Empty(_)) => return Observed::NotRunning,
            Ok(Standing::Running(record)) => {
                watch::ensure(context, service, Some(&record));
                return Observed::Running;
            }
            Ok(Standing::Changing) if Instant::now() < until => sleep(LOOK).await,
            Ok(Standing::Changing) => {
                return Observed::Unknown("supervisor neither runs the service nor exits".to_owned());
            }
            Ok(Standing::Remains(remains)) => {
                return Observed::Unknown(format!(
                    "supervisor does not run, but processes remain: {}",
                    remains.describe()
                ));
            }
            Err(error) => {
                return Observed::Unknown(format!("cannot search for processes of the service: {error}"));
            }
        }
    }
}

/// Starts the service, or adopts it if it already runs.
pub(super) async fn start(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    exec: &ExecSpec,
) -> Result<(), DriverFailure> {
    let limit = Duration::from_millis(service.timeouts.start_ms());
    match timeout(limit, start_or_adopt(context, service, exec)).await {
        Ok(Ok(record)) => {
            watch::ensure(context, service, Some(&record));
            Ok(())
        }
        Ok(Err(failure)) => Err(failure),
        Err(_) => {
            kill(context, service).await?;
            Err(failed(Reason::TimedOut, "service was not running in time and was killed"))
        }
    }
}

async fn start_or_adopt(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    exec: &ExecSpec,
) -> Result<Record, DriverFailure> {
    let lock = loop {
        match context
            .standing(service)
            .await
            .map_err(|error| broken("cannot search for processes of the service", &error))?
        {
            Standing::Empty(Lock::Taken(lock)) => break lock,
            Standing::Empty(Lock::NeverMade | Lock::Held) => {
                let made = context.programs.folder_of(&service.name).lock();
                match made.map_err(|error| broken("cannot create the directory of the service", &error))? {
                    Lock::Taken(lock) => break lock,
                    Lock::Held | Lock::NeverMade => sleep(LOOK).await,
                }
            }
            Standing::Running(record) => {
                ready(context, service, exec, &record, 0).await?;
                return Ok(record);
            }
            Standing::Changing => sleep(LOOK).await,
            // A new process must not run in parallel with old ones.
            Standing::Remains(_) => context.programs.clear_remains(service).await?,
        }
    };
    let from = output::end(&context.programs.folder_of(&service.name).log());
    let report = context
        .launch(service, exec, lock)
        .map_err(|error| broken("cannot start the supervisor of the service", &error))?;
    match read_report(report).await {
        Report::Started(record) => {
            ready(context, service, exec, &record, from).await?;
            Ok(record)
        }
        Report::Failed(failure) => Err(failure.to_driver_failure()),
    }
}

/// Waits until the service is confirmed: its monitor command exits 0, or, without one, its process does not end
/// immediately.
async fn ready(
    context: &Context,
    service: &ServiceDefinition,
    exec: &ExecSpec,
    record: &Record,
    from: u64,
) -> Result<(), DriverFailure> {
    let ended = async {
        match record.main.open() {
            Ok(Some(main)) => main.ended().await,
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        }
    };
    let confirmed = async {
        if exec.monitor.is_empty() {
            return sleep(SETTLING).await;
        }
        let mut backoff = Backoff::new(READINESS.0, READINESS.1);
        while script::monitor(context, service, exec).await != Observed::Running {
            sleep(backoff.advance()).await;
        }
    };
    tokio::select! {
        biased;
        ended = ended => {
            ended.map_err(|error| broken("cannot watch the process of the service", &error))?;
            if let Ok(Some(supervisor)) = record.supervisor.open() {
                // The supervisor records how the process ended, and cleans up after it.
                let _ = timeout(TRANSITION, supervisor.ended()).await;
            }
            let folder = context.programs.folder_of(&service.name);
            let how = folder.ending(record).ok().flatten().map_or_else(|| "service exited".to_owned(), |end| end.message);
            let said = output::last_line(&folder.log(), from).map_or_else(String::new, |line| format!(": {line}"));
            Err(failed(Reason::StartFailed, &format!("service exited immediately after its start: {how}{said}")))
        }
        () = confirmed => Ok(()),
    }
}

/// Stops the service: by its stop command or SIGTERM, then by SIGKILL to all processes after `graceful_ms`.
pub(super) async fn stop(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    stop_command: &[String],
    graceful_ms: Millis,
) -> Result<(), DriverFailure> {
    context.watches.end(&service.name);
    if graceful_ms > 0 {
        let until = Instant::now() + Duration::from_millis(graceful_ms);
        match context.standing(service).await {
            Ok(Standing::Running(record)) => {
                ask_to_end(context, service, stop_command, &record, until, graceful_ms).await;
            }
            // No process or supervisor can be asked. The kill below searches for all processes.
            Ok(Standing::Empty(_) | Standing::Changing | Standing::Remains(_)) | Err(_) => {}
        }
    }
    kill(context, service).await
}

/// Runs the stop command or sends SIGTERM, and waits until the supervisor has ended or the time is over.
async fn ask_to_end(
    context: &Context,
    service: &ServiceDefinition,
    stop_command: &[String],
    record: &Record,
    until: Instant,
    graceful_ms: Millis,
) {
    let asked = !stop_command.is_empty() && {
        let exec = &service.driver.exec.clone().unwrap_or_default();
        let stop = Command { program: stop_command, limit_ms: graceful_ms, target: None, cgroup: None };
        matches!(stop.run(context, service, exec).await, Ok(End::Ended(ended)) if ended.status.success())
    };
    if !asked && let Err(error) = record.main.signal(Signal::TERM) {
        tracing::warn!(resource = service.name.as_str(), %error, "cannot send SIGTERM");
    }
    if let Ok(Some(supervisor)) = record.supervisor.open() {
        let _ = timeout_at(until, supervisor.ended()).await;
    }
}

/// Kills all processes of the service. Returns `Ok` once none is left.
pub(super) async fn kill(context: &Arc<Context>, service: &ServiceDefinition) -> Result<(), DriverFailure> {
    context.watches.end(&service.name);
    context.programs.clear_remains(service).await?;
    // If the lock is free, no supervisor is being started either.
    let until = Instant::now() + KILLING;
    loop {
        match context.standing(service).await {
            Ok(Standing::Empty(lock)) => {
                for cgroup in context.programs.search(service).cgroups {
                    cgroup.remove();
                }
                drop(lock);
                return Ok(());
            }
            Ok(Standing::Running(_) | Standing::Changing | Standing::Remains(_))
                if Instant::now() < until =>
            {
                context.programs.clear_remains(service).await?;
                sleep(LOOK).await;
            }
            Ok(Standing::Running(_) | Standing::Changing | Standing::Remains(_)) => {
                return Err(failed(Reason::StopFailed, "supervisor of the service does not exit"));
            }
            Err(error) => {
                return Err(failed(
                    Reason::StopFailed,
                    &format!("cannot search for processes of the service: {error}"),
                ));
            }
        }
    }
}

async fn read_report(channel: UnixStream) -> Report {
    let read = async {
        channel.set_nonblocking(true)?;
        let mut text = Vec::new();
        tokio::net::UnixStream::from_std(channel)?.read_to_end(&mut text).await?;
        io::Result::Ok(serde_json::from_slice(&text)?)
    };
    read.await.unwrap_or_else(|error| {
        Report::Failed(LaunchFailure::unexplained(format!(
            "supervisor of the service exited immediately: {error}"
        )))
    })
}

impl Context {
    /// Returns the state of the service. A free lock means that there is no supervisor, not even one that is being
    /// started.
    async fn standing(&self, service: &ServiceDefinition) -> io::Result<Standing> {
        let lock = self.programs.folder_of(&service.name).lock_if_made()?;
        if matches!(lock, Lock::Held)
            && let Some(record) = self.programs.record(service)
            && record.main.is_alive()?
            && record.supervisor.is_alive()?
        {
            return Ok(Standing::Running(record));
        }
        let remains = search_beside(self.programs.search(service)).await?;
        Ok(match lock {
            Lock::Held => Standing::Changing,
            Lock::Taken(_) | Lock::NeverMade if remains.is_empty() => Standing::Empty(lock),
            Lock::Taken(_) | Lock::NeverMade => Standing::Remains(remains),
        })
    }

    /// Starts the supervisor, which inherits the lock, without waiting for it. If the caller is dropped afterwards,
    /// the supervisor remains, and a stop finds it.
    fn launch(&self, service: &ServiceDefinition, exec: &ExecSpec, lock: File) -> io::Result<UnixStream> {
        let folder = self.programs.folder_of(&service.name);
        folder.forget()?;
        let cgroup = self.programs.make_cgroup(&service.name)?;
        let order = SupervisorOrder {
            resource: service.name.clone(),
            uid: service.uid.clone(),
            boot_id: self.programs.settings.boot_id.clone(),
            folder: folder.path().to_owned(),
            log_bytes_max: self.programs.settings.log_bytes_max,
            journal: self.journal,
            environment: self.programs.environment(service, &exec.environment, None),
            launch: LaunchOrder {
                program: exec.command.clone(),
                working_directory: working_directory(exec),
                user: exec.user.clone(),
                cgroup: cgroup.map(|cgroup| cgroup.path().to_owned()),
                supervisor: None,
                input: None,
            },
        };
        folder.write_order(&order)?;
        let (ours, theirs) = UnixStream::pair()?;
        let mut child = tokio::process::Command::new(&self.programs.settings.shim)
            .arg(SUPERVISE)
            .env_clear()
            .env(SUPERVISOR_MARK, folder.path())
            .current_dir("/")
            .stdin(lock)
            .stdout(OwnedFd::from(theirs))
            .stderr(Stdio::null())
            .spawn()?;
        // Reaps the supervisor when it ends; its end is detected separately.
        tokio::spawn(async move { child.wait().await });
        Ok(ours)
    }
}
