//! The agent's side of a supervised foreground process: probe, start or adopt, stop, kill.

use super::cgroup::ServiceCgroup;
use super::folder::Lock;
use super::order::{LaunchFailure, LaunchOrder, Record, Report, SupervisorOrder};
use super::output;
use super::remains::{Remains, SUPERVISOR_MARK, Search};
use super::script::{self, Run, ScriptEnd, failed, said_last, working_directory};
use super::{Context, broken, file_name};
use crate::core::DriverFailure;
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

/// A process that ends sooner than this after its start has failed to start.
const SETTLING: Duration = Duration::from_millis(100);
/// How long a supervisor may be on its way (starting, or clearing up) before a probe says that it cannot tell.
const TRANSITION: Duration = Duration::from_secs(3);
/// How long killing may take: longer means that the kernel does not let go of a process.
const KILLING: Duration = Duration::from_secs(10);
/// How often to look while processes end that cannot be waited for otherwise.
const LOOK: Duration = Duration::from_millis(10);
/// How long to wait before a monitor command is asked again while the service becomes ready: doubled each time, from
/// the first to the second.
const READINESS: (Duration, Duration) = (Duration::from_millis(25), Duration::from_secs(1));

/// How a service stands on this machine.
enum Standing {
    /// Nothing is left of it, and the lock that was taken sees to it that nothing comes.
    Empty(Lock),
    /// Its main process lives, and so does its supervisor.
    Running(Record),
    /// A supervisor is starting it, or clears up after it.
    Changing,
    /// Its supervisor is gone, and yet something is left.
    Remains(Remains),
}

/// Whether it runs; a running one is watched from here on.
pub(super) async fn probe(context: &Arc<Context>, service: &ServiceDefinition) -> Observed {
    let until = Instant::now() + TRANSITION;
    loop {
        match context.standing(service).await {
            Ok(Standing::Empty(_)) => return Observed::NotRunning,
            Ok(Standing::Running(record)) => {
                context.watches.ensure(context, service, Some(&record));
                return Observed::Running;
            }
            Ok(Standing::Changing) if Instant::now() < until => sleep(LOOK).await,
            Ok(Standing::Changing) => {
                return Observed::Unknown("its supervisor is neither running it nor ending".to_owned());
            }
            Ok(Standing::Remains(remains)) => {
                return Observed::Unknown(format!(
                    "its supervisor is gone, left are processes {}",
                    remains.describe()
                ));
            }
            Err(error) => return Observed::Unknown(format!("its processes cannot be looked for: {error}")),
        }
    }
}

/// Starts it, or adopts it when it runs.
pub(super) async fn start(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    exec: &ExecSpec,
) -> Result<(), DriverFailure> {
    let limit = Duration::from_millis(service.timeouts.start_ms());
    match timeout(limit, start_or_adopt(context, service, exec)).await {
        Ok(Ok(record)) => {
            context.watches.ensure(context, service, Some(&record));
            Ok(())
        }
        Ok(Err(failure)) => Err(failure),
        Err(_) => {
            kill(context, service).await?;
            Err(failed(Reason::TimedOut, "it was not running in time and was killed"))
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
            .map_err(|error| broken("its processes cannot be looked for", &error))?
        {
            Standing::Empty(Lock::Taken(lock)) => break lock,
            Standing::Empty(Lock::NeverMade | Lock::Held) => {
                let made = context.folder_of(&service.name).lock();
                match made.map_err(|error| broken("its folder cannot be made", &error))? {
                    Lock::Taken(lock) => break lock,
                    Lock::Held | Lock::NeverMade => sleep(LOOK).await,
                }
            }
            Standing::Running(record) => {
                ready(context, service, exec, &record, 0).await?;
                return Ok(record);
            }
            Standing::Changing => sleep(LOOK).await,
            // Never beside something old.
            Standing::Remains(_) => clear_remains(context, service).await?,
        }
    };
    let from = output::end(&context.folder_of(&service.name).log());
    let report = context
        .launch(service, exec, lock)
        .map_err(|error| broken("its supervisor cannot be started", &error))?;
    match read_report(report).await {
        Report::Started(record) => {
            ready(context, service, exec, &record, from).await?;
            Ok(record)
        }
        Report::Failed(failure) => Err(failure.to_driver_failure()),
    }
}

/// Waits until it is confirmed: its monitor command exits 0, or without one it did not end at once.
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
            ended.map_err(|error| broken("its process cannot be watched", &error))?;
            if let Ok(Some(supervisor)) = record.supervisor.open() {
                // It writes down how the process ended, and clears up after it.
                let _ = timeout(TRANSITION, supervisor.ended()).await;
            }
            let folder = context.folder_of(&service.name);
            let how = folder.ending(record).ok().flatten().map_or_else(|| "it ended".to_owned(), |end| end.message);
            let said = said_last(output::last_line(&folder.log(), from));
            Err(failed(Reason::StartFailed, &format!("it ended right after its start with {how}{said}")))
        }
        () = confirmed => Ok(()),
    }
}

