//! The driver's commands: probe, start or adopt, stop, kill.

use super::container::{self, Container, ContainerState, Run, orphans_message, query_state};
use super::log::{self, LogFiles};
use super::tools::{self, ToolError};
use super::{Context, config, health, limits, watch};
use crate::core::DriverFailure;
use crate::driver::health::Health;
use ha_api_types::driver::HealthCheck;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::Millis;
use ha_runtime::reconcile::Backoff;
use rustix::process::Signal;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Time after the start before which the end of a container counts as a failed start.
const MIN_RUN_TIME: Duration = Duration::from_millis(200);
/// Time that a container may spend between two states before a probe reports an unknown state.
const MAX_TRANSITION: Duration = Duration::from_secs(3);
/// Time limit of a kill; a process that takes longer is stuck in the kernel.
const KILL_TIMEOUT: Duration = Duration::from_secs(15);
/// Time limit for LXC to kill a container, before the driver kills its processes.
const LXC_KILL_TIMEOUT: Duration = Duration::from_secs(3);
/// Time after a kill for the hooks of the container, such as a hook that detaches storage. After this time, the monitor
/// is killed.
const HOOK_GRACE: Duration = Duration::from_secs(6);
/// Time for a last query after the time limit of a start.
const FINAL_QUERY_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval between queries while a container changes.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// First and longest delay before the health check runs again while the service becomes ready; the delay doubles each
/// time.
const READINESS_BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Shell command that runs a program without the agent's protection from the OOM killer.
const CLEAR_OOM_PROTECTION: &str = "read score </proc/self/oom_score_adj; \
    case $score in -*) echo 0 >/proc/self/oom_score_adj;; esac; exec \"$@\"";

fn failure(class: FailureClass, reason: Reason, message: impl Into<String>) -> DriverFailure {
    DriverFailure { class, reason, message: message.into() }
}

fn retry_here(reason: Reason, message: impl Into<String>) -> DriverFailure {
    failure(FailureClass::RetryHere, reason, message)
}

fn query_failure(error: &ToolError) -> DriverFailure {
    retry_here(Reason::StartFailed, format!("cannot query the container: {error}"))
}

/// Reports whether the service runs, and starts watching it.
pub(super) async fn probe(context: &Arc<Context>, service: &ServiceDefinition) -> Observed {
    let Some(container) = Container::of(&context.settings, service) else { return Observed::NotRunning };
    warn_if_unsuitable(context, service, &container).await;
    let deadline = Instant::now() + MAX_TRANSITION;
    loop {
        match query_state(context, &container).await {
            Ok(ContainerState::Runs(run)) => {
                watch::ensure(context, service, Some(run));
                return Observed::Running;
            }
            Ok(ContainerState::Ended | ContainerState::Undefined) => {
                watch::ensure(context, service, None);
                return Observed::NotRunning;
            }
            Ok(ContainerState::Changing(_)) if Instant::now() < deadline => sleep(POLL_INTERVAL).await,
            Ok(ContainerState::Changing(state)) => {
                return Observed::Unknown(format!("container {} is {state}", container.name));
            }
            Ok(ContainerState::Orphaned(pids)) => {
                return Observed::Unknown(orphans_message(&container.name, &pids));
            }
            Err(error) => return Observed::Unknown(error.to_string()),
        }
    }
}

/// Warns once if the container cannot be a service. Even a node that is only probed could start the container at its
/// next boot, before the agent can prevent the start.
async fn warn_if_unsuitable(context: &Context, service: &ServiceDefinition, container: &Container) {
    // An error means that the node lacks the container, or the storage of its configuration.
    let problem = unsuitable_reason(container).await.unwrap_or_default();
    if context.unsuitable.record(&service.name, problem.clone())
        && let Some(problem_text) = problem
    {
        tracing::warn!(
            resource = service.name.as_str(),
            container = container.name,
            why = problem_text,
            "cannot run the container as a service"
        );
    }
}

async fn unsuitable_reason(container: &Container) -> std::io::Result<Option<String>> {
    let container = container.clone();
    let read = tokio::task::spawn_blocking(move || config::unsuitable_reason(&container)).await;
    read.unwrap_or_else(|error| Err(std::io::Error::other(error)))
}

