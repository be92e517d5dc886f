//! Watches of units: systemd signals changes, and a poll finds those that were missed.

use super::Context;
use super::bus::{BusError, Session, Signal};
use super::state::UnitState;
use super::verdict::{RunState, end_description, is_stopped_externally, run_state};
use crate::core::DriverEvent;
use ha_api_types::resource::ServiceDefinition;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout_at};

/// Interval between queries of a unit without signals.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Delay before a failed connection is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// Starts to watch a unit whose state `runs` was just seen, and ends an earlier watch.
pub(super) fn begin(context: &Arc<Context>, service: &ServiceDefinition, unit: &str, is_running: bool) {
    context.watches.end(&service.name);
    // A strong reference in the task would keep the driver alive.
    let watch = || watch(Arc::downgrade(context), service.clone(), unit.to_owned(), is_running);
    context.watches.ensure(&service.name, (), watch);
}

/// State that a watch has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WatchState {
    is_running: bool,
    /// `true` if a job of the unit was seen since the unit last ran without a job, or if such a job may have been
    /// missed.
    is_job_observed: bool,
}

/// A change that hactl did not request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ReportedChange {
    Exited { message: String, stopped_externally: bool },
    Appeared,
}

impl WatchState {
    fn update(&mut self, state: &UnitState) -> Option<ReportedChange> {
        match run_state(state) {
            RunState::Running => {
                self.is_job_observed &= state.job != 0;
                let appeared = !self.is_running;
                self.is_running = true;
                appeared.then_some(ReportedChange::Appeared)
            }
            // With a job left, such as that of a restart, the unit is still changing.
            RunState::Ended if self.is_running && state.job == 0 => {
                self.is_running = false;
                let stopped_externally = is_stopped_externally(state, self.is_job_observed);
                let message = if stopped_externally {
                    "systemd stopped the unit without a request from hactl".to_owned()
                } else {
                    end_description(state)
                };
                Some(ReportedChange::Exited { message, stopped_externally })
            }
            RunState::Ended | RunState::Ending | RunState::Unclear => None,
        }
    }
}

