//! The driver's commands: probe, start or adopt, stop, kill.

use super::client::Client;
use super::connection::ApiError;
use super::container::{Container, ContainerState, Process, Run};
use super::failure::{early_exit_failure, failure, pull_failure, retry_here, start_failure};
use super::health::{self, Health};
use super::{Context, definition};
use crate::core::DriverFailure;
use ha_api_types::driver::PodmanDriver as PodmanSpec;
use ha_api_types::reason::Reason;
use ha_api_types::record::{FailureClass, Observed};
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::Millis;
use ha_runtime::reconcile::Backoff;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Time after the start before which the end of a container counts as a failed start.
const MIN_RUN_TIME: Duration = Duration::from_millis(200);
/// Time that a container may spend between two states before a probe reports an unknown state.
const MAX_TRANSITION: Duration = Duration::from_secs(3);
/// Time limit of a kill; a process that takes longer is stuck in the kernel.
const KILL_TIMEOUT: Duration = Duration::from_secs(15);
/// Interval between queries while podman changes a container.
const POLL_INTERVAL: Duration = Duration::from_millis(25);
/// First and longest delay before the health check runs again while the service becomes ready; the delay doubles each
/// time.
const READINESS_BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Container found under the service's container name.
pub(super) enum FoundContainer {
    Nothing,
    /// A container that hactl did not create, for a service whose container hactl must create. The container is left
    /// unchanged.
    Foreign,
    Container(Box<Container>, ContainerState),
}

/// Container that a service's definition describes.
struct Target<'a> {
    service: &'a ServiceDefinition,
    podman: &'a PodmanSpec,
    name: String,
}

