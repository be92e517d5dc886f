//! The agent's side of a supervised foreground process: probe, start or adopt, stop, kill.

use super::request::{Report, SupervisorRequest};
use super::script::{self, Command, working_directory};
use super::{Context, SUPERVISE_ARGUMENT, watch};
use crate::core::DriverFailure;
use crate::driver::program::clearing::{KILL_TIMEOUT, POLL_INTERVAL, search_in_thread};
use crate::driver::program::directory::Lock;
use crate::driver::program::leftovers::{LeftoverProcesses, SUPERVISOR_MARK_VARIABLE};
use crate::driver::program::order::{LaunchFailure, LaunchOrder, ProcessRecord};
use crate::driver::program::run::End;
use crate::driver::program::{failed, io_failure, output};
use ha_api_types::driver::ExecDriver as ExecSpec;
use ha_api_types::reason::Reason;
use ha_api_types::record::Observed;
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::Millis;
use ha_runtime::reconcile::Backoff;
use rustix::process::Signal;
use std::fs::File;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Time after the start before which the end of a process counts as a failed start.
const MIN_RUN_TIME: Duration = Duration::from_millis(100);
/// Time that a supervisor may spend starting or cleaning up before a probe reports an unknown state.
const MAX_TRANSITION: Duration = Duration::from_secs(3);
/// First and longest delay before the monitor command runs again while the service becomes ready; the delay doubles
/// each time.
const READINESS_BACKOFF: (Duration, Duration) = (Duration::from_millis(25), Duration::from_secs(1));

enum ServiceState {
    /// No process of the service remains, and the lock that this function has taken prevents a new process.
    Empty(Lock),
    /// The main process and its supervisor are alive.
    Running(ProcessRecord),
    /// A supervisor is starting the service, or is cleaning up after it.
    Changing,
    /// The supervisor has ended, but other processes of the service still run.
    Leftovers(LeftoverProcesses),
}