/// Stops it: its stop command or SIGTERM first, SIGKILL for everything after the time is up.
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
            // Nothing to ask, or nobody: what follows looks for itself.
            Ok(Standing::Empty(_) | Standing::Changing | Standing::Remains(_)) | Err(_) => {}
        }
    }
    kill(context, service).await
}

/// Asks politely and waits until it has ended or the time is up.
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
        let run = Run { program: stop_command, limit_ms: graceful_ms, target: None, cgroup: None };
        matches!(run.run(context, service, exec).await, Ok(ScriptEnd::Ended(status, _)) if status.success())
    };
    if !asked && let Err(error) = record.main.signal(Signal::TERM) {
        tracing::warn!(resource = service.name, %error, "SIGTERM could not be sent");
    }
    if let Ok(Some(supervisor)) = record.supervisor.open() {
        let _ = timeout_at(until, supervisor.ended()).await;
    }
}

/// Kills everything of it; `Ok` once nothing is left.
pub(super) async fn kill(context: &Arc<Context>, service: &ServiceDefinition) -> Result<(), DriverFailure> {
    context.watches.end(&service.name);
    clear_remains(context, service).await?;
    // For certain: the lock is free, so no supervisor is on its way either.
    let until = Instant::now() + KILLING;
    loop {
        match context.standing(service).await {
            Ok(Standing::Empty(lock)) => {
                for cgroup in context.search(service).cgroups {
                    cgroup.remove();
                }
                drop(lock);
                return Ok(());
            }
            Ok(Standing::Running(_) | Standing::Changing | Standing::Remains(_))
                if Instant::now() < until =>
            {
                clear_remains(context, service).await?;
                sleep(LOOK).await;
            }
            Ok(Standing::Running(_) | Standing::Changing | Standing::Remains(_)) => {
                return Err(failed(Reason::StopFailed, "its supervisor does not end"));
            }
            Err(error) => {
                return Err(failed(
                    Reason::StopFailed,
                    &format!("its processes cannot be looked for: {error}"),
                ));
            }
        }
    }
}

/// Kills the service's processes until none is left. A supervisor is spared while it still has to note the exit status.
pub(super) async fn clear_remains(
    context: &Arc<Context>,
    service: &ServiceDefinition,
) -> Result<(), DriverFailure> {
    let until = Instant::now() + KILLING;
    let spare = Instant::now() + KILLING / 5;
    loop {
        let search = context.search(service);
        let remains = search_beside(search.clone()).await.map_err(|error| {
            failed(Reason::StopFailed, &format!("its processes cannot be looked for: {error}"))
        })?;
        if remains.is_empty() && remains.supervisors.is_empty() {
            return Ok(());
        }
        if Instant::now() > until {
            let left = if remains.is_empty() { "its supervisor".to_owned() } else { remains.describe() };
            return Err(failed(Reason::StopFailed, &format!("the kernel does not end {left}")));
        }
        // Not in another thread: once this is dropped, nothing may be killed any more.
        search.kill(&remains).map_err(|error| {
            failed(Reason::StopFailed, &format!("its processes cannot be killed: {error}"))
        })?;
        if Instant::now() > spare {
            for supervisor in &remains.supervisors {
                let _ = supervisor.identity.signal(Signal::KILL);
            }
        }
        sleep(LOOK).await;
    }
}

/// What is left of its processes.
pub(super) async fn remains(
    context: &Context,
    service: &ServiceDefinition,
) -> Result<Remains, DriverFailure> {
    search_beside(context.search(service))
        .await
        .map_err(|error| failed(Reason::StopFailed, &format!("its processes cannot be looked for: {error}")))
}

