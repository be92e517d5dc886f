//! Start or adoption of a unit.

use super::bus::{BusError, Session};
use super::manager::Job;
use super::state::{ActiveState, UnitState};
use super::stop::release_unit;
use super::verdict::{
    JobResult, RunState, never_here_failure, refusal, run_state, start_failure, unit_name_conflict,
};
use super::watch::{self, wait_for_change};
use super::{Context, boot, bus_failure, shutdown_order, transient};
use crate::core::DriverFailure;
use ha_api_types::driver::{SystemdDriver as SystemdSpec, is_essential_unit};
use ha_api_types::reason::Reason;
use ha_api_types::record::FailureClass;
use ha_api_types::resource::ServiceDefinition;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Time after the start before which the end of a process counts as a failed start.
const MIN_RUN_TIME: Duration = Duration::from_millis(100);
/// Time limit for systemd to unload a transient unit that has ended.
const UNLOAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between queries of changes that have no signal.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Starts the unit, or adopts it. Returns `Ok` once the unit is active and has not ended immediately.
pub(super) async fn start(
    context: &Arc<Context>,
    service: &ServiceDefinition,
    spec: &SystemdSpec,
) -> Result<(), DriverFailure> {
    let unit = spec.unit_name(&service.name);
    context.watches.end(&service.name);
    let limit = Duration::from_millis(service.timeouts.start_ms());
    let started = timeout(limit, start_or_adopt(context, service, spec, &unit)).await.unwrap_or_else(|_| {
        Err(DriverFailure {
            class: FailureClass::RetryHere,
            reason: Reason::TimedOut,
            message: format!(
                "{unit} was not active within startSeconds ({} s); run journalctl -u {unit}",
                limit.as_secs_f64()
            ),
        })
    });
    started?;
    watch::begin(context, service, &unit, true);
    Ok(())
}

async fn start_or_adopt(
    context: &Context,
    service: &ServiceDefinition,
    spec: &SystemdSpec,
    unit: &str,
) -> Result<(), DriverFailure> {
    let session = context.bus.session().await.map_err(|error| bus_failure(&error))?;
    let agent_unit = shutdown_order::own_unit(&session).await.map_err(|error| bus_failure(&error))?;
    let agent_unit = agent_unit.as_ref().map(|agent_unit| agent_unit.id.as_str());
    let state = session.unit(unit).await.map_err(|error| bus_failure(&error))?;
    if is_essential_unit(&state.id) || agent_unit == Some(state.id.as_str()) {
        let message = format!("{unit} is {}, which the node requires, so it cannot be a service", state.id);
        return Err(never_here_failure(Reason::BadConfiguration, message));
    }
    let job = if spec.command.is_empty() {
        start_node_unit(context, &session, spec, unit, &state, agent_unit).await?
    } else {
        start_transient_unit(context, &session, service, spec, unit, &state, agent_unit).await?
    };
    let result = match job {
        Some(job) => job.wait_for_end().await,
        None => JobResult::Done,
    };
    wait_until_active(context, &session, unit, &result).await
}

/// Starts a unit of the node. Returns `None` if the unit is already active.
async fn start_node_unit(
    context: &Context,
    session: &Session,
    spec: &SystemdSpec,
    unit: &str,
    state: &UnitState,
    agent_unit: Option<&str>,
) -> Result<Option<Job>, DriverFailure> {
    let is_active = state.active == ActiveState::Active;
    // An active unit is adopted even if its unit file was removed in the meantime.
    if let Some(failure) = refusal(unit, state).filter(|_| !is_active) {
        return Err(failure);
    }
    let prepared = async {
        let mut automatic_starts = boot::automatic_starts(session, unit, state).await?;
        if spec.disable_at_boot {
            automatic_starts = boot::disable(session, unit, automatic_starts).await?;
        }
        if automatic_starts.is_empty()
            && let Some(agent) = agent_unit
        {
            shutdown_order::ensure_ordered_before_agent(session, &state.id, state, agent).await?;
        }
        Ok(automatic_starts)
    };
    let automatic_starts = prepared.await.map_err(|error: BusError| bus_failure(&error))?;
    if let Some(failure) = boot::refusal(&automatic_starts, spec.disable_at_boot) {
        return Err(failure);
    }
    if is_active {
        return Ok(None);
    }
    if state.has_ended() {
        context.kill_group_leftovers(unit, &state.group).await?;
        // The unit may have exceeded systemd's limit of starts, which this call resets.
        let _ = session.reset_failed(unit).await;
    }
    session.start(unit).await.map(Some).map_err(|error| refused(unit, &error))
}

