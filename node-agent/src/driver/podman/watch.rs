//! Watches of containers: podman's events report an end or start immediately; a slow poll detects changes for which no
//! event was received.

use super::Context;
use super::client::{ContainerEvent, Events, seconds_since_1970};
use super::container::{ContainerState, Run};
use super::health;
use super::known_state::{KnownState, QueryResult, ReportedChange};
use super::lifecycle::{self, FoundContainer};
use super::stop_evidence::StopEvidence;
use crate::core::DriverEvent;
use ha_api_types::id::ResourceName;
use ha_api_types::resource::ServiceDefinition;
use ha_api_types::time::Millis;
use ha_runtime::reconcile::Backoff;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

/// First and longest delay before podman's events are requested again; the delay doubles each time.
const REOPEN_BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Delay before a container between two states is queried again.
const TRANSITION_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Watched services of the driver. Dropping this value ends all watches.
#[derive(Debug)]
pub(super) struct Watches {
    entries: Mutex<BTreeMap<ResourceName, Entry>>,
    wake: Arc<Notify>,
    /// Origin of the driver's clock.
    begin: Instant,
}

#[derive(Debug)]
struct Entry {
    service: ServiceDefinition,
    container: String,
    known: KnownState,
    evidence: StopEvidence,
    /// Increased by every command, so that the result of a query that began before the command is ignored.
    generation: u64,
    next_query_at: Instant,
    health: Option<HealthCheckTask>,
}

/// Task that checks a service's health; dropping this value aborts the task.
#[derive(Debug)]
struct HealthCheckTask(AbortHandle);

impl Drop for HealthCheckTask {
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
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ResourceName, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Millis {
        Millis::try_from(self.begin.elapsed().as_millis()).unwrap_or(Millis::MAX)
    }

    /// Records that a command is in progress, so that later changes count as its effects.
    pub(super) fn set_busy(&self, resource: &ResourceName) {
        if let Some(entry) = self.lock().get_mut(resource) {
            entry.known = KnownState::Busy;
            entry.generation += 1;
            entry.health = None;
        }
    }

    /// Records that the service does not run, as just confirmed.
    pub(super) fn set_stopped(&self, service: &ServiceDefinition, container: &str) {
        self.set_confirmed_state(service, container, KnownState::Stopped);
    }

    /// Records that the service runs, as just confirmed, and starts its health checks.
    pub(super) fn set_running(
        &self,
        context: &Arc<Context>,
        service: &ServiceDefinition,
        container: &str,
        run: Run,
    ) {
        let id = run.id.clone();
        if !self.set_confirmed_state(service, container, KnownState::Running(run)) {
            return;
        }
        let check = service.driver.podman.as_ref().and_then(|podman| podman.health_check.clone());
        let Some(check) = check else { return };
        let health_failure =
            health::wait_until_unhealthy(context.client.clone(), container.to_owned(), check);
        let (driver, name) = (Arc::downgrade(context), service.name.clone());
        let task = tokio::spawn(async move {
            let message = health_failure.await;
            if let Some(context) = driver.upgrade() {
                context.watches.on_unhealthy(&context, &name, &id, message);
            }
        });
        if let Some(entry) = self.lock().get_mut(&service.name) {
            entry.health = Some(HealthCheckTask(task.abort_handle()));
        }
    }

    /// Records a confirmed state. Returns `true` if the state is new.
    fn set_confirmed_state(&self, service: &ServiceDefinition, container: &str, state: KnownState) -> bool {
        let mut entries = self.lock();
        let next_query_at = Instant::now();
        let is_unchanged =
            |entry: &Entry| entry.known == state && entry.container == container && entry.service == *service;
        if entries.get(&service.name).is_some_and(is_unchanged) {
            return false;
        }
        let generation = entries.get(&service.name).map_or(0, |entry| entry.generation + 1);
        let entry = Entry {
            service: service.clone(),
            container: container.to_owned(),
            known: state,
            evidence: StopEvidence::default(),
            generation,
            next_query_at,
            health: None,
        };
        entries.insert(service.name.clone(), entry);
        drop(entries);
        // The container may have ended since the state was confirmed.
        self.wake.notify_one();
        true
    }

    fn on_unhealthy(&self, context: &Context, resource: &ResourceName, id: &str, message: String) {
        let mut entries = self.lock();
        let Some(entry) = entries.get_mut(resource) else { return };
        if !matches!(&entry.known, KnownState::Running(run) if run.id == id) {
            return;
        }
        // The agent kills the service before it starts it again; until then, reports that it runs are wrong.
        entry.known = KnownState::Busy;
        entry.generation += 1;
        entry.send(context, ReportedChange::Exited { message, stopped_externally: false });
    }

