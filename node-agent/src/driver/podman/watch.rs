//! Watching containers: podman's events say at once when one ends or starts; a slow poll behind them sees what they missed.

use super::Context;
use super::client::{Events, Happening, seconds_since_1970};
use super::container::{Run, Standing};
use super::health;
use super::hints::Hints;
use super::known::{Known, Noticed, Seen};
use super::lifecycle::{self, Found};
use crate::core::DriverEvent;
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::Millis;
use ha_runtime::reconcile::Backoff;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

/// How long to wait before podman's events are asked for again: doubled each time, from the first to the second.
const REOPEN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How long until a container that is between two states is looked at again.
const CHANGING: Duration = Duration::from_millis(100);

/// The services of a driver that are watched. Dropping them ends it.
#[derive(Debug)]
pub(super) struct Watches {
    entries: Mutex<BTreeMap<String, Entry>>,
    wake: Arc<Notify>,
    /// The zero of this process's clock.
    begin: Instant,
}

#[derive(Debug)]
struct Entry {
    service: ServiceDefinition,
    container: String,
    known: Known,
    hints: Hints,
    /// Changes with every command, so that a look that began before it does not count.
    generation: u64,
    look_at: Instant,
    health: Option<Health>,
}

/// The task that asks a service's health; it ends with this.
#[derive(Debug)]
struct Health(AbortHandle);

impl Drop for Health {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Default for Watches {
    fn default() -> Watches {
        Watches { entries: Mutex::default(), wake: Arc::default(), begin: Instant::now() }
    }
}

impl Watches {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Millis {
        Millis::try_from(self.begin.elapsed().as_millis()).unwrap_or(Millis::MAX)
    }

    /// From here on a command is under way: what happens is its doing.
    pub(super) fn busy(&self, resource: &str) {
        if let Some(entry) = self.lock().get_mut(resource) {
            entry.known = Known::Busy;
            entry.generation += 1;
            entry.health = None;
        }
    }

    /// It does not run, as was just confirmed.
    pub(super) fn stopped(&self, service: &ServiceDefinition, container: &str) {
        self.settle(service, container, Known::Stopped);
    }

    /// It runs, as was just confirmed; its health is asked from here on.
    pub(super) fn running(
        &self,
        context: &Arc<Context>,
        service: &ServiceDefinition,
        container: &str,
        run: Run,
    ) {
        let id = run.id.clone();
        if !self.settle(service, container, Known::Running(run)) {
            return;
        }
        let check = service.driver.podman.as_ref().and_then(|podman| podman.health_check.clone());
        let Some(check) = check else { return };
        let asked = health::unhealthy(context.client.clone(), container.to_owned(), check);
        let (driver, name) = (Arc::downgrade(context), service.name.clone());
        let task = tokio::spawn(async move {
            let message = asked.await;
            if let Some(context) = driver.upgrade() {
                context.watches.unhealthy(&context, &name, &id, message);
            }
        });
        if let Some(entry) = self.lock().get_mut(&service.name) {
            entry.health = Some(Health(task.abort_handle()));
        }
    }

    /// Whether this is news.
    fn settle(&self, service: &ServiceDefinition, container: &str, known: Known) -> bool {
        let mut entries = self.lock();
        let look_at = Instant::now();
        let same =
            |entry: &Entry| entry.known == known && entry.container == container && entry.service == *service;
        if entries.get(&service.name).is_some_and(same) {
            return false;
        }
        let generation = entries.get(&service.name).map_or(0, |entry| entry.generation + 1);
        let entry = Entry {
            service: service.clone(),
            container: container.to_owned(),
            known,
            hints: Hints::default(),
            generation,
            look_at,
            health: None,
        };
        entries.insert(service.name.clone(), entry);
        drop(entries);
        // It may have ended since.
        self.wake.notify_one();
        true
    }

    fn unhealthy(&self, context: &Context, resource: &str, id: &str, message: String) {
        let mut entries = self.lock();
        let Some(entry) = entries.get_mut(resource) else { return };
        if !matches!(&entry.known, Known::Running(run) if run.id == id) {
            return;
        }
        // It is killed before it is started again; until then it is nobody's news that it lives.
        entry.known = Known::Busy;
        entry.generation += 1;
        entry.tell(context, Noticed::Exited { message, by_hand: false });
    }