async fn watch(context: Weak<Context>, service: ServiceDefinition, unit: String, is_running: bool) {
    let mut watch_state = WatchState { is_running, is_job_observed: false };
    loop {
        if let Err(error) = watch_once(&context, &service, &unit, &mut watch_state).await {
            tracing::debug!(resource = service.name.as_str(), unit, %error, "cannot watch the unit");
        }
        if context.strong_count() == 0 {
            return;
        }
        // A job may be missed until the next connection.
        watch_state.is_job_observed = true;
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

/// Watches the unit until the connection is lost or the driver is dropped.
async fn watch_once(
    context: &Weak<Context>,
    service: &ServiceDefinition,
    unit: &str,
    watch_state: &mut WatchState,
) -> Result<(), BusError> {
    let session = match context.upgrade() {
        Some(context) => context.bus.session().await?,
        None => return Ok(()),
    };
    let mut signals = session.signals();
    let path = session.load(unit).await?;
    // Without this call, only the end of the unit is known, and not its cause.
    let _ = session.add_ref(unit).await;
    while !session.connection.is_closed() {
        let state = session.state(&path, unit).await?;
        if state.has_ended() && watch_state.is_running {
            // systemd sends the signal about a job after the signals about the effects of the job.
            watch_state.is_job_observed |= check_for_new_job(&session, &mut signals, unit).await?;
        }
        let Some(context) = context.upgrade() else { return Ok(()) };
        context.cache_control_group(unit, &state.group);
        if let Some(change) = watch_state.update(&state) {
            tracing::debug!(
                resource = service.name.as_str(),
                unit,
                ?change,
                words = state.description,
                "noticed"
            );
            let (name, uid) = (service.name.clone(), service.uid.clone());
            // Sending fails only when the agent is ending.
            let _ = context.events.send(match change {
                ReportedChange::Exited { message, stopped_externally } => {
                    DriverEvent::Exited { name, uid, message, stopped_externally }
                }
                ReportedChange::Appeared => DriverEvent::Appeared { name, uid },
            });
        }
        drop(context);
        let deadline = Instant::now() + POLL_INTERVAL;
        match wait_for_change(&session, &mut signals, path.as_str(), unit, deadline).await {
            UnitChange::Job | UnitChange::Missed => watch_state.is_job_observed = true,
            UnitChange::Properties | UnitChange::Nothing => {}
        }
    }
    Ok(())
}

/// A signal about a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitChange {
    /// A job for the unit was created.
    Job,
    /// The unit has changed, or a job of it has ended.
    Properties,
    /// A signal may have been missed.
    Missed,
    /// The time limit has passed.
    Nothing,
}

/// Waits for a signal about a unit, at most until `deadline`.
pub(super) async fn wait_for_change(
    session: &Session,
    signals: &mut Receiver<Signal>,
    path: &str,
    unit: &str,
    deadline: Instant,
) -> UnitChange {
    let changed = async {
        loop {
            match signals.recv().await {
                Ok(Signal::JobNew { unit: of }) if of == unit => return UnitChange::Job,
                Ok(Signal::JobRemoved { unit: of, .. }) if of == unit => return UnitChange::Properties,
                Ok(Signal::Changed { path: of }) if of == path => return UnitChange::Properties,
                Ok(
                    Signal::JobNew { .. }
                    | Signal::JobRemoved { .. }
                    | Signal::Changed { .. }
                    | Signal::Answered { .. },
                ) => {}
                Err(RecvError::Lagged(_)) => return UnitChange::Missed,
                // No further signals arrive; the caller detects the closed connection.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    };
    let changed_or_closed = async {
        tokio::select! {
            change = changed => change,
            () = session.connection.closed() => UnitChange::Missed,
        }
    };
    timeout_at(deadline, changed_or_closed).await.unwrap_or(UnitChange::Nothing)
}

/// Reads all signals that were sent until now. Returns `true` if a signal reports a new job of the unit, or if such a
/// signal may have been missed.
async fn check_for_new_job(
    session: &Session,
    signals: &mut Receiver<Signal>,
    unit: &str,
) -> Result<bool, BusError> {
    let asked_serial = session.ping().await?;
    let mut has_new_job = false;
    loop {
        match signals.recv().await {
            Ok(Signal::JobNew { unit: job_unit }) => has_new_job |= job_unit == unit,
            Ok(Signal::Answered { serial }) if serial == asked_serial => return Ok(has_new_job),
            Ok(Signal::JobRemoved { .. } | Signal::Changed { .. } | Signal::Answered { .. }) => {}
            Err(RecvError::Lagged(_) | RecvError::Closed) => return Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::testing::unit;
    use super::*;
    use zbus::zvariant::{ObjectPath, StructureBuilder, Value};

    fn state(active: &str, job: u32) -> UnitState {
        let job = StructureBuilder::new()
            .add_field(job)
            .add_field(ObjectPath::try_from("/").unwrap())
            .build()
            .unwrap();
        let mut state = unit(&[("ActiveState", Value::from(active)), ("Job", Value::from(job))]);
        state.result = "success".to_owned();
        if let Some(service) = &mut state.service {
            // The end of the process follows the request.
            (state.active_until_us, service.main_ended_us) = (10, 20);
        }
        state
    }

    /// Checks the change that is detected in the last of the states; `runs` is the state before them. The signal about
    /// a new job precedes the state with that job.
    fn check(is_running: bool, states: &[(&str, u32)], expected: Option<&ReportedChange>) {
        let mut watch_state = WatchState { is_running, is_job_observed: false };
        let mut last = None;
        for (active, job) in states {
            if *job != 0 {
                watch_state.is_job_observed = true;
            }
            last = watch_state.update(&state(active, *job));
        }
        assert_eq!(last.as_ref(), expected, "{states:?}");
    }

    #[test]
    fn unit_changes_are_reported_once() {
        let crash =
            ReportedChange::Exited { message: "service exited".to_owned(), stopped_externally: false };
        let stopped_externally = ReportedChange::Exited {
            message: "systemd stopped the unit without a request from hactl".to_owned(),
            stopped_externally: true,
        };
        check(true, &[("active", 0)], None);
        check(true, &[("failed", 0)], Some(&crash));
        check(true, &[("failed", 0), ("failed", 0)], None);
        check(true, &[("deactivating", 0), ("inactive", 0)], Some(&crash));
        // systemctl stop.
        check(true, &[("active", 7), ("deactivating", 7), ("inactive", 0)], Some(&stopped_externally));
        // systemctl restart: the unit does not end.
        check(true, &[("active", 7), ("deactivating", 7), ("inactive", 7), ("active", 0)], None);
        // systemd's own restart, followed by a crash without a restart.
        check(true, &[("activating", 0), ("activating", 7), ("active", 0), ("failed", 0)], Some(&crash));
        check(false, &[("inactive", 0)], None);
        check(false, &[("inactive", 7)], None);
        check(false, &[("activating", 7)], Some(&ReportedChange::Appeared));
        check(false, &[("activating", 7), ("active", 0)], None);
    }
}