/// Reports whether the service runs, and starts watching it if so.
pub(super) async fn probe(context: &Arc<Context>, service: &ServiceDefinition) -> Observed {
    let deadline = Instant::now() + MAX_TRANSITION;
    loop {
        match context.query_state(service).await {
            Ok(ServiceState::Empty(_)) => return Observed::NotRunning,
            Ok(ServiceState::Running(record)) => {
                watch::ensure_watched(context, service, Some(&record));
                return Observed::Running;
            }
            Ok(ServiceState::Changing) if Instant::now() < deadline => sleep(POLL_INTERVAL).await,
            Ok(ServiceState::Changing) => {
                return Observed::Unknown("supervisor neither runs the service nor exits".to_owned());
            }
            Ok(ServiceState::Leftovers(leftovers)) => {
                return Observed::Unknown(format!(
                    "supervisor does not run, but processes remain: {}",
                    leftovers.describe()
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
            watch::ensure_watched(context, service, Some(&record));
            Ok(())
        }
        Ok(Err(failure)) => Err(failure),
        Err(_) => {
            kill(context, service).await?;
            Err(failed(Reason::TimedOut, "service did not start within startSeconds and was killed"))
        }
    }
}

async fn start_or_adopt(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    exec: &ExecSpec,
) -> Result<ProcessRecord, DriverFailure> {
    let lock = loop {
        match context
            .query_state(service)
            .await
            .map_err(|error| io_failure("cannot search for processes of the service", &error))?
        {
            ServiceState::Empty(Lock::Acquired(lock)) => break lock,
            ServiceState::Empty(Lock::NotCreated | Lock::HeldByOther) => {
                let created_lock = context.programs.directory_of(&service.name).lock();
                match created_lock
                    .map_err(|error| io_failure("cannot create the directory of the service", &error))?
                {
                    Lock::Acquired(lock) => break lock,
                    Lock::HeldByOther | Lock::NotCreated => sleep(POLL_INTERVAL).await,
                }
            }
            ServiceState::Running(record) => {
                wait_until_ready(context, service, exec, &record, 0).await?;
                return Ok(record);
            }
            ServiceState::Changing => sleep(POLL_INTERVAL).await,
            // A new process must not run in parallel with old processes.
            ServiceState::Leftovers(_) => context.programs.kill_leftovers(service).await?,
        }
    };
    let from = output::log_length(&context.programs.directory_of(&service.name).log());
    let report = context
        .launch(service, exec, lock)
        .map_err(|error| io_failure("cannot start the supervisor of the service", &error))?;
    match read_report(report).await {
        Report::Started(record) => {
            wait_until_ready(context, service, exec, &record, from).await?;
            Ok(record)
        }
        Report::Failed(failure) => Err(failure.to_driver_failure()),
    }
}

/// Waits until the service is confirmed: its monitor command exits 0, or, without one, its process does not end
/// immediately.
async fn wait_until_ready(
    context: &Context,
    service: &ServiceDefinition,
    exec: &ExecSpec,
    record: &ProcessRecord,
    from: u64,
) -> Result<(), DriverFailure> {
    let ended = async {
        match record.main.open() {
            Ok(Some(main)) => main.wait_for_end().await,
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        }
    };
    let confirmed = async {
        if exec.monitor.is_empty() {
            return sleep(MIN_RUN_TIME).await;
        }
        let mut backoff = Backoff::new(READINESS_BACKOFF.0, READINESS_BACKOFF.1);
        while script::monitor(context, service, exec).await != Observed::Running {
            sleep(backoff.advance()).await;
        }
    };
    tokio::select! {
        biased;
        ended = ended => {
            ended.map_err(|error| io_failure("cannot watch the process of the service", &error))?;
            if let Ok(Some(supervisor)) = record.supervisor.open() {
                // The supervisor records how the process ended, and cleans up after it.
                let _ = timeout(MAX_TRANSITION, supervisor.wait_for_end()).await;
            }
            let directory = context.programs.directory_of(&service.name);
            let exit_message = directory.recorded_exit(record).ok().flatten().map_or_else(|| "service exited".to_owned(), |recorded_exit| recorded_exit.message);
            let last_output = output::last_line(&directory.log(), from).map_or_else(String::new, |line| format!(": {line}"));
            Err(failed(Reason::StartFailed, &format!("service exited immediately after its start: {exit_message}{last_output}")))
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
        let deadline = Instant::now() + Duration::from_millis(graceful_ms);
        match context.query_state(service).await {
            Ok(ServiceState::Running(record)) => {
                request_stop(context, service, stop_command, &record, deadline, graceful_ms).await;
            }
            // No running process or supervisor is known. The kill below searches for all processes.
            Ok(ServiceState::Empty(_) | ServiceState::Changing | ServiceState::Leftovers(_)) | Err(_) => {}
        }
    }
    kill(context, service).await
}

/// Runs the stop command or sends SIGTERM, and waits until the supervisor has ended or the time limit has passed.
async fn request_stop(
    context: &Context,
    service: &ServiceDefinition,
    stop_command: &[String],
    record: &ProcessRecord,
    deadline: Instant,
    graceful_ms: Millis,
) {
    let was_requested = !stop_command.is_empty() && {
        let exec = &service.driver.exec.clone().unwrap_or_default();
        let stop = Command {
            program: stop_command,
            limit_ms: graceful_ms,
            target: None,
            cgroup: None,
            requires_values: false,
        };
        matches!(stop.run(context, service, exec).await, Ok(End::Ended(ended)) if ended.status.success())
    };
    if !was_requested && let Err(error) = record.main.signal(Signal::TERM) {
        tracing::warn!(resource = service.name.as_str(), %error, "cannot send SIGTERM");
    }
    if let Ok(Some(supervisor)) = record.supervisor.open() {
        let _ = timeout_at(deadline, supervisor.wait_for_end()).await;
    }
}

/// Kills all processes of the service. Returns `Ok` once no process remains.
pub(super) async fn kill(context: &Arc<Context>, service: &ServiceDefinition) -> Result<(), DriverFailure> {
    context.watches.end(&service.name);
    context.programs.kill_leftovers(service).await?;
    // If the lock is free, no supervisor is being started either.
    let deadline = Instant::now() + KILL_TIMEOUT;
    loop {
        match context.query_state(service).await {
            Ok(ServiceState::Empty(lock)) => {
                for cgroup in context.programs.search(service).cgroups {
                    cgroup.remove();
                }
                drop(lock);
                return Ok(());
            }
            Ok(ServiceState::Running(_) | ServiceState::Changing | ServiceState::Leftovers(_))
                if Instant::now() < deadline =>
            {
                context.programs.kill_leftovers(service).await?;
                sleep(POLL_INTERVAL).await;
            }
            Ok(ServiceState::Running(_) | ServiceState::Changing | ServiceState::Leftovers(_)) => {
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
        Report::Failed(LaunchFailure::without_answer(format!(
            "supervisor of the service exited immediately: {error}"
        )))
    })
}

impl Context {
    /// Returns the state of the service. A free lock means that there is no supervisor, not even one that is being
    /// started.
    async fn query_state(&self, service: &ServiceDefinition) -> io::Result<ServiceState> {
        let lock = self.programs.directory_of(&service.name).lock_if_created()?;
        if matches!(lock, Lock::HeldByOther)
            && let Some(record) = self.programs.record(service)
            && record.main.is_alive()?
            && record.supervisor.is_alive()?
        {
            return Ok(ServiceState::Running(record));
        }
        let leftovers = search_in_thread(self.programs.search(service)).await?;
        Ok(match lock {
            Lock::HeldByOther => ServiceState::Changing,
            Lock::Acquired(_) | Lock::NotCreated if leftovers.has_no_service_processes() => {
                ServiceState::Empty(lock)
            }
            Lock::Acquired(_) | Lock::NotCreated => ServiceState::Leftovers(leftovers),
        })
    }

    /// Starts the supervisor, which inherits the lock, without waiting for it. If the caller is dropped afterward, the
    /// supervisor keeps running, and a stop finds it.
    fn launch(&self, service: &ServiceDefinition, exec: &ExecSpec, lock: File) -> io::Result<UnixStream> {
        let variables = self.programs.settings.values.resolve(&exec.environment)?;
        let environment = serde_json::to_vec(&self.programs.environment(service, &variables, None))?;
        let directory = self.programs.directory_of(&service.name);
        directory.remove_records()?;
        let cgroup = self.programs.make_cgroup(&service.name)?;
        let order = SupervisorRequest {
            resource: service.name.clone(),
            uid: service.uid.clone(),
            boot_id: self.programs.settings.boot_id.clone(),
            directory: directory.path().to_owned(),
            log_bytes_max: self.programs.settings.log_bytes_max,
            logs_to_journal: self.journal,
            environment: None,
            launch: LaunchOrder {
                program: exec.command.clone(),
                working_directory: working_directory(exec),
                user: exec.user.clone(),
                cgroup: cgroup.map(|cgroup| cgroup.path().to_owned()),
                supervisor: None,
                input: None,
            },
        };
        directory.write_order(&order)?;
        let (agent_socket, supervisor_socket) = UnixStream::pair()?;
        let mut child = tokio::process::Command::new(&self.programs.settings.shim_path)
            .arg(SUPERVISE_ARGUMENT)
            .env_clear()
            .env(SUPERVISOR_MARK_VARIABLE, directory.path())
            .current_dir("/")
            .stdin(lock)
            .stdout(OwnedFd::from(supervisor_socket))
            .stderr(Stdio::null())
            .spawn()?;
        // Reaps the supervisor when it ends; its end is detected separately.
        tokio::spawn(async move { child.wait().await });
        let mut environment_writer = agent_socket.try_clone()?;
        // If the supervisor has ended, the caller notices that its report is missing.
        tokio::task::spawn_blocking(move || {
            environment_writer
                .write_all(&environment)
                .and_then(|()| environment_writer.shutdown(Shutdown::Write))
        });
        Ok(agent_socket)
    }
}
