//! Watches of containers: the kernel reports the end of the first process immediately; a container that was started by
//! hand is detected by the socket of its monitor.

use super::container::{Container, ContainerState, Run, orphans_message, query_state};
use super::log::LogFiles;
use super::{Context, health, lifecycle, processes};
use crate::core::DriverEvent;
use crate::driver::health::wait_until_unhealthy;
use crate::driver::program::process::ProcessIdentity;
use crate::driver::watches;
use ha_api_types::driver::HealthCheck;
use ha_api_types::id::ObjectUid;
use ha_api_types::resource::ServiceDefinition;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Interval between checks of whether a stopped container has a monitor.
const MONITOR_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval between queries of a container that is between two states.
const TRANSITION_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Time that a container may be between two states after the end of its first process, for its hooks or for a restart
/// from inside. After this time, the end is reported.
const RESTART_TIMEOUT: Duration = Duration::from_secs(30);

/// Identity of a watch: uid of the service, container, first process, and health check.
type Watched = (ObjectUid, Container, Option<ProcessIdentity>, Option<HealthCheck>);

pub(super) type Watches = watches::Watches<Watched>;

/// End of a run.
struct ContainerEnd {
    message: String,
    stopped_externally: bool,
}

/// Starts to watch a service, unless it is already watched. Without a `run`, the service does not run.
pub(super) fn ensure(context: &Arc<Context>, service: &ServiceDefinition, run: Option<Run>) {
    let Some(container) = Container::of(&context.settings, service) else { return };
    let check = service.driver.lxc.as_ref().and_then(|lxc| lxc.health_check.clone());
    let watched = (service.uid.clone(), container.clone(), run.map(|run| run.init), check);
    // A strong reference in the task would keep the driver alive.
    let watch = || watch(Arc::downgrade(context), service.clone(), container, run);
    context.watches.ensure(&service.name, watched, watch);
}

async fn watch(driver: Weak<Context>, service: ServiceDefinition, container: Container, run: Option<Run>) {
    let (name, uid) = (service.name.clone(), service.uid.clone());
    let event = match run {
        Some(run) => {
            let Some(reported_end) = wait_for_end(&driver, &service, &container, run).await else { return };
            DriverEvent::Exited {
                name,
                uid,
                message: reported_end.message,
                stopped_externally: reported_end.stopped_externally,
            }
        }
        None if wait_until_running(&driver, &container).await => DriverEvent::Appeared { name, uid },
        None => return,
    };
    if let Some(context) = driver.upgrade() {
        // Sending fails only when the agent is ending.
        let _ = context.events.send(event);
    }
}

/// Returns how the service ended; `None` if the driver was dropped.
async fn wait_for_end(
    driver: &Weak<Context>,
    service: &ServiceDefinition,
    container: &Container,
    mut run: Run,
) -> Option<ContainerEnd> {
    loop {
        let check = service.driver.lxc.as_ref().and_then(|lxc| lxc.health_check.as_ref());
        let health_failed = async {
            match check {
                Some(check) => {
                    wait_until_unhealthy(&container.name, check, || {
                        health::run_health_check(container, check)
                    })
                    .await
                }
                None => std::future::pending().await,
            }
        };
        let failure_message = tokio::select! {
            () = wait_for_process_end(run.init) => None,
            message = poll_for_end(driver, service, container, run) => Some(message?),
            message = health_failed => Some(message),
        };
        if let Some(message) = failure_message {
            return Some(ContainerEnd { message, stopped_externally: false });
        }
        // `lxc-stop` waits for the end of the container, so `lxc-stop` still runs now.
        let stopped_externally = is_being_stopped(container).await;
        let deadline = Instant::now() + RESTART_TIMEOUT;
        run = loop {
            let context = driver.upgrade()?;
            match query_state(&context, container).await {
                Ok(ContainerState::Runs(next)) => break next,
                Ok(ContainerState::Ended | ContainerState::Undefined) => {
                    let message = lifecycle::end_description(&context, service, Some(run)).await;
                    return Some(ContainerEnd { message, stopped_externally });
                }
                Ok(ContainerState::Orphaned(pids)) => {
                    return Some(ContainerEnd {
                        message: orphans_message(&container.name, &pids),
                        stopped_externally: false,
                    });
                }
                Ok(ContainerState::Changing(state)) if Instant::now() > deadline => {
                    let message = format!("init process has exited, but the container is {state}");
                    return Some(ContainerEnd { message, stopped_externally });
                }
                Err(error) if Instant::now() > deadline => {
                    let message = format!("init process has exited: {error}");
                    return Some(ContainerEnd { message, stopped_externally });
                }
                Ok(ContainerState::Changing(_)) | Err(_) => {}
            }
            drop(context);
            sleep(TRANSITION_POLL_INTERVAL).await;
        };
    }
}

async fn wait_for_process_end(process: ProcessIdentity) {
    match process.open() {
        Ok(Some(handle)) => {
            if handle.wait_for_end().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        Ok(None) => {}
        // The query at an interval detects the end.
        Err(_) => std::future::pending().await,
    }
}

/// Queries the container at an interval. Returns the reason if the run has ended although its first process is alive;
/// `None` if the driver was dropped.
async fn poll_for_end(
    driver: &Weak<Context>,
    service: &ServiceDefinition,
    container: &Container,
    run: Run,
) -> Option<String> {
    let files = LogFiles::of(&driver.upgrade()?.settings, service);
    loop {
        sleep(driver.upgrade()?.settings.poll_interval).await;
        files.truncate_if_long();
        let context = driver.upgrade()?;
        match query_state(&context, container).await {
            Ok(ContainerState::Orphaned(pids)) => return Some(orphans_message(&container.name, &pids)),
            Ok(ContainerState::Ended | ContainerState::Undefined) if !run.init.is_alive().unwrap_or(true) => {
                return Some(lifecycle::end_description(&context, service, Some(run)).await);
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(resource = service.name.as_str(), %error, "cannot check a service"),
        }
    }
}

/// Returns `true` if a program of LXC is stopping the container.
async fn is_being_stopped(container: &Container) -> bool {
    let container = container.clone();
    // Reading all of /proc may take a long time.
    let has_stopping_process = move || {
        let lxc_processes = processes::all().unwrap_or_default();
        lxc_processes.iter().any(|process| process.stops(&container))
    };
    tokio::task::spawn_blocking(has_stopping_process).await.unwrap_or(false)
}

/// Returns `true` once the container runs; `false` if the driver was dropped.
async fn wait_until_running(driver: &Weak<Context>, container: &Container) -> bool {
    let Some(poll_interval) = driver.upgrade().map(|context| context.settings.poll_interval) else {
        return false;
    };
    let mut query_at = Instant::now() + poll_interval;
    loop {
        sleep(MONITOR_CHECK_INTERVAL.min(poll_interval)).await;
        if Instant::now() < query_at && !has_monitor(container).await {
            continue;
        }
        query_at = Instant::now() + poll_interval;
        let Some(context) = driver.upgrade() else { return false };
        if let Ok(ContainerState::Runs(_)) = query_state(&context, container).await {
            return true;
        }
    }
}

/// Returns `true` if a monitor of the container has its socket open in the network namespace of this process.
async fn has_monitor(container: &Container) -> bool {
    let name = format!("{}/{}/command", container.path.display(), container.name);
    // Connecting waits if the monitor is busy.
    let connect = move || {
        let Ok(address) = SocketAddr::from_abstract_name(name) else { return false };
        UnixStream::connect_addr(&address).is_ok()
    };
    tokio::task::spawn_blocking(connect).await.unwrap_or(false)
}