    fn record(&self, happening: &Happening) {
        let now = self.now();
        for entry in self.lock().values_mut().filter(|entry| entry.container == happening.container) {
            if entry.known.run().is_some_and(|run| run.id == happening.id) {
                entry.hints.record(&happening.action, now);
            }
            // Commands in a container, as its health checks, say nothing about how it stands.
            if !["exec", "health"].iter().any(|beginning| happening.action.starts_with(beginning)) {
                entry.look_at = Instant::now();
            }
        }
    }

    fn look_at_all(&self) {
        for entry in self.lock().values_mut() {
            entry.look_at = Instant::now();
        }
    }

    /// Services to be looked at now, and when to come back.
    fn due(&self) -> (Vec<String>, Option<Instant>) {
        let now = Instant::now();
        let entries = self.lock();
        let watched = || entries.iter().filter(|(_, entry)| entry.known != Known::Busy);
        let due = watched().filter(|(_, entry)| entry.look_at <= now).map(|(name, _)| name.clone()).collect();
        (due, watched().map(|(_, entry)| entry.look_at).min())
    }
}

impl Entry {
    fn tell(&mut self, context: &Context, noticed: Noticed) {
        let (name, uid) = (self.service.name.clone(), self.service.uid.clone());
        let event = match noticed {
            Noticed::Exited { message, by_hand } => {
                self.health = None;
                DriverEvent::Exited { name, uid, message, by_hand }
            }
            Noticed::Appeared => DriverEvent::Appeared { name, uid },
        };
        // The receiver is gone only when the agent is ending.
        let _ = context.events.send(event);
    }
}

/// Watches until the driver is dropped.
pub(super) async fn run(driver: Weak<Context>) {
    let Some(wake) = driver.upgrade().map(|context| Arc::clone(&context.watches.wake)) else { return };
    let mut events: Option<Events> = None;
    let mut backoff = Backoff::new(REOPEN.0, REOPEN.1);
    let mut open_at = Instant::now();
    // What happens until the events are there is told then.
    let mut since = seconds_since_1970();
    loop {
        let Some(context) = driver.upgrade() else { return };
        if context.watches.lock().is_empty() {
            drop(context);
            wake.notified().await;
            continue;
        }
        if events.is_none() && open_at <= Instant::now() {
            match context.client.events(since).await {
                Ok(opened) => {
                    events = Some(opened);
                    backoff.reset();
                    context.watches.look_at_all();
                }
                Err(error) => {
                    tracing::debug!(%error, "podman's events cannot be watched");
                    open_at = Instant::now() + backoff.advance();
                }
            }
        }
        for name in context.watches.due().0 {
            look_at(&context, &name).await;
        }
        let mut until =
            context.watches.due().1.unwrap_or_else(|| Instant::now() + context.settings.poll_interval);
        if events.is_none() {
            until = until.min(open_at);
        }
        drop(context);
        let happening = async {
            match &mut events {
                Some(events) => events.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            happening = happening => {
                if let Some(happening) = happening {
                    since = happening.at;
                    if let Some(context) = driver.upgrade() {
                        context.watches.record(&happening);
                    }
                } else {
                    events = None;
                    open_at = Instant::now() + backoff.advance();
                }
            }
            () = wake.notified() => {}
            () = sleep_until(until) => {}
        }
    }
}

async fn look_at(context: &Context, resource: &str) {
    let (service, generation) = {
        let entries = context.watches.lock();
        let Some(entry) = entries.get(resource).filter(|entry| entry.known != Known::Busy) else { return };
        (entry.service.clone(), entry.generation)
    };
    let mut wait = context.settings.poll_interval;
    let seen = match lifecycle::look(context, &service).await {
        Ok(Found::Nothing | Found::Foreign) => Seen::Nothing,
        Ok(Found::Container(container, standing)) => match standing {
            Standing::Runs(run) => Seen::Runs(run),
            Standing::Ended(exit) => Seen::Ended(exit, context.client.said_last(&container.name).await),
            Standing::Changing(_) => {
                wait = wait.min(CHANGING);
                Seen::Unclear
            }
        },
        Err(error) => {
            tracing::debug!(resource, %error, "a service cannot be looked at");
            Seen::Unclear
        }
    };
    let now = context.watches.now();
    let mut entries = context.watches.lock();
    let Some(entry) = entries.get_mut(resource).filter(|entry| entry.generation == generation) else {
        return;
    };
    let noticed = entry.known.observe(seen, &entry.hints, now);
    entry.look_at = Instant::now() + entry.known.look_after(now).map_or(wait, Duration::from_millis);
    if let Some(noticed) = noticed {
        entry.tell(context, noticed);
    }
}