impl<'a> Target<'a> {
    fn of(service: &'a ServiceDefinition) -> Option<Target<'a>> {
        let podman = service.driver.podman.as_ref()?;
        (!podman.image.is_empty() || !podman.container.is_empty()).then(|| Target {
            service,
            podman,
            name: definition::container_name(service, podman),
        })
    }

    /// Returns `true` if hactl creates and removes the container.
    fn is_created_by_hactl(&self) -> bool {
        !self.podman.image.is_empty()
    }
}

/// Queries the service's container.
pub(super) async fn query_container(
    context: &Context,
    service: &ServiceDefinition,
) -> Result<FoundContainer, ApiError> {
    match Target::of(service) {
        Some(target) => find(&context.client, &target).await,
        None => Ok(FoundContainer::Nothing),
    }
}

async fn find(client: &Client, target: &Target<'_>) -> Result<FoundContainer, ApiError> {
    let mut was_process_gone = false;
    loop {
        let Some(container) = client.inspect(&target.name).await? else { return Ok(FoundContainer::Nothing) };
        if target.is_created_by_hactl() && container.resource() != Some(&target.service.name) {
            return Ok(FoundContainer::Foreign);
        }
        let process = client.process(&container).await;
        let container_state = container.container_state(process);
        // conmon reports the end to podman before conmon itself ends, so a second answer of podman is up to date.
        if process == Process::Gone
            && matches!(&container_state, ContainerState::Ended(exit) if exit.unnoticed)
            && !was_process_gone
        {
            was_process_gone = true;
            continue;
        }
        return Ok(FoundContainer::Container(Box::new(container), container_state));
    }
}

/// Reports whether the service runs, and starts watching it.
pub(super) async fn probe(context: &Arc<Context>, service: &ServiceDefinition) -> Observed {
    let Some(target) = Target::of(service) else { return Observed::NotRunning };
    let deadline = Instant::now() + MAX_TRANSITION;
    loop {
        match find(&context.client, &target).await {
            Ok(FoundContainer::Container(_, ContainerState::Runs(run))) => {
                context.watches.set_running(context, service, &target.name, run);
                return Observed::Running;
            }
            Ok(
                FoundContainer::Nothing
                | FoundContainer::Foreign
                | FoundContainer::Container(_, ContainerState::Ended(_)),
            ) => {
                context.watches.set_stopped(service, &target.name);
                return Observed::NotRunning;
            }
            Ok(FoundContainer::Container(_, ContainerState::Changing(_))) if Instant::now() < deadline => {
                sleep(POLL_INTERVAL).await;
            }
            Ok(FoundContainer::Container(_, ContainerState::Changing(state))) => {
                return Observed::Unknown(format!("container {} is {state}", target.name));
            }
            Err(_) if context.is_absent() => return Observed::NotRunning,
            Err(error) => return Observed::Unknown(error.to_string()),
        }
    }
}

/// Starts the service, or adopts it if it already runs.
pub(super) async fn start(context: &Arc<Context>, service: &ServiceDefinition) -> Result<(), DriverFailure> {
    let Some(target) = Target::of(service) else {
        return Err(failure(
            FailureClass::ConfigurationWrong,
            Reason::BadConfiguration,
            "spec.driver.podman requires image or container",
        ));
    };
    context.watches.set_busy(&service.name);
    let deadline = Instant::now() + Duration::from_millis(service.timeouts.start_ms());
    // The inner steps have the same time limit and report the condition that they waited for, so the outer limit is
    // longer.
    match timeout_at(deadline + POLL_INTERVAL, start_or_adopt(context, &target, deadline)).await {
        Ok(Ok(run)) => {
            context.watches.set_running(context, service, &target.name, run);
            Ok(())
        }
        Ok(Err(failure)) => Err(failure),
        Err(_) => {
            kill(context, service).await?;
            Err(retry_here(Reason::TimedOut, "service did not start within startSeconds and was killed"))
        }
    }
}

async fn start_or_adopt(
    context: &Context,
    target: &Target<'_>,
    deadline: Instant,
) -> Result<Run, DriverFailure> {
    let (client, name) = (&context.client, &target.name);
    loop {
        match find(client, target).await.map_err(|error| query_failure(&error))? {
            FoundContainer::Foreign => return Err(foreign_container_failure(name)),
            FoundContainer::Nothing if target.is_created_by_hactl() => {
                create(context, target, deadline).await?;
            }
            FoundContainer::Nothing => {
                let message = format!(
                    "container {name} does not exist on this node: create it with podman create, or set spec.driver.podman.image"
                );
                return Err(failure(FailureClass::NeverHere, Reason::NotInstalled, message));
            }
            FoundContainer::Container(_, ContainerState::Changing(_)) => {
                sleep(POLL_INTERVAL).await;
                continue;
            }
            FoundContainer::Container(container, ContainerState::Runs(run)) => {
                if !target.is_created_by_hactl() {
                    check_suitable(client, &container).await?;
                } else if container.definition() != Some(&definition::digest(target.podman)) {
                    // The container has another definition, for example after a change while no agent ran.
                    let graceful_ms = target.service.timeouts.stop_ms();
                    stop_container(context, target, graceful_ms).await?;
                    continue;
                }
                return wait_until_ready(client, target, run, deadline).await;
            }
            FoundContainer::Container(container, ContainerState::Ended(exit)) => {
                if target.is_created_by_hactl() {
                    // Every start begins with the content of the image.
                    stop_container(context, target, 0).await?;
                    continue;
                }
                if exit.unnoticed {
                    let message = format!(
                        "podman reports container {name} as running although its process and conmon were killed: remove it with podman rm -f {name}, and create it again"
                    );
                    return Err(failure(FailureClass::TryElsewhere, Reason::StartFailed, message));
                }
                check_suitable(client, &container).await?;
            }
        }
        let limit = deadline.saturating_duration_since(Instant::now());
        let started = client.start(name, limit).await;
        started.map_err(|error| start_failure(&format!("cannot start container {name}"), &error))?;
        // Find the new run, and wait until it is ready.
        sleep(POLL_INTERVAL).await;
        match find(client, target).await.map_err(|error| query_failure(&error))? {
            FoundContainer::Container(_, ContainerState::Runs(run)) => {
                return wait_until_ready(client, target, run, deadline).await;
            }
            FoundContainer::Container(_, ContainerState::Ended(exit)) => {
                return Err(early_end_failure(client, name, exit.code, &exit.describe()).await);
            }
            FoundContainer::Container(_, ContainerState::Changing(_)) => {}
            FoundContainer::Nothing | FoundContainer::Foreign => {
                return Err(retry_here(
                    Reason::StartFailed,
                    format!("container {name} was removed during its start"),
                ));
            }
        }
    }
}

/// Creates the container, and pulls its image if necessary.
async fn create(context: &Context, target: &Target<'_>, deadline: Instant) -> Result<(), DriverFailure> {
    let client = &context.client;
    for mount in &target.podman.mounts {
        if let Err(error) = tokio::fs::metadata(&mount.source).await {
            let message = format!("source {} of a mount does not exist on this node: {error}", mount.source);
            return Err(failure(FailureClass::NeverHere, Reason::BadConfiguration, message));
        }
    }
    let variables = context.settings.values.resolve(&target.podman.environment);
    let variables = variables.map_err(|error| {
        let message = format!("environment of container {}: {error}", target.name);
        failure(FailureClass::RetryHere, Reason::StartFailed, message)
    })?;
    let image = &target.podman.image;
    let has_image = client.has_image(image).await;
    if !has_image.map_err(|error| start_failure(&format!("cannot look up image {image}"), &error))? {
        pull(client, image, deadline).await?;
    }
    let body = definition::create_body(target.service, target.podman, &variables, &context.settings.node);
    let Err(error) = client.create(&body).await else { return Ok(()) };
    if error.to_string().contains("name is already in use")
        && matches!(client.inspect(&target.name).await, Ok(None))
    {
        // A power loss during an earlier creation left an unfinished container.
        let removed = client.remove(&target.name).await;
        tracing::info!(container = target.name, ?removed, "removed an incomplete container");
        return Err(retry_here(Reason::StartFailed, error.to_string()));
    }
    Err(start_failure(&format!("cannot create container {}", target.name), &error))
}

async fn pull(client: &Client, image: &str, deadline: Instant) -> Result<(), DriverFailure> {
    if image.starts_with("localhost/") {
        let message = format!("image {image} is not on this node: add it with podman load, import or build");
        return Err(failure(FailureClass::NeverHere, Reason::NotInstalled, message));
    }
    let limit = deadline.saturating_duration_since(Instant::now());
    let Ok(pulled) = timeout(limit, client.pull(image, limit)).await else {
        let message = format!(
            "image {image} was not pulled within startSeconds: pull it on the nodes in advance, or increase startSeconds"
        );
        return Err(failure(FailureClass::TryElsewhere, Reason::TimedOut, message));
    };
    pulled.map_err(|error| pull_failure(image, &error))
}

/// Checks that an existing container can be a service of hactl, and removes its restart policy if podman supports
/// that.
async fn check_suitable(client: &Client, container: &Container) -> Result<(), DriverFailure> {
    let name = &container.name;
    let unsuitable = |cause: &str| {
        failure(
            FailureClass::NeverHere,
            Reason::BadConfiguration,
            format!("container {name} cannot be used: {cause}"),
        )
    };
    if let Some(cause) = container.unsuitable_reason() {
        return Err(unsuitable(&cause));
    }
    let Some(policy) = container.restart_policy() else { return Ok(()) };
    let changed = client.disable_restarts(name).await;
    if changed.map_err(|error| start_failure("cannot change the restart policy of the container", &error))? {
        let now = client.inspect(name).await.map_err(|error| query_failure(&error))?;
        if now.is_some_and(|now| now.restart_policy().is_none()) {
            return Ok(());
        }
    }
    Err(unsuitable(&format!(
        "podman restarts it (--restart={policy}): run podman update --restart=no {name} (podman 5.1 and newer), or create it again with --restart=no"
    )))
}

/// Waits until the service is confirmed: its health check succeeds, or, without one, its container does not end
/// immediately.
async fn wait_until_ready(
    client: &Client,
    target: &Target<'_>,
    run: Run,
    deadline: Instant,
) -> Result<Run, DriverFailure> {
    let mut backoff = Backoff::new(READINESS_BACKOFF.0, READINESS_BACKOFF.1);
    let mut last_result = "nothing".to_owned();
    if target.podman.health_check.is_none() {
        sleep(MIN_RUN_TIME).await;
    }
    loop {
        match find(client, target).await.map_err(|error| query_failure(&error))? {
            FoundContainer::Container(_, ContainerState::Runs(now)) => {
                let Some(check) = &target.podman.health_check else { return Ok(now) };
                match timeout_at(deadline, health::run_health_check(client, &target.name, check)).await {
                    Ok(Health::Healthy) => return Ok(run),
                    Ok(Health::Unhealthy(cause) | Health::Unknown(cause)) => last_result = cause,
                    Ok(Health::Undefined) => {
                        let message = format!(
                            "container {} has no health check: create it with --health-cmd",
                            target.name
                        );
                        return Err(failure(FailureClass::NeverHere, Reason::BadConfiguration, message));
                    }
                    Err(_) => {}
                }
            }
            FoundContainer::Container(_, ContainerState::Ended(exit)) => {
                return Err(early_end_failure(client, &target.name, exit.code, &exit.describe()).await);
            }
            FoundContainer::Container(_, ContainerState::Changing(_)) => {}
            FoundContainer::Nothing | FoundContainer::Foreign => {
                return Err(retry_here(Reason::StartFailed, "container was removed during its start"));
            }
        }
        if Instant::now() >= deadline {
            let message =
                format!("container was not healthy in time, last result of the health check: {last_result}");
            return Err(retry_here(Reason::TimedOut, message));
        }
        tokio::time::sleep_until((Instant::now() + backoff.advance()).min(deadline)).await;
    }
}

async fn early_end_failure(client: &Client, name: &str, code: i32, exit_text: &str) -> DriverFailure {
    let last_output = client.last_output_suffix(name).await;
    early_exit_failure(code, &format!("{exit_text}{last_output}"))
}

/// Stops the service: gracefully for at most `graceful_ms`, then by force.
pub(super) async fn stop(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    graceful_ms: Millis,
) -> Result<(), DriverFailure> {
    context.watches.set_busy(&service.name);
    let Some(target) = Target::of(service) else { return Ok(()) };
    stop_container(context, &target, graceful_ms).await?;
    context.watches.set_stopped(service, &target.name);
    Ok(())
}

/// Kills the service immediately.
pub(super) async fn kill(context: &Arc<Context>, service: &ServiceDefinition) -> Result<(), DriverFailure> {
    stop(context, service, 0).await
}

/// Ends the container. Returns `Ok` once no process of the container runs and, if hactl created the container, it is
/// removed.
async fn stop_container(
    context: &Context,
    target: &Target<'_>,
    graceful_ms: Millis,
) -> Result<(), DriverFailure> {
    let (client, name) = (&context.client, &target.name);
    if graceful_ms > 0
        && let Ok(FoundContainer::Container(container, ContainerState::Runs(_))) = find(client, target).await
    {
        let graceful = Duration::from_millis(graceful_ms);
        let graceful_stop = async {
            if container.is_paused() {
                client.unpause(name).await?;
            }
            client.stop(name, graceful).await
        };
        // The loop below checks the container itself, and kills its remaining processes.
        if let Ok(Err(error)) = timeout(graceful, graceful_stop).await {
            tracing::warn!(resource = target.service.name.as_str(), %error, "podman failed to stop the container gracefully");
        }
    }
    let deadline = Instant::now() + KILL_TIMEOUT;
    let mut last_error = String::new();
    loop {
        let stop_result = match find(client, target).await {
            Ok(FoundContainer::Nothing | FoundContainer::Foreign) => return Ok(()),
            Ok(FoundContainer::Container(_, ContainerState::Ended(_))) if !target.is_created_by_hactl() => {
                return Ok(());
            }
            Ok(FoundContainer::Container(container, ContainerState::Runs(_))) => {
                match client.kill(name).await {
                    // In some versions of podman, the signal ends a paused container only after the container is
                    // resumed.
                    Err(_) if container.is_paused() => client.unpause(name).await,
                    stop_result => stop_result,
                }
            }
            // Wait for the change. A container that stays between two states is removed after half of the time.
            Ok(FoundContainer::Container(_, ContainerState::Changing(_)))
                if !target.is_created_by_hactl() || Instant::now() < deadline - KILL_TIMEOUT / 2 =>
            {
                Ok(())
            }
            Ok(FoundContainer::Container(_, ContainerState::Ended(_) | ContainerState::Changing(_))) => {
                client.remove(name).await
            }
            Err(_) if context.is_absent() => return Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = stop_result {
            last_error = format!(": {error}");
        }
        if Instant::now() > deadline {
            return Err(retry_here(
                Reason::StopFailed,
                format!("container {name} does not stop{last_error}"),
            ));
        }
        sleep(POLL_INTERVAL).await;
    }
}

fn foreign_container_failure(name: &str) -> DriverFailure {
    failure(
        FailureClass::NeverHere,
        Reason::BadConfiguration,
        format!(
            "container {name} on this node was not created by hactl for this resource: remove it with podman rm, or set another name in spec.driver.podman.container"
        ),
    )
}

fn query_failure(error: &ApiError) -> DriverFailure {
    retry_here(Reason::StartFailed, format!("cannot inspect the container: {error}"))
}