/// Looking at every process takes a while on a big machine; meanwhile the agent's heartbeat must go on.
async fn search_beside(search: Search) -> io::Result<Remains> {
    tokio::task::spawn_blocking(move || search.run()).await.map_err(io::Error::other)?
}

async fn read_report(channel: UnixStream) -> Report {
    let read = async {
        channel.set_nonblocking(true)?;
        let mut text = Vec::new();
        tokio::net::UnixStream::from_std(channel)?.read_to_end(&mut text).await?;
        io::Result::Ok(serde_json::from_slice(&text)?)
    };
    read.await.unwrap_or_else(|error| {
        Report::Failed(LaunchFailure::unexplained(format!("its supervisor ended at once: {error}")))
    })
}

impl Context {
    /// How the service stands. Free of the lock means: no supervisor, not even one that is just being started.
    async fn standing(&self, service: &ServiceDefinition) -> io::Result<Standing> {
        let lock = self.folder_of(&service.name).lock_if_made()?;
        if matches!(lock, Lock::Held)
            && let Some(record) = self.record(service)
            && record.main.is_alive()?
            && record.supervisor.is_alive()?
        {
            return Ok(Standing::Running(record));
        }
        let remains = search_beside(self.search(service)).await?;
        Ok(match lock {
            Lock::Held => Standing::Changing,
            Lock::Taken(_) | Lock::NeverMade if remains.is_empty() => Standing::Empty(lock),
            Lock::Taken(_) | Lock::NeverMade => Standing::Remains(remains),
        })
    }

    /// What runs or ran last in this boot.
    fn record(&self, service: &ServiceDefinition) -> Option<Record> {
        let record = self.folder_of(&service.name).record();
        let record =
            record.inspect_err(|error| tracing::warn!(resource = service.name, %error, "its record is lost"));
        record.ok().flatten().filter(|record| record.boot_id == self.settings.boot_id)
    }

    pub(super) fn search(&self, service: &ServiceDefinition) -> Search {
        let record = self.record(service);
        let mut cgroups: Vec<ServiceCgroup> =
            self.cgroups.iter().map(|root| root.service(&file_name(&service.name))).collect();
        if let Some(path) = record.as_ref().and_then(|record| record.cgroup.clone()) {
            let recorded = ServiceCgroup::at(path);
            if !cgroups.contains(&recorded) {
                cgroups.push(recorded);
            }
        }
        Search { mark: self.folder_of(&service.name).path().display().to_string(), cgroups, record }
    }

    /// Starts the supervisor, which inherits the lock. Does not wait: from here on, dropping whoever called this leaves
    /// a supervisor that a stop finds.
    fn launch(&self, service: &ServiceDefinition, exec: &ExecSpec, lock: File) -> io::Result<UnixStream> {
        let folder = self.folder_of(&service.name);
        folder.forget()?;
        let cgroup = self.cgroups.as_ref().map(|root| root.service(&file_name(&service.name)));
        if let Some(cgroup) = &cgroup {
            cgroup.make()?;
        }
        let order = SupervisorOrder {
            resource: service.name.clone(),
            uid: service.uid.clone(),
            boot_id: self.settings.boot_id.clone(),
            folder: folder.path().to_owned(),
            log_bytes_max: self.settings.log_bytes_max,
            journal: self.settings.journal,
            environment: self.environment(service, exec, None),
            launch: LaunchOrder {
                program: exec.command.clone(),
                working_directory: working_directory(exec),
                user: exec.user.clone(),
                cgroup: cgroup.map(|cgroup| cgroup.path().to_owned()),
                supervisor: None,
            },
        };
        folder.write_order(&order)?;
        let (ours, theirs) = UnixStream::pair()?;
        let mut child = tokio::process::Command::new(&self.settings.shim)
            .arg(super::SUPERVISE)
            .env_clear()
            .env(SUPERVISOR_MARK, folder.path())
            .current_dir("/")
            .stdin(lock)
            .stdout(OwnedFd::from(theirs))
            .stderr(Stdio::null())
            .spawn()?;
        // Only so that its status is taken when it ends; it is watched otherwise.
        tokio::spawn(async move { child.wait().await });
        Ok(ours)
    }
}