    fn record(&self, event: &ContainerEvent) {
        let now = self.now();
        for entry in self.lock().values_mut().filter(|entry| entry.container == event.container) {
            if entry.known.run().is_some_and(|run| run.id == event.id) {
                entry.evidence.record(&event.action, now);
            }
            // Commands in a container, such as its health checks, do not change its state.
            if !["exec", "health"].iter().any(|beginning| event.action.starts_with(beginning)) {
                entry.next_query_at = Instant::now();
            }
        }
    }

    fn query_all_now(&self) {
        for entry in self.lock().values_mut() {
            entry.next_query_at = Instant::now();
        }
    }

    /// Returns the services that are due for a query, and the time of the next query.
    fn due_queries(&self) -> (Vec<ResourceName>, Option<Instant>) {
        let now = Instant::now();
        let entries = self.lock();
        let watched = || entries.iter().filter(|(_, entry)| entry.known != KnownState::Busy);
        let due =
            watched().filter(|(_, entry)| entry.next_query_at <= now).map(|(name, _)| name.clone()).collect();
        (due, watched().map(|(_, entry)| entry.next_query_at).min())
    }
}

impl Entry {
    fn send(&mut self, context: &Context, change: ReportedChange) {
        let (name, uid) = (self.service.name.clone(), self.service.uid.clone());
        let event = match change {
            ReportedChange::Exited { message, stopped_externally } => {
                self.health = None;
                DriverEvent::Exited { name, uid, message, stopped_externally }
            }
            ReportedChange::Appeared => DriverEvent::Appeared { name, uid },
        };
        // Sending fails only when the agent is ending.
        let _ = context.events.send(event);
    }
}

/// Watches all services until the driver is dropped.
pub(super) async fn run(driver: Weak<Context>) {
    let Some(wake) = driver.upgrade().map(|context| Arc::clone(&context.watches.wake)) else { return };
    let mut events: Option<Events> = None;
    let mut backoff = Backoff::new(REOPEN_BACKOFF.0, REOPEN_BACKOFF.1);
    let mut open_at = Instant::now();
    // The first stream of events includes events since this time, so no event is lost before the stream is open.
    let mut since_seconds = seconds_since_1970();
    loop {
        let Some(context) = driver.upgrade() else { return };
        if context.watches.lock().is_empty() {
            drop(context);
            wake.notified().await;
            continue;
        }
        if events.is_none() && open_at <= Instant::now() {
            match context.client.events(since_seconds).await {
                Ok(opened) => {
                    events = Some(opened);
                    backoff.reset();
                    context.watches.query_all_now();
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot watch the events of podman");
                    open_at = Instant::now() + backoff.advance();
                }
            }
        }
        for name in context.watches.due_queries().0 {
            query_service(&context, &name).await;
        }
        let mut next_check_at = context
            .watches
            .due_queries()
            .1
            .unwrap_or_else(|| Instant::now() + context.settings.poll_interval);
        if events.is_none() {
            next_check_at = next_check_at.min(open_at);
        }
        drop(context);
        let event = async {
            match &mut events {
                Some(events) => events.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = event => {
                if let Some(event) = event {
                    since_seconds = event.at;
                    if let Some(context) = driver.upgrade() {
                        context.watches.record(&event);
                    }
                } else {
                    events = None;
                    open_at = Instant::now() + backoff.advance();
                }
            }
            () = wake.notified() => {}
            () = sleep_until(next_check_at) => {}
        }
    }
}

async fn query_service(context: &Context, resource: &ResourceName) {
    let (service, generation) = {
        let entries = context.watches.lock();
        let Some(entry) = entries.get(resource).filter(|entry| entry.known != KnownState::Busy) else {
            return;
        };
        (entry.service.clone(), entry.generation)
    };
    let mut next_query_delay = context.settings.poll_interval;
    let query_result = match lifecycle::query_container(context, &service).await {
        Ok(FoundContainer::Nothing | FoundContainer::Foreign) => QueryResult::Nothing,
        Ok(FoundContainer::Container(container, container_state)) => match container_state {
            ContainerState::Runs(run) => QueryResult::Runs(run),
            ContainerState::Ended(exit) => {
                QueryResult::Ended(exit, context.client.last_output_suffix(&container.name).await)
            }
            ContainerState::Changing(_) => {
                next_query_delay = next_query_delay.min(TRANSITION_POLL_INTERVAL);
                QueryResult::Unclear
            }
        },
        Err(error) => {
            tracing::debug!(resource = resource.as_str(), %error, "cannot check a service");
            QueryResult::Unclear
        }
    };
    let now = context.watches.now();
    let mut entries = context.watches.lock();
    let Some(entry) = entries.get_mut(resource).filter(|entry| entry.generation == generation) else {
        return;
    };
    let change = entry.known.observe(query_result, &entry.evidence, now);
    entry.next_query_at =
        Instant::now() + entry.known.next_query_ms(now).map_or(next_query_delay, Duration::from_millis);
    if let Some(change) = change {
        entry.send(context, change);
    }
}
