//! Stops a unit by a systemd job, and then by SIGKILL, until neither systemd nor the kernel reports a process of it.

use super::bus::{BusError, Session};
use super::group::describe;
use super::watch::{self, wait_for_change};
use super::{Context, shutdown_order};
use crate::core::DriverFailure;
use ha_api_types::driver::SystemdDriver as SystemdSpec;
use ha_api_types::reason::Reason;
use ha_api_types::record::FailureClass;
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::Millis;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Time limit of a kill; a unit that takes longer is stuck in the kernel or in systemd.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of one query during a kill, including a new connection.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// Interval between queries during a kill.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Stops the unit: first by a job of systemd, then by SIGKILL after `graceful_ms`.
pub(super) async fn stop(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    spec: &SystemdSpec,
    graceful_ms: Millis,
) -> Result<(), DriverFailure> {
    let unit = spec.unit_name(&service.name);
    context.watches.end(&service.name);
    if graceful_ms > 0 {
        let deadline = Instant::now() + Duration::from_millis(graceful_ms);
        if let Ok(Err(error)) = timeout_at(deadline, request_stop(context, &unit)).await {
            tracing::warn!(resource = service.name.as_str(), unit, %error, "cannot request a stop of the unit");
        }
    }
    kill(context, service, spec).await
}

/// Requests a stop, and waits for the end of the unit.
async fn request_stop(context: &Context, unit: &str) -> Result<(), BusError> {
    let session = context.bus.session().await?;
    let mut signals = session.signals();
    let path = session.load(unit).await?;
    let mut stop_requested = false;
    loop {
        let state = session.state(&path, unit).await?;
        context.cache_control_group(unit, &state.group);
        if state.has_ended() && state.job == 0 {
            return Ok(());
        }
        if !stop_requested {
            let mode = shutdown_order::stop_mode(&session).await?;
            session.stop(unit, mode).await?;
            stop_requested = true;
            continue;
        }
        wait_for_change(&session, &mut signals, path.as_str(), unit, Instant::now() + Duration::from_secs(1))
            .await;
    }
}

/// Kills the unit, and prevents systemd from restarting it. Returns `Ok` once no process of the unit remains.
pub(super) async fn kill(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    spec: &SystemdSpec,
) -> Result<(), DriverFailure> {
    let unit = spec.unit_name(&service.name);
    context.watches.end(&service.name);
    let deadline = Instant::now() + KILL_TIMEOUT;
    let mut stop_requested = false;
    // Kill immediately, even if systemd does not answer. Processes that systemd restarts before the stop job are
    // killed below.
    let _ = context.groups.kill(&context.group_of(&unit));
    loop {
        let attempt = timeout(ANSWER_TIMEOUT, force_stop_once(context, &unit, &mut stop_requested)).await;
        let remaining = match attempt {
            Ok(Ok(None)) => break,
            Ok(Ok(Some(remaining))) => remaining,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("systemd did not respond within {} s", ANSWER_TIMEOUT.as_secs()),
        };
        let _ = context.groups.kill(&context.group_of(&unit));
        if Instant::now() > deadline {
            return Err(stop_failure(&unit, &remaining));
        }
        sleep(POLL_INTERVAL).await;
    }
    if !spec.command.is_empty()
        && let Ok(session) = context.bus.session().await
    {
        release_unit(&session, &unit).await;
    }
    watch::begin(context, service, &unit, false);
    Ok(())
}

/// Checks the unit, requests a stop, and kills its processes. Returns `None` once no process of the unit remains.
async fn force_stop_once(
    context: &Context,
    unit: &str,
    stop_requested: &mut bool,
) -> Result<Option<String>, BusError> {
    let session = context.bus.session().await?;
    let state = session.unit(unit).await?;
    context.cache_control_group(unit, &state.group);
    if state.has_ended() && state.job == 0 {
        let group = context.group_of(unit);
        return Ok(match context.groups.members(&group) {
            Ok(pids) if pids.is_empty() => None,
            Ok(pids) => Some(format!("remaining {}", describe(&pids))),
            Err(error) => Some(format!("cannot read its control group: {error}")),
        });
    }
    if !*stop_requested {
        // The stop is requested before the kill, so that systemd does not restart the unit.
        let mode = shutdown_order::stop_mode(&session).await?;
        session.stop(unit, mode).await?;
        *stop_requested = true;
    }
    // The kill fails if no process remains, and systemd has not yet updated its state.
    let _ = session.kill(unit).await;
    Ok(Some(format!("unit is {}", state.description)))
}

impl Context {
    /// Kills leftover processes of an earlier run, because a new run must not overlap with them.
    pub(super) async fn kill_group_leftovers(&self, unit: &str, group: &str) -> Result<(), DriverFailure> {
        self.cache_control_group(unit, group);
        let group = self.group_of(unit);
        let deadline = Instant::now() + KILL_TIMEOUT;
        loop {
            match self.groups.members(&group) {
                Ok(pids) if pids.is_empty() => return Ok(()),
                Ok(pids) if Instant::now() > deadline => {
                    return Err(stop_failure(unit, &format!("remaining {}", describe(&pids))));
                }
                Ok(_) => {}
                Err(error) => {
                    return Err(stop_failure(unit, &format!("cannot read its control group: {error}")));
                }
            }
            let _ = self.groups.kill(&group);
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// Releases a transient unit that has ended, so that systemd unloads it. Errors are ignored, because the unit may be
/// neither failed nor referenced.
pub(super) async fn release_unit(session: &Session, unit: &str) {
    let _ = session.reset_failed(unit).await;
    // Each start by the agent adds one reference.
    while session.unref(unit).await.is_ok() {}
}

fn stop_failure(unit: &str, remaining: &str) -> DriverFailure {
    DriverFailure {
        class: FailureClass::RetryHere,
        reason: Reason::StopFailed,
        message: format!("{unit} does not stop: {remaining}"),
    }
}