/// Starts the service, or adopts it if it already runs.
pub(super) async fn start(context: &Arc<Context>, service: &ServiceDefinition) -> Result<(), DriverFailure> {
    let Some(container) = Container::of(&context.settings, service) else {
        return Err(failure(
            FailureClass::ConfigurationWrong,
            Reason::BadConfiguration,
            "spec.driver.lxc requires container",
        ));
    };
    context.watches.end(&service.name);
    let deadline = Instant::now() + Duration::from_millis(service.timeouts.start_ms());
    // The inner steps have the same time limit and report the condition that they waited for, so the outer limit is
    // longer.
    match timeout_at(deadline + FINAL_QUERY_TIMEOUT, start_or_adopt(context, service, &container, deadline))
        .await
    {
        Ok(Ok(run)) => {
            watch::ensure(context, service, Some(run));
            Ok(())
        }
        Ok(Err(failure)) => Err(failure),
        Err(_) => {
            stop(context, service, 0).await?;
            Err(retry_here(Reason::TimedOut, "service did not start within startSeconds and was killed"))
        }
    }
}

async fn start_or_adopt(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    container: &Container,
    deadline: Instant,
) -> Result<Run, DriverFailure> {
    loop {
        match query_state(context, container).await.map_err(|error| query_failure(&error))? {
            ContainerState::Runs(run) => {
                check_suitable(container).await?;
                return wait_until_ready(context, service, container, run, deadline).await;
            }
            ContainerState::Changing(_) => sleep(POLL_INTERVAL).await,
            ContainerState::Orphaned(_) => stop_container(context, service, container, 0).await?,
            ContainerState::Undefined => {
                let file = container.config_file();
                let message = format!(
                    "container {} does not exist on this node ({} is missing): create it with lxc-create, or mount the storage of the file",
                    container.name,
                    file.display()
                );
                return Err(failure(FailureClass::NeverHere, Reason::NotInstalled, message));
            }
            ContainerState::Ended => {
                check_suitable(container).await?;
                launch(context, service, container, deadline).await?;
                // A container that has ended again is not started a second time.
                return wait_for_launch(context, service, container, deadline).await;
            }
        }
    }
}

async fn wait_for_launch(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    container: &Container,
    deadline: Instant,
) -> Result<Run, DriverFailure> {
    loop {
        match query_state(context, container).await.map_err(|error| query_failure(&error))? {
            ContainerState::Runs(run) => {
                return wait_until_ready(context, service, container, run, deadline).await;
            }
            ContainerState::Changing(_) => sleep(POLL_INTERVAL).await,
            ContainerState::Ended | ContainerState::Undefined => {
                return Err(early_end_failure(context, service, None).await);
            }
            ContainerState::Orphaned(pids) => {
                return Err(retry_here(Reason::StartFailed, orphans_message(&container.name, &pids)));
            }
        }
    }
}

/// Checks that a container can be a service of hactl.
async fn check_suitable(container: &Container) -> Result<(), DriverFailure> {
    let class = FailureClass::NeverHere;
    match unsuitable_reason(container).await {
        Ok(None) => Ok(()),
        Ok(Some(cause)) => {
            let message = format!("container {} cannot be used: {cause}", container.name);
            Err(failure(class, Reason::BadConfiguration, message))
        }
        Err(error) => {
            let message = format!("cannot read {}: {error}", container.config_file().display());
            Err(failure(FailureClass::TryElsewhere, Reason::StartFailed, message))
        }
    }
}

/// Starts the container in the background. Returns when LXC reports that it runs.
async fn launch(
    context: &Context,
    service: &ServiceDefinition,
    container: &Container,
    deadline: Instant,
) -> Result<(), DriverFailure> {
    let files = LogFiles::of(&context.settings, service);
    files.prepare().map_err(|error| {
        retry_here(Reason::StartFailed, format!("cannot write {}: {error}", files.lxc().display()))
    })?;
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", CLEAR_OOM_PROTECTION, "sh", "lxc-start", "-n", &container.name, "-P"])
        .arg(&container.path);
    if let Some(config) = &container.config {
        command.arg("-f").arg(config);
    }
    command.args(["-d", "-l", "INFO", "-o"]).arg(files.lxc());
    let settings = config::Settings::read(&container.config_file()).unwrap_or_default();
    if settings.console_log().is_none() {
        command.arg("-L").arg(files.console());
        command.args([
            "-s",
            &format!("lxc.console.size={}", log::CONSOLE_BYTES),
            "-s",
            "lxc.console.rotate=1",
        ]);
    }
    let spec = service.driver.lxc.clone().unwrap_or_default();
    for setting in limits::settings(&spec.limits, limits::is_v2()) {
        command.args(["-s", &setting]);
    }
    // The monitor passes these variables to the hooks of the container.
    command
        .env("LC_ALL", "C")
        .env("HA_RESOURCE", service.name.as_str())
        .env("HA_RESOURCE_UID", service.uid.as_str())
        .env("HA_NODE", context.settings.node.as_str())
        .current_dir("/")
        .stdin(Stdio::null())
        // The monitor outlives this command, so it must not hold a pipe of the agent.
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    match timeout_at(deadline, command.status()).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => {
            let text = files.text();
            Err(start_failure(&container.name, &text, &status.to_string()))
        }
        Ok(Err(error)) => Err(retry_here(Reason::StartFailed, format!("cannot run /bin/sh: {error}"))),
        Err(_) => {
            let message = format!("container {} did not start within startSeconds", container.name);
            Err(retry_here(Reason::TimedOut, message))
        }
    }
}