/// Starts a transient unit. Returns `None` if the unit is already active.
async fn start_transient_unit(
    context: &Context,
    session: &Session,
    service: &ServiceDefinition,
    spec: &SystemdSpec,
    unit: &str,
    state: &UnitState,
    agent_unit: Option<&str>,
) -> Result<Option<Job>, DriverFailure> {
    if let Some(failure) = unit_name_conflict(unit, state) {
        return Err(failure);
    }
    match state.active {
        ActiveState::Active => {
            // This call keeps the reason for the unit's end readable. Without the call, only the end itself is known.
            let _ = session.add_ref(unit).await;
            return Ok(None);
        }
        ActiveState::Activating => {
            return session.start(unit).await.map(Some).map_err(|error| refused(unit, &error));
        }
        ActiveState::Inactive | ActiveState::Failed | ActiveState::Deactivating | ActiveState::Unknown => {}
    }
    context.kill_group_leftovers(unit, &state.group).await?;
    let mut properties = transient::properties(service, spec, &context.settings.node, agent_unit);
    // This property keeps the cause of the unit's end readable until the unit is released.
    properties.push(("AddRef", true.into()));
    let deadline = Instant::now() + UNLOAD_TIMEOUT;
    loop {
        release_unit(session, unit).await;
        match session.start_transient(unit, &properties).await {
            Ok(job) => return Ok(Some(job)),
            // systemd has not unloaded the previous unit yet.
            Err(error) if error.has_name("UnitExists") && Instant::now() < deadline => {
                sleep(POLL_INTERVAL).await;
            }
            Err(error) => return Err(refused(unit, &error)),
        }
    }
}

/// Waits until the unit is active and has not ended immediately. systemd may restart the unit in the meantime.
async fn wait_until_active(
    context: &Context,
    session: &Session,
    unit: &str,
    result: &JobResult,
) -> Result<(), DriverFailure> {
    let mut signals = session.signals();
    let path = session.load(unit).await.map_err(|error| bus_failure(&error))?;
    let mut active_since = None;
    loop {
        let state = session.state(&path, unit).await.map_err(|error| bus_failure(&error))?;
        context.cache_control_group(unit, &state.group);
        let now = Instant::now();
        let mut refreshed_state = now + Duration::from_secs(1);
        match run_state(&state) {
            RunState::Running if state.active == ActiveState::Active => {
                let first_active_at = *active_since.get_or_insert(now);
                if !counts_as_started_early(&state) || now >= first_active_at + MIN_RUN_TIME {
                    return Ok(());
                }
                refreshed_state = first_active_at + MIN_RUN_TIME;
            }
            RunState::Ended if state.job == 0 => return Err(start_failure(unit, result, &state)),
            RunState::Running | RunState::Ending | RunState::Ended | RunState::Unclear => active_since = None,
        }
        wait_for_change(session, &mut signals, path.as_str(), unit, refreshed_state).await;
    }
}

/// Returns `true` if the unit counts as started before its program reports readiness.
fn counts_as_started_early(state: &UnitState) -> bool {
    state.service.as_ref().is_some_and(|service| matches!(service.kind.as_str(), "simple" | "exec" | "idle"))
}

/// Returns the failure for systemd's error answer to a start.
fn refused(unit: &str, error: &BusError) -> DriverFailure {
    let (class, reason) = match error {
        BusError::Refused { .. } if error.has_name("NoSuchUnit") => {
            (FailureClass::NeverHere, Reason::NotInstalled)
        }
        BusError::Refused { .. }
            if [
                "UnitMasked",
                "BadUnitSetting",
                "LoadFailed",
                "InvalidArgs",
                "PropertyReadOnly",
                "OnlyByDependency",
            ]
            .iter()
            .any(|word| error.has_name(word)) =>
        {
            (FailureClass::NeverHere, Reason::BadConfiguration)
        }
        // The machine is shutting down.
        BusError::Refused { .. }
            if error.has_name("TransactionIsDestructive") || error.has_name("ShuttingDown") =>
        {
            (FailureClass::TryElsewhere, Reason::StartFailed)
        }
        BusError::Refused { .. } | BusError::Unreachable(_) => (FailureClass::RetryHere, Reason::StartFailed),
    };
    DriverFailure { class, reason, message: format!("{unit}: {error}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_errors_map_to_failure_classes() {
        for (name, class, reason) in [
            ("org.freedesktop.systemd1.NoSuchUnit", FailureClass::NeverHere, Reason::NotInstalled),
            ("org.freedesktop.systemd1.UnitMasked", FailureClass::NeverHere, Reason::BadConfiguration),
            ("org.freedesktop.DBus.Error.InvalidArgs", FailureClass::NeverHere, Reason::BadConfiguration),
            (
                "org.freedesktop.systemd1.TransactionIsDestructive",
                FailureClass::TryElsewhere,
                Reason::StartFailed,
            ),
            ("org.freedesktop.DBus.Error.NoMemory", FailureClass::RetryHere, Reason::StartFailed),
        ] {
            let error = BusError::Refused { name: name.to_owned(), message: "because".to_owned() };
            let failure = refused("web.service", &error);
            assert_eq!((failure.class, failure.reason), (class, reason), "{name}");
            assert_eq!(failure.message, "web.service: systemd rejected the request: because");
        }
    }
}
