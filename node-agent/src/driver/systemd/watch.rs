//! Watching units: systemd tells when one changes; it is asked now and then in case that was missed.

use super::Context;
use super::bus::{BusError, Session, Signal};
use super::state::UnitState;
use super::verdict::{Standing, how_it_ended, is_by_hand, standing};
use crate::core::DriverEvent;
use ha_api_types::resource::ServiceDefinition;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout_at};

/// How often a unit is looked at of which nothing is heard.
const POLL: Duration = Duration::from_secs(10);
/// How long to wait before a connection that could not be made is tried again.
const AGAIN: Duration = Duration::from_secs(2);

/// Watches a unit of which it was just seen whether it runs. A watch from before ends.
pub(super) fn begin(context: &Arc<Context>, service: &ServiceDefinition, unit: &str, runs: bool) {
    context.watches.end(&service.name);
    // The task must not keep the driver alive: it ends with it.
    let watch = || watch(Arc::downgrade(context), service.clone(), unit.to_owned(), runs);
    context.watches.ensure(&service.name, (), watch);
}

/// What a watch has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Track {
    runs: bool,
    /// A job of the unit was seen since it last ran without one; or it may have been missed.
    told: bool,
}

/// A change that nobody asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Noticed {
    Exited { message: String, by_hand: bool },
    Appeared,
}

impl Track {
    fn notice(&mut self, state: &UnitState) -> Option<Noticed> {
        match standing(state) {
            Standing::Running => {
                self.told &= state.job != 0;
                let appeared = !self.runs;
                self.runs = true;
                appeared.then_some(Noticed::Appeared)
            }
            // With a job left, as that of a restart, it is on its way.
            Standing::Ended if self.runs && state.job == 0 => {
                self.runs = false;
                let by_hand = is_by_hand(state, self.told);
                let message = if by_hand {
                    "a stop that hactl did not ask systemd for".to_owned()
                } else {
                    how_it_ended(state)
                };
                Some(Noticed::Exited { message, by_hand })
            }
            Standing::Ended | Standing::Ending | Standing::Unclear => None,
        }
    }
}

async fn watch(context: Weak<Context>, service: ServiceDefinition, unit: String, runs: bool) {
    let mut track = Track { runs, told: false };
    loop {
        if let Err(error) = watch_once(&context, &service, &unit, &mut track).await {
            tracing::debug!(resource = service.name, unit, %error, "the unit is not watched");
        }
        if context.strong_count() == 0 {
            return;
        }
        // Whatever is missed until the next connection.
        track.told = true;
        tokio::time::sleep(AGAIN).await;
    }
}

/// Watches until the connection breaks or the driver is gone.
async fn watch_once(
    context: &Weak<Context>,
    service: &ServiceDefinition,
    unit: &str,
    track: &mut Track,
) -> Result<(), BusError> {
    let session = match context.upgrade() {
        Some(context) => context.bus.session().await?,
        None => return Ok(()),
    };
    let mut signals = session.signals();
    let path = session.load(unit).await?;
    // Without, it is only known that it ended, and not how.
    let _ = session.keep(unit).await;
    while !session.connection.is_closed() {
        let state = session.state(&path, unit).await?;
        if state.has_ended() && track.runs {
            // systemd tells of the job after what came of it.
            track.told |= job_was_made(&session, &mut signals, unit).await?;
        }
        let Some(context) = context.upgrade() else { return Ok(()) };
        context.remember_group(unit, &state.group);
        if let Some(noticed) = track.notice(&state) {
            tracing::debug!(resource = service.name, unit, ?noticed, words = state.words, "noticed");
            let (name, uid) = (service.name.clone(), service.uid.clone());
            // The receiver is gone only when the agent is ending.
            let _ = context.events.send(match noticed {
                Noticed::Exited { message, by_hand } => DriverEvent::Exited { name, uid, message, by_hand },
                Noticed::Appeared => DriverEvent::Appeared { name, uid },
            });
        }
        drop(context);
        let until = Instant::now() + POLL;
        match change(&session, &mut signals, path.as_str(), unit, until).await {
            Change::Job | Change::Missed => track.told = true,
            Change::Properties | Change::Nothing => {}
        }
    }
    Ok(())
}