/// Classifies an error of LXC while a container was started.
fn start_failure(name: &str, log: &str, status: &str) -> DriverFailure {
    let error = log::first_error(log);
    let cause = error.unwrap_or(status);
    let message = format!("cannot start container {name}: {cause}");
    let cause_contains = |part: &str| cause.contains(part);
    if error.is_none() && (status.ends_with(": 126") || status.ends_with(": 127")) {
        let message =
            format!("cannot start container {name}: lxc-start is not installed: run apt install lxc");
        failure(FailureClass::NeverHere, Reason::NotInstalled, message)
    } else if cause_contains("No such file or directory - Failed to exec") {
        failure(FailureClass::NeverHere, Reason::NotInstalled, message)
    } else if cause_contains("Failed to exec")
        // The first error names the setting.
        || log.contains("Failed to parse config file")
        || cause_contains("Failed to load config")
    {
        failure(FailureClass::NeverHere, Reason::BadConfiguration, message)
    } else if cause_contains("rootfs") {
        // The storage may not be mounted on this node.
        failure(FailureClass::TryElsewhere, Reason::StartFailed, message)
    } else {
        retry_here(Reason::StartFailed, message)
    }
}

/// Waits until the service is confirmed: its health check succeeds, or, without one, its container does not end
/// immediately.
async fn wait_until_ready(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    container: &Container,
    run: Run,
    deadline: Instant,
) -> Result<Run, DriverFailure> {
    let check: Option<&HealthCheck> = service.driver.lxc.as_ref().and_then(|lxc| lxc.health_check.as_ref());
    let mut backoff = Backoff::new(READINESS_BACKOFF.0, READINESS_BACKOFF.1);
    let mut last_result = "nothing".to_owned();
    if check.is_none() {
        sleep(MIN_RUN_TIME).await;
    }
    loop {
        match query_state(context, container).await.map_err(|error| query_failure(&error))? {
            ContainerState::Runs(now) => {
                let Some(check) = check else { return Ok(now) };
                match timeout_at(deadline, health::run_health_check(container, check)).await {
                    Ok(Health::Healthy) => return Ok(now),
                    Ok(Health::Unhealthy(cause) | Health::Unknown(cause)) => last_result = cause,
                    Ok(Health::Undefined) | Err(_) => {}
                }
            }
            ContainerState::Ended | ContainerState::Undefined => {
                return Err(early_end_failure(context, service, Some(run)).await);
            }
            ContainerState::Orphaned(pids) => {
                return Err(retry_here(Reason::StartFailed, orphans_message(&container.name, &pids)));
            }
            ContainerState::Changing(_) => {}
        }
        tokio::time::sleep_until((Instant::now() + backoff.advance()).min(deadline)).await;
        if Instant::now() >= deadline {
            let message =
                format!("container was not healthy in time, last result of the health check: {last_result}");
            return Err(retry_here(Reason::TimedOut, message));
        }
    }
}

async fn early_end_failure(
    context: &Context,
    service: &ServiceDefinition,
    run: Option<Run>,
) -> DriverFailure {
    let end_message = end_description(context, service, run).await;
    retry_here(Reason::StartFailed, format!("service exited immediately after its start: {end_message}"))
}

/// Returns how a run ended, with the last output of the container, as a clause for a message.
pub(super) async fn end_description(
    context: &Context,
    service: &ServiceDefinition,
    run: Option<Run>,
) -> String {
    let text = LogFiles::of(&context.settings, service).text();
    let end_message = run.and_then(|run| log::init_exit(&text, run.init.pid));
    let end_message = end_message.unwrap_or_else(|| "container has stopped".to_owned());
    let last_output = log::last_line(context, service).await;
    format!("{end_message}{last_output}")
}

/// Stops the service: gracefully for at most `graceful_ms`, then by force.
pub(super) async fn stop(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    graceful_ms: Millis,
) -> Result<(), DriverFailure> {
    context.watches.end(&service.name);
    let Some(container) = Container::of(&context.settings, service) else { return Ok(()) };
    stop_container(context, service, &container, graceful_ms).await?;
    watch::ensure(context, service, None);
    Ok(())
}

