//! Stopping a unit: by a job first, then by SIGKILL; done once systemd and the kernel agree that nothing is left.

use super::bus::{BusError, Session};
use super::group::describe;
use super::watch::{self, change};
use super::{Context, order};
use crate::core::DriverFailure;
use ha_api_types::driver::SystemdDriver as SystemdSpec;
use ha_api_types::reason::Reason;
use ha_api_types::record::FailureClass;
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::Millis;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How long killing may take: longer means that the kernel, or systemd, does not let go of it.
const KILLING: Duration = Duration::from_secs(10);
/// How long one look may take then, with a connection that is made for it.
const ANSWER: Duration = Duration::from_secs(4);
/// How often to look meanwhile.
const LOOK: Duration = Duration::from_millis(20);

/// Stops it: by a job of systemd's first, by SIGKILL after the time is up.
pub(super) async fn stop(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    spec: &SystemdSpec,
    graceful_ms: Millis,
) -> Result<(), DriverFailure> {
    let unit = spec.unit_name(&service.name);
    context.watches.end(&service.name);
    if graceful_ms > 0 {
        let until = Instant::now() + Duration::from_millis(graceful_ms);
        if let Ok(Err(error)) = timeout_at(until, ask_to_end(context, &unit)).await {
            tracing::warn!(resource = service.name, unit, %error, "it could not be asked to stop");
        }
    }
    kill(context, service, spec).await
}

/// Asks for a stop, and waits for its end.
async fn ask_to_end(context: &Context, unit: &str) -> Result<(), BusError> {
    let session = context.bus.session().await?;
    let mut signals = session.signals();
    let path = session.load(unit).await?;
    let mut is_asked = false;
    loop {
        let state = session.state(&path, unit).await?;
        context.remember_group(unit, &state.group);
        if state.has_ended() && state.job == 0 {
            return Ok(());
        }
        if !is_asked {
            let mode = order::stop_mode(&session).await?;
            session.stop(unit, mode).await?;
            is_asked = true;
            continue;
        }
        change(&session, &mut signals, path.as_str(), unit, Instant::now() + Duration::from_secs(1)).await;
    }
}

/// Kills it and keeps systemd from restarting it; `Ok` once nothing is left.
pub(super) async fn kill(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    spec: &SystemdSpec,
) -> Result<(), DriverFailure> {
    let unit = spec.unit_name(&service.name);
    context.watches.end(&service.name);
    let until = Instant::now() + KILLING;
    let mut is_asked = false;
    // At once, and whether or not systemd answers. What it restarts until it is asked for a stop is killed then.
    let _ = context.groups.kill(&context.group_of(&unit));
    loop {
        let looked = timeout(ANSWER, end_hard(context, &unit, &mut is_asked)).await;
        let left = match looked {
            Ok(Ok(None)) => break,
            Ok(Ok(Some(left))) => left,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("systemd did not answer within {} s", ANSWER.as_secs()),
        };
        let _ = context.groups.kill(&context.group_of(&unit));
        if Instant::now() > until {
            return Err(not_stopped(&unit, &left));
        }
        sleep(LOOK).await;
    }
    if !spec.command.is_empty()
        && let Ok(session) = context.bus.session().await
    {
        release(&session, &unit).await;
    }
    watch::begin(context, service, &unit, false);
    Ok(())
}

/// Looks what is left and kills it; `None`: nothing is.
async fn end_hard(context: &Context, unit: &str, is_asked: &mut bool) -> Result<Option<String>, BusError> {
    let session = context.bus.session().await?;
    let state = session.unit(unit).await?;
    context.remember_group(unit, &state.group);
    if state.has_ended() && state.job == 0 {
        let group = context.group_of(unit);
        return Ok(match context.groups.members(&group) {
            Ok(pids) if pids.is_empty() => None,
            Ok(pids) => Some(format!("left are {}", describe(&pids))),
            Err(error) => Some(format!("its control group cannot be read: {error}")),
        });
    }
    if !*is_asked {
        // Before the kill, so that systemd does not restart it.
        let mode = order::stop_mode(&session).await?;
        session.stop(unit, mode).await?;
        *is_asked = true;
    }
    // There may be nothing left to kill while systemd takes note of that.
    let _ = session.kill(unit).await;
    Ok(Some(format!("it is {}", state.words)))
}

impl Context {
    /// Kills what an earlier run left behind: never beside something old.
    pub(super) async fn clear_group(&self, unit: &str, group: &str) -> Result<(), DriverFailure> {
        self.remember_group(unit, group);
        let group = self.group_of(unit);
        let until = Instant::now() + KILLING;
        loop {
            match self.groups.members(&group) {
                Ok(pids) if pids.is_empty() => return Ok(()),
                Ok(pids) if Instant::now() > until => {
                    return Err(not_stopped(unit, &format!("left are {}", describe(&pids))));
                }
                Ok(_) => {}
                Err(error) => {
                    return Err(not_stopped(unit, &format!("its control group cannot be read: {error}")));
                }
            }
            let _ = self.groups.kill(&group);
            sleep(LOOK).await;
        }
    }
}

/// Lets systemd forget a transient unit that has ended. What is not so is no error.
pub(super) async fn release(session: &Session, unit: &str) {
    let _ = session.reset_failed(unit).await;
    // Each start of ours keeps it once.
    while session.unref(unit).await.is_ok() {}
}

fn not_stopped(unit: &str, left: &str) -> DriverFailure {
    DriverFailure {
        class: FailureClass::RetryHere,
        reason: Reason::StopFailed,
        message: format!("{unit} does not end: {left}"),
    }
}