/// What was heard of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// A job for it began.
    Job,
    /// It has changed, or a job of it ended.
    Properties,
    /// Something may have been missed.
    Missed,
    /// The time is up.
    Nothing,
}

/// Waits until something is heard of a unit.
pub(super) async fn change(
    session: &Session,
    signals: &mut Receiver<Signal>,
    path: &str,
    unit: &str,
    until: Instant,
) -> Change {
    let heard = async {
        loop {
            match signals.recv().await {
                Ok(Signal::JobNew { unit: of }) if of == unit => return Change::Job,
                Ok(Signal::JobRemoved { unit: of, .. }) if of == unit => return Change::Properties,
                Ok(Signal::Changed { path: of }) if of == path => return Change::Properties,
                Ok(
                    Signal::JobNew { .. }
                    | Signal::JobRemoved { .. }
                    | Signal::Changed { .. }
                    | Signal::Answered { .. },
                ) => {}
                Err(RecvError::Lagged(_)) => return Change::Missed,
                // Nothing comes any more; the connection is found to be closed.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    };
    let heard_or_closed = async {
        tokio::select! {
            change = heard => change,
            () = session.connection.closed() => Change::Missed,
        }
    };
    timeout_at(until, heard_or_closed).await.unwrap_or(Change::Nothing)
}

/// Whether, among what was said until now and not yet heard, a job of the unit was made; or that may have been missed.
async fn job_was_made(
    session: &Session,
    signals: &mut Receiver<Signal>,
    unit: &str,
) -> Result<bool, BusError> {
    let asked = session.question().await?;
    let mut made = false;
    loop {
        match signals.recv().await {
            Ok(Signal::JobNew { unit: of }) => made |= of == unit,
            Ok(Signal::Answered { question }) if question == asked => return Ok(made),
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
            // It ends after it was told to.
            (state.active_until_us, service.main_ended_us) = (10, 20);
        }
        state
    }

    /// Whether it ran at first; then states, and what is noticed in the last. A job's beginning is heard before the state that it is in.
    fn check(runs: bool, states: &[(&str, u32)], expected: Option<&Noticed>) {
        let mut track = Track { runs, told: false };
        let mut last = None;
        for (active, job) in states {
            if *job != 0 {
                track.told = true;
            }
            last = track.notice(&state(active, *job));
        }
        assert_eq!(last.as_ref(), expected, "{states:?}");
    }

    #[test]
    fn changes_are_noticed_once_and_judged() {
        let crash = Noticed::Exited { message: "it ended".to_owned(), by_hand: false };
        let by_hand = Noticed::Exited {
            message: "a stop that hactl did not ask systemd for".to_owned(),
            by_hand: true,
        };
        check(true, &[("active", 0)], None);
        check(true, &[("failed", 0)], Some(&crash));
        check(true, &[("failed", 0), ("failed", 0)], None);
        check(true, &[("deactivating", 0), ("inactive", 0)], Some(&crash));
        // systemctl stop.
        check(true, &[("active", 7), ("deactivating", 7), ("inactive", 0)], Some(&by_hand));
        // systemctl restart: it is never gone.
        check(true, &[("active", 7), ("deactivating", 7), ("inactive", 7), ("active", 0)], None);
        // systemd's own restart, and then a crash for good.
        check(true, &[("activating", 0), ("activating", 7), ("active", 0), ("failed", 0)], Some(&crash));
        check(false, &[("inactive", 0)], None);
        check(false, &[("inactive", 7)], None);
        check(false, &[("activating", 7)], Some(&Noticed::Appeared));
        check(false, &[("activating", 7), ("active", 0)], None);
    }
}