/// Ends the container. Returns `Ok` once no process and no monitor of the container runs.
async fn stop_container(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    container: &Container,
    graceful_ms: Millis,
) -> Result<(), DriverFailure> {
    if graceful_ms > 0
        && let Ok(ContainerState::Runs(run)) = query_state(context, container).await
    {
        let graceful = Duration::from_millis(graceful_ms);
        let seconds = graceful.as_millis().div_ceil(1000).to_string();
        let graceful_stop = async {
            if run.is_frozen {
                // A frozen container does not handle the signal.
                tools::run("lxc-unfreeze", container, &[], graceful).await?;
            }
            tools::run("lxc-stop", container, &["--nokill", "--timeout", &seconds], graceful).await
        };
        // The loop below checks the container itself, and kills its remaining processes.
        if let Ok(Err(error)) = timeout(graceful, graceful_stop).await {
            tracing::debug!(resource = service.name.as_str(), %error, "container was not stopped gracefully");
        }
    }
    let begin = Instant::now();
    let deadline = begin + KILL_TIMEOUT;
    let (mut kill_requested, mut last_error) = (false, String::new());
    loop {
        let stop_result = match query_state(context, container).await {
            Ok(ContainerState::Ended | ContainerState::Undefined) => return Ok(()),
            // LXC runs the hooks of the container and removes its network devices.
            _ if !kill_requested => {
                kill_requested = true;
                tools::run("lxc-stop", container, &["--kill", "--nolock"], LXC_KILL_TIMEOUT).await.map(drop)
            }
            state => kill_processes(context, container, state, begin.elapsed() > HOOK_GRACE).await,
        };
        if let Err(error) = stop_result {
            last_error = format!(": {error}");
        }
        if Instant::now() > deadline {
            let message = format!("container {} does not stop{last_error}", container.name);
            return Err(retry_here(Reason::StopFailed, message));
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// Kills the processes of a container without LXC: first those in the container, then its monitor.
async fn kill_processes(
    context: &Arc<Context>,
    container: &Container,
    state: Result<ContainerState, ToolError>,
    is_late: bool,
) -> Result<(), ToolError> {
    let timed_out = matches!(state, Err(ToolError::TimedOut { .. }));
    if let Ok(ContainerState::Runs(run)) = &state {
        // The kernel kills all processes of the container with the first one.
        let _ = run.init.signal(Signal::KILL);
    }
    let search_failed = |error: std::io::Error| ToolError::Broken("the search for processes of LXC", error);
    let (context, container) = (Arc::clone(context), container.clone());
    let search = tokio::task::spawn_blocking(move || -> std::io::Result<()> {
        let monitors = container::monitors(&container)?;
        if timed_out || is_late {
            // By LXC's default, the kernel kills the first process of a container with the monitor.
            for monitor in &monitors {
                monitor.process.signal(Signal::KILL)?;
            }
        }
        if monitors.is_empty() {
            for group in container::control_groups(&context, &container)? {
                context.groups.kill(&group)?;
            }
        }
        Ok(())
    });
    search.await.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(search_failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages were recorded with LXC 5.0.
    #[test]
    fn starts_fail_in_classes() {
        use FailureClass::{NeverHere, RetryHere, TryElsewhere};
        let line = |message: &str| {
            format!("lxc-start web 2026 ERROR    start - ../src/lxc/start.c:start:1 - {message}\n")
        };
        let parsed = "Failed to parse config file \"/c/config\" at line \"lxc.nope = 1\"";
        for (messages, class, reason) in [
            (&["No such file or directory - Failed to exec \"/nope\""][..], NeverHere, Reason::NotInstalled),
            (&["Permission denied - Failed to exec \"/etc\""], NeverHere, Reason::BadConfiguration),
            (
                &["Invalid argument - Unsupported config key \"lxc.nope\"", parsed],
                NeverHere,
                Reason::BadConfiguration,
            ),
            (&["Failed to mount rootfs"], TryElsewhere, Reason::StartFailed),
            (&["Failed to create network device"], RetryHere, Reason::StartFailed),
            (&[], RetryHere, Reason::StartFailed),
        ] {
            let log: String = messages.iter().map(|message| line(message)).collect();
            let failure = start_failure("web", &log, "exit status: 1");
            assert_eq!((failure.class, failure.reason), (class, reason), "{messages:?}");
            let cause = messages.first().unwrap_or(&"exit status: 1");
            assert_eq!(failure.message, format!("cannot start container web: {cause}"));
        }
        let missing = start_failure("web", "", "exit status: 127");
        assert_eq!((missing.class, missing.reason), (NeverHere, Reason::NotInstalled));
    }
}
